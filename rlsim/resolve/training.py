"""The trainer, sync and switching sections: cost models."""

from __future__ import annotations

from dataclasses import asdict, replace

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.memory import weight_bytes_per_gpu
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.training import TrainingCost, profile_speeds
from rlsim.costs.transfer import SwitchCost, SyncCost, staged_bytes_per_second
from rlsim.scenario.schema import Scenario

TRAINER_STATE_BYTES_PER_PARAMETER = 16.0
"""bf16 weights and gradients, fp32 master weights and two Adam moments (ZeRO, arXiv 1910.02054)."""


def make_trainer_profile(scenario: Scenario) -> Profile | None:
    """The profile that the trainer names; None without one."""
    name = scenario.trainer.profile
    return None if name is None else load_profile(name, "trainer.profile")


def make_training(scenario: Scenario, architecture: Architecture, device: Device) -> TrainingCost:
    """The cost model of a training step, at the speeds of the file or of the profile that it names."""
    config, profile = scenario.trainer, make_trainer_profile(scenario)
    if profile is not None:
        speeds = profile_speeds(profile, architecture, device, scenario.cluster.allow_other_hardware)
        config = config.replace(profile=None, **asdict(speeds))
    return TrainingCost(config, architecture, device)


def make_sync(scenario: Scenario, architecture: Architecture, device: Device) -> SyncCost:
    """The cost of a publication."""
    section = scenario.sync
    if section.per_tensor_seconds and section.tensors is None:
        raise ParameterError("sync.tensors", None, "a whole number, at least 1, with per_tensor_seconds")
    payload, rate = architecture.weight_bytes() * section.payload_share, section.link_bytes_per_second
    if section.stage_bytes_per_second is not None:
        stages, received = scenario.trainer.pipeline_parallel, device.inter_node_bytes_per_second
        rate = staged_bytes_per_second(section.stage_bytes_per_second, stages, received)
    restore_seconds = 0.0
    if scenario.trainer.weights_offload:
        # Each training GPU brings its share of the offloaded weights back.
        restore_rate = section.restore_bytes_per_second or device.host_link_bytes_per_second
        restore_seconds = payload / scenario.trainer.gpus / restore_rate
    default = SyncCost.over("nccl", payload, section.scope)
    cost = default if rate is None else SyncCost(payload, rate, section.base_seconds, source="given in the scenario")
    return replace(
        cost,
        base_seconds=section.base_seconds or cost.base_seconds,
        tensors=section.tensors or 0,
        per_tensor_seconds=section.per_tensor_seconds,
        restore_seconds=restore_seconds,
        scope=section.scope,
    )


def make_switching(scenario: Scenario, architecture: Architecture) -> SwitchCost:
    """The cost of a change of role on shared GPUs."""
    section = scenario.switching
    weights = max(
        weight_bytes_per_gpu(architecture, pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel)
        for pool in scenario.rollout.sections()
    )
    state = architecture.parameters() * TRAINER_STATE_BYTES_PER_PARAMETER / scenario.trainer.gpus
    link = section.host_link_bytes_per_second if section else None
    cost = SwitchCost.from_bytes(weights, state, link) if link else SwitchCost.from_bytes(weights, state)
    if section is None or (section.sleep_seconds is None and section.wake_seconds is None):
        return cost
    sleep = cost.to_training_seconds() if section.sleep_seconds is None else section.sleep_seconds
    wake = cost.to_rollout_seconds() if section.wake_seconds is None else section.wake_seconds
    return SwitchCost(sleep, wake, source="given in the scenario")
