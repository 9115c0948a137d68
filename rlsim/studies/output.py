"""Results as JSON, and files that are there in full or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsim.results.store import replacing


def json_text(content: Mapping[str, Any] | list[Any], indent: int = 1) -> str:
    """The content, which a result's ``to_dict`` gives, as text that ends in a new line."""
    return json.dumps(content, indent=indent) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
