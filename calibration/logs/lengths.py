"""Lengths of responses from what steps log of them: a mean, and how far the longest or the cut ones are.

A mean and a cap leave the spread open. The longest of n samples, the share that the cap cut, or a standard deviation
gives it, for a family of distributions that has to be assumed: here the capped lognormal. What a log does not tell
stays as in the base.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.logs.estimates import LogEstimate, OpenQuantity, least_squares, mean_of, mean_reach
from calibration.logs.steps import LoggedSteps
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
LEAST_TAIL, TAIL_RATIO = 0.005, 2.0
"""Share of cut responses, and ratio of the distribution's to the log's, from which its tail is said to be off."""
TOLD_SPREAD = "a log with the longest response of each step, or the share that the cap cut"
TOLD_PROMPT = "a log with the mean prompt length"


@dataclass(frozen=True, slots=True)
class LengthFit:
    """The distribution, and what was and was not identified."""

    distribution: LengthDistribution
    settings: dict[str, object]
    """Keys of the scenario."""
    estimates: tuple[LogEstimate, ...]
    unidentified: tuple[OpenQuantity, ...]
    notes: tuple[str, ...]
    prompt_tokens: NDArray[np.float64]
    """Mean prompt of each step."""
    response_tokens: NDArray[np.float64]
    """Mean response of each step; as in the base where it is not logged."""
    longest_tokens: NDArray[np.float64] | None
    """Longest response of each step."""


def fit_lengths(steps: LoggedSteps, scenario: Scenario) -> LengthFit:
    """Mean from the mean, spread from the longest, the cut or the deviation; the base's without them."""
    prompts, settings, open_prompts = _prompts(steps, scenario)
    means, why = _mean_responses(steps, prompts, scenario)
    if means is None:
        return _as_given(steps, scenario, prompts, settings, (*open_prompts, _open_lengths(why)))
    longest, notes = _longest(steps, prompts, means)
    cap, open_cap = _cap(steps, scenario, longest)
    if cap is not None and means.max() >= cap:
        why = f"a mean response of {means.max():.0f} tokens is at or above the base's cap of {cap}"
        return _as_given(steps, scenario, prompts, settings, (*open_prompts, _open_lengths(why)))
    mean = mean_of(MEAN, means[steps.fitted], _columns(steps, "response_mean", "total_mean", "tokens"))
    sigma = None if cap is None else _sigma(steps, scenario, means, longest, cap)
    distribution, responses = _distribution(scenario, mean.value, sigma, cap)
    spread = OpenQuantity(
        SIGMA, "neither the longest response, nor the share cut, nor a deviation says it", told_by=TOLD_SPREAD
    )
    return LengthFit(
        distribution=distribution,
        settings=settings | {"workload.response_tokens": responses},
        estimates=(mean,) if sigma is None else (mean, sigma),
        unidentified=(*open_prompts, *open_cap, *(() if sigma else (spread,))),
        notes=(*notes, *_trend(means, steps), *_tail(steps, distribution, cap)),
        prompt_tokens=prompts,
        response_tokens=means,
        longest_tokens=longest,
    )


def _distribution(
    scenario: Scenario, mean: float, sigma: LogEstimate | None, cap: int | None
) -> tuple[LengthDistribution, dict[str, object]]:
    """The fitted distribution, and how a scenario says it."""
    if sigma is not None and cap is not None:
        numbers = {"mean_tokens": round(mean, 1), "sigma": round(sigma.value, 4), "cap_tokens": cap}
        return fit_lognormal(None, mean, sigma.value, cap), {"law": "lognormal", **numbers}
    base = scenario.workload.response_tokens
    fields = dict(base.fields)
    if "mean_tokens" in fields:
        fields["mean_tokens"] = round(mean, 1)
    return lengths_from_fields(base.law, fields, "workload.response_tokens"), {"law": base.law, **fields}


def _as_given(
    steps: LoggedSteps,
    scenario: Scenario,
    prompts: NDArray[np.float64],
    settings: dict[str, object],
    kept: tuple[OpenQuantity, ...],
) -> LengthFit:
    lengths = scenario.workload.response_tokens
    distribution = lengths_from_fields(lengths.law, lengths.fields, "workload.response_tokens")
    means = np.full(steps.count, distribution.mean_tokens())
    return LengthFit(
        distribution,
        settings,
        estimates=(),
        unidentified=kept,
        notes=(),
        prompt_tokens=prompts,
        response_tokens=means,
        longest_tokens=None,
    )


def _open_lengths(why: str) -> OpenQuantity:
    return OpenQuantity("workload.response_tokens", why, told_by="a log with the mean response length of each step")


def _columns(steps: LoggedSteps, *quantities: str) -> str:
    return next(steps.columns[quantity] for quantity in quantities if steps.has(quantity))


def _prompts(
    steps: LoggedSteps, scenario: Scenario
) -> tuple[NDArray[np.float64], dict[str, object], tuple[OpenQuantity, ...]]:
    lengths = scenario.workload.prompt_tokens
    base = lengths_from_fields(lengths.law, lengths.fields, "workload.prompt_tokens").mean_tokens()
    if steps.has("prompt_mean"):
        prompts = steps.values["prompt_mean"]
        logged = float(prompts[steps.fitted].mean())
        if lengths.law == "constant" or abs(logged / base - 1) > TREND:
            return prompts, {"workload.prompt_tokens": round(logged)}, ()
        return prompts, {}, ()
    if steps.has("total_mean") and steps.has("response_mean"):
        prompts = steps.values["total_mean"] - steps.values["response_mean"]
        return prompts, {"workload.prompt_tokens": round(float(prompts[steps.fitted].mean()))}, ()
    kept = OpenQuantity("workload.prompt_tokens", "not logged", f"{base:.0f} tokens, as in the base", TOLD_PROMPT)
    return np.full(steps.count, base), {}, (kept,)


def _mean_responses(
    steps: LoggedSteps, prompts: NDArray[np.float64], scenario: Scenario
) -> tuple[NDArray[np.float64] | None, str]:
    """Mean response of each step: logged, or what the mean prompt leaves of all tokens; None, and why, without."""
    workload = scenario.workload
    if steps.has("response_mean"):
        means = steps.values["response_mean"]
    elif steps.has("total_mean"):
        means = steps.values["total_mean"] - prompts
    elif steps.has("tokens"):
        means = steps.values["tokens"] / (workload.prompts_per_step * workload.group_size) - prompts
    else:
        return None, "no mean length of responses is logged"
    if means.min() < 1:
        worst = int(means.argmin())
        why = f"a mean response of {means[worst]:g} tokens in step {steps.numbers[worst]} is below one"
        return None, f"{why} (are prompt and response columns mixed up?)"
    return means, ""


def _longest(
    steps: LoggedSteps, prompts: NDArray[np.float64], means: NDArray[np.float64]
) -> tuple[NDArray[np.float64] | None, tuple[str, ...]]:
    """Longest response of each step; of totals the mean prompt is taken off; none where it is below the mean."""
    longest, name = steps.values.get("response_max"), steps.columns.get("response_max")
    if longest is None and steps.has("total_max"):
        longest, name = steps.values["total_max"] - prompts, steps.columns["total_max"]
    if longest is None or (longest >= means * 0.999).all():
        return longest, ()
    worst = int((longest - means).argmin())
    value = f"longest {longest[worst]:g} below mean {means[worst]:g} in step {steps.numbers[worst]}"
    return None, (f"{name} is not used: {value} (are columns mixed up?)",)


def _cap(
    steps: LoggedSteps, scenario: Scenario, longest: NDArray[np.float64] | None
) -> tuple[int | None, tuple[OpenQuantity, ...]]:
    """The base's cap, or the longest response where that is above it or the base has none."""
    cap, key = scenario.workload.response_tokens.fields.get("cap_tokens"), "workload.response_tokens.cap_tokens"
    top = None if longest is None else int(longest.max())
    if not isinstance(cap, int):
        return top, () if top else (OpenQuantity(key, "the base has none, and no longest response is logged"),)
    if top is not None and top > 1.05 * cap:
        why = f"the base says {cap}, but a response has {top} tokens"
        return top, (OpenQuantity(key, why, f"the longest logged, {top}", "the run's configuration"),)
    return cap, ()


def _sigma(
    steps: LoggedSteps,
    scenario: Scenario,
    means: NDArray[np.float64],
    longest: NDArray[np.float64] | None,
    cap: int,
) -> LogEstimate | None:
    """From the deviation; else from the longest where they are mostly below the cap; else from the share cut."""
    fitted = steps.fitted
    samples = scenario.workload.prompts_per_step * scenario.workload.group_size
    if steps.has("response_std"):
        values = steps.values["response_std"][fitted]
        chances = (np.arange(4000) + 0.5) / 4000
        source = f"{steps.columns['response_std']}, a lognormal assumed"
        return _solved(values, lambda lognormal: float(lognormal.quantile(chances).std()), means[fitted], cap, source)
    at_cap = 1.0 if longest is None else float((longest[fitted] >= 0.995 * cap).mean())
    if longest is not None and at_cap < MOSTLY_AT_CAP:
        scores, name = _largest_scores(scenario), _columns(steps, "response_max", "total_max")
        source = f"{name}: the longest of {samples} samples, a lognormal assumed"
        values = np.log(np.minimum(longest[fitted], cap))

        def log_longest(lognormal: Lognormal) -> float:
            tokens = np.clip(lognormal.median_tokens * np.exp(lognormal.sigma * scores), 1, lognormal.cap_tokens)
            return float(np.log(tokens).mean())

        return _solved(values, log_longest, means[fitted], cap, source)
    if steps.has("clipped") and 0 < steps.values["clipped"][fitted].mean() < 1:
        values = steps.values["clipped"][fitted]
        share = float(values.mean())
        chance = 1.96 * math.sqrt(share * (1 - share) / (samples * len(values)))
        source = f"{steps.columns['clipped']}, a lognormal assumed"
        return _solved(values, Lognormal.truncated_share, means[fitted], cap, source, chance)
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
    values: NDArray[np.float64],
    statistic: Callable[[Lognormal], float],
    means: NDArray[np.float64],
    cap: int,
    source: str,
    least_reach: float = 0.0,
) -> LogEstimate:
    """The sigma whose lognormal has the observed means of the lengths and of a statistic that grows with sigma.

    Its interval is that of both means: how sigma turns with each is taken along every step's own errors.
    """
    observed, mean = float(values.mean()), float(means.mean())

    def solve(target: float, tokens: float) -> float:
        low, high = SIGMAS
        for _ in range(40):
            middle = math.sqrt(low * high)
            below = statistic(fit_lognormal(None, tokens, middle, cap)) < target
            low, high = (middle, high) if below else (low, middle)
        return math.sqrt(low * high)

    value = solve(observed, mean)
    step = max(mean_reach(values), least_reach, 1e-6 * abs(observed))
    low, high = solve(observed - step, mean), solve(observed + step, mean)
    by_mean = (solve(observed, mean * 1.01) - value) / (0.01 * mean)
    by_value = (high - low) / (2 * step)
    errors = by_value * (values - observed) + by_mean * (means - mean)
    reach = max(mean_reach(errors), by_value * least_reach)
    bound = next((f"{each:g}" for each in SIGMAS if abs(value / each - 1) < 1e-3), "")
    at = min(low, value - reach), max(high, value + reach)
    return LogEstimate(SIGMA, value, max(SIGMAS[0], at[0]), min(SIGMAS[1], at[1]), source, bound)


def _trend(means: NDArray[np.float64], steps: LoggedSteps) -> tuple[str, ...]:
    line = least_squares(means / means.mean(), [np.arange(steps.count, dtype=float), np.ones(steps.count)])
    change = float(line.coefficients[0]) * steps.count
    if abs(change) < TREND or line.low[0] < 0 < line.high[0]:
        return ()
    return (
        f"responses changed by {change:+.0%} over the log: lengths are those of the fitted steps; see workload.drift",
    )


def _tail(steps: LoggedSteps, distribution: LengthDistribution, cap: int | None) -> tuple[str, ...]:
    """Where the distribution cuts far more or fewer responses than the log says, its tail is not the run's."""
    if not (steps.has("clipped") and isinstance(distribution, Lognormal) and cap):
        return ()
    logged, fitted = float(steps.values["clipped"][steps.fitted].mean()), distribution.truncated_share()
    if max(logged, fitted) < LEAST_TAIL or 1 / TAIL_RATIO < (logged + LEAST_TAIL) / (fitted + LEAST_TAIL) < TAIL_RATIO:
        return ()
    return (f"the tail is not lognormal: the fitted one cuts {fitted:.1%} of the responses, the log says {logged:.1%}",)
