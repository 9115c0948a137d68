"""What a policy may look at: the controller's own ledger, and nothing a live system could not know.

Parts read it and never write it. Lengths still to come, success and the future are not here.

How frozen values are pickled: as they were made. A compiled build cannot write their fields one by one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rlsim.core.commands import Fork
from rlsim.core.errors import ParameterError, unknown
from rlsim.core.loads import Loads
from rlsim.core.ticks import Ticks


def as_made(value: Any) -> tuple[type, tuple[object, ...]]:
    """For ``__reduce__`` of a frozen dataclass: its type, and the fields that it takes."""
    return type(value), tuple(getattr(value, field.name) for field in fields(value) if field.init)


ANYWHERE = -2
"""A destination that dispatch chooses once the call has been cut."""
AFRESH = -3
"""One that it chooses without being told where the call was."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal replicas with a name: ``count`` of them from ``first`` on."""

    name: str
    first: int
    count: int
    slots: int
    """Of one replica."""
    shares_gpus_with: str = ""
    """The pool on whose GPUs these replicas run, replica by replica; empty on GPUs of their own."""

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return as_made(self)

    @property
    def replicas(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class RequestClass:
    """What is agreed with the senders of one class of prompts: a tenant, a route, a task."""

    name: str
    weight: float = 1.0
    """Service it is owed, relative to the other classes'."""
    priority: int = 0
    """Rank among the classes, the lowest first."""

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return as_made(self)


ONE_CLASS = (RequestClass("all"),)
"""Prompts that are not told apart."""


@dataclass(frozen=True, slots=True)
class RunSizes:
    """The sizes that a policy is checked against before anything runs."""

    prompts_per_step: int
    group_size: int
    replicas: int
    max_num_seqs: int
    """Slots of one replica; with pools, of a replica of the pool that has the fewest."""
    pools: tuple[Pool, ...] = ()
    """Pool after pool, all replicas; empty where they are alike."""
    classes: tuple[RequestClass, ...] = ONE_CLASS
    """Classes of prompts."""
    seed: int = 0
    """Of the run, for parts that hash: replications differ in it, arms do not."""
    lent_replicas: range = range(0)
    """Replicas on the trainer's GPUs, which generate only while it lends them."""

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return as_made(self)

    @property
    def slots(self) -> int:
        """Slots of all replicas."""
        return sum(pool.count * pool.slots for pool in self.pools) or self.replicas * self.max_num_seqs

    def pool(self, name: str, field: str) -> Pool:
        """The pool of that name, which a part's ``field`` gave; ``ParameterError`` when there is none."""
        if not self.pools:
            raise ParameterError(field, name, "a pool: this policy needs rollout.pools")
        named = {pool.name: pool for pool in self.pools}
        if name not in named:
            raise unknown(field, name, named)
        return named[name]


class Sample:
    """One trajectory and its tokens so far."""

    __slots__ = (
        "aborting",
        "cancelled",
        "cap_tokens",
        "checked",
        "destination",
        "fork",
        "group",
        "inherited_tokens",
        "losses",
        "made_tokens",
        "member",
        "replica",
        "response_tokens",
        "reward",
        "sample",
        "segments",
        "state",
        "tool_tokens",
        "truncated",
        "turn",
        "turn_starts",
    )

    def __init__(self, sample: int, group: Group, member: int) -> None:
        self.sample, self.group, self.member = sample, group, member
        self.state: Literal["new", "running", "tool", "scoring", "waiting", "paused", "ended"] = "new"
        self.replica = -1
        self.losses = 0
        """Calls of it that ended because their replica was lost."""
        self.turn = self.made_tokens = self.response_tokens = self.tool_tokens = 0
        self.segments: list[tuple[int, int]] = []
        self.aborting = False
        """Whether an abort of its call is under way."""
        self.destination = -1
        """Where the call goes once it has been cut, if it is to move; ``ANYWHERE``, ``AFRESH``: where dispatch says."""
        self.cancelled = ""
        """The outcome that awaits it when its call, tool or score returns; empty while it is wanted."""
        self.reward: float | None = None
        """What it earned, once it is scored; None where nobody decides it."""
        self.cap_tokens = 0
        """Response tokens of the turn under way at which the policy ends it; 0 for none."""
        self.truncated = False
        """Whether the policy ended it before its own end."""
        self.inherited_tokens = 0
        """Response tokens of it that it did not make: its parent's, or those of a draft that were accepted."""
        self.fork: Fork | None = None
        """Where it began, if not at its prompt."""
        self.checked = False
        """Whether a draft of it has been checked."""
        self.turn_starts: list[tuple[int, int]] = [(0, 0)]
        """For each turn begun, the response and tool tokens before it."""

    @property
    def context_tokens(self) -> int:
        """Tokens the next generate call starts from."""
        return self.group.prompt_tokens + self.inherited_tokens + self.response_tokens + self.tool_tokens


class Group:
    """The samples of one prompt."""

    __slots__ = (
        "draw",
        "ended",
        "group",
        "launched",
        "members",
        "needed",
        "prompt",
        "prompt_tokens",
        "recycle",
        "replays",
        "request_class",
        "target",
        "version",
    )

    def __init__(
        self,
        group: int,
        draw: int,
        recycle: int,
        prompt_tokens: int,
        version: int,
        target: int,
        request_class: int = 0,
        prompt: int = -1,
    ) -> None:
        self.group, self.draw, self.recycle, self.prompt_tokens = group, draw, recycle, prompt_tokens
        self.prompt = draw if prompt < 0 else prompt
        """Its number in the data set: the loader knows it."""
        self.version = version
        """Weights version when the group was admitted."""
        self.target = target
        """The training step it is generated for, counting groups in order of admission."""
        self.request_class = request_class
        """Place of its class in ``shape.classes``: whoever sends a prompt knows it."""
        self.members: list[Sample] = []
        self.launched = self.ended = self.needed = 0
        """Members so far, given up or not; those that have ended (scored, if they are); how many make it complete."""
        self.replays = 0
        """How often it was put up for training again after the first time."""

    @property
    def rewards(self) -> list[float]:
        """Of the members that have ended, in order of the members; 0 where nobody could tell."""
        return [member.reward or 0.0 for member in self.members if member.state == "ended"]


TrainerState = Literal[
    "idle",
    "clearing",
    "switching",
    "training",
    "trained",
    "syncing",
    "lending",
    "lent",
    "recalling",
    "returning",
    "lost",
]


@dataclass(slots=True)
class View:
    """The state of the run as the controller knows it."""

    shape: RunSizes
    loads: Loads
    now: Ticks = 0
    version: int = 0
    """Weights version that the replicas serve."""
    rejected: int = 0
    """Publications that failed their test: the version did not change."""
    switch_ticks: list[Ticks] = field(default_factory=list)
    """How long each change of the lent replicas took, calls that were cut included: lent and taken back in turn."""
    ess: float | None = None
    """Effective sample size that the trainer measured in its last step, as a share; None if it does not."""
    trainer: TrainerState = "idle"
    generating: bool = True
    """Whether the replicas are there for rollout (false while shared GPUs train)."""
    steps_begun: int = 0
    steps_done: int = 0
    """Training steps that were trained on."""
    started_groups: int = 0
    """Groups admitted since the start of the run."""
    dropped_groups: int = 0
    """Groups whose every sample was given up, since the start of the run."""
    filtered_groups: int = 0
    """Of these, the complete ones that allocation rejected."""
    open: dict[int, Group] = field(default_factory=dict)
    """Groups admitted and not yet complete, in order of admission."""
    waiting_for_wave: dict[int, Group] = field(default_factory=dict)
    """Of these, the ones whose members have all ended, for allocation to say what follows."""
    generating_samples: dict[int, Sample] = field(default_factory=dict)
    """Samples with a call on a replica."""
    replica_versions: dict[int, int] = field(default_factory=dict)
    """Weights version by replica, as of the last call with tokens that ended there."""
    round_groups: int = 0
    """Groups started or resumed since the last batch was taken."""
    running_samples: int = 0
    """Samples generating, in a tool, being scored or waiting for the others of their turn."""
    ready: OrderedDict[int, Group] = field(default_factory=OrderedDict)
    """Complete groups that wait for the trainer, in order of completion."""
    paused: OrderedDict[int, Sample] = field(default_factory=OrderedDict)
    """Samples that were cut and wait to be resumed, oldest group first."""
    recycled: deque[tuple[int, int]] = field(default_factory=deque)
    """Prompts of dropped groups that wait to be drawn again: (draw, times given back), oldest first."""
    kept: dict[int, Group] = field(default_factory=dict)
    """Groups trained on that allocation may draw on again, and that are not up for training."""
    gate: str = ""
    """Why nothing more is admitted now; empty while the policy would admit more."""
    oracle_tokens: Callable[[Sample], int] | None = None
    """Response tokens of the turn that a sample is in: for parts that say oracle, and never live."""

    @property
    def trainer_waits(self) -> bool:
        """Whether the trainer has nothing to train on, whatever its GPUs do meanwhile."""
        return self.trainer in ("idle", "lending", "lent", "recalling", "returning")

    @property
    def left_groups(self) -> int:
        """Groups that have left generation, complete or given up."""
        return self.started_groups - len(self.open)

    @property
    def open_groups(self) -> int:
        """Groups admitted and not yet complete."""
        return len(self.open)
