"""The length law of responses from what steps log of them: a mean, and how far the longest or the cut ones are.

A mean and a cap leave the spread open. The longest of n samples, the share that the cap cut, or a standard deviation
gives it, for a family of laws that has to be assumed: here the capped lognormal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.logs.estimates import LogEstimate, least_squares, mean_of, mean_reach
from calibration.logs.steps import LoggedSteps
from rlsim.core.errors import ParameterError
from rlsim.core.streams import generator
from rlsim.scenario.schema import Scenario
from rlsim.workload.fitting import fit_lognormal
from rlsim.workload.lengths import LengthDistribution, Lognormal
from rlsim.workload.spec import lengths_from_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEAN, SIGMA = "workload.response_tokens.mean_tokens", "workload.response_tokens.sigma"
DRAWS = 400
SIGMAS = (0.02, 3.0)
MOSTLY_AT_CAP = 0.5
"""Share of steps whose longest response is at the cap from which the longest says too little."""
TREND = 0.05
"""Relative change over the log from which it is reported."""


@dataclass(frozen=True, slots=True)
class LengthFit:
    """The law, and what was and was not identified."""

    law: LengthDistribution
    settings: dict[str, object]
    """Keys of the scenario."""
    estimates: tuple[LogEstimate, ...]
    unidentified: tuple[str, ...]
    prompt_tokens: NDArray[np.float64]
    """Mean prompt of each step."""
    response_tokens: NDArray[np.float64]
    """Mean response of each step."""
    longest_tokens: NDArray[np.float64] | None
    """Longest response of each step."""


def fit_lengths(steps: LoggedSteps, scenario: Scenario) -> LengthFit:
    """Mean from the mean, spread from the longest, the cut or the deviation; ``ParameterError`` without a mean."""
    prompts, prompt_settings, unknown = _prompts(steps, scenario)
    means, longest = _responses(steps, prompts)
    cap = _cap(steps, scenario, longest)
    mean = mean_of(MEAN, means[steps.fitted], _columns(steps, "response_mean", "total_mean"))
    sigma = _sigma(steps, scenario, mean.value, longest, cap)
    settings: dict[str, object] = dict(prompt_settings)
    law: LengthDistribution
    if sigma is None:
        responses = scenario.workload.response_tokens
        fields = dict(responses.fields)
        if "mean_tokens" in fields:
            fields["mean_tokens"] = mean.value
            logged = {"law": responses.law, **fields, "mean_tokens": round(mean.value, 1)}
            settings["workload.response_tokens"] = logged
        law = lengths_from_fields(responses.law, fields, "workload.response_tokens")
        unknown.append("the spread of response lengths: neither the longest nor the share cut says it; as given")
    else:
        law = fit_lognormal(None, mean.value, sigma.value, cap)
        numbers = {"mean_tokens": round(mean.value, 1), "sigma": round(sigma.value, 4), "cap_tokens": cap}
        settings["workload.response_tokens"] = {"law": "lognormal", **numbers}
    unknown += _trend(means, steps)
    estimates = (mean,) if sigma is None else (mean, sigma)
    return LengthFit(law, settings, estimates, tuple(unknown), prompts, means, longest)


def _columns(steps: LoggedSteps, *quantities: str) -> str:
    return ", ".join(steps.columns[quantity] for quantity in quantities if steps.has(quantity))


def _prompts(steps: LoggedSteps, scenario: Scenario) -> tuple[NDArray[np.float64], dict[str, object], list[str]]:
    lengths = scenario.workload.prompt_tokens
    base = lengths_from_fields(lengths.law, lengths.fields, "workload.prompt_tokens").mean_tokens()
    if steps.has("prompt_mean"):
        prompts = steps.values["prompt_mean"]
        logged = float(prompts[steps.fitted].mean())
        if lengths.law == "constant" or abs(logged / base - 1) > TREND:
            return prompts, {"workload.prompt_tokens": round(logged)}, []
        return prompts, {}, []
    if steps.has("total_mean") and steps.has("response_mean"):
        prompts = steps.values["total_mean"] - steps.values["response_mean"]
        return prompts, {"workload.prompt_tokens": round(float(prompts[steps.fitted].mean()))}, []
    unknown = [f"the length of prompts: not logged; {base:.0f} tokens, as given"]
    return np.full(steps.count, base), {}, unknown


def _responses(
    steps: LoggedSteps, prompts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Mean and longest response; of totals the mean prompt is taken off."""
    if steps.has("response_mean"):
        means = steps.values["response_mean"]
    elif steps.has("total_mean"):
        means = steps.values["total_mean"] - prompts
    else:
        raise ParameterError(steps.origin, sorted(steps.columns.values()), "the mean length of responses")
    if means.min() < 1:
        worst = int(means.argmin())
        value = f"a mean response of {means[worst]:g} tokens in step {steps.numbers[worst]}"
        raise ParameterError(steps.origin, value, "at least one token (are prompt and response columns mixed up?)")
    longest = steps.values.get("response_max")
    if longest is None and steps.has("total_max"):
        longest = steps.values["total_max"] - prompts
    if longest is not None and (longest < means * 0.999).any():
        worst = int((longest - means).argmin())
        value = f"longest {longest[worst]:g} below mean {means[worst]:g} in step {steps.numbers[worst]}"
        raise ParameterError(steps.origin, value, "a longest response of at least the mean (are columns mixed up?)")
    return means, longest


def _cap(steps: LoggedSteps, scenario: Scenario, longest: NDArray[np.float64] | None) -> int:
    cap = scenario.workload.response_tokens.fields.get("cap_tokens")
    if isinstance(cap, int):
        if longest is not None and longest.max() > 1.05 * cap:
            value = f"a response of {longest.max():.0f} tokens"
            raise ParameterError("workload.response_tokens.cap_tokens", cap, f"the cap of the run, which has {value}")
        return cap
    if longest is None:
        raise ParameterError("workload.response_tokens.cap_tokens", None, "the longest response that the run allowed")
    return int(longest.max())


def _sigma(
    steps: LoggedSteps, scenario: Scenario, mean: float, longest: NDArray[np.float64] | None, cap: int
) -> LogEstimate | None:
    """From the deviation; else from the longest where they are mostly below the cap; else from the share cut."""
    fitted = steps.fitted
    if steps.has("response_std"):
        values = steps.values["response_std"][fitted]
        chances = (np.arange(4000) + 0.5) / 4000
        source = f"{steps.columns['response_std']}, a lognormal assumed"
        return _solved(values, lambda law: float(law.quantile(chances).std()), mean, cap, source)
    at_cap = 1.0 if longest is None else float((longest[fitted] >= 0.995 * cap).mean())
    if longest is not None and at_cap < MOSTLY_AT_CAP:
        samples = scenario.workload.prompts_per_step * scenario.workload.group_size
        scores, name = _largest_scores(scenario), _columns(steps, "response_max", "total_max")
        source = f"{name}: the longest of {samples} samples, a lognormal assumed"
        values = np.log(np.minimum(longest[fitted], cap))

        def log_longest(law: Lognormal) -> float:
            tokens = np.clip(law.median_tokens * np.exp(law.sigma * scores), 1, law.cap_tokens)
            return float(np.log(tokens).mean())

        return _solved(values, log_longest, mean, cap, source)
    if steps.has("clipped") and steps.values["clipped"][fitted].max() > 0:
        values = steps.values["clipped"][fitted]
        return _solved(values, Lognormal.truncated_share, mean, cap, f"{steps.columns['clipped']}, a lognormal assumed")
    return None


def _largest_scores(scenario: Scenario) -> NDArray[np.float64]:
    """Largest normal score of a step's samples, in many draws, correlated within groups as the scenario says."""
    workload = scenario.workload
    rng = generator(0, "largest of a step")
    share = workload.intra_group_correlation
    groups = rng.standard_normal((DRAWS, workload.prompts_per_step, 1))
    own = rng.standard_normal((DRAWS, workload.prompts_per_step, workload.group_size))
    scores = math.sqrt(share) * groups + math.sqrt(1 - share) * own
    largest: NDArray[np.float64] = scores.max(axis=(1, 2))
    return largest


def _solved(
    values: NDArray[np.float64], statistic: Callable[[Lognormal], float], mean: float, cap: int, source: str
) -> LogEstimate:
    """The sigma whose law has the observed mean of a statistic that grows with sigma, and those of its interval."""
    observed, reach = float(values.mean()), mean_reach(values)

    def solve(target: float) -> float:
        low, high = SIGMAS
        for _ in range(40):
            middle = math.sqrt(low * high)
            below = statistic(fit_lognormal(None, mean, middle, cap)) < target
            low, high = (middle, high) if below else (low, middle)
        return math.sqrt(low * high)

    return LogEstimate(SIGMA, solve(observed), solve(observed - reach), solve(observed + reach), source)


def _trend(means: NDArray[np.float64], steps: LoggedSteps) -> list[str]:
    line = least_squares(means / means.mean(), [np.arange(steps.count, dtype=float), np.ones(steps.count)])
    change = float(line.coefficients[0]) * steps.count
    if abs(change) < TREND or line.low[0] < 0 < line.high[0]:
        return []
    return [f"why responses changed by {change:+.0%} over the log: the law is of the fitted steps; see workload.drift"]
