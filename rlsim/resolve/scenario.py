"""The resolved scenario, from which runs are made: how it comes about, how many GPUs it uses and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlsim.core.errors import Faults, ParameterError, ResolveError
from rlsim.core.streams import stream_key
from rlsim.core.view import RunSizes
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.training import TrainingCost
from rlsim.costs.transfer import SwitchCost, SyncCost
from rlsim.learning.model import LearningModel, Reference
from rlsim.policies.protocols import ElasticReplicas, Policy
from rlsim.resolve.hardware import (
    ResolvedPool,
    make_pools,
    make_sites,
    make_switching,
    make_sync,
    make_trainer_profile,
    make_training,
)
from rlsim.resolve.policy import check_placement, make_policy, make_shape
from rlsim.scenario.schema import Law, Scenario, WorkloadConfig
from rlsim.workload.draws import ClassLengths
from rlsim.workload.latency import LatencyDistribution
from rlsim.workload.lengths import LengthDistribution
from rlsim.workload.spec import latency_from_fields, lengths_from_fields
from rlsim.workload.workload import TurnDraws, Workload


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of one cost."""

    what: str
    text: str
    estimate: bool


@dataclass(frozen=True, slots=True)
class ResolvedScenario:
    """A scenario with every name looked up and every check passed: all that a run is made from."""

    scenario: Scenario
    architecture: Architecture
    device: Device
    """Of the trainer, and of pools that name no other."""
    pools: tuple[ResolvedPool, ...]
    """In order of their replicas; one without ``rollout.pools``."""
    training: TrainingCost
    sync: SyncCost
    switching: SwitchCost
    shape: RunSizes
    workload: Workload
    sources: tuple[Source, ...]
    colocated: bool
    lent: range = range(0)
    """Replicas on the trainer's GPUs, which generate only while it lends them."""
    learning: LearningModel | None = None
    """What samples earn and teach when simulated; None: nothing."""

    @property
    def rewarded(self) -> bool:
        """Whether policies see rewards of samples: of the learning model, or live of a task."""
        return self.learning is not None or self.scenario.live.task is not None

    def pool_of(self, replica: int) -> ResolvedPool:
        """The pool of a replica."""
        return next(pool for pool in self.pools if replica in pool.place.replicas)

    def shape_of(self, workload: Workload) -> RunSizes:
        """The shape of the run that has this workload: parts that hash draw anew in each replication."""
        return replace(self.shape, seed=stream_key(workload.seed, "policy")[0] >> 1)

    def policy(self, shape: RunSizes) -> Policy:
        """Freshly started parts, for one run of that shape."""
        return make_policy(self.scenario, shape)

    def workload_of(self, replication: int) -> Workload:
        """The workload with the random draws of a replication, common to every policy."""
        return replace(self.workload, seed=replication_seed(self.scenario.seed, replication))


def replication_seed(seed: int, replication: int) -> int:
    """The seed of a replication's random streams."""
    return stream_key(seed, "replication", replication)[0] >> 1


def resolve(scenario: Scenario) -> ResolvedScenario:
    """Resolve and check; ``ResolveError`` with every fault found."""
    faults = Faults()
    architecture = faults.catch(lambda: catalogue.model(scenario.model))
    device = faults.catch(lambda: catalogue.device(scenario.cluster.device))
    workload = faults.catch(lambda: make_workload(scenario))
    learning = faults.catch(lambda: make_learning(scenario))
    shape = make_shape(scenario)
    policy = faults.catch(lambda: make_policy(scenario, shape))
    if policy is not None:
        faults.catch(lambda: check_placement(scenario, policy))
    sites = make_sites(scenario, device, faults)
    if architecture is None or device is None:
        raise ResolveError(faults.errors)
    pools = make_pools(sites, architecture, workload, faults)
    training = faults.catch(lambda: make_training(scenario, architecture, device))
    switching = faults.catch(lambda: make_switching(scenario, architecture))
    sync = faults.catch(lambda: make_sync(scenario, architecture, device))
    if faults.errors or not (pools and training and switching and sync and workload and policy):
        raise ResolveError(faults.errors)
    return ResolvedScenario(
        scenario=scenario,
        architecture=architecture,
        device=device,
        pools=pools,
        training=training,
        sync=sync,
        switching=switching,
        shape=shape,
        workload=workload,
        sources=(
            *(Source("model", text, True) for text in architecture.assumed),
            *_sources(pools, _training_source(scenario, training), sync, switching, policy),
        ),
        colocated=policy.placement.shared,
        lent=shape.lent_replicas if isinstance(policy.placement, ElasticReplicas) else range(0),
        learning=learning,
    )


def make_workload(scenario: Scenario) -> Workload:
    """The workload under seed 0; replications replace the seed."""
    section = scenario.workload
    turns = None
    if section.turns is not None:
        turns = TurnDraws(
            _length(section.turns.count, "workload.turns.count"),
            _latency(section.turns.tool_latency_seconds, "workload.turns.tool_latency_seconds"),
            _length(section.turns.tool_output_tokens, "workload.turns.tool_output_tokens"),
        )
    reward = None
    if section.reward is not None:
        reward = _latency(section.reward.latency_seconds, "workload.reward.latency_seconds")
    return Workload(
        seed=0,
        group_size=section.group_size,
        dataset_prompts=section.dataset_prompts,
        prompt_length=_length(section.prompt_tokens, "workload.prompt_tokens"),
        response_length=_length(section.response_tokens, "workload.response_tokens"),
        intra_group_correlation=section.intra_group_correlation,
        drift=section.drift if section.drift.growth_per_version else None,
        turns=turns,
        reward_latency=reward,
        mismatch=section.mismatch,
        classes=tuple(_class_lengths(section, name) for name in section.classes),
    )


def _class_lengths(workload: WorkloadConfig, name: str) -> ClassLengths:
    """Length distributions of a class: its own, or the workload's."""
    section = workload.classes[name]
    prompt, response = (
        _length(getattr(section, key), f"workload.classes.{name}.{key}")
        if getattr(section, key)
        else _length(getattr(workload, key), f"workload.{key}")
        for key in ("prompt_tokens", "response_tokens")
    )
    return ClassLengths(section.share, prompt, response)


def _length(law: Law, path: str) -> LengthDistribution:
    return lengths_from_fields(law.law, law.fields, path)


def _latency(law: Law, path: str) -> LatencyDistribution:
    return latency_from_fields(law.law, law.fields, path)


def make_learning(scenario: Scenario) -> LearningModel | None:
    """The model; None without the section. Raises ``ParameterError`` at the key that cannot be used."""
    section, workload = scenario.learning, scenario.workload
    if section is None:
        return None
    rewarded = section.distillation is None and section.effect.information_exponent
    if workload.group_size == 1 and section.effect.baseline == "group" and rewarded:
        raise ParameterError("learning.effect.baseline", "group", "value, as a group of one has no variance")
    if section.distillation is not None and workload.turns is not None:
        allowed = "null with workload.turns: where tokens lie is modelled for a single response"
        raise ParameterError("learning.distillation", section.distillation.model_dump(), allowed)
    samples = workload.prompts_per_step * workload.group_size
    return LearningModel(
        **dict(section),
        method=section.staleness.curve(),
        mismatch=workload.mismatch,
        reference=Reference(samples / scenario.trainer.updates_per_step, workload.group_size),
    )


def _training_source(scenario: Scenario, training: TrainingCost) -> Source:
    """Measured where the trainer names a profile; an estimate at a given utilisation."""
    profile = make_trainer_profile(scenario)
    if profile is not None and profile.training is not None:
        provenance, gpus = profile.training.evidence.provenance, profile.training.parallel.get("data_parallel", 1)
        beyond = (
            "" if gpus == training.config.gpus else f"; measured on {gpus} GPU(s), communication of more is not in it"
        )
        return Source("training", f"{provenance}{beyond}", provenance.is_estimate)
    return Source("training", f"FLOPs at {training.mfu:.0%} of the bf16 peak of {training.device.name}", True)


def _sources(
    pools: tuple[ResolvedPool, ...], training: Source, sync: SyncCost, switching: SwitchCost, policy: Policy
) -> tuple[Source, ...]:
    sources = []
    for pool in pools:
        name, provenance = f" of pool {pool.place.name}" if pool.place.name else "", pool.law.provenance
        sources.append(Source(f"engine step{name}", str(provenance), provenance.is_estimate))
    sources += [training, Source("weight sync", sync.source, not sync.source.startswith("given"))]
    if policy.placement.shared:
        sources.append(Source("role switch", switching.source, not switching.is_given))
    return tuple(sources)


def gpus_used(resolved: ResolvedScenario) -> int:
    """GPUs that the policy keeps busy or waiting; shared ones count once."""
    rollout, trainer = resolved.scenario.rollout.gpus, resolved.scenario.trainer.gpus
    return max(rollout, trainer) if resolved.colocated else rollout - lent_gpus(resolved) + trainer


def price(resolved: ResolvedScenario) -> tuple[float, str]:
    """USD of a GPU-hour, and who says so."""
    rates = [(pool.own_gpus, pool.price_usd_per_gpu_hour, pool.price_source) for pool in resolved.pools]
    if not resolved.colocated:
        usd, source = resolved.scenario.cluster.price_usd_per_gpu_hour, "given in the scenario"
        if usd is None:
            usd, source = resolved.device.price_usd_per_gpu_hour, resolved.device.price_source
        rates.append((resolved.scenario.trainer.gpus, usd, source))
    rates = [rate for rate in rates if rate[0]]
    if len({(usd, source) for _, usd, source in rates}) == 1:
        return rates[0][1:]
    mean = sum(gpus * each for gpus, each, _ in rates) / sum(gpus for gpus, _, _ in rates)
    return mean, f"mean over {' + '.join(f'{gpus} GPUs at {each:g}' for gpus, each, _ in rates)}"


def lent_gpus(resolved: ResolvedScenario) -> int:
    """GPUs that are rollout's and the trainer's in turn."""
    return len(resolved.lent) * resolved.pools[-1].rollout.gpus_per_replica
