"""Times of an engine besides its steps: a prefix hit, a preemption, sleep and wake, new weights.

What the steps that these add take is not in them: a hit and a preemption are timed next to steps of the same
composition that come about without one, and the difference is what they cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from calibration.measure.points import StepPoint
from calibration.vllm.bench import VllmBench
from rlsim.core.errors import RlsimError
from rlsim.costs.evidence import Coefficient

REPEATS = 5
HIT_TOKENS = 1024
NEW_TOKENS = 16
PREEMPTED = 4
PREEMPTED_CONTEXT = 256
NO_OP_ON_CPU = "not measured: no-op on CPU"
NO_WEIGHTS = "not measured: the model's folder holds no weights to load"


@dataclass(frozen=True, slots=True)
class TimedRepeat:
    """One repeat: seconds of ``count`` events, and of the same steps without them."""

    seconds: float
    control_seconds: float = 0.0
    count: int = 1


def measure_times(
    engine: VllmBench, weights: Path | None, known: Collection[str] = ()
) -> Iterator[tuple[str, list[TimedRepeat] | str]]:
    """Every time but the ``known`` by its name in a profile, or why it was not measured.

    ``weights`` is a checkpoint to load.
    """
    work: dict[str, Callable[[], list[TimedRepeat] | str]] = {
        "startup_seconds": lambda: [TimedRepeat(engine.import_seconds + engine.start_seconds)],
        "prefix_hit_seconds": lambda: _repeated(lambda: prefix_hit(engine)),
        "preemption_seconds": lambda: _repeated(lambda: preemption(engine)),
        "weight_update_seconds": lambda: NO_WEIGHTS if weights is None else _repeated(lambda: reload(engine, weights)),
    }
    yield from ((name, measured()) for name, measured in work.items() if name not in known)
    if "wake_seconds" in known:
        return
    if engine.setup.device == "cpu":
        yield from (("sleep_seconds", NO_OP_ON_CPU), ("wake_seconds", NO_OP_ON_CPU))
        return
    asleep, awake = zip(*(sleep_and_wake(engine) for _ in range(REPEATS)), strict=True)
    yield from (("sleep_seconds", list(asleep)), ("wake_seconds", list(awake)))


def coefficient(repeats: Sequence[dict[str, Any]]) -> Coefficient:
    """The median of what the events cost beyond their controls; never below zero.

    The interval of the median is the range of the repeats, at the level that so few give (sign test).
    """
    left = sorted(max(0.0, (one["seconds"] - one["control_seconds"]) / one["count"]) for one in repeats)
    middle = float(f"{median(left):.6g}")
    if len(left) < REPEATS:
        return Coefficient(middle, "s", samples=len(left))
    low, high = min(left[0], middle), max(left[-1], middle)
    return Coefficient(middle, "s", low, high, level=1 - 2 * 0.5 ** len(left), samples=len(left))


def prefix_hit(engine: VllmBench) -> TimedRepeat | None:
    """A prompt of which all blocks but the last are cached; None where vLLM found no hit."""
    held = min(HIT_TOKENS, engine.setup.max_model_len // 2) // engine.block_size * engine.block_size
    prompt = engine.tokens(held + NEW_TOKENS)
    cached = engine.add(len(prompt), prompt=prompt[:held] + engine.tokens(NEW_TOKENS))
    for _ in range(-(-len(prompt) // engine.setup.max_num_batched_tokens) + 1):
        engine.step()
    engine.abort([cached])
    first, name = len(engine.steps), engine.add(len(prompt), prompt=prompt)
    engine.step()
    step = engine.steps[first]
    engine.abort([name])
    control = engine.measure(StepPoint(chunks=1, tokens=NEW_TOKENS, cached=held), 1)
    if step.prefill_tokens != NEW_TOKENS or not control:
        return None
    return TimedRepeat(step.seconds, control[0].seconds)


def preemption(engine: VllmBench) -> TimedRepeat | None:
    """Running requests lose their KV and are prefilled again, as when memory runs short or weights are new."""
    count = min(PREEMPTED, engine.setup.max_num_seqs)
    context = min(
        PREEMPTED_CONTEXT, engine.setup.max_model_len // 2, engine.setup.max_num_batched_tokens // count - NEW_TOKENS
    )
    names = [engine.add(context, context - 1) for _ in range(count)]
    for _ in range(3):
        engine.step()
    first, began = len(engine.steps), time.perf_counter()
    engine.core.scheduler.reset_prefix_cache(reset_running_requests=True)
    called = time.perf_counter() - began
    engine.step()
    again = tuple(engine.steps[first:])
    engine.abort(names)
    tokens = sum(step.prefill_tokens for step in again)
    control = engine.measure(StepPoint(chunks=count, tokens=tokens // count), 1)
    if tokens < count * context or not control:
        return None
    return TimedRepeat(called + sum(step.seconds for step in again), control[0].seconds, count)


def sleep_and_wake(engine: VllmBench) -> tuple[TimedRepeat, TimedRepeat]:
    """Level 1: weights to the host's memory and back, KV dropped."""
    asleep = _timed(lambda: engine.core.sleep(1))
    awake = _timed(lambda: engine.core.wake_up())
    return asleep, awake


def reload(engine: VllmBench, weights: Path) -> TimedRepeat:
    """``reload_weights`` from a folder: read, converted, and packed again."""
    arguments = {"weights_path": str(weights)}
    return _timed(lambda: engine.core.collective_rpc("reload_weights", kwargs=arguments))


def _timed(work: Callable[[], object]) -> TimedRepeat:
    began = time.perf_counter()
    work()
    return TimedRepeat(time.perf_counter() - began)


def _repeated(work: Callable[[], TimedRepeat | None]) -> list[TimedRepeat] | str:
    """All repeats, or what went wrong: a time that cannot be had does not end a calibration."""
    try:
        repeats = [work() for _ in range(REPEATS)]
    except (RlsimError, RuntimeError, ValueError, NotImplementedError) as error:
        return f"not measured: {type(error).__name__}: {str(error)[:200]}"
    kept = [one for one in repeats if one is not None]
    return kept or "not measured: vLLM did not do it when asked"
