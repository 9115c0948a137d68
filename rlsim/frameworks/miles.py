"""miles: the flags of slime and its own; read from miles 31f1ca9, ``miles/utils/arguments.py``."""

from __future__ import annotations

from dataclasses import replace

from rlsim.frameworks.codecs import SHARED_GPUS
from rlsim.frameworks.mapping import Condition, Framework, Mode, Row, Unmodelled, lora, same
from rlsim.frameworks.slime import (
    APART,
    INTERVAL,
    NODES,
    SLIME,
    TRAIN_ASYNC,
    TRAIN_ASYNC_MODE,
    UNMODELLED,
    fully_async_function,
    synchronous,
)

_FUNCTION = fully_async_function("miles.rollout.fully_async_rollout.FullyAsyncRolloutFn")
_FULLY_ASYNC = Condition(
    f"`fully-async`, or {_FUNCTION.words}",
    lambda flat: bool(flat.get("fully-async")) or _FUNCTION.holds(flat),
    (("fully-async", True),),
)
_SHARED = Row(NODES, ("trainer.gpus", "rollout.gpus"), SHARED_GPUS)

MILES: Framework = replace(
    SLIME,
    name="miles",
    version="31f1ca9",
    modes=(
        Mode(
            "miles-fully-async",
            (TRAIN_ASYNC, _FULLY_ASYNC),
            (
                *APART,
                INTERVAL,
                same("rollout-submission-granularity", "policy.rollout_submission_granularity", "sample"),
                same("max-weight-staleness", "policy.max_weight_staleness", None),
                same("async-max-concurrent-samples", "policy.async_max_concurrent_samples", None),
                same("async-data-buffer-capacity-factor", "policy.async_data_buffer_capacity_factor", 2.0),
                same("async-unused-samples-handler", "policy.async_unused_samples_handler", "drop"),
                same("pause-generation-mode", "policy.pause_generation_mode", "retract"),
            ),
        ),
        TRAIN_ASYNC_MODE,
        *synchronous(_SHARED),
    ),
    unmodelled=(
        *UNMODELLED,
        Unmodelled("rollout-num-gpus", "without effect with colocate"),
        Unmodelled("max-weight-staleness", "without effect unless fully asynchronous"),
        lora("lora-rank"),
        Unmodelled("eval-num-gpus", "GPUs of engines for evaluation alone"),
        Unmodelled("stream-optimizer-state-to-disk", "optimizer state on disk"),
    ),
)
