"""Holds a simulated scheduler to vLLM's own: the same random workloads, compared step for step."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

from calibration.vllm.scheduler_driver import RealScheduler
from rlsim.engine.requests import EngineLimits, Request
from rlsim.live.vllm.setup import vllm_version

__all__ = [
    "ConformanceCase",
    "ConformanceReport",
    "RealScheduler",
    "compare",
    "random_case",
    "run_conformance",
]

ASYNCHRONOUS_SCHEDULING = """\
Compared without asynchronous scheduling, which decides step N+1 before the output of step N is known:
- max_tokens is foreseen: a request that reaches it in step N is left out of step N+1, but keeps its seat and
  its blocks until N+1 has been decided, so that its successor starts in N+2, not N+1;
- a stop token is not: step N+1 computes one more token for the request, which is thrown away;
- a request that arrives during step N enters step N+2, not N+1; an abort frees seat and blocks for N+2 likewise;
- the token in flight of a preempted request is still delivered, unless a reset of the cache preempted it;
- a block filled by output enters the prefix cache when the output returns, not when its step is decided."""

COUNTED = (
    "cases",
    "cases with preemptions",
    "cases without chunked prefill",
    "cases without prefix caching",
    "cases by priority",
    "steps",
    "jumps of more than one step",
    "finishes",
    "preemptions",
    "prefix hits",
    "unfinished prefill chunks",
    "aborts",
    "resumes",
    "resets",
)


class SchedulerLike(Protocol):
    """One engine's scheduler and KV blocks, without time; ids are ``request.sample``."""

    preempted: list[int]
    """Samples preempted by the last ``schedule``, in order."""

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds, cached or not."""

    @property
    def waiting_count(self) -> int:
        """Requests in the queue, preempted ones included."""

    @property
    def running_count(self) -> int:
        """Requests that hold a seat."""

    def add(self, request: Request) -> object:
        """Queue a request; whatever is returned is ignored."""

    def abort(self, sample: int) -> Request | None:
        """Forget a request; its ``tokens`` say how far it came. None if there is no such request."""

    def schedule(self) -> int:
        """Decide the next step; how many identical ones may run, 0 if nothing can."""

    def scheduled(self) -> dict[int, int]:
        """Tokens by sample in the step just decided, in scheduling order."""

    def advance(self, steps: int) -> list[Request]:
        """Run ``steps`` steps; the requests that finished, in order."""

    def has_requests(self) -> bool:
        """Whether anything waits or runs."""

    def reset(self) -> None:
        """Preempt everything that runs and forget the prefix cache."""


class ReferenceScheduler(SchedulerLike, Protocol):
    """One that steps singly and also counts what a comparison has exercised."""

    prefix_hits: int
    """Admissions that found at least one block in the prefix cache."""


@dataclass(frozen=True, slots=True)
class Arrive:
    """A sample enters the queue before step ``step``."""

    step: int
    sample: int
    prompt: int
    prompt_tokens: int
    context_tokens: int
    target_tokens: int
    priority: int

    def request(self) -> Request:
        """A fresh request, one for each scheduler."""
        return Request(
            self.sample, self.prompt, self.prompt_tokens, self.context_tokens, self.target_tokens,
            self.priority, self.step,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AbortEvent:
    """A sample is aborted before step ``step`` and, unless None, resumed ``resume_after`` steps later."""

    step: int
    sample: int
    resume_after: int | None


@dataclass(frozen=True, slots=True)
class Reset:
    """Everything running is preempted and the prefix cache forgotten before step ``step``."""

    step: int


Event = Arrive | AbortEvent | Reset


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One engine and what happens to it."""

    limits: EngineLimits
    events: tuple[Event, ...]


def random_case(seed: int, index: int) -> ConformanceCase:
    """Case ``index`` of the family ``seed``: about half of them short of KV blocks."""
    rng = random.Random(f"{seed}/{index}")
    length, seats = rng.choice((40, 96, 200)), rng.randint(1, 16)
    block_size = rng.choice((2, 4, 8, 16, 32))
    chunked = rng.random() < 0.7
    longest = -(-length // block_size)
    spare = rng.randint(0, rng.choice((3, 12, length // 2))) if chunked else rng.randint(length, 2 * length)
    limits = EngineLimits(
        max_num_seqs=seats,
        max_num_batched_tokens=seats + spare,
        max_model_len=length,
        block_size=block_size,
        kv_blocks=longest + int(longest * seats * rng.choice((0.0, 0.1, 0.3, 0.6, 1.0))),
        enable_prefix_caching=rng.random() < 0.75,
        enable_chunked_prefill=chunked,
        scheduling_policy=rng.choice(("fcfs", "priority")),
    )
    arrivals = _random_arrivals(rng, limits)
    span = 1 + sum(arrival.target_tokens for arrival in arrivals) // limits.max_num_seqs
    aborts = [
        AbortEvent(rng.randint(arrival.step, arrival.step + span), arrival.sample, rng.choice((None, 0, 0, 1, 2, 9)))
        for arrival in arrivals
        if rng.random() < 0.25
    ]
    resets = [Reset(rng.randint(1, span)) for _ in range(rng.choice((0, 0, 1, 3)))]
    return ConformanceCase(limits, (*arrivals, *aborts, *resets))


def _random_arrivals(rng: random.Random, limits: EngineLimits) -> list[Arrive]:
    samples = count()
    scatter = rng.choice((0, 10, 60))
    arrivals = []
    for prompt in range(rng.randint(1, 8)):
        prompt_tokens = rng.randint(1, limits.max_model_len * 2 // 3)
        step = rng.randint(0, scatter)
        for _ in range(rng.choice((1, 2, 4, 8))):
            target = min(1 + int(rng.expovariate(3 / limits.max_model_len)), limits.max_model_len)
            late = step + (rng.randint(0, scatter) if rng.random() < 0.3 else 0)
            arrivals.append(
                Arrive(late, next(samples), prompt, prompt_tokens, prompt_tokens, target, rng.randint(0, 3))
            )
    return arrivals


@dataclass(slots=True)
class ConformanceReport:
    """What was compared and what differed."""

    reference: str
    counts: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    """Differences by class: scheduled, preempted, jump, finished, aborted, state, stalled."""
    examples: list[str] = field(default_factory=list)
    """The first differences: case, step, what was found and what was expected."""

    def table(self) -> str:
        """Plain text: the counts, the differences by class and what the comparison does not cover."""
        rows = [_row(name, self.counts[name]) for name in COUNTED]
        rows.append(_row("differences", self.differences.total()))
        rows += [_row(f"  {kind}", count) for kind, count in sorted(self.differences.items())]
        title = f"Scheduler compared step by step with {self.reference}"
        return "\n".join([title, *rows, *self.examples, ASYNCHRONOUS_SCHEDULING])


def _row(name: str, number: int) -> str:
    return f"{name:<38}{number:>9}"


class _Difference(Exception):
    """The two schedulers part."""

    def __init__(self, kind: str, step: int, actual: object, expected: object) -> None:
        super().__init__(f"step {step}, {kind}: found {actual}, expected {expected}")
        self.kind = kind


class _Comparison:
    """One case, run by both schedulers until the first difference."""

    def __init__(
        self, case: ConformanceCase, candidate: SchedulerLike, reference: ReferenceScheduler, rng: random.Random
    ) -> None:
        self.candidate, self.reference, self.rng = candidate, reference, rng
        self.counts: Counter[str] = Counter()
        self._requests: dict[int, Request] = {}
        self.step = 0
        self._serial = count()
        self._arrivals = {event.sample: event for event in case.events if isinstance(event, Arrive)}
        self._agenda = [(event.step, next(self._serial), event) for event in case.events]
        heapq.heapify(self._agenda)

    def run(self) -> None:
        """Raise ``_Difference`` at the first one."""
        while self._agenda or self.reference.has_requests():
            while self._agenda and self._agenda[0][0] <= self.step:
                event = heapq.heappop(self._agenda)[2]
                if isinstance(event, Arrive):
                    self.candidate.add(event.request())
                    self._requests[event.sample] = request = event.request()
                    self.reference.add(request)
                elif isinstance(event, AbortEvent):
                    self._abort(event)
                else:
                    self.candidate.reset()
                    self.reference.reset()
                    self.counts["resets"] += 1
            self._expect("state", self._state(self.candidate), self._state(self.reference))
            steps, known = self.candidate.schedule(), self.reference.schedule()
            self._compare_step()
            self._expect("preempted", self.candidate.preempted, self.reference.preempted)
            self._expect("scheduled", min(steps, 1), known)
            self.counts["preemptions"] += len(self.reference.preempted)
            if steps:
                self._run_steps(steps)
            elif not self.reference.preempted:
                if self._agenda:
                    self.step = max(self.step, self._agenda[0][0])
                elif self.reference.has_requests():
                    raise _Difference("stalled", self.step, "nothing to schedule", "requests left")
        self._expect("state", self.candidate.has_requests(), False)

    def _abort(self, event: AbortEvent) -> None:
        actual, known = self.candidate.abort(event.sample), self.reference.abort(event.sample)
        self._expect("aborted", actual and actual.tokens, known and known.tokens)
        if known is not None:
            self.counts["aborts"] += 1
            if event.resume_after is not None:
                step = self.step + event.resume_after
                self.counts["resumes"] += 1
                left = known.target_tokens - (known.tokens - known.context_tokens)
                again = replace(
                    self._arrivals[known.sample], step=step, context_tokens=known.tokens, target_tokens=left
                )
                heapq.heappush(self._agenda, (step, next(self._serial), again))

    def _compare_step(self) -> None:
        self._expect("scheduled", list(self.candidate.scheduled().items()), list(self.reference.scheduled().items()))

    def _run_steps(self, steps: int) -> None:
        """A jump of ``steps``, cut at the next event, equals as many single steps of the reference."""
        taken = min(steps, self._agenda[0][0] - self.step) if self._agenda else steps
        if self.rng.random() < 0.2:
            taken = self.rng.randint(1, taken)
        done = self._reference_step()
        for _ in range(taken - 1):
            self._expect("jump", [], _ends(done))
            self.reference.schedule()
            self._expect("jump", [], self.reference.preempted)
            self._compare_step()
            done = self._reference_step()
        self.counts["jumps of more than one step"] += taken > 1
        self._expect("finished", _ends(self.candidate.advance(taken)), _ends(done))

    def _reference_step(self) -> list[Request]:
        before = {sample: self._requests[sample].tokens for sample in self.reference.scheduled()}
        done = self.reference.advance(1)
        self.step += 1
        self.counts["steps"] += 1
        self.counts["unfinished prefill chunks"] += sum(
            self._requests[sample].tokens == tokens for sample, tokens in before.items()
        )
        self.counts["finishes"] += len(done)
        return done

    def _state(self, scheduler: SchedulerLike) -> tuple[int, int, int]:
        return scheduler.free_blocks, scheduler.waiting_count, scheduler.running_count

    def _expect(self, kind: str, actual: object, expected: object) -> None:
        if actual != expected:
            raise _Difference(kind, self.step, actual, expected)


def _ends(requests: list[Request]) -> list[tuple[int, int]]:
    return [(request.sample, request.tokens) for request in requests]


def compare(
    make_scheduler: Callable[[EngineLimits], SchedulerLike],
    cases: int,
    seed: int,
    make_reference: Callable[[EngineLimits], ReferenceScheduler] = RealScheduler,
    reference: str | None = None,
) -> ConformanceReport:
    """Run ``cases`` random cases of the family ``seed`` through both; a case ends at its first difference.

    A scheduler whose ``schedule`` returns n > 1 must equal n steps of the reference that schedule the same
    requests in the same order, with nothing preempted and nothing finished before the last. ``reference`` names
    it in the report, by default as the installed vLLM.
    """
    report = ConformanceReport(reference or f"vLLM {vllm_version()}, synchronous scheduling")
    for index in range(cases):
        case = random_case(seed, index)
        known = make_reference(case.limits)
        comparison = _Comparison(case, make_scheduler(case.limits), known, random.Random(index))
        try:
            comparison.run()
        except _Difference as difference:
            report.differences[difference.kind] += 1
            if len(report.examples) < 5:
                report.examples.append(f"case {index}, {difference}")
        counts = comparison.counts
        counts["prefix hits"] = known.prefix_hits
        counts["cases"] += 1
        counts["cases with preemptions"] += counts["preemptions"] > 0
        counts["cases without chunked prefill"] += not case.limits.enable_chunked_prefill
        counts["cases without prefix caching"] += not case.limits.enable_prefix_caching
        counts["cases by priority"] += case.limits.scheduling_policy == "priority"
        report.counts.update(counts)
    return report


def run_conformance(
    make_scheduler: Callable[[EngineLimits], SchedulerLike], cases: int = 300, seed: int = 0
) -> ConformanceReport:
    """Compare a scheduler with the installed vLLM's own."""
    return compare(make_scheduler, cases, seed)
