"""Consoles that print a step on one line, by the frameworks' own loggers.

Sources: verl b178a3cd5 ``utils/logger/aggregate_logger.py``, slime 624b824a8 ``observability``, miles 31f1ca961
``ray/rollout/metrics.py``, OpenRLHF 3c3be623 ``trainer/ppo_trainer.py``, transformers 5.19 ``trainer_callback.py``,
prime-rl 559b44772 (and the ``Time:`` lines of its releases of 2025) ``orchestrator.py`` and ``trainer/rl/train.py``,
ROLL 8eb27cc2 ``utils/tracking.py`` and ``pipeline``.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from calibration.logs.records import REAL, STEP, number, step_number
from calibration.logs.texts import CUT, Line, LogText

Part = tuple[int, Mapping[str, object]]
"""A step's number, and some of its values."""

EVALUATIONS = ("eval", "test")
"""Dicts printed under these names are not of a training step."""
BAR_TIME = "progress_bar/step_time"
"""Column of the seconds of a step by the trainer's progress bar."""
UPDATE_MARK = "train/step"
"""In a dict of slime or miles: it is of an optimizer step, of which a training step may have several."""
NOT_READ, EVALUATED = "step lines that are not understood", "lines of evaluations and summaries left out"

_VERL_STEP = re.compile(rf"(?<![A-Za-z_/])step:{STEP} - (?=\S+:)")
_DICT_LINE = re.compile(r"(?P<before>.*?)\b(?P<word>\w+) (?P<step>\d{1,15}): (?P<dict>\{.*\})\s*$")
_TRAINER_LINE = re.compile(r"(\{'[^{}]*\})\s*$")
_BAR = re.compile(r"^\s*\d+%\|.*\| (\d{1,9})/(\d{1,9}) \[(?:(\d{1,6}):)?(\d\d):(\d\d)<")
_WRAPPED = re.compile(r"\b(?:np\.\w+|tensor|array)\(([-+\w.]+)[^()]*\)")
_NOT_A_NUMBER = re.compile(r"(?<=[:\s\[,(])[-+]?(?:nan|inf)\b")
_PRIME_LINE = re.compile(rf"\bStep {STEP} \| +(Time: \S+|\d[\d.dhms ]{{,20}}) \| (.*)$")
_PRIME_FIELD = re.compile(rf"([A-Za-z][A-Za-z. -]*?):? +{REAL}\s*(K(?=\s*tok)|%)?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ROLL_TAG = re.compile(r"metrics_tag: (\{.*\})\s*$")
_ROLL_JSON = re.compile(r'(\{".*"time/step_.*\})\s*$')
_ROLL_MARK = re.compile(rf"pipeline (?:rollout global )?step {STEP} (start|finished)")


def literal_dict(text: str) -> dict[str, object] | None:
    """The dict that Python printed, read as literals: nothing is evaluated. None for anything else."""
    plain = _NOT_A_NUMBER.sub("None", _WRAPPED.sub(r"\1", text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.literal_eval(plain)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return {str(name): value for name, value in tree.items()} if isinstance(tree, dict) else None


def is_verl_line(text: str) -> bool:
    """Whether it is ``step:n - key:value - ...``."""
    return "step:" in text and _VERL_STEP.search(text) is not None


def verl_steps(log: LogText) -> Iterator[Part]:
    """verl, and SkyRL before it printed dicts; two lines that ran together are two steps."""
    for line in log:
        if not is_verl_line(line.text):
            continue
        if not line.whole:
            log.lose(CUT, line)
            continue
        starts = list(_VERL_STEP.finditer(line.text))
        ends = [*(match.start() for match in starts[1:]), len(line.text)]
        for match, end in zip(starts, ends, strict=True):
            pieces = line.text[match.end() : end].split(" - ")
            pairs = (piece.rpartition(":") for piece in pieces)
            yield int(match[1]), {name.strip(): _WRAPPED.sub(r"\1", value) for name, colon, value in pairs if colon}


def is_dict_line(text: str) -> bool:
    """Whether it prints a step's dict after its name."""
    return "': " in text and text.rstrip().endswith("}") and _DICT_LINE.search(text) is not None


def dict_steps(log: LogText) -> Iterator[Part]:
    """``perf 3: {'perf/step_time': 12.3}`` and the like (slime, miles, OpenRLHF); dicts of one number are one row."""
    for line in log:
        match = _DICT_LINE.search(line.text) if is_dict_line(line.text) else None
        if match is None:
            continue
        values = literal_dict(match["dict"])
        if match["word"] in EVALUATIONS or match["before"].lower().endswith("eval at "):
            log.lose(EVALUATED, line)
        elif values is None:
            log.lose(NOT_READ, line)
        elif UPDATE_MARK in values:
            log.lose("dicts of optimizer steps left out", line)
        else:
            yield int(match["step"]), values


def is_trainer_line(text: str) -> bool:
    """Whether it is the dict that the Hugging Face trainer prints."""
    return "'epoch': " in text and _TRAINER_LINE.search(text) is not None and not is_dict_line(text)


class _ProgressBar:
    """The trainer's own bar: steps done and seconds since the start, where the dicts have no time of a step."""

    def __init__(self) -> None:
        self._total = 0
        self._now = self._last = (0, 0)

    def see(self, text: str) -> None:
        """Take in a line; before the first dict the latest bar's total is taken for the run's."""
        bar = _BAR.search(text) if "%|" in text else None
        if bar is not None and (self._last == (0, 0) or int(bar[2]) == self._total):
            hours, minutes, seconds = (int(part or 0) for part in bar.groups()[2:])
            self._total, self._now = int(bar[2]), (int(bar[1]), 3600 * hours + 60 * minutes + seconds)

    def step_seconds(self) -> float | None:
        """The mean since it was last asked; None without a bar, and across a restart."""
        steps, seconds = (now - last for now, last in zip(self._now, self._last, strict=True))
        self._last = self._now
        return seconds / steps if steps > 0 and seconds > 0 else None


def trainer_steps(log: LogText) -> Iterator[Part]:
    """TRL's and the Hugging Face trainer's dicts have no number: they are counted, again where the epoch goes back."""
    order, known, bar = list[tuple[float, float]](), set[str](), _ProgressBar()
    for line in log:
        bar.see(line.text)
        match = _TRAINER_LINE.search(line.text) if is_trainer_line(line.text) else None
        if match is None:
            continue
        values = literal_dict(match[1])
        epoch = None if values is None else number(values.get("epoch"))
        if values is None or epoch is None:
            log.lose(NOT_READ, line)
        elif "train_runtime" in values or any(name.startswith("eval_") for name in values):
            log.lose(EVALUATED, line)
        elif match[1] not in known:
            known.add(match[1])
            reached = (epoch, number(values.get("num_tokens")) or 0.0)
            if isinstance(values.get("num_tokens"), str):
                log.lose("values of num_tokens left out (rounded to four digits)", line)
                del values["num_tokens"]
            values[BAR_TIME] = bar.step_seconds()
            if order and reached < order[-1]:
                del order[_resumed_at(order, reached) :]
            order.append(reached)
            yield len(order), values


def _resumed_at(order: list[tuple[float, float]], reached: tuple[float, float]) -> int:
    """The first step as far as that; of steps whose epoch is rounded to the same, by the tokens so far."""
    first, end = bisect_left(order, (reached[0], -math.inf)), bisect_right(order, (reached[0], math.inf))
    return min(bisect_left(order, reached), end - 1) if end > first else first


def is_prime_line(text: str) -> bool:
    """Whether it is prime-rl's line of a step."""
    return "Step " in text and _PRIME_LINE.search(text) is not None


def prime_steps(log: LogText) -> Iterator[Part]:
    """The step lines of orchestrator (they have a reward) and trainer (they have a loss), one row a step.

    Both print a time, of different things: columns are named ``orchestrator/...`` and ``trainer/...``.
    """
    for line in log:
        match = _PRIME_LINE.search(line.text) if "Step " in line.text else None
        if match is None:
            continue
        if not line.whole:
            log.lose(CUT, line)
            continue
        durations = [float(count) * _UNIT_SECONDS[unit] for count, unit in _DURATION.findall(match[2])]
        values = {"Time": sum(durations)} if durations else {}
        for field in filter(None, map(_PRIME_FIELD.match, match[3].split(" | "))):
            values[field[1]] = float(field[2]) * {"K": 1000.0, "%": 0.01}.get(field[3], 1.0)
        side = "trainer" if "Loss" in values else "orchestrator"
        yield int(match[1]), {f"{side}/{name}": value for name, value in values.items()}


def is_roll_line(text: str) -> bool:
    """Whether it is a step's JSON on ROLL's console."""
    if not text.rstrip().endswith("}"):
        return False
    return "metrics_tag: {" in text or ('"time/step_' in text and _ROLL_JSON.search(text) is not None)


def roll_steps(log: LogText) -> Iterator[Part]:
    """``metrics_tag: {"step": ..., "metrics": ...}``, or the bare JSON between the lines that begin and end a step."""
    begun: int | None = None
    waiting: tuple[Line, str] | None = None
    for line in log:
        mark, tagged = _ROLL_MARK.search(line.text), _ROLL_TAG.search(line.text)
        if tagged is not None:
            tree = _json(log, line, tagged[1])
            step, metrics = step_number(tree.get("step")), tree.get("metrics")
            if step is not None and isinstance(metrics, dict):
                yield step, _untagged(metrics)
        elif mark is not None:
            if waiting is not None and mark[2] == "finished" and begun == int(mark[1]):
                yield begun, _untagged(_json(log, *waiting))
            elif waiting is not None:
                log.lose("JSON lines without the lines that begin and end their step", waiting[0])
            waiting, begun = None, int(mark[1]) if mark[2] == "start" else None
        elif is_roll_line(line.text) and (bare := _ROLL_JSON.search(line.text)) is not None:
            waiting = line, bare[1]


def _json(log: LogText, line: Line, text: str) -> dict[str, object]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        log.lose(NOT_READ, line)
        return {}
    return tree


def _untagged(values: Mapping[str, object]) -> dict[str, object]:
    """Names without the reducer that ROLL's trackers strip (``name@mean``)."""
    return {name.rpartition("@")[0] or name: value for name, value in values.items()}
