"""The workload section: laws by name."""

from __future__ import annotations

from rlsim.scenario.schema import Law, Scenario, WorkloadConfig
from rlsim.workload.draws import ClassLengths
from rlsim.workload.latency import LatencyDistribution
from rlsim.workload.lengths import LengthDistribution
from rlsim.workload.spec import latency_from_fields, lengths_from_fields
from rlsim.workload.workload import TurnDraws, Workload


def make_workload(scenario: Scenario) -> Workload:
    """The workload under seed 0; replications replace the seed."""
    section = scenario.workload
    turns = None
    if section.turns is not None:
        turns = TurnDraws(
            _length(section.turns.count, "workload.turns.count"),
            _latency(section.turns.tool_latency_seconds, "workload.turns.tool_latency_seconds"),
            _length(section.turns.tool_output_tokens, "workload.turns.tool_output_tokens"),
        )
    reward = None
    if section.reward is not None:
        reward = _latency(section.reward.latency_seconds, "workload.reward.latency_seconds")
    return Workload(
        seed=0,
        group_size=section.group_size,
        dataset_prompts=section.dataset_prompts,
        prompt_length=_length(section.prompt_tokens, "workload.prompt_tokens"),
        response_length=_length(section.response_tokens, "workload.response_tokens"),
        intra_group_correlation=section.intra_group_correlation,
        drift=section.drift if section.drift.growth_per_version else None,
        turns=turns,
        reward_latency=reward,
        mismatch=section.mismatch,
        classes=tuple(_class_lengths(section, name) for name in section.classes),
    )


def _class_lengths(workload: WorkloadConfig, name: str) -> ClassLengths:
    """Length distributions of a class: its own, or the workload's."""
    section = workload.classes[name]
    prompt, response = (
        _length(getattr(section, key), f"workload.classes.{name}.{key}")
        if getattr(section, key)
        else _length(getattr(workload, key), f"workload.{key}")
        for key in ("prompt_tokens", "response_tokens")
    )
    return ClassLengths(section.share, prompt, response)


def _length(law: Law, path: str) -> LengthDistribution:
    return lengths_from_fields(law.law, law.fields, path)


def _latency(law: Law, path: str) -> LatencyDistribution:
    return latency_from_fields(law.law, law.fields, path)


def longest_prompt_tokens(workload: Workload) -> int:
    """Most tokens that a prompt can have."""
    return max(law.cap_tokens for law in workload.prompt_lengths)


def longest_tokens(workload: Workload) -> int:
    """Most tokens that a trajectory can have, prompt, tools and all turns."""
    turns = workload.turns
    count = 1 if turns is None else turns.count.cap_tokens
    tools = 0 if turns is None else turns.tool_output_tokens.cap_tokens * (count - 1)
    response = max(law.cap_tokens for law in workload.response_lengths)
    return longest_prompt_tokens(workload) + response * count + tools
