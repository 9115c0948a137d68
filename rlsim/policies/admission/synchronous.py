"""Synchronous admission: one batch per weights version, and nothing enters until it is trained on.

``barrier`` is the plain loop of verl, OpenRLHF and TRL. Variants launch more than the batch needs and keep what ends
first (``over-sample``: slime, APRIL), generate round after round until enough groups teach something (``rounds``: the
dynamic sampling of DAPO's recipe), or put the prompts of a round's tail off to a long round of their own (``tail-
batching``: RollPacker).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes, View
from rlsim.policies.protocols import Unit
from rlsim.policies.registry import part


@part("admission", "barrier")
@dataclass(frozen=True, slots=True)
class Barrier:
    """Admit exactly one batch of groups for each weights version, all of it at once; dropped groups are replaced."""

    unit: ClassVar[Unit] = "group"
    batches_per_version: ClassVar[int] = 1
    whole_batches: ClassVar[bool] = True
    counts_refused_versions: ClassVar[bool] = True
    admits_when_idle: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Barrier:
        """Nothing to check."""
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """(publications tried + 1) batches in all."""
        admitted = view.started_groups - view.dropped_groups
        return (view.version + view.rejected + 1) * view.shape.prompts_per_step - admitted, "barrier"


@part("admission", "over-sample")
@dataclass(frozen=True, slots=True)
class OverSample:
    """Submit ``over_sampling_batch_size`` groups whenever fewer than a batch are in play (arXiv 2509.18521).

    Resumed groups count as submitted ones; submissions come in whole multiples.
    """

    over_sampling_batch_size: int | None = None
    """Groups a submission; None for one training batch."""
    unit: ClassVar[Unit] = "group"
    submits_by_round: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> OverSample:
        """Refuse a submission smaller than the batch."""
        size = self.over_sampling_batch_size
        if size is not None and size < shape.prompts_per_step:
            allowed = f"at least prompts_per_step = {shape.prompts_per_step}"
            raise ParameterError("over_sampling_batch_size", size, allowed)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """A whole submission, or nothing."""
        batch = view.shape.prompts_per_step
        if view.round_groups >= batch:
            return 0, "barrier"
        return self.over_sampling_batch_size or batch, "barrier"


@part("admission", "rounds")
@dataclass(frozen=True, slots=True)
class Rounds:
    """``gen_batch_size`` groups at once; again when all of them have ended and fewer than a batch is complete.

    verl's DAPO recipe (``recipe/dapo/dapo_ray_trainer.py``: ``gen_batch_size``, ``filter_groups``), MiMo's naive
    dynamic sampling: the last response of every round is waited for.
    """

    gen_batch_size: int | None = None
    """Groups of a round; None for ``prompts_per_step``."""
    unit: ClassVar[Unit] = "group"
    admits_when_idle: ClassVar[bool] = True
    stops_at_full_buffer: ClassVar[bool] = True

    @property
    def round_groups(self) -> int | None:
        """Groups of a round, once it is started."""
        return self.gen_batch_size

    def start(self, shape: RunSizes) -> Rounds:
        """Refuse an empty round."""
        if self.gen_batch_size is None:
            return replace(self, gen_batch_size=shape.prompts_per_step)
        at_least("gen_batch_size", self.gen_batch_size, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """A whole round, or nothing."""
        waits = view.trainer == "idle" and len(view.ready) < view.shape.prompts_per_step
        if view.running_samples or not waits:
            return 0, "barrier"
        return self.gen_batch_size or view.shape.prompts_per_step, "barrier"


def long_round(view: View) -> bool:
    """Whether the round that is being begun, or was last begun, is made of prompts that were put off."""
    if view.round_groups <= 1:  # The first group is not there yet.
        return len(view.recycled) >= view.shape.prompts_per_step
    newest = next(reversed(view.open.values()), None)
    return newest is not None and newest.recycle > 0


@part("admission", "tail-batching")
@dataclass(frozen=True, slots=True)
class TailBatching:
    """Launch ``eta_p`` batches of new prompts a round, or exactly one of prompts that earlier rounds put off.

    A long round is due as soon as a batch of prompts has been put off (arXiv 2509.21009). One round a version.
    """

    eta_p: float = 1.25
    """Groups launched in a short round, as a multiple of ``prompts_per_step``."""
    unit: ClassVar[Unit] = "group"
    batches_per_version: ClassVar[int] = 1
    submits_by_round: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> TailBatching:
        """Refuse a round smaller than the batch."""
        at_least("eta_p", self.eta_p, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """A whole round, once the weights of the last one are served; during it, what its batch has lost."""
        if view.steps_begun > view.version:
            return 0, "barrier"
        batch = view.shape.prompts_per_step
        if view.round_groups:
            return batch - view.open_groups - len(view.ready), "barrier"
        return batch if long_round(view) else math.ceil(self.eta_p * batch), "barrier"
