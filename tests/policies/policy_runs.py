"""Small simulated runs of policies, and what their recorded decisions say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks
from rlsim.presets import load_preset, preset_names
from rlsim.resolve import resolve
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import simulate

SPREAD = {"law": "uniform", "low_tokens": 1, "high_tokens": 60}
PROMPT_TOKENS = 24

BASE: dict[str, Any] = {
    "name": "small",
    "model": "Qwen2.5-0.5B",
    "cluster": {"device": "H100-SXM", "gpus": 4},
    "rollout": {
        "gpus": 2,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "kv_blocks": 2_000,
        "enable_prefix_caching": False,
        "step_time": {"source": "coefficients", "base_seconds": 0.01, "per_sequence_seconds": 1e-4},
    },
    "trainer": {"gpus": 2, "mfu": 0.4, "fixed_seconds_per_step": 0.2},
    "sync": {"link_bytes_per_second": 1e10, "base_seconds": 0.05},
    "workload": {
        "prompts_per_step": 3,
        "group_size": 2,
        "prompt_tokens": PROMPT_TOKENS,
        "response_tokens": SPREAD,
    },
    "run": {"steps": 5, "warmup_steps": 0, "replications": 1},
}


def scenario(policy: Mapping[str, Any], **changes: Any) -> Scenario:
    """The small scenario under a policy; ``workload__group_size=4`` replaces one value."""
    made = {key: dict(value) if isinstance(value, dict) else value for key, value in BASE.items()}
    known = policy.get("preset") in preset_names()
    needs = load_preset(policy["preset"]).needs if known else {}
    for path, value in {**{key.replace(".", "__"): value for key, value in needs.items()}, **changes}.items():
        section, _, key = path.partition("__")
        if key:
            made[section] = {**made[section], key: value}
        else:
            made[section] = value
    return Scenario.model_validate({**made, "policy": dict(policy)})


def ran(policy: Mapping[str, Any] | str, **changes: Any) -> RunLog:
    """One run; a bare name is a preset."""
    given = {"preset": policy} if isinstance(policy, str) else policy
    return simulate(resolve(scenario(given, **changes))).log


@dataclass(slots=True)
class Moment:
    """What the decisions up to one event add up to; sizes count after its commands."""

    now: Ticks
    event: Event
    commands: tuple[Command, ...]
    version: int = 0
    calls: frozenset[int] = frozenset()
    """Samples with a generate call under way."""
    held: frozenset[int] = frozenset()
    """Samples in a tool or being scored."""
    begun: int = 0
    """Samples ever submitted."""
    trained: int = 0
    """Samples whose training was asked for."""


def moments(log: RunLog) -> Iterator[Moment]:
    """The run event by event."""
    calls: set[int] = set()
    held: set[int] = set()
    seen: set[int] = set()
    version = trained = 0
    for now, event, commands in log.decisions:
        match event:
            case Finished() | ToolReturned() | Scored():
                (calls if isinstance(event, Finished) else held).discard(event.sample)
            case Aborted():
                calls -= {cut.sample for cut in event.cuts}
            case Synced():
                version = event.version
        for command in commands:
            match command:
                case Submit():
                    calls.add(command.sample)
                    seen.add(command.sample)
                case CallTool() | Score():
                    held.add(command.sample)
                case Train():
                    trained += len(command.samples)
        yield Moment(now, event, commands, version, frozenset(calls), frozenset(held), len(seen), trained)


def commands(log: RunLog, kind: type) -> list[tuple[Ticks, Any]]:
    """Commands of one kind with their times; those of the last decision come after the end and are not carried out."""
    return [(row.now, made) for row in log.decisions[:-1] for made in row.commands if isinstance(made, kind)]


def batches(log: RunLog) -> list[tuple[int, ...]]:
    """Samples of every training command, in order."""
    return [made.samples for _, made in commands(log, Train)]


def groups_of(samples: tuple[int, ...], size: int) -> list[int]:
    """Numbers of the groups of some samples, which are numbered group by group."""
    return sorted({sample // size for sample in samples})


def ends(log: RunLog) -> dict[int, int]:
    """Sample to the place of its last ``Finished`` (or ``Scored``) among the decisions."""
    found: dict[int, int] = {}
    for place, row in enumerate(log.decisions):
        if isinstance(row.event, Finished | Scored):
            found[row.event.sample] = place
    return found


def start_lags(log: RunLog) -> list[int]:
    """Version at the training command less that of the first token, for every trained sample."""
    first: dict[int, int] = {}
    lags: list[int] = []
    version = 0
    for row in log.decisions[:-1]:
        if isinstance(row.event, Synced):
            version = row.event.version
        calls: tuple[Finished | Cut, ...] = (row.event,) if isinstance(row.event, Finished) else ()
        for call in row.event.cuts if isinstance(row.event, Aborted) else calls:
            if call.segments:
                first.setdefault(call.sample, call.segments[0][0])
        for command in row.commands:
            if isinstance(command, Train):
                lags += [version - first[sample] for sample in command.samples]
    return lags


REPLY = {Abort: Aborted, CallTool: ToolReturned, Score: Scored, Train: Trained, Sync: Synced}


@dataclass
class Owed:
    """Replies that are due, told apart by what they answer; a reply that nobody is owed raises ``KeyError``."""

    due: dict[object, int] = field(default_factory=dict)

    def ask(self, command: Command) -> None:
        """Note what a command owes."""
        if isinstance(command, WakeAt):
            return
        key = _asked(command)
        self.due[key] = self.due.get(key, 0) + 1

    def take(self, event: Event) -> None:
        """Strike off what an event answers."""
        for key in _answered(event):
            self.due[key] -= 1
            if not self.due[key]:
                del self.due[key]


def _asked(command: Submit | CallTool | Score | Train | Sync | SetRole | Abort) -> object:
    match command:
        case Submit() | CallTool() | Score():
            return type(command), command.sample
        case Train():
            return Train, command.step
        case Sync():
            return Sync, command.version
        case SetRole():
            return SetRole, command.role
        case Abort():
            return Abort


def _answered(event: Event) -> list[object]:
    match event:
        case Finished():
            return [(Submit, event.sample)]
        case Aborted():
            return [Abort, *((Submit, cut.sample) for cut in event.cuts)]
        case ToolReturned():
            return [(CallTool, event.sample)]
        case Scored():
            return [(Score, event.sample)]
        case Trained():
            return [(Train, event.step)]
        case Synced():
            return [(Sync, event.version)]
        case RoleSet():
            return [(SetRole, event.role)]
        case Started() | Woke():
            return []


# -- presets ---------------------------------------------------------------------------------------------

TOOLS = {
    "count": {"law": "uniform", "low_tokens": 1, "high_tokens": 3},
    "tool_latency_seconds": {"law": "exponential", "mean_seconds": 0.3},
    "tool_output_tokens": 10,
}
AGENTS: dict[str, Any] = {"workload__turns": TOOLS, "workload__reward": {"latency_seconds": 0.2}}
SIZES: dict[str, dict[str, Any]] = {
    "areal": {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 5},
    "slime-april": {"over_sampling_batch_size": 5},
    "copris": {"partial_rollout_pool_size": 9},
    "pipelinerl": {"llm_max_rollouts": 4},
    "nemo-rl-async": {"max_trajectory_age_steps": 2},
    "rollpacker": {"eta_p": 1.4, "eta_r": 1.0},
    "seer": {"chunk_tokens": 16, "max_response_tokens": 60},
    "tailsieve": {"tail_tokens": 40},
    "skyrl-fully-async": {"max_staleness_steps": 1, "num_parallel_generation_workers": 5},
    "slime-fully-async": {"sglang_server_concurrency": 3},
    "miles-fully-async": {"max_weight_staleness": 1, "async_unused_samples_handler": "retry"},
    "prime-rl": {"max_off_policy_steps": 1, "max_inflight": 12},
    "open-instruct-async": {"async_steps": 2, "max_result_age_steps": 1},
    "mu-grpo": {"updates_per_stage": 3},
    "sao": {"max_rollouts": 4},
    "laminar": {"replica_batch": 4},
    "laminar-repack": {"replica_batch": 4, "repack_below": 3, "repack_capacity": 4, "repack_seconds": 0.0},
    "dlc": {"max_inflight_per_engine": 3},
    "verl-fully-async": {"trigger_parameter_sync_step": 3, "staleness_threshold": 0.7},
    "verl-fully-async-stream": {"trigger_parameter_sync_step": 3},
    "verl-fully-async-stale": {"trigger_parameter_sync_step": 3, "staleness_threshold": 0.4},
    "verl-v1-separate-async": {"parameter_sync_step": 3},
    "verl-v1-separate-async-hybrid": {"parameter_sync_step": 3},
    "verl-fully-async-dynamic": {"trigger_parameter_sync_step": 3, "staleness_threshold": 0.7},
    "openrlhf-async-partial": {"async_queue_size": 2},
    "roll-rlvr-async": {"async_generation_ratio": 1.5},
    "roll-rlvr-sync-queue": {"max_additional_running_prompts": 2},
    "trl-async-grpo": {"max_staleness": 1},
    "p-d-serve": {"prefill_route": "by-prompt"},
    "brorl": {"rollouts_per_prompt": 2},
}
"""Parameters of presets whose own are too large for these runs."""
POLICIES: dict[str, dict[str, Any]] = {name: SIZES.get(name, {}) for name in preset_names()}
"""Every preset with its parameters: a new one runs without being listed."""


def run_of(preset: str, given: Mapping[str, Any] | None = None, **changes: Any) -> RunLog:
    """One run of a preset, with the parameters above unless others are given."""
    return ran({"preset": preset, **(POLICIES[preset] if given is None else given)}, **changes)


def outcomes(log: RunLog) -> set[str]:
    """What became of samples."""
    return {row.outcome for row in log.final}
