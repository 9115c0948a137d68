"""The hidden course of one run: what prompts are worth at every version, and what training has made of the model.

The state is a number of reference updates: those on a uniform on-policy batch of the scenario's size. A batch adds

    sum over passes k and updates u of information^a * breadth^b * staleness(lag + u + k * updates) * reuse^k,

and the population's mean success follows the curve of ``rlsim.learning.model.ProgressCurve`` in them. Uniform on-policy
training is therefore that curve, whatever the population; everything else is told by comparison with it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlsim.core.streams import FloatArray
from rlsim.learning.ancestry import Ancestors, PrefixCoupling
from rlsim.learning.distillation import FullLength, mean_worth, sample_worth
from rlsim.learning.gains import gains_named
from rlsim.learning.information import TrainedSample, advantage_variance, reference_variance, variance_about
from rlsim.learning.locality import taught_by_prompt
from rlsim.learning.model import LearningModel
from rlsim.learning.population import PopulationCurve, sigmoid
from rlsim.learning.prompts import Prompts
from rlsim.learning.signals import Readings
from rlsim.workload.draws import GroupDraws, Independent, IndependentNormals

__all__ = ["LearningDynamics", "Progress", "TrainedSample"]

PROMPTS_KEPT = 1 << 16
RESPONSES_MEASURED = 2048
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Progress:
    """What a training step did, and the state after it."""

    skill: float
    """Logits by which prompts are easier than before training, on average; with full transfer every one is. Where gains
    are reinforced: those of a prompt that seldom succeeds, but in every group."""
    success: float
    """Expected success of a fresh sample over the whole population."""
    information: float
    """Advantage variance of the batch over that of a uniform on-policy one at present; distilled: worth of tokens."""
    ess: float
    """Effective sample size over samples."""
    staleness_factor: float
    """Mean worth of the trained samples by their lags; 1: as if on-policy."""
    gain: float
    """Logits that this step added to ``skill``."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A prompt at a version."""

    success: float
    length_of_success: float
    length_of_failure: float


class LearningDynamics:
    """Hidden state of one run. Random draws depend on the seed and the sample alone, never on the order of calls."""

    def __init__(self, model: LearningModel, seed: int, dataset_prompts: int) -> None:
        self._model, self._prompts_in_all = model, dataset_prompts
        size, effect = model.reference.group_size, model.effect
        self._gains = gains_named(effect.gains, size, effect.baseline == "value")
        self._curve = PopulationCurve(
            model.population,
            model.curve,
            model.reward,
            model.effect if model.distillation is None else model.effect.replace(information_exponent=0.0),
            self._gains,
            size,
        )
        self._prompts = Prompts(model.population, self._curve, seed, dataset_prompts)
        self._outcomes = GroupDraws(seed, "outcome", size, Independent(), np.asarray)
        self._coupling = PrefixCoupling(seed, self._outcomes)
        self._noise = GroupDraws(seed, "reward noise", size, IndependentNormals(), np.asarray)
        self._acceptance = GroupDraws(seed, "acceptance", size, Independent(), np.asarray)
        self._readings = Readings(model.signals, seed, size)
        self._eases = model.lengths.eases
        self._mean_length = self._curve.length(model.lengths)
        self._full: FullLength | None = None
        self._progress = 0.0
        self._updates = 0
        self._collapse = 0.0
        self._non_transferred: dict[int, float] = {}
        """Logits that a prompt has for itself, beyond what all have."""
        self._changed: set[int] = set()
        self._published: list[tuple[float, int]] = [(0.0, 0)]
        self._non_transferred_published: dict[int, tuple[list[int], list[float]]] = {}
        self._places: dict[tuple[int, int], _Place] = {}

    @property
    def distils(self) -> bool:
        """Whether tokens teach by where they lie, and not by what their sample earned."""
        return self._model.distillation is not None

    def success(self, prompt: int, version: int) -> float:
        """Probability that a sample of the prompt succeeds under weights ``version``; IndexError before these are."""
        return self._place(prompt, version).success

    def reward(self, prompt: int, attempt: int, member: int, version: int, ancestors: Ancestors = ()) -> float:
        """What the sample earns; one that earns it at some success probability earns no less at a higher one."""
        quantile = self._coupling.quantile(prompt, attempt, member, ancestors)
        success, law = self._place(prompt, version).success, self._model.reward
        earned = 1.0 if quantile < success else law.partial_credit * (1 - quantile) / (1 - success)
        if law.noise:
            earned += law.noise * self._noise.value(prompt, attempt, 0, member)
        return earned

    def length_factor(self, prompt: int, attempt: int, member: int, version: int, ancestors: Ancestors = ()) -> float:
        """Factor on the sample's length; its mean over the untrained population is 1."""
        place = self._place(prompt, version)
        succeeds = self._coupling.quantile(prompt, attempt, member, ancestors) < place.success
        return place.length_of_success if succeeds else place.length_of_failure

    def signal(
        self, name: str, prompt: int, attempt: int, member: int, share: float, version: int, ancestors: Ancestors = ()
    ) -> float:
        """A reading once ``share`` of the response, in (0, 1], is made; named as in ``rlsim.learning.signals``."""
        success = self._place(prompt, version).success
        outcome = self._coupling.quantile(prompt, attempt, member, ancestors) < success
        return self._readings.read(name, prompt, attempt, member, share, outcome, success)

    def soundness(self, prompt: int, attempt: int, member: int, version: int) -> tuple[float, float]:
        """Shares of the whole response before it drifts from the teacher, and before it repeats itself; above 1: never.

        What ``teacher-overlap`` and ``repetition`` are readings of.
        """
        outcome = self._outcomes.value(prompt, attempt, 0, member) < self._place(prompt, version).success
        return self._sound_shares((prompt, attempt, member), outcome)

    def measure(self, tokens_of: Callable[[int, int, float], int]) -> None:
        """Take the unit of distilled information, from the untrained model's responses.

        ``tokens_of(prompt, member, factor)`` is the length of one that is not cut, with a factor on its length.
        """
        law = self._model.distillation
        assert law is not None
        worth, weights = np.zeros(2), np.zeros(2)
        for index in range(RESPONSES_MEASURED):
            prompt, member = index % self._prompts_in_all, index // self._prompts_in_all
            state = self._place(prompt, 0)
            for outcome, share in ((0, 1 - state.success), (1, state.success)):
                tokens = tokens_of(prompt, member, state.length_of_success if outcome else state.length_of_failure)
                drift, repeats = self._sound_shares((prompt, 0, member), bool(outcome))
                sample = TrainedSample(prompt, 0, outcome, 0.0, tokens, drift * tokens, repeats * tokens)
                worth[outcome] += share * sample_worth(sample, law)
                weights[outcome] += share
        of_failure, of_success = (worth / np.maximum(weights, _LEAST_VARIANCE)).tolist()
        self._full = FullLength(of_failure, of_success)

    @property
    def engine_checks_drafts(self) -> bool:
        """Whether a draft costs the engine a prefill before it is known what of it is accepted."""
        return self._model.drafts_checked_by == "engine"

    def accepted_share(self, prompt: int, attempt: int, member: int, old_version: int, version: int) -> float:
        """Share of a trajectory of ``old_version`` that weights of ``version`` accept as a prefix, in (0, 1].

        Rejections come at a constant hazard along the response that grows by the updates between the two (SPEC-RL,
        systems list entry 39, has the overlap; the law is ours).
        """
        apart = abs(self._published[version][1] - self._published[old_version][1])
        hazard = self._model.rejections_per_update * apart
        quantile = self._acceptance.value(prompt, attempt, 0, member)
        return 1.0 if hazard == 0.0 else min(1.0, -math.log1p(-quantile) / hazard)

    def trained(self, batch: Sequence[TrainedSample], updates: int, epochs: int) -> Progress:
        """Train on a batch in ``updates`` optimizer updates a pass, ``epochs`` passes; moves the trainer's state."""
        if not batch or updates < 1 or epochs < 1:
            raise ValueError("a step trains on samples, in at least one update and one pass")
        information = self._information(batch)
        lags = np.array([sample.lag_steps for sample in batch]) * (1 + self._model.effect.lag_feedback * self._collapse)
        ess = 1.0 if self._model.mismatch is None else self._model.mismatch.ess(lags.tolist())
        worth, factor = self._worth(lags, batch, updates, epochs)
        if self._model.method.ess_scaled:
            worth *= ess
        before = self._curve.skill(self._progress)
        samples = len(batch) / updates
        effect, reference = self._model.effect, self._model.reference
        breadth = samples / reference.samples_per_update
        self._progress += worth * float(information**effect.information_exponent * breadth**effect.breadth_exponent)
        skill = self._curve.skill(self._progress)
        self._keep(batch, skill - before)
        self._updates += updates * epochs
        self._collapse = min(2.0, max(0.0, 1 - factor))
        return Progress(skill, self.mean_success(), information, ess, factor, skill - before)

    def published(self, version: int) -> None:
        """The trainer's present state becomes weights ``version``, and of versions left out in between."""
        if version < len(self._published):
            raise ValueError(f"version {version} is published already")
        self._published += [(self._common(), self._updates)] * (version + 1 - len(self._published))
        for prompt in self._changed:
            versions, values = self._non_transferred_published.setdefault(prompt, ([], []))
            versions.append(version)
            values.append(self._non_transferred[prompt])
        self._changed.clear()

    def mean_success(self) -> float:
        """Expected success of a fresh sample over the population, of the trainer's present state."""
        common = self._common()
        if self._model.effect.transfer == 1.0:
            return self._curve.success(common)
        trained = np.fromiter(self._non_transferred, dtype=int)
        logits = self._prompts.all_logits(len(self._published) - 1)[trained] + common
        extra = sigmoid(logits + np.fromiter(self._non_transferred.values(), dtype=float)) - sigmoid(logits)
        return self._curve.success_shifted(common) + float(extra.sum()) / self._prompts_in_all

    def _common(self) -> float:
        """Logits by which all prompts are easier than before training."""
        return self._model.effect.transfer * self._curve.skill(self._progress)

    def _sound_shares(self, who: tuple[int, int, int], outcome: bool) -> tuple[float, float]:
        return self._readings.drift_share(who, outcome), self._readings.repeats_share(who, outcome)

    def _place(self, prompt: int, version: int) -> _Place:
        state = self._places.get((prompt, version))
        if state is None:
            score = self._prompts.score(prompt, version)
            logit = self._gains.moved(self._prompts.logit(prompt, score), self._skill(prompt, version))
            success = 1 / (1 + math.exp(-max(-700.0, logit)))
            usual = self._prompts.length_ratio(prompt) / self._mean_length
            of_failure, of_success = (usual * math.exp(-ease * score) for ease in self._eases)
            state = _Place(success, of_success, of_failure * self._model.lengths.failure_ratio)
            if len(self._places) >= PROMPTS_KEPT:
                del self._places[next(iter(self._places))]
            self._places[prompt, version] = state
        return state

    def _skill(self, prompt: int, version: int) -> float:
        common, _ = self._published[version]
        history = self._non_transferred_published.get(prompt)
        if history is None:
            return common
        versions, values = history
        last = bisect_right(versions, version)
        return common + values[last - 1] if last else common

    def _information(self, batch: Sequence[TrainedSample]) -> float:
        if self._model.distillation is None:
            uniform = self._curve.reward_variance(self._curve.skill(self._progress))
            noise = self._model.reward.noise
            if self._model.effect.baseline == "value":
                return variance_about(batch, self._expected_reward, noise) / max(_LEAST_VARIANCE, uniform)
            expected = reference_variance(uniform, self._model.reference.group_size)
            return advantage_variance(batch, noise) / max(_LEAST_VARIANCE, expected)
        if self._full is None:
            raise ValueError("measure comes before the first step")
        common = self._curve.success(self._curve.skill(self._progress))
        return mean_worth(batch, self._model.distillation) / self._full.at(common)

    def _expected_reward(self, prompt: int) -> float:
        """Mean reward of a sample of the prompt under the newest published weights."""
        success = self._place(prompt, len(self._published) - 1).success
        return success + (1 - success) * self._model.reward.partial_credit / 2

    def _worth(
        self, lags: FloatArray, batch: Sequence[TrainedSample], updates: int, epochs: int
    ) -> tuple[float, float]:
        """Updates' worth after staleness and reuse, and the mean factor of staleness alone."""
        tokens = np.array([max(1, sample.tokens) for sample in batch], dtype=float)
        later = np.arange(updates * epochs)
        factors = 1 - tokens / tokens.sum() @ (1 - self._model.method.factor(lags[:, None] + later[None, :]))
        reuse = self._model.method.reuse ** (later // updates)
        return float(factors @ reuse), float(factors @ reuse / reuse.sum())

    def _keep(self, batch: Sequence[TrainedSample], gain: float) -> None:
        """Deal the part of a mean gain that does not reach all prompts to those that taught it."""
        kept = (1 - self._model.effect.transfer) * gain * self._prompts_in_all
        if kept == 0.0:
            return
        taught = self._taught(batch)
        total = max(_LEAST_VARIANCE, sum(taught.values()))
        for prompt, worth in taught.items():
            self._non_transferred[prompt] = self._non_transferred.get(prompt, 0.0) + kept * worth / total
        self._changed |= taught.keys()

    def _taught(self, batch: Sequence[TrainedSample]) -> dict[int, float]:
        """What each prompt's groups taught, in any unit."""
        exponent, law = self._model.effect.information_exponent, self._model.distillation
        if law is None:
            about = self._expected_reward if self._model.effect.baseline == "value" else None
            return taught_by_prompt(batch, exponent, about, self._model.reward.noise)
        taught: dict[int, float] = {}
        for sample in batch:
            taught[sample.prompt] = taught.get(sample.prompt, 0.0) + sample_worth(sample, law) ** exponent
        return taught
