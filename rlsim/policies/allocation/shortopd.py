"""As long as responses say something new: ShortOPD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.recent import Recent
from rlsim.policies.allocation.whole_groups import WholeGroups, every
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Verdict


@dataclass(frozen=True, slots=True)
class EffectiveLength:
    """Stand-in: the next cap follows the recent lengths of responses before they repeat themselves.

    ShortOPD, systems list entry 28 (its abstract). Ours: an effective length ends at the last look that found no
    repetition; after every ``prompts_per_step`` groups the cap is ``headroom`` times the quantile ``covered_share`` of
    the recent ones, so it grows while many are cut. Numbers are ours, but for the 8,192 tokens of its fixed horizon.
    What the teacher's confirmation costs is not priced.
    """

    cap_tokens: int = 1024
    """At the start."""
    least_cap_tokens: int = 256
    most_cap_tokens: int = 8192
    every_tokens: int = 128
    """Between two looks."""
    covered_share: float = 0.9
    headroom: float = 1.25
    responses_kept: int = 1024

    def start(self, shape: Shape) -> _Following:
        """Refuse caps out of order, and a headroom that only shrinks them."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("least_cap_tokens", self.least_cap_tokens, 1)
        at_least("cap_tokens", self.cap_tokens, self.least_cap_tokens)
        at_least("most_cap_tokens", self.most_cap_tokens, self.cap_tokens)
        at_least("headroom", self.headroom, 1)
        at_least("responses_kept", self.responses_kept, 1)
        return _Following(self)


class _Following(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("repetition",)

    def __init__(self, spec: EffectiveLength) -> None:
        self._spec = spec
        self._cap, self._groups = spec.cap_tokens, 0
        self._lengths = Recent(spec.responses_kept)
        self._repeats: dict[int, int] = {}
        """Tokens before the first look that found a repetition, by sample."""

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """As set last."""
        return self._cap

    def watch(self, view: View, sample: Sample) -> Watch:
        """Repetition, every so many tokens."""
        return Watch("repetition", every(self._spec.every_tokens, self._spec.most_cap_tokens))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Remember where a repetition was found first; the response goes on."""
        if value >= 0.5:
            self._repeats.setdefault(sample.sample, tokens - self._spec.every_tokens)
        return GO_ON

    def observe(self, view: View, group: Group) -> None:
        """Effective lengths; after a batch of groups, the next cap."""
        for member in group.members:
            self._lengths.add(self._repeats.pop(member.sample, member.response_tokens))
        self._groups += 1
        if self._groups % view.shape.prompts_per_step == 0:
            spec = self._spec
            wanted = math.ceil(spec.headroom * self._lengths.quantile(spec.covered_share))
            self._cap = min(spec.most_cap_tokens, max(spec.least_cap_tokens, wanted))
