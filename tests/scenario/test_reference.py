"""The reference of scenario keys is what the schema says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.docs_pages import scenario_page
from evidence.site import generated
from rlsim.core.errors import ScenarioError
from rlsim.scenario.document import load

ROOT = Path(__file__).parents[2]
PAGE = scenario_page()


def keys() -> dict[str, dict[str, list[str]]]:
    """Cells of every row by section and key."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").strip("`")
            found[section] = {}
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found[section][cells[0].strip("`")] = cells
    return found


def test_the_page_is_the_schemas() -> None:
    assert generated()["reference/scenario.md"]() == PAGE


def _leaves(name: str, definitions: dict[str, dict[str, object]], at: str, seen: set[str]) -> Iterator[str]:
    """Key paths of the JSON schema, by another way than the page's; a section that stands in two places, in one."""
    seen.add(name)
    for key, field in dict(definitions[name].get("properties", {})).items():  # type: ignore[call-overload]
        path = f"{at}.{key}".removeprefix(".")
        yield path
        each = ".N" if "'type': 'array'" in str(field) else ".NAME" if "additionalProperties" in str(field) else ""
        for below in re.findall(r"#/\$defs/(\w+)", str(field)):
            if below != "Law" and below not in seen:
                yield from _leaves(below, definitions, path + each, seen)


def test_every_key_has_a_row_with_a_type_and_a_meaning() -> None:
    from rlsim.scenario.schema import Scenario

    schema = Scenario.model_json_schema()
    wanted = set(_leaves("Scenario", {**schema["$defs"], "Scenario": schema}, "", set()))
    rows = {
        f"{section}.{key}".removeprefix("Top level."): cells
        for section, some in keys().items()
        for key, cells in some.items()
    }
    assert wanted <= set(rows), wanted - set(rows)
    for path in wanted:
        assert rows[path][1], path
        assert rows[path][5], path


@pytest.mark.parametrize(
    ("section", "key"),
    [("rollout", "gpu_memory_utilization"), ("trainer", "mfu"), ("run", "steps"), ("workload.drift", "max_factor")],
)
def test_a_value_beyond_the_range_that_it_states_is_refused(section: str, key: str) -> None:
    told = keys()[section][key][4]
    bound = re.search(r"at (?:least|most) (\S+?)(?:,|$)", told)
    assert bound is not None, told
    beyond = 0 if "at least 1" in told else 1.5
    with pytest.raises(ScenarioError, match=f"{section}.{key}".replace(".", r"\.")):
        load(ROOT / "scenarios" / "quickstart.yaml", sets=[f"{section}.{key}={beyond}"]).resolve_all()


def test_defaults_are_those_of_a_scenario_that_leaves_them_out() -> None:
    scenario = load(ROOT / "scenarios" / "quickstart.yaml").resolve("one-off 8+8")
    for section, key in (("cluster", "gpus_per_node"), ("rollout", "block_size"), ("run", "confidence")):
        assert keys()[section][key][3] == f"`{getattr(getattr(scenario, section), key)}`"
