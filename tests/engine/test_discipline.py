"""What the rules of a discipline promise: memory that lasts, steps in time, few prefills at once, none left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from cluster import Cluster, Sample, Turn, jumping, live
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded import disciplined_cluster, seeded_cluster

from rlsim.core.ticks import Ticks
from rlsim.engine.admission import Forecast, Reservation
from rlsim.engine.discipline import VLLM, AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime
from rlsim.results.statistics import interval

LONGEST = 2100
TIGHT = EngineLimits(64, 2048, LONGEST, 16, 600, enable_prefix_caching=False)
"""KV for 9,600 tokens: some 40 mean calls, or four of the longest."""


def law(limits: EngineLimits, kv_ps: int = 1) -> StepTime:
    """A step of ``t`` tokens takes 100 + t ticks and ``kv_ps`` for every KV token that a decode reads."""
    tokens, seats = limits.max_num_batched_tokens + 1, limits.max_num_seqs + 1
    return StepTime([100 + n for n in range(tokens)], [0] * seats, [kv_ps] * seats, 0)


@dataclass(slots=True)
class Life:
    """A replica that was given all calls at once, from the first step to the last."""

    preemptions: int = 0
    steps: int = 0
    call_steps: int = 0
    """Steps times the calls that ran in them."""
    ends: Ticks = 0
    order: list[int] = field(default_factory=list)

    @property
    def concurrency(self) -> float:
        return self.call_steps / self.steps


def lived(limits: EngineLimits, requests: Sequence[Request]) -> Life:
    replica, life = Replica(0, limits, law(limits)), Life()
    for request in requests:
        replica.submit(request)
    while (end := replica.begin(life.ends)) is not None:
        (rank,) = replica.ranks
        life.steps += replica.steps
        life.call_steps += replica.steps * rank.running_count
        life.ends = end
        replica.end(end)
        life.order += [request.sample for request in rank.first_tokens]
    assert not replica.requests(), "calls wait for ever"
    life.preemptions = replica.ranks[0].preemptions
    return life


def under(limits: EngineLimits, **rules: object) -> EngineLimits:
    return replace(limits, discipline=Discipline(**rules))  # type: ignore[arg-type]


# -- memory ------------------------------------------------------------------------------------------------


def long_tailed(seed: int, calls: int = 400) -> list[Request]:
    """Outputs with a median of 100 tokens, a mean of some 165 and a cap of 2,000."""
    outputs = np.random.default_rng(seed).lognormal(np.log(100), 1, calls)
    lengths = [int(min(2000, max(1, output))) for output in outputs]
    return [Request(sample, sample, 64, 64, tokens, max_tokens=2000) for sample, tokens in enumerate(lengths)]


def test_past_future_preempts_less_than_aggressive_and_runs_more_calls_than_conservative() -> None:
    rules = {"aggressive": None, "past_future": PastFuture(), "conservative": Conservative()}
    lives = {
        name: [lived(under(TIGHT, admission=rule), long_tailed(seed)) for seed in range(10)]
        for name, rule in rules.items()
    }
    pairs = list(zip(lives["aggressive"], lives["past_future"], lives["conservative"], strict=True))
    saved = interval([greedy.preemptions - careful.preemptions for greedy, careful, _ in pairs])
    gained = interval([careful.concurrency / timid.concurrency for _, careful, timid in pairs])
    assert saved.low > 0, saved
    assert gained.low > 2, gained
    assert all(timid.preemptions == 0 for _, _, timid in pairs)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_conservative_never_preempts(first: int) -> None:
    greedy = 0
    for seed in range(first, first + 50):
        cluster = seeded_cluster(seed)
        kept = tuple(replace(update, reset=False) for update in cluster.updates)
        cluster = replace(cluster, updates=kept, states_longest=True)
        limits = under(cluster.limits, admission=Conservative())
        assert preemptions(replace(cluster, limits=limits)) == 0
        greedy += preemptions(cluster)
    assert greedy > 10


def preemptions(cluster: Cluster) -> int:
    replicas = jumping(cluster)
    live(cluster, replicas)
    return sum(rank.preemptions for replica in replicas for rank in replica.ranks)


def running(sample: int, context: int, made: int) -> Request:
    """A call that decodes since step 0."""
    request = Request(sample, sample, context, context, 10**6)
    request.tokens, request.joined_at, request.finish_at = context + made, 0, 10**6
    return request


def forecast(history: Sequence[int], blocks: int, rule: PastFuture) -> Forecast:
    made = Forecast(rule, EngineLimits(8, 64, 100, 1, blocks))
    made.learn([finished(output) for output in history])
    return made


def finished(output: int) -> Request:
    request = Request(99, 0, 1, 1, output)
    request.tokens = 1 + output
    return request


def test_the_peak_is_that_of_a_table_made_by_hand() -> None:
    """Rests 8, 3 and 1 on 12, 17 and 5 tokens: 34 + 3 after 1 step, 29 + 6 after 3, 12 + 8 after 8."""
    rule = PastFuture(quantile=0.5, reserved_fraction=0, initial_calls=0)
    batch = [running(0, 10, 2), running(1, 10, 7)]
    for blocks, admitted in ((37, True), (36, False)):
        future = forecast([1, 10, 10, 10], blocks, rule)
        assert [future.predicted(request, request.tokens - 10) for request in batch] == [10, 10]
        newcomer = Request(2, 2, 5, 5, 9, max_tokens=1)
        assert future.test(newcomer, batch, step=0) == (admitted, 3)
        assert future.test(newcomer, batch, step=2)[1] == 1, "one token a step brings the surprise nearer"


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 60), max_size=30),
    st.integers(0, 60),
    st.floats(0, 1, exclude_min=True),
    st.integers(1, 12),
)
def test_a_prediction_is_the_quantile_of_what_is_longer(
    history: list[int], made: int, level: float, remembered: int
) -> None:
    rule = PastFuture(quantile=level, history_calls=remembered, initial_calls=0)
    longer = [output for output in history[-remembered:] if output > made]
    predicted = forecast(history, 10, rule).predicted(Request(0, 0, 1, 1, 1), made)
    if not longer:
        assert predicted == 99, "nothing longer was seen: the longest sequence"
    else:
        assert predicted in longer
        assert sum(output < predicted for output in longer) < level * len(longer)
        assert sum(output <= predicted for output in longer) >= level * len(longer)


def test_drawn_predictions_have_the_law_of_the_history_and_are_the_same_again() -> None:
    future = forecast(range(1, 11), 10, PastFuture(initial_calls=0, seed=3))
    calls = [Request(sample, 0, 1, 1, 1) for sample in range(2000)]
    drawn = [future.predicted(call, 4) for call in calls]
    assert drawn == [future.predicted(call, 4) for call in calls]
    assert set(drawn) == set(range(5, 11))
    assert abs(np.mean(drawn) - 7.5) < 4 * np.std(range(5, 11)) / np.sqrt(2000)


def test_without_a_past_the_longest_output_is_predicted() -> None:
    for rule in (PastFuture(quantile=0.5, initial_calls=0), PastFuture(quantile=0.5, initial_calls=7)):
        future = forecast([], 10, rule)
        assert future.predicted(Request(0, 0, 1, 1, 1, max_tokens=40), 3) == 40
        assert future.predicted(Request(0, 0, 1, 1, 1), 3) == 99


def test_an_empty_engine_admits_what_no_reserve_would_allow() -> None:
    limits = EngineLimits(8, 64, 64, 4, 16, enable_prefix_caching=False)
    calls = [Request(sample, sample, 30, 30, 34) for sample in range(5)]
    for rule in (Conservative(0.9), PastFuture(reserved_fraction=0.9)):
        assert lived(under(limits, admission=rule), calls).order == list(range(5))
        calls = [Request(sample, sample, 30, 30, 34) for sample in range(5)]


@pytest.mark.interpreted
@pytest.mark.parametrize("rule", [Conservative, PastFuture])
def test_tests_of_memory_do_not_grow_with_tokens(
    rule: type[Conservative | PastFuture], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times the tokens, ten times the memory: as many tests, bounded by the calls that come and go."""
    counts = []
    for scale in (1, 10):
        tests = [0]
        for kind in (Forecast, Reservation):
            monkeypatch.setattr(kind, "test", counting(kind.test, tests))
        limits = replace(TIGHT, max_model_len=LONGEST * scale, kv_blocks=600 * scale)
        calls = [scaled(call, scale) for call in long_tailed(0)]
        lived(under(limits, admission=rule()), calls)
        counts.append(tests[0])
    assert counts[1] < 1.2 * counts[0]
    assert counts[1] < 4 * 400


def counting(test, tests: list[int]):  # type: ignore[no-untyped-def]
    def counted(self, *about):  # type: ignore[no-untyped-def]
        tests[0] += 1
        return test(self, *about)

    return counted


def scaled(call: Request, scale: int) -> Request:
    context = call.context_tokens * scale
    return Request(call.sample, call.sample, context, context, call.target_tokens * scale, max_tokens=2000 * scale)


# -- chunks ------------------------------------------------------------------------------------------------


class TimedReplica(Replica):
    """Holds every window to the target and to the cap on prefills."""

    cut_short = crowded = 0

    def __init__(self, index: int, limits: EngineLimits, law: StepTime, ranks: int) -> None:
        super().__init__(index, limits, law, ranks)
        self.predictor = law
        """The law that the rule was installed with, whatever slows the engine down meanwhile."""

    def begin(self, now: Ticks) -> Ticks | None:
        end = super().begin(now)
        if end is not None:
            for rank in self._active:
                if rank.chunks:
                    self._check(rank.decodes, rank.kv_tokens, rank.chunks)
        return end

    def _check(self, decodes: int, kv_tokens: int, chunks: list[tuple[Request, int]]) -> None:
        rules = self.limits.discipline
        if rules.max_concurrent_prefills is not None:
            assert len(chunks) <= rules.max_concurrent_prefills
            self.crowded += len(chunks) == rules.max_concurrent_prefills
        if rules.step_target is not None:
            self._check_time(rules.step_target, decodes, kv_tokens, chunks)

    def _check_time(self, target: StepTarget, decodes: int, kv_tokens: int, chunks: list[tuple[Request, int]]) -> None:
        prefill = sum(tokens for _, tokens in chunks)
        assert self._predicted(decodes, kv_tokens, chunks) <= target.ticks or prefill <= target.min_chunk_tokens
        *before, (request, tokens) = chunks
        budget = self.limits.max_num_batched_tokens - decodes - prefill
        if request.computed + tokens < request.tokens and budget:
            self.cut_short += 1
            assert self._predicted(decodes, kv_tokens, [*before, (request, tokens + 1)]) > target.ticks
            assert prefill >= target.min_chunk_tokens

    def _predicted(self, decodes: int, kv_tokens: int, chunks: list[tuple[Request, int]]) -> float:
        rules = self.limits.discipline
        assert rules.step_target is not None
        tokens = sum(tokens for _, tokens in chunks)
        pairs = sum((request.computed + place) for request, count in chunks for place in range(1, count + 1))
        ticks = self.predictor.mixed(decodes, kv_tokens, len(chunks), tokens, pairs)
        return ticks * rules.step_target.predicted_scale


@pytest.mark.interpreted
def test_no_step_with_prefill_exceeds_the_target_or_the_cap_but_for_the_least_chunk() -> None:
    cut_short = crowded = 0
    for seed in range(300):
        cluster = disciplined_cluster(seed)
        replicas = [TimedReplica(i, cluster.limits, cluster.law, cluster.ranks) for i in range(cluster.replicas)]
        live(cluster, replicas)
        cut_short += sum(replica.cut_short for replica in replicas)
        crowded += sum(replica.crowded for replica in replicas)
    assert cut_short > 100
    assert crowded > 100


def test_a_predictor_that_says_too_much_makes_shorter_chunks() -> None:
    limits = EngineLimits(4, 2048, 4096, 16, 4096, enable_prefix_caching=False)
    ends = []
    for scale in (0.5, 1.0, 2.0):
        paced = under(limits, step_target=StepTarget(400, 10, scale))
        (chunk, *_), _ = first_chunks(paced, 3000)
        assert chunk == {0.5: 700, 1.0: 300, 2.0: 100}[scale]
        ends.append(lived(paced, [Request(0, 0, 3000, 3000, 1)]).steps)
    assert ends == sorted(ends)


def first_chunks(limits: EngineLimits, prompt: int) -> tuple[list[int], Ticks]:
    """Tokens of the first step's chunks, and how long the step takes."""
    replica = Replica(0, limits, law(limits))
    replica.submit(Request(0, 0, prompt, prompt, 1))
    end = replica.begin(0)
    assert end is not None
    return [tokens for _, tokens in replica.ranks[0].chunks], end


def test_prefill_goes_on_when_decodes_alone_exceed_the_target() -> None:
    limits = under(EngineLimits(4, 2048, 4096, 16, 4096, enable_prefix_caching=False), step_target=StepTarget(50, 16))
    assert first_chunks(limits, 40) == ([16], 116)
    assert lived(limits, [Request(0, 0, 40, 40, 1)]).steps == 3


# -- order -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12, unique=True))
def test_without_a_weight_on_waiting_the_shortest_prefill_is_first(prompts: list[int]) -> None:
    limits = under(EngineLimits(1, 64, 64, 4, 16, enable_prefix_caching=False), ageing=AgeingQueue(0, 1))
    calls = [Request(sample, sample, tokens, tokens, 2) for sample, tokens in enumerate(prompts)]
    assert lived(limits, calls).order == sorted(range(len(prompts)), key=prompts.__getitem__)


calls_in_turn = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12
)


@settings(deadline=None)
@given(calls_in_turn, st.integers(1, 3), st.integers(0, 8))
def test_without_a_weight_on_prefill_the_first_come_is_first_served(
    calls: list[tuple[int, int, int]], seats: int, spare_blocks: int
) -> None:
    limits = EngineLimits(seats, 32, 80, 4, 20 + spare_blocks, enable_prefix_caching=False)
    came = np.cumsum([gap for gap, _, _ in calls]).tolist()
    samples = tuple(
        Sample(number, prompt, (Turn(output),), arrival=came[number])
        for number, (_, prompt, output) in enumerate(calls)
    )
    fcfs = Cluster(limits, law(limits), 1, 1, samples, in_flight=1)
    aged = replace(fcfs, limits=under(limits, ageing=AgeingQueue(1, 0)))
    assert live(aged, jumping(aged)) == live(fcfs, jumping(fcfs))


def first_tokens(calls: list[tuple[int, int, int]], ageing: AgeingQueue) -> dict[int, Ticks]:
    """When each of (arrival, prompt, output) got its first token on an engine of one seat."""
    limits = under(EngineLimits(1, 64, 80, 4, 20, enable_prefix_caching=False), ageing=ageing)
    samples = tuple(Sample(n, prompt, (Turn(output),), arrival=came) for n, (came, prompt, output) in enumerate(calls))
    cluster = Cluster(limits, law(limits), 1, 1, samples, in_flight=1)
    return {sample: first for sample, first, *_ in live(cluster, jumping(cluster)).calls}  # type: ignore[misc]


@settings(deadline=None)
@given(calls_in_turn, st.integers(1, 5), st.integers(0, 100))
def test_who_ages_is_overtaken_only_by_shorter_ones_that_come_soon_after(
    calls: list[tuple[int, int, int]], waiting: int, prefill: int
) -> None:
    """No starvation: who comes later by more than prefill/waiting times the difference of the prompts is behind."""
    came = np.cumsum([gap for gap, _, _ in calls]).tolist()
    timed = [(came[number], prompt, output) for number, (_, prompt, output) in enumerate(calls)]
    first = first_tokens(timed, AgeingQueue(waiting, prefill))
    for early, (start, prompt, _) in enumerate(timed):
        for late, (then, other, _) in enumerate(timed):
            if waiting * (then - start) > prefill * (prompt - other) and then > start:
                assert first[early] < first[late]


def test_a_long_prompt_among_a_stream_of_short_ones_starves_without_ageing_and_not_with_it() -> None:
    stream = [(0, 60, 4), *((step * 400, 4, 4) for step in range(40))]
    starved, aged = first_tokens(stream, AgeingQueue(0, 1)), first_tokens(stream, AgeingQueue(1, 100))
    assert starved[0] == max(starved.values())
    assert 0 < sum(aged[other] < aged[0] for other in range(1, 41)) < 20


def test_without_a_rule_the_engine_is_as_without_a_discipline() -> None:
    assert Discipline() == VLLM == TIGHT.discipline
