"""Configurations as text: YAML, TOML and command lines that read back to the same values."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any

from rlsim.frameworks.mapping import PROGRAM, Framework

_PLACE = re.compile(r"\{([^{}]+)\}")


def yaml_text(tree: Mapping[str, Any]) -> str:
    """Block-style YAML in the order of the mapping."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    out = StringIO()
    yaml.dump(dict(tree), out)
    return out.getvalue()


def toml_text(tree: Mapping[str, Any]) -> str:
    """TOML tables; nothing stands for null, which TOML does not have."""
    return "\n".join(_tables(tree, "")).strip() + "\n"


def _tables(tree: Mapping[str, Any], name: str) -> Iterator[str]:
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    if plain:
        yield f"\n[{name}]" if name else ""
        yield from (f"{key} = {json.dumps(value)}" for key, value in plain.items() if value is not None)
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _tables(value, f"{name}.{key}".lstrip("."))


def command_text(target: Framework, flat: Mapping[str, Any]) -> str:
    """A shell command with an argument a line, ``key=value`` (Hydra) or ``--key value`` (flags)."""
    placed = {"program": str(flat.get(PROGRAM, ""))} | {key: _word(value) for key, value in flat.items()}
    taken = {PROGRAM, *_PLACE.findall(target.command)}
    command = _PLACE.sub(lambda place: placed[place[1]], target.command)
    words = [_argument(target, key, value) for key, value in flat.items() if key not in taken]
    return " \\\n    ".join([command, *(word for word in words if word)]) + "\n"


def _argument(target: Framework, key: str, value: Any) -> str:
    if target.format == "hydra":
        return shlex.quote(f"{key}={_word(value)}")
    if isinstance(value, bool) and not target.hyphens:
        return f"--{key}" if value else ""
    if isinstance(value, list):
        return f"--{key} {' '.join(map(_word, value))}"
    return f"--{key} {shlex.quote(_word(value))}"


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "True", False: "False"}[value]
    return str(value)
