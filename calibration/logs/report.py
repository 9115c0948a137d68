"""What a fit to a log came to, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibration.logs.estimates import LogEstimate
from calibration.logs.reproduce import Reproduction
from rlsim.costs.evidence import HoldOutError


@dataclass(frozen=True, slots=True)
class LogReport:
    """One log, of whatever format."""

    title: str
    columns: Mapping[str, str]
    """Columns used, by what they are."""
    estimates: Sequence[LogEstimate]
    unidentified: Sequence[str]
    notes: Sequence[str]
    held_out: Mapping[str, HoldOutError]
    """Errors on the part that was not fitted to, by quantity."""
    summary: str = ""
    """Summary of the simulated run against the held-out part."""

    def lines(self) -> Iterator[str]:
        """Everything, a line each."""
        yield self.title
        yield "used:"
        yield from (f"  {name}: {column}" for name, column in self.columns.items())
        yield f"fitted, {len(self.estimates)} free parameters, with 95 % intervals:"
        yield from (f"  {estimate}" for estimate in self.estimates)
        yield "not identified by this log:"
        yield from (f"  {said}" for said in self.unidentified or ("nothing",))
        yield "errors on the part that was not fitted to:"
        yield from (f"  {name}: {error} ({error.points} points)" for name, error in self.held_out.items())
        if self.summary:
            yield f"  {self.summary}"
        if self.notes:
            yield "notes:"
            yield from (f"  {note}" for note in self.notes)

    def text(self) -> str:
        """Plain text."""
        return "\n".join(self.lines()) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "title": self.title,
            "columns": dict(self.columns),
            "estimates": [asdict(estimate) for estimate in self.estimates],
            "unidentified": list(self.unidentified),
            "notes": list(self.notes),
            "held_out": {name: asdict(error) for name, error in self.held_out.items()},
            "summary": self.summary,
        }


def report_of(reproduction: Reproduction) -> LogReport:
    """The report of a log of training steps."""
    steps = reproduction.steps
    fitted = steps.fitted.stop
    held = reproduction.held
    mode = "synchronous" if steps.synchronous else "asynchronous"
    return LogReport(
        title=f"{steps.origin}: a {mode} {steps.framework} run, {fitted} steps fitted, {steps.count - fitted} held out",
        columns=steps.columns,
        estimates=reproduction.estimates,
        unidentified=reproduction.unidentified,
        notes=steps.notes,
        held_out=reproduction.by_quantity,
        summary=f"mean step of the simulated scenario {held.simulated_seconds:.4g} s, "
        f"logged {held.logged_seconds:.4g} +- {held.reach_seconds:.2g} s: {held.error:+.1%}",
    )
