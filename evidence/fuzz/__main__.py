"""``python -m evidence.fuzz [INPUT ...] --trials N --seed S --keep FOLDER --workers W``.

Exit code 1 where a trial ended as none may: with a traceback, after more than ten seconds, in more than one GiB, or
with a refusal that does not name the file (of a scenario: and the line).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from evidence.fuzz.campaign import Findings, campaign_of
from evidence.fuzz.inputs import INPUTS

SLICE = 100
"""Trials that a process makes at a stretch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    names = [one.name for one in INPUTS]
    parser = argparse.ArgumentParser(prog="python -m evidence.fuzz", description="What damaged inputs lead to.")
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--trials", type=int, default=200, help="of each input (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial (default: 0)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage (default: 0)")
    parser.add_argument("--keep", type=Path, help="folder for the first trial of every kind of fault")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    given = parser.parse_args(arguments)
    if unknown := set(given.inputs) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: allowed: {', '.join(names)}")
    found = [_findings(name, given) for name in given.inputs or names]
    return int(any(one.faults for one in found))


def _findings(name: str, given: argparse.Namespace) -> Findings:
    end = given.first + given.trials
    starts = range(given.first, end, SLICE)
    found = Findings(name)
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        parts = [
            pool.submit(campaign_of, name, range(at, min(at + SLICE, end)), given.seed, given.keep) for at in starts
        ]
        for part in parts:
            found.merge(part.result())
            if sys.stderr.isatty():
                print(f"\r{name}: {found.trials} of {given.trials}", end="", file=sys.stderr)
    print(
        f"{name:9}{found.trials:7} trials: {found.results} results, {found.refusals} refusals, {found.deadlocks} "
        f"deadlocks, {len(found.faults)} faults; slowest {found.slowest_seconds:.1f} s, "
        f"most memory {found.peak_bytes / 2**20:.0f} MiB",
        flush=True,
    )
    for kind, count in found.kinds():
        first = next(fault.number for fault in found.faults if fault.kind == kind)
        print(f"  {count:5}  {kind} (first: trial {first})", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
