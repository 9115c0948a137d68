"""The learning section: the hidden truth of prompts and progress."""

from __future__ import annotations

from dataclasses import replace

from rlsim.core.errors import ParameterError
from rlsim.learning.model import (
    Auroc,
    BatchEffect,
    Curve,
    Distillation,
    Domain,
    LearningModel,
    LengthCoupling,
    Overlap,
    Population,
    Reference,
    RewardLaw,
    Signals,
)
from rlsim.learning.staleness import Method, method_named
from rlsim.scenario.learning import Learning, Tolerance
from rlsim.scenario.schema import Scenario
from rlsim.workload.mismatch import Mismatch


def make_learning(scenario: Scenario) -> LearningModel | None:
    """The model; None without the section. Raises ``ParameterError`` at the key that cannot be used."""
    given = scenario.learning
    if given is None:
        return None
    _refuse_groups_of_one(scenario, given)
    _refuse_turns(scenario, given)
    mismatch = scenario.workload.mismatch
    return LearningModel(
        population=_population(given),
        reward=RewardLaw(**given.reward.model_dump()),
        lengths=LengthCoupling(**given.lengths.model_dump()),
        curve=Curve(**given.curve.model_dump()),
        effect=BatchEffect(**given.effect.model_dump()),
        method=_method(given.staleness),
        signals=_signals(given),
        mismatch=None if mismatch is None else Mismatch(mismatch.engine_variance, mismatch.variance_per_step),
        rejections_per_update=given.rejections_per_update,
        drafts_checked_by=given.drafts_checked_by,
        reference=_reference(scenario),
        distillation=None if given.distillation is None else Distillation(**given.distillation.model_dump()),
    )


def _reference(scenario: Scenario) -> Reference:
    samples = scenario.workload.prompts_per_step * scenario.workload.group_size
    return Reference(samples / scenario.trainer.updates_per_step, scenario.workload.group_size)


def _population(given: Learning) -> Population:
    values = given.population.model_dump(exclude={"domains"})
    domains = tuple(Domain(name, **kind.model_dump()) for name, kind in given.population.domains.items())
    return Population(**values, domains=domains)


def _signals(given: Learning) -> Signals:
    values = given.signals.model_dump(exclude={"quality", "confidence", "overlap"})
    return Signals(
        quality=Auroc(**given.signals.quality.model_dump()),
        confidence=Auroc(**given.signals.confidence.model_dump()),
        overlap=Overlap(**given.signals.overlap.model_dump()),
        **values,
    )


def _method(given: Tolerance) -> Method:
    own = {key: value for key, value in given.model_dump(exclude={"method"}).items() if value is not None}
    named = method_named(given.method)
    return replace(named, **own, source=f"{named.source}; {', '.join(own)} given") if own else named


def _refuse_groups_of_one(scenario: Scenario, given: Learning) -> None:
    effect, alone = given.effect, scenario.workload.group_size == 1
    rewarded = given.distillation is None and effect.information_exponent
    if alone and effect.baseline == "group" and rewarded:
        raise ParameterError("learning.effect.baseline", "group", "value, as a group of one has no variance")


def _refuse_turns(scenario: Scenario, given: Learning) -> None:
    if given.distillation is not None and scenario.workload.turns is not None:
        allowed = "null with workload.turns: where tokens lie is modelled for a single response"
        raise ParameterError("learning.distillation", given.distillation.model_dump(), allowed)
