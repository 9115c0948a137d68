"""What holds for every replica whatever its load: blocks, work, the clock, cuts, and the law of noisy steps."""

from __future__ import annotations

import numpy as np
import pytest
from cluster import Cluster, live
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded import disciplined_cluster, seeded_cluster

from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks
from rlsim.engine.discipline import VLLM
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.scheduler import Scheduler
from rlsim.engine.steptime import StepNoise, StepTime
from rlsim.executor.driver import CONTROLLER
from rlsim.sim.clock import SimClock
from rlsim.sim.fleet import SimFleet

STEPS = 40
DENSE, KV = 1_000, 7
MEAN_NOISE, SHAPE = 300, 0.5


# -- invariants at every boundary --------------------------------------------------------------------------


def blocks_held(rank: Scheduler) -> int:
    """Blocks that running requests hold, a shared one counted once, from the requests themselves."""
    runs = {run: len(run) * (len(run.holders) - 1) for request in rank.running.values() for run in request.runs}
    return sum(blocks_of(rank, request) for request in rank.running.values()) - sum(runs.values())


def blocks_of(rank: Scheduler, request: Request) -> int:
    decoding = request.finish_at >= 0
    computed = request.tokens - 1 + rank.step - request.joined_at if decoding else request.computed
    return -(-computed // rank.limits.block_size)


def must_wait(rank: Scheduler) -> bool:
    """Whether the head of the queue cannot be admitted in the step decided, even if nothing of it is cached."""
    head, limits, spent = rank.waiting.head(), rank.limits, sum(rank.scheduled().values())
    budget = limits.max_num_batched_tokens - spent
    return (
        len(rank.running) == limits.max_num_seqs
        or budget == 0
        or (budget < head.tokens and not limits.enable_chunked_prefill)
        or -(-head.tokens // limits.block_size) > rank.free_blocks
        or bool(rank.preempted)
    )


class WatchedReplica(Replica):
    """Checks itself at both ends of every window."""

    clock: Ticks = 0

    def begin(self, now: Ticks) -> Ticks | None:
        assert now >= self.clock
        end = super().begin(now)
        if end is None:
            assert not self.requests(), "idle while a request waits"
        else:
            assert end > now
        for rank in self.ranks:
            disciplined = self.limits.discipline != VLLM
            assert not rank.waiting_count or disciplined or must_wait(rank), "work left undone"
        return end

    def cut(self, now: Ticks) -> Ticks | None:
        end = super().cut(now)
        assert end is None or end > now
        assert super().cut(now) is None, "a second cut at the same instant changes something"
        return end

    def end(self, now: Ticks) -> list[Request]:
        assert now > self.clock
        self.clock = now
        finished = super().end(now)
        self.assert_blocks()
        return finished

    def assert_blocks(self) -> None:
        for rank in self.ranks:
            assert rank.free_blocks + blocks_held(rank) == self.limits.kv_blocks


def watched(cluster: Cluster, seed: int | None = None) -> list[Replica]:
    """The cluster's replicas, with noise when there is a seed: half of the shortest step, on average."""
    rng, mean = np.random.default_rng(seed), min(cluster.law.dense_ps) // 2
    noise = [None if seed is None else StepNoise(rng, mean, SHAPE) for _ in range(cluster.replicas)]
    return [WatchedReplica(i, cluster.limits, cluster.law, cluster.ranks, noise[i]) for i in range(cluster.replicas)]


@pytest.mark.interpreted
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_blocks_are_conserved_work_is_done_and_time_moves_on(first: int) -> None:
    for seed in range(first, first + 50):
        cluster = seeded_cluster(seed)
        replicas = watched(cluster)
        live(cluster, replicas)
        if cluster.close_at is None:
            assert all(rank.free_blocks == cluster.limits.kv_blocks for replica in replicas for rank in replica.ranks)


@pytest.mark.interpreted
@pytest.mark.parametrize("first", range(0, 150, 50))
def test_the_same_holds_under_a_discipline_but_that_it_may_let_work_wait(first: int) -> None:
    for seed in range(first, first + 50):
        cluster = disciplined_cluster(seed)
        replicas = watched(cluster)
        live(cluster, replicas)
        if cluster.close_at is None:
            assert all(rank.free_blocks == cluster.limits.kv_blocks for replica in replicas for rank in replica.ranks)


@pytest.mark.interpreted
def test_the_same_holds_when_steps_take_random_times() -> None:
    lawful = (cluster for cluster in map(seeded_cluster, range(100)) if min(cluster.law.dense_ps) > 1)
    for seed, cluster in enumerate(lawful):
        live(cluster, watched(cluster, seed))


# -- cuts --------------------------------------------------------------------------------------------------


def decoding(replica: Replica, tokens: int = STEPS + 1) -> Ticks:
    """Bring ``replica`` to the boundary after which one request has only decodes to go; that boundary."""
    replica.submit(Request(0, 0, 4, 4, tokens))
    end = replica.begin(0)
    assert end is not None
    replica.end(end)
    return end


def lone_replica(noise: StepNoise | None = None, jump: bool = True) -> Replica:
    limits = EngineLimits(4, 64, 8192, 16, 512)
    return Replica(0, limits, StepTime([DENSE] * 65, [0] * 5, [KV] * 5, 1), noise=noise, jump=jump)


def boundaries(start: Ticks) -> list[Ticks]:
    """Ends of the decode steps, summed one by one."""
    ends = [start]
    for step in range(STEPS):
        ends.append(ends[-1] + DENSE + KV * (5 + step))
    return ends


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_a_cut_ends_the_window_at_the_first_boundary_after_the_instant(first: float, second: float) -> None:
    replica = lone_replica()
    start = decoding(replica)
    end = replica.begin(start)
    ends = boundaries(start)
    assert end == ends[-1]
    for now in (start + int(first * (end - start)), start + int(first * second * (end - start))):
        after = next(tick for tick in ends if tick > now)
        assert replica.cut(now) == (after if after < end else None)
        assert replica.cut(now) is None
        end = after


@given(st.integers(0, STEPS - 1))
def test_a_cut_at_a_boundary_leaves_the_step_that_begins_there_under_way(step: int) -> None:
    replica = lone_replica()
    start = decoding(replica)
    replica.begin(start)
    ends = boundaries(start)
    assert (replica.cut(ends[step]) or ends[-1]) == ends[step + 1]


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 2**32 - 1))
def test_a_noisy_cut_is_after_the_instant_and_a_noisy_stop_is_not(share: float, seed: int) -> None:
    replica = lone_replica(StepNoise(np.random.default_rng(seed), MEAN_NOISE, SHAPE))
    start = decoding(replica)
    end = replica.begin(start)
    assert end is not None
    now = start + int(share * (end - start))
    cut = replica.cut(now) or end
    assert now < cut <= end
    assert replica.cut(now) is None
    stopped = replica.stop(now)
    assert stopped is None or stopped <= now < cut


# -- noise -------------------------------------------------------------------------------------------------


def time_of_decodes(seed: int, jump: bool, cuts: int = 0) -> Ticks:
    """Ticks of ``STEPS`` noisy decode steps, in one window, step by step, or cut at random instants."""
    rng = np.random.default_rng((seed, jump, cuts))
    replica = lone_replica(StepNoise(rng, MEAN_NOISE, SHAPE), jump)
    start = now = decoding(replica)
    while (end := replica.begin(now)) is not None:
        if cuts:
            cuts -= 1
            end = replica.cut(now + int(rng.random() * (end - now))) or end
        replica.end(end)
        now = end
    return now - start


@pytest.mark.parametrize(("jump", "cuts"), [(True, 0), (False, 0), (True, 3)])
def test_noisy_windows_have_the_mean_and_the_variance_of_a_sum_of_gamma_steps(jump: bool, cuts: int) -> None:
    runs = 1500
    times = np.array([time_of_decodes(seed, jump, cuts) for seed in range(runs)], dtype=float)
    mean, variance = boundaries(0)[-1], STEPS * MEAN_NOISE**2 / SHAPE
    excess = 6 / (STEPS * SHAPE)
    assert abs(times.mean() - mean) < 4 * np.sqrt(variance / runs)
    assert abs(times.var(ddof=1) - variance) < 4 * variance * np.sqrt((2 + excess) / runs)


@settings(max_examples=50)
@given(st.integers(1, 10_000), st.integers(0, 2**32 - 1), st.data())
def test_the_noise_of_a_window_is_one_growing_path(steps: int, seed: int, data: st.DataObject) -> None:
    noise = StepNoise(np.random.default_rng(seed), MEAN_NOISE, SHAPE)
    noise.open(steps)
    looks = data.draw(st.lists(st.integers(1, steps), max_size=20))
    seen = {look: noise.ticks(look) + look * MEAN_NOISE for look in looks}
    assert all(noise.ticks(look) + look * MEAN_NOISE == extra for look, extra in seen.items())
    assert sorted(seen.values()) == [seen[look] for look in sorted(seen)]


# -- the fleet ---------------------------------------------------------------------------------------------


class Listener:
    def __init__(self) -> None:
        self.ends: list[int] = []

    def finished(self, request: Request, replica: int) -> None:
        self.ends.append(request.sample)


@pytest.mark.interpreted
def test_resumed_before_the_pause_took_hold_the_step_under_way_runs_on() -> None:
    clock, log, listener = SimClock(), RunLog(), Listener()
    fleet = SimFleet(clock, [WatchedReplica(0, lone_replica().limits, lone_replica().law)], log, listener)
    fleet.submit(0, Request(0, 0, 4, 4, STEPS + 1))

    def hesitate(_: object) -> None:
        fleet.pause(lambda: None)
        fleet.resume()

    clock.at(5 * DENSE, CONTROLLER, hesitate)
    clock.run()
    prefill = DENSE + 10
    assert listener.ends == [0]
    assert log.windows[-1].end == boundaries(prefill)[-1]
    assert sum(row.steps for row in log.windows) == STEPS + 1
