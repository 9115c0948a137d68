"""What a controller is told. Replies answer one command each; notices come unasked."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rlsim.core.ticks import Ticks

Segments = tuple[tuple[int, int], ...]
"""(weights version, response tokens) of each maximal run of tokens made under one version, in order."""


class Started(NamedTuple):
    """The run begins; nothing is in flight."""


class Finished(NamedTuple):
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


class Cut(NamedTuple):
    """One generate call that an abort ended, with what it had made."""

    sample: int
    replica: int
    tokens: int
    segments: Segments
    first_token_at: int = -1
    """As in ``Finished``; -1 when the call had not made one."""


class Aborted(NamedTuple):
    """Reply to ``Abort``. Calls that ended by themselves first have answered with ``Finished``."""

    cuts: tuple[Cut, ...]


class ToolReturned(NamedTuple):
    """Reply to ``CallTool``."""

    sample: int
    output_tokens: int
    outcome: Literal["done", "timeout", "failed"] = "done"
    """Whether the tool answered; otherwise the output is what the trajectory is told instead."""


class Scored(NamedTuple):
    """Reply to ``Score``."""

    sample: int
    outcome: Literal["done", "timeout", "failed"] = "done"
    """Whether there is a reward; otherwise it counts as 0."""
    reward: float | None = None
    """What the sample earned; None where nobody decides it."""


class Noticed(NamedTuple):
    """Notice: a watched call has made ``tokens`` response tokens of its turn, and goes on."""

    sample: int
    tokens: int
    value: float
    """Of the watched signal at that place."""


class Trained(NamedTuple):
    """Reply to ``Train``."""

    step: int
    ess: float | None = None
    """Effective sample size of the importance weights, as a share of the samples; None where nobody measures it."""


class Synced(NamedTuple):
    """Reply to ``Sync``: every replica serves ``version`` and generates again."""

    version: int
    accepted: bool = True
    """Whether the weights passed the test asked for; otherwise those before them are served still."""


class RoleSet(NamedTuple):
    """Reply to ``SetRole``: the shared GPUs have switched."""

    role: Literal["rollout", "train"]


class Woke(NamedTuple):
    """Notice: the instant of a ``WakeAt`` has come."""

    at: Ticks


class ReplicaLost(NamedTuple):
    """Notice, and reply to the calls that ended with it: a replica is gone for the rest of the run."""

    replica: int
    cuts: tuple[Cut, ...]
    """Its calls, with the tokens that had arrived; those that an abort was to end are in its reply instead."""


class TrainerLost(NamedTuple):
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
