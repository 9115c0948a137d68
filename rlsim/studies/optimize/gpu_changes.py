"""What other numbers of GPUs than the choice's are worth: speed, money, and the price of time at which they pay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlsim.core.errors import ScenarioError
from rlsim.resolve.scenario import gpus_used, price
from rlsim.results.statistics import Estimate, paired_difference, paired_ratio
from rlsim.scenario.schema import Scenario
from rlsim.scenario.variation import level
from rlsim.studies.optimize.candidates import Candidate, InputState
from rlsim.studies.optimize.scoring import COST, EvaluatedPoint, Evaluator
from rlsim.studies.optimize.selection import Selection, is_tied
from rlsim.studies.optimize.space import GridPoint
from rlsim.studies.sweep import variant

SECONDS = "seconds_per_million_trained_tokens"
MOST_MORE_GPUS = 16
TRAINER_SIZES = ("gpus", "tensor_parallel", "pipeline_parallel", "context_parallel", "micro_batch_tokens")
"""Keys of the trainer with which its utilisation would change."""


@dataclass(frozen=True, slots=True)
class GpuChange:
    """Another number of GPUs beside the choice."""

    role: str
    """Whose GPUs they are; empty for another point of the space."""
    levels: dict[str, str]
    """Of that point, as written."""
    gpus: int
    """More than the choice's; negative: fewer."""
    seconds: Estimate
    """Change of the step time."""
    usd_per_million_trained_tokens: Estimate
    """Change of the cost."""
    speedup: Estimate
    """Trained tokens a second over the choice's."""
    usd_per_hour_ratio: float
    cost_ratio: Estimate
    """Cost of a trained token over the choice's."""
    usd_per_hour_saved: float | None
    """Money for each hour that the larger number saves over the smaller; None where the larger is no faster."""
    held: str
    """The utilisation that is held fixed though sizes change; empty: none."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        estimates = ("seconds", COST, "speedup", "cost_ratio")
        plain = ("role", "levels", "gpus", "usd_per_hour_ratio", "usd_per_hour_saved", "held")
        return {name: getattr(self, name) for name in plain} | {
            name: {key: getattr(getattr(self, name), key) for key in ("mean", "low", "high", "n")} for name in estimates
        }


def gpu_changes(evaluator: Evaluator, selection: Selection, replications: int) -> list[GpuChange]:
    """The fastest contender of every other number of GPUs, and the fewest further GPUs for each role."""
    best, fastest = selection.best, dict[int, EvaluatedPoint]()
    for contender in sorted(selection.contenders, key=lambda contender: contender.estimate(SECONDS).mean):
        fastest.setdefault(contender.candidate.gpus, contender)
    fastest.pop(best.candidate.gpus, None)
    others = [change_of("", fastest[gpus], best) for gpus in sorted(fastest)]
    scenario, is_shared = best.candidate.variant.scenario, best.candidate.variant.resolved.colocated
    roles = {"rollout and trainer": (1, 1)} if is_shared else {"rollout": (1, 0), "trainer": (0, 1)}
    for role, parts in roles.items():
        for candidate in _larger(evaluator, best.point, scenario, parts):
            state = InputState(f"{candidate.gpus - best.candidate.gpus} more {role} GPUs")
            simulated = evaluator.simulated([candidate], state, replications)
            others += [change_of(role, evaluated, best) for evaluated in simulated]
    return others


def _larger(evaluator: Evaluator, point: GridPoint, scenario: Scenario, parts: tuple[int, int]) -> Iterator[Candidate]:
    """The choice with the fewest more GPUs with which it can be made; none where no number will do."""
    space = evaluator.candidates.space
    for more in range(1, MOST_MORE_GPUS + 1):
        rollout, trainer = scenario.rollout.gpus + parts[0] * more, scenario.trainer.gpus + parts[1] * more
        text = f"{rollout}:{trainer}:{scenario.cluster.gpus + more}"
        added = level("rollout.gpus:trainer.gpus:cluster.gpus", text, "more GPUs")
        try:
            larger = variant(space.document, {**space.choice(point), "more": added})
        except ScenarioError:
            continue
        gpus = gpus_used(larger.resolved)
        yield Candidate(point, larger, gpus, gpus * price(larger.resolved)[0])
        return


def change_of(role: str, other: EvaluatedPoint, best: EvaluatedPoint) -> GpuChange:
    """What another number of GPUs does, replication by replication."""
    confidence = other.candidate.variant.scenario.run.confidence
    seconds, usd = (
        paired_difference(other.values(metric), best.values(metric), confidence) for metric in ("step_seconds", COST)
    )
    speedup = paired_ratio(best.values(SECONDS), other.values(SECONDS), confidence)
    more, money = other.candidate.gpus - best.candidate.gpus, other.candidate.usd_per_hour / best.candidate.usd_per_hour
    is_faster = not is_tied(speedup) and (speedup.mean > 1) == (more > 0)
    # Work that takes the choice an hour takes the other 1 / speed-up of it, at its own price of an hour.
    dearer = best.candidate.usd_per_hour * (money - speedup.mean) / (speedup.mean - 1) if is_faster else None
    return GpuChange(
        role=role,
        levels={} if role else other.levels,
        gpus=more,
        seconds=seconds,
        usd_per_million_trained_tokens=usd,
        speedup=speedup,
        usd_per_hour_ratio=money,
        cost_ratio=paired_ratio(other.values(COST), best.values(COST), confidence),
        usd_per_hour_saved=dearer,
        held=held_utilisation(best.candidate.variant.scenario, other.candidate.variant.scenario),
    )


def held_utilisation(*scenarios: Scenario) -> str:
    """The trainer's utilisation where it is held fixed though its sizes differ; empty where it is not."""
    trainers = [scenario.trainer for scenario in scenarios]
    sizes = {tuple(getattr(trainer, key) for key in TRAINER_SIZES) for trainer in trainers}
    if len(sizes) == 1:
        return ""
    if any(trainer.profile for trainer in trainers):
        return "the times of trainer.profile are held fixed"
    return f"trainer.mfu {', '.join(dict.fromkeys(f'{trainer.mfu:g}' for trainer in trainers))} is held fixed"
