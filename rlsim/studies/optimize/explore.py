"""Looking for the best point: all of them where they are few, else by Optuna's TPE with descents along the axes.

The search is the same whenever it is repeated (its chance is seeded, its batches do not depend on the workers), so that
a killed one finds its runs in the store and goes on.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from rlsim.core.errors import RlsimError
from rlsim.studies.optimize.candidates import NOMINAL, Candidate, InputState
from rlsim.studies.optimize.scoring import EvaluatedPoint, Evaluator
from rlsim.studies.optimize.space import GridPoint

SEED = 20_240
FIRST_SHARE = 0.3
"""Of the evaluations, spent by TPE before the first descent."""
BATCH = 2
"""Points that TPE proposes at once."""
ASKS_PER_EVALUATION = 20
"""Proposals, infeasible and repeated ones included, for one that is simulated."""


def explore(evaluator: Evaluator, evaluations: int, state: InputState = NOMINAL) -> dict[GridPoint, EvaluatedPoint]:
    """Points simulated on their first replication, feasible ones alone; at most ``evaluations`` are simulated."""
    space = evaluator.candidates.space
    if space.size <= evaluations:
        return evaluator.evaluate(list(space.points()), state)
    return TpeSearch(evaluator, evaluations, state).run()


class TpeSearch:
    """A search of a space that is too large to try out."""

    def __init__(self, evaluator: Evaluator, evaluations: int, state: InputState, seed: int = SEED) -> None:
        self._evaluator, self._most, self._state = evaluator, evaluations, state
        self._space = evaluator.candidates.space
        self._study = _study(seed, evaluations)
        self._evaluated: dict[GridPoint, EvaluatedPoint] = {}
        self._tried: set[GridPoint] = set()
        """Simulated, whatever came of it."""
        self._starts: set[GridPoint] = set()
        """Proposed points from which there was no descent."""
        self._proposals = 0

    def run(self) -> dict[GridPoint, EvaluatedPoint]:
        """TPE, a descent from the best point, and again with what is left, from the best not descended from."""
        middle = tuple(len(axis.factor.levels) // 2 for axis in self._space.axes)
        for point in dict.fromkeys([*self._space.written(), middle]):
            self._study.enqueue_trial({axis.name: index for axis, index in zip(self._space.axes, point, strict=True)})
        self._propose_until(math.ceil(FIRST_SHARE * self._most))
        while self._is_open():
            start = min(self._starts, key=lambda point: (self._evaluated[point].value, point), default=None)
            if start is not None:
                self._starts.remove(start)
                self._starts.discard(self._descend(start))
            self._propose_until(len(self._tried) + BATCH)
        return self._evaluated

    def _is_open(self) -> bool:
        return len(self._tried) < self._most and self._proposals < ASKS_PER_EVALUATION * self._most

    def _propose_until(self, tried: int) -> None:
        while len(self._tried) < min(tried, self._most) and self._is_open():
            trials = [self._study.ask() for _ in range(min(BATCH, self._most - len(self._tried)))]
            self._proposals += len(trials)
            proposed = {trial.number: self._point(trial) for trial in trials}
            self._try(list(proposed.values()))
            self._starts |= {point for point in proposed.values() if point in self._evaluated}
            for trial in trials:
                self._tell(trial, proposed[trial.number])

    def _try(self, points: list[GridPoint]) -> None:
        fresh = [point for point in dict.fromkeys(points) if point not in self._tried and self._is_candidate(point)]
        self._tried |= set(fresh)
        self._evaluated |= self._evaluator.evaluate(fresh, self._state)

    def _is_candidate(self, point: GridPoint) -> bool:
        return isinstance(self._evaluator.candidates.resolve(point, self._state), Candidate)

    def _tell(self, trial: Any, point: GridPoint) -> None:
        from optuna.trial import TrialState

        if point in self._evaluated:
            self._study.tell(trial, math.log(self._evaluated[point].value))
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def _point(self, trial: Any) -> GridPoint:
        return tuple(
            trial.suggest_int(axis.name, 0, len(axis.factor.levels) - 1)
            if axis.is_ordered
            else trial.suggest_categorical(axis.name, list(range(len(axis.factor.levels))))
            for axis in self._space.axes
        )

    def _descend(self, point: GridPoint) -> GridPoint:
        """Along one axis after the other while that improves; where no neighbour is better it ends."""
        before = None
        while point != before and self._is_open():
            before = point
            for number, axis in enumerate(self._space.axes):
                point = (
                    self._along(point, number)
                    if axis.is_ordered
                    else self._best_of(point, number, self._levels(number))
                )
                point = self._best_of(point, number, axis.kin(point[number]))
        return point

    def _along(self, point: GridPoint, axis: int) -> GridPoint:
        """As far as it improves, one way or else the other."""
        began = point
        for direction in (1, -1):
            while (moved := self._neighbour(point, axis, direction)) is not None and self._is_better(moved, point):
                point = moved
            if point != began:
                break
        return point

    def _neighbour(self, point: GridPoint, axis: int, direction: int) -> GridPoint | None:
        """The nearest level on that side with which the point can be made."""
        end = len(self._space.axes[axis].factor.levels) if direction > 0 else -1
        points = (_moved(point, axis, index) for index in range(point[axis] + direction, end, direction))
        return next((moved for moved in points if self._is_candidate(moved)), None)

    def _levels(self, axis: int) -> list[int]:
        return list(range(len(self._space.axes[axis].factor.levels)))

    def _best_of(self, point: GridPoint, axis: int, levels: list[int]) -> GridPoint:
        for index in levels:
            moved = _moved(point, axis, index)
            if self._is_candidate(moved) and self._is_better(moved, point):
                point = moved
        return point

    def _is_better(self, moved: GridPoint, point: GridPoint) -> bool:
        if self._is_open():
            self._try([moved])
        return moved in self._evaluated and self._evaluated[moved].value < self._evaluated[point].value


def _moved(point: GridPoint, axis: int, index: int) -> GridPoint:
    return (*point[:axis], index, *point[axis + 1 :])


def _study(seed: int, evaluations: int) -> Any:
    """Optuna's study; ``RlsimError`` with what to install where there is none."""
    try:
        import optuna
    except ImportError as error:
        raise RlsimError(
            "a space this large needs Optuna: pip install 'rlsim[plan]' (or more --evaluations)"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    startup = max(4, math.ceil(FIRST_SHARE * evaluations / 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # Of constant_liar, for batches.
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
    return optuna.create_study(sampler=sampler, direction="minimize")
