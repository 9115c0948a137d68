"""What a controller asks of the world. Every command owes exactly one reply, but for timers.

Commands, and the events that answer them, are tuples with names: a run makes two a call and keeps them all.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rlsim.core.ticks import Ticks

UpdateMode = Literal["drain", "abort", "keep", "rebuild", "pull"]
"""What becomes of calls under way when weights change: none are left; cut and resubmitted with their tokens
(KV dropped, prefix prefilled again); paused and continued on the old KV; paused, KV rebuilt under the new weights;
nothing, since every replica takes the newest weights by itself when it is empty."""


class Watch(NamedTuple):
    """What is to be noticed of a call while it runs."""

    signal: str
    """Name of an observation (:mod:`rlsim.learning`): noisy, and nothing that a live system could not compute."""
    marks: tuple[int, ...]
    """Response tokens of the turn at which its value is told, ascending, from 2 on."""


class Fork(NamedTuple):
    """Where a sample begins that does not begin at its prompt."""

    parent: int
    """Sample of the same group whose context it takes over."""
    turn: int
    tokens: int
    """Response tokens of that turn that it takes over: 0 where it begins with a turn."""
    inherited_tokens: int
    """Response tokens of all turns that it takes over: nobody makes them again."""


class Submit(NamedTuple):
    """Start one generate call; owed: ``Finished``, unless an ``Abort`` takes it."""

    sample: int
    replica: int
    draw: int
    """Which prompt, by its place in the loader's order."""
    recycle: int
    """How often this prompt was given back and drawn again."""
    member: int
    turn: int
    made_tokens: int
    """Response tokens of this turn that an earlier, aborted call has made: they are prefix now."""
    context_tokens: int
    """Tokens the call starts from: prompt, earlier turns, tool outputs and ``made_tokens``."""
    priority: int = 0
    max_tokens: int = 0
    """Tokens after which the call ends with reason ``chunk``; 0 for none."""
    kv_from_pool: bool = False
    """Whether the KV of the context is fetched from where it was made instead of computed again."""
    watch: Watch | None = None
    fork: Fork | None = None
    """Of a sample that begins where another one was; ``made_tokens`` count what it takes over of the turn."""
    draft: int = -1
    """A sample trained on before whose first turn is checked under the weights that the replica serves: the call is the
    check, a prefill over prompt and draft, and ``Finished`` tells what was accepted. -1: an ordinary call."""


class Abort(NamedTuple):
    """End generate calls, keeping their tokens; owed: one ``Aborted`` for all of them."""

    samples: tuple[int, ...]


class CallTool(NamedTuple):
    """Run the tool that ended a turn; owed: ``ToolReturned``."""

    sample: int
    draw: int
    recycle: int
    member: int
    turn: int


class Score(NamedTuple):
    """Compute the reward of a finished sample; owed: ``Scored``."""

    sample: int
    draw: int
    recycle: int
    member: int


class Train(NamedTuple):
    """Train on finished samples; owed: ``Trained``."""

    step: int
    samples: tuple[int, ...]
    last: bool = True
    """Whether these samples complete the step."""
    updates: int | None = None
    """Optimizer updates made on them; None: gradients accumulate until the step is complete."""
    keeps: bool = False
    """Whether these samples may be asked for again, as drafts or to be trained on, until they are released."""
    releases: tuple[int, ...] = ()
    """Samples kept before that will not be asked for any more."""


class Sync(NamedTuple):
    """Publish the trainer's weights to all replicas as ``version``; owed: ``Synced``.

    In mode ``pull`` the reply comes when the weights are there to be taken, not when they are.
    """

    version: int
    mode: UpdateMode
    resume_seconds: float = 0.0
    """What the clients of aborted calls wait before they resubmit (a polling or retry interval)."""
    test: bool = False
    """Whether the replicas judge the weights and go on with the old ones when they refuse them."""


class SetRole(NamedTuple):
    """Switch the GPUs that rollout and training share, or those of the lent replicas; owed: ``RoleSet``."""

    role: Literal["rollout", "train"]
    lent: bool = False
    """Only the replicas on the trainer's GPUs that it lends; no call is under way there."""


class WakeAt(NamedTuple):
    """Notify with ``Woke`` at an instant. The one command that owes no reply: a timer keeps no run alive."""

    at: Ticks


Command = Submit | Abort | CallTool | Score | Train | Sync | SetRole | WakeAt
