"""What a controller is told. Replies answer one command each; notices come unasked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlsim.core.ticks import Ticks

Segments = tuple[tuple[int, int], ...]
"""(weights version, response tokens) of each maximal run of tokens made under one version, in order."""


@dataclass(frozen=True, slots=True)
class Started:
    """The run begins; nothing is in flight."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Reply to ``Submit``: a generate call ended by itself."""

    sample: int
    replica: int
    tokens: int
    """Response tokens of this call."""
    segments: Segments
    reason: Literal["stop", "length", "tool", "chunk", "checked"]
    """The response ended, hit its cap, asked for a tool, made as many tokens as the call was allowed, or a draft was
    checked and is to be continued."""
    first_token_at: int
    """Tick of the first response token of this call."""
    reused: Segments = ()
    """Tokens of the draft that were accepted, under the weights version that checked them."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One generate call that an abort ended, with what it had made."""

    sample: int
    replica: int
    tokens: int
    segments: Segments
    first_token_at: int = -1
    """As in ``Finished``; -1 when the call had not made one."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """Reply to ``Abort``. Calls that ended by themselves first have answered with ``Finished``."""

    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """Reply to ``CallTool``."""

    sample: int
    output_tokens: int
    outcome: Literal["done", "timeout", "failed"] = "done"
    """Whether the tool answered; otherwise the output is what the trajectory is told instead."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Reply to ``Score``."""

    sample: int
    outcome: Literal["done", "timeout", "failed"] = "done"
    """Whether there is a reward; otherwise it counts as 0."""
    reward: float | None = None
    """What the sample earned; None where nobody decides it."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """Notice: a watched call has made ``tokens`` response tokens of its turn, and goes on."""

    sample: int
    tokens: int
    value: float
    """Of the watched signal at that place."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Reply to ``Train``."""

    step: int
    ess: float | None = None
    """Effective sample size of the importance weights, as a share of the samples; None where nobody measures it."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Reply to ``Sync``: every replica serves ``version`` and generates again."""

    version: int
    accepted: bool = True
    """Whether the weights passed the test asked for; otherwise those before them are served still."""


@dataclass(frozen=True, slots=True)
class RoleSet:
    """Reply to ``SetRole``: the shared GPUs have switched."""

    role: Literal["rollout", "train"]


@dataclass(frozen=True, slots=True)
class Woke:
    """Notice: the instant of a ``WakeAt`` has come."""

    at: Ticks


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """Notice, and reply to the calls that ended with it: a replica is gone for the rest of the run."""

    replica: int
    cuts: tuple[Cut, ...]
    """Its calls, with the tokens that had arrived; those that an abort was to end are in its reply instead."""


@dataclass(frozen=True, slots=True)
class TrainerLost:
    """Notice: the trainer is gone, and with it the reply that it owed."""


Event = (
    Started
    | Finished
    | Aborted
    | Noticed
    | ToolReturned
    | Scored
    | Trained
    | Synced
    | RoleSet
    | Woke
    | ReplicaLost
    | TrainerLost
)


def made_tokens(event: Event) -> int:
    """Response tokens of the calls that ended with an event, by their own end or cut."""
    if isinstance(event, Finished):
        return event.tokens
    return sum(cut.tokens for cut in event.cuts) if isinstance(event, Aborted | ReplicaLost) else 0
