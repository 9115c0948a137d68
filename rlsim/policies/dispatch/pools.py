"""Dispatch among pools of replicas: by their speed, a call's context, its class, its phase or its expected length.

Pools of different hardware (RollArt), a pool for every class of prompts, prefill on one pool and decode on another
(P/D-Serve, Semi-PD), and replicas set apart for prompts that are expected to be long (TailSieve).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError, unknown
from rlsim.core.hashing import hashed
from rlsim.core.view import Pool, RunSizes, Sample, View
from rlsim.policies.ordering.predictors import ORACLES, Expected, Predictor, PredictorName
from rlsim.policies.registry import part


class _Weighted:
    def __init__(self, pools: Sequence[tuple[Pool, float]]) -> None:
        self._pools = pools

    def replica(self, view: View, sample: Sample) -> int:
        loads = view.loads
        least = [(loads.least(pool.replicas), weight) for pool, weight in self._pools if loads.any_open(pool.replicas)]
        if not least:
            return loads.least()
        return min(least, key=lambda pair: ((loads.in_flight[pair[0]] + 1) / pair[1], pair[0]))[0]


@part("dispatch", "by-weight")
@dataclass(frozen=True, slots=True)
class ByWeight:
    """The least loaded replica of every pool, then that with the fewest calls for its weight, this call included.

    For replicas of different speed: with weights like their rates, all of them are as full as they are fast.
    """

    weights: dict[str, float] | None = None
    """By pool, of one replica; None for its seats."""

    def start(self, shape: RunSizes) -> _Weighted:
        """Refuse a shape without pools, and weights for other pools than it has."""
        if not shape.pools:
            raise ParameterError("use", "by-weight", "another part: this one needs rollout.pools")
        weights = {pool.name: float(pool.slots) for pool in shape.pools} if self.weights is None else self.weights
        for name, weight in weights.items():
            shape.pool(name, f"weights.{name}")
            if not weight > 0:
                raise ParameterError(f"weights.{name}", weight, "above 0")
        for pool in shape.pools:
            if pool.name not in weights:
                raise unknown("weights", pool.name, weights)
        return _Weighted([(pool, weights[pool.name]) for pool in shape.pools])


class Lengths:
    """Two pools and the tokens that decide between them."""

    part_name: ClassVar[str] = "by-context"
    may_starve_a_replica: ClassVar[bool] = True

    def __init__(self, tokens: int, short: Pool, long: Pool) -> None:
        self._tokens, self._short, self._long = tokens, short, long

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded of the pool for the call's context; of all while that is closed."""
        pool = self._long if sample.context_tokens >= self._tokens else self._short
        return view.loads.least(pool.replicas if view.loads.any_open(pool.replicas) else None)


@part("dispatch", "by-context")
@dataclass(frozen=True, slots=True)
class ByContext:
    """Calls that start from at least ``context_tokens`` go to one pool, the others to another; there the fewest calls.

    Calls with much context to prefill go to GPUs that compute, calls that mostly decode to GPUs that read fast
    (RollArt, arXiv 2512.22560, maps whole tasks; the bound on tokens is ours).
    """

    context_tokens: int
    """Prompt, earlier turns and tool outputs from which a call counts as long."""
    short_pool: str | None = None
    """None for the first pool."""
    long_pool: str | None = None
    """None for the last pool."""

    def start(self, shape: RunSizes) -> Lengths:
        """Refuse a shape without pools, and pools that it does not have."""
        at_least("context_tokens", self.context_tokens, 1)
        if not shape.pools:
            raise ParameterError("use", "by-context", "another part: this one needs rollout.pools")
        short = shape.pools[0] if self.short_pool is None else shape.pool(self.short_pool, "short_pool")
        long = shape.pools[-1] if self.long_pool is None else shape.pool(self.long_pool, "long_pool")
        return Lengths(self.context_tokens, short, long)


class OwnPools:
    """The replicas of each class, in the order of the classes."""

    part_name: ClassVar[str] = "by-class"
    may_starve_a_replica: ClassVar[bool] = True

    def __init__(self, replicas: Sequence[range]) -> None:
        self._replicas = replicas

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded of the class's own pool; of all while that is closed."""
        own = self._replicas[sample.group.request_class]
        return view.loads.least(own if view.loads.any_open(own) else None)


@part("dispatch", "by-class")
@dataclass(frozen=True, slots=True)
class ByClass:
    """Prompts of a class go to the pool of its name, however busy that is; there the fewest calls.

    GPUs bound to agents, tenants or tasks in advance: what systems that share them are compared with.
    """

    def start(self, shape: RunSizes) -> OwnPools:
        """Refuse a shape without pools, and a class without a pool."""
        if not shape.pools:
            raise ParameterError("use", "by-class", "another part: this one needs rollout.pools")
        pools = {pool.name: pool.replicas for pool in shape.pools}
        for kind in shape.classes:
            if kind.name not in pools:
                allowed = f"another part, or a pool of the name of every class of prompts: {kind.name} has none"
                raise ParameterError("use", "by-class", allowed)
        return OwnPools([pools[kind.name] for kind in shape.classes])


Route = Literal["least-in-flight", "least-tokens", "by-prompt"]
"""Within a pool: fewest calls, fewest tokens of context, or always the same replica for a prompt."""

Router = Callable[[View, Sample], int]


def router(route: Route, pool: Pool) -> Router:
    """Which replica of the pool serves a call; closed ones are passed over."""
    if route == "least-in-flight":
        return lambda view, sample: view.loads.least(pool.replicas)
    if route == "least-tokens":
        return lambda view, sample: view.loads.least_tokens(pool.replicas)
    return lambda view, sample: _by_prompt(view, sample, pool)


def _by_prompt(view: View, sample: Sample, pool: Pool) -> int:
    """The prompt's own replica, so that its group and its later turns find what is cached there."""
    start = hashed("prompt", sample.group.draw) % pool.count
    places = (pool.first + (start + step) % pool.count for step in range(pool.count))
    for replica in places:
        if view.loads.is_open(replica):
            return replica
    return view.loads.least(pool.replicas)


class Legs:
    """A call's first leg makes its KV and one token, the second one goes on from both."""

    part_name: ClassVar[str] = "prefill-decode"
    may_starve_a_replica: ClassVar[bool] = True

    def __init__(self, prefill: Pool, decode: Pool, to_prefill: Router, to_decode: Router) -> None:
        self.prefills_on, self.decodes_on = prefill, decode
        self._prefill_replicas = prefill.replicas
        self.needs = (prefill.replicas, decode.replicas)
        """Both legs of a call need a replica."""
        self._to_prefill, self._to_decode = to_prefill, to_decode

    def replica(self, view: View, sample: Sample) -> int:
        """A decode replica right after a prefill leg; else a prefill replica, as the KV is nowhere (any more)."""
        if sample.state == "running" and sample.replica in self._prefill_replicas:
            return self._to_decode(view, sample)
        return self._to_prefill(view, sample)


@part("dispatch", "prefill-decode")
@dataclass(frozen=True, slots=True)
class PrefillDecode:
    """Every turn begins on the prefill pool and decodes on the decode pool after one token; with ordering prefill-leg.

    What was cut and is resumed begins again with a prefill leg, as its KV is gone. Both pools have a replica that is
    open at any time: compositions that would close all of one are refused.
    """

    prefill_pool: str = "prefill"
    decode_pool: str = "decode"
    prefill_route: Route = "least-in-flight"
    """Within the pool; ``by-prompt`` finds the prompt of the group and earlier turns in the cache."""
    decode_route: Literal["least-in-flight", "least-tokens", "same-gpus"] = "least-in-flight"
    """``same-gpus``: the replica that shares the GPUs of the one that prefilled, where the KV is already."""

    def start(self, shape: RunSizes) -> Legs:
        """Refuse pools that do not exist, are one, or do not share GPUs as the route needs."""
        prefill, decode = shape.pool(self.prefill_pool, "prefill_pool"), shape.pool(self.decode_pool, "decode_pool")
        if prefill == decode:
            raise ParameterError("decode_pool", self.decode_pool, "another pool than prefill_pool")
        to_prefill = router(self.prefill_route, prefill)
        if self.decode_route != "same-gpus":
            return Legs(prefill, decode, to_prefill, router(self.decode_route, decode))
        if (prefill.shares_gpus_with or prefill.name) != (decode.shares_gpus_with or decode.name):
            allowed = "least-in-flight, least-tokens: these pools do not share GPUs (rollout.pools[].shares_gpus_with)"
            raise ParameterError("decode_route", "same-gpus", allowed)

        def partner(view: View, sample: Sample) -> int:
            replica = sample.replica - prefill.first + decode.first
            return replica if view.loads.is_open(replica) else view.loads.least(decode.replicas)

        return Legs(prefill, decode, to_prefill, partner)


@dataclass(frozen=True, slots=True)
class Work:
    """Responses that are to be decoded together."""

    longest: float
    """Tokens of the longest one: as many steps are made."""
    reads: float
    """Context tokens that all their steps read."""

    def read_tokens(self, replicas: int, empty_step_tokens: float) -> float:
        """Time on so many replicas that share the responses evenly, in context tokens read."""
        return empty_step_tokens * self.longest + self.reads / replicas


def work_of(responses: Sequence[tuple[int, float]]) -> Work:
    """Of (context tokens, tokens still to come)."""
    longest = max((tokens for _, tokens in responses), default=0.0)
    return Work(longest, sum(tokens * (context + (tokens - 1) / 2) for context, tokens in responses))


def tail_replicas(bulk: Work, tail: Work, replicas: int, empty_step_tokens: float) -> int:
    """How many of the replicas serve the tail, so that the slower part is as quick as it can be.

    A part without work gets none.
    """
    if not tail.reads or not bulk.reads:
        return replicas if tail.reads else 0

    def slower(count: int) -> float:
        others = bulk.read_tokens(replicas - count, empty_step_tokens)
        return max(tail.read_tokens(count, empty_step_tokens), others)

    return min(range(1, replicas), key=slower)


class _Split:
    oracle: ClassVar[bool] = True

    def __init__(self, spec: TailSplit, predictor: Predictor, replicas: int) -> None:
        self._spec, self._predictor, self._replicas = spec, predictor, replicas
        self._batch, self._tail_replicas = -1, 0
        self._tail: dict[int, bool] = {}
        """Whether a group is of the tail, as judged when its first member was placed."""

    def replica(self, view: View, sample: Sample) -> int:
        if sample.group.target > self._batch:
            self._batch = sample.group.target
            self._split(view)
        group = sample.group
        if group.group not in self._tail:  # It came after its batch was split.
            self._tail[group.group] = self._is_long(self._predictor(view, mate) for mate in group.members)
        bulk = self._replicas - self._tail_replicas
        part = range(bulk, self._replicas) if self._tail[group.group] else range(bulk)
        return view.loads.least(part if view.loads.any_open(part) else None)

    def _split(self, view: View) -> None:
        """For the groups that are open when the first call of a batch is placed."""
        known, self._tail = self._tail, {}
        parts: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])
        for number, group in view.open.items():
            expected = [(mate, self._predictor(view, mate)) for mate in group.members]
            tail = known[number] if number in known else self._is_long(tokens for _, tokens in expected)
            self._tail[number] = tail
            parts[tail].extend((mate.context_tokens, tokens) for mate, tokens in expected if mate.state != "ended")
        bulk, tail_work = (work_of(part) for part in parts)
        self._tail_replicas = tail_replicas(bulk, tail_work, self._replicas, self._spec.empty_step_tokens)

    def _is_long(self, expected: Iterable[float]) -> bool:
        return max(expected) >= self._spec.tail_tokens


@part("dispatch", "tail-split")
@dataclass(frozen=True, slots=True)
class TailSplit:
    """Groups whose longest member is expected to reach ``tail_tokens`` go to the last replicas, the others to the rest.

    How many are the last is decided batch by batch, so that by the lengths expected both parts end as early as they
    can: a part decodes as many steps as its longest response has tokens, and reads the context of all its responses
    in them (TailSieve, paper text: the decode times of a static batch, there by its size alone). Within each part the
    least loaded serves. Simulated only: every predictor here reads lengths still to come.
    """

    tail_tokens: int
    """Expected response tokens from which a prompt is of the tail."""
    empty_step_tokens: int = 50_000
    """Context tokens whose reading takes as long as all else of a decode step: about the bytes of the weights over
    those of a token's KV."""
    predictor: PredictorName = "prompt-mean"
    """What lengths are expected: oracle, noisy or prompt-mean; no mate has ended when a group is placed."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    seed: int = 0
    """Of the noisy predictor."""

    def start(self, shape: RunSizes) -> _Split:
        """Refuse a single replica, which cannot be split, and a predictor that is not of a prompt's length."""
        at_least("tail_tokens", self.tail_tokens, 1)
        at_least("empty_step_tokens", self.empty_step_tokens, 0)
        if shape.replicas < 2:
            raise ParameterError("use", "tail-split", "another part: this one needs two replicas or more")
        if self.predictor not in ORACLES:
            raise ParameterError("predictor", self.predictor, ", ".join(ORACLES))
        predictor = Expected(predictor=self.predictor, sigma=self.sigma, seed=self.seed).make(shape)
        return _Split(self, predictor, shape.replicas)
