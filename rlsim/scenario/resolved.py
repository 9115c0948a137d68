"""The scenario as it was understood, defaults and all, as text that loads to the same scenario."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario


def resolved_yaml(scenario: Scenario) -> str:
    """ASCII YAML 1.2 in the order of the schema; equal scenarios give equal text."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    # Unescaped, the line breaks of Unicode (U+0085, U+2028) would be folded away on loading.
    yaml.allow_unicode = False
    yaml.width = 4096
    text = StringIO()
    yaml.dump(scenario.model_dump(mode="json"), text)
    return text.getvalue()
