"""The section ``learning``: what prompts and batches are worth, which the simulator hides from every policy.

docs/concepts/learning-model.md says where each default comes from; most are estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Name, Positive, Seconds, Section
from rlsim.learning.staleness import METHODS, Method, method_named
from rlsim.workload.mismatch import Mismatch

Probability = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Exponent = Annotated[float, Field(ge=0, le=4)]
Spread = Annotated[float, Field(ge=0, le=8)]
Ratio = Annotated[float, Field(ge=0.1, le=10)]
Logit = Annotated[float, Field(ge=-10, le=10)]
LikelyArea = Annotated[float, Field(ge=0.5, lt=1)]


class Domain(Section):
    """A kind of prompts that is easier or harder than the others."""

    share: Positive = Field(description="Of the prompts, relative to the other domains'")
    offset: Logit = Field(default=0.0, description="Added to the logits of its prompts; above 0: easier")
    length_ratio: Ratio = Field(default=1.0, description="Length of its responses over that of others")


class Population(Section):
    """Success probabilities before training, and how a prompt's own drifts.

    MiMo's trace passes 41 %. With a concentration below 2 many prompts are nearly always solved, or never.
    """

    mean_success: Probability = Field(default=0.4, description="Mean over the prompts")
    law: Literal["logit-normal", "beta"] = Field(default="logit-normal", description="Law of the probabilities")
    spread: Spread = Field(default=2.0, description="Standard deviation of the logits; logit-normal")
    concentration: Annotated[float, Field(ge=0.02, le=1000)] = Field(default=1.0, description="a + b of the Beta law")
    persistence: Share = Field(default=0.9, description="Correlation of a prompt's difficulty with its own long after")
    drift_versions: Positive = Field(default=100.0, description="Versions after which the rest is forgotten")
    domains: dict[Name, Domain] = Field(default={}, description="Kinds of prompts by name; none: all alike")


class RewardValues(Section):
    """What a sample earns; a success earns 1.

    Failures earn between 0 and ``partial_credit``, evenly.
    """

    partial_credit: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="Most that a failure earns")
    noise: Seconds = Field(default=0.0, description="Standard deviation of the error of every reward")


class LengthCoupling(Section):
    """Lengths by outcome and difficulty; the mean over the untrained prompts stays that of the length law.

    Ratios hold on the same prompt, and on one harder by a standard deviation of its kind; systems list entry 35 has
    the direction.
    """

    failure_ratio: Ratio = Field(default=1.3, description="Length of a failure over that of a success")
    difficulty_ratio: Ratio = Field(default=1.1, description="Length on a prompt harder by a standard deviation")
    success_difficulty_ratio: Ratio | None = Field(
        default=None, description="The same of successes; None: as of failures"
    )

    @property
    def eases(self) -> tuple[float, float]:
        """Logarithms by which a failure and a success are shorter on a prompt easier by one standard deviation."""
        of_success = self.success_difficulty_ratio or self.difficulty_ratio
        return math.log(self.difficulty_ratio), math.log(of_success)


class ProgressCurve(Section):
    """Mean success of uniform on-policy training by updates: R0 + (A - R0) / (1 + (half / updates)^steepness).

    ScaleRL's form (arXiv 2510.13786) with updates for compute; it fits steepness 1.77 (DAPO) and 2.01 (CISPO).
    """

    asymptote: Annotated[float, Field(gt=0, le=0.999)] = Field(default=0.8, description="A, after endless training")
    half_updates: Positive = Field(default=300.0, description="Optimizer updates to half of the way")
    steepness: Annotated[float, Field(ge=0.2, le=10)] = Field(default=1.0, description="Exponent; 1: no slow start")


class BatchEffect(Section):
    """How the worth of an update depends on what it trains on.

    Information is advantage variance over that of a uniform batch: exponent 1 is VIGOR's variance-sized gradient, 0
    DataFlex-RL's. Breadth is samples an update over those of the scenario: 0.5 is gradient noise that averages out. A
    value baseline is a perfect one. ``gains`` is explained in ``rlsim.learning.gains``. After a collapsed step a lag
    counts as lag * (1 + lag_feedback * (1 - factor)) (systems list entry 60).
    """

    information_exponent: Exponent = Field(default=1.0, description="Of advantage variance; 0: rewards do not matter")
    breadth_exponent: Exponent = Field(default=0.5, description="Of samples an update; 0: their number does not matter")
    baseline: Literal["group", "value"] = Field(default="group", description="Of advantages: group mean, value model")
    gains: Literal["alike", "reinforced"] = Field(
        default="alike", description="All prompts gain the same logits, or each as its successes teach it"
    )
    transfer: Share = Field(default=1.0, description="Share of a gain that all prompts get; who taught it has the rest")
    lag_feedback: Seconds = Field(default=0.0, description="Growth of lags by a step that collapsed")


class Tolerance(Section):
    """What staleness costs: the curve of a method, each value of which can be replaced."""

    method: Name = Field(default="grpo", description="Tolerance curve by name")
    tolerance_updates: Seconds | None = Field(default=None, description="Lag in updates up to which nothing is lost")
    collapse_updates: Positive | None = Field(default=None, description="Scale of the fall beyond, in updates")
    floor: Annotated[float, Field(ge=-10, le=1)] | None = Field(default=None, description="Worth at an endless lag")
    reuse: Share | None = Field(default=None, description="Worth of a further pass, relative to the one before")

    def curve(self) -> Method:
        """The tolerance curve; ``ParameterError`` for a method that nobody knows."""
        named = method_named(self.method)
        own = {name: value for name, value in dict(self).items() if name != "method" and value is not None}
        return replace(named, **own, source=f"{named.source}; {', '.join(own)} given") if own else named


class Auroc(Section):
    """Area under the ROC curve of a reading, linear in the share of the response that is made."""

    start: LikelyArea = Field(description="At the first token")
    end: LikelyArea = Field(description="At the last token")

    def at(self, share: float) -> float:
        """Area at this share of the response."""
        return self.start + (self.end - self.start) * share


class TeacherOverlap(Section):
    """Overlap with a teacher's choices: a level, and a lower one after a drift.

    Drifts come at a constant hazard along the response; systems list entry 40 acts on the first.
    """

    level: float = Field(default=0.8, description="Before a drift")
    drop: Seconds = Field(default=0.3, description="Fall at a drift")
    noise: Seconds = Field(default=0.08, description="Standard deviation of a reading")
    failure_drifts: Seconds = Field(default=1.5, description="Mean drifts in a whole failed response")
    success_drifts: Seconds = Field(default=0.2, description="Mean drifts in a whole successful response")


class Signals(Section):
    """How well what is seen while a response is made tells its outcome.

    A policy sees these readings and never the outcome. 0.95 is the best of Precog-RM (systems list entry 257).
    Repetition begins at an even place. ``persistence`` keeps reading again from averaging the noise away.
    """

    quality: Auroc = Field(default=Auroc(start=0.6, end=0.95), description="A trained head")
    confidence: Auroc = Field(default=Auroc(start=0.55, end=0.7), description="The model's own confidence")
    entropy_noise: Seconds = Field(default=0.3, description="Standard deviation of readings of 4 p (1 - p)")
    overlap: TeacherOverlap = Field(default=TeacherOverlap(), description="Teacher and student")
    repetition_share: Share = Field(default=0.2, description="Failures that fall into repetition")
    repetition_false: Share = Field(default=0.01, description="Successes that are flagged as repetition")
    persistence: Share = Field(default=0.8, description="Share of a reading's noise that reading again repeats")


class Distillation(Section):
    """On-policy distillation: every token teaches, by its place in the response, and rewards teach nothing.

    The corrective power of the teacher's score fades with the position (ESR, systems list entry 128, which gives no
    curve). Prune-OPD (entry 40) has the direction of ``after_drift``; ShortOPD (entry 28) drops tokens of a repetition.
    """

    fade_exponent: Exponent = Field(default=1.0, description="Token t is worth (1 + t / fade_tokens)^-this; 0: all 1")
    fade_tokens: Positive = Field(default=1000.0, description="Scale of the fading, in tokens")
    after_drift: Share = Field(default=0.3, description="Worth of a token behind a drift, relative to before")
    after_repetition: Share = Field(default=0.0, description="The same behind the start of a repetition")


class Learning(Section):
    """What prompts, rewards and batches are worth: a statistical stand-in, most of whose defaults are estimates."""

    population: Population = Field(default=Population(), description="The prompts")
    reward: RewardValues = Field(default=RewardValues(), description="What a sample earns")
    lengths: LengthCoupling = Field(default=LengthCoupling(), description="Lengths by outcome and difficulty")
    curve: ProgressCurve = Field(default=ProgressCurve(), description="Progress of uniform on-policy training")
    effect: BatchEffect = Field(default=BatchEffect(), description="Worth of a batch")
    staleness: Tolerance = Field(default=Tolerance(), description="Cost of staleness")
    signals: Signals = Field(default=Signals(), description="What is seen while a response is made")
    distillation: Distillation | None = Field(
        default=None, description="Token values of on-policy distillation; None: batches teach by their rewards"
    )
    rejections_per_update: Seconds = Field(
        default=0.03, description="Rejections along an old trajectory verified again, for each update since"
    )
    drafts_checked_by: Literal["engine", "trainer"] = Field(
        default="engine",
        description="Who verifies it: a prefill of the engine, or a pass of the trainer before, which is not timed",
    )

    def contradictions(self) -> Iterator[ParameterError]:
        """A ceiling below the start, and laws of gains that exclude each other."""
        if self.effect.gains == "reinforced" and (self.effect.transfer < 1 or self.distillation is not None):
            allowed = "alike, with effect.transfer below 1 or with distillation"
            yield ParameterError("effect.gains", self.effect.gains, allowed)
        start, end = self.population.mean_success, self.curve.asymptote
        if end <= start:
            yield ParameterError("curve.asymptote", end, f"a number, above population.mean_success ({start:g})")


@dataclass(frozen=True, slots=True)
class Reference:
    """What an update of the scenario trains on: the unit of progress."""

    samples_per_update: float = 512.0
    group_size: int = 8


class LearningModel(Learning):
    """The hidden truth of a run: everything that decides rewards and progress, but for the seed."""

    method: Method = METHODS["grpo"]
    """The curve of ``staleness``."""
    mismatch: Mismatch | None = None
    """None: the effective sample size is 1."""
    reference: Reference = Reference()
