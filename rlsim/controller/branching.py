"""Members that begin where another one is, or was, as allocation asks while a group runs and once it has ended."""

from __future__ import annotations

from rlsim.controller.admission import AdmissionControl
from rlsim.controller.rollouts import Rollouts
from rlsim.core.commands import Fork
from rlsim.core.view import Group, View
from rlsim.policies.hooks import Branches, Regrows
from rlsim.policies.protocols import Allocation


class Branching:
    """Asks the allocation part; without hooks nothing forks."""

    def __init__(self, allocation: Allocation, view: View, rollouts: Rollouts, admission: AdmissionControl) -> None:
        self._view, self._rollouts, self._admission = view, rollouts, admission
        self._branches = allocation if isinstance(allocation, Branches) else None
        self._regrows = allocation if isinstance(allocation, Regrows) else None

    def at_places(self) -> None:
        """Samples came to marks or to new turns: they may fork there."""
        places, self._rollouts.places = self._rollouts.places, []
        if self._branches is None:
            return
        for sample, tokens, value in places:
            if not sample.cancelled and sample.group.group in self._view.open:
                count = self._branches.branch(self._view, sample, tokens, value)
                if count:
                    inherited = sample.inherited_tokens + sample.response_tokens + tokens - sample.made_tokens
                    fork = Fork(sample.sample, sample.turn, tokens, inherited)
                    self._admission.fork(sample, fork, sample.tool_tokens, count)

    def regrow(self, group: Group) -> bool:
        """All of a group has ended: whether it grows again, from the beginnings of turns of its members."""
        grown = () if self._regrows is None else self._regrows.regrow(self._view, group)
        for sample, turn, count in grown:
            if turn:
                response_tokens, tool_tokens = sample.turn_starts[turn]
                self._admission.fork(sample, Fork(sample.sample, turn, 0, response_tokens), tool_tokens, count)
            else:
                self._admission.enlarge(group, count)
        return bool(grown)
