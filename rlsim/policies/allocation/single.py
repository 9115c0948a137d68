"""One sample a prompt: SAO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Shape, View
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Single:
    """Groups of one, so that a finished sample waits for no sibling."""

    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> Single:
        """Refuse larger groups."""
        if shape.group_size != 1:
            raise ParameterError("use", "single", f"workload.group_size: 1 with it, not {shape.group_size}")
        return self

    def members(self, view: View, group: Group) -> Size:
        """One."""
        return Size(1, 1)
