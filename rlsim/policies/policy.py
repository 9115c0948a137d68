"""A policy: one started part for each choice."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlsim.policies.allocation.uniform import Uniform
from rlsim.policies.migration.stay import Stay
from rlsim.policies.ordering.fcfs import Fcfs
from rlsim.policies.protocols import (
    Admission,
    Allocation,
    Batching,
    Dispatch,
    Leftovers,
    Migration,
    Ordering,
    Placement,
    Turns,
    Update,
)
from rlsim.policies.turns.pace import Alone

DEFAULTS: dict[str, str] = {"ordering": "fcfs", "migration": "stay", "allocation": "uniform", "turns": "alone"}
"""Choices that a preset need not name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a controller asks."""

    admission: Admission
    batching: Batching
    update: Update
    leftovers: Leftovers
    dispatch: Dispatch
    placement: Placement
    ordering: Ordering = field(default_factory=Fcfs)
    migration: Migration = field(default_factory=Stay)
    allocation: Allocation = field(default_factory=Uniform)
    turns: Turns = field(default_factory=Alone)
