"""Looking for the best point: all of them where they are few, else by Optuna's TPE with descents along the axes.

The search is the same whenever it is repeated (its chance is seeded, its batches do not depend on the workers), so that
a killed one finds its runs in the store and goes on.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from rlsim.core.errors import RlsimError
from rlsim.studies.optimize.candidates import NOMINAL, Candidate, Case
from rlsim.studies.optimize.scoring import Judge, Scored
from rlsim.studies.optimize.space import At, Space

SEED = 20_240
FIRST_SHARE = 0.3
"""Of the evaluations, spent by TPE before the first descent."""
BATCH = 2
"""Points that TPE proposes at once."""
ASKS_PER_EVALUATION = 20
"""Proposals, infeasible and repeated ones included, for one that is simulated."""


def explore(judge: Judge, evaluations: int, case: Case = NOMINAL) -> dict[At, Scored]:
    """Points simulated on their first replication, feasible ones alone; at most ``evaluations`` are simulated."""
    space = judge.candidates.space
    if space.size <= evaluations:
        return judge.score(list(space.points()), case)
    return Guided(judge, evaluations, case).run()


def is_exhaustive(space: Space, evaluations: int) -> bool:
    """Whether every point is tried."""
    return space.size <= evaluations


class Guided:
    """A search of a space that is too large to try out."""

    def __init__(self, judge: Judge, evaluations: int, case: Case, seed: int = SEED) -> None:
        self._judge, self._most, self._case = judge, evaluations, case
        self._space = judge.candidates.space
        self._study = _study(seed, evaluations)
        self._found: dict[At, Scored] = {}
        self._tried: set[At] = set()
        """Simulated, whatever came of it."""
        self._starts: set[At] = set()
        """Proposed points from which there was no descent."""
        self._asked = 0

    def run(self) -> dict[At, Scored]:
        """TPE, a descent from the best point, and again with what is left, from the best not descended from."""
        middle = tuple(len(axis.factor.levels) // 2 for axis in self._space.axes)
        for at in dict.fromkeys([*self._space.written(), middle]):
            self._study.enqueue_trial(self._params(at))
        self._propose_until(math.ceil(FIRST_SHARE * self._most))
        while self._is_open():
            start = min(self._starts, key=lambda at: (self._found[at].value, at), default=None)
            if start is not None:
                self._starts.remove(start)
                self._starts.discard(self._descend(start))
            self._propose_until(len(self._tried) + BATCH)
        return self._found

    def _is_open(self) -> bool:
        return len(self._tried) < self._most and self._asked < ASKS_PER_EVALUATION * self._most

    def _propose_until(self, tried: int) -> None:
        while len(self._tried) < min(tried, self._most) and self._is_open():
            trials = [self._study.ask() for _ in range(min(BATCH, self._most - len(self._tried)))]
            self._asked += len(trials)
            asked = {trial.number: self._point(trial) for trial in trials}
            self._try(list(asked.values()))
            self._starts |= {at for at in asked.values() if at in self._found}
            for trial in trials:
                self._tell(trial, asked[trial.number])

    def _try(self, points: list[At]) -> None:
        fresh = [at for at in dict.fromkeys(points) if at not in self._tried and self._is_candidate(at)]
        self._tried |= set(fresh)
        self._found |= self._judge.score(fresh, self._case)

    def _is_candidate(self, at: At) -> bool:
        return isinstance(self._judge.candidates.at(at, self._case), Candidate)

    def _tell(self, trial: Any, at: At) -> None:
        from optuna.trial import TrialState

        if at in self._found:
            self._study.tell(trial, math.log(self._found[at].value))
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def _point(self, trial: Any) -> At:
        return tuple(
            trial.suggest_int(axis.name, 0, len(axis.factor.levels) - 1)
            if axis.is_ordered
            else trial.suggest_categorical(axis.name, list(range(len(axis.factor.levels))))
            for axis in self._space.axes
        )

    def _params(self, at: At) -> dict[str, int]:
        return {axis.name: index for axis, index in zip(self._space.axes, at, strict=True)}

    def _descend(self, at: At) -> At:
        """Along one axis after the other while that improves; where no neighbour is better it ends."""
        before = None
        while at != before and self._is_open():
            before = at
            for number, axis in enumerate(self._space.axes):
                at = self._along(at, number) if axis.is_ordered else self._best_of(at, number, self._levels(number))
                at = self._best_of(at, number, axis.kin(at[number]))
        return at

    def _along(self, at: At, axis: int) -> At:
        """As far as it improves, one way or else the other."""
        began = at
        for way in (1, -1):
            while (moved := self._neighbour(at, axis, way)) is not None and self._is_better(moved, at):
                at = moved
            if at != began:
                break
        return at

    def _neighbour(self, at: At, axis: int, way: int) -> At | None:
        """The nearest level on that side with which the point can be made."""
        end = len(self._space.axes[axis].factor.levels) if way > 0 else -1
        points = (_moved(at, axis, index) for index in range(at[axis] + way, end, way))
        return next((moved for moved in points if self._is_candidate(moved)), None)

    def _levels(self, axis: int) -> list[int]:
        return list(range(len(self._space.axes[axis].factor.levels)))

    def _best_of(self, at: At, axis: int, levels: list[int]) -> At:
        for index in levels:
            moved = _moved(at, axis, index)
            if self._is_candidate(moved) and self._is_better(moved, at):
                at = moved
        return at

    def _is_better(self, moved: At, at: At) -> bool:
        if self._is_open():
            self._try([moved])
        return moved in self._found and self._found[moved].value < self._found[at].value


def _moved(at: At, axis: int, index: int) -> At:
    return (*at[:axis], index, *at[axis + 1 :])


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
