"""Prompts by their past, and a look at the model's entropy before much is spent on them: HIVE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import usual
from rlsim.policies.allocation.pool import Pool, check_pool
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Offer, Pick, Size, Verdict


@dataclass(frozen=True, slots=True)
class Hive:
    """Stand-in: the prompts with the largest p (1 - p) by history; a group is given up if its entropy is low when read.

    HIVE (systems list entry 141): reward history, then prompt entropy as a check at the time. Ours reads ``entropy`` on
    the first sample's first tokens, for want of a pass that only prefills; what the group made until then is its cost.
    """

    check_tokens: int = 16
    """Tokens of the first sample at which entropy is read; a response that is shorter is not checked."""
    least_entropy: float = 0.2
    """Reading below which the group is given up and another prompt sampled; 4 p (1 - p) and noise in the simulator."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""
    pool: float = 2.0
    """Prompts compared, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: Shape) -> _Checking:
        """Refuse a check before there is anything to read, and groups of one."""
        several("hive", shape)
        at_least("check_tokens", self.check_tokens, 2)
        fraction("kept_per_version", self.kept_per_version)
        check_pool(self.pool)
        return _Checking(self, shape)


class _Checking:
    aborts_surplus = True
    signals: ClassVar[tuple[str, ...]] = ("entropy",)

    def __init__(self, part: Hive, shape: Shape) -> None:
        self._part = part
        self._beliefs = Beliefs(1.0, part.kept_per_version)
        self._pool = Pool(shape, part.pool, self._worth)
        self.candidates = self._pool.candidates

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        return self._pool.pick(view, offers)

    def _worth(self, view: View, offer: Offer) -> float:
        success = self._beliefs.of(offer.prompt, view.version).mean
        return success * (1 - success)

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        before = sample.turn == 0 and sample.made_tokens < self._part.check_tokens
        return Watch("entropy", (self._part.check_tokens,)) if before and sample.member == 0 else None

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        members = sample.group.members
        fresh = all(member.state != "ended" for member in members)
        return Verdict(pruned=tuple(members)) if fresh and value < self._part.least_entropy else Verdict()
