"""Fields that are each allowed and do not go together are refused, at the field to change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel

from rlsim.core.errors import ScenarioError
from rlsim.scenario import schema
from rlsim.scenario.document import load

Write = Callable[..., str]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["rollout.tensor_parallel=3"], "rollout.gpus: found 16; allowed: a multiple of 3"),
        (
            ["rollout.data_parallel=8", "rollout.pipeline_parallel=4"],
            "rollout.gpus: found 16; allowed: a multiple of 32",
        ),
        (["trainer.context_parallel=5"], "trainer.gpus: found 16; allowed: a multiple of 5"),
        (
            ["rollout.tensor_parallel=2", "rollout.expert_parallel=4"],
            "rollout.expert_parallel: found 4; allowed: a divisor of 2",
        ),
        (
            ["rollout.max_num_batched_tokens=100"],
            "rollout.max_num_batched_tokens: found 100; allowed: at least max_num_seqs (256)",
        ),
        (["rollout.enable_chunked_prefill=false"], "rollout.max_model_len: missing; allowed: set"),
        (
            ["rollout.enable_chunked_prefill=false", "rollout.max_model_len=9000"],
            "rollout.max_model_len: found 9000; allowed: at most 8192",
        ),
        (["rollout.max_model_len=1"], "rollout.max_model_len: found 1; allowed: a whole number, at least 2"),
        (
            ["rollout.kv_blocks=10", "rollout.max_model_len=161"],
            "rollout.kv_blocks: found 10; allowed: enough for max_model_len",
        ),
        (["rollout.gpus=32"], "rollout.gpus: found 32; allowed: at most cluster.gpus (16)"),
        (["trainer.gpus=17"], "trainer.gpus: found 17; allowed: at most cluster.gpus (16)"),
        (
            ["trainer.updates_per_step=2049"],
            "trainer.updates_per_step: found 2049; allowed: at most the samples of a step (2048)",
        ),
        (["run.steps=1"], "run.steps: found 1; allowed: a whole number, above warmup_steps (1)"),
        (["run.confidence=1"], "run.confidence: found 1; allowed: a number, above 0 and below 1"),
        (
            ["workload.intra_group_correlation=1"],
            "workload.intra_group_correlation: found 1; allowed: a number, at least 0 and below 1",
        ),
        (["rollout.step_time.source=profile"], "rollout.step_time.profile: missing; allowed: a name or path"),
        (
            ["rollout.step_time.profile=p"],
            "rollout.step_time.profile: found 'p'; allowed: nothing with source: roofline",
        ),
        (
            ["rollout.step_time.source=coefficients"],
            "rollout.step_time.base_seconds: found 0.0; allowed: a number, above 0",
        ),
        (
            ["rollout.step_time.per_pair_seconds=1e-9"],
            "rollout.step_time.per_pair_seconds: found 1e-09; allowed: 0 with source",
        ),
        (["policy.preset=null"], "policy.preset: found null; allowed: the name of a preset, or parts"),
        (
            ["workload.response_tokens={law: mixture, weights: [1], laws: [3, {law: constant, tokens: -4}]}"],
            "workload.response_tokens.laws[1].tokens: found -4; allowed: a number, at least 0",
        ),
        (
            ["published=[{step_seconds: 0, source: s, grade: A}]"],
            "published[0].step_seconds: found 0; allowed: a number, above 0",
        ),
    ],
)
def test_contradictions(written: Write, base: str, settings: list[str], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(base), sets=settings).resolve()
    assert any(message in fault for fault in caught.value.faults), caught.value.faults


@pytest.mark.parametrize(
    "settings",
    [
        ["rollout.tensor_parallel=2", "rollout.data_parallel=4", "rollout.expert_parallel=8"],
        ["rollout.enable_chunked_prefill=false", "rollout.max_model_len=8192"],
        ["rollout.kv_blocks=10", "rollout.max_model_len=160"],
        ["rollout.step_time={source: coefficients, base_seconds: 0.01, per_kv_token_seconds: 1e-9}"],
        ["rollout.step_time={source: profile, profile: llama}"],
        ["policy={parts: {admission: barrier}}"],
        ["run.steps=2"],
    ],
)
def test_limits_themselves_are_allowed(written: Write, base: str, settings: list[str]) -> None:
    load(written(base), sets=settings).resolve()


def test_a_bare_number_is_the_constant_law_of_its_unit(written: Write, base: str) -> None:
    turns = "workload.turns={count: 3, tool_latency_seconds: 1.5, tool_output_tokens: 40}"
    workload = load(written(base), sets=[turns]).resolve().workload
    assert (workload.prompt_tokens.law, workload.prompt_tokens.fields) == ("constant", {"tokens": 120})
    assert workload.turns is not None
    assert workload.turns.tool_latency_seconds.fields == {"seconds": 1.5}


def test_parameters_of_a_law_and_a_policy_are_kept_as_written(written: Write, base: str) -> None:
    scenario = load(written(base)).resolve()
    assert scenario.workload.response_tokens.fields == {"mean_tokens": 1019, "sigma": 0.8, "cap_tokens": 4096}
    assert scenario.policy.fields == {"max_staleness": 0}


def test_every_field_is_described_and_no_section_takes_stray_keys() -> None:
    sections = [one for one in vars(schema).values() if isinstance(one, type) and issubclass(one, schema.Section)]
    assert len(sections) > 10
    for section in sections:
        assert section.model_config["frozen"]
        assert (section.model_config["extra"] == "allow") == (section in (schema.Law, schema.PolicyConfig))
        for name, field in section.model_fields.items():
            assert field.description or issubclass(_section_of(field.annotation), BaseModel), (section, name)


def _section_of(annotation: object) -> type:
    options = getattr(annotation, "__args__", None) or (annotation,)
    return next(one for one in options if isinstance(one, type))
