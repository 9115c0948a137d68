"""Retention: what is kept of the work that a batch did not take, and what is dropped for its age.

Everything is kept (AReaL, PipelineRL); a batch ends the round and the rest is cut, to be resumed or given up (slime,
CoPRIS); groups are dropped by the versions that they span (verl V1, miles), by the step that they would be trained in
(prime-rl, open-instruct) or by the step in which they began (ROLL); or their prompts wait for a round of their own
(RollPacker). In scenarios the choice is named ``leftovers``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes, View
from rlsim.policies.admission.synchronous import long_round
from rlsim.policies.registry import part


@part("leftovers", "keep-all")
@dataclass(frozen=True, slots=True)
class KeepAll:
    """Everything runs on and waits its turn; age is bounded by admission alone."""

    ends_round: ClassVar[bool] = False
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True
    recycles: ClassVar[bool] = False

    def start(self, shape: RunSizes) -> KeepAll:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()

    def abandoned(self, view: View) -> Sequence[int]:
        """Nothing is given up."""
        return ()


@part("leftovers", "end-round")
@dataclass(frozen=True, slots=True)
class EndRound:
    """A batch ends the round: the rest is aborted, and resumed in the next round or given up.

    Tools and scores cannot be cut: the round lasts until those under way have returned (slime issue 2176).
    """

    keeps_unfinished: bool = True
    """Resume aborted samples from their tokens (slime ``partial_rollout``)."""
    keeps_surplus: bool = False
    """Carry complete groups beyond the batch over (CoPRIS does, slime does not)."""
    recycles: bool = False
    """Draw the prompts of dropped groups again, before new ones."""
    ends_round: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> EndRound:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()

    def abandoned(self, view: View) -> Sequence[int]:
        """Nothing is given up."""
        return ()


@part("leftovers", "drop-old")
@dataclass(frozen=True, slots=True)
class DropOld:
    """Drop what waited too long: groups by age in versions, and the oldest of a full ring buffer."""

    max_age_versions: int | None = None
    """Of complete groups in the buffer, counted from their admission."""
    max_open_age_versions: int | None = None
    """Of groups still generating; they are aborted."""
    buffer_groups: int | None = None
    recycles: bool = False
    """Draw the prompts of dropped groups again, before new ones."""
    ends_round: ClassVar[bool] = False
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True

    @property
    def may_drop(self) -> bool:
        """With any of the limits."""
        return (self.max_age_versions, self.max_open_age_versions, self.buffer_groups) != (None,) * 3

    @property
    def drops_by_age(self) -> bool:
        """With a limit for complete groups."""
        return self.max_age_versions is not None

    def start(self, shape: RunSizes) -> DropOld:
        """Refuse a buffer that can never hold a batch."""
        for name in ("max_age_versions", "max_open_age_versions"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 0)
        if self.buffer_groups is not None and self.buffer_groups < shape.prompts_per_step:
            allowed = f"at least prompts_per_step = {shape.prompts_per_step}: a smaller buffer never fills a batch"
            raise ParameterError("buffer_groups", self.buffer_groups, allowed)
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Groups too old, then the first ones beyond the buffer."""
        old: list[int] = []
        if self.max_age_versions is not None:
            limit = view.version - self.max_age_versions
            old = [number for number, group in view.ready.items() if group.version < limit]
        if self.buffer_groups is not None and len(view.ready) - len(old) > self.buffer_groups:
            rest = (group for group in view.ready if group not in old)
            old += islice(rest, len(view.ready) - len(old) - self.buffer_groups)
        return old

    def abandoned(self, view: View) -> Sequence[int]:
        """Open groups admitted too many versions ago."""
        if self.max_open_age_versions is None:
            return ()
        limit = view.version - self.max_open_age_versions
        return [number for number, group in view.open.items() if group.version < limit]


@part("leftovers", "max-off-policy")
@dataclass(frozen=True, slots=True)
class MaxOffPolicy:
    """With ``drop``, a complete group goes when ``version - its version + 1`` exceeds the threshold.

    The batch is refilled with new prompts. With ``wait`` nothing is dropped: the batching part waits instead (verl
    ``trainer/ppo/v1/replay_buffer.py``).
    """

    max_off_policy_threshold: int = 8
    """In weights versions, 1 for those served."""
    max_off_policy_strategy: Literal["drop", "wait"] = "drop"
    ends_round: bool = False
    """Whether a batch aborts what is still generating, to be resumed after the step (``colocate_async``)."""
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True
    recycles: ClassVar[bool] = False

    @property
    def drops_by_age(self) -> bool:
        """With ``drop``."""
        return self.max_off_policy_strategy == "drop"

    may_drop = drops_by_age

    def start(self, shape: RunSizes) -> MaxOffPolicy:
        """Refuse a threshold that drops even what the served weights made."""
        at_least("max_off_policy_threshold", self.max_off_policy_threshold, 1)
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Complete groups beyond the threshold."""
        if self.max_off_policy_strategy == "wait":
            return ()
        oldest = view.version + 1 - self.max_off_policy_threshold
        return [number for number, group in view.ready.items() if group.version < oldest]

    def abandoned(self, view: View) -> Sequence[int]:
        """Groups under way run on."""
        return ()


@part("leftovers", "off-policy-steps")
@dataclass(frozen=True, slots=True)
class OffPolicySteps:
    """Drop a group admitted more than ``max_steps`` versions before the batch that it would be trained in.

    Complete groups fill batches in order of completion; batch number b, counted from 0, is trained by version b. So the
    time that a group will wait behind full batches counts (prime-rl ``orchestrator.py``: version below
    ``(step - 1) - max_off_policy_steps``; open-instruct ``data_loader.py``: ``training_step - model_step``). Needs a
    publication after every step.
    """

    max_steps: int = 8
    in_flight: bool = False
    """Whether open groups are judged too, by the batch being filled, when weights change; they are aborted."""
    lead_batches: int | None = None
    """Full batches that may wait for the trainer: groups behind them are judged as the next; None for no limit."""
    recycles: bool = False
    """Draw the prompts of dropped groups again, before new ones."""
    ends_round: ClassVar[bool] = False
    may_drop: ClassVar[bool] = True
    drops_by_age: ClassVar[bool] = True
    compares_steps: ClassVar[bool] = True
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> OffPolicySteps:
        """Refuse negative numbers."""
        at_least("max_steps", self.max_steps, 0)
        if self.lead_batches is not None:
            at_least("lead_batches", self.lead_batches, 0)
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Complete groups too old for their places."""
        old: list[int] = []
        for place, group in enumerate(view.ready.values()):
            if group.version < self._oldest(view, place - len(old)):
                old.append(group.group)
        return old

    def abandoned(self, view: View) -> Sequence[int]:
        """Open groups too old for the batch being filled."""
        if not self.in_flight:
            return ()
        limit = self._oldest(view, len(view.ready))
        return [number for number, group in view.open.items() if group.version < limit]

    def _oldest(self, view: View, place: int) -> int:
        """The oldest version that a group at a place in the queue may have."""
        ahead = place // view.shape.prompts_per_step
        if self.lead_batches is not None:
            ahead = min(ahead, self.lead_batches)
        return view.steps_begun + ahead - self.max_steps


@part("leftovers", "put-off")
@dataclass(frozen=True, slots=True)
class PutOff:
    """A batch ends the round; the prompts of all other groups wait for a round of their own, from the beginning.

    RollPacker's long-prompt queue (arXiv 2509.21009): what ends a short round last is likely long.
    """

    ends_round: ClassVar[bool] = True
    keeps_unfinished: ClassVar[bool] = False
    keeps_surplus: ClassVar[bool] = False
    recycles: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> PutOff:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()

    def abandoned(self, view: View) -> Sequence[int]:
        """Nothing is given up but by the end of a round."""
        return ()

    def redraws(self, view: View) -> bool:
        """In long rounds only."""
        return long_round(view)


@part("leftovers", "ratio-age")
@dataclass(frozen=True, slots=True)
class RatioAge:
    """When weights change, groups that began more than ``ceil(async_generation_ratio)`` steps ago are dropped.

    Those under way are aborted (ROLL ``gc``, ``generate_scheduler.py``).
    """

    async_generation_ratio: float = 0.0

    def start(self, shape: RunSizes) -> DropOld:
        """Refuse a negative ratio."""
        at_least("async_generation_ratio", self.async_generation_ratio, 0)
        age = math.ceil(self.async_generation_ratio)
        return DropOld(max_age_versions=age, max_open_age_versions=age)
