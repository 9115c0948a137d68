"""How far to trust a profile, in one word and its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rlsim.costs import catalogue
from rlsim.costs.evidence import Evidence, HoldOutError
from rlsim.costs.profile import Profile

Level = Literal["good", "usable", "poor"]
LEVELS: tuple[Level, ...] = ("good", "usable", "poor")

GOOD = (0.03, 0.10)
"""Median and 95th percentile of the hold-out error up to which a fit is good."""
USABLE = (0.10, 0.30)
"""Median and 95th percentile up to which a fit is usable; beyond them it is poor."""
FEWEST_POINTS = 10
"""Held-out points of a kind below which a good figure may be chance."""

TABLE_BARS = {
    ("dense", "decode"): (0.02, 0.06),
    ("dense", "prefill"): (0.03, 0.10),
    ("experts", "decode"): (0.025, 0.10),
    ("experts", "prefill"): (0.04, 0.18),
}
"""Median and 95th percentile of the hold-out error that the catalogue of silicon tables as a whole keeps, by the
model's family and the kind of step: a single profile beyond them is not called good."""


@dataclass(frozen=True, slots=True)
class ProfileQuality:
    """What to think of a profile, and why."""

    level: Level
    reason: str
    misses: str = ""
    """The figures that are beyond :data:`TABLE_BARS`, with their bars; empty where there are none."""

    def __str__(self) -> str:
        missed = f"; misses the bar of the tables: {self.misses}" if self.misses else ""
        return f"{self.level}: {self.reason}{missed}"


def profile_quality(profile: Profile) -> ProfileQuality:
    """The worst verdict over all sections and kinds; the reason is that kind's.

    A fit is never asked to be better than the noise of what it was fitted to: errors up to the noise floor are good.
    """
    qualities = [
        _of_kind(f"{section}: {kind}" if section != "step" else kind, error, evidence)
        for section, evidence in profile.evidences.items()
        for kind, error in (evidence.hold_out_by_kind or {"all": evidence.hold_out}).items()
    ]
    if not qualities:
        return ProfileQuality("poor", "it has no section that was fitted")
    worst = max(qualities, key=lambda each: LEVELS.index(each.level))
    if misses := ", ".join(_misses(profile)):
        level = max(worst.level, "usable", key=LEVELS.index)
        return ProfileQuality(level, worst.reason if worst.level != "good" else "good but for single figures", misses)
    if worst.level == "good":
        return ProfileQuality(
            "good", f"every kind within {GOOD[0]:.0%} (median) and {GOOD[1]:.0%} (p95) of what it has not seen"
        )
    return worst


def _misses(profile: Profile) -> Iterator[str]:
    step = profile.step
    if step is None or step.evidence.provenance.kind != "silicon-table" or profile.model not in catalogue.model_names():
        return
    family = "dense" if catalogue.model(profile.model).experts is None else "experts"
    for kind, error in step.evidence.hold_out_by_kind.items():
        bars = TABLE_BARS.get((family, kind), (1.0, 1.0))
        for name, value, bar in zip(("median", "p95"), (error.median, error.p95), bars, strict=True):
            if value > bar:
                yield f"{kind} {name} {value:.2%} > {100 * bar:g}%"


def _of_kind(kind: str, error: HoldOutError, evidence: Evidence) -> ProfileQuality:
    floor = evidence.noise_floor.get(kind.rsplit(": ", 1)[-1], 0.0)
    level: Level = "poor"
    if error.median <= max(GOOD[0], floor) and error.p95 <= max(GOOD[1], 3 * floor):
        level = "good"
    elif error.median <= max(USABLE[0], floor) and error.p95 <= max(USABLE[1], 3 * floor):
        level = "usable"
    reason = f"{kind} is off by {error.median:.1%} (median), {error.p95:.1%} (p95) at points not fitted"
    noise = f"; repeats differ by {floor:.1%}" if floor else ""
    if evidence.provenance.is_estimate and level == "good":
        return ProfileQuality("usable", f"{kind} is an estimate, not a measurement")
    if error.points < FEWEST_POINTS and level == "good":
        return ProfileQuality("usable", f"{kind} has only {error.points} held-out points")
    return ProfileQuality(level, reason + noise)
