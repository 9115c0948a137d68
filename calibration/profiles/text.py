"""Profiles as text: the list of all, and one in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from calibration.profiles.quality import LEVELS, profile_quality
from rlsim.costs.evidence import Evidence
from rlsim.costs.profile import Profile
from rlsim.costs.sections import StepFit

STEP_KINDS = ("decode", "prefill", "mixed")
HEADER = ("profile", "engine", "from", *(f"{kind} median / p95" for kind in STEP_KINDS), "verdict")
READING = (
    "Errors of the fitted law at held-out points (every third batch size and KV length), against what it was fitted "
    "to. Silicon tables are themselves 5 to 10 % from end-to-end measurements (dense models, vLLM, H100 and H200), "
    "20 to 30 % elsewhere."
)


def listing(profiles: Iterable[Profile]) -> str:
    """A table with a line a profile, and how to read it."""
    shown_profiles = list(profiles)
    rows = [HEADER, *(_row(profile) for profile in shown_profiles)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    qualities = [profile_quality(profile) for profile in shown_profiles]
    levels = [one.level for one in qualities]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in LEVELS)
    missed = f" {sum(bool(one.misses) for one in qualities)} miss a bar of the tables."
    return "\n".join([*lines, "", f"{len(shown_profiles)} profiles: {counts}.{missed}", READING, ""])


def listing_json(profiles: Iterable[Profile]) -> str:
    """Profiles and their errors as JSON."""
    identity = ("name", "model", "device", "tensor_parallel", "expert_parallel", "engine", "engine_version")
    records = []
    for profile in profiles:
        errors = {kind: asdict(error) for kind, error in profile.hold_out_by_kind.items()} if profile.step else {}
        quality = asdict(profile_quality(profile))
        record = {key: getattr(profile, key) for key in identity}
        records.append(record | {"hold_out_by_kind": errors, "verdict": quality})
    return json.dumps(records, indent=1) + "\n"


def shown(profile: Profile) -> str:
    """Verdict, where it comes from, errors, what was measured and where it extrapolates."""
    return "\n".join(_lines(profile)) + "\n"


def shown_json(profile: Profile) -> str:
    """One profile in full, with its verdict, as JSON."""
    return json.dumps(profile.as_dict() | {"verdict": asdict(profile_quality(profile))}, indent=1) + "\n"


def _row(profile: Profile) -> tuple[str, ...]:
    evidence = next(iter(profile.evidences.values()), None)
    kind = evidence.provenance.kind if evidence else "-"
    engine = f"{profile.engine} {profile.engine_version}"
    errors, quality = profile.hold_out_by_kind if profile.step else {}, profile_quality(profile)
    return (
        profile.name,
        engine,
        kind,
        *(f"{errors[name].median:.1%} / {errors[name].p95:.1%}" if name in errors else "-" for name in STEP_KINDS),
        f"{quality.level}, misses {quality.misses}" if quality.misses else quality.level,
    )


def _lines(profile: Profile) -> Iterator[str]:
    sharding = f"TP {profile.tensor_parallel}, EP {profile.expert_parallel}"
    yield profile.name
    yield f"{profile.model} on {profile.device}, {sharding}, {profile.engine} {profile.engine_version}"
    yield f"verdict: {profile_quality(profile)}"
    yield f"overheads: step time = {profile.scale:g} * fitted step + {profile.offset_seconds * 1e3:g} ms"
    if profile.kv_capacity_tokens is not None:
        yield f"KV capacity: {profile.kv_capacity_tokens:,} tokens a replica at 0.9 of the GPU memory"
    if profile.weight_bytes is not None:
        yield f"weights: {profile.weight_bytes / 1e9:.1f} GB"
    for name, evidence in profile.evidences.items():
        yield ""
        yield f"{name} ({evidence.provenance})"
        if evidence.provenance.licence:
            yield f"  licence: {evidence.provenance.licence}"
        for label, facts in (("hardware", evidence.hardware), ("libraries", evidence.libraries)):
            if facts:
                yield f"  {label}: {', '.join(f'{key} {value}' for key, value in facts.items())}"
        if evidence.driver:
            yield f"  driver: {evidence.driver}"
        if evidence.command:
            yield f"  made by: {evidence.command}"
        for kind, error in evidence.hold_out_by_kind.items():
            yield f"  {kind}: {error} ({error.points} held-out points)"
            yield from _kind(evidence, kind)
    if profile.step is not None:
        yield from _coefficients(profile.step)
    yield from _others(profile)
    if profile.notes:
        yield from ("", profile.notes)


def _kind(evidence: Evidence, kind: str) -> Iterator[str]:
    if kind in evidence.method:
        yield f"    how: {evidence.method[kind]}"
    if kind in evidence.noise_floor:
        yield f"    noise floor: repeats differ by {evidence.noise_floor[kind]:.1%}"
    if kind in evidence.sampled:
        sampled = evidence.sampled[kind]
        ranges = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in sampled.ranges.items())
        points = sampled.fitted + sampled.held_out
        yield f"    measured: {points} points, {ranges}; it extrapolates beyond"


def _coefficients(step: StepFit) -> Iterator[str]:
    law = step.law
    knots = f"{len(law.tokens)} knots by tokens, {len(law.decodes)} by decodes"
    yield f"  law: {law.dense_seconds[0] * 1e3:.3g} ms at one token, {law.pair_seconds * 1e12:.3g} ps a pair; {knots}"
    if step.intervals is None:
        yield "  confidence intervals: none (nothing random was measured)"
        return
    for name, low in step.intervals.low.items():
        values = getattr(law, name)
        middle = values if isinstance(values, tuple) else (values,)
        sides = (
            max(top - value, value - bottom) / value
            for value, bottom, top in zip(middle, low, step.intervals.high[name], strict=True)
            if value
        )
        width = max(sides, default=0.0)
        level = f"{step.intervals.level:.0%} interval ({step.intervals.method})"
        yield f"  {name}: {level} at most {width:.1%} wide on either side of a knot's value"


def _others(profile: Profile) -> Iterator[str]:
    if profile.training is not None:
        yield from ("", "training coefficients")
        yield from (f"  {name}: {value}" for name, value in profile.training.coefficients.items())
    for name, path in profile.transport.items():
        yield f"{name}: {path.fixed_seconds} + bytes / ({path.bytes_per_second}), {path.ranks} ranks"
    for name, time in profile.engine_times.items():
        yield f"{name}: {time}"
