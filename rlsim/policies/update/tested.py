"""Weights that the replicas judge before they serve them: MIPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import UpdateMode
from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class Tested:
    """Publish after every step; the replicas go on with the old weights when the new ones fail a test.

    A refused candidate costs its publication, the test and the step (our reading of the abstract of MIPU, systems
    list entry 230). How often that happens and how long a test takes are the scenario's ``sync.acceptance``.
    """

    mode: UpdateMode = "drain"
    resume_seconds: float = 0.0
    """Polling or retry interval of the clients of cut calls."""
    tests_candidates: ClassVar[bool] = True

    def start(self, shape: Shape) -> Tested:
        """Refuse a negative interval, and replicas that take weights one by one."""
        if self.mode == "pull":
            raise ParameterError("mode", self.mode, "drain, abort, keep, rebuild: the replicas judge together")
        at_least("resume_seconds", self.resume_seconds, 0)
        return self

    def due(self, view: View) -> bool:
        """After every step."""
        return True
