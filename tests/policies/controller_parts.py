"""Parts of every choice for a controller that a scripted world drives, with some that only a test would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from rlsim.controller import Controller
from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes, Sample, View
from rlsim.policies.hooks import NeedsRewards, Watches
from rlsim.policies.protocols import Batch, Policy
from rlsim.policies.registry import make_part, parts_of

PROMPT_TOKENS = 7
SHAPE = RunSizes(prompts_per_step=2, group_size=3, replicas=2, max_num_seqs=8, lent_replicas=range(1, 2))
"""Replica 1 is lent where the placement lends; elsewhere it is like any other."""

LISTS = (
    "controller_parts",
    "compositions",
    "test_framework_combinations",
    "test_pool_combinations",
    "test_trees_and_memory",
)
_LISTED = "".join(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in LISTS)


def example(choice: str, name: str) -> dict[str, Any]:
    """Specification of a registered part: its defaults, and 1 (or drain) for what has none."""
    needed = [
        field.name for field in fields(parts_of(choice)[name]) if field.default is field.default_factory is MISSING
    ]  # type: ignore[arg-type]
    return {"use": name, **{field: "drain" if field == "mode" else 1 for field in needed}}


def unlisted(choice: str) -> list[dict[str, Any]]:
    """Registered parts that no list of compositions names, so that a new part is tested without being listed."""
    specs = [example(choice, name) for name in parts_of(choice) if f'"{name}"' not in _LISTED]
    return [spec for spec in specs if _started(choice, spec) is not None]


def _started(choice: str, spec: dict[str, Any]) -> Any:
    """The part, or None where it refuses these sizes."""
    try:
        return make_part(choice, spec, choice).start(SHAPE)
    except ParameterError:
        return None


def rewarded(watches: bool) -> list[dict[str, Any]]:
    """Unlisted allocation that learns what groups earn, and watches responses under way or does not."""
    return [
        spec
        for spec in unlisted("allocation")
        if isinstance(part := _started("allocation", spec), NeedsRewards) and isinstance(part, Watches) == watches
    ]


ADMISSIONS: list[dict[str, Any]] = [
    {"use": "barrier"},
    {"use": "rounds", "gen_batch_size": 2},
    {"use": "one-step-off"},
    {"use": "cumulative-capacity", "max_staleness": 1, "max_open_groups": 3},
    {"use": "target-reservation"},
    {"use": "over-sample", "over_sampling_batch_size": 4},
    {"use": "fixed-pool", "partial_rollout_pool_size": 5},
    {"use": "free-running", "llm_max_rollouts": 2},
    {"use": "free-running", "llm_max_rollouts": 2, "max_lag_samples": 2},
    {"use": "lead-gate", "max_inflight": 5},
    {"use": "one-for-one", "async_steps": 1},
    {"use": "engine-queue", "concurrency_per_engine": 2},
    {"use": "bounded-buffer", "max_concurrent_samples": 5},
    {"use": "bounded-buffer", "max_concurrent_samples": 7, "granularity": "group", "capacity_factor": 1.0},
    {"use": "refill-empty", "replica_batch": 4},
    {"use": "open-arrivals", "requests_per_second": 2e11},
    *unlisted("admission"),
]
BATCHINGS: list[dict[str, Any]] = [
    {"use": "complete-groups"},
    {"use": "complete-groups", "order": "oldest"},
    {"use": "complete-groups", "poll_seconds": 3e-12},
    {"use": "exact-target"},
    {"use": "micro-batch-stream"},
    {"use": "micro-batch-stream", "takes_all": True},
    {"use": f"{__name__}:Updates"},
    *unlisted("batching"),
]
UPDATES: list[dict[str, Any]] = [
    *(
        {"use": "publish", "mode": mode, "every_steps": steps}
        for mode in ("drain", "abort", "keep", "pull")
        for steps in (1, 2)
    ),
    {"use": "deferred", "max_steps_behind": 2},
    {"use": "ess-triggered", "mode": "keep"},
    {"use": "ess-triggered", "mode": "abort", "max_steps_behind": 2},
    {"use": "tested", "mode": "drain"},
    {"use": "tested", "mode": "abort"},
    *unlisted("update"),
]
LEFTOVERS: list[dict[str, Any]] = [
    {"use": "keep-all"},
    *(
        {"use": "end-round", "keeps_unfinished": unfinished, "keeps_surplus": surplus, "recycles": recycles}
        for unfinished in (False, True)
        for surplus in (False, True)
        for recycles in (False, True)
    ),
    {"use": "drop-old", "max_age_versions": 0, "buffer_groups": 2, "recycles": True},
    {"use": "drop-old", "max_open_age_versions": 0},
    {"use": "drop-old", "max_open_age_versions": 0, "recycles": True},
    {"use": "off-policy-steps", "max_steps": 0, "in_flight": True, "lead_batches": 1},
    *unlisted("leftovers"),
]
DISPATCHES: list[dict[str, Any]] = [
    *({"use": name} for name in ("least-in-flight", "round-robin", "sticky", "group-affinity")),
    {"use": "fill-empty", "replica_batch": 4},
    *unlisted("dispatch"),
]
ORDERINGS: list[dict[str, Any]] = [
    {"use": "fcfs"},
    {"use": "weighted-fair", "predictor": "class-corrected"},
    {"use": f"{__name__}:Chunks", "shares_kv": False},
    {"use": f"{__name__}:Chunks", "shares_kv": True},
    *unlisted("ordering"),
]
MIGRATIONS: list[dict[str, Any]] = [
    {"use": "stay"},
    {"use": f"{__name__}:Restless", "transfers_kv": False},
    {"use": f"{__name__}:Restless", "transfers_kv": True},
    *unlisted("migration"),
]
ALLOCATIONS: list[dict[str, Any]] = [
    {"use": "uniform", "redundancy": redundancy, "aborts_surplus": aborts}
    for redundancy, aborts in ((0, True), (1, True), (1, False), (2, True), (2, False))
]
STRATEGIES: list[dict[str, Any]] = [
    *({"use": name} for name in ("dapo", "greso", "aero", "v0.5", "xrpo", "dars", "mc-grpo", "d3s", "hive")),
    *({"use": name} for name in ("gdro-prompt", "vade", "difficulty-targeted")),
    {"use": "pilot-commit", "most_ratio": 2.0},
    {"use": "vigor", "rounds": 1},
    {"use": "sgpo", "candidates": 3},
    {"use": "gdro-rollout", "levels": 2, "price_step": 0.5},
    {"use": "group-schedule", "first_samples": 1, "stage_steps": 1},
    {"use": "depo", "least_useful": 0.5, "candidates": 2},
    *({"use": name} for name in ("popo", "trace")),
    {"use": "replay", "max_uses": 3},
    *rewarded(watches=False),
]
"""Allocation by what groups earn."""
WATCHING: list[dict[str, Any]] = [
    {"use": "arrol", "mark_tokens": 20, "least_seen": 4},
    {"use": "duet", "mark_tokens": 20, "token_share": 0.6},
    {"use": "pg-opd", "probe_tokens": 10},
    {"use": "prune-opd", "window_tokens": 20, "most_window_tokens": 60, "every_tokens": 4, "consecutive": 1},
    {"use": "adwin", "window_tokens": 20, "least_window_tokens": 8, "most_window_tokens": 60, "every_tokens": 4},
    {"use": "shortopd", "cap_tokens": 20, "least_cap_tokens": 8, "most_cap_tokens": 60, "every_tokens": 4},
    {"use": "esr", "response_tokens": 16},
    {"use": "espo", "every_tokens": 8, "last_look_tokens": 60, "least_seen": 8, "margin": 0.5},
    {"use": "precog", "every_tokens": 8, "last_look_tokens": 60, "least_seen": 4, "failure_confidence": 0.7},
    {"use": "masa", "candidates": 3, "least_useful": 0.6, "least_seen": 4, "slack": 1.2},
    *rewarded(watches=True),
]
"""Allocation that looks at responses under way, or budgets their length: sizes for responses of some dozen tokens."""
TURNS: list[dict[str, Any]] = [{"use": "alone"}, {"use": "lock-step"}, *unlisted("turns")]
PLACEMENTS: list[dict[str, Any]] = [
    *({"use": name} for name in ("colocated", "disaggregated", "lend-while-idle", "hybrid-switching")),
    {"use": "dynamic-schedule", "deactivate_ratio": 0.5, "before_data_switch_seconds": 0.0},
    *unlisted("placement"),
]

CHUNK_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Updates:
    """A step in parts of one group, each with an optimizer update of its own."""

    def start(self, shape: RunSizes) -> _Updating:
        return _Updating()


class _Updating:
    def __init__(self) -> None:
        self._taken = 0

    def select(self, view: View) -> Batch | None:
        if not view.ready:
            return None
        self._taken = (self._taken + 1) % view.shape.prompts_per_step
        return Batch((next(iter(view.ready)),), last=not self._taken, updates=1)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Calls of a few tokens, ranked by what the sample has made."""

    shares_kv: bool
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Chunks:
        return self

    def priority(self, view: View, sample: Sample) -> int:
        return sample.response_tokens

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return CHUNK_TOKENS


@dataclass(frozen=True, slots=True)
class Restless:
    """Moves every third sample that generates, whether or not it is being cut already."""

    transfers_kv: bool

    def start(self, shape: RunSizes) -> Restless:
        return self

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        chosen = [sample for sample in view.generating_samples.values() if not (sample.sample + view.version) % 3]
        return [(sample, (sample.replica + 1) % view.shape.replicas) for sample in chosen]


def fresh(specs: dict[str, dict[str, Any]], scores: bool) -> Controller:
    """A controller of these parts, whether or not they go together."""
    parts: dict[str, Any] = {choice: make_part(choice, spec, choice).start(SHAPE) for choice, spec in specs.items()}
    return Controller(Policy(**parts), SHAPE, lambda draw: PROMPT_TOKENS, scores)
