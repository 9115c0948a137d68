"""A run written by hand: one replica, a trainer of its own, two steps of two samples."""

from __future__ import annotations

from runs import small_plan

from rlsim.core.commands import Submit, Sync, Train
from rlsim.core.events import Finished, Started, Synced, Trained
from rlsim.core.log import Decision, FinalRow, GateRow, IterationRow, RunLog, SpanRow, WindowRow
from rlsim.core.ticks import to_ticks
from rlsim.executor.run import FinishedRun

SIZES = (
    "rollout.gpus=1",
    "trainer.gpus=3",
    "workload.prompts_per_step=1",
    "workload.group_size=2",
    "trainer.epochs=3",
    "cluster.price_usd_per_gpu_hour=9.0",
)


def submit(sample: int) -> Submit:
    return Submit(sample, 0, sample // 2, 0, sample % 2, 0, 0, 100)


def finished(sample: int, segments: tuple[tuple[int, int], ...], reason: str, first: float) -> Finished:
    tokens = sum(made for _, made in segments)
    return Finished(sample, 0, tokens, segments, reason, to_ticks(first))  # type: ignore[arg-type]


def handmade() -> FinishedRun:
    """Samples 2 and 3 straddle the publication of version 1 and are trained on under version 2."""
    log = RunLog()
    for now, event, commands in (
        (0, Started(), (submit(0), submit(1))),
        (10, finished(0, ((0, 10),), "stop", 1), ()),
        (12, finished(1, ((0, 12),), "stop", 1), (submit(2), submit(3), Train(0, (0, 1)))),
        (20, Trained(0), (Sync(1, "keep"),)),
        (21, Synced(1), ()),
        (25, finished(2, ((0, 6), (1, 2)), "stop", 13), ()),
        (30, finished(3, ((1, 4),), "length", 22), ()),
        (31, Synced(2), ()),
        (32, Trained(7), (Train(1, (2, 3)),)),
        (40, Trained(1), (Sync(3, "keep"),)),
        (41, Synced(3), (submit(4), submit(5))),
    ):
        log.decisions.append(Decision(to_ticks(now), event, commands))
    for start, end in ((0, 12), (12, 20), (21, 30)):
        log.windows.append(WindowRow(0, to_ticks(start), to_ticks(end), 4, 2, 0, 0, 200))
    for who, what, start, end, step in (
        (-1, "update_actor", 12, 20, 0),
        (0, "sync", 20, 21, 1),
        (-1, "sync", 20, 21, 1),
        (-1, "update_actor", 32, 40, 1),
        (0, "sync", 40, 41, 3),
        (-1, "sync", 40, 41, 3),
    ):
        log.spans.append(SpanRow(who, what, to_ticks(start), to_ticks(end), step))
    log.gates.append(GateRow(0, "staleness"))
    log.iterations += [IterationRow(0, to_ticks(21), 1), IterationRow(1, to_ticks(41), 3)]
    log.final += [FinalRow(sample, "trained", tokens) for sample, tokens in enumerate((10, 12, 8, 4))]
    log.final += [FinalRow(4, "in_flight", 0), FinalRow(5, "in_flight", 0)]
    log.generated_tokens, log.end = 34, to_ticks(41)
    return FinishedRun(small_plan("nemo-rl-async", SIZES), 0, log)
