"""Facts that a part may state about itself, for the rules of :mod:`rlsim.policies.combinations`.

A started part states a fact by an attribute of that name: a class variable, a property, or a value that ``start`` has
computed from the sizes of the run. A fact that it does not state has the default below. Rules read facts alone, so that
a user's own part is held to what holds for the shipped ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

from rlsim.core.view import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFacts:
    """What admission counts, and whether work is under way when a batch is taken."""

    replaces_finished: bool = False
    """Work that ends is replaced whatever the version, so that some is always under way."""
    runs_ahead: bool = False
    """Calls may be under way when a batch is taken."""
    batches_per_version: int | None = None
    """Batches that a new version lets in; None where versions are not counted."""
    whole_batches: bool = False
    """What is in flight always makes whole batches, as long as nothing is dropped."""
    counts_refused_versions: bool = False
    """A publication that the replicas refuse lets as much in as a new version."""
    batch_of_every_version: bool = False
    """Every version lets a batch of its own in, though one of an earlier version is incomplete."""
    counts_unfinished: bool = False
    """Groups that the end of a round cuts keep their places in the count."""
    counts_begun_samples: bool = False
    """The lag is counted in samples begun, ``group_size`` for each group."""
    submits_by_round: bool = False
    """A round is submitted as a whole, and nothing that is dropped within it is replaced."""
    admits_when_idle: bool = False
    """Groups that ended are judged before more enter: once nothing is under way, or at a new version."""
    round_groups: int | None = None
    """Groups of a round that begins when all of the last one have ended; None without such rounds."""
    adds_prompts: bool = False
    """Prompts beyond the count enter while few groups are running."""
    fills_empty_replicas: bool = False
    """Work enters until no replica is empty."""
    stops_at_full_buffer: bool = False
    """Nothing more enters while so many complete groups wait for the trainer."""
    open_loop: bool = False
    """Requests arrive by themselves, whatever the engines and the trainer do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingFacts:
    """Which groups a batch waits for, and how many batches make a step."""

    streams: bool = False
    """Micro-batches are trained on while the rest of the batch is generated; they make one optimizer update."""
    batches_per_step: int = 1
    """Batches that are taken, one after the other, for a training step."""
    updates_per_batch: int | None = None
    """Optimizer updates of a batch; None for those that the trainer makes."""
    waits_from_age: int | None = None
    """Age in versions, 1 for those served, at which a group under way holds a batch back; None for never."""
    waits_for_target: bool = False
    """A step waits for all groups that were generated for it."""
    oldest_step_first: bool = False
    """A batch waits for groups under way of an older step."""
    old_groups: int | None = None
    """Groups of the oldest step in a batch, the rest being of later ones; None for no such share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFacts:
    """How often weights are published."""

    every_steps: int = 1
    """Training steps between publications, at most."""
    interval: tuple[str, int] | None = None
    """Name and value of the parameter that says so; None for ``every_steps``."""
    publishes_when_drained: bool = False
    """Weights are published earlier than that after a step at whose end no group is open."""
    tests_candidates: bool = False
    """A publication may be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFacts:
    """Whether the part for leftovers drops work, beside what the end of a round gives up."""

    may_drop: bool = False
    """Groups may be dropped, complete or not."""
    drops_by_age: bool = False
    """Complete groups are dropped for their age."""
    compares_steps: bool = False
    """The age is the training step less the version, so that every step has to make a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchFacts:
    """Which replicas may get no call."""

    may_starve_a_replica: bool = False
    """Some replicas may get no new call though they are empty."""
    prefills_on: Pool | None = None
    """Pool on which every call begins, where prefill and decode are apart."""
    decodes_on: Pool | None = None
    """Pool on which it goes on after one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderingFacts:
    """Where the ordering part ends calls early."""

    prefills_on: Pool | None = None
    """Pool on which calls end after one token, to go on elsewhere with their KV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFacts:
    """Whether calls change replicas."""

    moves_calls: bool = True
    """Running calls may move to another replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFacts:
    """What groups look like, beside what the hooks of the part say."""

    spares: bool = False
    """Groups have more samples than they need."""
    judges_rounds: bool = False
    """Groups are judged together once nothing is under way."""


Facts = TypeVar("Facts")


def facts_of(kind: type[Facts], part: object) -> Facts:
    """Facts of a started part: its attributes of those names, and the defaults of what it does not state."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(part, name) for name in names if hasattr(part, name)})


def part_name(part: object, registered: str | None) -> str:
    """Name of a started part in messages: what it states as ``part_name``, its registered name, or its class."""
    return str(getattr(part, "part_name", registered or type(part).__name__))
