"""A plan: what runs are made from, and how a scenario becomes one.

How many GPUs a plan uses, and what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlsim.core.streams import stream_key
from rlsim.core.view import RunSizes
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.training import TrainingCost
from rlsim.costs.transfer import SwitchCost, SyncCost
from rlsim.learning.model import LearningModel
from rlsim.policies.protocols import Elastic, Policy
from rlsim.resolve.faults import Faults, ResolveError
from rlsim.resolve.learning import make_learning
from rlsim.resolve.policy import check_placement, make_policy, make_shape
from rlsim.resolve.pools import ResolvedPool, make_pools, make_sites
from rlsim.resolve.training import make_switching, make_sync, make_trainer_profile, make_training
from rlsim.resolve.workload import make_workload
from rlsim.scenario.schema import Scenario
from rlsim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Source:
    """Where one cost comes from."""

    what: str
    text: str
    estimate: bool


@dataclass(frozen=True, slots=True)
class ResolvedScenario:
    """What a run is made from."""

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
        """Whether samples have rewards that a policy is told: of the learning model, or live of a task."""
        return self.learning is not None or self.scenario.live.task is not None

    def pool_of(self, replica: int) -> ResolvedPool:
        """The pool of a replica."""
        return next(pool for pool in self.pools if replica in pool.place.replicas)

    def shape_of(self, workload: Workload) -> RunSizes:
        """The shape of the run that has this workload: parts that hash get luck of their own in each replication."""
        return replace(self.shape, seed=stream_key(workload.seed, "policy")[0] >> 1)

    def policy(self, shape: RunSizes) -> Policy:
        """Freshly started parts, for one run of that shape."""
        return make_policy(self.scenario, shape)

    def workload_of(self, replication: int) -> Workload:
        """The workload with the luck of a replication; the same under every policy."""
        return replace(self.workload, seed=replication_seed(self.scenario.seed, replication))


def replication_seed(seed: int, replication: int) -> int:
    """The seed of a replication's random streams."""
    return stream_key(seed, "replication", replication)[0] >> 1


def plan(scenario: Scenario) -> ResolvedScenario:
    """Resolve and check; ``ResolveError`` with every fault found."""
    faults = Faults()
    architecture = faults.catch(lambda: catalogue.model(scenario.model))
    device = faults.catch(lambda: catalogue.device(scenario.cluster.device))
    workload = faults.catch(lambda: make_workload(scenario))
    shape = make_shape(scenario)
    policy = faults.catch(lambda: make_policy(scenario, shape))
    if policy is not None:
        faults.catch(lambda: check_placement(scenario, policy))
    learning = faults.catch(lambda: make_learning(scenario))
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
        scenario,
        architecture,
        device,
        pools,
        training,
        sync,
        switching,
        shape,
        workload,
        _sources(pools, _training_source(scenario, training), sync, switching, policy),
        policy.placement.shared,
        shape.lent_replicas if isinstance(policy.placement, Elastic) else range(0),
        learning,
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
    sources = [
        *(_step_source(pool) for pool in pools),
        training,
        Source("weight sync", sync.source, not sync.source.startswith("given")),
    ]
    if policy.placement.shared:
        sources.append(Source("role switch", switching.source, not switching.source.startswith("given")))
    return tuple(sources)


def _step_source(pool: ResolvedPool) -> Source:
    where = f" of pool {pool.place.name}" if pool.place.name else ""
    return Source(f"engine step{where}", str(pool.law.provenance), pool.law.provenance.is_estimate)


def gpus_used(plan: ResolvedScenario) -> int:
    """GPUs that the policy keeps busy or waiting; shared ones count once."""
    return plan.scenario.rollout.gpus - lent_gpus(plan) + (0 if plan.colocated else plan.scenario.trainer.gpus)


def price(plan: ResolvedScenario) -> tuple[float, str]:
    """USD of a GPU-hour, and who says so."""
    rates = [(pool.own_gpus, pool.price_usd_per_gpu_hour, pool.price_source) for pool in plan.pools]
    if not plan.colocated:
        rates.append((plan.scenario.trainer.gpus, *_trainer_price(plan)))
    rates = [rate for rate in rates if rate[0]]
    if len({(usd, source) for _, usd, source in rates}) == 1:
        return rates[0][1:]
    usd = sum(gpus * each for gpus, each, _ in rates) / sum(gpus for gpus, _, _ in rates)
    return usd, f"mean over {' + '.join(f'{gpus} GPUs at {each:g}' for gpus, each, _ in rates)}"


def _trainer_price(plan: ResolvedScenario) -> tuple[float, str]:
    given = plan.scenario.cluster.price_usd_per_gpu_hour
    if given is not None:
        return given, "given in the scenario"
    return plan.device.price_usd_per_gpu_hour, plan.device.price_source


def lent_gpus(plan: ResolvedScenario) -> int:
    """GPUs that are rollout's and the trainer's in turn."""
    return len(plan.lent) * plan.pools[-1].rollout.gpus_per_replica
