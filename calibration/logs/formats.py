"""Which format a log has, and the reader of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from calibration.logs.consoles import is_dict_line, is_prime_line, read_console_dicts, read_prime_rl
from calibration.logs.readers import EVENTS, read_jsonl, read_tensorboard, read_trainer_state, read_wandb_csv
from calibration.logs.records import TrainingLog
from calibration.logs.vllm_lines import is_stat_line
from rlsim.core.errors import ParameterError, unknown

READERS: dict[str, Callable[[Path], TrainingLog]] = {
    "jsonl": read_jsonl,
    "wandb-csv": read_wandb_csv,
    "trainer-state": read_trainer_state,
    "console-dicts": read_console_dicts,
    "prime-rl": read_prime_rl,
    "tensorboard": read_tensorboard,
}
"""Logs with a row a training step."""

VLLM_STATS, TIMELINES = "vllm-stats", "timelines"
FORMATS = (*READERS, VLLM_STATS, TIMELINES)
SNIFFED_LINES = 20_000


def format_of(path: Path, name: str = "auto") -> str:
    """The format that was given, or the one that the path's names and first lines show.

    Raises ``ParameterError`` for an unknown name, a path that is not there and a text of no known format.
    """
    if name != "auto":
        if name not in FORMATS:
            raise unknown("format", name, ("auto", *FORMATS))
        return name
    if not path.exists():
        raise ParameterError("path", str(path), "a log file, or a folder with one")
    suffixes = {".jsonl": "jsonl", ".csv": "wandb-csv", ".json": "trainer-state"}
    tests = {VLLM_STATS: is_stat_line, "prime-rl": is_prime_line, "console-dicts": is_dict_line}
    if path.is_dir():
        if (path / "requests.jsonl").exists():
            return TIMELINES
        if next(path.rglob(f"*{EVENTS}*"), None):
            return "tensorboard"
    elif EVENTS in path.name:
        return "tensorboard"
    elif path.suffix in suffixes:
        return suffixes[path.suffix]
    else:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in islice(lines, SNIFFED_LINES):
                for kind, test in tests.items():
                    if test(line):
                        return kind
    raise ParameterError(str(path), "a format that is not recognised", f"--format, one of {', '.join(FORMATS)}")
