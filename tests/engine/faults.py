"""Deliberate faults: one line of the engine made wrong, and the tests that must notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import rlsim

PACKAGE = Path(rlsim.__file__).parent
TESTS = Path(__file__).parent
SEEDS = "test_exact.py::test_a_seeded_cluster_lives_the_same_life_on_every_engine"
DISCIPLINED = "test_exact.py::test_a_seeded_cluster_under_a_discipline_lives_the_same_life_on_every_engine"

URGENT = (
    "test_exact.py::test_an_urgent_call_goes_before_one_that_waits_for_blocks_and_does_not_wait_for_the_end_of_the_jump"
)
CUT_NOISE = "test_replica_properties.py::test_noisy_windows_have_the_mean_and_the_variance_of_a_sum_of_gamma_steps"


@dataclass(frozen=True, slots=True)
class Fault:
    """``old`` stands once in ``file`` and becomes ``new``."""

    file: str
    old: str
    new: str
    breaks: str
    caught_by: str = SEEDS

    def plant(self, package: Path) -> None:
        path = package / self.file
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.file} holds {text.count(self.old)} of {self.old!r}"
        path.write_text(text.replace(self.old, self.new))

    def row(self) -> str:
        """Its line in the table of deliberate faults."""
        return f"| `{self.file}` | {self.breaks} | `{self.caught_by.partition('::')[2]}` |"


UNDISCIPLINED = (
    Fault(
        "engine/scheduler.py",
        "if self._test is not None and self._test.refused_until > self.step:",
        "if False:",
        "a jump over the step at which a refusal is taken again",
        "test_exact.py::test_a_call_refused_enters_when_another_outlives_its_prediction_not_when_it_ends",
    ),
    Fault(
        "engine/scheduler.py",
        "return budget - tokens if self._partial is None else 0",
        "return budget - tokens",
        "a prefill begins beside one that was cut short",
        DISCIPLINED,
    ),
    Fault(
        "engine/scheduler.py",
        "if len(self.chunks) >= self._most_chunks:",
        "if len(self.chunks) > self._most_chunks:",
        "one prefill more than may run at once",
        DISCIPLINED,
    ),
    Fault(
        "engine/admission.py",
        "if self._refused == about and step < self.refused_until:",
        "if False:",
        "a refusal is taken again in every step that is looked at",
        DISCIPLINED,
    ),
    Fault(
        "engine/admission.py",
        "tokens + self._limits.block_size - 1",
        "tokens",
        "blocks filled in part are charged by the token",
        DISCIPLINED,
    ),
    Fault(
        "engine/admission.py",
        "peak = max(peak, held + calls * rest)",
        "peak = max(peak, held + rest)",
        "only one call grows until the memory's peak",
        DISCIPLINED,
    ),
    Fault(
        "engine/admission.py",
        "shorter = bisect_right(known, generated)",
        "shorter = 0",
        "a prediction forgets what has been generated",
        DISCIPLINED,
    ),
    Fault(
        "engine/admission.py",
        "if len(self._history) > self._rule.history_calls:",
        "if len(self._history) > 2 * self._rule.history_calls:",
        "calls are remembered too long",
        DISCIPLINED,
    ),
    Fault(
        "engine/admission.py",
        "max(fitting, min(most, self._least - before))",
        "max(fitting, min(most, self._least))",
        "every prefill of a step may take the least chunk",
        DISCIPLINED,
    ),
    Fault(
        "engine/discipline.py",
        "+ self.waiting_weight * arrival",
        "- self.waiting_weight * arrival",
        "who has waited longest is last",
        DISCIPLINED,
    ),
    Fault(
        "engine/queues.py",
        "ageing.rank(request.tokens, request.arrival)",
        "ageing.rank(request.context_tokens, request.arrival)",
        "what a preempted call has made is no prefill left",
        DISCIPLINED,
    ),
)

FAULTS = (
    Fault(
        "engine/scheduler.py",
        "            budget -= self.decodes\n",
        "            budget -= len(self.running)\n",
        "an unfinished prefill also costs a decode's token of the budget",
    ),
    Fault(
        "engine/scheduler.py",
        "if budget and not self.preempted and len(self.waiting):",
        "if budget and len(self.waiting):",
        "admission in the step of a preemption",
    ),
    Fault(
        "engine/scheduler.py",
        "1 + self._steps_that_fit(self.step + 1, self.pool.free)",
        "2 + self._steps_that_fit(self.step + 1, self.pool.free)",
        "a jump one step beyond the last free block",
    ),
    Fault(
        "engine/scheduler.py",
        "if self.preempted or self._stalled:",
        "if self._stalled:",
        "a jump over the step that may admit after a preemption",
    ),
    Fault(
        "engine/scheduler.py",
        "self._preempt(self.running[next(reversed(self.running))])",
        "self._preempt(self.running[next(iter(self.running))])",
        "the first request admitted is preempted, not the last",
    ),
    Fault(
        "engine/scheduler.py",
        "victim = max(self.running.values(), key=lambda request: (request.priority, request.arrival))",
        "victim = max(self.running.values(), key=lambda request: (request.priority, -request.arrival))",
        "among equals the earliest arrival is preempted",
    ),
    Fault(
        "engine/scheduler.py",
        "budget += victim.sample in self._granted",
        "budget += 0",
        "a preempted request keeps its token of the budget",
        "test_exact.py::test_a_request_preempted_after_its_turn_gives_its_budget_to_the_prefill_behind_it",
    ),
    Fault(
        "engine/scheduler.py",
        "computed = request.computed + (request.sample in self._granted)",
        "computed = request.computed",
        "the block granted to a request preempted later in the pass is lost",
    ),
    Fault(
        "engine/requests.py",
        "mark = bisect_right(marks, at, key=itemgetter(0)) - 1",
        "mark = len(marks) - 1",
        "all tokens of a residence are booked under its last version",
    ),
    Fault(
        "engine/requests.py",
        "if self._marks[-1][0] == step:",
        "if self._marks[-1][1] == version:",
        "two versions in one pause both stay on the books",
    ),
    Fault(
        "engine/scheduler.py",
        "self._needs[(request.tokens - 1 - self.step) % self.limits.block_size] += 1",
        "self._needs[(request.tokens - self.step) % self.limits.block_size] += 1",
        "a decode asks for its next block one step early",
    ),
    Fault(
        "engine/scheduler.py",
        "last = min(request.context_tokens + request.target_tokens, self.limits.max_model_len)",
        "last = request.context_tokens + request.target_tokens",
        "responses outgrow the longest sequence",
    ),
    Fault(
        "engine/scheduler.py",
        "if request.finish_at == at and request.entry == entry:",
        "if request.finish_at == at:",
        "after a reset, requests finish in the order of their first admission",
        "test_exact.py::test_after_a_reset_the_more_urgent_of_two_that_end_together_is_first",
    ),
    Fault(
        "engine/scheduler.py",
        "hit = pool.lookup(request, (request.tokens - 1) // limits.block_size)",
        "hit = pool.lookup(request, request.tokens // limits.block_size)",
        "a prefix hit that leaves no token to compute",
    ),
    Fault(
        "engine/scheduler.py",
        "        if request.finish_at < 0:\n",
        "        if request.blocks < 0:\n",
        "a prefill under way at the end of the run is given a token it never made",
    ),
    Fault(
        "engine/scheduler.py",
        "if self.length is not None:",
        "if self.length is None:",
        "the version at the first token does not decide the length",
    ),
    Fault(
        "engine/kvcache.py",
        "run = entry.runs[-1]",
        "run = entry.runs[0]",
        "a request's first blocks are handed out before its last",
    ),
    Fault(
        "engine/kvcache.py",
        "entry = next(iter(self._queue))",
        "entry = next(reversed(self._queue))",
        "the latest freed contents are handed out first",
    ),
    Fault(
        "engine/kvcache.py",
        "if not run.holders:\n                    evictable",
        "if run.holders:\n                    evictable",
        "cached blocks in use count as free ones that a hit takes",
    ),
    Fault(
        "engine/kvcache.py",
        "for run in self._contents.get(content, ()):",
        "for run in reversed(self._contents.get(content, [])):",
        "the newest copy of a block is hit, not the oldest",
    ),
    Fault(
        "engine/kvcache.py",
        "        self._blank = self.free\n",
        "        self._blank = 0\n",
        "after a reset no block is blank",
    ),
    Fault(
        "engine/queues.py",
        "self._requests.move_to_end(request.sample, last=False)",
        "self._requests.move_to_end(request.sample)",
        "a preempted request goes to the back of the queue",
    ),
    Fault(
        "engine/queues.py",
        "return len(self._requests) == 1",
        "return False",
        "an arrival at an empty queue waits for the end of the jump",
    ),
    Fault(
        "engine/queues.py",
        "return self.head() is request",
        "return len(self._live) == 1",
        "an urgent arrival waits for the end of the jump",
        URGENT,
    ),
    Fault(
        "engine/queues.py",
        "if request is not None and self._rank(request) == self._heap[0]:",
        "if request is not None:",
        "an aborted call's place in the queue is inherited by its resumption",
    ),
    Fault(
        "engine/queues.py",
        "return request.priority, request.arrival, request.sample",
        "return request.priority, request.sample, request.arrival",
        "equal priorities are served by sample, not by arrival",
    ),
    Fault(
        "engine/replica.py",
        "_steps_within(elapsed, self._one, self._slope) + 1",
        "_steps_within(elapsed - 1, self._one, self._slope) + 1",
        "a cut at the instant of a boundary, not after it",
    ),
    Fault(
        "engine/replica.py",
        "(one - other) // (growth - slope) + 1",
        "(one - other) // (growth - slope) + 2",
        "a rank that becomes the slowest is noticed one step late",
    ),
    Fault(
        "engine/replica.py",
        "law.kv_ps[decodes] * decodes",
        "law.kv_ps[decodes]",
        "the growth of a jump counts one decode only",
    ),
    Fault(
        "engine/replica.py",
        "pairs += attention_pairs(chunk, request.computed)",
        "pairs += attention_pairs(chunk, 0)",
        "a chunk does not attend to what came before it",
    ),
    Fault(
        "engine/replica.py",
        "return 4 * rank.waiting_count + rank.running_count",
        "return rank.waiting_count + rank.running_count",
        "waiting weighs no more than running between lockstep ranks",
    ),
    Fault(
        "engine/replica.py",
        "self.steps = within - (self._duration(within) > now - self._start)",
        "self.steps = within",
        "a run that ends keeps the step under way",
    ),
    Fault(
        "engine/replica.py",
        "and rank.preempted:\n",
        "and False:\n",
        "a replica whose decision only preempted goes to sleep",
    ),
    Fault(
        "engine/replica.py",
        "self._leave(rank) if self._leaving else ()",
        "()",
        "an aborted call keeps the token of the step under way",
    ),
    Fault(
        "engine/scheduler.py",
        "            request.computed += chunk\n        self._granted",
        "        self._granted",
        "the blocks of a chunk that was aborted under way count as empty",
    ),
    Fault(
        "engine/steptime.py",
        "share = self._rng.beta((steps - before) * self._shape, (after - steps) * self._shape)",
        "share = (steps - before) / (after - steps + steps - before)",
        "the noise of a window is spread evenly over its steps",
        CUT_NOISE,
    ),
    Fault(
        "engine/steptime.py",
        "extra = self._rng.gamma(steps * self._shape) * self._mean / self._shape",
        "extra = self._rng.gamma(self._shape) * steps * self._mean / self._shape",
        "all steps of a window share one draw",
        CUT_NOISE,
    ),
    Fault(
        "sim/fleet.py",
        "if timer is not self._timers[index]:",
        "if self._timers[index] is None:",
        "the end of a window that was cut still counts",
    ),
    Fault(
        "sim/fleet.py",
        "        self._at_boundary[replica.index].append(action)\n        self._cut(replica)\n",
        "        self._at_boundary[replica.index].append(action)\n",
        "aborts and pauses wait for the end of the jump",
    ),
    Fault(
        "sim/fleet.py",
        "        elif wants_cut:\n",
        "        elif self._paused[index]:\n",
        "no arrival cuts a jump",
    ),
    Fault(
        "sim/fleet.py",
        "        if not self._paused[index]:\n            self._begin(replica, now)\n",
        "        self._begin(replica, now)\n",
        "a paused replica begins its next step",
    ),
    Fault(
        "sim/fleet.py",
        "return self._timers[index] is None and not self._paused[index]",
        "return not self._paused[index]",
        "a replica that runs is woken into a second window",
        "test_replica_properties.py::test_resumed_before_the_pause_took_hold_the_step_under_way_runs_on",
    ),
    Fault(
        "sim/fleet.py",
        "                replica.end(end)\n",
        "",
        "the steps of the last window are lost at the end of the run",
    ),
    *UNDISCIPLINED,
)


def is_caught(fault: Fault | None, scratch: Path) -> bool:
    """Run the tests that should notice against a copy of the package with the fault in it."""
    package = scratch / "rlsim"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    if fault is not None:
        fault.plant(package)
    node = fault.caught_by if fault is not None else SEEDS
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS / node)]
    environment = os.environ | {"PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.returncode == 1
