"""Weights published when the effective sample size has fallen: DLC."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rlsim.core.commands import UpdateMode
from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


class EssTrigger:
    """How many steps ago the weights served were published."""

    def __init__(self, spec: EssTriggered) -> None:
        self.mode, self.resume_seconds, self.min_ess = spec.mode, spec.resume_seconds, spec.min_ess
        self.every_steps = sys.maxsize if spec.max_steps_behind is None else spec.max_steps_behind
        self._published = 0

    def due(self, view: View) -> bool:
        """When the last batch was worth too little, or the weights served are as old as they may be."""
        low = view.ess is not None and view.ess < self.min_ess
        due = low or view.steps_done - self._published >= self.every_steps
        if due:
            self._published = view.steps_done
        return due


@dataclass(frozen=True, slots=True)
class EssTriggered:
    """Publish after a step whose importance weights had an effective sample size below ``min_ess``.

    DLC resynchronises when it falls below a half (systems list entry 60, from the abstract); its correction of the
    loss is not modelled.
    """

    min_ess: float = 0.5
    """Effective sample size, as a share of the samples, below which weights are published."""
    max_steps_behind: int | None = None
    """Training steps after which weights are published whatever the share; None for no such bound."""
    mode: UpdateMode = "keep"
    resume_seconds: float = 0.0
    """Polling or retry interval of the clients of cut calls."""

    def start(self, shape: Shape) -> EssTrigger:
        """Refuse a share outside (0, 1] and less than one step."""
        if not 0 < self.min_ess <= 1:
            raise ParameterError("min_ess", self.min_ess, "a number above 0 and at most 1")
        at_least("max_steps_behind", 1 if self.max_steps_behind is None else self.max_steps_behind, 1)
        at_least("resume_seconds", self.resume_seconds, 0)
        return EssTrigger(self)
