"""Launch more groups than the batch needs: slime's over-sampling, APRIL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class OverSample:
    """Submit ``over_sampling_batch_size`` groups whenever fewer than a batch are in play (arXiv 2509.18521).

    Resumed groups count as submitted ones; submissions come in whole multiples.
    """

    over_sampling_batch_size: int | None = None
    """Groups a submission; None for one training batch."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> OverSample:
        """Refuse a submission smaller than the batch."""
        size = self.over_sampling_batch_size
        if size is not None and size < shape.prompts_per_step:
            allowed = f"at least prompts_per_step = {shape.prompts_per_step}"
            raise ParameterError("over_sampling_batch_size", size, allowed)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """A whole submission, or nothing."""
        batch = view.shape.prompts_per_step
        if view.round_groups >= batch:
            return 0, "barrier"
        return self.over_sampling_batch_size or batch, "barrier"
