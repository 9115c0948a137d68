"""How many tokens a sample will still make: predictors with a stated error, and the error measured on a run.

Two of them are oracles with an error of known size, for what a predictor of that quality would be worth; they and
``prompt-mean`` read lengths still to come and are refused live. The others know what a live system knows: the class of
a request, the tokens of its context, and what has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from rlsim.core.checks import at_least
from rlsim.core.commands import Submit
from rlsim.core.errors import ParameterError, unknown
from rlsim.core.events import Aborted, Cut, Finished
from rlsim.core.hashing import normal
from rlsim.core.log import RunLog
from rlsim.core.view import RunSizes, Sample, View

PredictorName = Literal[
    "oracle", "noisy", "prompt-mean", "siblings-mean", "siblings-max", "class-prior", "class-corrected", "prefill"
]
Predictor = Callable[[View, Sample], float]
"""Response tokens that a sample is expected to make from its next call on, in the turn that it is in; above 0."""

ORACLES = ("oracle", "noisy", "prompt-mean")
NAMES = get_args(PredictorName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What lengths a part expects: the parameters of its predictor."""

    predictor: PredictorName = "siblings-mean"
    """What lengths are expected: oracle, noisy, prompt-mean (all simulated only), siblings-mean, siblings-max,
    class-prior, class-corrected; or prefill, the tokens of the context instead, which are known."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    prior_tokens: int = 4096
    """Expected of a sample whose group has no ended mate, by the siblings predictors, and of a class without a prior
    of its own, by the class predictors."""
    class_prior_tokens: dict[str, int] = field(default_factory=dict)
    """Expected of a response by the class of its prompt, for the class predictors."""
    smoothing: float = 0.05
    """Of class-corrected: weight of the response that ended last in the ratio of made to expected tokens."""
    seed: int = 0
    """Of the noisy predictor."""

    @property
    def is_oracle(self) -> bool:
        """Whether it reads lengths still to come."""
        return self.predictor in ORACLES

    def make(self, shape: RunSizes) -> Predictor:
        """A fresh predictor, its parameters checked."""
        if self.predictor not in NAMES:
            raise ParameterError("predictor", self.predictor, ", ".join(NAMES))
        at_least("sigma", self.sigma, 0)
        at_least("prior_tokens", self.prior_tokens, 1)
        if not 0 < self.smoothing <= 1:
            raise ParameterError("smoothing", self.smoothing, "a number above 0, at most 1")
        priors = self._priors(shape)
        makers: dict[str, Callable[[], Predictor]] = {
            "oracle": lambda: remaining,
            "noisy": lambda: Noisy(self.sigma, self.seed),
            "prompt-mean": lambda: prompt_mean,
            "siblings-mean": lambda: Siblings(self.prior_tokens, longest=False),
            "siblings-max": lambda: Siblings(self.prior_tokens, longest=True),
            "class-prior": lambda: ClassPrior(priors),
            "class-corrected": lambda: ClassCorrected(priors, self.smoothing),
            "prefill": lambda: prefill,
        }
        return makers[self.predictor]()

    def _priors(self, shape: RunSizes) -> list[int]:
        names = [kind.name for kind in shape.classes]
        for name, tokens in self.class_prior_tokens.items():
            if name not in names:
                raise unknown(f"class_prior_tokens.{name}", name, names)
            at_least(f"class_prior_tokens.{name}", tokens, 1)
        return [self.class_prior_tokens.get(name, self.prior_tokens) for name in names]


def total_tokens(view: View, sample: Sample) -> int:
    """True tokens of the turn that a sample is in."""
    if view.oracle_tokens is None:
        raise ParameterError("predictor", "oracle", f"{', '.join(NAMES[len(ORACLES) :])}: a live run has no oracle")
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


def prefill(view: View, sample: Sample) -> float:
    """Tokens of the context that the next call starts from: what is to be prefilled where nothing is cached."""
    return max(1, sample.context_tokens)


@dataclass(frozen=True, slots=True)
class ClassPrior:
    """Tokens that the requests of a class are said to make.

    Its error is the spread within the class, the bias of what was said, and whatever has drifted since.
    """

    priors: Sequence[int]

    def __call__(self, view: View, sample: Sample) -> float:
        """Expected remaining tokens."""
        return outlived(self.priors[sample.group.request_class], sample.made_tokens)


class ClassCorrected:
    """The same times the class's ratio of made to said tokens, an exponentially weighted mean over turns that ended.

    A wrong prior is forgotten by a factor ``1 - smoothing`` a turn of the class, a drift is followed ``1 / smoothing``
    turns late; for that, the spread within the class counts ``1 + smoothing / (2 - smoothing)`` times in the mean
    square error (the variance of the weighted mean). Responses under way are not in it: short ones end first, so it
    errs low until long ones have ended. DriftSched corrects its estimates from what requests made; its abstract gives
    no formula, and this one is our reading.
    """

    def __init__(self, priors: Sequence[int], smoothing: float) -> None:
        self._priors, self._smoothing = priors, smoothing
        self._ratios = [1.0] * len(priors)

    def __call__(self, view: View, sample: Sample) -> float:
        """Expected remaining tokens."""
        kind = sample.group.request_class
        return outlived(self._priors[kind] * self._ratios[kind], sample.made_tokens)

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        """A turn made so many tokens."""
        kind = sample.group.request_class
        self._ratios[kind] += self._smoothing * (tokens / self._priors[kind] - self._ratios[kind])


def teach(predictor: Predictor, view: View, sample: Sample, tokens: int) -> None:
    """Tell a predictor what a turn made, if it learns."""
    if isinstance(predictor, ClassCorrected):
        predictor.learn(view, sample, tokens)


# -- the error on a run -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Of predictions against what was made; bias and sigma in natural log units."""

    predictions: int
    bias: float
    """Mean of log(predicted / actual)."""
    sigma: float
    """Standard deviation of the same."""
    mean_absolute_tokens: float
    root_mean_square_tokens: float


def prediction_error(log: RunLog) -> PredictionError:
    """How far off the predictions behind a run's priorities were (``shortest-first``, ``longest-first``).

    Every call of a sample that ended is one prediction; ``ParameterError`` when there is none.
    """
    pairs = list(predictions(log))
    if not pairs:
        raise ParameterError("log", "no ranked call that ended", "a run ordered by predicted length")
    return error_of(pairs)


def error_of(pairs: Sequence[tuple[float, float]]) -> PredictionError:
    """The same of (predicted, actual) tokens."""
    count = len(pairs)
    logs = [math.log(predicted / actual) for predicted, actual in pairs]
    bias = math.fsum(logs) / count
    return PredictionError(
        count,
        bias,
        math.sqrt(math.fsum((one - bias) ** 2 for one in logs) / count),
        math.fsum(abs(predicted - actual) for predicted, actual in pairs) / count,
        math.sqrt(math.fsum((predicted - actual) ** 2 for predicted, actual in pairs) / count),
    )


def predictions(log: RunLog) -> Iterator[tuple[int, int]]:
    """(predicted, actual) tokens that a turn still made from each of its calls on, for turns that ended."""
    predicted: dict[int, list[tuple[int, int]]] = {}
    tokens: dict[int, int] = {}
    for row in log.decisions:
        calls = row.event.cuts if isinstance(row.event, Aborted) else (row.event,)
        for call in calls:
            if not isinstance(call, Finished | Cut):
                continue
            tokens[call.sample] = tokens.get(call.sample, 0) + call.tokens
            if isinstance(call, Finished) and call.reason != "chunk":
                total = tokens.pop(call.sample)
                yield from ((expected, total - before) for expected, before in predicted.pop(call.sample, []))
        for command in row.commands:
            if isinstance(command, Submit) and command.priority:
                predicted.setdefault(command.sample, []).append((abs(command.priority), command.made_tokens))
