"""Branches where a sample is uncertain, and nowhere else: Spark, and what AEPO and BranchGRPO make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.trees import checked_marks, further_roots, room
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Size, Verdict


@dataclass(frozen=True, slots=True)
class Spark:
    """Stand-in: of ``group_size`` samples ``roots`` begin at the prompt, the others where a signal passes a threshold.

    Spark (systems list 84) branches at critical states that the agent's own signals show. What no critical state used
    is sampled from the prompt in a second wave. AEPO (33): ``most_in_a_row: 1``, so that uncertain turns that follow
    each other do not all branch; its split of the budget by entropy measured beforehand is ``roots``. BranchGRPO (96):
    ``threshold: null``, with marks at which every sample branches.
    """

    roots: int = 1
    """Samples that begin at the prompt."""
    marks: tuple[int, ...] = (2,)
    """Response tokens of a turn at which it is looked at."""
    signal: str = "entropy"
    """Reading that is compared (:mod:`rlsim.learning`)."""
    threshold: float | None = 0.5
    """Reading from which on a state is critical; None: every one is."""
    width: int = 1
    """New members at a critical state."""
    most_in_a_row: int | None = None
    """Critical states of a sample that follow each other and branch; None: all."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> Sparks:
        """Refuse more roots than samples."""
        if not 1 <= self.roots <= shape.group_size:
            raise ParameterError("roots", self.roots, f"from 1 to workload.group_size = {shape.group_size}")
        at_least("width", self.width, 1)
        at_least("most_in_a_row", 1 if self.most_in_a_row is None else self.most_in_a_row, 1)
        checked_marks(self.marks)
        return Sparks(self)


@dataclass(slots=True)
class Sparks:
    """How many critical states in a row each running sample has had."""

    spec: Spark
    aborts_surplus: bool = True
    _row: dict[int, int] = field(default_factory=dict)

    @property
    def signals(self) -> tuple[str, ...]:
        """The one that is compared."""
        return (self.spec.signal,)

    def members(self, view: View, group: Group) -> Size:
        """The roots."""
        return Size(self.spec.roots, self.spec.roots)

    def observe(self, view: View, group: Group) -> None:
        """Forget the group."""
        for sample in group.members:
            self._row.pop(sample.sample, None)

    def watch(self, view: View, sample: Sample) -> Watch:
        """Every call, at the marks."""
        return Watch(self.spec.signal, self.spec.marks)

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Nobody is given up."""
        return GO_ON

    def branch(self, view: View, sample: Sample, tokens: int, value: float | None) -> int:
        """As many as are left of the group, at a critical state."""
        if value is None:
            return 0
        spec = self.spec
        if spec.threshold is not None and value < spec.threshold:
            self._row[sample.sample] = 0
            return 0
        parent = -1 if sample.fork is None else sample.fork.parent
        row = self._row[sample.sample] = 1 + self._row.get(sample.sample, self._row.get(parent, 0))
        if spec.most_in_a_row is not None and row > spec.most_in_a_row:
            return 0
        return min(spec.width, room(view, sample.group))

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        """What is left of a group begins at the prompt."""
        return further_roots(view)
