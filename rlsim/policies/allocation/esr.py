"""A fixed short length: ESR."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.allocation.whole_groups import WholeGroups
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class EarlyStoppingRollout(WholeGroups):
    """Responses end after a fixed number of tokens, because a teacher's signal decays on later ones.

    ESR, systems list entry 128; for distillation (``learning.distillation``): a cut response earns no reward. Its
    figure for the cap is not known to us.
    """

    response_tokens: int = 512
    """Tokens of a turn."""

    def start(self, shape: Shape) -> EarlyStoppingRollout:
        """Refuse a cap that leaves nothing."""
        at_least("response_tokens", self.response_tokens, 1)
        return self

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """The same for every sample."""
        return self.response_tokens
