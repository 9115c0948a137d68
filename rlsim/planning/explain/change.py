"""One change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Values by key path, in words, and what they do to what is learnt."""

    label: str
    settings: Mapping[str, object]
    learnt: str = ""
    """What changes of the data that are trained on; empty: nothing."""
