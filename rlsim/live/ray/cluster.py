"""A Ray cluster as the place of engines and trainer: one placement group, an actor in each bundle.

An existing cluster where an address is given, else a local one that listens on loopback only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from rlsim.core.errors import ParameterError, RlsimError
from rlsim.live.clock import LiveClock
from rlsim.live.ray.actor import Actor, RayActor, RayPorter
from rlsim.live.ray.engine import RayEngine
from rlsim.live.ray.files import Freight
from rlsim.live.ray.trainer import RayTrainer
from rlsim.live.site import EngineSpec, Needs, Placed, TrainerSpec

PATIENCE_SECONDS = 30.0
"""What a cluster gets to make room."""
KNOCK_SECONDS = 10.0
"""What a connection to a cluster may take."""
ADDRESS = "RAY_ADDRESS"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No report of usage to anybody; an actor that asks for no GPU keeps what it sees."""
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray's own switch for a cluster of one node at 127.0.0.1; without it Ray takes the host's address, and listens on
all of them, whatever address it is told."""


class RaySite:
    """Engines and a real trainer as actors; a context that gives back what it took."""

    label = "; engines and a real trainer are actors of a Ray cluster"

    def __init__(self, address: str | None, strategy: str) -> None:
        require_ray()
        self._address = cluster_address(address)
        self._strategy = strategy.upper().replace("-", "_")
        self._is_ours = False
        self._group: Any = None
        self._engines: list[RayEngine] = []
        self._trainer: RayTrainer | None = None

    def __enter__(self) -> RaySite:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._group is not None:
            from ray.util import remove_placement_group

            remove_placement_group(self._group)
            self._group = None
        if self._is_ours:
            import ray

            ray.shutdown()

    def place(self, engines: Sequence[EngineSpec], trainer: TrainerSpec | None, clock: LiveClock, work: Path) -> Placed:
        """Join the cluster and reserve room for all; ``RlsimError`` when there is none, after a while at most."""
        needs = [spec.needs for spec in engines] + ([] if trainer is None else [trainer.needs])
        self._is_ours = join_cluster(self._address, sum(need.cpus for need in needs)) or self._is_ours
        self._reserve(needs)
        freight = Freight(RayPorter())

        def now() -> int:
            return clock.now

        self._engines = [
            RayEngine(replica, spec, now, work, partial(self._hire, replica, spec.needs), freight)
            for replica, spec in enumerate(engines)
        ]
        if trainer is not None:
            self._trainer = RayTrainer(trainer, work, partial(self._hire, len(engines), trainer.needs), freight)
        return Placed(self._engines, self._trainer)

    def _reserve(self, needs: Sequence[Needs]) -> None:
        import ray
        from ray.util.placement_group import placement_group

        whole = ray.cluster_resources()
        if any(whole.get(kind, 0.0) < asked for kind, asked in _asked(needs).items()):
            raise RlsimError(_no_room(needs, self._strategy, whole, "has"))
        self._group = placement_group([_bundle(need) for need in needs], strategy=self._strategy)
        if not self._group.wait(PATIENCE_SECONDS):
            raise RlsimError(_no_room(needs, self._strategy, ray.available_resources(), "has free, node by node, only"))

    def _hire(self, bundle: int, needs: Needs, kind: type, *arguments: Any) -> Actor:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        return RayActor(kind, arguments, needs.cpus, needs.gpus, place)

    def facts(self) -> dict[str, Any]:
        """Nodes by number, and what their clocks said."""
        import ray

        nodes: dict[str, int] = {}
        seats = [engine.presence for engine in self._engines] + ([self._trainer.presence] if self._trainer else [])
        numbers = [None if seat is None else nodes.setdefault(seat.node, len(nodes)) for seat in seats]
        count = len(self._engines)
        return {
            "cluster": {
                "ray": ray.__version__,
                "placement": self._strategy,
                "replica_nodes": numbers[:count],
                "trainer_node": numbers[count] if self._trainer else None,
                "clock_offset_seconds": [engine.offset.nanoseconds / 1e9 for engine in self._engines],
                "clock_within_seconds": [engine.offset.within_nanoseconds / 1e9 for engine in self._engines],
            }
        }


def require_ray() -> None:
    """Refuse, with what to install, where there is no Ray."""
    if find_spec("ray") is None:
        raise RlsimError("--cluster ray needs Ray: pip install 'rlsim[cluster]' (see README, section Live)")


def cluster_address(given: str | None) -> str | None:
    """Of an existing cluster: as given, or as the environment says; None for a local one of our own."""
    address = given or os.environ.get(ADDRESS)
    if address is not None and address.startswith("ray://"):
        raise ParameterError("--ray-address", address, "HOST:PORT or auto, from a node of the cluster")
    return address


def join_cluster(address: str | None, cpus: int) -> bool:
    """Connect this process, and say whether it was not before; ``RlsimError`` where there is no cluster.

    Cores of a local cluster are seats: engines on a CPU may be more than there are, as without Ray.
    """
    os.environ.update(QUIET)
    if address is None:
        os.environ.update(LOOPBACK)
    import ray

    if ray.is_initialized():
        return False
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(num_cpus=max(cpus, os.cpu_count() or 1), address="local", **quiet)
        else:
            _knock(address)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        where = "a local Ray cluster did not start" if address is None else f"no Ray cluster: {address}"
        raise RlsimError(f"{where}: {error}") from error
    return True


def _knock(address: str) -> None:
    """See whether anybody listens there: Ray would try for minutes. ``auto`` and the like it finds by itself."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()


def _bundle(needs: Needs) -> dict[str, float]:
    asked = {"CPU": float(needs.cpus), "GPU": float(needs.gpus)}
    return {kind: number for kind, number in asked.items() if number}


def _asked(needs: Sequence[Needs]) -> dict[str, float]:
    return _bundle(Needs(sum(need.cpus for need in needs), sum(need.gpus for need in needs)))


def _no_room(needs: Sequence[Needs], strategy: str, there: dict[str, float], verb: str) -> str:
    asked = " + ".join(f"{need.cpus} CPU{f' {need.gpus} GPU' if need.gpus else ''}" for need in needs)
    found = ", ".join(f"{there.get(kind, 0.0):g} {kind}" for kind in ("CPU", "GPU"))
    return f"the Ray cluster is too small: asked for {asked} ({strategy}), it {verb} {found}"
