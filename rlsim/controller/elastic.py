"""The trainer's GPUs as replicas, while the trainer waits: lent, cleared of calls, taken back."""

from __future__ import annotations

from rlsim.controller.rollouts import Rollouts
from rlsim.core.commands import Command, SetRole
from rlsim.core.ticks import Ticks
from rlsim.core.view import View
from rlsim.policies.protocols import ElasticReplicas


class ElasticPlacement:
    """The lent replicas are closed to calls unless the trainer's state is ``lent``."""

    def __init__(self, placement: ElasticReplicas, view: View, rollouts: Rollouts, out: list[Command]) -> None:
        self._placement, self._view, self._rollouts, self._out = placement, view, rollouts, out
        self._replicas = view.shape.lent_replicas
        self._requested_at: Ticks = 0
        for replica in self._replicas:
            view.loads.close(replica)

    def take_back(self) -> None:
        """Before admission: take them back if the placement says so, and switch once no call is left there."""
        view = self._view
        if view.trainer == "lent" and self._placement.recalls(view):
            self._recall()
        self._return()

    def lend(self) -> None:
        """After admission: lend them if the placement says so; where nothing runs they would be of no use."""
        view = self._view
        if view.trainer == "lent" and not view.running_samples:
            self._recall()
            self._return()
        self._consider()

    def look_first(self) -> None:
        """Before a batch is taken: lend them if the placement would rather wait for more."""
        if self._placement.looks_first:
            self._consider()

    def _consider(self) -> None:
        view = self._view
        if view.trainer != "idle" or not view.running_samples:
            return
        if not all(map(view.loads.is_lost, self._replicas)) and self._placement.lends(view):
            view.trainer, self._requested_at = "lending", view.now
            self._out.append(SetRole("rollout", lent=True))

    def _return(self) -> None:
        view = self._view
        if view.trainer == "recalling" and not any(view.loads.in_flight[replica] for replica in self._replicas):
            view.trainer = "returning"
            self._out.append(SetRole("train", lent=True))

    def _recall(self) -> None:
        view = self._view
        view.trainer, self._requested_at = "recalling", view.now
        for replica in self._replicas:
            view.loads.close(replica)
        self._rollouts.clear(self._replicas)

    def switched(self) -> None:
        """The GPUs have changed sides."""
        view = self._view
        view.switch_ticks.append(view.now - self._requested_at)
        if view.trainer == "returning":
            view.trainer = "idle"
            return
        view.trainer = "lent"
        for replica in self._replicas:
            view.loads.open(replica)
        if self._placement.spreads:
            self._rollouts.spread()
