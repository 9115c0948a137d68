"""The parts by choice and name: one line registers a part."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Protocol, cast, get_type_hints

from rlsim.core.errors import ParameterError, unknown
from rlsim.core.view import RunSizes
from rlsim.policies.admission.bounded_staleness import (
    BatchesAhead,
    CumulativeCapacity,
    Environments,
    LeadGate,
    OneStepOff,
    PerVersionBudget,
    Ratio,
    TargetReservation,
)
from rlsim.policies.admission.fixed_concurrency import (
    BoundedBuffer,
    EngineQueue,
    FixedPool,
    FreeRunning,
    OneForOne,
    QueueSlots,
    RefillEmpty,
    SampleSlots,
)
from rlsim.policies.admission.open_loop import OpenArrivals
from rlsim.policies.admission.synchronous import Barrier, OverSample, Rounds, TailBatching
from rlsim.policies.allocation.branching import Echo, Spark, Trace
from rlsim.policies.allocation.distillation import (
    EarlyStoppingRollout,
    EffectiveLength,
    ProbedWindow,
    ProbeGuided,
    PruneAtDrift,
)
from rlsim.policies.allocation.early_stopping import DualBudget, OnlinePruning, OutcomeStopping, RegretStopping
from rlsim.policies.allocation.filtering import D3S, Depo, DynamicSampling, Greso, McGrpo, RoundwiseSampling
from rlsim.policies.allocation.gdro import GdroPrompt, GdroRollout
from rlsim.policies.allocation.group_size import Dars, GroupSchedule, PriorTested, Sgpo, ShortRounds, Single, Uniform
from rlsim.policies.allocation.prompt_selection import DifficultyTargeted, Hive, MetaPredictions, Vade
from rlsim.policies.allocation.reuse import Popo, Replay, SpecRl
from rlsim.policies.allocation.waves import Aero, PilotCommit, Vigor, Xrpo
from rlsim.policies.batching import CompleteGroups, ExactTarget, LocalBatches, MicroBatchStream, OldestStepFirst
from rlsim.policies.dispatch.pools import ByClass, ByContext, ByWeight, PrefillDecode, TailSplit
from rlsim.policies.dispatch.routers import (
    ConsistentHash,
    FillEmpty,
    GroupAffinity,
    LeastInFlight,
    LeastTokens,
    PowerOfTwo,
    PrefixAware,
    RoundRobin,
    Sticky,
)
from rlsim.policies.leftovers import DropOld, EndRound, KeepAll, MaxOffPolicy, OffPolicySteps, PutOff, RatioAge
from rlsim.policies.migration import Balance, Repack, Stay
from rlsim.policies.ordering.chunked import Divided, PrefillLeg
from rlsim.policies.ordering.priorities import (
    Ageing,
    ClassPriority,
    Fcfs,
    FeedbackQueue,
    LongestFirst,
    ShortestFirst,
    WeightedFair,
)
from rlsim.policies.placement import Colocated, Disaggregated, DynamicSchedule, HybridSwitching, LendWhileIdle
from rlsim.policies.turns import Alone, LockStep
from rlsim.policies.update import Deferred, EssTriggered, Publish, Tested


class Part(Protocol):
    """What every registered class offers."""

    def start(self, shape: RunSizes) -> Any:
        """Check against the sizes of the run and begin."""
        ...


CHOICES: dict[str, dict[str, type[Part]]] = {
    "admission": {
        "barrier": Barrier,
        "rounds": Rounds,
        "one-step-off": OneStepOff,
        "cumulative-capacity": CumulativeCapacity,
        "target-reservation": TargetReservation,
        "over-sample": OverSample,
        "tail-batching": TailBatching,
        "fixed-pool": FixedPool,
        "free-running": FreeRunning,
        "per-version-budget": PerVersionBudget,
        "batches-ahead": BatchesAhead,
        "queue-slots": QueueSlots,
        "ratio": Ratio,
        "environments": Environments,
        "sample-slots": SampleSlots,
        "lead-gate": LeadGate,
        "one-for-one": OneForOne,
        "engine-queue": EngineQueue,
        "bounded-buffer": BoundedBuffer,
        "refill-empty": RefillEmpty,
        "open-arrivals": OpenArrivals,
    },
    "batching": {
        "complete-groups": CompleteGroups,
        "exact-target": ExactTarget,
        "micro-batch-stream": MicroBatchStream,
        "local-batches": LocalBatches,
        "oldest-step-first": OldestStepFirst,
    },
    "update": {"publish": Publish, "deferred": Deferred, "ess-triggered": EssTriggered, "tested": Tested},
    "leftovers": {
        "keep-all": KeepAll,
        "end-round": EndRound,
        "drop-old": DropOld,
        "max-off-policy": MaxOffPolicy,
        "ratio-age": RatioAge,
        "off-policy-steps": OffPolicySteps,
        "put-off": PutOff,
    },
    "dispatch": {
        "least-in-flight": LeastInFlight,
        "round-robin": RoundRobin,
        "sticky": Sticky,
        "group-affinity": GroupAffinity,
        "fill-empty": FillEmpty,
        "least-tokens": LeastTokens,
        "power-of-two": PowerOfTwo,
        "prefix-aware": PrefixAware,
        "consistent-hash": ConsistentHash,
        "tail-split": TailSplit,
        "by-weight": ByWeight,
        "by-context": ByContext,
        "by-class": ByClass,
        "prefill-decode": PrefillDecode,
    },
    "placement": {
        "colocated": Colocated,
        "disaggregated": Disaggregated,
        "lend-while-idle": LendWhileIdle,
        "hybrid-switching": HybridSwitching,
        "dynamic-schedule": DynamicSchedule,
    },
    "ordering": {
        "fcfs": Fcfs,
        "shortest-first": ShortestFirst,
        "longest-first": LongestFirst,
        "feedback-queue": FeedbackQueue,
        "ageing": Ageing,
        "class-priority": ClassPriority,
        "weighted-fair": WeightedFair,
        "divided": Divided,
        "prefill-leg": PrefillLeg,
    },
    "migration": {"stay": Stay, "balance": Balance, "repack": Repack},
    "allocation": {
        "uniform": Uniform,
        "single": Single,
        "short-rounds": ShortRounds,
        "dapo": DynamicSampling,
        "dapo-rounds": RoundwiseSampling,
        "greso": Greso,
        "aero": Aero,
        "pilot-commit": PilotCommit,
        "vigor": Vigor,
        "sgpo": Sgpo,
        "gdro-prompt": GdroPrompt,
        "gdro-rollout": GdroRollout,
        "vade": Vade,
        "v0.5": PriorTested,
        "xrpo": Xrpo,
        "dars": Dars,
        "mc-grpo": McGrpo,
        "d3s": D3S,
        "hive": Hive,
        "difficulty-targeted": DifficultyTargeted,
        "group-schedule": GroupSchedule,
        "depo": Depo,
        "arrol": OnlinePruning,
        "duet": DualBudget,
        "pg-opd": ProbeGuided,
        "prune-opd": PruneAtDrift,
        "adwin": ProbedWindow,
        "shortopd": EffectiveLength,
        "esr": EarlyStoppingRollout,
        "espo": RegretStopping,
        "precog": OutcomeStopping,
        "masa": MetaPredictions,
        "spec-rl": SpecRl,
        "replay": Replay,
        "popo": Popo,
        "trace": Trace,
        "spark": Spark,
        "echo": Echo,
    },
    "turns": {"alone": Alone, "lock-step": LockStep},
}
"""Registered parts: choice, then name. Elsewhere a part is named ``module:Class``."""


def part_class(choice: str, use: str, path: str) -> type[Part]:
    """The class behind ``use``: a registered name, or ``module:Class`` of the user's own."""
    if ":" in use:
        return _own(use, path)
    found = CHOICES[choice].get(use)
    if found is None:
        raise unknown(path, use, [*CHOICES[choice], "module:Class"])
    return found


def make_part(choice: str, spec: Mapping[str, object], path: str) -> Part:
    """A part from ``{use: name, parameter: value, ...}``; faults name the key under ``path``."""
    use = spec.get("use")
    if not isinstance(use, str):
        raise ParameterError(f"{path}.use", use, f"a part: {', '.join(CHOICES[choice])}, module:Class")
    cls = part_class(choice, use, f"{path}.use")
    given = {name: value for name, value in spec.items() if name != "use"}
    names = parameters(cls)
    for name in given:
        if name not in names:
            raise unknown(f"{path}.{name}", name, names)
    return _validated(cls, given, path)


def parameters(cls: type[Part]) -> tuple[str, ...]:
    """Names of a part's parameters."""
    return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]


def _validated(cls: type[Part], given: Mapping[str, object], path: str) -> Part:
    kinds = get_type_hints(cls)
    values = {name: _checked(kinds[name], value, f"{path}.{name}") for name, value in given.items()}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values and _required(field):
            raise ParameterError(f"{path}.{field.name}", None, f"a value ({field.type}): it has no default")
    return cls(**values)


def _checked(kind: Any, value: object, path: str) -> Any:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    try:
        if isinstance(value, list):  # as a file has it: strictly, only an array of JSON is a tuple
            return adapter.validate_json(to_json(value), strict=True)
        return adapter.validate_python(value, strict=True)
    except ValidationError as error:
        raise ParameterError(path, value, str(error.errors()[0]["msg"])) from error


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _own(use: str, path: str) -> type[Part]:
    """A user's own class. Its module is imported: the one exception to "nothing in a scenario is executed".

    Modules are looked for as installed, then in the current directory.
    """
    module, _, name = use.partition(":")
    if os.getcwd() not in sys.path:  # Where the interpreter was started by an entry point.
        sys.path.append(os.getcwd())
    try:
        cls: Any = getattr(importlib.import_module(module), name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ParameterError(path, use, f"module:Class that can be imported ({reason})") from error
    if not (isinstance(cls, type) and is_dataclass(cls) and hasattr(cls, "start")):
        raise ParameterError(path, use, "a dataclass with start(shape)")
    return cast("type[Part]", cls)
