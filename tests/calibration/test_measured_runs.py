"""Two measured vLLM runs: the step law is fitted on requests 1 to 150, and 151 to 300 are scored.

The runs are not part of the project; without them these tests are skipped. ``RLSIM_VLLM_RUNS`` names their folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibration.serving.replay import engine_limits, find_tables, fit_terms, replay_report, step_shape
from calibration.serving.score import RunReport
from calibration.serving.timelines import RecordedRun, read_run
from calibration.silicon_tables.kernels import read_kernel_tables

BESIDE = Path(__file__).parents[3] / "shared" / "data" / "vllm-runs"
RUNS = Path(os.environ.get("RLSIM_VLLM_RUNS", BESIDE))

pytestmark = pytest.mark.skipif(not RUNS.is_dir(), reason=f"no measured vLLM runs in {RUNS}")


@pytest.fixture(scope="module")
def reports() -> dict[str, RunReport]:
    return {run.name: run for run in replay_report(RUNS).runs}


@pytest.mark.parametrize(
    ("name", "free", "latency", "makespan"),
    [("rtx4090_llama-3.1-8b", 1, 0.02, 0.01), ("rtxpro6000_qwen3-32b", 2, 0.03, 0.02)],
)
def test_a_law_fitted_on_the_first_half_predicts_the_second(
    reports: dict[str, RunReport], name: str, free: int, latency: float, makespan: float
) -> None:
    report = reports[name]
    errors = {row.statistic: abs(row.error) for row in report.rows}
    assert (report.fitted, report.scored, report.terms.free_parameters) == (150, 150, free)
    assert errors["end-to-end mean"] <= latency
    assert errors["makespan"] <= makespan


@pytest.mark.parametrize("name", ["rtx4090_llama-3.1-8b", "rtxpro6000_qwen3-32b"])
def test_mixed_steps_are_priced_as_the_tables_have_them(reports: dict[str, RunReport], name: str) -> None:
    assert reports[name].pricing["mixed"].median < 0.02


def test_the_fit_does_not_see_the_scored_half() -> None:
    run = read_run(RUNS / "rtx4090_llama-3.1-8b")
    late = tuple(
        timeline._replace(last_token_seconds=timeline.last_token_seconds + 100.0) for timeline in run.timelines[150:]
    )
    changed = RecordedRun(run.name, run.settings, (*run.timelines[:150], *late))
    tables = read_kernel_tables(find_tables(RUNS / run.name, run.settings))
    law = tables.step_law(step_shape(run))
    limits = engine_limits(run)
    assert fit_terms(changed, limits, law, True) == fit_terms(run, limits, law, True)
