"""What is wrong is said with file, line, key, what was found, what is allowed and the nearest spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from rlsim.core.errors import ParameterError, ScenarioError, unknown
from rlsim.scenario.document import load
from rlsim.scenario.override import override

Write = Callable[..., str]
FREE = ("mean_tokens", "sigma", "cap_tokens", "tail_index", "max_staleness")
ARM_NAMES = ("as-written", "fast", "heavy")


def refused(path: str, arm: str | None = None) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load(path).resolve(arm)
    return caught.value.faults


def misspellings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, key and text for each key with an x behind it, other than names of arms and free parameters."""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        match = re.match(r" *([a-z_-]+):", line)
        if match and match[1] not in (*ARM_NAMES, *FREE):
            bad = line.replace(f"{match[1]}:", f"{match[1]}x:", 1)
            yield number, match[1], "\n".join([*lines[: number - 1], bad, *lines[number:]])


def test_every_misspelt_key_is_one_fault_with_its_line_and_the_right_key(written: Write, base: str) -> None:
    tried = 0
    for line, key, text in misspellings(base):
        path = written(text)
        faults = refused(path)
        assert len(faults) == 1, faults
        assert faults[0].startswith(f"{path}:{line}: ")
        assert "unknown key; allowed: " in faults[0]
        assert f"did you mean '{key}'?" in faults[0]
        tried += 1
    assert tried == 19


@pytest.mark.parametrize("fault", ["      mfux: 0.5", "      mfu: fast", "      mfu: 0.5\n    cluster: {gpus: 1}"])
def test_a_fault_of_one_arm_stops_no_other(written: Write, with_arms: str, fault: str) -> None:
    document = load(written(with_arms.replace("      mfu: 0.5", fault)))
    assert document.resolve("heavy").rollout.tensor_parallel == 2
    for ask in (lambda: document.resolve("fast"), document.resolve_all):
        with pytest.raises(ScenarioError, match=r"arms\.fast|in arm 'fast'"):
            ask()


@pytest.mark.parametrize("arms", ["3", "{}", "{heavy: 3, fast: {}}"])
def test_arms_that_are_no_mappings_are_refused(written: Write, base: str, arms: str) -> None:
    (fault,) = refused(written(f"{base}arms: {arms}\n"), "heavy" if "heavy" in arms else None)
    assert "allowed: a mapping of" in fault


def test_a_section_misspelt_in_the_base_is_one_fault_though_an_arm_adds_to_it(written: Write, with_arms: str) -> None:
    faults = refused(written(with_arms.replace("\ntrainer:", "\ntrainerx:")), "fast")
    assert len(faults) == 1
    assert "did you mean 'trainer'?" in faults[0]


def test_a_key_unlike_any_other_is_unknown_without_a_guess(written: Write, base: str) -> None:
    (fault,) = refused(written(base + "zzzz: 1\n"))
    assert "zzzz: unknown key" in fault
    assert "did you mean" not in fault


def test_a_missing_key_names_the_line_of_its_mapping(written: Write, base: str) -> None:
    path = written(base.replace("  group_size: 32\n", ""))
    message = f"{path}:10: workload.group_size: missing; allowed: a whole number, at least 1"
    assert refused(path) == (message,)


def test_a_key_missing_from_some_arms_names_them(written: Write, with_arms: str) -> None:
    path = written(with_arms.replace("policy:\n  preset: sync-colocated\n  max_staleness: 0\n", ""))
    assert load(path).resolve("fast").policy.preset == "one-step-off"
    (fault,) = refused(path, "heavy")
    assert fault == f"{path}:1: policy: missing; allowed: a mapping (in arm 'as-written', 'heavy')"
    assert load(path).faults()[0].text.endswith("(in arm 'as-written', 'heavy')")


def test_all_faults_of_a_file_come_at_once_and_in_order(written: Write, base: str) -> None:
    text = base.replace("gpus: 16}", "gpus: 0}").replace("mfu: 0.4", "mfu: .nan\n  mfu: 2").replace("steps", "step")
    faults = refused(written(text))
    assert [re.search(r":(\d+): ([\w.]+)", fault).groups() for fault in faults] == [  # type: ignore[union-attr]
        ("3", "cluster.gpus"),
        ("9", "trainer.mfu"),
        ("10", "trainer.mfu"),
        ("24", "run.step"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mfu: 0.4", "mfu: .nan", "9: trainer.mfu: found .nan; allowed: a finite number"),
        (
            "sigma: 0.8",
            "sigma: .inf",
            "17: workload.response_tokens.sigma: found .inf; allowed: a finite number",
        ),
        ("mfu: 0.4", "mfu: 1.5", "9: trainer.mfu: found 1.5; allowed: a number, above 0 and at most 1"),
        (
            "gpus: 16\n  step",
            "gpus: many\n  step",
            "5: rollout.gpus: found 'many'; allowed: a whole number, at least 1",
        ),
        ("steps: 4", "steps: true", "23: run.steps: found true; allowed: a whole number, at least 1"),
        ("steps: 4", "steps:\n    four", "24: run.steps: found 'four'; allowed: a whole number, at least 1"),
        (
            "group_size: 32",
            "group_size: 32.0",
            "12: workload.group_size: found 32.0; allowed: a whole number, at least 1",
        ),
        (
            "tokens: 120",
            "tokens: -5",
            "13: workload.prompt_tokens.tokens: found -5; allowed: a number, at least 0",
        ),
        (
            "mean_tokens: 1019",
            "mean_tokens: -1019",
            "16: workload.response_tokens.mean_tokens: found -1019; allowed: a number, at least 0",
        ),
        (
            "source: roofline",
            "source: rofline",
            "6: rollout.step_time.source: found 'rofline'; allowed: profile, roofline, coefficients;"
            " did you mean 'roofline'?",
        ),
        (
            "tokens: 120",
            "tokens: [1]",
            "13: workload.prompt_tokens: found a list; allowed: a number, or a mapping",
        ),
        ("run:\n  steps: 4", "run:", "22: run: found null; allowed: a mapping"),
        ("name: x", "name: ''", "1: name: found ''; allowed: text, of length at least 1"),
        ("model:", "1e3: 4\nmodel:", "2: 1e3: unknown key; allowed: arms, case, cluster"),
    ],
)
def test_a_bad_value_names_what_is_allowed(written: Write, base: str, old: str, new: str, message: str) -> None:
    path = written(base.replace(old, new))
    assert any(fault.startswith(f"{path}:{message}") for fault in refused(path)), refused(path)


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("name: x\nrun: [1,\n", 3, "not valid YAML"),
        ("name: x\nrollo", 2, "not valid YAML"),
        ("name: 'x\nmodel: y\n", 3, "unexpected end of stream"),
        ("name: x\n\tmodel: y\n", 2, "'\\t'"),
        ("name: x\n---\nname: y\n", 2, "another document"),
        ("name: *nowhere\n", 1, "undefined alias 'nowhere'"),
        ("name: x\nmodel: \0\n", 2, r"'\x00'"),
        ("", 1, "an empty file"),
        ("# only this\n", 1, "an empty file"),
        ("- name: x\n", 1, "a list"),
    ],
)
def test_text_that_is_no_scenario_is_refused_where_it_breaks(written: Write, text: str, line: int, found: str) -> None:
    path = written(text)
    (fault,) = refused(path)
    assert fault.startswith(f"{path}:{line}: ")
    assert found in fault


def test_a_syntax_fault_names_the_column(written: Write) -> None:
    path = written("name: x\nrun: {steps: 4\n")
    assert refused(path)[0].startswith(f"{path}:3: column 1: not valid YAML")


@pytest.mark.parametrize("size", range(1, 320, 17))
def test_no_truncation_escapes_as_anything_but_a_scenario_error(written: Write, base: str, size: int) -> None:
    path = written(base[:size])
    assert all(fault.startswith(path) for fault in refused(path))


def test_a_duplicate_key_names_both_lines(written: Write, base: str) -> None:
    path = written(base.replace("  mfu: 0.4", "  mfu: 0.4\n  mfu: 0.5"))
    assert refused(path) == (f"{path}:10: trainer.mfu: duplicate key; first written on line 9; allowed: once",)


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!mine", "!!binary", "!!set"])
def test_tags_are_refused_and_make_nothing(written: Write, base: str, tag: str) -> None:
    path = written(base.replace("model: Llama", f"model: {tag} Llama"))
    assert any(fault.startswith(f"{path}:2: model: found tag ") for fault in refused(path))


def test_merge_keys_are_refused(written: Write, base: str) -> None:
    path = written(base + "<<: {seed: 1}\n")
    assert refused(path) == (f"{path}:24: found '<<' as a key; allowed: a name",)


def test_an_alias_bomb_is_refused(written: Write) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert "more values than a scenario needs" in refused(written(bomb))[0]


@pytest.mark.parametrize("text", ["a: &x [*x]\n", "a: &x {b: *x}\n", "[" * 3000, "{a: " * 3000])
def test_cycles_and_deep_nesting_are_refused(written: Write, text: str) -> None:
    assert "nested too deep" in refused(written(text))[0]


def test_a_modest_alias_repeats_its_value(written: Write, base: str) -> None:
    text = base.replace("prompt_tokens: 120", "prompt_tokens: &n 120").replace("cap_tokens: 4096", "cap_tokens: *n")
    assert load(written(text)).resolve().workload.response_tokens.fields["cap_tokens"] == 120


def test_a_large_file_is_refused(written: Write) -> None:
    assert "more than 1000000 bytes" in refused(written("#" * 1_000_001))[0]


def test_bytes_that_are_not_utf8_name_their_line(written: Write, base: str) -> None:
    path = written(base)
    with open(path, "ab") as file:
        file.write(b"description: \xff\n")
    assert refused(path) == (f"{path}:24: found byte 0xff at offset {len(base) + 13}; allowed: UTF-8 text",)


def test_a_missing_file_suggests_one_beside_it(written: Write, base: str) -> None:
    path = written(base, "quickstart.yaml")
    wrong = path.replace("quickstart", "quikstart")
    assert refused(wrong) == (f"{wrong}: file not found; did you mean '{path}'?",)


def test_a_folder_is_not_a_scenario(written: Write, base: str) -> None:
    folder = written(base).removesuffix("/x.yaml")
    assert refused(folder) == (f"{folder}: cannot be read: Is a directory",)


@pytest.mark.parametrize(("value", "integer"), [("1_000", 1000), ("010", 10), ("0x10", 16), ("0o10", 8), ("+7", 7)])
def test_whole_numbers_are_those_of_yaml_1_2(written: Write, base: str, value: str, integer: int) -> None:
    assert load(written(base + f"seed: {value}\n")).resolve().seed == integer


def test_words_are_text_and_exponents_are_numbers(written: Write, base: str) -> None:
    text = base.replace("name: x", "name: yes").replace("mfu: 0.4", "mfu: 4e-1")
    scenario = load(written(text)).resolve()
    assert (scenario.name, scenario.trainer.mfu) == ("yes", 0.4)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            unknown("policy.max_staleness", "max_staleness", ["staleness_threshold"]),
            "21: policy.max_staleness: unknown key; allowed: parts, preset, staleness_threshold;"
            " did you mean 'staleness_threshold'?",
        ),
        (
            unknown("workload.response_tokens", "sigma", ["sigmas", "cap_tokens"]),
            "17: workload.response_tokens.sigma: unknown key; allowed: cap_tokens, law, sigmas; did you mean 'sigmas'?",
        ),
        (
            unknown("model", "Llama-3.1-8B", ["Llama-3.1-70B"]),
            "2: model: found 'Llama-3.1-8B'; allowed: Llama-3.1-70B (did you mean 'Llama-3.1-70B'?)",
        ),
        (
            ParameterError("workload.response_tokens.sigma", 0.8, "at least 1"),
            "17: workload.response_tokens.sigma: found 0.8; allowed: at least 1",
        ),
        (
            ParameterError("workload.response_tokens.median_tokens", None, "a number"),
            "14: workload.response_tokens.median_tokens: missing; allowed: a number",
        ),
        (
            ParameterError("rollout.max_num_seqs", 256, "at most 128"),
            "4: rollout.max_num_seqs: found 256; allowed: at most 128",
        ),
        (ParameterError("", "x", "y"), "1: found 'x'; allowed: y"),
    ],
)
def test_errors_of_what_is_built_get_file_and_line(
    written: Write, base: str, error: ParameterError, message: str
) -> None:
    path = written(base)
    document = load(path)
    document.resolve()
    assert document.scenario_error([error, error]).faults == (f"{path}:{message}",)


def test_a_misspelt_choice_in_an_arm_is_hinted_though_the_base_has_one(written: Write, with_arms: str) -> None:
    path = written(with_arms.replace("        law: pareto", "        lawx: pareto"))
    document = load(path)
    fields = document.resolve("heavy").workload.response_tokens.fields
    assert "lawx" in fields
    error = unknown("workload.response_tokens.lawx", "lawx", ["cap_tokens", "mean_tokens", "sigma"])
    (fault,) = document.scenario_error([error], "heavy").faults
    assert fault.startswith(f"{path}:34: arms.heavy.workload.response_tokens.lawx: unknown key; ")
    assert fault.endswith("did you mean 'law'?")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workload": {"prompts_per_step": 4}}, "workload.group_size: found null; allowed: a whole number, at least 1"),
        ({"rollout.gpus": 3, "rollout.tensor_parallel": 2}, "rollout.gpus: found 3; allowed: a multiple of 2 (tens"),
        ({"trainer.updates_per_step": 10**6}, "trainer.updates_per_step: found 1000000; allowed: at most the samples"),
        ({"rollout.step_time": {"source": "roofline", "sizes": {"a": 1}}}, "rollout.step_time: found "),
        ({"cluster": {"device": {"name": "H100"}, "gpus": 16}}, "cluster.device: found a mapping; allowed: text"),
        ({"seed": -1}, "seed: found -1; allowed: a whole number, at least 0"),
    ],
)
def test_a_refused_value_is_one_line_at_its_key(
    written: Write, base: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        override(load(written(base)).resolve(), settings)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_faults_of_what_arms_resolve_to_name_the_arms(written: Write, with_arms: str) -> None:
    document = load(written(with_arms))
    errors = [ParameterError("model", "Llama-3.1-80B", "Llama-3.1-8B")]
    (fault,) = document.scenario_errors({"fast": errors, "heavy": errors}).faults
    assert fault.endswith("allowed: Llama-3.1-8B (in arm 'fast', 'heavy')")
    (fault,) = document.scenario_errors(dict.fromkeys(document.arms(), errors)).faults
    assert fault.endswith("allowed: Llama-3.1-8B")
