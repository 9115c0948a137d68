"""What every migration part counts."""

from __future__ import annotations

from rlsim.core.view import Sample, View


def movable(view: View, replicas: set[int]) -> dict[int, list[Sample]]:
    """Calls of some replicas that are wanted and not being cut, by replica, oldest first."""
    found: dict[int, list[Sample]] = {replica: [] for replica in replicas}
    for sample in view.generating_samples.values():
        if sample.replica in found and not (sample.aborting or sample.doomed):
            found[sample.replica].append(sample)
    return found
