"""Live runs from a scenario, as the command line makes them: started, journalled, saved, told."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlsim import __version__
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.live.backends import HERE
from rlsim.live.backends import backend as backend_of
from rlsim.live.protocols import Learnt
from rlsim.live.run import Backend, LiveRun, Watch, refuse, run_live
from rlsim.live.site import Site
from rlsim.resolve import ResolvedScenario, Source
from rlsim.results.bottleneck import verdict
from rlsim.results.latency import latency
from rlsim.results.metrics import metrics
from rlsim.results.replay.decisions import FileJournal, NoJournal
from rlsim.results.store import DECISIONS, SCENARIO
from rlsim.scenario.document import resolved_yaml
from rlsim.studies.compare import Arm, Comparison, arm_folder
from rlsim.studies.output import json_text, write_text
from rlsim.studies.runs.record import RunRecord

FACTS = "live.json"


@dataclass(frozen=True, slots=True)
class LiveReport:
    """A live run as it is shown: a comparison of one arm, and what stopped it early."""

    comparison: Comparison | None
    """None where no measured step ended."""
    run: LiveRun
    fault: Exception | None
    unsaved: str = ""
    """Why its tables are not on disk, where that is so."""


def run_arm(
    name: str,
    plan: ResolvedScenario,
    engine: str,
    out: Path | None = None,
    replication: int = 0,
    watch: Watch = lambda execution, crew: None,
    site: Site = HERE,
) -> LiveReport:
    """Run one arm live; ``ParameterError`` for what that cannot be, before anything starts."""
    backend = backend_of(engine, site)
    refuse(plan, backend)
    folder = None if out is None else out / arm_folder(name)
    directory = None if folder is None else folder / f"replication-{replication}"
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / SCENARIO, resolved_yaml(plan.scenario))
    if directory is not None and directory.exists():
        if not (directory / DECISIONS).is_file():
            raise ParameterError(str(directory), "something else", "a new directory, or an earlier run of rlsim")
        shutil.rmtree(directory)
    kept = nullcontext(NoJournal()) if directory is None else closing(FileJournal(directory / DECISIONS))
    with kept as journal, tempfile.TemporaryDirectory(prefix="rlsim-live-") as work:
        live_run = run_live(plan, backend, journal, Path(work), replication, watch=watch)
    facts = facts_of(engine, backend, live_run)
    unsaved = "" if folder is None or directory is None else _save(folder, directory, live_run, facts)
    return LiveReport(_comparison(name, plan, live_run, engine, backend), live_run, live_run.ending.fault, unsaved)


def facts_of(engine: str, backend: Backend, live_run: LiveRun) -> dict[str, Any]:
    """What the record says of how the run was made."""
    records, fault = live_run.ending.records, live_run.ending.fault
    unserved = live_run.ending.unserved.items()
    steps = sum(row.steps for record in records for row in record.windows)
    late = sum(record.late_steps for record in records)
    return {
        "engine": engine,
        "label": backend.label,
        "rlsim": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "fault": said(fault),
        "ended_by": live_run.run.log.ended_by,
        "unserved": {kind: {**counts, "first": first} for kind, (counts, first) in unserved if counts},
        "late_steps": late,
        "late_share": late / steps if steps else 0.0,
        "worst_lateness_seconds": max((record.worst_lateness_seconds for record in records), default=0.0),
        "learning": [{"step": step, **learnt.metrics} for step, learnt in live_run.crew.learnt if learnt.metrics],
        "signals": [asdict(reading) for reading in live_run.crew.readings.aurocs()],
        **backend.facts(),
    }


def said(fault: Exception | None) -> str | None:
    """A fault in words; a mistake in the program with its kind."""
    if fault is None or isinstance(fault, RlsimError):
        return None if fault is None else str(fault)
    return f"{type(fault).__name__}: {fault}"


def _save(folder: Path, directory: Path, live_run: LiveRun, facts: dict[str, Any]) -> str:
    """The facts, and the tables where they can be made and fit; the decisions are there already. Why not, if not."""
    from rlsim.results.store import write_metrics
    from rlsim.studies.runs.files import save_run

    unsaved = ""
    try:
        save_run(directory, live_run.run)
        with suppress(ParameterError):
            write_metrics(folder, [metrics(live_run.run)])
    except OSError as error:
        unsaved = f"{directory}: tables and figures are not all there: {error}"
    try:
        write_text(directory / FACTS, json_text(facts))
    except OSError as error:
        unsaved = unsaved or f"{directory / FACTS}: {error.strerror}"
    return unsaved


def _comparison(
    name: str, plan: ResolvedScenario, live_run: LiveRun, engine: str, backend: Backend
) -> Comparison | None:
    if len(live_run.run.log.iterations) <= plan.scenario.run.warmup_steps:
        return None
    run_metrics, headline = metrics(live_run.run), plan.scenario.headline
    waits = latency(live_run.run, headline.slo if headline else None)
    record = RunRecord(
        name, live_run.run.replication, measured=run_metrics, verdict=verdict(run_metrics, plan), latency=waits
    )
    execution = Source("execution", f"live on {engine}: {backend.label}", backend.emulated)
    sources = (execution, *plan.sources) if backend.emulated else (execution,)
    arm = Arm(name, replace(plan, sources=sources), (record,))
    return Comparison(f"{plan.scenario.name}; LIVE on {engine}: {backend.label}", (arm,), ())


def learning_text(live_run: LiveRun, parts: int = 10) -> str:
    """How a run's reward rose, a tenth of its steps a line; nothing where nobody was rewarded for a task."""
    if live_run.run.plan.scenario.live.task is None:
        return ""
    rows = [(step, learnt) for step, learnt in live_run.crew.learnt if "reward_mean" in learnt.metrics]
    size = max(1, -(-len(rows) // parts))
    is_distilled = any("teacher_kl" in learnt.metrics for _, learnt in rows)
    heads = "  steps      reward  effective samples  response tokens  clipped      KL"
    lines = ["Learning, means over steps", heads + ("  KL to teacher" if is_distilled else "")]
    for window in (rows[start : start + size] for start in range(0, len(rows), size)):
        means = {name: _mean(window, name) for name in _METRICS}
        shares = [learnt.ess for _, learnt in window if learnt.ess is not None]
        ess = f"{sum(shares) / len(shares):.0%}" if shares else "not known"
        lines.append(
            f"  {window[0][0] + 1:4}-{window[-1][0] + 1:<4} {means['reward_mean']:7.3f}  {ess:>17}  "
            f"{means['response_tokens_mean']:15.1f}  {means['clipped_share']:7.1%}  {means['kl']:6.3f}"
            + (f"  {means['teacher_kl']:13.3f}" if is_distilled else "")
        )
    signals = [
        f"  {row.signal:15}  {row.tokens:9}  {row.responses:9}  {row.auroc:6.2f} ± {row.half_width:.2f}"
        for row in live_run.crew.readings.aurocs()
    ]
    if signals:
        lines += ["Signals, of responses that came to their own end"]
        lines += ["  signal           at tokens  responses  area under ROC", *signals]
    return "\n".join(lines) + "\n"


_METRICS = ("reward_mean", "response_tokens_mean", "clipped_share", "kl", "teacher_kl")


def _mean(rows: Sequence[tuple[int, Learnt]], name: str) -> float:
    return sum(learnt.metrics.get(name, 0.0) for _, learnt in rows) / len(rows)
