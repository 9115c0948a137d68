"""The parameters of the learning model. docs/learning.md says where each default comes from; most are estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from rlsim.learning.staleness import METHODS, Method
from rlsim.workload.mismatch import Mismatch


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of prompts."""

    name: str
    share: float
    """Of the prompts, relative to the other domains'."""
    offset: float = 0.0
    """Added to the logits of its prompts: above 0 is easier."""
    length_ratio: float = 1.0
    """Length of its responses over that of others of the same outcome, on prompts as hard among their own kind."""


@dataclass(frozen=True, slots=True)
class Population:
    """Success probabilities of the prompts before training, and how a prompt's own drifts."""

    mean_success: float = 0.4
    """Mean over the prompts, in (0, 1); estimate (MiMo's trace passes 41 %)."""
    law: Literal["logit-normal", "beta"] = "logit-normal"
    spread: float = 2.0
    """Standard deviation of the logits of the logit-normal law; estimate."""
    concentration: float = 1.0
    """a + b of the Beta law; below 2 many prompts are nearly always solved, or never; estimate."""
    persistence: float = 0.9
    """Correlation of a prompt's difficulty with its own long after; 1: it never changes place among the others."""
    drift_versions: float = 100.0
    """Versions after which what does not persist is forgotten; estimate."""
    domains: tuple[Domain, ...] = ()


@dataclass(frozen=True, slots=True)
class RewardLaw:
    """What a sample earns. 1 for a success."""

    partial_credit: float = 0.0
    """Most that a failure earns; failures earn between 0 and this, evenly."""
    noise: float = 0.0
    """Standard deviation of a normal error of every reward."""


@dataclass(frozen=True, slots=True)
class LengthCoupling:
    """Lengths by outcome and difficulty; the mean over the untrained population stays that of the length law."""

    failure_ratio: float = 1.3
    """Length of a failure over that of a success on the same prompt; estimate, direction of systems list entry 35."""
    difficulty_ratio: float = 1.1
    """Length on a prompt harder by one standard deviation of its kind; estimate."""
    success_difficulty_ratio: float | None = None
    """The same of successes; None: as of failures."""

    @property
    def eases(self) -> tuple[float, float]:
        """Logarithms by which a failure and a success are shorter on a prompt easier by one standard deviation."""
        of_success = self.success_difficulty_ratio or self.difficulty_ratio
        return math.log(self.difficulty_ratio), math.log(of_success)


@dataclass(frozen=True, slots=True)
class Curve:
    """Success of uniform on-policy training after E updates: R0 + (A - R0) / (1 + (half / E)^steepness).

    ScaleRL's form (arXiv 2510.13786) with updates for compute.
    """

    asymptote: float = 0.8
    """A, above the mean success of the population and below 1; estimate."""
    half_updates: float = 300.0
    """Updates to half of the way; estimate."""
    steepness: float = 1.0
    """Estimate: no slow start. ScaleRL fits 1.77 (DAPO) and 2.01 (CISPO)."""


@dataclass(frozen=True, slots=True)
class BatchEffect:
    """How the worth of an update depends on what it trains on."""

    information_exponent: float = 1.0
    """Of advantage variance over a uniform batch's; 1: VIGOR's variance-sized gradient; 0: none (DataFlex-RL)."""
    breadth_exponent: float = 0.5
    """Of samples an update relative to the scenario's; estimate: 0.5 is gradient noise that averages out."""
    baseline: Literal["group", "value"] = "group"
    """What rewards are compared with: the mean of the group, or what a perfect value model expects of the prompt."""
    gains: Literal["alike", "reinforced"] = "alike"
    """Who gains how much of it: ``rlsim.learning.gains``."""
    transfer: float = 1.0
    """Share of a gain that reaches all prompts; the rest stays with those whose groups taught it; estimate."""
    lag_feedback: float = 0.0
    """Growth of lags by a collapsed step before: lag * (1 + feedback * (1 - factor)); systems list entry 60."""


@dataclass(frozen=True, slots=True)
class Distillation:
    """A teacher scores every token, and rewards teach nothing: on-policy distillation. All numbers are estimates.

    Token t of a response is worth (1 + t / fade_tokens)^-fade_exponent: the corrective power of the teacher's score
    fades with the position (ESR, systems list entry 128, which gives no curve; the law is ours).
    """

    fade_exponent: float = 1.0
    """0: every token teaches as much as the first."""
    fade_tokens: float = 1000.0
    after_drift: float = 0.3
    """Worth of tokens behind a drift, relative to those before it; Prune-OPD (entry 40) has the direction."""
    after_repetition: float = 0.0
    """The same behind the start of a repetition; ShortOPD (entry 28) drops these tokens."""


@dataclass(frozen=True, slots=True)
class Auroc:
    """How well a reading tells success from failure: area under its ROC curve, linear in the share that is made."""

    start: float
    end: float

    def at(self, share: float) -> float:
        """Area at this share of the response."""
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True, slots=True)
class Overlap:
    """Top-k overlap with a teacher: high, until a drift after which it stays lower; all estimates."""

    level: float = 0.8
    drop: float = 0.3
    noise: float = 0.08
    failure_drifts: float = 1.5
    """Mean drifts in a whole failed response, at a constant hazard; systems list entry 40 acts on the first."""
    success_drifts: float = 0.2


@dataclass(frozen=True, slots=True)
class Signals:
    """Readings while a response is made; a policy sees these and never the outcome."""

    quality: Auroc = Auroc(0.6, 0.95)
    """A trained head; 0.95 is the best of Precog-RM (systems list entry 257), 0.6 an estimate."""
    confidence: Auroc = Auroc(0.55, 0.7)
    """The model's own; estimate."""
    entropy_noise: float = 0.3
    """Of readings of 4 p (1 - p); estimate."""
    overlap: Overlap = Overlap()
    repetition_share: float = 0.2
    """Failures that fall into repetition, at an even place; estimate."""
    repetition_false: float = 0.01
    """Other samples that are flagged at some place; estimate."""
    persistence: float = 0.8
    """Share of a reading's noise variance that is the sample's own, so that reading again does not average it away."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What an update of the scenario trains on: the unit of progress."""

    samples_per_update: float = 512.0
    group_size: int = 8


@dataclass(frozen=True, slots=True)
class LearningModel:
    """The hidden truth of a run: everything that decides rewards and progress, but for the seed."""

    population: Population = Population()
    reward: RewardLaw = RewardLaw()
    lengths: LengthCoupling = LengthCoupling()
    curve: Curve = Curve()
    effect: BatchEffect = BatchEffect()
    method: Method = field(default_factory=lambda: METHODS["grpo"])
    signals: Signals = Signals()
    mismatch: Mismatch | None = None
    """None: the effective sample size is 1."""
    rejections_per_update: float = 0.03
    """Rejections of an old trajectory that is verified again, over its length, for each update since; estimate."""
    drafts_checked_by: Literal["engine", "trainer"] = "engine"
    """Who verifies it: a prefill of the engine, or before its work a pass of the trainer, which is not timed."""
    reference: Reference = Reference()
    distillation: Distillation | None = None
    """What batches are worth where a teacher scores their tokens; None: they teach by their rewards."""
