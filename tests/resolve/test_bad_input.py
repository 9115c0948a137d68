"""A scenario that cannot run fails before anything runs: file, line, key, found, allowed and the nearest spelling."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_files import TEXT, faults_of, written

PRESET = "preset: sync-disaggregated"
PROFILE = "llama-3.1-8b_h100-sxm_tp1"
COEFFICIENTS = (f"source: profile\n    profile: {PROFILE}", "source: coefficients\n    base_seconds: 0.01")
CAP = "    cap_tokens: 4096\n"


def with_part(part: str) -> str:
    """The preset with one of its parts replaced."""
    return f"{PRESET}\n  parts:\n    {part}"


def test_the_scenario_without_faults_is_planned(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path)) == ()


@pytest.mark.parametrize("spelling", ["meta-llama/Llama-3.1-8B", "llama-3.1-8b"])
def test_a_profile_fits_its_model_and_device_however_they_are_spelt(tmp_path: Path, spelling: str) -> None:
    path = written(tmp_path, ("model: Llama-3.1-8B", f"model: {spelling}"), ("H100-SXM", "h100-sxm"))
    assert faults_of(path) == ()


MISSPELT = [
    (
        "group_size",
        "gruop_size",
        17,
        "workload.gruop_size: unknown key; allowed: classes, dataset_prompts",
        "group_size",
    ),
    (
        PRESET,
        "preset: sync-disagregated",
        25,
        "policy.preset: found 'sync-disagregated'; allowed: 2-grpo, areal",
        PRESET[8:],
    ),
    (
        PRESET,
        "preset: areal\n  max_head_offpolicynes: 2",
        26,
        "policy.max_head_offpolicynes: unknown key; allowed: max_concurrent_rollouts, max_head_offpolicyness",
        "max_head_offpolicyness",
    ),
    ("sigma:", "sigmaa:", 22, "workload.response_tokens.sigmaa: unknown key; allowed: cap_tokens, law", "sigma"),
    (
        "law: lognormal",
        "law: lognorml",
        20,
        "workload.response_tokens.law: found 'lognorml'; allowed: constant, empirical",
        "lognormal",
    ),
    (
        CAP,
        f"{CAP}  reward:\n    latency_seconds: {{law: exponential, mean_second: 3}}\n",
        25,
        "workload.reward.latency_seconds.mean_second: unknown key; allowed: cap_seconds, law, mean_seconds",
        "mean_seconds",
    ),
    (
        PRESET,
        with_part("admission: {use: barier}"),
        27,
        "policy.parts.admission.use: found 'barier'; allowed: barrier",
        "barrier",
    ),
    (
        PRESET,
        with_part("admision: {use: barrier}"),
        27,
        "policy.parts.admision: unknown key; allowed: admission, allocation, batching",
        "admission",
    ),
    (
        PRESET,
        with_part("update: {use: publish, mode: keep, evry_steps: 2}"),
        27,
        "policy.parts.update.evry_steps: unknown key; allowed: every_s",
        "every_steps",
    ),
    ("Llama-3.1-8B", "Lama-3.1-8B", 2, "model: found 'Lama-3.1-8B'; allowed: did you mean", "Llama-3.1-8B"),
    ("H100-SXM", "H10-SXM", 4, "cluster.device: found 'H10-SXM'; allowed: A100-SXM-80GB, B200", "H100-SXM"),
    (
        PROFILE,
        "llama-3.1-8b_h100-sxm_tp11",
        11,
        "rollout.step_time.profile: found 'llama-3.1-8b_h100-sxm_tp11'; allowed: deepseek-v3_b200",
        PROFILE,
    ),
]


@pytest.mark.parametrize(("old", "new", "line", "message", "meant"), MISSPELT, ids=[case[4] for case in MISSPELT])
def test_a_misspelt_name_is_one_fault_with_the_right_spelling(
    tmp_path: Path, old: str, new: str, line: int, message: str, meant: str
) -> None:
    path = written(tmp_path, (old, new))
    (fault,) = faults_of(path)
    assert fault.startswith(f"{path}:{line}: {message}")
    assert f"did you mean '{meant}'" in fault


IMPOSSIBLE = [
    (
        "a model that does not fit",
        [("Llama-3.1-8B", "Llama-3.1-70B"), COEFFICIENTS],
        "6: rollout.gpu_memory_utilization: found 'Llama-3.1-70B needs 13",
        "allowed: a model that fits: more tensor_parallel or pipeline_parallel",
    ),
    (
        "too few blocks for one sequence",
        [("max_num_seqs: 64", "max_num_seqs: 64\n  kv_blocks: 100")],
        "9: rollout.kv_blocks: found '100 KV blocks of 16 tokens'",
        "room for one sequence of 4216 tokens",
    ),
    (
        "too few blocks for the given limit",
        [("max_num_seqs: 64", "max_num_seqs: 64\n  kv_blocks: 100\n  max_model_len: 4000")],
        "9: rollout.kv_blocks: found 100",
        "allowed: enough for max_model_len (4000 tokens)",
    ),
    (
        "a prompt longer than the context",
        [("max_num_seqs: 64", "max_num_seqs: 64\n  max_model_len: 120")],
        "9: rollout.max_model_len: found 120",
        "allowed: more than the longest prompt (120)",
    ),
    (
        "a submission smaller than the batch",
        [(PRESET, "preset: slime-april\n  over_sampling_batch_size: 4")],
        "26: policy.over_sampling_batch_size: found 4",
        "allowed: at least prompts_per_step = 8",
    ),
    (
        "a buffer that never holds a batch, under the preset's own name for it",
        [(PRESET, "preset: pipelinerl\n  ring_buffer_groups: 4")],
        "26: policy.ring_buffer_groups: found 4",
        "at least prompts_per_step = 8: a smaller buffer never fills a batch",
    ),
    (
        "no group at all",
        [(PRESET, "preset: areal\n  max_concurrent_rollouts: 0")],
        "26: policy.max_concurrent_rollouts: found 0",
        "allowed: at least 1",
    ),
    (
        "engines that sleep while calls are under way",
        [(PRESET, "preset: sync-colocated\n  parts:\n    update: {use: publish, mode: keep}")],
        "27: policy.parts.update.mode: found 'keep'",
        "allowed: drain: engines on shared GPUs sleep",
    ),
    (
        "shared GPUs that are not the same",
        [(PRESET, "preset: sync-colocated"), ("gpus: 8\n  mfu", "gpus: 4\n  mfu")],
        "13: trainer.gpus: found 4",
        "allowed: at least rollout.gpus (8): this policy shares the GPUs",
    ),
    (
        "more GPUs than there are",
        [("gpus: 8\n  mfu", "gpus: 16\n  mfu")],
        "13: trainer.gpus: found 16",
        "allowed: at most cluster.gpus - rollout.gpus = 8",
    ),
    (
        "a split that does not divide",
        [("gpus: 8\n  max", "gpus: 8\n  tensor_parallel: 3\n  max")],
        "7: rollout.gpus: found 8",
        "allowed: a multiple of 3",
    ),
    (
        "more updates than samples",
        [("mfu: 0.4", "mfu: 0.4\n  updates_per_step: 33")],
        "15: trainer.updates_per_step: found 33",
        "allowed: at most the samples of a step (32)",
    ),
    (
        "a profile of another device",
        [("device: H100-SXM", "device: H200-SXM")],
        f"11: rollout.step_time.profile: found '{PROFILE}'",
        "cluster.allow_other_hardware: true (device H100-SXM is not H200-SXM)",
    ),
    (
        "a profile of another split",
        [("max_num_seqs: 64", "tensor_parallel: 2")],
        f"11: rollout.step_time.profile: found '{PROFILE}'",
        "(tensor_parallel 1 is not 2)",
    ),
    (
        "a negative length",
        [("tokens: 120", "tokens: -120")],
        "18: workload.prompt_tokens.tokens: found -120",
        "at least 0",
    ),
    ("a mean above the cap", [("900", "9000")], "21: workload.response_tokens.mean_tokens: found 9000.0", "[1, 4096)"),
    ("not a number", [("mfu: 0.4", "mfu: .nan")], "14: trainer.mfu: found .nan", "allowed: a finite number"),
    (
        "not a number in a law",
        [("sigma: 0.8", "sigma: .nan")],
        "22: workload.response_tokens.sigma: found .nan",
        "allowed: a finite number",
    ),
    (
        "a parameter of the wrong kind",
        [(PRESET, "preset: pipelinerl\n  llm_max_rollouts: many")],
        "26: policy.llm_max_rollouts: found 'many'",
        "integer",
    ),
    (
        "a flag that is no flag",
        [(PRESET, "preset: nemo-rl-async\n  in_flight_weight_updates: 2")],
        "26: policy.in_flight_weight_updates: found 2",
        "allowed: true or false",
    ),
    (
        "a policy without one of its choices",
        [(PRESET, "parts:\n    admission: {use: barrier}")],
        "25: policy.parts.batching: missing",
        "allowed: a part: complete-groups",
    ),
    (
        "a part that cannot be imported",
        [(PRESET, with_part("admission: {use: 'nowhere:Thing'}"))],
        "27: policy.parts.admission.use: found 'nowhere:Thing'",
        "allowed: module:Class that can be imported",
    ),
    (
        "a time a tensor without their number",
        [("run:", "sync:\n  per_tensor_seconds: 0.001\nrun:")],
        "26: sync.tensors: missing",
        "with per_tensor_seconds",
    ),
    (
        "a missing profile",
        [(PROFILE, "none.json")],
        "11: rollout.step_time.profile: found '",
        "allowed: a readable file",
    ),
    ("a missing model file", [("Llama-3.1-8B", "config.json")], "2: model: found '", "allowed: a readable file"),
]


@pytest.mark.parametrize(
    ("changes", "start", "allowed"), [case[1:] for case in IMPOSSIBLE], ids=[c[0] for c in IMPOSSIBLE]
)
def test_what_cannot_work_is_refused_with_line_key_found_and_allowed(
    tmp_path: Path, changes: list[tuple[str, str]], start: str, allowed: str
) -> None:
    path = written(tmp_path, *changes)
    (fault,) = faults_of(path)
    assert fault.startswith(f"{path}:{start}")
    assert allowed in fault


def test_other_hardware_is_accepted_when_the_user_says_so(tmp_path: Path) -> None:
    other = ("device: H100-SXM", "device: H200-SXM\n  allow_other_hardware: true")
    assert faults_of(written(tmp_path, other)) == ()


def test_faults_of_different_sections_are_reported_at_once_and_in_order(tmp_path: Path) -> None:
    """Also those behind a model and a device that are unknown."""
    path = written(
        tmp_path,
        ("Llama-3.1-8B", "Lama-3.1-8B"),
        ("H100-SXM", "H100-SXN"),
        (PROFILE, "llama-3.1-8b_h100-sxm_tp8"),
        ("lognormal", "lognormel"),
        (PRESET, "preset: sync-disaggregate"),
    )
    starts = ["2: model", "4: cluster.device", "11: rollout.step_time.profile"]
    starts += ["20: workload.response_tokens.law", "25: policy.preset"]
    faults = faults_of(path)
    assert [fault.split(": found")[0] for fault in faults] == [f"{path}:{start}" for start in starts]
    assert all("did you mean" in fault for fault in faults)


def test_what_depends_on_the_model_is_reported_with_what_does_not(tmp_path: Path) -> None:
    path = written(tmp_path, ("max_num_seqs: 64", "kv_blocks: 10"), ("sigma:", "sigmaa:"), ("tp1", "tp8"))
    assert [fault.split(":")[2].strip() for fault in faults_of(path)] == [
        "rollout.step_time.profile",
        "workload.response_tokens.sigmaa",
    ]
    path = written(tmp_path, ("max_num_seqs: 64", "kv_blocks: 10"), (PRESET, "preset: areal\n  max_stale: 3"))
    assert [fault.split(":")[2].strip() for fault in faults_of(path)] == ["rollout.kv_blocks", "policy.max_stale"]


def test_a_fault_of_an_arm_names_the_line_in_the_arm(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_text(encoding="utf-8") + "arms:\n  plain:\n  odd:\n    cluster:\n      device: H101-SXM\n"
    path.write_text(text, encoding="utf-8")
    assert faults_of(path, "plain") == ()
    (fault,) = faults_of(path, "odd")
    assert fault.startswith(f"{path}:33: arms.odd.cluster.device: found 'H101-SXM'; allowed: A100")


def test_a_fault_of_a_setting_names_the_setting(tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path), sets=("policy.preset=arael",))
    assert fault.startswith("--set policy.preset=arael: policy.preset: found 'arael'")
    assert "did you mean 'areal'?" in fault


@pytest.mark.parametrize("size", range(0, len(TEXT) - 40, 23))
def test_a_truncated_file_is_refused_as_a_scenario(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.yaml"
    path.write_text(TEXT[:size], encoding="utf-8")
    faults = faults_of(path)
    assert faults
    assert all(fault.startswith(f"{path}:") for fault in faults)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_profile_is_refused_at_the_key_that_names_it(tmp_path: Path, share: float) -> None:
    from rlsim.costs.profile import load_profile

    load_profile(PROFILE).write(tmp_path / "own.json")
    assert faults_of(written(tmp_path, (PROFILE, "own.json"))) == ()
    data = (tmp_path / "own.json").read_bytes()
    (tmp_path / "own.json").write_bytes(data[: int(len(data) * share)])
    (fault,) = faults_of(written(tmp_path, (PROFILE, "own.json")))
    assert ":11: rollout.step_time.profile: found " in fault
    assert fault.endswith("allowed: a JSON object")


def test_a_bad_number_in_a_file_of_lengths_is_refused_at_the_key_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("100\n200\n-3\n", encoding="utf-8")
    law = TEXT[TEXT.index("    law: lognormal") : TEXT.index("policy:")]
    (fault,) = faults_of(written(tmp_path, (law, "    law: empirical\n    file: lengths.txt\n")))
    assert ":21: workload.response_tokens.file: found '-3 at " in fault
    assert "allowed: whole numbers in [0, " in fault
