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
from rlsim.live.ray.files import FileTransfer
from rlsim.live.ray.trainer import RayTrainer
from rlsim.live.site import EngineSpec, Needs, Placed, TrainerSpec

PATIENCE_SECONDS = 30.0
"""Time for a cluster to make room."""
CONNECT_SECONDS = 10.0
"""Time for a connection to a cluster."""
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
        transfer = FileTransfer(RayPorter())

        def now() -> int:
            return clock.now

        self._engines = [
            RayEngine(replica, spec, now, work, partial(self._hire, replica, spec.needs), transfer)
            for replica, spec in enumerate(engines)
        ]
        if trainer is not None:
            self._trainer = RayTrainer(trainer, work, partial(self._hire, len(engines), trainer.needs), transfer)
        return Placed(self._engines, self._trainer)

    def _reserve(self, needs: Sequence[Needs]) -> None:
        import ray
        from ray.util.placement_group import placement_group

        whole = ray.cluster_resources()
        sum_of_needs = Needs(sum(need.cpus for need in needs), sum(need.gpus for need in needs))
        if any(whole.get(kind, 0.0) < number for kind, number in _bundle(sum_of_needs).items()):
            raise RlsimError(_no_room(needs, self._strategy, whole, "has"))
        self._group = placement_group([_bundle(need) for need in needs], strategy=self._strategy)
        if not self._group.wait(PATIENCE_SECONDS):
            raise RlsimError(_no_room(needs, self._strategy, ray.available_resources(), "has free, node by node, only"))

    def _hire(self, bundle: int, needs: Needs, kind: type, *arguments: Any) -> Actor:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        return RayActor(kind, arguments, needs.cpus, needs.gpus, place)

    def facts(self) -> dict[str, Any]:
        """Node of each actor, by number, and the offsets of their clocks."""
        import ray

        nodes: dict[str, int] = {}
        locations = [actor.location for actor in (*self._engines, *((self._trainer,) if self._trainer else ()))]
        numbers = [None if place is None else nodes.setdefault(place.node, len(nodes)) for place in locations]
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


def cluster_address(address: str | None) -> str | None:
    """Address of an existing cluster, by default the environment's; None for a local one of our own."""
    address = address or os.environ.get(ADDRESS)
    if address is not None and address.startswith("ray://"):
        raise ParameterError("--ray-address", address, "HOST:PORT or auto, from a node of the cluster")
    return address


def join_cluster(address: str | None, cpus: int) -> bool:
    """Connect this process, and say whether it was not before; ``RlsimError`` where there is no cluster.

    Cores of a local cluster are slots: engines on a CPU may be more than there are, as without Ray.
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
            host, _, port = address.rpartition(":")
            if host and port.isdecimal():  # see whether anybody listens there: Ray would try for minutes
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        cause = "a local Ray cluster did not start" if address is None else f"no Ray cluster: {address}"
        raise RlsimError(f"{cause}: {error}") from error
    return True


def _bundle(needs: Needs) -> dict[str, float]:
    resources = {"CPU": float(needs.cpus), "GPU": float(needs.gpus)}
    return {kind: number for kind, number in resources.items() if number}


def _no_room(needs: Sequence[Needs], strategy: str, there: dict[str, float], verb: str) -> str:
    request = " + ".join(f"{need.cpus} CPU{f' {need.gpus} GPU' if need.gpus else ''}" for need in needs)
    resources = ", ".join(f"{there.get(kind, 0.0):g} {kind}" for kind in ("CPU", "GPU"))
    return f"the Ray cluster is too small: asked for {request} ({strategy}), it {verb} {resources}"
