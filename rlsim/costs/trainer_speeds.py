"""The speeds of a measured trainer, as a scenario's keys say them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.evidence import Coefficient
from rlsim.costs.profile import Profile
from rlsim.costs.sections import TrainingFit
from rlsim.costs.training import TrainingCost

RATES = {
    "mfu": "train_flops_per_second",
    "logprob_mfu": "logprob_flops_per_second",
    "attention_mfu": "attention_flops_per_second",
}
"""Utilisations by the measured rate of one GPU that they stand for."""
TRAINER_COEFFICIENTS = (
    *RATES.values(),
    "seconds_per_micro_batch",
    "logprob_seconds_per_micro_batch",
    "update_seconds",
)
"""What the training section of a profile holds at least; ``update_seconds`` is a whole optimizer update."""


@dataclass(frozen=True, slots=True)
class TrainerSpeeds:
    """Keys of the trainer section; utilisations are of the dense bf16 peak of the device they were asked for."""

    mfu: float
    logprob_mfu: float
    attention_mfu: float
    seconds_per_update: float
    """Beyond the memory traffic of the optimizer, which the cost model adds itself."""
    seconds_per_micro_batch: float
    logprob_seconds_per_micro_batch: float


def trainer_speeds(fit: TrainingFit, architecture: Architecture, device: Device) -> TrainerSpeeds:
    """Keys with which a trainer on ``device`` takes the seconds that were measured.

    Raises ``ParameterError`` at ``trainer.profile`` for a coefficient that is missing or a rate above the peak.
    """
    found = {name: _value(fit.coefficients, name) for name in TRAINER_COEFFICIENTS}
    rates = {key: found[name] / device.bf16_flops for key, name in RATES.items()}
    for key, share in rates.items():
        if not 0 < share <= 1:
            raise ParameterError("trainer.profile", f"{key} {share:.3g} of {device.name}", "rates up to its bf16 peak")
    return TrainerSpeeds(
        seconds_per_update=max(0.0, found["update_seconds"] - _traffic_seconds(fit, architecture, device)),
        seconds_per_micro_batch=found["seconds_per_micro_batch"],
        logprob_seconds_per_micro_batch=found["logprob_seconds_per_micro_batch"],
        **rates,
    )


def profile_speeds(profile: Profile, architecture: Architecture, device: Device, any_hardware: bool) -> TrainerSpeeds:
    """The speeds of a profile's trainer.

    Raises ``ParameterError`` at ``trainer.profile`` for a profile without a training section, and, unless
    ``any_hardware``, for one of another model or device.
    """
    if profile.training is None:
        allowed = "a profile with a training section (rlsim calibrate torch)"
        raise ParameterError("trainer.profile", profile.name, allowed)
    differs = profile.mismatches(architecture.name, device.name, profile.tensor_parallel, profile.expert_parallel)
    if differs and not any_hardware:
        allowed = f"a profile of this set-up, or cluster.allow_other_hardware: true ({'; '.join(differs)})"
        raise ParameterError("trainer.profile", profile.name, allowed)
    return trainer_speeds(profile.training, architecture, device)


def _traffic_seconds(fit: TrainingFit, architecture: Architecture, device: Device) -> float:
    """What the cost model takes for an update on the GPUs that were measured."""
    gpus = fit.parallel.get("data_parallel", 1)
    return TrainingCost(architecture, device, gpus=gpus, mfu=1.0).optimizer_seconds()


def _value(coefficients: Mapping[str, Coefficient], name: str) -> float:
    if name not in coefficients:
        raise ParameterError("trainer.profile", f"no {name}", f"coefficients {', '.join(TRAINER_COEFFICIENTS)}")
    return coefficients[name].value
