"""The discipline section: the rules of an engine's scheduler, in the engine's integers."""

from __future__ import annotations

from fractions import Fraction

from rlsim.core.discipline import Ageing, Conservative, Discipline, PastFuture, StepTarget
from rlsim.core.ticks import TICKS_PER_SECOND, to_ticks
from rlsim.scenario.discipline import HISTORY_CALLS
from rlsim.scenario.schema import Scenario


def make_discipline(scenario: Scenario) -> Discipline:
    """The rules that the scenario sets; vLLM's where it sets none."""
    return Discipline(
        _admission(scenario),
        _step_target(scenario),
        scenario.rollout.discipline.max_concurrent_prefills,
        _ageing(scenario),
    )


def _admission(scenario: Scenario) -> Conservative | PastFuture | None:
    given = scenario.rollout.discipline
    if given.admission == "aggressive":
        return None
    if given.admission == "conservative":
        return Conservative(given.reserved_fraction or 0.0)
    reserved = PastFuture().reserved_fraction if given.reserved_fraction is None else given.reserved_fraction
    history = given.history_calls or HISTORY_CALLS
    initial = history // 2 if given.initial_calls is None else given.initial_calls
    return PastFuture(given.quantile, reserved, history, initial, scenario.seed)


def _step_target(scenario: Scenario) -> StepTarget | None:
    given = scenario.rollout.discipline
    if given.target_step_seconds is None or given.min_chunk_tokens is None:
        return None
    return StepTarget(to_ticks(given.target_step_seconds), given.min_chunk_tokens, given.predicted_scale or 1.0)


def _ageing(scenario: Scenario) -> Ageing | None:
    """Weights a second and a token as whole numbers a tick and a token in the same ratio, exactly."""
    given = scenario.rollout.discipline
    if given.order is None or given.waiting_weight is None or given.prefill_weight is None:
        return None
    waiting, prefill = Fraction(given.waiting_weight), Fraction(given.prefill_weight) * TICKS_PER_SECOND
    return Ageing(
        waiting.numerator * prefill.denominator,
        prefill.numerator * waiting.denominator,
    )
