"""Groups that have been trained on and that allocation may draw on again: as drafts, or to be trained on once more."""

from __future__ import annotations

from collections.abc import Iterable

from rlsim.core.view import Group, View
from rlsim.policies.hooks import Remembers, Replays
from rlsim.policies.protocols import Allocation


class ReplayBuffer:
    """Keeps ``view.kept``; without the hooks nothing is kept."""

    def __init__(self, allocation: Allocation, view: View) -> None:
        self._view = view
        self._remembers = allocation if isinstance(allocation, Remembers) else None
        self._replays = allocation if isinstance(allocation, Replays) else None
        self._released: list[int] = []

    @property
    def keeps(self) -> bool:
        """Whether what is trained on stays known to the world."""
        return self._remembers is not None

    def trained(self, groups: Iterable[Group]) -> None:
        """These have been trained on, for the first time or again."""
        if self._remembers is None:
            return
        for group in groups:
            self._view.kept[group.group] = group
            for number in self._remembers.trained(self._view, group):
                gone = self._view.kept.pop(number)
                self._released += [sample.sample for sample in gone.members]

    def again(self) -> Group | None:
        """A kept group that takes the place of a new prompt; None for a new prompt."""
        number = None if self._replays is None else self._replays.again(self._view)
        if number is None:
            return None
        group = self._view.kept.pop(number)
        group.replays += 1
        return group

    def releases(self) -> tuple[int, ...]:
        """Samples that the world may forget; told once."""
        released, self._released = tuple(self._released), []
        return released
