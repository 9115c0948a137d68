"""The controller against a scripted world without a clock: events in any order that the protocol of replies allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlsim.controller import Controller
from rlsim.core.commands import Abort, CallTool, Command, Score, SetRole, Submit, Sync, Train
from rlsim.core.events import (
    Aborted,
    Cut,
    Event,
    Finished,
    RoleSet,
    Scored,
    Started,
    Synced,
    ToolReturned,
    Trained,
)
from rlsim.core.view import Sample, Shape, View
from rlsim.policies.policy import Policy
from rlsim.policies.protocols import Batch
from rlsim.policies.registry import make_part

PROMPT_TOKENS = 7

ADMISSIONS: list[dict[str, Any]] = [
    {"use": "barrier"},
    {"use": "one-step-off"},
    {"use": "cumulative-capacity", "max_staleness": 1, "max_open_groups": 3},
    {"use": "target-reservation"},
    {"use": "over-sample", "over_sampling_batch_size": 4},
    {"use": "fixed-pool", "partial_rollout_pool_size": 5},
    {"use": "free-running", "llm_max_rollouts": 2},
    {"use": "free-running", "llm_max_rollouts": 2, "max_lag_samples": 2},
    {"use": "lead-gate", "max_inflight": 5},
    {"use": "one-for-one", "async_steps": 1},
    {"use": "engine-queue", "concurrency_per_engine": 2},
    {"use": "bounded-buffer", "max_concurrent_samples": 5},
    {"use": "bounded-buffer", "max_concurrent_samples": 7, "granularity": "group", "capacity_factor": 1.0},
    {"use": "refill-empty", "replica_batch": 4},
]
BATCHINGS: list[dict[str, Any]] = [
    {"use": "complete-groups"},
    {"use": "complete-groups", "order": "oldest"},
    {"use": "exact-target"},
    {"use": "micro-batch-stream"},
    {"use": "micro-batch-stream", "takes_all": True},
    {"use": f"{__name__}:Updates"},
]
UPDATES: list[dict[str, Any]] = [
    *(
        {"use": "publish", "mode": mode, "every_steps": steps}
        for mode in ("drain", "abort", "keep", "pull")
        for steps in (1, 2)
    ),
    {"use": "deferred", "max_steps_behind": 2},
]
LEFTOVERS: list[dict[str, Any]] = [
    {"use": "keep-all"},
    *(
        {"use": "end-round", "keeps_unfinished": unfinished, "keeps_surplus": surplus, "recycles": recycles}
        for unfinished in (False, True)
        for surplus in (False, True)
        for recycles in (False, True)
    ),
    {"use": "drop-old", "max_age_versions": 0, "buffer_groups": 2, "recycles": True},
    {"use": "drop-old", "max_open_age_versions": 0},
    {"use": "drop-old", "max_open_age_versions": 0, "recycles": True},
    {"use": "off-policy-steps", "max_steps": 0, "in_flight": True, "lead_batches": 1},
]
DISPATCHES: list[dict[str, Any]] = [
    *({"use": name} for name in ("least-in-flight", "round-robin", "sticky", "group-affinity")),
    {"use": "fill-empty", "replica_batch": 4},
]
ORDERINGS: list[dict[str, Any]] = [
    {"use": "fcfs"},
    {"use": f"{__name__}:Chunks", "shares_kv": False},
    {"use": f"{__name__}:Chunks", "shares_kv": True},
]
MIGRATIONS: list[dict[str, Any]] = [
    {"use": "stay"},
    {"use": f"{__name__}:Restless", "transfers_kv": False},
    {"use": f"{__name__}:Restless", "transfers_kv": True},
]
ALLOCATIONS: list[dict[str, Any]] = [
    {"use": "uniform", "redundancy": redundancy, "aborts_surplus": aborts}
    for redundancy, aborts in ((0, True), (1, True), (1, False), (2, True), (2, False))
]
PLACEMENTS: list[dict[str, Any]] = [{"use": "colocated"}, {"use": "disaggregated"}]

CHUNK_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Updates:
    """A step in parts of one group, each with an optimizer update of its own."""

    def start(self, shape: Shape) -> _Updating:
        return _Updating()


class _Updating:
    def __init__(self) -> None:
        self._taken = 0

    def select(self, view: View) -> Batch | None:
        if not view.ready:
            return None
        self._taken = (self._taken + 1) % view.shape.prompts_per_step
        return Batch((next(iter(view.ready)),), last=not self._taken, updates=1)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Calls of a few tokens, ranked by what the sample has made."""

    shares_kv: bool
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def start(self, shape: Shape) -> Chunks:
        return self

    def priority(self, view: View, sample: Sample) -> int:
        return sample.response_tokens

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return CHUNK_TOKENS


@dataclass(frozen=True, slots=True)
class Restless:
    """Moves every third sample that generates, whether or not it is being cut already."""

    transfers_kv: bool

    def start(self, shape: Shape) -> Restless:
        return self

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        chosen = [sample for sample in view.generating_samples.values() if not (sample.sample + view.version) % 3]
        return [(sample, (sample.replica + 1) % view.shape.replicas) for sample in chosen]


SHAPE = Shape(prompts_per_step=2, group_size=3, replicas=2, max_num_seqs=8)


def fresh(specs: dict[str, dict[str, Any]], scores: bool) -> Controller:
    """A controller of these parts, whether or not they go together."""
    parts: dict[str, Any] = {choice: make_part(choice, spec, choice).start(SHAPE) for choice, spec in specs.items()}
    return Controller(Policy(**parts), SHAPE, lambda draw: PROMPT_TOKENS, scores)


class Tally:
    """What one sample is known to have made, counted outside the controller."""

    def __init__(self) -> None:
        self.response = self.turn_made = self.tool = self.turn = 0
        self.ended = False


class ScriptedWorld(RuleBasedStateMachine):
    """Owes replies for the commands it was given and pays them in an order that hypothesis chooses."""

    @initialize(
        admission=st.sampled_from(ADMISSIONS),
        batching=st.sampled_from(BATCHINGS),
        update=st.sampled_from(UPDATES),
        leftovers=st.sampled_from(LEFTOVERS),
        dispatch=st.sampled_from(DISPATCHES),
        placement=st.sampled_from(PLACEMENTS),
        ordering=st.sampled_from(ORDERINGS),
        migration=st.sampled_from(MIGRATIONS),
        allocation=st.sampled_from(ALLOCATIONS),
        scores=st.booleans(),
    )
    def start(self, scores: bool, **specs: dict[str, Any]) -> None:
        self.specs, self.scores = specs, scores
        self.launched = SHAPE.group_size + specs["allocation"]["redundancy"]
        self.attempts: set[tuple[int, int, int]] = set()
        self.controller = fresh(specs, scores)
        self.calls: dict[int, Submit] = {}
        self.versions: dict[int, int] = {}
        self.tools: set[int] = set()
        self.scoring: set[int] = set()
        self.trainer: list[Train | Sync | SetRole] = []
        self.aborts: list[list[Submit]] = []
        """Calls that each abort under way is about; a later call of the same sample is not meant."""
        self.asleep = False
        self.version = 0
        self.tallies: dict[int, Tally] = {}
        self.tokens = 0
        self.record: list[tuple[int, Event, list[Command]]] = []
        self.tell(Started())

    # -- replies ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls and not self.asleep)
    @rule(data=st.data(), tokens=st.integers(0, 4), tool=st.booleans())
    def a_call_ends(self, data: st.DataObject, tokens: int, tool: bool) -> None:
        call = self.calls.pop(data.draw(st.sampled_from(sorted(self.calls))))
        tokens = min(tokens, call.max_tokens or tokens)
        tally = self.made(call, tokens)
        tally.turn_made = 0
        tally.ended = not (tool or self.scores)
        self.tell(
            Finished(call.sample, call.replica, tokens, self.segments(call, tokens), "tool" if tool else "stop", 0)
        )

    @precondition(lambda self: not self.asleep and any(call.max_tokens for call in self.calls.values()))
    @rule(data=st.data())
    def a_call_ends_with_its_chunk(self, data: st.DataObject) -> None:
        call = self.calls.pop(data.draw(st.sampled_from(sorted(self.calls))))
        self.made(call, call.max_tokens).turn_made += call.max_tokens
        self.tell(
            Finished(call.sample, call.replica, call.max_tokens, self.segments(call, call.max_tokens), "chunk", 0)
        )

    @precondition(lambda self: self.aborts)
    @rule(data=st.data(), tokens=st.integers(0, 4))
    def an_abort_answers(self, data: st.DataObject, tokens: int) -> None:
        asked = self.aborts.pop(data.draw(st.integers(0, len(self.aborts) - 1)))
        cuts = []
        for call in asked:
            if self.calls.get(call.sample) is call:
                del self.calls[call.sample]
                made = min(tokens, call.max_tokens or tokens)
                self.made(call, made).turn_made += made
                cuts.append(Cut(call.sample, call.replica, made, self.segments(call, made)))
        self.tell(Aborted(tuple(cuts)))

    @precondition(lambda self: self.tools)
    @rule(data=st.data(), tokens=st.integers(0, 4))
    def a_tool_returns(self, data: st.DataObject, tokens: int) -> None:
        sample = data.draw(st.sampled_from(sorted(self.tools)))
        self.tools.remove(sample)
        self.tallies[sample].tool += tokens
        self.tallies[sample].turn += 1
        self.tell(ToolReturned(sample, tokens))

    @precondition(lambda self: self.scoring)
    @rule(data=st.data())
    def a_score_arrives(self, data: st.DataObject) -> None:
        sample = data.draw(st.sampled_from(sorted(self.scoring)))
        self.scoring.remove(sample)
        self.tallies[sample].ended = True
        self.tell(Scored(sample))

    @precondition(lambda self: self.trainer)
    @rule()
    def the_trainer_answers(self) -> None:
        match self.trainer.pop():
            case Train(step=step):
                self.tell(Trained(step))
            case Sync(version=version):
                self.asleep, self.version = False, version
                self.tell(Synced(version))
            case SetRole(role=role):
                self.asleep = True
                self.tell(RoleSet(role))

    @precondition(lambda self: not self.can_answer())
    @rule()
    def nothing_more_can_happen(self) -> None:
        """These parts do not go together (checked elsewhere); the books hold all the same."""

    def can_answer(self) -> bool:
        owed = (self.calls and not self.asleep, self.tools, self.scoring, self.trainer, self.aborts)
        return any(bool(one) for one in owed)

    def made(self, call: Submit, tokens: int) -> Tally:
        self.tokens += tokens
        tally = self.tallies[call.sample]
        tally.response += tokens
        return tally

    def segments(self, call: Submit, tokens: int) -> tuple[tuple[int, int], ...]:
        pulled = self.specs["update"].get("mode") == "pull"
        return ((self.versions[call.sample] if pulled else self.version, tokens),) if tokens else ()

    # -- commands ---------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        now = len(self.record)
        waiting, known = list(self.controller.view.recycled), len(self.attempts)
        commands = self.controller.handle(now, event)
        self.record.append((now, event, commands))
        for command in commands:
            match command:
                case Submit():
                    self.submitted(command)
                case CallTool(sample=sample):
                    assert sample not in self.calls.keys() | self.tools | self.scoring
                    self.tools.add(sample)
                case Score(sample=sample):
                    assert sample not in self.calls.keys() | self.tools | self.scoring
                    self.scoring.add(sample)
                case Abort(samples=samples):
                    asked = [self.calls[sample] for sample in samples]
                    assert not any(call is other for call in asked for other in self.cut())
                    self.aborts.append(asked)
                case Train() | Sync() | SetRole():
                    assert not self.trainer
                    self.trainer.append(command)
                    if isinstance(command, Sync) and command.mode == "drain":
                        assert not self.calls
                        assert not self.tools
        self.redrawn_in_order(waiting, [made for made in commands if isinstance(made, Submit)], known)

    def redrawn_in_order(self, waiting: list[tuple[int, int]], calls: list[Submit], known: int) -> None:
        """Prompts given back are drawn again in the order in which they were."""
        if len(self.attempts) == known:
            return
        again = [(c.draw, c.recycle) for c in calls if c.recycle and not c.member and not c.turn and not c.made_tokens]
        left = waiting[len(again) :]
        assert [one for one in again if one in waiting] == waiting[: len(again)]
        assert list(self.controller.view.recycled)[: len(left)] == left

    def submitted(self, call: Submit) -> None:
        assert call.sample not in self.calls.keys() | self.tools | self.scoring
        assert not self.asleep
        tally = self.tallies.setdefault(call.sample, Tally())
        assert not tally.ended
        assert (call.turn, call.made_tokens) == (tally.turn, tally.turn_made)
        assert call.context_tokens == PROMPT_TOKENS + tally.response + tally.tool
        assert call.made_tokens or not call.kv_from_pool
        if call.turn == call.made_tokens == tally.response == tally.tool == 0 and call.sample not in self.versions:
            assert (call.draw, call.recycle, call.member) not in self.attempts
            self.attempts.add((call.draw, call.recycle, call.member))
        self.calls[call.sample] = call
        self.versions[call.sample] = self.version

    def cut(self) -> list[Submit]:
        """Calls under way that an abort is about."""
        return [call for asked in self.aborts for call in asked if self.calls.get(call.sample) is call]

    # -- what holds after every event -------------------------------------------------------------------

    @invariant()
    def loads_count_the_calls_in_flight(self) -> None:
        count = [0] * SHAPE.replicas
        for call in self.calls.values():
            count[call.replica] += 1
        loads = self.controller.view.loads
        assert loads.in_flight == count
        assert loads.in_flight[loads.least()] == min(count)

    @invariant()
    def running_samples_generate_or_are_in_tools_or_being_scored(self) -> None:
        assert self.controller.view.running_samples == len(self.calls) + len(self.tools) + len(self.scoring)

    @invariant()
    def open_groups_are_those_begun_and_neither_complete_nor_dropped(self) -> None:
        view, size = self.controller.view, self.launched
        ended = Counter(sample // size for sample, tally in self.tallies.items() if tally.ended)
        begun = {sample // size for sample in self.tallies}
        complete = {group for group, count in ended.items() if count >= SHAPE.group_size}
        doomed = {sample.sample for sample in self.controller.samples.values() if sample.doomed}
        given_up = {sample // size for sample in self.controller.fates.keys() | doomed}
        assert set(view.open) == begun - complete - given_up
        assert view.started_groups == len(begun)

    @invariant()
    def a_complete_group_has_the_members_that_it_needs(self) -> None:
        for group in self.controller.view.ready.values():
            assert len(group.members) == SHAPE.group_size
            assert all(self.tallies[sample.sample].ended and not sample.doomed for sample in group.members)

    @invariant()
    def a_round_that_is_cleared_cuts_every_call(self) -> None:
        if self.controller.view.trainer == "clearing":
            assert {call.sample for call in self.cut()} == self.calls.keys()

    @invariant()
    def prompts_are_given_back_once_for_each_group_given_up(self) -> None:
        view = self.controller.view
        recycled = sum(self.last_attempts().values()) + len(view.recycled)
        assert recycled == (view.dropped_groups if self.specs["leftovers"].get("recycles") else 0)

    def last_attempts(self) -> dict[int, int]:
        """How often each prompt was given back, by draw."""
        last: dict[int, int] = {}
        for draw, recycle, _ in self.attempts:
            last[draw] = max(recycle, last.get(draw, 0))
        return last

    @invariant()
    def no_sample_is_in_two_places(self) -> None:
        view = self.controller.view
        ready = [sample.sample for group in view.ready.values() for sample in group.members]
        places = [*self.calls, *self.tools, *self.scoring, *view.parked, *ready, *self.controller.fates]
        assert len(places) == len(set(places))
        assert not self.controller.samples.keys() & self.controller.fates.keys()

    @invariant()
    def every_token_that_was_made_is_in_the_ledger(self) -> None:
        settled = sum(tokens for _, tokens in self.controller.fates.values())
        live = self.controller.samples.values()
        assert settled + sum(sample.response_tokens for sample in live) == self.tokens
        assert all(sum(tokens for _, tokens in one.segments) == one.response_tokens for one in live)

    @invariant()
    def versions_and_steps_never_run_ahead_of_what_was_answered(self) -> None:
        view = self.controller.view
        assert view.version == self.version
        assert view.steps_done <= view.steps_begun <= view.steps_done + 1
        assert self.controller.iterations <= view.steps_done

    def teardown(self) -> None:
        if hasattr(self, "specs"):
            again = fresh(self.specs, self.scores)
            assert [again.handle(now, event) for now, event, _ in self.record] == [made for *_, made in self.record]


ScriptedWorld.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_order_of_replies_keeps_the_books = ScriptedWorld.TestCase


# -- orders that have bitten ---------------------------------------------------------------------------

SLIME: dict[str, dict[str, Any]] = {
    "admission": {"use": "over-sample", "over_sampling_batch_size": 3},
    "batching": {"use": "complete-groups"},
    "update": {"use": "publish", "mode": "drain"},
    "leftovers": {"use": "end-round", "keeps_unfinished": False},
    "dispatch": {"use": "least-in-flight"},
    "placement": {"use": "colocated"},
}


def stop(call: Submit, tokens: int = 1) -> Finished:
    return Finished(call.sample, call.replica, tokens, ((0, tokens),) if tokens else (), "stop", 0)


def opened(specs: dict[str, dict[str, Any]], scores: bool = False) -> tuple[Controller, list[Submit]]:
    controller = fresh(specs, scores)
    return controller, [made for made in controller.handle(0, Started()) if isinstance(made, Submit)]


def test_a_call_that_ends_between_abort_and_aborted_keeps_its_tokens_and_its_group_is_surplus() -> None:
    controller, calls = opened(SLIME)
    for call in calls[:5]:
        controller.handle(1, stop(call))
    (abort,) = controller.handle(2, stop(calls[5]))
    assert abort == Abort((6, 7, 8))
    assert [controller.handle(3, stop(call, 5)) for call in calls[6:8]] == [[], []]
    assert controller.handle(4, stop(calls[8], 5)) == [SetRole("train")]
    assert controller.handle(5, Aborted(())) == []
    assert {sample: controller.fates[sample] for sample in (6, 7, 8)} == dict.fromkeys(
        (6, 7, 8), ("dropped_surplus", 5)
    )


def test_a_score_of_an_aborted_group_is_waited_for_and_then_given_up_with_it() -> None:
    controller, calls = opened(SLIME, scores=True)
    for call in calls[:7]:
        controller.handle(1, stop(call))
    for sample in range(5):
        controller.handle(2, Scored(sample))
    assert controller.handle(3, Scored(5)) == [Abort((7, 8))]
    assert controller.handle(4, Aborted(tuple(Cut(sample, 0, 0, ()) for sample in (7, 8)))) == []
    assert controller.view.trainer == "clearing"
    assert controller.handle(5, Scored(6)) == [SetRole("train")]
    assert {controller.fates[sample][0] for sample in (6, 7, 8)} == {"dropped_surplus"}


def test_a_tool_that_returns_while_a_round_is_cleared_waits_for_the_next_round() -> None:
    controller, calls = opened({**SLIME, "leftovers": {"use": "end-round"}})
    controller.handle(1, Finished(6, calls[6].replica, 2, ((0, 2),), "tool", 0))
    for call in calls[:6]:
        controller.handle(2, stop(call))
    controller.handle(3, Aborted(tuple(Cut(call.sample, call.replica, 1, ((0, 1),)) for call in calls[7:])))
    assert controller.handle(4, ToolReturned(6, 9)) == [SetRole("train")]
    assert list(controller.view.parked) == [6, 7, 8]
    for event in (RoleSet("train"), Trained(0), RoleSet("rollout")):
        controller.handle(5, event)
    resumed = [made for made in controller.handle(6, Synced(1)) if isinstance(made, Submit)][:3]
    assert [(made.sample, made.turn, made.made_tokens, made.context_tokens) for made in resumed] == [
        (6, 1, 0, PROMPT_TOKENS + 11),
        (7, 0, 1, PROMPT_TOKENS + 1),
        (8, 0, 1, PROMPT_TOKENS + 1),
    ]


def test_shared_engines_wake_with_new_weights_even_if_the_update_part_would_wait() -> None:
    specs = {**SLIME, "update": {"use": "publish", "mode": "drain", "every_steps": 2}}
    controller, calls = opened({**specs, "admission": {"use": "over-sample"}})
    for call in calls:
        controller.handle(1, stop(call))
    for event in (RoleSet("train"), Trained(0)):
        controller.handle(2, event)
    assert controller.handle(3, RoleSet("rollout")) == [Sync(1, "drain")]


def test_calls_of_no_tokens_end_a_batch_like_any_other() -> None:
    controller, calls = opened({**SLIME, "admission": {"use": "over-sample"}})
    for call in calls[:-1]:
        assert controller.handle(1, stop(call, 0)) == []
    assert controller.handle(1, stop(calls[-1], 0)) == [SetRole("train")]


@pytest.mark.parametrize("seats", [1, 2])
def test_a_group_begun_at_the_end_of_its_lag_is_let_in_to_its_last_member(seats: int) -> None:
    admission = {"use": "free-running", "llm_max_rollouts": seats, "max_lag_samples": 0}
    specs = {**SLIME, "admission": admission, "leftovers": {"use": "keep-all"}, "placement": {"use": "disaggregated"}}
    controller, calls = opened(specs)
    ended: list[int] = []
    while calls:
        call = calls.pop(0)
        ended.append(call.sample)
        made = controller.handle(1, stop(call))
        calls += [one for one in made if isinstance(one, Submit)]
    assert ended == list(range(6))
    assert controller.view.gate == "staleness"
    assert made == [Train(0, tuple(range(6)))]
