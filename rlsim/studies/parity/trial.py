"""One live run that counts: replayed, and simulated again with its own durations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlsim.core.errors import RlsimError
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_seconds
from rlsim.executor.run import FinishedRun, make_controller
from rlsim.live.run import Backend, LiveRun, run_live
from rlsim.resolve import ResolvedScenario
from rlsim.results.replay.decisions import NoJournal, ReplayError, replay
from rlsim.results.replay.recording import recording_of, submit_lags, tells_steps
from rlsim.sim.recorded import simulate_recorded
from rlsim.studies.parity.end_order import Order, order_of
from rlsim.studies.parity.observed import RunObservation, observation_of

REPLICATION = 0
"""All runs of a comparison meet the same prompts and random draws: that of this replication."""


@dataclass(frozen=True, slots=True)
class RecordedRerun:
    """The simulation with the recorded durations of a live run."""

    observed: RunObservation
    order: Order
    unrecorded: int
    """Engine steps, trainings and the like beyond the record; those under way when a run ends are."""
    steps: int
    """Engine steps that both runs have."""
    other_steps: int
    """Of these, with another batch: other decodes, chunks or prefill tokens."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One live run."""

    run: FinishedRun
    observed: RunObservation
    late_share: float
    """Of the engine steps of a paced engine."""
    decisions: int
    """Replayed."""
    policy_error: str
    """The first decision that a fresh controller takes differently; empty: none."""
    rerun: RecordedRerun | None
    """None where the engines do not tell their steps."""


class NeverOnTimeError(RlsimError):
    """None of the runs made for one that counts had few enough late steps."""

    def __init__(self, said: str, shares: tuple[float, ...]) -> None:
        super().__init__(said)
        self.shares = shares
        """Of late steps, run by run."""


def punctual_run(
    plan: ResolvedScenario, backend: Backend, tries: int, note: Callable[[str], None]
) -> tuple[LiveRun, list[float]]:
    """A run with few enough late steps, and the late shares of those before it, which do not count.

    Raises what stopped a run early, and ``NeverOnTimeError`` after ``tries`` runs.
    """
    limit, discarded = plan.scenario.live.max_late_share, list[float]()
    while len(discarded) < tries:
        live_run = run_to_end(plan, backend)
        share = late_share(live_run)
        if share <= limit:
            return live_run, discarded
        discarded.append(share)
        note(f"{share:.1%} of the steps were late (live.max_late_share {limit:.1%}): not counted, run again")
    shares = ", ".join(f"{share:.1%}" for share in discarded)
    said = f"{tries} runs with too many late steps ({shares}; live.max_late_share {limit:.1%})"
    raise NeverOnTimeError(said, tuple(discarded))


def run_to_end(plan: ResolvedScenario, backend: Backend) -> LiveRun:
    """One live run to its last step; raises what stopped it."""
    with tempfile.TemporaryDirectory(prefix="rlsim-parity-") as work:
        live_run = run_live(plan, backend, NoJournal(), Path(work), REPLICATION)
    if live_run.ending.fault is not None:
        raise live_run.ending.fault
    return live_run


def late_share(live_run: LiveRun) -> float:
    """Of all engine steps."""
    records = live_run.ending.records
    steps = sum(row.steps for record in records for row in record.windows)
    return sum(record.late_steps for record in records) / steps if steps else 0.0


def trial_of(live_run: LiveRun, plan: ResolvedScenario) -> Trial:
    """Read, replay and simulate again; ``plan`` is what the prediction is made from."""
    run, observed = live_run.run, observation_of(live_run.run)
    return Trial(
        run, observed, late_share(live_run), len(run.log.decisions), _policy_error(run), _again(run, plan, observed)
    )


def _policy_error(run: FinishedRun) -> str:
    workload = run.plan.workload_of(run.replication)
    try:
        replay(run.log.decisions, make_controller(run.plan, workload, oracle=False))
    except ReplayError as error:
        return str(error)
    return ""


def _again(run: FinishedRun, plan: ResolvedScenario, observed: RunObservation) -> RecordedRerun | None:
    if not tells_steps(run.log):
        return None
    rerun = simulate_recorded(plan, recording_of(run.log, plan), run.replication)
    simulated = observation_of(rerun.run)
    order = order_of(observed.ends_seconds, simulated.ends_seconds, tie_seconds(run.log))
    mine, other = _batches(run.log), _batches(rerun.run.log)
    pairs = [pair for replica, own in mine.items() for pair in zip(own, other.get(replica, ()), strict=False)]
    unrecorded = rerun.unrecorded_steps + rerun.unrecorded_others
    return RecordedRerun(simulated, order, unrecorded, len(pairs), sum(a != b for a, b in pairs))


def _batches(log: RunLog) -> dict[int, list[tuple[int, int, int]]]:
    """(decodes, chunks, prefill tokens) of every engine step, by replica."""
    batches: dict[int, list[tuple[int, int, int]]] = {}
    for row in sorted(log.windows, key=lambda row: row.start):
        batches.setdefault(row.replica, []).extend([(row.decodes, row.chunks, row.prefill_tokens)] * row.steps)
    return batches


def tie_seconds(log: RunLog) -> float:
    """The shortest engine step, or the median way of an event to its decision where that is longer."""
    steps = [(row.end - row.start) // row.steps for row in log.windows if row.steps and row.end > row.start]
    lags = submit_lags(log)
    return to_seconds(int(max(min(steps, default=0), np.median(lags) if lags else 0)))
