"""``rlsim calibrate torch``: time a trainer on this machine and write the training section of a profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.measure import host as hardware
from calibration.measure.campaign import RepeatedCampaign, TimeBudget
from calibration.measure.host import require
from calibration.measure.journal import MeasurementJournal, stored_header
from calibration.measure.measurements import Timing, slowdown, upward_bias
from calibration.profiles.file import Subject, journal_file, kept_beside, merged
from calibration.trainer.bench import TrainerRecipe, recipe_for
from calibration.trainer.fit import TrainerFit, fit_trainer, interval_width
from calibration.trainer.points import TrainerDesign, TrainerPoint, design
from calibration.trainer.ranks import RankGroup, trainer_group
from rlsim.core.errors import ParameterError
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.evidence import Coefficient, Evidence, Provenance
from rlsim.costs.profile import Profile
from rlsim.costs.sections import TrainingFit
from rlsim.costs.training import trainer_speeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIGHT = 0.02
"""Half width of the relative 95 % interval of either pass's rate at which timing ends."""
PASSES_IN_BUDGET = 16
PASS_OVER_LARGEST = 10.0
"""A pass over all points takes about this many times the largest micro-batch's forward and backward."""
SMALLEST, LARGEST = 256, 65536
"""Tokens of the largest micro-batch: least and most."""
PEAK_MARGIN = 1.5
FLOOR_OF_BAR = 0.05


@dataclass(frozen=True, slots=True)
class TorchRequest:
    """What is to be calibrated, and for how long."""

    model: str
    device: str
    out: Path
    budget: TimeBudget
    ranks: int | None = None
    """``None``: one a GPU, one on a CPU."""
    most_tokens: int | None = None
    """Tokens of the largest micro-batch; ``None``: what the budget and the memory allow."""
    command: str = ""


def calibrate_torch(request: TorchRequest, tell: Callable[[str], None] = lambda line: None) -> Profile:
    """Measure, fit and write ``request.out``; raw samples are kept beside it.

    Interrupted, the same call goes on where it stopped. Raises ``ParameterError`` for a model, a device or an
    existing file that does not fit, and where torch is not installed.
    """
    device = hardware.chosen_device(request.device)
    torch = require("torch", "calibrate")
    ranks = request.ranks or (torch.cuda.device_count() if device == "cuda" else 1)
    recipe = recipe_for(request.model, device, ranks)
    subject = Subject(recipe.architecture.name, hardware.device_label(device), "torch", torch.__version__)
    kept_beside(request.out, subject)
    with trainer_group(recipe) as group:
        # no rate is above the data sheet's, or with a margin for noise that of a large matrix product
        if subject.device in catalogue.device_names():
            peak_flops = catalogue.device(subject.device).bf16_flops
        else:
            peak_flops = PEAK_MARGIN * hardware.matmul_flops(torch, group.trainer.device)
        points, table, peak_bytes = _timed(group, recipe, request, subject, peak_flops, tell)
    fit = fit_trainer(points, table, recipe.architecture, peak_flops)
    training = _section(fit, recipe, table, request, subject, peak_bytes)
    profile = merged(request.out, subject, training=training)
    profile.write(request.out)
    journal_file(request.out, "torch").rename(request.out.with_suffix(".torch-samples.jsonl"))
    return profile


def report(profile: Profile, architecture: Architecture) -> Iterator[str]:
    """Lines for a person: coefficients, errors, a verdict, and the keys to paste."""
    fit = profile.training
    if fit is None:
        raise ParameterError("training", profile.name, "a profile with a training section")
    yield f"{profile.model} on {profile.device}, {fit.parallel.get('data_parallel', 1)} rank(s)"
    for name, coefficient in fit.coefficients.items():
        yield f"  {name:34s} {coefficient}"
    evidence = fit.evidence
    yield f"hold-out: {evidence.hold_out}"
    for kind, error in evidence.hold_out_by_kind.items():
        yield f"  {kind:8s} {error}"
    yield verdict(evidence)
    yield from keys(profile, fit, architecture)


def verdict(evidence: Evidence) -> str:
    """Whether the median held-out error is within five per cent or what repeats of one point differ by."""
    floor = evidence.noise_floor.get("all", 0.0)
    bar = max(FLOOR_OF_BAR, floor)
    good = evidence.hold_out.median <= bar
    return (
        f"{'good' if good else 'NOT GOOD'}: held-out median {evidence.hold_out.median:.1%}, allowed {bar:.1%} "
        f"(the larger of {FLOOR_OF_BAR:.0%} and the noise floor, {floor:.1%})"
    )


def keys(profile: Profile, fit: TrainingFit, architecture: Architecture) -> Iterator[str]:
    """The trainer's keys of a scenario, with intervals; for a device without a data sheet only the profile's name."""
    if profile.device not in catalogue.device_names():
        yield f"{profile.device} has no data sheet in the catalogue: name the profile, and accept other hardware"
        yield "cluster:\n  allow_other_hardware: true"
        yield f"trainer:\n  profile: {profile.name}.json"
        return
    from rlsim.costs.training import RATES

    device = catalogue.device(profile.device)
    yield "trainer:"
    for key, value in asdict(trainer_speeds(fit, architecture, device)).items():
        coefficient, interval = fit.coefficients.get(RATES.get(key, key)), ""
        if coefficient is None:
            interval = " # an update less the memory traffic that the cost model adds"
        elif coefficient.low is not None and coefficient.high is not None:
            scale = device.bf16_flops if key in RATES else 1.0
            interval = f" # {coefficient.low / scale:.4g} to {coefficient.high / scale:.4g}"
        yield f"  {key}: {value:.4g}{interval}"


def _timed(
    group: RankGroup,
    recipe: TrainerRecipe,
    request: TorchRequest,
    subject: Subject,
    peak_flops: float,
    tell: Callable[[str], None],
) -> tuple[TrainerDesign, NDArray[np.float64], float]:
    file = journal_file(request.out, "torch")
    stored = stored_header(file) or {}
    most = request.most_tokens or stored.get("most_tokens") or _largest(group, request.budget.seconds)
    points = design(int(most), group.trainer.longest)
    header = {**asdict(subject), "ranks": recipe.ranks, "most_tokens": most}
    journal = MeasurementJournal(file, header, Timing)
    for point in points.points:
        group.run(point)
    peak_bytes = float(group.trainer.peak_bytes())
    campaign = RepeatedCampaign(
        points=len(points.points),
        seconds_of=lambda index: group.run(points.points[index]),
        journal=journal,
        budget=request.budget,
        interval=lambda table: interval_width(points, table, recipe.architecture, peak_flops),
        tight=TIGHT,
        report=tell,
    )
    return points, campaign.run(), peak_bytes


def _largest(group: RankGroup, budget_seconds: float) -> int:
    """Tokens of a micro-batch such that the passes fit the budget, and the memory holds it."""
    torch = require("torch", "calibrate")
    tokens, longest = SMALLEST, group.trainer.longest
    allowed = budget_seconds / PASSES_IN_BUDGET / PASS_OVER_LARGEST
    while tokens < LARGEST:
        sizes = (min(tokens, longest),) * max(1, tokens // longest)
        try:
            group.run(TrainerPoint("train", sizes))
            seconds = group.run(TrainerPoint("train", sizes))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return max(SMALLEST, tokens // 4)
        if 2.2 * seconds > allowed:
            break
        tokens *= 2
    return tokens


def _section(
    fit: TrainerFit,
    recipe: TrainerRecipe,
    table: NDArray[np.float64],
    request: TorchRequest,
    subject: Subject,
    peak_bytes: float,
) -> TrainingFit:
    source = f"rlsim calibrate torch, {recipe.architecture.name} on {subject.device}, {recipe.ranks} rank(s)"
    evidence = Evidence(
        provenance=Provenance("measured", source, date.today().isoformat()),
        hold_out=fit.hold_out,
        hold_out_by_kind=fit.hold_out_by_kind,
        sampled=fit.sampled,
        method=_method(recipe, table),
        noise_floor=fit.noise_floor,
        command=request.command,
        hardware=hardware.described(recipe.device) | {"threads": str(require("torch", "calibrate").get_num_threads())},
        driver=hardware.driver(),
        libraries=hardware.versions(("torch", "transformers", "numpy", "scipy")),
    )
    peak = Coefficient(peak_bytes, "bytes")
    return TrainingFit({**fit.coefficients, "peak_memory_bytes": peak}, evidence, {"data_parallel": recipe.ranks})


def _method(recipe: TrainerRecipe, table: NDArray[np.float64]) -> dict[str, str]:
    sharded = f", FSDP over {recipe.ranks} ranks" if recipe.ranks > 1 else ""
    return {
        "all": f"{len(table)} passes over all points; a point's time is the mean of its quickest quarter; the median "
        f"sample took {slowdown(table):.2f} of that; even passes fitted, odd passes of other shapes held out; 95 % "
        f"intervals: residual bootstrap, on the quicker side wider by {upward_bias(table):.1%} for noise that only "
        "adds",
        "logprob": f"bf16 forward without gradients and log-probabilities of one micro-batch{sharded}",
        "train": f"bf16 forward and backward of one micro-batch{sharded}",
        "update": "gradient clipping, AdamW on fp32 master weights and moments, copy to bf16",
        "step": "log-probabilities, forward and backward of three micro-batches of mixed lengths, and one update",
    }
