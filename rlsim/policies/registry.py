"""The parts by choice and name: one line registers a part."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Protocol, cast, get_type_hints

from rlsim.core.errors import ParameterError, unknown
from rlsim.core.view import Shape
from rlsim.policies.admission.barrier import Barrier
from rlsim.policies.admission.batches_ahead import BatchesAhead
from rlsim.policies.admission.cumulative_capacity import CumulativeCapacity
from rlsim.policies.admission.environments import Environments
from rlsim.policies.admission.fixed_pool import FixedPool
from rlsim.policies.admission.free_running import FreeRunning
from rlsim.policies.admission.lead_gate import LeadGate
from rlsim.policies.admission.one_for_one import OneForOne
from rlsim.policies.admission.one_step_off import OneStepOff
from rlsim.policies.admission.open_arrivals import OpenArrivals
from rlsim.policies.admission.over_sample import OverSample
from rlsim.policies.admission.per_version_budget import PerVersionBudget
from rlsim.policies.admission.producers import BoundedBuffer, EngineQueue
from rlsim.policies.admission.queue_slots import QueueSlots
from rlsim.policies.admission.ratio import Ratio
from rlsim.policies.admission.refill_empty import RefillEmpty
from rlsim.policies.admission.rounds import Rounds
from rlsim.policies.admission.sample_slots import SampleSlots
from rlsim.policies.admission.tail_batching import TailBatching
from rlsim.policies.admission.target_reservation import TargetReservation
from rlsim.policies.allocation.adwin import ProbedWindow
from rlsim.policies.allocation.aero import Aero
from rlsim.policies.allocation.arrol import OnlinePruning
from rlsim.policies.allocation.d3s import D3S
from rlsim.policies.allocation.dapo import DynamicSampling
from rlsim.policies.allocation.dapo_rounds import RoundwiseSampling
from rlsim.policies.allocation.dars import Dars
from rlsim.policies.allocation.depo import Depo
from rlsim.policies.allocation.difficulty_targeted import DifficultyTargeted
from rlsim.policies.allocation.duet import DualBudget
from rlsim.policies.allocation.echo import Echo
from rlsim.policies.allocation.espo import RegretStopping
from rlsim.policies.allocation.esr import EarlyStoppingRollout
from rlsim.policies.allocation.gdro import GdroPrompt, GdroRollout
from rlsim.policies.allocation.greso import Greso
from rlsim.policies.allocation.group_schedule import GroupSchedule
from rlsim.policies.allocation.hive import Hive
from rlsim.policies.allocation.masa import MetaPredictions
from rlsim.policies.allocation.mc_grpo import McGrpo
from rlsim.policies.allocation.pg_opd import ProbeGuided
from rlsim.policies.allocation.pilot_commit import PilotCommit
from rlsim.policies.allocation.precog import OutcomeStopping
from rlsim.policies.allocation.prior_tested import PriorTested
from rlsim.policies.allocation.prune_opd import PruneAtDrift
from rlsim.policies.allocation.replay import Popo, Replay
from rlsim.policies.allocation.sgpo import Sgpo
from rlsim.policies.allocation.short_rounds import ShortRounds
from rlsim.policies.allocation.shortopd import EffectiveLength
from rlsim.policies.allocation.single import Single
from rlsim.policies.allocation.spark import Spark
from rlsim.policies.allocation.spec_rl import SpecRl
from rlsim.policies.allocation.trace import Trace
from rlsim.policies.allocation.uniform import Uniform
from rlsim.policies.allocation.vade import Vade
from rlsim.policies.allocation.vigor import Vigor
from rlsim.policies.allocation.xrpo import Xrpo
from rlsim.policies.batching.complete_groups import CompleteGroups
from rlsim.policies.batching.exact_target import ExactTarget
from rlsim.policies.batching.local_batches import LocalBatches
from rlsim.policies.batching.micro_batch_stream import MicroBatchStream
from rlsim.policies.batching.oldest_step_first import OldestStepFirst
from rlsim.policies.dispatch.by_class import ByClass
from rlsim.policies.dispatch.by_pool import ByContext, ByWeight
from rlsim.policies.dispatch.consistent_hash import ConsistentHash
from rlsim.policies.dispatch.fill_empty import FillEmpty
from rlsim.policies.dispatch.least_tokens import LeastTokens
from rlsim.policies.dispatch.power_of_two import PowerOfTwo
from rlsim.policies.dispatch.prefill_decode import PrefillDecode
from rlsim.policies.dispatch.prefix_aware import PrefixAware
from rlsim.policies.dispatch.routers import GroupAffinity, LeastInFlight, RoundRobin, Sticky
from rlsim.policies.dispatch.tail_split import TailSplit
from rlsim.policies.leftovers.fates import DropOld, EndRound, KeepAll
from rlsim.policies.leftovers.max_off_policy import MaxOffPolicy
from rlsim.policies.leftovers.off_policy import OffPolicySteps
from rlsim.policies.leftovers.put_off import PutOff
from rlsim.policies.leftovers.ratio_age import RatioAge
from rlsim.policies.migration.balance import Balance
from rlsim.policies.migration.repack import Repack
from rlsim.policies.migration.stay import Stay
from rlsim.policies.ordering.ageing import Ageing
from rlsim.policies.ordering.by_length import LongestFirst, ShortestFirst
from rlsim.policies.ordering.class_priority import ClassPriority
from rlsim.policies.ordering.divided import Divided
from rlsim.policies.ordering.fcfs import Fcfs
from rlsim.policies.ordering.feedback_queue import FeedbackQueue
from rlsim.policies.ordering.prefill_leg import PrefillLeg
from rlsim.policies.ordering.weighted_fair import WeightedFair
from rlsim.policies.placement.lending import DynamicSchedule, HybridSwitching, LendWhileIdle
from rlsim.policies.placement.static import Colocated, Disaggregated
from rlsim.policies.turns.pace import Alone, LockStep
from rlsim.policies.update.deferred import Deferred
from rlsim.policies.update.ess_triggered import EssTriggered
from rlsim.policies.update.modes import Publish
from rlsim.policies.update.tested import Tested


class Part(Protocol):
    """What every registered class offers."""

    def start(self, shape: Shape) -> Any:
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
