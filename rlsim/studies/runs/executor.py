"""Runs of a study, made by processes of this host or by tasks of a Ray cluster, and kept as they end.

Every run is a piece of work of its own, so that a killed study loses only runs under way. The imports of a run are made
once a worker, and a variant is resolved once for its replications in a row.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rlsim.core.errors import RlsimError
from rlsim.studies.runs.identity import code_version
from rlsim.studies.runs.record import RunKey, RunRecord, RunRequest
from rlsim.studies.runs.store import RunStore

if TYPE_CHECKING:
    from rlsim.executor.run import FinishedRun
    from rlsim.resolve import ResolvedScenario

AHEAD = 3
"""Tasks handed out to a core of a cluster before it has ended its first."""

MakeRun = Callable[[RunRequest], RunRecord]
Files = dict[str, bytes]


class RunBackend(AbstractContextManager["RunBackend"], Protocol):
    """Makes runs somewhere."""

    def records(self, requests: Sequence[RunRequest]) -> Iterator[tuple[RunRequest, RunRecord]]:
        """Yield each request with its record, as the runs end."""
        ...


class RunExecutor:
    """Makes the runs that a store lacks and keeps them there; ``made`` and ``kept`` count both kinds."""

    def __init__(self, backend: RunBackend, store: RunStore, done: Callable[[int], None] = lambda runs: None) -> None:
        self._backend, self._store, self._done = backend, store, done
        self._own: set[RunKey] = set()
        self._kept: set[RunKey] = set()

    @property
    def runs_made(self) -> int:
        """Runs made by this executor."""
        return len(self._own)

    @property
    def runs_kept(self) -> int:
        """Runs that were in the store already."""
        return len(self._kept)

    def run_all(self, requests: Sequence[RunRequest], *, must_end: bool = False) -> dict[RunKey, RunRecord]:
        """Records of all requests by key; a run that several ask for is made once.

        ``done`` receives the number of runs that were there, then 1 for each that ends. With ``must_end`` the first run
        that an error ended raises it: ``DeadlockError`` or ``UnfinishedRunError``.
        """
        records: dict[RunKey, RunRecord] = {}
        missing: dict[tuple[RunKey, Path | None], RunRequest] = {}
        for request in requests:
            record = records.get(request.key) or self._store.find(*request.key)
            is_whole = record is not None and (
                request.out is None or bool(record.error) or self._store.has_files(record, request.out)
            )
            if record is not None and is_whole:
                records[request.key] = record
            else:
                missing[request.key, request.out] = request
        self._kept |= records.keys() - self._own
        self._done(len(records))
        failed = [record for record in records.values() if record.error]
        if must_end and failed:
            raise failed[0].failure()
        for request in missing.values():
            if request.out is not None:
                self._store.forget_files(request.out)
        for request, record in self._backend.records(list(missing.values())):
            self._store.add(record, request.out)
            records[request.key] = record
            self._own.add(request.key)
            self._done(1)
            if must_end and record.error:
                raise record.failure()
        return records


@contextmanager
def local_executor(
    out: Path | None = None, workers: int | None = 1, done: Callable[[int], None] = lambda runs: None
) -> Iterator[RunExecutor]:
    """An executor on this host that keeps its runs in a directory, or while it lasts."""
    with RunStore(out) as store, Processes(workers) as backend:
        yield RunExecutor(backend, store, done)


_resolved: dict[str, ResolvedScenario] = {}
"""The last variant that this process has resolved."""


def make_run(request: RunRequest) -> RunRecord:
    """Make one run in this process and write its files; an error that ends the run is in its record."""
    from rlsim.studies.runs.files import save_run

    record, run = _made(request)
    if run is not None and request.out is not None:
        save_run(request.out, run)
    return record


def _made(request: RunRequest) -> tuple[RunRecord, FinishedRun | None]:
    from rlsim.resolve import resolve
    from rlsim.sim.collector import collector_paused
    from rlsim.sim.simulation import simulate

    started = time.process_time()
    resolved = request.resolved or _resolved.get(request.identity)
    if resolved is None:
        _resolved.clear()
        resolved = _resolved[request.identity] = resolve(request.scenario)
    run: FinishedRun | None = None
    try:
        # Reading a run makes as much as simulating it: neither leaves cycles to look for before both are over.
        with collector_paused():
            run = simulate(resolved, request.replication)
            record = _measured(request, run)
    except RlsimError as error:
        if isinstance(error, OSError):
            raise
        kind = type(error).__name__
        record, run = RunRecord(request.label, request.replication, error=str(error), error_kind=kind), None
    spent = time.process_time() - started
    return replace(record, identity=request.identity, cpu_seconds=spent), run


def _measured(request: RunRequest, run: FinishedRun) -> RunRecord:
    """The record of a run that has ended: its metrics and what else the request names."""
    from rlsim.results.allocation import allotted, allotted_columns
    from rlsim.results.bottleneck import verdict
    from rlsim.results.latency import latency
    from rlsim.results.metrics import metrics_of
    from rlsim.results.progress import progress_columns
    from rlsim.results.tables import digest

    tables = digest(run)
    metrics = metrics_of(tables)
    learns, headline = run.plan.learning is not None, request.scenario.headline
    slo = headline.slo if headline is not None else None
    return RunRecord(
        request.label,
        request.replication,
        measured=metrics,
        verdict=verdict(metrics, run.plan),
        latency=latency(run, slo) if "latency" in request.measures else None,
        progress=progress_columns(tables) if learns and "progress" in request.measures else None,
        allotted=allotted([allotted_columns(tables)])[0] if learns and "allocation" in request.measures else None,
    )


def _make_apart(make: MakeRun, request: RunRequest) -> RunRecord:
    """Make a run in a worker and look for garbage after it: that is cheap, as all else is frozen."""
    record = make(request)
    gc.collect()
    return record


def _make_remotely(request: RunRequest) -> tuple[RunRecord, Files]:
    """Make a run on a host that may not see this one's disk: its files come back with the record."""
    from rlsim.studies.runs.files import packed_run

    record, run = _made(request)
    return record, packed_run(request.out, run) if run is not None and request.out is not None else {}


def _begin_worker() -> None:
    """Import all that runs need before the first, and never look through it for garbage."""
    import rlsim.resolve
    import rlsim.results.metrics
    import rlsim.sim.simulation  # noqa: F401
    from rlsim.live.child_processes import end_with_parent

    end_with_parent()
    gc.collect()
    gc.freeze()
    gc.disable()


class Processes:
    """Processes of this host, started with the first runs that are worth them; with one worker, this process."""

    def __init__(self, workers: int | None = None, make: MakeRun = make_run) -> None:
        self._workers, self._make = workers or os.cpu_count() or 1, make
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def records(self, requests: Sequence[RunRequest]) -> Iterator[tuple[RunRequest, RunRecord]]:
        """Yield each request with its record; ``RlsimError`` when a process is lost, which no run does by itself."""
        if self._workers == 1 or (len(requests) <= 1 and self._pool is None):
            yield from ((request, _stamped(self._make(request))) for request in requests)
            return
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_begin_worker)
        pool = self._pool
        try:
            futures = {
                pool.submit(_make_apart, self._make, replace(request, resolved=None)): request for request in requests
            }
            for future in as_completed(futures):
                yield futures[future], _stamped(future.result())
        except BrokenProcessPool as error:
            lost = "a worker process was killed (out of memory?); finished runs are kept, the same command goes on"
            raise RlsimError(lost) from error


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_ours:
            import ray

            ray.shutdown()

    def records(self, requests: Sequence[RunRequest]) -> Iterator[tuple[RunRequest, RunRecord]]:
        """Yield each request with its record; a few more than there are cores are handed out at a time."""
        import ray

        from rlsim.studies.runs.files import unpack_run

        task = ray.remote(num_cpus=1, max_retries=2)(_make_remotely)
        at_once = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = list(reversed(requests))
        running: dict[ray.ObjectRef, RunRequest] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                request = waiting.pop()
                running[task.remote(replace(request, resolved=None))] = request
            ended, _ = ray.wait(list(running))
            for reference in ended:
                request = running.pop(reference)
                try:
                    record, files = ray.get(reference)
                except ray.exceptions.RayError as error:
                    raise RlsimError(f"the Ray cluster lost a run: {error}; finished runs are kept") from error
                if request.out is not None and files:
                    unpack_run(request.out, files)
                yield request, _stamped(record)


def _stamped(record: RunRecord) -> RunRecord:
    """The record with the version of the code, as whoever asks knows it."""
    return replace(record, code=code_version())
