"""What an allocation may decide beside the number of samples: one small protocol a hook.

A part has the methods of the hooks that it needs, whatever their number. Like all parts they see a read-only view, and
rewards and signals as a live system has them: late, and noisy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rlsim.core.commands import Watch
from rlsim.core.view import Group, Sample, View


@dataclass(frozen=True, slots=True)
class Size:
    """Of a group."""

    launched: int
    needed: int
    """Members that must end for it to be complete; the others are to spare."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A prompt that the loader has next."""

    draw: int
    prompt: int
    """Its number in the data set."""
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Pick:
    """Places among the prompts on offer."""

    taken: int
    skipped: tuple[int, ...] = ()
    """Passed over until the loader comes to them again, an epoch later; the others stay on offer."""


@runtime_checkable
class Selects(Protocol):
    """Allocation that chooses prompts before anything is sampled (hook H1)."""

    @property
    def candidates(self) -> int:
        """Prompts of the loader to choose from, at a time."""
        ...

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        """Which one to sample next."""
        ...


@runtime_checkable
class NeedsRewards(Protocol):
    """Allocation that is told how groups came out: every sample is scored, and the reward told."""

    def observe(self, view: View, group: Group) -> None:
        """The members of a group that it needs have all ended; told once a group, when it is complete."""
        ...


@runtime_checkable
class Extends(Protocol):
    """Allocation in waves (hook H2): a group whose members have all ended waits until it says what follows."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        """(group, further samples) for groups of ``view.waiting_for_wave``; 0: it is complete. Asked as groups wait.

        Groups that are not named wait on.
        """
        ...


@runtime_checkable
class Resizes(Protocol):
    """Allocation whose groups may begin with other numbers of samples than ``workload.group_size``."""

    @property
    def resizes(self) -> bool:
        """Whether they may; admission that counts samples by groups needs to know."""
        ...


@runtime_checkable
class Rejects(Protocol):
    """Allocation that throws complete groups away (hook H16): another prompt takes the place of each."""

    def rejects(self, view: View, group: Group) -> bool:
        """Whether a complete group is not worth training on; asked after ``observe``."""
        ...


@runtime_checkable
class SelectsSamples(Protocol):
    """Allocation that trains on a part of a group (hook H16)."""

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        """Members of a complete group that are not trained on; not all of them."""
        ...


@runtime_checkable
class Caps(Protocol):
    """Allocation with a length budget (hook H4)."""

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """Response tokens of the turn under way at which it is ended, as truncated; 0 for no cap but the model's."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of samples of a group, after a look at one that runs; all others go on."""

    pruned: Sequence[Sample] = ()
    """Given up: their group needs none in their place. Those that have ended are left alone."""
    truncated: Sequence[Sample] = ()
    """Ended here and kept, as with a cap: what they have made is scored and trained on. Those whose call is not under
    way are left alone, and so is one that turns out to have made nothing yet."""


GO_ON = Verdict()


@runtime_checkable
class Watches(Protocol):
    """Allocation that looks at responses while they are made (hook H4), and gives some up or ends them."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of what it may watch."""
        ...

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """What is to be noticed of the call about to be submitted."""
        ...

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """A watched sample came to a mark; what becomes of it and its group now."""
        ...


@runtime_checkable
class Branches(Protocol):
    """Allocation whose samples fork (hook H3): further members begin with what one has, and do not make it again."""

    def branch(self, view: View, sample: Sample, tokens: int, value: float | None) -> int:
        """Further members that begin where the sample is now.

        Asked at the marks of a watched call, with what was noticed, and when a tool has returned and a turn begins,
        with ``tokens`` 0 and no value. ``tokens`` are those of the turn under way.
        """
        ...


@runtime_checkable
class Regrows(Protocol):
    """Allocation whose groups grow from prefixes of members that have ended (hook H3)."""

    def regrow(self, view: View, group: Group) -> Sequence[tuple[Sample, int, int]]:
        """(member that has ended, turn at whose beginning new members begin, how many); nothing: it is complete.

        Asked whenever all members have ended, before ``extend``. Turns are those of ``sample.turn_starts``.
        """
        ...


@runtime_checkable
class Remembers(Protocol):
    """Allocation that draws on what was trained on before: ``view.kept``."""

    def trained(self, view: View, group: Group) -> Sequence[int]:
        """A group has been trained on, for the first time or again, and is kept; kept groups that may be forgotten."""
        ...


@runtime_checkable
class Reuses(Remembers, Protocol):
    """Allocation that lets a sample begin with an earlier one's response, as far as new weights accept it (H11)."""

    def draft(self, view: View, sample: Sample) -> Sample | None:
        """A member of a kept group of the same prompt; None: the sample is made from its prompt on.

        Asked when the first call of a sample is about to be submitted.
        """
        ...


@runtime_checkable
class Replays(Remembers, Protocol):
    """Allocation that has groups trained on again (hook H16), in the place of new prompts."""

    def again(self, view: View) -> int | None:
        """A group of ``view.kept``; None for a new prompt. Asked when a new group is about to be opened."""
        ...
