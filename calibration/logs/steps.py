"""A run's steps in our quantities: which columns they come from, and which rows are of no use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.logs.frameworks import FrameworkLog, framework_of
from calibration.logs.records import TrainingLog
from rlsim.core.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_STEPS = 3
"""Two to fit on, one to hold out."""
SUM_TOLERANCE = 1e-3
LEAST_SHARE = 0.5
"""Share of the rows that must have a quantity."""
TIMERS = ("generation", "wait", "old_log_prob", "reference", "update_actor", "sync", "reward")


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """Quantities by name, one value a step, in order; the last third is held out of every fit."""

    origin: str
    framework: str
    synchronous: bool
    """Whether generation and training take turns."""
    separate_passes: bool
    """Whether the framework times the reference model's pass apart from the other log-probability passes."""
    step_is_sum: bool
    """Whether the step's time is the sum of the other timers, so that nothing else is in it."""
    numbers: NDArray[np.int_]
    """Numbers of the steps, as logged."""
    values: Mapping[str, NDArray[np.float64]]
    columns: Mapping[str, str]
    """Where each quantity comes from."""
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        """Steps that are used."""
        return len(self.numbers)

    @property
    def fitted(self) -> slice:
        """The first two thirds."""
        return slice(0, self.count - self.count // 3)

    @property
    def held_out(self) -> slice:
        """The last third."""
        return slice(self.count - self.count // 3, self.count)

    def has(self, quantity: str) -> bool:
        """Whether the log says it."""
        return quantity in self.values


def read_steps(log: TrainingLog, synchronous: bool, skip: int = 1) -> LoggedSteps:
    """Find the framework and its quantities; the first ``skip`` steps (compilation, filling) are left out.

    ``synchronous``: generation and training take turns in the policy that the run had. Raises ``ParameterError`` for
    an unknown framework and fewer than three steps.
    """
    names = log.names()
    framework = framework_of(names, log.origin)
    log = log.having(name for known in framework.columns.values() for name in known)
    matches = _found(log, framework, names)
    values = {quantity: column for quantity, (column, _) in matches.items()}
    columns = {quantity: name for quantity, (_, name) in matches.items()}
    notes = list(log.notes)
    _sort_out_waiting(framework, synchronous, values, columns, notes)
    step_is_sum = _sort_out_step(framework, values, columns, notes)
    kept = _whole_rows(log, values, columns, skip, notes)
    numbers = np.array(list(log.rows), dtype=np.int_)[kept]
    values = {quantity: column[kept] for quantity, column in values.items()}
    return LoggedSteps(
        origin=log.origin,
        framework=framework.name,
        synchronous=synchronous,
        separate_passes="reference" in framework.columns,
        step_is_sum=step_is_sum,
        numbers=numbers,
        values=values,
        columns=columns,
        notes=(*notes, *framework.traps),
    )


def asynchronous_mark(log: TrainingLog) -> str:
    """The column that only an asynchronous mode of the log's framework has; empty without one."""
    names = log.names()
    marks = framework_of(names, log.origin).asynchronous_marks
    return next((name for name in sorted(names) if name.startswith(marks)), "") if marks else ""


def _found(log: TrainingLog, framework: FrameworkLog, names: set[str]) -> dict[str, tuple[NDArray[np.float64], str]]:
    matches: dict[str, tuple[NDArray[np.float64], str]] = {}
    for quantity, known in framework.columns.items():
        present = [name for name in known if name in names]
        if quantity in framework.summed and present:
            matches[quantity] = (
                np.sum([np.nan_to_num(log.column(name)) for name in present], axis=0),
                " + ".join(present),
            )
        elif present:
            matches[quantity] = (log.column(present[0]), present[0])
    return matches


def _sort_out_waiting(
    framework: FrameworkLog,
    synchronous: bool,
    values: dict[str, NDArray[np.float64]],
    columns: dict[str, str],
    notes: list[str],
) -> None:
    """Generation of an asynchronous run overlaps training; where its name means waiting, it is read as that."""
    if synchronous:
        if values.pop("wait", None) is not None:
            notes.append(f"{columns.pop('wait')} is not used: in a synchronous run generation is logged itself")
    elif "generation" in values:
        column, name = values.pop("generation"), columns.pop("generation")
        if framework.generation_waits and "wait" not in values:
            values["wait"], columns["wait"] = column, name
            notes.append(f"{name} is read as the trainer's waiting, as the policy is asynchronous")
        else:
            notes.append(f"{name} is not used: it overlaps training in an asynchronous run")


def _sort_out_step(
    framework: FrameworkLog, values: dict[str, NDArray[np.float64]], columns: dict[str, str], notes: list[str]
) -> bool:
    timers = [name for name in TIMERS if name in values]
    total = np.sum([np.nan_to_num(values[name]) for name in timers], axis=0) if timers else None
    if "pauses" in values and "step" in values:
        values["step"] = values["step"] - values.pop("pauses")
        notes.append(f"{columns.pop('pauses')} is taken out of the step")
    values.pop("pauses", None)
    columns.pop("pauses", None)
    if total is None:
        return False
    if "step" not in values:
        values["step"], columns["step"] = total, " + ".join(columns[name] for name in timers)
        return True
    if framework.step_may_be_sum and np.nanmax(np.abs(values["step"] / total - 1.0)) < SUM_TOLERANCE:
        notes.append(f"{columns['step']} is the sum of the other timers: what is outside them is not in the log")
        return True
    return False


def _whole_rows(
    log: TrainingLog, values: dict[str, NDArray[np.float64]], columns: dict[str, str], skip: int, notes: list[str]
) -> NDArray[np.int_]:
    """Rows that have every quantity, after the first ``skip``; quantities that few rows have are not used."""
    if "step" not in values:
        raise ParameterError(log.origin, "no time of a step", "the metrics of whole training steps")
    for quantity in [name for name, column in values.items() if np.isfinite(column).mean() < LEAST_SHARE]:
        if quantity == "step":
            raise ParameterError(log.origin, f"{columns[quantity]}: a value in few rows", "the time of most steps")
        del values[quantity]
        notes.append(f"{columns.pop(quantity)} is not used: few rows have it")
    usable = {quantity: np.isfinite(column) & (column >= 0) for quantity, column in values.items()}
    whole = np.flatnonzero(np.all(list(usable.values()), axis=0))
    torn = len(log.rows) - len(whole)
    if torn:
        notes.append(f"{torn} rows without all of these columns are left out")
    for quantity, column in values.items():
        if below := int((column < 0).sum()):
            notes.append(f"{columns[quantity]} is below zero in {below} of the rows that are left out")
    if skip:
        notes.append(f"the first {skip} of the others left out (compilation, filling)")
    kept = whole[skip:]
    if len(kept) < FEWEST_STEPS:
        allowed = f"at least {FEWEST_STEPS}, two thirds to fit on and one to hold out"
        raise ParameterError(log.origin, f"{len(kept)} whole training steps after the first {skip}", allowed)
    return kept
