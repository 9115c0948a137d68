"""Publication of weights: after which steps, and what becomes of calls under way.

Every so many steps in one of the update modes (all systems); put off while the replicas are busy and their weights
not too old (AsyncFlow); when the effective sample size has fallen (DLC); or only if the replicas accept the candidate
(MIPU).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.commands import UpdateMode
from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes, View
from rlsim.policies.registry import part


@part("update", "publish")
@dataclass(frozen=True, slots=True)
class Publish:
    """Publish every ``every_steps`` training steps in one of the modes, or after so many samples."""

    mode: UpdateMode
    every_steps: int = 1
    every_samples: int | None = None
    """Samples trained on, rounded up to whole steps; None to count steps."""
    resume_seconds: float = 0.0
    """Polling or retry interval of the clients of cut calls."""

    def start(self, shape: RunSizes) -> Publish:
        """Refuse a negative interval."""
        at_least("every_steps", self.every_steps, 1)
        at_least("resume_seconds", self.resume_seconds, 0)
        if self.every_samples is None:
            return self
        at_least("every_samples", self.every_samples, 1)
        return replace(self, every_steps=-(-self.every_samples // (shape.prompts_per_step * shape.group_size)))

    @property
    def interval(self) -> tuple[str, int] | None:
        """In samples, where they are counted."""
        return None if self.every_samples is None else ("every_samples", self.every_samples)

    def due(self, view: View) -> bool:
        """Every so many steps."""
        return view.steps_done % self.every_steps == 0


class Deferral:
    """How old the weights of the replicas are."""

    mode: ClassVar[UpdateMode] = "drain"
    resume_seconds: ClassVar[float] = 0.0
    publishes_when_drained: ClassVar[bool] = True

    def __init__(self, steps: int) -> None:
        self.every_steps, self._published = steps, 0
        self.interval = ("max_steps_behind", steps)

    def due(self, view: View) -> bool:
        """When no group is open, or the weights served are as old as they may be."""
        due = not view.open or view.steps_done - self._published >= self.every_steps
        if due:
            self._published = view.steps_done
        return due


@part("update", "deferred")
@dataclass(frozen=True, slots=True)
class Deferred:
    """Publish after a step if no group is open, and at the latest after ``max_steps_behind`` steps.

    Our reading of AsyncFlow's delayed weight updates (arXiv 2507.01663), which are put off while staleness stays under
    a threshold. Publication waits until calls under way have ended.
    """

    max_steps_behind: int = 1
    """Training steps that the weights served may be behind; 1 publishes after every step."""

    def start(self, shape: RunSizes) -> Deferral:
        """Refuse less than one step."""
        at_least("max_steps_behind", self.max_steps_behind, 1)
        return Deferral(self.max_steps_behind)


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


@part("update", "ess-triggered")
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

    def start(self, shape: RunSizes) -> EssTrigger:
        """Refuse a share outside (0, 1] and less than one step."""
        if not 0 < self.min_ess <= 1:
            raise ParameterError("min_ess", self.min_ess, "a number above 0 and at most 1")
        at_least("max_steps_behind", 1 if self.max_steps_behind is None else self.max_steps_behind, 1)
        at_least("resume_seconds", self.resume_seconds, 0)
        return EssTrigger(self)


@part("update", "tested")
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

    def start(self, shape: RunSizes) -> Tested:
        """Refuse a negative interval, and replicas that take weights one by one."""
        if self.mode == "pull":
            raise ParameterError("mode", self.mode, "drain, abort, keep, rebuild: the replicas judge together")
        at_least("resume_seconds", self.resume_seconds, 0)
        return self

    def due(self, view: View) -> bool:
        """After every step."""
        return True
