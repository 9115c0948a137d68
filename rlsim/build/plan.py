"""A plan: what runs are made from, and how a scenario becomes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from rlsim.build.engine import make_limits, make_profile, make_step_law
from rlsim.build.policy import check_placement, make_policy, make_shape
from rlsim.build.training import make_switching, make_sync, make_training
from rlsim.build.workload import make_workload
from rlsim.core.engine import EngineLimits
from rlsim.core.errors import ParameterError
from rlsim.core.streams import stream_key
from rlsim.core.view import Shape
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.steplaw import StepLaw
from rlsim.costs.training import TrainingCost
from rlsim.costs.transfer import SwitchCost, SyncCost
from rlsim.policies.policy import Policy
from rlsim.scenario.schema import Scenario
from rlsim.workload.workload import Workload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """Where one cost comes from."""

    what: str
    text: str
    estimate: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made from."""

    scenario: Scenario
    architecture: Architecture
    device: Device
    law: StepLaw
    limits: EngineLimits
    training: TrainingCost
    sync: SyncCost
    switching: SwitchCost
    shape: Shape
    workload: Workload
    sources: tuple[Source, ...]
    colocated: bool

    def shape_of(self, workload: Workload) -> Shape:
        """The shape of the run that has this workload: parts that hash get luck of their own in each replication."""
        return replace(self.shape, seed=stream_key(workload.seed, "policy")[0] >> 1)

    def policy(self, shape: Shape) -> Policy:
        """Freshly started parts, for one run of that shape."""
        return make_policy(self.scenario, shape)

    def workload_of(self, replication: int) -> Workload:
        """The workload with the luck of a replication; the same under every policy."""
        return replace(self.workload, seed=replication_seed(self.scenario.seed, replication))


def replication_seed(seed: int, replication: int) -> int:
    """The seed of a replication's random streams."""
    return stream_key(seed, "replication", replication)[0] >> 1


class Faults:
    """Collects the faults of independent sections."""

    def __init__(self) -> None:
        self.errors: list[ParameterError] = []

    def catch(self, make: Callable[[], T]) -> T | None:
        """The value made, or None with its fault kept."""
        try:
            return make()
        except ParameterError as error:
            self.errors.append(error)
            return None


class PlanError(ParameterError):
    """All faults of a scenario that can only be seen when its names are resolved."""

    def __init__(self, errors: list[ParameterError]) -> None:
        super().__init__(errors[0].path, errors[0].found, errors[0].allowed)
        self.errors = errors


def plan(scenario: Scenario) -> Plan:
    """Resolve and check; ``PlanError`` with every fault found."""
    faults = Faults()
    architecture = faults.catch(lambda: catalogue.model(scenario.model))
    device = faults.catch(lambda: catalogue.device(scenario.cluster.device))
    workload = faults.catch(lambda: make_workload(scenario))
    shape = make_shape(scenario)
    policy = faults.catch(lambda: make_policy(scenario, shape))
    if policy is not None:
        faults.catch(lambda: check_placement(scenario, policy))
    profile = faults.catch(lambda: make_profile(scenario))
    if architecture is None or device is None:
        raise PlanError(faults.errors)
    law = faults.catch(lambda: make_step_law(scenario, architecture, device, profile))
    training = faults.catch(lambda: make_training(scenario, architecture, device))
    switching = faults.catch(lambda: make_switching(scenario, architecture))
    sync = faults.catch(lambda: make_sync(scenario, architecture))
    limits = None
    if workload is not None:
        limits = faults.catch(lambda: make_limits(scenario, architecture, device, workload))
    if faults.errors or not (law and training and switching and sync and limits and workload and policy):
        raise PlanError(faults.errors)
    return Plan(
        scenario,
        architecture,
        device,
        law,
        limits,
        training,
        sync,
        switching,
        shape,
        workload,
        _sources(law, training, sync, switching, policy),
        policy.placement.shared,
    )


def _sources(
    law: StepLaw, training: TrainingCost, sync: SyncCost, switching: SwitchCost, policy: Policy
) -> tuple[Source, ...]:
    sources = [
        Source("engine step", str(law.provenance), law.provenance.is_estimate),
        Source("training", f"FLOPs at {training.mfu:.0%} of the bf16 peak of {training.device.name}", True),
        Source("weight sync", sync.source, not sync.source.startswith("given")),
    ]
    if policy.placement.shared:
        sources.append(Source("role switch", switching.source, not switching.source.startswith("given")))
    return tuple(sources)
