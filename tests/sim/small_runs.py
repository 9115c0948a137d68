"""Small scenarios for closed forms: engine steps of round length, and what a log says in whole picoseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from hypothesis import settings

from rlsim.core.commands import CallTool, Command, Submit, Train
from rlsim.core.events import Aborted, Finished, ToolReturned
from rlsim.core.log import RunLog, SpanRow
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import RunSizes, View
from rlsim.executor.run import make_controller, make_world
from rlsim.policies.protocols import Batch, Unit
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import Simulation, simulate

FEW = settings(max_examples=15, deadline=None, derandomize=True)
MANY = settings(max_examples=80, deadline=None, derandomize=True)
"""The same examples every time, however slow the machine."""

STEP_SECONDS = 0.01
STEP = to_ticks(STEP_SECONDS)
"""Every engine step, unless a test adds coefficients."""

BASE: dict[str, Any] = {
    "name": "small",
    "model": "Qwen2.5-0.5B",
    "cluster": {"device": "H100-SXM", "gpus": 4},
    "rollout": {
        "gpus": 1,
        "max_num_seqs": 64,
        "kv_blocks": 20_000,
        "enable_prefix_caching": False,
        "step_time": {"source": "coefficients", "base_seconds": STEP_SECONDS},
    },
    "trainer": {"gpus": 1, "mfu": 0.4},
    "sync": {"link_bytes_per_second": 1e9, "base_seconds": 0.25},
    "workload": {"prompts_per_step": 4, "group_size": 2, "prompt_tokens": 40, "response_tokens": 50},
    "policy": {"preset": "sync-disaggregated"},
    "run": {"steps": 3, "warmup_steps": 0, "replications": 1},
}

UNIFORM = {"law": "uniform", "low_tokens": 1, "high_tokens": 90}


def spread(low: int, high: int) -> dict[str, Any]:
    """Every length from low to high alike."""
    return {"law": "uniform", "low_tokens": low, "high_tokens": high}


def turns(count: object = 3, latency: object = 0.5, output: object = 20, **more: object) -> dict[str, Any]:
    """A workload of several turns."""
    return {"count": count, "tool_latency_seconds": latency, "tool_output_tokens": output, **more}


def scenario(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The small scenario with values at key paths replaced (``{"rollout.gpus": 2}``)."""
    made: dict[str, Any] = _copied(BASE)
    for path, value in (changes or {}).items():
        *sections, key = path.split(".")
        section = made
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = value
    return made


def planned(changes: Mapping[str, Any] | None = None) -> ResolvedScenario:
    """The small scenario, built."""
    return resolve(Scenario.model_validate(scenario(changes)))


def ran(changes: Mapping[str, Any] | None = None) -> RunLog:
    """One run of the small scenario, with its ledger checked."""
    log = simulate(planned(changes)).log
    assert ledger_is_closed(log)
    return log


def ran_with_slow_restores(changes: Mapping[str, Any], seconds_per_token: float) -> RunLog:
    """One run in which offloaded KV takes its time to come back from the host."""
    made = planned(changes)
    workload = made.workload_of(0)
    world = replace(make_world(made, workload), restore_ticks_per_token=to_ticks(seconds_per_token))
    log = Simulation(make_controller(made, workload), world).run(made.scenario.run.steps)
    assert ledger_is_closed(log)
    return log


def ledger_is_closed(log: RunLog) -> bool:
    """Whether every token that an engine sampled has one outcome."""
    return sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens


def _copied(tree: Any) -> Any:
    return {key: _copied(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


# -- reading a log ------------------------------------------------------------------------------------


def commands(log: RunLog) -> list[tuple[Ticks, Command]]:
    """What the simulator carried out: all but the answer to the event that ended the run."""
    return [(row.now, made) for row in log.decisions[:-1] for made in row.commands]


def submissions(log: RunLog) -> list[tuple[Ticks, Submit]]:
    """Generate calls in the order in which they were asked for."""
    return [(now, made) for now, made in commands(log) if isinstance(made, Submit)]


def finishes(log: RunLog) -> list[tuple[Ticks, Finished]]:
    """Calls that ended by themselves, as the controller learnt of them."""
    return [(row.now, row.event) for row in log.decisions if isinstance(row.event, Finished)]


def turn_of(log: RunLog) -> Iterator[tuple[Submit, Finished]]:
    """Every finished call with the submission that began it."""
    open_calls: dict[int, Submit] = {}
    for row in log.decisions:
        if isinstance(row.event, Finished):
            yield open_calls.pop(row.event.sample), row.event
        open_calls |= {made.sample: made for made in row.commands if isinstance(made, Submit)}


def spans(log: RunLog, what: str, who: int = -1) -> list[SpanRow]:
    """What the trainer (or a replica) did, by name."""
    return [row for row in log.spans if row.what == what and row.who == who]


def intervals(log: RunLog) -> list[Ticks]:
    """Ticks between the ends of consecutive iterations, the first from the start of the run."""
    ends = [0, *(row.end for row in log.iterations)]
    return [later - earlier for earlier, later in pairwise(ends)]


def in_flight_ticks(log: RunLog) -> int:
    """Integral over time of the generate calls in flight, from what the controller was told."""
    count = area = before = 0
    for row in log.decisions:
        area += count * (row.now - before)
        before = row.now
        count += sum(isinstance(made, Submit) for made in row.commands)
        count -= isinstance(row.event, Finished)
        if isinstance(row.event, Aborted):
            count -= len(row.event.cuts)
    assert count >= 0
    return area


def in_tools_ticks(log: RunLog) -> int:
    """Integral over time of the tool calls asked for and not returned, from what the controller was told."""
    count = area = before = 0
    for row in log.decisions:
        area += count * (row.now - before)
        before = row.now
        count += sum(isinstance(made, CallTool) for made in row.commands)
        count -= isinstance(row.event, ToolReturned)
    return area


def train_ticks(made: ResolvedScenario, log: RunLog) -> list[Ticks]:
    """What each training step costs by the trainer's own model, for samples of one turn."""
    tokens = {event.sample: event.tokens for _, event in finishes(log)}
    prompt = {command.sample: command.context_tokens for _, command in submissions(log)}
    steps = [made for _, made in commands(log) if isinstance(made, Train)]
    batches = [[(prompt[sample], tokens[sample]) for sample in step.samples] for step in steps]
    return [sum(to_ticks(seconds) for _, seconds in made.training.phases(batch)) for batch in batches]


# -- parts of a user's own ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shut:
    """Admits nothing, ever."""

    unit: ClassVar[Unit] = "group"

    def start(self, shape: RunSizes) -> Shut:
        """Nothing to check."""
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """None."""
        return 0, "shut"


@dataclass(frozen=True, slots=True)
class Broken:
    """Fails when it is asked for a batch while groups are ready."""

    def start(self, shape: RunSizes) -> Broken:
        """Nothing to check."""
        return self

    def select(self, view: View) -> Batch | None:
        """Raise, once there is something to choose from."""
        if view.ready:
            raise RuntimeError("broken part")
        return None


@dataclass(frozen=True, slots=True)
class Buffer:
    """``1 + alpha`` batches that the trainer has not taken, under way or complete (arXiv 2510.11345, proposition 2)."""

    alpha: int
    unit: ClassVar[Unit] = "group"

    def start(self, shape: RunSizes) -> Buffer:
        """Nothing to check."""
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """What the batches taken so far have made room for."""
        return (view.steps_begun + self.alpha + 1) * view.shape.prompts_per_step - view.started_groups, "buffer"
