"""The batch of a logged step, rebuilt from its mean and its longest response, and what it costs in units of the base.

The rebuilt batch has the step's own mean and longest response, and the shape of the length law in between. It goes
through the simulated engines and the trainer's formula, so that splits, limits and KV are priced as a run would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from calibration.logs.lengths import LengthFit
from calibration.logs.steps import LoggedSteps
from rlsim.core.streams import generator
from rlsim.core.ticks import to_seconds
from rlsim.costs.training import Samples, TrainingCost
from rlsim.engine.replica import Replica
from rlsim.engine.requests import Request
from rlsim.engine.steptime import StepTime
from rlsim.resolve import ResolvedScenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_STEPS = 200
"""Steps that are rebuilt; of longer logs every n-th."""
DEALT_SAMPLES, MOST_DEALS, FEWEST_DEALS = 512, 16, 4
"""A batch is dealt to several replicas in many ways, the more the smaller it is, and their mean taken: what the log
does not say must average out, or it would pass for variation of the work and flatten the fitted line."""


@dataclass(frozen=True, slots=True)
class PricedSteps:
    """What the base scenario's costs say of each rebuilt step."""

    rows: NDArray[np.int_]
    """Which of the steps."""
    engine_seconds: NDArray[np.float64]
    """Seconds of the slowest replica, from the first admission to the last token."""
    engine_steps: NDArray[np.float64]
    """Steps of the slowest replica."""
    forward_seconds: NDArray[np.float64]
    """One log-probability pass at full utilisation."""
    update_seconds: NDArray[np.float64]
    """Forward and backward of all mini-batches and epochs at full utilisation, without optimizer steps."""


def price_steps(steps: LoggedSteps, lengths: LengthFit, plan: ResolvedScenario, generated: bool) -> PricedSteps:
    """Rebuild and price the steps; engines only where generation is ``generated`` step by step."""
    rows = np.unique(np.linspace(0, steps.count - 1, min(steps.count, MOST_STEPS)).astype(np.int_))
    pool = plan.pools[0]
    law = pool.law.quantise(pool.limits.max_num_batched_tokens, pool.limits.max_num_seqs)
    trainer = full_speed(plan.training)
    columns = []
    for row in rows.tolist():
        prompt = max(1, round(float(lengths.prompt_tokens[row])))
        deals = list(_deals(steps, lengths, plan, row))
        alone = deals if plan.shape.replicas > 1 else deals[:1]
        engine = [_generate(plan, law, deal, prompt) for deal in alone] if generated else [(0.0, 0.0)]
        work = [_train(trainer, deal.reshape(-1), prompt) for deal in deals]
        columns.append((*np.mean(engine, axis=0), *np.mean(work, axis=0)))
    return PricedSteps(rows, *np.array(columns).T)


def _deals(steps: LoggedSteps, lengths: LengthFit, plan: ResolvedScenario, row: int) -> Iterator[NDArray[np.int64]]:
    """The step's batch by groups and members, in many orders, correlated within groups as the scenario says.

    Where the log does not say the longest response, every deal draws its own lengths with the step's mean.
    """
    from scipy.special import ndtr

    groups, members = plan.shape.prompts_per_step, plan.shape.group_size
    count, mean = groups * members, float(lengths.response_tokens[row])
    rng = generator(int(steps.numbers[row]), "deals of a batch")
    share = plan.workload.intra_group_correlation
    at_top = round(float(steps.values["clipped"][row]) * count) if steps.has("clipped") else 0
    longest = None
    if lengths.longest_tokens is not None:
        longest, at_top = round(float(lengths.longest_tokens[row])), max(1, at_top)
    even = lengths.distribution.uncapped((np.arange(count) + 0.5) / count)
    tokens = _with_mean(even, mean, longest or lengths.distribution.cap_tokens, at_top)
    for _ in range(min(MOST_DEALS, max(FEWEST_DEALS, DEALT_SAMPLES // count))):
        common, own = rng.standard_normal((groups, 1)), rng.standard_normal((groups, members))
        scores = (np.sqrt(share) * common + np.sqrt(1 - share) * own).reshape(-1)
        if longest is None:
            drawn = lengths.distribution.uncapped(np.minimum(ndtr(np.sort(scores)), 1 - 1e-12))
            tokens = _with_mean(drawn, mean, lengths.distribution.cap_tokens, at_top)
        yield tokens[scores.argsort().argsort()].reshape(groups, members)


def _with_mean(shape: NDArray[np.float64], mean: float, longest: int, at_top: int) -> NDArray[np.int64]:
    """``shape`` scaled to that mean, its last ``at_top`` samples being as long as the longest."""

    def tokens(scale: float) -> NDArray[np.float64]:
        values = np.clip(shape * scale, 1, longest)
        values[len(values) - at_top :] = longest
        return values

    low, high = 1e-6, 1e6
    for _ in range(80):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if tokens(middle).mean() < mean else (low, middle)
    return np.rint(tokens(high)).astype(np.int64)


def full_speed(training: TrainingCost) -> TrainingCost:
    """The trainer at full utilisation and without overheads: the work, in seconds."""
    return training.replace(
        mfu=1.0,
        logprob_mfu=1.0,
        fixed_seconds_per_step=0.0,
        seconds_per_update=0.0,
        seconds_per_micro_batch=0.0,
        attention_mfu=None,
        logprob_seconds_per_micro_batch=None,
        old_log_prob=True,
    )


def optimizer_seconds(training: TrainingCost, samples: int) -> float:
    """Seconds of all optimizer steps of a training step, without the overhead of an update."""
    bare = full_speed(training)
    return bare.config.epochs * min(bare.config.updates_per_step, samples) * bare.optimizer_seconds()


def _train(trainer: TrainingCost, batch: NDArray[np.int64], prompt: int) -> tuple[float, float]:
    samples = cast(Samples, np.stack([np.full_like(batch, prompt), batch], axis=1))
    phases = dict(trainer.phases(samples))
    return phases["old_log_prob"], phases["update_actor"] - optimizer_seconds(trainer, len(batch))


def _generate(plan: ResolvedScenario, law: StepTime, groups: NDArray[np.int64], prompt: int) -> tuple[float, float]:
    """Seconds and engine steps of the slowest replica, the groups dealt out one by one."""
    replicas, pool, totals = plan.shape.replicas, plan.pools[0], []
    for share in (groups[first::replicas] for first in range(min(replicas, len(groups)))):
        replica = Replica(0, pool.limits, law, pool.rollout.data_parallel)
        for group, members in enumerate(share.tolist()):
            for member, tokens in enumerate(members):
                replica.submit(Request(group * len(members) + member, group, prompt, prompt, tokens))
        now = 0
        while (end := replica.begin(now)) is not None:
            replica.end(end)
            now = end
        totals.append((to_seconds(now), replica.total_steps))
    return max(totals)
