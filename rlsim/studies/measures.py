"""What a published quantity is in a simulated run; the formulas of docs/evidence/index.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlsim.resolve import ResolvedScenario
    from rlsim.results.metrics import Metrics
    from rlsim.scenario.published import Published
    from rlsim.studies.runs.record import RunRecord


def measure(record: RunRecord, quantity: str) -> float:
    """The quantity of one run, in the unit of its name."""
    if quantity in _DERIVED:
        return _DERIVED[quantity](record.metrics)
    return float(getattr(record.metrics, quantity))


def case_measure(record: RunRecord, name: str) -> float:
    """The measure of a user's question; ``DeadlockError`` for a stuck run of which more is asked than that."""
    if name == "stuck":
        return float(record.is_stuck)
    if name.startswith("idle_"):
        return record.metrics.utilisation.rollout[f"idle:{name.removeprefix('idle_').removesuffix('_share')}"]
    if name == "generated_over_trained":
        return record.metrics.generated_tokens / record.metrics.ledger_tokens["trained"]
    return measure(record, name)


def is_of_engine(row: Published) -> bool:
    """Whether the number is of one engine step, which needs no run."""
    return row.of == "engine_step_seconds"


def engine_step_seconds(row: Published, plan: ResolvedScenario) -> float:
    """A step that decodes the row's batch."""
    decodes, context = row.decodes or 0, row.context_tokens or 0
    return plan.pools[0].law.decode_seconds(decodes, float(decodes * context))


def is_rate(quantity: str) -> bool:
    """Whether more is better; of times, shares and lags less is."""
    return "_per_second" in quantity


def _trainer_seconds(metrics: Metrics, use: str) -> float:
    """Seconds a step that the trainer, or the shared GPUs, spend on a use."""
    return metrics.utilisation.trainer.get(use, 0.0) * metrics.step_seconds


def _idle_share(shares: dict[str, float]) -> float:
    return sum(share for use, share in shares.items() if use.startswith("idle:"))


def _generated_rate_per_gpu(metrics: Metrics) -> float:
    tokens = metrics.response_tokens_per_second * metrics.step_seconds
    return tokens / metrics.generation_seconds_per_step / metrics.gpus_used


def _trained_rate(metrics: Metrics) -> float:
    tokens = metrics.tokens_per_second_per_gpu * metrics.gpus_used * metrics.step_seconds
    return tokens / metrics.train_seconds_per_step


_DERIVED: dict[str, Callable[[Metrics], float]] = {
    "generation_seconds": lambda metrics: metrics.generation_seconds_per_step,
    "tail_seconds": lambda metrics: metrics.tail_share * metrics.generation_seconds_per_step,
    "wait_seconds": lambda metrics: metrics.wait_seconds_per_step,
    "train_seconds": lambda metrics: metrics.train_seconds_per_step,
    "sync_seconds": lambda metrics: metrics.sync_seconds_per_step,
    "old_log_prob_seconds": lambda metrics: _trainer_seconds(metrics, "old_log_prob"),
    "update_seconds": lambda metrics: _trainer_seconds(metrics, "update_actor"),
    "tokens_per_second": lambda metrics: metrics.tokens_per_second_per_gpu * metrics.gpus_used,
    "generated_tokens_per_second_per_gpu": _generated_rate_per_gpu,
    "trained_tokens_per_second": _trained_rate,
    "trainer_idle_share": lambda metrics: _idle_share(metrics.utilisation.trainer),
    "rollout_idle_share": lambda metrics: _idle_share(metrics.utilisation.rollout),
}
