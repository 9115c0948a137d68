"""`rlsim run --live`: the same scenario with real engines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rlsim.scenario.source import Document

STOPPED = 4
"""Exit code of a run that something stopped before its last step; what it did is in its log."""


def run_live(document: Document, engine: str, arm: str | None, out: Path | None, as_json: bool) -> None:
    """Run one arm of a scenario live, show it like a simulated one, and say what stopped it."""
    from rlsim.planning import present
    from rlsim.planning.comparison import plans
    from rlsim.planning.live import learning_text, run_arm

    document.resolve(arm)
    made = {name: found for name, found in plans(document).items() if arm is None or name == arm}
    name, plan = next(iter(made.items()))
    told = run_arm(name, plan, engine, out)
    if out is not None:
        print(f"saved to {out}", file=sys.stderr)
    if told.comparison is not None:
        shown = told.comparison
        print(present.as_json(shown) if as_json else present.as_text(shown, detailed=True), end="")
    if not as_json:
        print(learning_text(told.run), end="")
    if told.fault is not None:
        print(told.fault, file=sys.stderr)
        raise typer.Exit(STOPPED)
