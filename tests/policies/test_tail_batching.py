"""Tail batching as RollPacker publishes it, held against recorded decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import ran, scenario, start_lags

from rlsim.core.commands import Submit, Train
from rlsim.core.events import Finished, Started, Synced
from rlsim.core.log import RunLog
from rlsim.resolve import ResolveError, resolve

few = settings(max_examples=12, deadline=None)
sizes = {
    "prompts": st.integers(1, 6),
    "members": st.integers(1, 5),
    "eta_p": st.sampled_from([1.0, 1.25, 1.5, 2.0]),
    "eta_r": st.sampled_from([1.0, 1.25, 2.0]),
    "seed": st.integers(0, 999),
}
Prompt = tuple[int, int]


@dataclass
class Round:
    """One round: what was launched, what ended in which order, what was trained."""

    launched: dict[int, tuple[Prompt, int]] = field(default_factory=dict)
    """Prompt (draw, times put off) and member by sample."""
    ended: list[int] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)

    @property
    def prompts(self) -> list[Prompt]:
        """In order of launch."""
        return list(dict.fromkeys(prompt for prompt, _ in self.launched.values()))

    @property
    def is_long(self) -> bool:
        """Whether it is made of prompts that were put off."""
        return any(recycle for _, recycle in self.prompts)

    def winners(self, prompts: int, members: int) -> set[int]:
        """Samples of the first groups to be complete, each with its first members to end."""
        kept: dict[Prompt, list[int]] = {}
        complete: list[Prompt] = []
        for sample in self.ended:
            mine = kept.setdefault(self.launched[sample][0], [])
            if len(mine) < members:
                mine.append(sample)
                if len(mine) == members:
                    complete.append(self.launched[sample][0])
        return {sample for prompt in complete[:prompts] for sample in kept[prompt]}


def rounds(log: RunLog) -> list[Round]:
    """The run cut at its publications; the last round is left out when it trained nothing."""
    made: list[Round] = []
    for row in log.decisions[:-1]:
        if isinstance(row.event, Started | Synced):
            made.append(Round())
        one = made[-1]
        if isinstance(row.event, Finished):
            one.ended.append(row.event.sample)
        for command in row.commands:
            if isinstance(command, Submit):
                one.launched[command.sample] = ((command.draw, command.recycle), command.member)
            if isinstance(command, Train):
                one.trained += command.samples
    return [one for one in made if one.trained]


def packed(prompts: int, members: int, eta_p: float, eta_r: float, seed: int, **more: Any) -> list[Round]:
    changes = {"workload__prompts_per_step": prompts, "workload__group_size": members, "run__steps": 9, **more}
    log = ran({"preset": "rollpacker", "eta_p": eta_p, "eta_r": eta_r}, seed=seed, **changes)
    assert set(start_lags(log)) == {0}
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens
    return rounds(log)


@few
@given(**sizes)
def test_a_short_round_launches_eta_prompts_of_eta_samples_and_a_long_one_neither(
    prompts: int, members: int, eta_p: float, eta_r: float, seed: int
) -> None:
    for one in packed(prompts, members, eta_p, eta_r, seed):
        groups, size = (prompts, members) if one.is_long else (math.ceil(eta_p * prompts), math.ceil(eta_r * members))
        assert len(one.prompts) == groups
        assert len(one.launched) == groups * size


@few
@given(**sizes)
def test_the_first_groups_to_be_complete_are_trained_with_their_first_members(
    prompts: int, members: int, eta_p: float, eta_r: float, seed: int
) -> None:
    for one in packed(prompts, members, eta_p, eta_r, seed):
        assert set(one.trained) == one.winners(prompts, members)


@few
@given(**sizes)
def test_losers_wait_in_line_for_a_long_round_which_comes_as_soon_as_they_fill_a_batch(
    prompts: int, members: int, eta_p: float, eta_r: float, seed: int
) -> None:
    queue: dict[Prompt, int] = {}
    for number, one in enumerate(packed(prompts, members, eta_p, eta_r, seed)):
        assert one.is_long == (len(queue) >= prompts)
        if one.is_long:
            waited = list(queue.values())
            assert [queue.pop(prompt) for prompt in one.prompts] == waited[:prompts]
        winners = {one.launched[sample][0] for sample in one.trained}
        queue |= {(draw, times + 1): number for draw, times in one.prompts if (draw, times) not in winners}


@pytest.mark.parametrize(("eta_p", "period"), [(1.25, 5), (1.5, 3), (2.0, 2)])
def test_one_round_in_one_plus_the_inverse_of_the_excess_is_long(eta_p: float, period: int) -> None:
    """A quarter of a batch is put off a round: four short rounds to a long one, as published for eta = 1.25."""
    long = [one.is_long for one in packed(4, 2, eta_p, 1.25, 3, run__steps=10)]
    assert long == [number % period == period - 1 for number in range(10)]


def test_without_over_issue_it_is_the_synchronous_policy() -> None:
    alike = {"workload__prompts_per_step": 4, "workload__group_size": 3, "rollout__gpus": 2}
    packed_run = ran({"preset": "rollpacker", "eta_p": 1.0, "eta_r": 1.0}, **alike)
    plain = ran("sync-colocated", **alike)
    assert [row.end for row in packed_run.iterations] == [row.end for row in plain.iterations]


@pytest.mark.parametrize("name", ["eta_p", "eta_r"])
@pytest.mark.parametrize("value", [0.99, float("nan")])
def test_a_round_smaller_than_a_batch_is_refused(name: str, value: float) -> None:
    with pytest.raises(ResolveError) as caught:
        resolve(scenario({"preset": "rollpacker", name: value}))
    assert caught.value.path == f"policy.{name}"


def test_rounds_that_nothing_ends_are_refused() -> None:
    with pytest.raises(ResolveError) as caught:
        resolve(scenario({"preset": "rollpacker", "parts": {"leftovers": {"use": "keep-all"}}}))
    assert caught.value.path == "policy.parts.leftovers.use"
