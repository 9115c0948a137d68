"""Clusters drawn from a seed: limits so small that preemption, chunks, evictions and ties are the rule."""

from __future__ import annotations

import random
from dataclasses import replace

from cluster import Abort, Cluster, Sample, Slow, Turn, Update

from rlsim.core.ticks import Ticks
from rlsim.engine.discipline import AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.engine.requests import EngineLimits
from rlsim.engine.steptime import StepTime


def seeded_cluster(seed: int) -> Cluster:
    """The cluster of ``seed``: about half of them short of KV blocks, a fifth closed before their end."""
    rng = random.Random(f"cluster {seed}")
    limits = _limits(rng)
    law = _law(rng, limits)
    replicas = rng.choice((1, 1, 2, 2, 3, 6))
    prompts = tuple(rng.randint(1, max(1, limits.max_model_len * 2 // 3)) for _ in range(rng.randint(1, 5)))
    unit = law.dense_ps[1]
    samples = _samples(rng, limits, prompts, unit, rng.randint(2, 16 + 3 * replicas))
    tokens = sum(turn.target_tokens for sample in samples for turn in sample.turns)
    span = 2 + 2 * tokens // (limits.max_num_seqs * replicas)
    return Cluster(
        limits=limits,
        law=law,
        replicas=replicas,
        ranks=rng.choice((1, 1, 1, 2, 3)),
        samples=samples,
        in_flight=rng.choice((1, 3, 6, 100)),
        aborts=tuple(_abort(rng, unit, span) for _ in range(rng.choice((0, 1, 3)))),
        updates=tuple(_update(rng, unit, span) for _ in range(rng.choice((0, 1, 3)))),
        slow=tuple(_slow(rng, unit, span) for _ in range(rng.choice((0, 0, 1, 2)))),
        round_robin=rng.random() < 0.5,
        sticky=rng.random() < 0.7,
        forgets=rng.random() < 0.2,
        offloads=rng.random() < 0.1,
        drift=rng.choice((0, 0, 0, 3)),
        close_at=_tick(rng, unit, span) if rng.random() < 0.2 else None,
    )


def disciplined_cluster(seed: int) -> Cluster:
    """The cluster of ``seed`` under one to four rules; half of them tell the engine how much a call may make."""
    rng, cluster = random.Random(f"discipline {seed}"), seeded_cluster(seed)
    limits = replace(cluster.limits, discipline=_discipline(rng, cluster))
    if limits.discipline.ageing is not None:
        limits = replace(limits, scheduling_policy="fcfs")
    if limits.discipline.step_target is not None:
        limits = replace(limits, enable_chunked_prefill=True)
    return replace(cluster, limits=limits, states_longest=rng.random() < 0.5)


def _discipline(rng: random.Random, cluster: Cluster) -> Discipline:
    law, kinds = cluster.law, rng.sample(("admission", "target", "prefills", "order"), rng.choice((1, 1, 2, 4)))
    target = StepTarget(
        ticks=law.dense_ps[rng.randrange(len(law.dense_ps))] + rng.randint(0, law.dense_ps[1]),
        min_chunk_tokens=rng.choice((1, 1, 2, 5)),
        predicted_scale=rng.choice((0.5, 1.0, 1.0, 1.25)),
    )
    return Discipline(
        admission=_admission(rng) if "admission" in kinds else None,
        step_target=target if "target" in kinds else None,
        max_concurrent_prefills=rng.choice((1, 1, 2, 3)) if "prefills" in kinds else None,
        ageing=AgeingQueue(rng.choice((0, 1, 1)), _prefill_weight(rng, law)) if "order" in kinds else None,
    )


def _admission(rng: random.Random) -> Conservative | PastFuture:
    reserved = rng.choice((0.0, 0.05, 0.3))
    if rng.random() < 0.2:
        return Conservative(reserved)
    return PastFuture(
        quantile=rng.choice((None, None, 0.3, 0.5, 0.9, 1.0)),
        reserved_fraction=reserved,
        history_calls=rng.choice((1, 4, 200)),
        initial_calls=rng.choice((0, 0, 1, 3)),
        seed=rng.randint(0, 3),
    )


def _prefill_weight(rng: random.Random, law: StepTime) -> int:
    """A token of prefill weighs as much as a wait of no step, a part of one, or many."""
    return rng.choice((0, 1, law.dense_ps[1] // 3, 50 * law.dense_ps[1]))


def _limits(rng: random.Random) -> EngineLimits:
    length, seats, size = rng.choice((8, 24, 64, 160)), rng.randint(1, 6), rng.choice((1, 2, 4, 8))
    chunked = rng.random() < 0.7
    spare = rng.randint(0, rng.choice((3, 12, length))) if chunked else rng.randint(length, 2 * length)
    longest = -(-length // size)
    return EngineLimits(
        max_num_seqs=seats,
        max_num_batched_tokens=seats + spare,
        max_model_len=length,
        block_size=size,
        kv_blocks=longest + int(longest * seats * rng.choice((0.0, 0.1, 0.3, 0.6, 1.0))),
        enable_prefix_caching=rng.random() < 0.7,
        enable_chunked_prefill=chunked,
        scheduling_policy=rng.choice(("fcfs", "priority")),
    )


def _law(rng: random.Random, limits: EngineLimits) -> StepTime:
    """Half of them with few distinct times, so that replicas meet at the same ticks; others have dearer mixed KV."""
    tokens, seats = range(limits.max_num_batched_tokens + 1), range(limits.max_num_seqs + 1)
    if rng.random() < 0.5:
        base, seat, kv, pair = rng.choice((1, 6)), rng.choice((0, 1)), rng.choice((0, 0, 1)), rng.choice((0, 1))
        return StepTime([base for _ in tokens], [seat * n for n in seats], [kv for _ in seats], pair)
    knee = rng.choice((4, 16))
    dense = [5_000_000_000 + 41_234_567 * max(0, n - knee) + 7 * n for n in tokens]
    kv = [60_000 - 1_013 * n for n in seats]
    prefill = [0, *(300_000_007 + 13 * n for n in tokens[1:])] if knee == 4 else []
    mixed = [2 * one + 7 for one in kv]
    return StepTime(dense, [20_000_011 * n for n in seats], kv, rng.choice((0, 1_009)), prefill, mixed)


def _samples(
    rng: random.Random, limits: EngineLimits, prompts: tuple[int, ...], unit: Ticks, count: int
) -> tuple[Sample, ...]:
    late = rng.choice((0.0, 0.3, 1.0))
    turns = rng.choice((1, 1, 3))
    urgent = rng.choice((0, 2))
    scatter = rng.choice((0, 4, 60))
    heads = rng.random() < 0.3
    made = []
    for _ in range(count):
        prompt = rng.randrange(len(prompts))
        made.append(
            Sample(
                prompt=prompt,
                prompt_tokens=rng.randint(1, prompts[prompt]) if heads else prompts[prompt],
                turns=tuple(_turn(rng, limits, unit, first=not turn) for turn in range(rng.randint(1, turns))),
                arrival=_tick(rng, unit, scatter) if rng.random() < late else None,
                priority=rng.randint(0, urgent),
            )
        )
    return tuple(made)


def _turn(rng: random.Random, limits: EngineLimits, unit: Ticks, first: bool) -> Turn:
    target = min(1 + int(rng.expovariate(3 / limits.max_model_len)), limits.max_model_len)
    given = 0 if first else rng.randint(0, limits.max_model_len // 8)
    return Turn(target, given, 0 if first else _tick(rng, unit, 6))


def _abort(rng: random.Random, unit: Ticks, span: int) -> Abort:
    resume_after = rng.choice((None, 0, _tick(rng, unit, 5)))
    return Abort(_tick(rng, unit, span), rng.choice((1, 2, 3)), resume_after)


def _update(rng: random.Random, unit: Ticks, span: int) -> Update:
    return Update(
        at=_tick(rng, unit, span),
        ticks=rng.choice((0, _tick(rng, unit, 4))),
        scope=rng.choice(("all", "each")),
        reset=rng.random() < 0.5,
        publishes=rng.random() < 0.8,
    )


def _slow(rng: random.Random, unit: Ticks, span: int) -> Slow:
    return Slow(_tick(rng, unit, span), _tick(rng, unit, span), rng.choice((1.1, 1.5, 3.0)))


def _tick(rng: random.Random, unit: Ticks, span: int) -> Ticks:
    """Some instant within ``span`` steps; often one at which a step ends."""
    return unit * rng.randint(0, span) + rng.choice((0, 0, unit // 3, rng.randint(0, unit)))
