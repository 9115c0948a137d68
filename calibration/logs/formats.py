"""The formats of logs that are read, how each is recognised, and its reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from calibration.logs import console_tables as tables
from calibration.logs import consoles
from calibration.logs.engine_lines import is_sglang_line, is_vllm_line
from calibration.logs.frameworks import FRAMEWORKS
from calibration.logs.readers import EVENTS, read_jsonl, read_tensorboard, read_trainer_state, read_wandb_csv
from calibration.logs.records import STEP_NAMES, TrainingLog, gather
from calibration.logs.texts import TEXT_SUFFIXES, LogText, base_suffix, read_text
from rlsim.core.errors import ParameterError, unknown

SNIFFED_SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".csv", ".tsv")
SNIFFED_LINES = 1_000_000
SHOWN_CHARACTERS = 120
SUMMARY, DATASTORE = "wandb-summary.json", ".wandb"
VLLM_STATS, SGLANG_STATS, TIMELINES = "vllm-stats", "sglang-stats", "timelines"


@dataclass(frozen=True, slots=True)
class LogFormat:
    """One format. It is recognised by its path or by its lines."""

    name: str
    description: str
    """How it looks, and who writes it."""
    read: Callable[[Path], TrainingLog] | None = None
    """None where a row is no training step."""
    holds_path: Callable[[Path], bool] | None = None
    is_line: Callable[[str], bool] | None = None
    is_engine: bool = False
    """Whether its lines are those of an engine, which may stand between those of a framework."""


def _console(
    name: str, description: str, steps: Callable[[LogText], Iterator[consoles.Part]], is_line: Callable[[str], bool]
) -> LogFormat:
    def read(path: Path) -> TrainingLog:
        log = LogText(path)
        return gather(log.origin, f"{name} lines", steps(log), log.notes())

    return LogFormat(name, description, read, is_line=is_line)


def _has_suffix(path: Path, *suffixes: str) -> bool:
    return path.is_file() and base_suffix(path) in suffixes


def _is_json_line(text: str) -> bool:
    return text.startswith("{") and any(f'"{name}"' in text for name in STEP_NAMES)


def _is_table_header(text: str) -> bool:
    return "," in text and any(cell.strip('" ') in STEP_NAMES for cell in text.split(",")[:8])


def _is_trainer_state(path: Path) -> bool:
    return _has_suffix(path, ".json") and '"log_history"' in read_text(path)


FORMATS = (
    LogFormat(
        TIMELINES,
        "a folder with requests.jsonl and meta.json of a serving run",
        holds_path=lambda path: (path / "requests.jsonl").exists(),
    ),
    LogFormat(
        "tensorboard",
        "event files of NeMo-RL, AReaL, OpenRLHF, RLinf, ... (pip install 'rlsim[logs]')",
        read_tensorboard,
        lambda path: EVENTS in path.name or (path.is_dir() and any(path.rglob(f"*{EVENTS}*"))),
    ),
    LogFormat(
        "trainer-state", "trainer_state.json of Hugging Face's trainer (TRL)", read_trainer_state, _is_trainer_state
    ),
    LogFormat(
        "jsonl",
        'verl\'s {"step": n, "data": {...}}, W&B\'s history, or flat objects with a step, one a line',
        read_jsonl,
        lambda path: _has_suffix(path, ".jsonl", ".json"),
        _is_json_line,
    ),
    LogFormat(
        "wandb-csv",
        "CSV of W&B's charts (run - metric) or any other with a step, of one run; or a folder of them",
        read_wandb_csv,
        lambda path: _has_suffix(path, ".csv", ".tsv"),
        _is_table_header,
    ),
    _console("verl", "verl's console, step:n - name:value - ...", consoles.verl_steps, consoles.is_verl_line),
    _console(
        "console-dicts",
        "consoles of slime, miles and OpenRLHF, perf n: {'name': value}",
        consoles.dict_steps,
        consoles.is_dict_line,
    ),
    _console(
        "trainer-dicts",
        "consoles of TRL and Hugging Face's trainer, {'loss': value, ..., 'epoch': value}",
        consoles.trainer_steps,
        consoles.is_trainer_line,
    ),
    _console(
        "prime-rl",
        "prime-rl's consoles, of the orchestrator and of the trainer, Step n | ...",
        consoles.prime_steps,
        consoles.is_prime_line,
    ),
    _console("roll", "ROLL's console, a JSON object a step", consoles.roll_steps, consoles.is_roll_line),
    _console("nemo-rl", "NeMo-RL's console, lists after === Step n/m ===", tables.nemo_steps, tables.is_nemo_line),
    _console("areal", "AReaL's console, grids after Train step n/m done", tables.areal_steps, tables.is_areal_line),
    _console("skyrl", "SkyRL's console, Step n: and a dict over lines", tables.skyrl_steps, tables.is_skyrl_line),
    _console("rlinf", "RLinf's console, tables or the progress bar", tables.rlinf_steps, tables.is_rlinf_line),
    _console("open-instruct", "open-instruct's console, panels", tables.panel_steps, tables.is_panel_line),
    LogFormat(
        VLLM_STATS,
        "vLLM's statistics lines of V0 and V1, Avg generation throughput: ...",
        is_line=is_vllm_line,
        is_engine=True,
    ),
    LogFormat(
        SGLANG_STATS,
        "SGLang's lines, Decode batch, #running-req: ...",
        is_line=is_sglang_line,
        is_engine=True,
    ),
)
FORMAT_NAMES = tuple(known.name for known in FORMATS)
READERS = {known.name: known.read for known in FORMATS if known.read is not None}
"""Logs with a row a training step."""
_LINE_TESTS = [(known.name, known.is_line) for known in FORMATS if known.is_line is not None]
ENGINE_STATS = tuple(known.name for known in FORMATS if known.is_engine)


def format_of(path: Path, name: str = "auto") -> str:
    """The format that was given, or the one that the path and its lines show.

    Raises ``ParameterError`` for an unknown name, a path that is not there and a text of no known format.
    """
    if name != "auto":
        if name not in FORMAT_NAMES:
            raise unknown("format", name, ("auto", *FORMAT_NAMES))
        return name
    if not path.exists():
        raise ParameterError("path", str(path), "a log file, or a folder with one")
    _refuse_unreadable(path)
    for known in FORMATS:
        if known.holds_path is not None and known.holds_path(path):
            return known.name
    return _by_lines(path)


def _refuse_unreadable(path: Path) -> None:
    """W&B's files that do not have the values of the steps, or not as text."""
    allowed = "the run's history: CSV of its charts, or the rows of wandb.Api().run(...).scan_history() as JSON lines"
    if path.name == SUMMARY:
        raise ParameterError(path.name, "the last value of each metric only", allowed)
    if path.suffix == DATASTORE:
        raise ParameterError(path.name, "W&B's own binary file", allowed)


def _by_lines(path: Path) -> str:
    """The format whose lines are there; an engine's only where no framework's are."""
    counts: Counter[str] = Counter()
    informative = ""
    for line in islice(LogText(path, SNIFFED_SUFFIXES), SNIFFED_LINES):
        if not informative and any(char.isalpha() for char in line.text) and any(map(str.isdigit, line.text)):
            informative = f"{line.place}: {line.text.strip()[:SHOWN_CHARACTERS]}"
        counts.update(name for name, is_line in _LINE_TESTS if is_line(line.text))
    if not counts:
        tried = f"--format, one of those that were tried: {', '.join(FORMAT_NAMES)}"
        shown = f"no format is recognised; its first line with a number is {informative or 'none'}"
        raise ParameterError(str(path), shown, tried)
    steps = [name for name in counts if name in READERS]
    if len(steps) == 1:
        return steps[0]
    return max(steps, key=lambda name: _known_columns(name, path)) if steps else counts.most_common(1)[0][0]


def _known_columns(name: str, path: Path) -> tuple[int, int]:
    """How many columns of a framework the log has if it is read so, and how many steps."""
    try:
        log = READERS[name](path)
    except ParameterError:
        return 0, 0
    names = log.names()
    return max(framework.matches(names) for framework in FRAMEWORKS), len(log.rows)
