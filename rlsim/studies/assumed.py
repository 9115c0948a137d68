"""Inputs that had to be assumed, at other values: those that a scenario lists, and where its fixed overhead sits.

A fit to step times tells how much fixed time a step has, not whether each training step has it or only the changes of
role of shared GPUs. The place decides what GPUs of their own save, so it is varied wherever such an overhead is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.override import UnsetKeyError, override
from rlsim.scenario.schema import Scenario

FIXED, WAKE, SLEEP = "trainer.fixed_seconds_per_step", "switching.wake_seconds", "switching.sleep_seconds"
PLACE = "a fit of step times does not tell where fixed time sits"


@dataclass(frozen=True, slots=True)
class Variation:
    """An arm with one assumed input at another value."""

    arm: str
    key: str
    value: float
    """Other value of the key; of an overhead that is moved, its seconds."""
    label: str
    """The value in words."""
    reason: str
    scenario: Scenario


def variations(plans: Mapping[str, ResolvedScenario]) -> list[Variation]:
    """Every assumed input of every arm at its other values; ``ParameterError`` for a key that is no number set."""
    are_shared = all(resolved.colocated for resolved in plans.values())
    listed = []
    for arm, resolved in plans.items():
        scenario = resolved.scenario
        listed += [
            Variation(arm, assumed.key, value, f"{value:g}", assumed.reason, varied(scenario, assumed.key, value))
            for assumed in scenario.sensitivity or ()
            for value in assumed.values
        ]
        if scenario.sensitivity != () and not are_shared:
            listed += _overhead_moved(arm, resolved)
    return listed


def sensitivity_off(plans: Mapping[str, ResolvedScenario]) -> list[str]:
    """Arms whose scenario says ``sensitivity: []``: no input is varied in them."""
    return [arm for arm, resolved in plans.items() if resolved.scenario.sensitivity == ()]


def varied(scenario: Scenario, key: str, value: float) -> Scenario:
    """The scenario with one number changed, a whole one to a whole one; ParameterError when the key path names none."""
    whole = int(value) if float(value).is_integer() else value
    try:
        return override(scenario, {key: whole}, only_set=True)
    except UnsetKeyError as error:
        raise ParameterError("sensitivity.key", key, "the key path of a number that this scenario sets") from error


def assumed_errors(scenario: Scenario) -> list[ParameterError]:
    """What is wrong with the section ``sensitivity``: keys that are no numbers set, values that cannot be run."""
    errors = []
    for number, assumed in enumerate(scenario.sensitivity or ()):
        for value in assumed.values:
            try:
                resolve(varied(scenario, assumed.key, value))
            except ParameterError as error:
                is_key = error.path == "sensitivity.key"
                name, refused_value = ("key", assumed.key) if is_key else ("values", value)
                allowed = error.allowed if is_key else f"what this scenario runs with ({error})"
                errors.append(ParameterError(f"sensitivity[{number}].{name}", refused_value, allowed))
    return errors


def _overhead_moved(arm: str, resolved: ResolvedScenario) -> Iterator[Variation]:
    """The fixed overhead of changes of role as one of training steps, and the other way round."""
    scenario, fixed = resolved.scenario, resolved.scenario.trainer.fixed_seconds_per_step
    to_training, to_rollout = resolved.switching.to_training_seconds(), resolved.switching.to_rollout_seconds()
    if resolved.switching.is_given:
        of_bytes = override(scenario, {WAKE: None, SLEEP: None})
        physical = resolve(of_bytes).switching
        moved = to_training + to_rollout - physical.to_training_seconds() - physical.to_rollout_seconds()
        if moved > 0:
            label = "in each training step, not in changes of role"
            yield Variation(arm, WAKE, moved, label, PLACE, override(of_bytes, {FIXED: fixed + moved}))
    if fixed:
        other = override(scenario, {FIXED: 0.0, SLEEP: to_training, WAKE: to_rollout + fixed})
        yield Variation(arm, FIXED, fixed, "in changes of role of shared GPUs, not in each training step", PLACE, other)
