"""Fill one replica with a batch of samples before the next: Laminar."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least


class _Filling:
    def __init__(self, batch: int) -> None:
        self._batch, self._left, self._replica = batch, 0, 0

    def replica(self, view: View, sample: Sample) -> int:
        if sample.replica >= 0 and view.loads.is_open(sample.replica):
            return sample.replica
        if not (self._left and view.loads.is_open(self._replica)):
            self._left, self._replica = self._batch, view.loads.least()
        self._left -= 1
        return self._replica


@dataclass(frozen=True, slots=True)
class FillEmpty:
    """``replica_batch`` new samples to the least loaded replica, then as many to the next; later turns stay."""

    replica_batch: int | None = None
    """As the admission's (``refill-empty``); None for the seats of a replica (``max_num_seqs``)."""

    def start(self, shape: Shape) -> _Filling:
        """Refuse an empty batch."""
        batch = shape.max_num_seqs if self.replica_batch is None else self.replica_batch
        at_least("replica_batch", batch, 1)
        return _Filling(batch)
