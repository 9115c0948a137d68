"""Live runs from a scenario, as the command line makes them: started, journalled, saved, told."""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
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
from rlsim.results.store import DECISIONS, SCENARIO, replacing
from rlsim.scenario.document import resolved_yaml
from rlsim.studies.compare import Arm, Comparison, arm_folder
from rlsim.studies.runs.record import RunRecord

FACTS = "live.json"


@dataclass(frozen=True, slots=True)
class Told:
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
) -> Told:
    """Run one arm live; ``ParameterError`` for what that cannot be, before anything starts."""
    backend = backend_of(engine, site)
    refuse(plan, backend)
    folder = None if out is None else out / arm_folder(name)
    directory = None if folder is None else folder / f"replication-{replication}"
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / SCENARIO, resolved_yaml(plan.scenario))
    with tempfile.TemporaryDirectory(prefix="rlsim-live-") as work:
        made = _journalled(plan, backend, directory, Path(work), replication, watch)
    facts = facts_of(engine, backend, made)
    unsaved = "" if folder is None or directory is None else _save(folder, directory, made, facts)
    return Told(_comparison(name, plan, made, engine, backend), made, made.ending.fault, unsaved)


def _journalled(
    plan: ResolvedScenario, backend: Backend, directory: Path | None, work: Path, replication: int, watch: Watch
) -> LiveRun:
    if directory is None:
        return run_live(plan, backend, NoJournal(), work, replication, watch=watch)
    if directory.exists():
        if not (directory / DECISIONS).is_file():
            raise ParameterError(str(directory), "something else", "a new directory, or an earlier run of rlsim")
        shutil.rmtree(directory)
    journal = FileJournal(directory / DECISIONS)
    try:
        return run_live(plan, backend, journal, work, replication, watch=watch)
    finally:
        journal.close()


def facts_of(engine: str, backend: Backend, made: LiveRun) -> dict[str, Any]:
    """What the record says of how the run was made."""
    records, fault = made.ending.records, made.ending.fault
    unserved = made.ending.unserved.items()
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
        "ended_by": made.run.log.ended_by,
        "unserved": {what: {**counts, "first": first} for what, (counts, first) in unserved if counts},
        "late_steps": late,
        "late_share": late / steps if steps else 0.0,
        "worst_lateness_seconds": max((record.worst_lateness_seconds for record in records), default=0.0),
        "learning": [{"step": step, **learnt.metrics} for step, learnt in made.crew.learnt if learnt.metrics],
        "signals": [asdict(told) for told in made.crew.readings.told()],
        **backend.facts(),
    }


def said(fault: Exception | None) -> str | None:
    """A fault in words; a mistake in the program with its kind."""
    if fault is None or isinstance(fault, RlsimError):
        return None if fault is None else str(fault)
    return f"{type(fault).__name__}: {fault}"


def _save(folder: Path, directory: Path, made: LiveRun, facts: dict[str, Any]) -> str:
    """The facts, and the tables where they can be made and fit; the decisions are there already. Why not, if not."""
    from rlsim.results.store import write_metrics
    from rlsim.studies.runs.files import save_run

    unsaved = ""
    try:
        save_run(directory, made.run)
        with suppress(ParameterError):
            write_metrics(folder, [metrics(made.run)])
    except OSError as error:
        unsaved = f"{directory}: tables and figures are not all there: {error}"
    try:
        _write(directory / FACTS, json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        unsaved = unsaved or f"{directory / FACTS}: {error.strerror}"
    return unsaved


def _comparison(name: str, plan: ResolvedScenario, made: LiveRun, engine: str, backend: Backend) -> Comparison | None:
    if len(made.run.log.iterations) <= plan.scenario.run.warmup_steps:
        return None
    told, headline = metrics(made.run), plan.scenario.headline
    waits = latency(made.run, headline.slo if headline else None)
    outcome = RunRecord(name, made.run.replication, measured=told, verdict=verdict(told, plan), latency=waits)
    execution = Source("execution", f"live on {engine}: {backend.label}", backend.emulated)
    sources = (execution, *plan.sources) if backend.emulated else (execution,)
    arm = Arm(name, replace(plan, sources=sources), (outcome,))
    return Comparison(f"{plan.scenario.name}; LIVE on {engine}: {backend.label}", (arm,), ())


def learning_text(made: LiveRun, parts: int = 10) -> str:
    """How a run's reward rose, a tenth of its steps a line; nothing where nobody was rewarded for a task."""
    if made.run.plan.scenario.live.task is None:
        return ""
    rows = [(step, learnt) for step, learnt in made.crew.learnt if "reward_mean" in learnt.metrics]
    size = max(1, -(-len(rows) // parts))
    is_distilled = any("teacher_kl" in learnt.metrics for _, learnt in rows)
    heads = "  steps      reward  effective samples  response tokens  clipped      KL"
    lines = ["Learning, means over steps", heads + ("  KL to teacher" if is_distilled else "")]
    for some in (rows[at : at + size] for at in range(0, len(rows), size)):
        means = {name: _mean(some, name) for name in _METRICS}
        shares = [learnt.ess for _, learnt in some if learnt.ess is not None]
        ess = f"{sum(shares) / len(shares):.0%}" if shares else "not known"
        lines.append(
            f"  {some[0][0] + 1:4}-{some[-1][0] + 1:<4} {means['reward_mean']:7.3f}  {ess:>17}  "
            f"{means['response_tokens_mean']:15.1f}  {means['clipped_share']:7.1%}  {means['kl']:6.3f}"
            + (f"  {means['teacher_kl']:13.3f}" if is_distilled else "")
        )
    return "\n".join(lines + _signal_lines(made)) + "\n"


_METRICS = ("reward_mean", "response_tokens_mean", "clipped_share", "kl", "teacher_kl")


def _signal_lines(made: LiveRun) -> list[str]:
    """How well signals told successes from failures; nothing where nobody watched."""
    told = made.crew.readings.told()
    if not told:
        return []
    lines = [
        "Signals, of responses that came to their own end",
        "  signal           at tokens  responses  area under ROC",
    ]
    return lines + [
        f"  {one.signal:15}  {one.tokens:9}  {one.responses:9}  {one.auroc:6.2f} ± {one.half_width:.2f}" for one in told
    ]


def _mean(rows: Sequence[tuple[int, Learnt]], name: str) -> float:
    return sum(learnt.metrics.get(name, 0.0) for _, learnt in rows) / len(rows)


def _write(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
