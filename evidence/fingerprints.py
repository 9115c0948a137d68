"""Fingerprints of what users see, held against those of the file beside this module.

``python -m evidence.fingerprints`` makes them again and ends with 1 where one differs; ``--write`` keeps them, ``--only
PREFIX`` (given once or several times) takes those whose names begin so. They are decisions, metrics, tables, texts and
resolved scenarios as users get them, to the last digit: another version of numpy or scipy may change some, the name of
a module or a class changes none.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from evidence.tasks import Fingerprints, fingerprints_of, task_names

FILE = Path(__file__).with_suffix(".json")


def kept() -> Fingerprints:
    """The fingerprints of the file."""
    found: Fingerprints = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def keep(found: Mapping[str, str]) -> None:
    """Write the file, a name a line."""
    FILE.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def among(name: str, prefixes: Sequence[str]) -> bool:
    """Whether a name begins with one of the prefixes; any name does where there are none."""
    return not prefixes or name.startswith(tuple(prefixes))


def computed(prefixes: Sequence[str] = (), workers: int = 2) -> Fingerprints:
    """The fingerprints whose names begin with a prefix, made anew."""
    tasks = [task for task in task_names() if among(task, prefixes) or f"{task}/".startswith(_heads(task, prefixes))]
    made: Fingerprints = {}
    if workers == 1:
        for number, task in enumerate(tasks, 1):
            made |= fingerprints_of(task)
            _progress(number, len(tasks), task)
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _rarely_collected) as pool:
            waiting = {pool.submit(fingerprints_of, task): task for task in tasks}
            for number, done in enumerate(as_completed(waiting), 1):
                made |= done.result()
                _progress(number, len(tasks), waiting[done])
    return {name: made[name] for name in sorted(made) if among(name, prefixes)}


def _rarely_collected() -> None:
    """Look for cycles of garbage now and then only: many small runs make few."""
    gc.set_threshold(200_000)


def _heads(task: str, prefixes: Sequence[str]) -> tuple[str, ...]:
    """The task's own name where a prefix names a fingerprint of it."""
    return tuple(f"{task}/" for prefix in prefixes if prefix.startswith(f"{task}/"))


def _progress(number: int, tasks: int, task: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{number}/{tasks} {task:60.60}", end="" if number < tasks else "\n", file=sys.stderr)
    elif number % 100 == 0 or number == tasks:
        print(f"{number}/{tasks} {task}", file=sys.stderr)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that changed, are missing or are new."""
    return {
        "changed": sorted(name for name in before.keys() & now.keys() if before[name] != now[name]),
        "missing": sorted(before.keys() - now.keys()),
        "new": sorted(now.keys() - before.keys()),
    }


def told(found: Mapping[str, Iterable[str]], count: int) -> str:
    """The differences in words, the counts last."""
    lines = [f"{what:8} {name}" for what, names in found.items() for name in names]
    counts = [f"{len(list(found[what]))} {what}" for what in found if what == "changed" or found[what]]
    return "\n".join([*lines, f"{count} fingerprints, {', '.join(counts)}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 for any difference that is not written."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.fingerprints", description="Fingerprints of what users see."
    )
    parser.add_argument("--write", action="store_true", help="keep them in the file")
    parser.add_argument("--only", action="append", default=[], metavar="PREFIX", help="names that begin so")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    all_before = kept()
    before = {name: found for name, found in all_before.items() if among(name, given.only)}
    now = computed(given.only, given.workers)
    found = differences(before, now)
    print(told(found, len(now)))
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    if given.write:
        keep({name: kept for name, kept in all_before.items() if name not in before} | now)
        return 0
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
