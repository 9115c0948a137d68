"""What a fit to a log came to, as text and as JSON: how the held-out part came out, warnings, then the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibration.logs.estimates import JointEstimate, LogEstimate, OpenQuantity
from calibration.logs.plausibility import Implausible
from calibration.logs.reproduce import Reproduction
from calibration.text import wrapped
from rlsim.costs.evidence import HoldOutError

LEAST_LONGER = 0.02
"""Relative change of the lengths in the held-out part from which it is said."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """One log, of whatever format."""

    title: str
    columns: Mapping[str, str]
    """Columns used, by what they are."""
    estimates: Sequence[LogEstimate]
    unidentified: Sequence[OpenQuantity | str]
    notes: Sequence[str]
    held_out: Mapping[str, HoldOutError]
    """Errors on the part that was not fitted to, by quantity."""
    summary: str = ""
    """How the part that was not fitted to came out, in a sentence or two."""
    warnings: Sequence[Implausible] = ()
    joint: Sequence[JointEstimate] = ()

    def lines(self) -> Iterator[str]:
        """Everything, at most 80 columns wide."""
        yield from wrapped(self.title, "")
        if self.summary:
            yield from wrapped(f"held out: {self.summary}", "  ", first="")
        for warning in self.warnings:
            yield from wrapped(f"warning: {warning}", "  ", first="")
        yield from ("", f"fitted, {len(self.estimates)} free parameters, with 95 % intervals:")
        for estimate in self.estimates:
            yield f"  {estimate.key} = {estimate.value:.4g} ({estimate.interval})"
            yield from wrapped(f"from {estimate.source}", "      ")
        yield from _titled("together", map(str, self.joint))
        yield from _titled("kept, as this log does not tell", map(str, self.unidentified))
        errors = (f"{name}: {error} ({error.points} points)" for name, error in self.held_out.items())
        yield from _titled("errors on the part that was not fitted to", errors)
        yield from _titled("columns used", (f"{name}: {column}" for name, column in self.columns.items()))
        yield from _titled("notes", self.notes)

    def text(self) -> str:
        """Plain text."""
        return "\n".join(self.lines()) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "title": self.title,
            "summary": self.summary,
            "warnings": [asdict(warning) for warning in self.warnings],
            "estimates": [asdict(estimate) for estimate in self.estimates],
            "joint": [asdict(joint) for joint in self.joint],
            "unidentified": [each if isinstance(each, str) else asdict(each) for each in self.unidentified],
            "held_out": {name: asdict(error) for name, error in self.held_out.items()},
            "columns": dict(self.columns),
            "notes": list(self.notes),
        }


def _titled(title: str, items: Iterable[str]) -> Iterator[str]:
    """A heading and its items; nothing where there are none."""
    shown = list(items)
    yield from ("", f"{title}:") if shown else ()
    for item in shown:
        yield from wrapped(item, "      ", first="  ")


def report_of(reproduction: Reproduction) -> LogReport:
    """The report of a log of training steps."""
    steps = reproduction.steps
    mode = "synchronous" if steps.synchronous else "asynchronous"
    return LogReport(
        title=f"{steps.origin}: a {mode} {steps.framework} run of {steps.count} steps",
        columns=steps.columns,
        estimates=reproduction.estimates,
        unidentified=reproduction.unidentified,
        notes=reproduction.notes,
        held_out=reproduction.by_quantity,
        summary=_held_out(reproduction),
        warnings=reproduction.warnings,
        joint=reproduction.joint,
    )


def _held_out(reproduction: Reproduction) -> str:
    """What was held out, and how it came out."""
    steps, held = reproduction.steps, reproduction.held
    numbers = steps.numbers
    last = numbers[steps.held_out]
    which = f"steps {last[0]} to {last[-1]}; fitted to {numbers[0]} to {numbers[steps.fitted][-1]}"
    reach = f" +- {held.reach_seconds:.3g}" if held.reach_seconds else ""
    logged = f"the log's {held.logged_seconds:.4g}{reach} s"
    mean = f"The fitted scenario's mean step is {held.simulated_seconds:.4g} s, {logged}: {held.error:+.1%}."
    way = "longer" if held.longer > 0 else "shorter"
    drift = f" Responses are {abs(held.longer):.0%} {way} there." if abs(held.longer) >= LEAST_LONGER else ""
    step = reproduction.by_quantity.get("step")
    own = f" Priced from their own lengths, steps are off by: {step}." if step else ""
    return f"{which}. {mean}{drift}{own}"
