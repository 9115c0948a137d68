"""The policy section: presets and parts, started and checked together."""

from __future__ import annotations

import warnings
from typing import Any

from rlsim.core.errors import ParameterError, unknown
from rlsim.core.view import ONE_CLASS, RequestClass, RunSizes
from rlsim.learning.signals import NAMES as SIGNALS
from rlsim.policies import combinations
from rlsim.policies.hooks import NeedsRewards, Reuses, Watches
from rlsim.policies.protocols import DEFAULTS, ElasticReplicas, Policy, WatchesEss
from rlsim.policies.registry import CHOICES, make_part, parts_of
from rlsim.presets import load_preset
from rlsim.resolve.hardware import pool_places
from rlsim.scenario.schema import Scenario

FORMER_METHODS = {"admission": ("room", "capacity"), "allocation": ("noticed", "on_watch")}
"""By choice: a method that users' own parts may have under its former name, and its name."""


def make_shape(scenario: Scenario) -> RunSizes:
    """The sizes that parts are checked against."""
    places, classes = pool_places(scenario.rollout), scenario.workload.classes
    replicas = places[-1].replicas.stop
    shared = max(0, gpus_in_both(scenario)) // scenario.rollout.sections()[-1].gpus_per_replica
    return RunSizes(
        scenario.workload.prompts_per_step,
        scenario.workload.group_size,
        replicas,
        min(place.slots for place in places),
        places if scenario.rollout.pools else (),
        classes=tuple(RequestClass(name, spec.weight, spec.priority) for name, spec in classes.items()) or ONE_CLASS,
        lent_replicas=range(max(0, replicas - shared), replicas),  # The last ones.
    )


def gpus_in_both(scenario: Scenario) -> int:
    """GPUs that rollout and trainer both count; negative where some are nobody's."""
    return scenario.rollout.gpus + scenario.trainer.gpus - scenario.cluster.gpus


def make_policy(scenario: Scenario, shape: RunSizes) -> Policy:
    """One started part for each choice, from the preset and the parts that replace its own."""
    section = scenario.policy
    specs: dict[str, dict[str, Any]] = {}
    if section.preset is not None:
        specs = load_preset(section.preset).filled(section.fields, "policy")
    elif section.fields:
        name = next(iter(section.fields))
        raise unknown(f"policy.{name}", name, ["preset", "parts"])
    for choice, spec in (section.parts or {}).items():
        if choice not in CHOICES:
            raise unknown(f"policy.parts.{choice}", choice, CHOICES)
        if not isinstance(spec, dict):
            raise ParameterError(f"policy.parts.{choice}", spec, "a mapping with use and the part's parameters")
        specs[choice] = spec
    for choice in CHOICES:
        if choice in DEFAULTS:
            specs.setdefault(choice, {"use": DEFAULTS[choice]})
        if choice not in specs:
            raise ParameterError(f"policy.parts.{choice}", None, f"a part: {', '.join(parts_of(choice))}")
    return Policy(**{choice: _started(choice, specs[choice], section, shape) for choice in CHOICES})


def _started(choice: str, spec: dict[str, Any], section: Any, shape: RunSizes) -> Any:
    try:
        part = make_part(choice, spec, choice).start(shape)
    except ParameterError as error:
        raise _in_policy(error, choice, error.path.removeprefix(f"{choice}."), section) from error
    former, name = FORMER_METHODS.get(choice, ("", ""))
    if former and hasattr(part, former) and not hasattr(part, name):
        cls = type(part)
        warnings.warn(f"{cls.__name__}.{former} is now named {name}", FutureWarning, stacklevel=2)
        setattr(cls, name, getattr(cls, former))
    return part


def _in_policy(error: ParameterError, choice: str, field: str, section: Any) -> ParameterError:
    """The fault of a part's field at the key that the user writes: the preset's own parameter where it sets it."""
    key = f"parts.{choice}.{field}"
    if section.preset is not None and choice not in (section.parts or {}):
        key = load_preset(section.preset).key(choice, field)
    named = (section.parts or {}).get(choice, {})
    value = named.get("use", error.found) if field == "use" else error.found
    return ParameterError(f"policy.{key}", value, error.allowed)


def check_placement(scenario: Scenario, policy: Policy) -> None:
    """Combinations of parts, and of parts and placement, that cannot work."""
    try:
        combinations.check(policy, make_shape(scenario))
    except ParameterError as error:
        choice, _, field = error.path.partition(".")
        raise _in_policy(error, choice, field, scenario.policy) from error
    _check_observations(scenario, policy)
    if policy.ordering.ranks and scenario.rollout.scheduling_policy == "fcfs":
        allowed = "priority: this policy ranks calls (policy.parts.ordering), and these engines would ignore it"
        raise ParameterError("rollout.scheduling_policy", "fcfs", allowed)
    rollout, trainer, cluster = scenario.rollout.gpus, scenario.trainer.gpus, scenario.cluster.gpus
    if isinstance(policy.placement, ElasticReplicas):
        _check_lent(scenario)
    elif not policy.placement.shared and rollout + trainer > cluster:
        allowed = f"at most cluster.gpus - rollout.gpus = {cluster - rollout}: this policy gives each its own GPUs"
        raise ParameterError("trainer.gpus", trainer, allowed)
    _check_local_batches(scenario, policy)
    _check_pools(scenario, policy)
    updates = scenario.trainer.updates_per_step * scenario.trainer.epochs
    if policy.facts.batching.streams and updates > 1:
        allowed = "1, as the epochs: a step that streams micro-batches makes one optimizer update"
        raise ParameterError("trainer.updates_per_step", scenario.trainer.updates_per_step, allowed)
    if policy.placement.shared and rollout > trainer:
        allowed = f"at least rollout.gpus ({rollout}): this policy shares the GPUs"
        raise ParameterError("trainer.gpus", trainer, allowed)


def _check_lent(scenario: Scenario) -> None:
    """Replicas on the trainer's GPUs are whole, of the last pool, and not the only ones."""
    last, both = scenario.rollout.sections()[-1], gpus_in_both(scenario)
    if both % last.gpus_per_replica:
        allowed = f"GPUs in common with rollout in whole replicas of {last.gpus_per_replica}, and not {both}"
        raise ParameterError("trainer.gpus", scenario.trainer.gpus, allowed)
    if both >= scenario.rollout.gpus or (scenario.rollout.pools and both > last.gpus):
        most = "fewer than rollout.gpus" if not scenario.rollout.pools else "at most those of the last pool"
        raise ParameterError("trainer.gpus", scenario.trainer.gpus, f"GPUs in common with rollout: {most}, not {both}")
    for number, pool in enumerate(scenario.rollout.pools):
        shared = pool.shares_gpus_with is not None
        other = number == len(scenario.rollout.pools) - 1 and pool.device not in (None, scenario.cluster.device)
        if shared or other:
            field = "shares_gpus_with" if shared else "device"
            allowed = "left out: with this policy the last replicas are on the trainer's GPUs"
            raise ParameterError(f"rollout.pools[{number}].{field}", getattr(pool, field), allowed)


def _check_observations(scenario: Scenario, policy: Policy) -> None:
    """What a policy asks of trainer and replicas that the scenario does not describe."""
    if isinstance(policy.update, WatchesEss) and scenario.workload.mismatch is None:
        allowed = "engine_variance and variance_per_step: this policy reads the effective sample size"
        raise ParameterError("workload.mismatch", None, allowed)
    if isinstance(policy.allocation, NeedsRewards) and scenario.learning is None and scenario.live.task is None:
        allowed = "a learning section (or live.task): this policy is told how samples came out"
        raise ParameterError("learning", None, allowed)
    if isinstance(policy.allocation, Watches) and scenario.learning is None:
        allowed = "a learning section: this policy looks at signals of responses that are under way"
        raise ParameterError("learning", None, allowed)
    if isinstance(policy.allocation, Watches):
        for signal in policy.allocation.signals:
            if signal not in SIGNALS:
                raise unknown("policy.parts.allocation.signal", signal, SIGNALS)
    if isinstance(policy.allocation, Reuses) and scenario.learning is None:
        allowed = "a learning section: it says what new weights accept of an old response"
        raise ParameterError("learning", None, allowed)
    if not policy.facts.update.tests_candidates:
        return
    if scenario.learning is not None:
        part = type(policy.update).__name__
        allowed = "an update that is never refused: the learning model has no way back to older weights"
        raise ParameterError("policy.parts.update.use", part, allowed)
    if scenario.sync.acceptance is None:
        raise ParameterError("sync.acceptance", None, "probability: this policy lets replicas judge new weights")
    if scenario.sync.scope == "per_replica":
        raise ParameterError("sync.scope", "per_replica", "global: the replicas judge new weights together")


def _check_pools(scenario: Scenario, policy: Policy) -> None:
    """Pools on other devices are not the trainer's GPUs; KV that is fetched by legs does not come from the host."""
    for number, pool in enumerate(scenario.rollout.pools):
        if policy.placement.shared and pool.device not in (None, scenario.cluster.device):
            allowed = f"{scenario.cluster.device}: this policy shares the GPUs with the trainer"
            raise ParameterError(f"rollout.pools[{number}].device", pool.device, allowed)
    if policy.facts.dispatch.prefills_on is not None and scenario.rollout.kv_while_waiting == "offload":
        allowed = "keep or drop: with dispatch prefill-decode the next turn begins with a prefill leg"
        raise ParameterError("rollout.kv_while_waiting", "offload", allowed)


def _check_local_batches(scenario: Scenario, policy: Policy) -> None:
    """Batches that make updates of their own: the trainer's number may only say the same."""
    batching = policy.facts.batching
    if batching.updates_per_batch is None:
        return
    updates = batching.batches_per_step * batching.updates_per_batch
    if scenario.trainer.updates_per_step not in (1, updates):
        allowed = f"{updates}, or left out: this policy makes {updates} updates a step"
        raise ParameterError("trainer.updates_per_step", scenario.trainer.updates_per_step, allowed)
