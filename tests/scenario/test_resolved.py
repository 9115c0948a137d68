"""The resolved scenario loads to an equal scenario, whatever text it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlsim.scenario.document import load, resolved_yaml
from rlsim.scenario.schema import Scenario

Write = Callable[..., str]
NUMBERS = st.integers(0, 2**63 - 1) | st.floats(0, allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("arm", ["as-written", "fast", "heavy"])
def test_an_arm_resolved_is_a_file_without_arms(written: Write, with_arms: str, arm: str) -> None:
    scenario = load(written(with_arms)).resolve(arm)
    again = load(written(resolved_yaml(scenario), "resolved.yaml"))
    assert again.arms() == []
    assert again.resolve() == scenario


def test_defaults_are_written_and_text_is_stable(written: Write, base: str) -> None:
    scenario = load(written(base)).resolve()
    text = resolved_yaml(scenario)
    assert "max_num_batched_tokens: 8192" in text
    assert list(load(written(text, "r.yaml")).tree) == list(Scenario.model_fields)  # type: ignore[arg-type]
    assert resolved_yaml(load(written(text, "r.yaml")).resolve()) == text


@pytest.mark.parametrize("text", ["\x85", "a\u2028b", "\u2029", "é\n x\n", "~", "1e3", " ", "\ufeff", "\x7f", "x\r\n"])
def test_text_that_yaml_would_read_otherwise_survives(written: Write, base: str, text: str) -> None:
    scenario = load(written(base)).resolve().model_copy(update={"description": text})
    assert load(written(resolved_yaml(scenario), "r.yaml")).resolve().description == text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    description=TEXT,
    mfu=st.floats(1e-300, 1),
    parameters=st.dictionaries(st.from_regex(r"[a-z]{1,8}_k", fullmatch=True), VALUES, max_size=3),
)
def test_round_trip(written: Write, base: str, description: str, mfu: float, parameters: dict[str, Any]) -> None:
    start = load(written(base)).tree
    assert isinstance(start, dict)
    assert isinstance(start["trainer"], dict)
    tree = {
        **start,
        "description": description,
        "trainer": {**start["trainer"], "mfu": mfu},
        "policy": {"preset": "p", **parameters},
    }
    scenario = Scenario.model_validate(tree)
    assert load(written(resolved_yaml(scenario), "resolved.yaml")).resolve() == scenario
