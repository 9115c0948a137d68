"""The workload section: laws by name."""

from __future__ import annotations

from rlsim.scenario.schema import Law, Scenario
from rlsim.workload.draws import ClassLaws
from rlsim.workload.latency import LatencyLaw
from rlsim.workload.lengths import LengthDistribution
from rlsim.workload.mismatch import Mismatch
from rlsim.workload.spec import latency_from_fields, law_from_fields
from rlsim.workload.workload import Drift, TurnDraws, Workload


def make_workload(scenario: Scenario) -> Workload:
    """The workload under seed 0; replications replace the seed."""
    given = scenario.workload
    turns = None
    if given.turns is not None:
        turns = TurnDraws(
            _length(given.turns.count, "workload.turns.count"),
            _latency(given.turns.tool_latency_seconds, "workload.turns.tool_latency_seconds"),
            _length(given.turns.tool_output_tokens, "workload.turns.tool_output_tokens"),
        )
    reward = None
    if given.reward is not None:
        reward = _latency(given.reward.latency_seconds, "workload.reward.latency_seconds")
    drift = Drift(given.drift.growth_per_version, given.drift.max_factor) if given.drift.growth_per_version else None
    mismatch = None
    if given.mismatch is not None:
        mismatch = Mismatch(given.mismatch.engine_variance, given.mismatch.variance_per_step)
    return Workload(
        0,
        given.group_size,
        given.dataset_prompts,
        _length(given.prompt_tokens, "workload.prompt_tokens"),
        _length(given.response_tokens, "workload.response_tokens"),
        given.intra_group_correlation,
        drift,
        turns,
        reward,
        mismatch,
        tuple(_class_laws(scenario, name) for name in given.classes),
    )


def _class_laws(scenario: Scenario, name: str) -> ClassLaws:
    """The laws of a class: its own, or the workload's."""
    given, shared, path = scenario.workload.classes[name], scenario.workload, f"workload.classes.{name}"
    prompt, response = (
        _length(getattr(given, law), f"{path}.{law}")
        if getattr(given, law)
        else _length(getattr(shared, law), f"workload.{law}")
        for law in ("prompt_tokens", "response_tokens")
    )
    return ClassLaws(given.share, prompt, response)


def _length(law: Law, path: str) -> LengthDistribution:
    return law_from_fields(law.law, law.fields, path)


def _latency(law: Law, path: str) -> LatencyLaw:
    return latency_from_fields(law.law, law.fields, path)


def longest_prompt_tokens(workload: Workload) -> int:
    """Most tokens that a prompt can have."""
    return max(law.cap_tokens for law in workload.prompt_laws)


def longest_tokens(workload: Workload) -> int:
    """Most tokens that a trajectory can have, prompt, tools and all turns."""
    turns = workload.turns
    count = 1 if turns is None else turns.count.cap_tokens
    tools = 0 if turns is None else turns.tool_output_tokens.cap_tokens * (count - 1)
    response = max(law.cap_tokens for law in workload.response_laws)
    return longest_prompt_tokens(workload) + response * count + tools
