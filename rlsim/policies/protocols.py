"""The choices that make a policy: one small protocol each.

A part is a frozen dataclass whose fields are its parameters. ``start(shape)`` refuses sizes it cannot work with and
gives what decides during the run: the part itself, or an object that holds its state. Parts see a read-only
``View``; they never read a clock, draw, sleep or do I/O.

A policy: one started part for each choice. What else a part may state, for the rules on what goes together, is in
:mod:`rlsim.policies.facts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_type_hints, runtime_checkable

from rlsim.core.commands import UpdateMode
from rlsim.core.ticks import Ticks
from rlsim.core.view import Group, Sample, View
from rlsim.policies.allocation.group_size import UniformGroups
from rlsim.policies.facts import (
    AdmissionFacts,
    AllocationFacts,
    BatchingFacts,
    DispatchFacts,
    MigrationFacts,
    OrderingFacts,
    RetentionFacts,
    UpdateFacts,
    facts_of,
)
from rlsim.policies.hooks import Size
from rlsim.policies.migration import Stay
from rlsim.policies.ordering.priorities import Fcfs
from rlsim.policies.turns import Alone

Unit = Literal["group", "sample"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups for the trainer; ``last`` completes the step, otherwise gradients are accumulated."""

    groups: tuple[int, ...]
    last: bool = True
    updates: int | None = None
    """Optimizer updates made on these groups; None: those of the step, once it is complete."""


@runtime_checkable
class Timed(Protocol):
    """A part of any choice that wants to be asked again at an instant though nothing happens until then."""

    def wake_at(self, view: View) -> Ticks | None:
        """That instant; None, or one that has passed, for none. Asked after every event, so it must cost little."""
        ...


@runtime_checkable
class Polls(Protocol):
    """Batching whose trainer is not told of complete groups but looks for them."""

    @property
    def poll_seconds(self) -> float:
        """Interval of its looks, counted from the instant at which it began to wait; 0: it is told."""
        ...


class Admission(Protocol):
    """May new work enter generation now?"""

    @property
    def unit(self) -> Unit:
        """What is counted and admitted: whole groups, or samples one by one."""
        ...

    def capacity(self, view: View) -> tuple[int, str]:
        """How many units may enter now, and the name of the gate that holds back the rest.

        All of them enter at once; it is asked again until nothing may enter.
        """
        ...


class Batching(Protocol):
    """When may the trainer start, and on what?"""

    def select(self, view: View) -> Batch | None:
        """Groups of ``view.ready`` to train on now."""
        ...


class Update(Protocol):
    """What happens to running work when weights change?"""

    @property
    def mode(self) -> UpdateMode:
        """The outcome of calls under way."""
        ...

    @property
    def resume_seconds(self) -> float:
        """Delay before clients resubmit what was cut."""
        ...

    def due(self, view: View) -> bool:
        """Whether the step just done is followed by a publication of weights."""
        ...


@runtime_checkable
class Tests(Protocol):
    """Updates whose weights the replicas judge before they serve them."""

    @property
    def tests_candidates(self) -> bool:
        """Whether a publication may be refused."""
        ...


@runtime_checkable
class WatchesEss(Protocol):
    """Updates that read ``view.ess``: the trainer has to measure it."""

    @property
    def min_ess(self) -> float:
        """Share of the samples below which weights are published."""
        ...


class Retention(Protocol):
    """What becomes of stale, surplus and unfinished work?"""

    @property
    def ends_round(self) -> bool:
        """Whether taking a batch aborts what is still generating."""
        ...

    @property
    def keeps_unfinished(self) -> bool:
        """Whether aborted samples keep their tokens and are resumed; otherwise their groups are dropped."""
        ...

    @property
    def keeps_surplus(self) -> bool:
        """Whether complete groups beyond the batch stay for the next one."""
        ...

    @property
    def recycles(self) -> bool:
        """Whether the prompts of dropped groups are drawn again, before new ones."""
        ...

    def expired(self, view: View) -> Sequence[int]:
        """Complete groups of ``view.ready`` to drop now; asked when one completes and when weights change."""
        ...

    def abandoned(self, view: View) -> Sequence[int]:
        """Groups of ``view.open`` to give up while they run; asked when weights change."""
        ...


@runtime_checkable
class HoldsBack(Protocol):
    """Leftovers that do not draw the prompts of dropped groups again at once, but when they say so."""

    def redraws(self, view: View) -> bool:
        """Whether the next group is one of ``view.recycled``."""
        ...


@runtime_checkable
class Confined(Protocol):
    """A dispatch part that cannot place a call unless each of some ranges has an open replica."""

    @property
    def needs(self) -> tuple[range, ...]:
        """Those ranges."""
        ...


class Dispatch(Protocol):
    """Which replica serves the next call of a sample?"""

    def replica(self, view: View, sample: Sample) -> int:
        """Index of the replica."""
        ...


class Ordering(Protocol):
    """In which order do waiting calls run, and when is a running one put back in line?"""

    @property
    def shares_kv(self) -> bool:
        """Whether a call that continues finds its KV in a pool that all replicas reach."""
        ...

    @property
    def oracle(self) -> bool:
        """Whether it reads lengths still to come: simulated only."""
        ...

    @property
    def ranks(self) -> bool:
        """Whether priorities differ: engines that serve in order of arrival would ignore them."""
        ...

    def priority(self, view: View, sample: Sample) -> int:
        """Rank of the next call on its replica, the lowest first."""
        ...

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """Tokens after which the next call is ended and dispatched anew; 0 for none."""
        ...


@runtime_checkable
class FetchesKv(Protocol):
    """Ordering that says call by call whether the KV of a call that continues is there to be fetched."""

    def fetches_kv(self, view: View, sample: Sample) -> bool:
        """Whether the call about to go to ``sample.replica`` fetches its KV; otherwise it is computed again."""
        ...


@runtime_checkable
class Learns(Protocol):
    """Ordering that is told what calls made, to expect better of the next ones."""

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        """A turn of the sample ended by itself, with so many response tokens in all its calls."""
        ...


class Migration(Protocol):
    """May running calls move to another replica?"""

    @property
    def transfers_kv(self) -> bool:
        """Whether the KV moves along; otherwise it is computed again."""
        ...

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        """Samples of ``view.generating`` to move now, and where; asked when a sample ends and when weights change."""
        ...


class Allocation(Protocol):
    """How many samples of a prompt are launched?

    What else it may decide is in :mod:`rlsim.policies.hooks`: a part has the methods of the hooks that it needs.
    """

    @property
    def aborts_surplus(self) -> bool:
        """Whether members that a complete group no longer needs are aborted."""
        ...

    def members(self, view: View, group: Group) -> Size:
        """Samples to launch for the prompt of a group that has just been opened."""
        ...


class Turns(Protocol):
    """When does a trajectory take its next turn?"""

    @property
    def together(self) -> bool:
        """Whether what has ended waits until no call and no tool call is under way."""
        ...


@runtime_checkable
class ElasticReplicas(Protocol):
    """Placements whose trainer lends some of its GPUs to replicas while it waits: those of ``shape.lent_replicas``."""

    @property
    def looks_first(self) -> bool:
        """Whether it is asked before a batch is taken as well: it may lend although there is one."""
        ...

    @property
    def spreads(self) -> bool:
        """Whether all calls under way are cut and dealt anew once the replicas are lent; if not they get new ones."""
        ...

    def lends(self, view: View) -> bool:
        """Whether to lend them now; asked after every event while the trainer waits and samples run."""
        ...

    def recalls(self, view: View) -> bool:
        """Whether to take them back; asked after every event while they are lent. When nothing runs they are anyway."""
        ...


class Placement(Protocol):
    """Which GPUs do what?"""

    @property
    def shared(self) -> bool:
        """Whether rollout and training take turns on the same GPUs."""
        ...


DEFAULTS: dict[str, str] = {"ordering": "fcfs", "migration": "stay", "allocation": "uniform", "turns": "alone"}
"""Choices that a preset need not name."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """What the parts of a policy state about themselves."""

    admission: AdmissionFacts
    batching: BatchingFacts
    update: UpdateFacts
    leftovers: RetentionFacts
    dispatch: DispatchFacts
    ordering: OrderingFacts
    migration: MigrationFacts
    allocation: AllocationFacts


@dataclass(frozen=True, slots=True)
class Policy:
    """What a controller asks."""

    admission: Admission
    batching: Batching
    update: Update
    leftovers: Retention
    dispatch: Dispatch
    placement: Placement
    ordering: Ordering = field(default_factory=Fcfs)
    migration: Migration = field(default_factory=Stay)
    allocation: Allocation = field(default_factory=UniformGroups)
    turns: Turns = field(default_factory=Alone)

    @property
    def facts(self) -> PolicyFacts:
        """What the parts state about themselves, read anew."""
        return PolicyFacts(
            admission=facts_of(AdmissionFacts, self.admission),
            batching=facts_of(BatchingFacts, self.batching),
            update=facts_of(UpdateFacts, self.update),
            leftovers=facts_of(RetentionFacts, self.leftovers),
            dispatch=facts_of(DispatchFacts, self.dispatch),
            ordering=facts_of(OrderingFacts, self.ordering),
            migration=facts_of(MigrationFacts, self.migration),
            allocation=facts_of(AllocationFacts, self.allocation),
        )


PROTOCOLS: dict[str, type] = get_type_hints(Policy)
"""The protocol of every choice, by the choice's name in scenarios."""
