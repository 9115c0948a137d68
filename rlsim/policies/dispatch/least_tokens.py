"""Load counted in tokens."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View


@dataclass(frozen=True, slots=True)
class LeastTokens:
    """The replica whose calls in flight began with the fewest tokens of context: near its KV load and prefill work."""

    def start(self, shape: Shape) -> LeastTokens:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded in tokens."""
        return view.loads.least_tokens()
