"""Runs that go on for ever without a training step are found, told with their cause, and slow runs are none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from compositions import KEEP, KEEP_ALL, is_refused_as, preset
from policy_runs import AGENTS, POLICIES, ran, run_of

from rlsim.controller import admission
from rlsim.core.errors import DeadlockError
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.executor import livelock
from rlsim.policies import combinations
from rlsim.policies.hooks import Size
from rlsim.policies.protocols import Batch, Unit

SLOW_TOOLS: dict[str, Any] = {
    "workload__turns": {"count": 3, "tool_latency_seconds": 90.0, "tool_output_tokens": 5, "environments": 1}
}
LONG_TAIL = {"law": "lognormal", "mean_tokens": 60, "sigma": 2.0, "cap_tokens": 8000}


class Part:
    """What every part of these tests does when it is started: nothing."""

    def start(self, shape: RunSizes) -> Any:
        return self


@dataclass(frozen=True, slots=True)
class Flood(Part):
    """Lets more in whatever is there."""

    unit: ClassVar[Unit] = "sample"

    def capacity(self, view: View) -> tuple[int, str]:
        return 100, "flood"


@dataclass(frozen=True, slots=True)
class RefillIdle(Part):
    """A batch for every replica without a call, though its samples are in tools."""

    unit: ClassVar[Unit] = "sample"

    def capacity(self, view: View) -> tuple[int, str]:
        return (0 if view.loads.in_flight[view.loads.least()] else 8), "barrier"


@dataclass(frozen=True, slots=True)
class RejectAll(Part):
    """No group is worth training on."""

    aborts_surplus: ClassVar[bool] = True

    def members(self, view: View, group: Group) -> Size:
        return Size(view.shape.group_size, view.shape.group_size)

    def observe(self, view: View, group: Group) -> None:
        pass

    def rejects(self, view: View, group: Group) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ExtendAll(Part):
    """Every group gets another sample whenever its samples have ended."""

    aborts_surplus: ClassVar[bool] = True

    def members(self, view: View, group: Group) -> Size:
        return Size(view.shape.group_size, view.shape.group_size)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [(number, 1) for number in view.waiting_for_wave]


@dataclass(frozen=True, slots=True)
class TakeNothing(Part):
    """The trainer takes no batch, whatever is there."""

    def select(self, view: View) -> Batch | None:
        return None


@dataclass(frozen=True, slots=True)
class MoveAlways(Part):
    """All calls go to the next replica, before a prompt is prefilled."""

    transfers_kv: ClassVar[bool] = False

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        replicas = view.shape.replicas
        return [(one, (one.replica + 1) % replicas) for one in view.generating_samples.values() if not one.aborting]

    def wake_at(self, view: View) -> Ticks | None:
        return view.now + to_ticks(0.005)


@dataclass(frozen=True, slots=True)
class WakeAlways(Part):
    """Stays, and asks to be woken a picosecond later."""

    transfers_kv: ClassVar[bool] = False

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        return ()

    def wake_at(self, view: View) -> Ticks | None:
        return view.now + 1


def own(name: str) -> dict[str, str]:
    return {"use": f"{__name__}:{name}"}


ENDLESS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "admission at one instant": (preset("pipelinerl", admission=own("Flood")), {}, "without end, at one instant"),
    "admission while tools are slow": (
        preset("one-step-off", admission=own("RefillIdle")),
        SLOW_TOOLS,
        "samples were admitted while the trainer waited for a batch, and",
    ),
    "arrivals that tools cannot serve, for a trainer that waits for certain groups": (
        preset(
            "pipelinerl",
            admission={"use": "open-arrivals", "requests_per_second": 50.0},
            batching=own("TakeNothing"),
        ),
        SLOW_TOOLS,
        "of them have not ended",
    ),
    "groups that are all rejected": (
        preset("pipelinerl", allocation=own("RejectAll")),
        {"learning": {}},
        "groups in a row have ended, and none was accepted for training",
    ),
    "groups that are never complete": (
        preset("pipelinerl", allocation=own("ExtendAll")),
        {},
        "samples have ended, and no group was complete with them",
    ),
    "a trainer that takes nothing": (
        preset("pipelinerl", batching=own("TakeNothing")),
        {},
        "groups have ended, and the trainer still waits for others than these",
    ),
    "a step of training that never ends": (
        preset("pipelinerl"),
        {"trainer__fixed_seconds_per_step": 5e6},
        "groups have ended while the trainer worked on one batch",
    ),
    "calls that are moved before they make a token": (
        preset("pipelinerl", {"llm_max_rollouts": 3}, migration=own("MoveAlways")),
        {"workload__prompt_tokens": 20_000, "rollout__kv_blocks": 90_000},
        "decisions in a row were taken, and no token was made meanwhile",
    ),
    "timers without a pause": (
        preset("pipelinerl", migration=own("WakeAlways")),
        {},
        "decisions were taken within one millisecond",
    ),
}


def divide_bounds(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    """Smaller bounds than those of users, of all counts."""
    names = ("LEAST_GROUPS", "LEAST_SAMPLES", "LEAST_DECISIONS", "LEAST_VAIN_DECISIONS", "MOST_PER_CAPACITY")
    for name in names:
        monkeypatch.setattr(livelock, name, getattr(livelock, name) // by)
    monkeypatch.setattr(admission, "MOST_AT_ONCE", admission.MOST_AT_ONCE // by)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_goes_on_without_end_is_told_with_its_cause(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    divide_bounds(monkeypatch, 50)
    policy, changes, cause = ENDLESS[name]
    with pytest.raises(DeadlockError, match=r"livelock at .* after 0 of 5 training iterations") as caught:
        ran(policy, **changes)
    assert cause in str(caught.value)
    assert "gate: " in str(caught.value)


@pytest.mark.parametrize("preset_name", POLICIES)
def test_no_preset_comes_near_the_bounds_with_long_tails_and_slow_tools(
    preset_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    divide_bounds(monkeypatch, 25)
    long_tailed = run_of(preset_name, **AGENTS, workload__response_tokens=LONG_TAIL, rollout__kv_blocks=20_000)
    assert len(long_tailed.iterations) == 5
    assert len(run_of(preset_name, **AGENTS | SLOW_TOOLS).iterations) == 5


def test_a_replica_whose_samples_are_all_in_tools_is_not_refilled() -> None:
    log = ran(preset("one-step-off", admission={"use": "refill-empty", "replica_batch": 8}), **SLOW_TOOLS)
    assert len(log.iterations) == 5
    assert log.end > to_ticks(90.0)


REFUSED = {
    "a buffer of later groups, and a rejected group of the target": (
        preset(
            "prime-rl",
            admission={"use": "lead-gate", "target_lag": 0, "max_inflight": 20},
            batching={"use": "exact-target"},
            leftovers=KEEP_ALL,
            update=KEEP,
            allocation={"use": "popo"},
        ),
        "what this allocation rejects is not replaced",
    ),
    "a buffer of later groups, and further samples of a group of the target": (
        preset(
            "prime-rl",
            admission={"use": "lead-gate", "target_lag": 0, "max_inflight": 20},
            batching={"use": "exact-target"},
            leftovers=KEEP_ALL,
            update=KEEP,
            allocation={"use": "trace"},
        ),
        "further samples of the group waited for never enter",
    ),
    "rounds that end before a rejected group of the target is replaced": (
        preset(
            "sync-disaggregated",
            admission={"use": "rounds", "gen_batch_size": 2},
            batching={"use": "exact-target"},
            leftovers=KEEP_ALL,
            allocation={"use": "dapo"},
        ),
        "what this allocation rejects is not replaced",
    ),
}
LEARNS: dict[str, Any] = {"learning": {}, "workload__dataset_prompts": 7}


@pytest.mark.parametrize("name", REFUSED)
def test_a_full_buffer_that_keeps_out_what_the_trainer_waits_for_is_refused(name: str) -> None:
    policy, reason = REFUSED[name]
    is_refused_as((policy, "policy.parts.batching.use", "exact-target", reason))


@pytest.mark.parametrize("name", REFUSED)
def test_it_does_deadlock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combinations, "check", lambda policy, shape: None)
    stuck = 0
    for seed in range(4):
        try:
            ran(REFUSED[name][0], **LEARNS, seed=seed, run__steps=12)
        except DeadlockError:
            stuck += 1
    assert stuck
