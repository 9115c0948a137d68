"""`rlsim run --live`: the same scenario with real engines."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rlsim.live.site import Site
    from rlsim.planning.live import Told
    from rlsim.scenario.live import Live
    from rlsim.scenario.source import Document

BROKEN, DEADLOCK, STOPPED = 1, 3, 4
"""Exit codes of a run that did not come to its last step: a mistake in the program, nothing left to happen, something
that stopped it (a signal, a lost engine or trainer, a full disk). What it did is in its log."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where engines and trainer are to be."""

    cluster: str | None = None
    """None: processes of this host; ``ray``."""
    ray_address: str | None = None
    """Of an existing cluster."""


HERE = Where()


def run_live(
    document: Document, engine: str, arm: str | None, out: Path | None, as_json: bool, where: Where = HERE
) -> None:
    """Run one arm of a scenario live, show it like a simulated one, and say what stopped it."""
    from rlsim.live.run import StoppedError
    from rlsim.planning.comparison import plans
    from rlsim.planning.live import run_arm

    document.resolve(arm)
    made = {name: found for name, found in plans(document).items() if arm is None or name == arm}
    name, plan = next(iter(made.items()))
    try:
        with _site(where, plan.scenario.live) as site:
            told = run_arm(name, plan, engine, out, site=site)
    except StoppedError as stopped:
        print(stopped, file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    _show(told, out, as_json)
    code = _say_faults(told)
    if code:
        raise typer.Exit(code)


def _show(told: Told, out: Path | None, as_json: bool) -> None:
    from rlsim.planning import present
    from rlsim.planning.live import learning_text
    from rlsim.planning.save import save_comparison

    if out is not None and not told.unsaved:
        if told.comparison is not None:
            save_comparison(out, told.comparison)
        print(f"saved to {out}", file=sys.stderr)
    if told.comparison is not None:
        shown = told.comparison
        print(present.as_json(shown) if as_json else present.as_text(shown, detailed=True), end="")
    if not as_json:
        print(learning_text(told.run), end="")


def _say_faults(told: Told) -> int:
    """On stderr; the exit code."""
    import traceback

    from rlsim.core.errors import DeadlockError, RlsimError

    for what, (counts, first) in told.run.ending.unserved.items():
        if counts:
            told_as = "the trajectory was told so" if what == "tool" else "its reward counts as 0"
            number = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            print(f"{what} faults: {number}; {told_as} (first: {first})", file=sys.stderr)
    if told.unsaved:
        print(told.unsaved, file=sys.stderr)
    fault = told.fault
    if fault is None:
        return STOPPED if told.unsaved else 0
    if not isinstance(fault, RlsimError):
        traceback.print_exception(fault)
        return BROKEN
    print(fault, file=sys.stderr)
    return DEADLOCK if isinstance(fault, DeadlockError) else STOPPED


def _site(where: Where, live: Live) -> AbstractContextManager[Site]:
    """``ParameterError`` for what is no place, ``RlsimError`` where its extra is missing."""
    from rlsim.core.errors import ParameterError, unknown
    from rlsim.live.backends import HERE

    if where.cluster is None:
        if where.ray_address is not None:
            raise ParameterError("--ray-address", where.ray_address, "only with --cluster ray")
        return nullcontext(HERE)
    if where.cluster != "ray":
        raise unknown("--cluster", where.cluster, ["ray"])
    from rlsim.live.ray_site import RaySite

    return RaySite(where.ray_address, live.placement)
