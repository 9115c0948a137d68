"""How many tokens a sample will still make: predictors with a stated error, and the error measured on a run.

Two of them are oracles with an error of known size, for what a predictor of that quality would be worth; they and
``prompt-mean`` read lengths still to come and are refused live.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from rlsim.core.commands import Submit
from rlsim.core.errors import ParameterError
from rlsim.core.events import Aborted, Cut, Finished
from rlsim.core.log import RunLog
from rlsim.core.view import Sample, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hashed import normal

PredictorName = Literal["oracle", "noisy", "prompt-mean", "siblings-mean", "siblings-max"]
Predictor = Callable[[View, Sample], float]
"""Response tokens that a sample is expected to make from its next call on, in the turn that it is in; above 0."""

ORACLES = ("oracle", "noisy", "prompt-mean")
NAMES = (*ORACLES, "siblings-mean", "siblings-max")


def make_predictor(name: str, sigma: float, prior_tokens: int, seed: int) -> Predictor:
    """The predictor of that name, its parameters checked."""
    if name not in NAMES:
        raise ParameterError("predictor", name, ", ".join(NAMES))
    at_least("sigma", sigma, 0)
    at_least("prior_tokens", prior_tokens, 1)
    makers: dict[str, Callable[[], Predictor]] = {
        "oracle": lambda: remaining,
        "noisy": lambda: Noisy(sigma, seed),
        "prompt-mean": lambda: prompt_mean,
        "siblings-mean": lambda: Siblings(prior_tokens, longest=False),
        "siblings-max": lambda: Siblings(prior_tokens, longest=True),
    }
    return makers[name]()


def total_tokens(view: View, sample: Sample) -> int:
    """True tokens of the turn that a sample is in."""
    if view.oracle_tokens is None:
        raise ParameterError("predictor", "oracle", "siblings-mean or siblings-max: a live run has no oracle")
    return view.oracle_tokens(sample)


def remaining(view: View, sample: Sample) -> float:
    """What is true: no error."""
    return max(1, total_tokens(view, sample) - sample.made_tokens)


def outlived(total: float, made_tokens: int) -> float:
    """What remains of an estimated total; a sample that outlived it is expected to make as much again.

    That is the mean residual life of a Pareto tail of index 2, and our choice: no source prescribes one.
    """
    return max(1.0, total - made_tokens if made_tokens < total else float(made_tokens))


@dataclass(frozen=True, slots=True)
class Noisy:
    """The true total times exp(sigma * z), z standard normal by seed, group and member: unbiased in the log."""

    sigma: float
    seed: int

    def __call__(self, view: View, sample: Sample) -> float:
        """Expected remaining tokens; the error of a sample is the same whenever it is asked for."""
        score = normal("length error", self.seed, sample.group.draw, sample.group.recycle, sample.member)
        return outlived(total_tokens(view, sample) * math.exp(self.sigma * score), sample.made_tokens)


def prompt_mean(view: View, sample: Sample) -> float:
    """The true mean over the group: the best that knowledge of the prompt alone could do.

    Its error is the spread within a group: none where all members are alike, all of it where they are independent.
    """
    members = sample.group.members
    return outlived(sum(total_tokens(view, mate) for mate in members) / len(members), sample.made_tokens)


@dataclass(frozen=True, slots=True)
class Siblings:
    """The mean or the longest of the group mates that have ended, ``prior_tokens`` before the first has.

    Mates that have ended are the shorter ones so far, so the mean errs low until the group is done. Without
    correlation within groups it knows nothing (arXiv 2511.14617 builds on that correlation).
    """

    prior_tokens: int
    longest: bool

    def __call__(self, view: View, sample: Sample) -> float:
        """Expected remaining tokens."""
        ended = [mate.response_tokens for mate in sample.group.members if mate.state == "ended"]
        total: float = self.prior_tokens
        if ended:
            total = max(ended) if self.longest else sum(ended) / len(ended)
        return outlived(total, sample.response_tokens)


# -- the error on a run -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Of predictions against what was made: both in natural log units."""

    predictions: int
    bias: float
    """Mean of log(predicted / actual)."""
    sigma: float
    """Standard deviation of the same."""


def prediction_error(log: RunLog) -> PredictionError:
    """How far off the predictions behind a run's priorities were (``shortest-first``, ``longest-first``).

    Every call of a sample that ended is one prediction; ``ParameterError`` when there is none.
    """
    logs = [math.log(predicted / actual) for predicted, actual in predictions(log)]
    if not logs:
        raise ParameterError("log", "no ranked call that ended", "a run ordered by predicted length")
    bias = math.fsum(logs) / len(logs)
    return PredictionError(len(logs), bias, math.sqrt(math.fsum((one - bias) ** 2 for one in logs) / len(logs)))


def predictions(log: RunLog) -> Iterator[tuple[int, int]]:
    """(predicted, actual) tokens that a turn still made from each of its calls on, for turns that ended."""
    asked: dict[int, list[tuple[int, int]]] = {}
    made: dict[int, int] = {}
    for row in log.decisions:
        for call in _calls_of(row.event):
            made[call.sample] = made.get(call.sample, 0) + call.tokens
            if isinstance(call, Finished) and call.reason != "chunk":
                total = made.pop(call.sample)
                yield from ((predicted, total - before) for predicted, before in asked.pop(call.sample, []))
        for command in row.commands:
            if isinstance(command, Submit) and command.priority:
                asked.setdefault(command.sample, []).append((abs(command.priority), command.made_tokens))


def _calls_of(event: object) -> tuple[Finished | Cut, ...]:
    if isinstance(event, Aborted):
        return event.cuts
    return (event,) if isinstance(event, Finished) else ()
