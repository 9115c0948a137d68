"""``rlsim calibrate logs``: read a log of any known format, fit, and write scenario, profile and report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calibration.logs.costs import SCALE
from calibration.logs.engine_factor import fit_lines
from calibration.logs.engine_lines import StatLines, read_stat_lines
from calibration.logs.engine_step_model import LineFit
from calibration.logs.formats import ENGINE_STATS, READERS, TIMELINES, format_of
from calibration.logs.plausibility import Implausible
from calibration.logs.profiles import PROFILE, log_profile, profile_source
from calibration.logs.report import LogReport, report_of
from calibration.logs.reproduce import reproduce
from calibration.text import wrapped
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import Profile
from rlsim.resolve import resolve
from rlsim.scenario.editing import Original, write_edited
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario

SCENARIO, REPORT, NUMBERS = "scenario.yaml", "report.txt", "fit.json"
HEADER_WIDTH = 100


@dataclass(frozen=True, slots=True)
class _Fitted:
    """What is written."""

    report: LogReport
    scenario: Scenario
    profile: Profile | None


def calibrate(
    path: Path,
    base: Scenario | None,
    out: Path,
    kind: str = "auto",
    skip: int = 1,
    tables: Path | None = None,
    original: Original | None = None,
) -> LogReport:
    """Fit to the log at ``path`` and write ``scenario.yaml``, ``profile.json``, ``report.txt`` and ``fit.json``.

    ``base`` describes the run: model, GPUs, batch, lengths' cap and policy; timelines can do without. ``original`` is
    the file that it came from, whose text the written scenario keeps. Raises ``ParameterError`` for a log that tells
    nothing.
    """
    kind = format_of(path, kind)
    if kind == TIMELINES:
        from calibration.logs.requests import reproduce_requests

        fitted = _Fitted(*reproduce_requests(path, base, tables))
    elif base is None:
        allowed = "a scenario that describes the run, as rlsim import-config writes one: a log has times, but no sizes"
        raise ParameterError("--base", None, f"{allowed} (model, GPUs, batch, cap, policy)")
    elif kind in ENGINE_STATS:
        fitted = _Fitted(*_from_stat_lines(path, base))
    else:
        reproduction = reproduce(READERS[kind](path), base, skip)
        fitted = _Fitted(report_of(reproduction), reproduction.scenario, reproduction.profile)
    _write(out, fitted, original)
    return fitted.report


def _write(out: Path, fitted: _Fitted, original: Original | None) -> None:
    from rlsim.results.store import replacing

    out.mkdir(parents=True, exist_ok=True)
    if fitted.profile is None:
        (out / PROFILE).unlink(missing_ok=True)
    else:
        fitted.profile.write(out / PROFILE)
    write_edited(fitted.scenario, out / SCENARIO, original, _comments(fitted.report), list(_header(fitted.report)))
    texts = {REPORT: fitted.report.text(), NUMBERS: json.dumps(fitted.report.as_dict(), indent=1) + "\n"}
    for name, text in texts.items():
        with replacing(out / name) as part:
            part.write_text(text, encoding="utf-8")


def _comments(report: LogReport) -> dict[str, str]:
    """The interval beside each fitted key; the engine's factor beside the profile that holds it."""
    comments = {one.key: f"fitted, 95 %: {one.interval}" for one in report.estimates}
    scale = next((one for one in report.estimates if one.key == SCALE), None)
    if scale is not None:
        comments["rollout.step_time.profile"] = f"fitted, {scale.value:.4g} times the base's (95 %: {scale.interval})"
    return comments


def _header(report: LogReport) -> Iterator[str]:
    """What stands at the top of the written scenario."""
    texts = [f"Fitted by rlsim calibrate logs to {report.title}.", f"Held out: {report.summary}"]
    for text in [*texts, *(f"Warning: {warning}" for warning in report.warnings)]:
        yield from wrapped(text, "  ", first="", width=HEADER_WIDTH)


def _from_stat_lines(path: Path, base: Scenario) -> tuple[LogReport, Scenario, Profile]:
    resolved, lines = resolve(base), read_stat_lines(path)
    limits = resolved.pools[0].limits
    capacity = lines.kv_tokens or limits.kv_blocks * limits.block_size
    fit = fit_lines(lines, capacity, resolved.pools[0].law)
    profile = log_profile(
        override(base, {"model": resolved.architecture.name}),
        resolved.pools[0].device.name,
        fit.law,
        fit.hold_out,
        {},
        source=f"{lines.engine}-lines",
        method="least relative squares of step times from running requests over throughput",
        engine=lines.engine,
        kv_capacity_tokens=capacity,
        notes=f"{fit.intervals} intervals of {lines.origin}",
    )
    scenario = override(base, {"rollout.step_time": profile_source(base.rollout.step_time.noise_cv)})
    engines = resolved.shape.replicas * base.rollout.data_parallel
    return _lines_report(lines, fit, engines), scenario, profile


def _lines_report(lines: StatLines, fit: LineFit, engines: int) -> LogReport:
    columns = {
        "step": "running requests over generation throughput",
        "prefill": "prompt throughput" if lines.engine == "vllm" else "#new-token of the prefill lines",
        "KV tokens": "KV cache usage x capacity" if lines.engine == "vllm" else "#token",
    }
    said = "lengths, training and publication: not in the engine's lines; as given"
    notes = list(lines.notes)
    if lines.engine == "vllm":
        notes.append(
            "prompt tokens found in the prefix cache count in vLLM's throughput: with many of them prefill seems too "
            "cheap"
        )
        if lines.kv_tokens is None:
            notes.append("the log does not say the KV cache size: the base scenario's is used")
    logged = len(lines.engines)
    more = f"the log has {logged} engines, the base {engines} (replicas x data_parallel): correct the base's rollout"
    last = fit.intervals // 3
    return LogReport(
        title=f"{lines.origin}: statistics lines of {lines.engine}, {logged} engine{'s' * (logged > 1)}",
        summary=f"the last {last} of {fit.intervals} steady intervals. A step is off by: {fit.hold_out}",
        warnings=(Implausible("more engines than the base", more),) if logged > engines else (),
        columns=columns,
        estimates=fit.estimates,
        unidentified=(*fit.unidentified, said),
        notes=notes,
        held_out={"engine step": fit.hold_out},
    )
