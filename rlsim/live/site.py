"""Where engines and trainer of a live run are: in this process, or as actors of a cluster.

A backend says what it wants as specs, which can be sent to another process and built there; a site builds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlsim.live.clock import LiveClock
from rlsim.live.protocols import Engine, LiveTrainer, Now


@dataclass(frozen=True, slots=True)
class Needs:
    """What a process takes of a node."""

    cpus: int
    gpus: int = 0


class EngineSpec(Protocol):
    """All that it takes to make an engine, in any process."""

    @property
    def model(self) -> Path:
        """The model's folder, where the run is started."""
        ...

    @property
    def needs(self) -> Needs:
        """Of its node."""
        ...

    def build(self, model: Path, now: Now, work: Path) -> Engine:
        """The engine, not started: ``model`` is the model's folder and ``work`` one for its files, both on this host.

        Closed without having been started it tells what an engine that was lost has left in ``work``.
        """
        ...


class TrainerSpec(Protocol):
    """All that it takes to make a trainer, in any process."""

    @property
    def model(self) -> Path:
        """The model's folder, where the run is started."""
        ...

    @property
    def needs(self) -> Needs:
        """Of its node."""
        ...

    def build(self, model: Path, work: Path) -> LiveTrainer:
        """The trainer, not started; the folders are on this host."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """Engines in order, and the trainer where one was asked for."""

    engines: Sequence[Engine]
    trainer: LiveTrainer | None


class Site(Protocol):
    """A place for engines and trainer."""

    label: str
    """What to say of it beside the backend's label; empty where there is nothing to say."""

    def place(self, engines: Sequence[EngineSpec], trainer: TrainerSpec | None, clock: LiveClock, work: Path) -> Placed:
        """Make them, not started; ``work`` is a folder of the run. ``RlsimError`` where there is no room for them."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the record of a run says of the place."""
        ...


class Here:
    """This process; engines and trainer start processes of their own on this host."""

    label = ""

    def place(self, engines: Sequence[EngineSpec], trainer: TrainerSpec | None, clock: LiveClock, work: Path) -> Placed:
        return Placed(
            [
                spec.build(spec.model, lambda: clock.now, work / f"engine-{replica}")
                for replica, spec in enumerate(engines)
            ],
            None if trainer is None else trainer.build(trainer.model, work),
        )

    def facts(self) -> dict[str, Any]:
        return {}
