"""Runs that are asked for, and those who make them: this process, processes of this host, or tasks of a Ray cluster.

Every run is a piece of work of its own and comes back as it ends, so that whoever is killed loses only runs under way.
What a run needs is imported once a worker, and a variant is planned once for its replications in a row.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rlsim.core.errors import DeadlockError, ParameterError, RlsimError
from rlsim.studies.runs.store import Made, Number

if TYPE_CHECKING:
    from rlsim.resolve import ResolvedScenario
    from rlsim.results.tables import Digest
    from rlsim.scenario.schema import Scenario

PROGRESS = "progress"
"""Name, among a run's metrics, of its progress as JSON."""
AHEAD = 3
"""Runs handed out to a worker before it has ended its first."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run to be made."""

    run: str
    """Hash of what it is made from."""
    replication: int
    label: str
    scenario: Scenario
    version: str
    """Of the code, as whoever asks knows it."""

    @property
    def key(self) -> tuple[str, int]:
        """What its run is known by."""
        return self.run, self.replication


Make = Callable[[Order], Made]
"""What makes a run in its process, and says what is kept of it."""


class Makers(AbstractContextManager["Makers"], Protocol):
    """Who makes runs."""

    def make_all(self, orders: Sequence[Order]) -> Iterator[Made]:
        """The runs, as they end."""
        ...


_planned: dict[str, ResolvedScenario] = {}
"""The last variant that this process has planned."""


def make(order: Order) -> Made:
    """Make one run in this process; one that cannot come to its end says why."""
    from rlsim.sim.collector import collector_paused

    started, fault = time.process_time(), ""
    found: dict[str, Number] = {}
    try:
        # Reading a run makes as much as simulating it: neither leaves cycles to look for before both are over.
        with collector_paused():
            read, found = measured(order)
            found |= _progress(read)
    except (DeadlockError, ParameterError) as error:
        fault = str(error)
    spent = time.process_time() - started
    return Made(order.run, order.replication, order.label, order.version, fault, spent, found)


def measured(order: Order) -> tuple[Digest, dict[str, Number]]:
    """A run made and read in this process, and its metrics."""
    from rlsim.results.metrics import metrics_of
    from rlsim.results.tables import digest
    from rlsim.sim.simulation import simulate

    read = digest(simulate(_planned_once(order), order.replication))
    found = metrics_of(read).as_dict()
    del found["replication"]  # Beside the metrics already.
    return read, found


def _progress(read: Digest) -> dict[str, str]:
    """What the model had reached, and when and for how much, after every step; nothing without a learning model."""
    if read.run.plan.learning is None:
        return {}
    from rlsim.results.progress import progress_columns

    columns = progress_columns(read)
    return {PROGRESS: json.dumps({name: columns[name].tolist() for name in ("success", "seconds", "usd")})}


def _make_apart(how: Make, order: Order) -> Made:
    """A run in a worker, which lets go of it and only then looks for garbage: that is cheap, as all else is frozen."""
    made = how(order)
    gc.collect()
    return made


def _begin_worker() -> None:
    """Everything that runs need is there before the first, and is never looked through for garbage."""
    import rlsim.resolve
    import rlsim.results.metrics
    import rlsim.sim.simulation  # noqa: F401
    from rlsim.core.child_processes import end_with_parent

    end_with_parent()
    gc.collect()
    gc.freeze()
    gc.disable()


def _planned_once(order: Order) -> ResolvedScenario:
    """The plan of a run, made once for replications in a row."""
    from rlsim.resolve import resolve

    if order.run not in _planned:
        _planned.clear()
        _planned[order.run] = resolve(order.scenario)
    return _planned[order.run]


class Processes:
    """Processes of this host, started with the first runs that are worth them."""

    def __init__(self, workers: int | None = None, how: Make = make) -> None:
        self._workers, self._how = workers or os.cpu_count() or 1, how
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def make_all(self, orders: Sequence[Order]) -> Iterator[Made]:
        """The runs, as they end; RlsimError when a process is lost, which no run does by itself."""
        if self._workers == 1 or (len(orders) == 1 and self._pool is None):
            yield from map(self._how, orders)
            return
        pool = self._started()
        try:
            for future in as_completed([pool.submit(_make_apart, self._how, order) for order in orders]):
                yield future.result()
        except BrokenProcessPool as error:
            lost = "a worker process was killed (out of memory?); finished runs are kept, the same command goes on"
            raise RlsimError(lost) from error

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_begin_worker)
        return self._pool


class RayTasks:
    """Tasks of a Ray cluster, one a run: an existing one where an address is given, else a local one."""

    def __init__(self, address: str | None) -> None:
        from rlsim.live.ray.cluster import cluster_address, require_ray

        require_ray()
        self._address = cluster_address(address)
        self._is_ours = False

    def __enter__(self) -> RayTasks:
        from rlsim.live.ray.cluster import join_cluster

        self._is_ours = join_cluster(self._address, os.cpu_count() or 1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_ours:
            import ray

            ray.shutdown()

    def make_all(self, orders: Sequence[Order]) -> Iterator[Made]:
        """The runs, as they end; a few more than there are cores are handed out at a time."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=2)(make)
        at_once = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = list(reversed(orders))
        running: list[ray.ObjectRef] = []
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(task.remote(waiting.pop()))
            ended, running = ray.wait(running)
            try:
                yield from ray.get(ended)
            except ray.exceptions.RayError as error:
                raise RlsimError(f"the Ray cluster lost a run: {error}; finished runs are kept") from error


def made_all(
    orders: Sequence[Order],
    find: Callable[[str, int], Made | None],
    makers: Makers,
    add: Callable[[Made], None],
) -> dict[tuple[str, int], Made]:
    """All runs by key: those that were found, and the others made, each once and kept as it ends."""
    found = {order.key: find(*order.key) for order in orders}
    missing = {order.key: order for order in orders if found[order.key] is None}
    for made in makers.make_all(list(missing.values())):
        add(made)
        found[made.key] = made
    return {key: made for key, made in found.items() if made is not None}
