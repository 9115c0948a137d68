"""The learning section: the hidden truth of prompts and progress."""

from __future__ import annotations

from rlsim.core.errors import ParameterError
from rlsim.learning.model import LearningModel, Reference
from rlsim.scenario.schema import Scenario


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
