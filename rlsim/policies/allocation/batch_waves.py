"""When the groups of one training step rest together: waves that are decided for a batch wait for all of it."""

from __future__ import annotations

from collections import Counter

from rlsim.core.view import Group, View


class BatchWaves:
    """Batches at rest, by training step.

    A batch rests when each of its open groups does, and either all of it was opened or nothing else runs: admission
    that waits for the batch itself is not waited for.
    """

    def __init__(self) -> None:
        self._opened: Counter[int] = Counter()
        self._nothing: tuple[int, int, int] | None = None
        """Groups begun, ended and at rest when no batch was."""

    def opened(self, group: Group) -> None:
        """A group was opened."""
        self._opened[group.target] += 1

    def at_rest(self, view: View) -> list[list[Group]]:
        """Groups by batch, in order of admission; whoever gets them lets them go on, or be complete."""
        looks = (view.started_groups, view.left_groups, len(view.resting))
        if looks == self._nothing:  # Asked after every event: nothing came to rest since.
            return []
        found = self._found(view)
        self._nothing = None if found else looks
        return found

    def _found(self, view: View) -> list[list[Group]]:
        batches: dict[int, list[Group]] = {}
        for group in view.open.values():
            batches.setdefault(group.target, []).append(group)
        nothing_runs = len(view.resting) == len(view.open)
        return [
            groups
            for target, groups in batches.items()
            if all(group.group in view.resting for group in groups)
            and (nothing_runs or self._opened[target] >= view.shape.prompts_per_step)
        ]
