"""One sample as the world knows it, and how it can begin with what another one made."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.commands import Fork
from rlsim.learning.ancestry import Ancestors, beginning

Content = tuple[object, ...]
Lineage = tuple[tuple[Content, int], ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """The first turn of an earlier trajectory of the same prompt, checked under new weights."""

    of: Trajectory
    tokens: int

    def accept(
        self, into: Trajectory, kept: int, share: float, version: int, checked_kv: tuple[Content, int] | None
    ) -> None:
        """Let a trajectory begin with ``kept`` tokens of it, a share. With all, the end included, the turn is over.

        ``checked_kv`` names the KV that the engine's check has made, and the prompt's tokens in it, None where the
        trainer has checked; ``version`` is of the weights that did.
        """
        if not kept:
            return
        old, into.inherited_tokens, into.version, into.accepted_share = self.of, kept, version, share
        into.ancestors = beginning(old.ancestors, old.attempt, old.member, share)
        into.lineage = () if checked_kv is None else ((checked_kv[0], checked_kv[1] + kept),)
        if share >= 1.0 and old.turn_lengths[:1] == [kept]:
            into.turn_lengths, into.turns = [kept], old.turns


class Trajectory:
    """One sample as the world knows it."""

    __slots__ = (
        "accepted_share",
        "allowed_tokens",
        "ancestors",
        "attempt",
        "begins_amid",
        "complete",
        "draft",
        "first_turn",
        "given_tokens",
        "inherited_tokens",
        "kv_age",
        "length_tokens",
        "lineage",
        "made_tokens",
        "member",
        "prompt",
        "replica",
        "response_tokens",
        "reward",
        "signal",
        "token_steps",
        "turn",
        "turn_lengths",
        "turns",
        "version",
    )

    def __init__(self, prompt: int, attempt: int, member: int, turns: int) -> None:
        self.prompt, self.attempt, self.member, self.turns = prompt, attempt, member, turns
        self.turn = self.kv_age = 0
        self.replica = -1
        """Where the last call that ended was."""
        self.length_tokens = 0
        """Of the turn under way, once its first token exists; 0 before."""
        self.made_tokens = self.allowed_tokens = 0
        """Of that turn, before the call under way; and what that call may make, 0 for no limit."""
        self.token_steps = 0
        """Sum over the tokens made so far of the optimizer steps behind the weights that made them."""
        self.given_tokens = self.response_tokens = 0
        """Tokens not made by the model, and tokens made by it, as of the last call that ended."""
        self.version = 0
        """Of the weights that made the first token: they decide how it comes out."""
        self.complete = False
        """Whether it came to its own end."""
        self.reward = 0.0
        self.signal = ""
        """Watched in the call under way."""
        self.inherited_tokens = 0
        """Response tokens that it begins with and did not make."""
        self.first_turn = 0
        """The first one of which it makes tokens."""
        self.begins_amid = 0
        """Tokens of that turn that a fork began with."""
        self.ancestors: Ancestors = ()
        """Whose random draws it had before its own."""
        self.lineage: Lineage = ()
        """What the blocks of its context hold before those with its own tokens."""
        self.turn_lengths: list[int] = []
        """Response tokens of the turns that have ended."""
        self.draft: Draft | None = None
        """Checked by the call under way."""
        self.accepted_share = 0.0
        """Of the draft that it begins with."""

    @property
    def trained_tokens(self) -> int:
        """Response tokens with a loss: its own and those of a draft. What a parent made is the parent's."""
        return self.response_tokens + (self.inherited_tokens if self.accepted_share else 0)

    @property
    def key(self) -> tuple[int, int, int]:
        """Key of its random draws: (prompt, attempt, member)."""
        return self.prompt, self.attempt, self.member

    def share(self, turn: int, tokens: int) -> float:
        """Share of it that is there once ``tokens`` tokens of a turn are: turns count alike."""
        length = self.turn_lengths[turn] if turn < len(self.turn_lengths) else self.length_tokens
        return (turn + (tokens / max(1, length) if tokens else 0.0)) / self.turns


def forked(parent: Trajectory, fork: Fork, member: int, turns: int) -> Trajectory:
    """A member that begins with what its parent had at a place.

    Its own random draws and lengths count from there on. It has at least the turns that it begins with.
    """
    child = Trajectory(parent.prompt, parent.attempt, member, max(turns, fork.turn + 1))
    share = parent.share(fork.turn, fork.tokens)
    child.ancestors = beginning(parent.ancestors, parent.attempt, parent.member, share)
    child.first_turn = child.turn = fork.turn
    child.begins_amid = fork.tokens
    child.inherited_tokens = fork.inherited_tokens
    child.turn_lengths = parent.turn_lengths[: fork.turn]
    child.version = parent.version
    return child


def shared_context(parent: Trajectory, own: Content, tokens: int) -> Lineage:
    """What the blocks up to ``tokens`` hold, whose contents are the parent's: its own behind what it took over."""
    before = tuple(piece for piece in parent.lineage if piece[1] < tokens)
    return (*before, (own, tokens))
