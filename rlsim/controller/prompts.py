"""Which prompt a new group is of: the loader's order, what allocation picks of it, what was given back.

Which training step a group is generated for, counting groups in order of admission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rlsim.core.view import Group, View
from rlsim.policies.hooks import Offer, Selects
from rlsim.policies.protocols import HoldsBack, Policy


class Targets:
    """A full batch for every step; a group that takes the place of a failed one has that one's step."""

    def __init__(self, prompts_per_step: int) -> None:
        self._batch, self._replacing = prompts_per_step, 0
        self._vacant: deque[int] = deque()

    def vacate(self, target: int) -> None:
        """A group of that step has failed: the next group takes its place."""
        self._vacant.append(target)

    def of(self, number: int) -> int:
        """The step of the next group, which is the ``number``-th of the run."""
        if self._vacant:
            self._replacing += 1
            return self._vacant.popleft()
        return (number - self._replacing) // self._batch


class PromptQueue:
    """Groups in the order in which they are opened."""

    def __init__(
        self,
        policy: Policy,
        view: View,
        prompt_tokens: Callable[[int], int],
        prompt_of: Callable[[int], int] | None = None,
        request_class: Callable[[int], int] | None = None,
    ) -> None:
        self._view = view
        self._holds_back = policy.leftovers if isinstance(policy.leftovers, HoldsBack) else None
        self._prompt_tokens, self._prompt_of, self._request_class = prompt_tokens, prompt_of, request_class
        self._targets = Targets(view.shape.prompts_per_step)
        self._selects = policy.allocation if isinstance(policy.allocation, Selects) else None
        self._offers: list[Offer] = []
        self._next_draw = 0

    def next_group(self) -> Group:
        """A group without members: of a prompt that was given back, or of the next one."""
        view = self._view
        number = view.started_groups
        view.started_groups += 1
        redraws = bool(view.recycled) and (self._holds_back is None or self._holds_back.redraws(view))
        draw, recycle = view.recycled.popleft() if redraws else (self._draw(), 0)
        kind = self._request_class(draw) if self._request_class else 0
        target, tokens = self._targets.of(number), self._prompt_tokens(draw)
        return Group(number, draw, recycle, tokens, view.version, target, request_class=kind, prompt=self._prompt(draw))

    def readmit(self, group: Group) -> None:
        """A group that is there already takes the place of the next one."""
        group.target = self._targets.of(self._view.started_groups)
        self._view.started_groups += 1

    def vacate(self, target: int) -> None:
        """A group for that step is gone: the next one takes its place."""
        self._targets.vacate(target)

    def _draw(self) -> int:
        if self._selects is None:
            self._next_draw += 1
            return self._next_draw - 1
        while len(self._offers) < self._selects.candidates:
            draw = self._next_draw
            self._offers.append(Offer(draw, self._prompt(draw), self._prompt_tokens(draw)))
            self._next_draw += 1
        pick = self._selects.pick(self._view, tuple(self._offers))
        gone = {pick.taken, *pick.skipped}
        taken = self._offers[pick.taken].draw
        self._offers = [offer for place, offer in enumerate(self._offers) if place not in gone]
        return taken

    def _prompt(self, draw: int) -> int:
        return draw if self._prompt_of is None else self._prompt_of(draw)
