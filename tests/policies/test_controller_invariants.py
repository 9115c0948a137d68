"""The controller against a scripted world without a clock: events in any order that the protocol of replies allows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from controller_parts import (
    ADMISSIONS,
    ALLOCATIONS,
    BATCHINGS,
    DISPATCHES,
    LEFTOVERS,
    MIGRATIONS,
    ORDERINGS,
    PLACEMENTS,
    PROMPT_TOKENS,
    SHAPE,
    STRATEGIES,
    TURNS,
    UPDATES,
    fresh,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlsim.core.commands import Abort, CallTool, Command, Score, SetRole, Submit, Sync, Train, WakeAt
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
    Woke,
)


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
        allocation=st.one_of(st.sampled_from(ALLOCATIONS), st.sampled_from(STRATEGIES)),
        turns=st.sampled_from(TURNS),
        scores=st.booleans(),
    )
    def start(self, scores: bool, **specs: dict[str, Any]) -> None:
        self.specs, self.scores = specs, scores
        self.launched = SHAPE.group_size + specs["allocation"].get("redundancy", 0)
        self.attempts: set[tuple[int, int, int]] = set()
        self.controller = fresh(specs, scores)
        self.calls: dict[int, Submit] = {}
        self.versions: dict[int, int] = {}
        self.tools: set[int] = set()
        self.scoring: set[int] = set()
        self.trainer: list[Train | Sync | SetRole] = []
        self.timers: list[int] = []
        self.aborts: list[list[Submit]] = []
        """Calls that each abort under way is about; a later call of the same sample is not meant."""
        self.asleep = False
        self.lent = self.never_lends()
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
    @rule(data=st.data(), reward=st.sampled_from([0.0, 1.0]))
    def a_score_arrives(self, data: st.DataObject, reward: float) -> None:
        sample = data.draw(st.sampled_from(sorted(self.scoring)))
        self.scoring.remove(sample)
        self.tallies[sample].ended = True
        self.tell(Scored(sample, reward))

    @precondition(lambda self: self.trainer)
    @rule(accepted=st.booleans(), ess=st.sampled_from([None, 0.2, 0.9]))
    def the_trainer_answers(self, accepted: bool, ess: float | None) -> None:
        match self.trainer.pop():
            case Train(step=step):
                self.tell(Trained(step, ess))
            case Sync(version=version, test=test):
                accepted = accepted or not test
                self.asleep, self.version = False, version if accepted else self.version
                self.tell(Synced(version, accepted))
            case SetRole(role=role, lent=lent):
                self.asleep, self.lent = not lent, role == "rollout"
                self.tell(RoleSet(role))

    @precondition(lambda self: self.timers)
    @rule()
    def a_timer_rings(self) -> None:
        """Late, as live timers do: the clock of this world counts events."""
        at = min(self.timers)
        self.timers.remove(at)
        self.tell(Woke(at))

    @precondition(lambda self: not self.can_answer())
    @rule()
    def nothing_more_can_happen(self) -> None:
        """These parts do not go together (checked elsewhere); the books hold all the same."""

    def can_answer(self) -> bool:
        owed = (self.calls and not self.asleep, self.tools, self.scoring, self.trainer, self.aborts, self.timers)
        return any(bool(one) for one in owed)

    def never_lends(self) -> bool:
        return self.specs["placement"]["use"] in ("colocated", "disaggregated")

    def is_uniform(self) -> bool:
        """Whether samples are numbered group by group, and groups are complete with ``group_size`` of them."""
        return bool(self.specs["allocation"]["use"] == "uniform")

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
                case WakeAt(at=at):
                    assert at > now
                    assert at not in self.timers
                    self.timers.append(at)
                case Train() | Sync() | SetRole():
                    assert not self.trainer
                    self.trainer.append(command)
                    if isinstance(command, SetRole) and command.lent:
                        self.lent = False
                        assert all(call.replica == 0 for call in self.calls.values())
                    if isinstance(command, Train) and self.specs["placement"]["use"] != "colocated":
                        assert all(call.replica == 0 for call in self.calls.values()) or self.never_lends()
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
        assert self.lent or call.replica == 0
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
        assert loads.in_flight[loads.least()] == min(n for r, n in enumerate(count) if loads.is_open(r))

    @invariant()
    def running_samples_generate_or_are_in_tools_or_being_scored_or_wait_for_the_others(self) -> None:
        running = len(self.calls) + len(self.tools) + len(self.scoring) + len(self.waiting())
        assert self.controller.view.running_samples == running

    @invariant()
    def nobody_waits_for_the_others_when_none_of_them_runs(self) -> None:
        assert not self.waiting() or (self.specs["turns"]["use"] == "lock-step" and bool(self.calls or self.tools))

    def waiting(self) -> list[int]:
        """Samples between two calls of a turn that all take together."""
        return [sample.sample for sample in self.controller.samples.values() if sample.state == "waiting"]

    @invariant()
    def open_groups_are_those_begun_and_neither_complete_nor_dropped(self) -> None:
        if not self.is_uniform():
            return
        view, size = self.controller.view, self.launched
        ended = Counter(sample // size for sample, tally in self.tallies.items() if tally.ended)
        begun = {sample // size for sample in self.tallies}
        complete = {group for group, count in ended.items() if count >= SHAPE.group_size}
        cancelled = {sample.sample for sample in self.controller.samples.values() if sample.cancelled}
        given_up = {sample // size for sample in self.controller.outcomes.keys() | cancelled}
        assert set(view.open) == begun - complete - given_up
        assert view.started_groups == len(begun)

    @invariant()
    def a_complete_group_has_the_members_that_it_needs(self) -> None:
        for group in self.controller.view.ready.values():
            assert group.members
            assert len(group.members) == SHAPE.group_size or not self.is_uniform()
            assert all(self.tallies[sample.sample].ended and not sample.cancelled for sample in group.members)

    @invariant()
    def a_round_that_is_cleared_cuts_every_call(self) -> None:
        if self.controller.view.trainer == "clearing":
            assert {call.sample for call in self.cut()} == self.calls.keys()

    @invariant()
    def prompts_are_given_back_once_for_each_group_given_up(self) -> None:
        view = self.controller.view
        recycled = sum(self.last_attempts().values()) + len(view.recycled)
        given_back = view.dropped_groups - view.filtered_groups
        assert recycled == (given_back if self.specs["leftovers"].get("recycles") else 0)

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
        running = [*self.calls, *self.tools, *self.scoring, *self.waiting()]
        places = [*running, *view.paused, *ready, *self.controller.outcomes]
        assert len(places) == len(set(places))
        assert not self.controller.samples.keys() & self.controller.outcomes.keys()

    @invariant()
    def every_token_that_was_made_is_in_the_ledger(self) -> None:
        settled = sum(tokens for _, tokens in self.controller.outcomes.values())
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
