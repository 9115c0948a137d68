"""``rlsim calibrate logs``: read a log of any known format, fit, and write scenario, profile and report."""

from __future__ import annotations

import json
from pathlib import Path

from calibration.logs.formats import READERS, TIMELINES, VLLM_STATS, format_of
from calibration.logs.profiles import PROFILE, log_profile, profile_source
from calibration.logs.report import LogReport, report_of
from calibration.logs.reproduce import reproduce
from calibration.logs.vllm_lines import LineFit, fit_stat_lines, read_stat_lines
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import Profile
from rlsim.resolve import resolve
from rlsim.scenario.document import resolved_yaml
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario

SCENARIO, REPORT, NUMBERS = "scenario.yaml", "report.txt", "fit.json"


def calibrate(
    path: Path,
    base: Scenario | None,
    out: Path,
    kind: str = "auto",
    skip: int = 1,
    tables: Path | None = None,
) -> LogReport:
    """Fit to the log at ``path`` and write ``scenario.yaml``, ``profile.json``, ``report.txt`` and ``fit.json``.

    ``base`` describes the run: model, GPUs, batch, lengths' cap and policy; timelines can do without. Raises
    ``ParameterError`` for a log that cannot support a fit.
    """
    kind = format_of(path, kind)
    if kind == TIMELINES:
        from calibration.logs.requests import reproduce_requests

        report, scenario, profile = reproduce_requests(path, base, tables)
    elif base is None:
        allowed = "a scenario that describes the run, as rlsim import-config writes one: a log has times, but no sizes"
        raise ParameterError("--base", None, f"{allowed} (model, GPUs, batch, cap, policy)")
    elif kind == VLLM_STATS:
        report, scenario, profile = _from_stat_lines(path, base)
    else:
        reproduction = reproduce(READERS[kind](path), base, skip)
        report, scenario, profile = report_of(reproduction), reproduction.scenario, reproduction.profile
    _write(out, report, scenario, profile)
    return report


def _write(out: Path, report: LogReport, scenario: Scenario, profile: Profile) -> None:
    from rlsim.results.store import replacing

    out.mkdir(parents=True, exist_ok=True)
    profile.write(out / PROFILE)
    texts = {
        SCENARIO: resolved_yaml(scenario),
        REPORT: report.text(),
        NUMBERS: json.dumps(report.as_dict(), indent=1) + "\n",
    }
    for name, text in texts.items():
        with replacing(out / name) as part:
            part.write_text(text, encoding="utf-8")


def _from_stat_lines(path: Path, base: Scenario) -> tuple[LogReport, Scenario, Profile]:
    resolved, lines = resolve(base), read_stat_lines(path)
    limits = resolved.pools[0].limits
    capacity = lines.kv_tokens or limits.kv_blocks * limits.block_size
    fit = fit_stat_lines(lines, capacity)
    profile = log_profile(
        override(base, {"model": resolved.architecture.name}),
        resolved.pools[0].device.name,
        fit.law,
        fit.hold_out,
        {},
        source="vllm-lines",
        method="least relative squares of step times from running requests over throughput",
        engine="vllm",
        kv_capacity_tokens=capacity,
        notes=f"{fit.intervals} intervals of {lines.origin}",
    )
    scenario = override(base, {"rollout.step_time": profile_source(base.rollout.step_time.noise_cv)})
    return _lines_report(path, lines.kv_tokens, fit), scenario, profile


def _lines_report(path: Path, kv_tokens: int | None, fit: LineFit) -> LogReport:
    columns = {
        "step": "Running / Avg generation throughput",
        "prefill": "Avg prompt throughput",
        "KV tokens": "KV cache usage x capacity",
    }
    said = "lengths, training and publication: not in the engine's lines; as given"
    notes = [
        "prompt tokens found in the prefix cache count in vLLM's throughput: with many of them prefill seems too cheap"
    ]
    if kv_tokens is None:
        notes.append("the log does not say the KV cache size: the base scenario's is used")
    return LogReport(
        title=f"{path.name}: vLLM statistics lines, {fit.intervals} steady intervals",
        columns=columns,
        estimates=fit.estimates,
        unidentified=(*fit.unidentified, said),
        notes=notes,
        held_out={"engine step": fit.hold_out},
    )
