"""Consoles that print a step over many lines: tables, panels, lists of timings, dicts of one entry a line.

Sources: NeMo-RL 7ea279abf ``algorithms/grpo.py`` and ``utils.py``, AReaL 4aef98d8d ``utils/stats_logger.py`` and
``printing.py``, SkyRL a9564572e ``train/utils/tracking.py``, RLinf a3816b596 ``utils/metric_utils.py`` and
``runners/reasoning_runner.py``, open-instruct e6c3044aa ``model_utils.py`` and ``grpo_fast.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibration.logs.consoles import NOT_READ, Part, literal_dict
from calibration.logs.records import REAL, STEP, step_number
from calibration.logs.texts import Line, LogText

UNFINISHED = "tables without their beginning or end"

_NEMO_STEP = re.compile(rf"={{5,}} Step {STEP}/\d+ ={{5,}}")
_NEMO_SECTION = re.compile(r"^\W*((?:Validation )?(?:Timing|Results)|Training Results|Performance Metrics):\s*$")
_NEMO_VALUE = re.compile(rf"• ([\w /.-]+): {REAL}(s(?: \([\d.]+%\))?| steps| tokens|%)?\s*$")
_NEMO_NAMES = {
    "Total step time": "timing/train/total_step_time",
    "Total validation time": "timing/validation/total_validation_time",
    "Loss": "train/loss",
    "Avg Reward": "train/reward",
    "Mean Generation Length": "train/mean_gen_tokens_per_sample",
    "Mean Total Tokens per Sample": "train/mean_total_tokens_per_sample",
    "Avg Trajectory Age": "train/avg_trajectory_age",
}
_AREAL_STEP = re.compile(rf"\bTrain step {STEP}/\d+ done")
_AREAL_TABLE = re.compile(r"\bStats \((\d+)/\d+\):")
_SKYRL_STEP = re.compile(rf"\bINFO\b.*\bStep {STEP}:\s*$")
_SKYRL_ENTRY = re.compile(r"\s*[{ ]\s*['\"]")
_RLINF_STEP = re.compile(rf"Global Step:\s*{STEP}/\d+")
_RLINF_BAR = re.compile(rf"Global Step:.*?\| {STEP}/\d+ \[[^\]]*?, ([\w/.]+_time=[^\]]*)\]")
_RLINF_TITLE = re.compile(r"├─+ (.+?) ─+┤")
_RLINF_CELL = re.compile(r"│\s*([^│=]+)=([^│\s…]+)\s*(?=│)")
_RLINF_PREFIXES = {"Time": "time/", "Environment": "env/", "Rollout": "rollout/", "Evaluation": "eval/"}
_PANEL_TITLE = "─ Metrics ─"
_PANEL_ROW = re.compile(r"│(.*)│")


def is_nemo_line(text: str) -> bool:
    """Whether NeMo-RL begins a step with it."""
    return "== Step " in text and _NEMO_STEP.search(text) is not None


def nemo_steps(log: LogText) -> Iterator[Part]:
    """Lists of results and timings after ``=== Step n/m ===``, under the names that the trackers have."""
    blocks: dict[str, tuple[int, dict[str, object]]] = {}
    sections: dict[str, str] = {}
    for line in log:
        step, section = _NEMO_STEP.search(line.text), _NEMO_SECTION.search(line.text)
        if step is not None:
            if line.source in blocks:
                yield blocks.pop(line.source)
            blocks[line.source], sections[line.source] = (int(step[1]), {}), ""
        elif section is not None:
            sections[line.source] = section[1]
        elif "•" in line.text and (value := _nemo_value(line, sections.get(line.source, ""))) is not None:
            name, text = value
            number, values = blocks.get(line.source, (None, {}))
            if number is None or values.get(name, text) != text:
                blocks.pop(line.source, None)
                log.lose(UNFINISHED, line)
            else:
                values[name] = text
    yield from blocks.values()


def _nemo_value(line: Line, section: str) -> tuple[str, str] | None:
    match = _NEMO_VALUE.search(line.text)
    if match is None or (not line.whole and match[3] is None):
        return None
    if match[1] in _NEMO_NAMES:
        return _NEMO_NAMES[match[1]], match[2]
    return (f"timing/train/{match[1]}", match[2]) if section == "Timing" and "%" in (match[3] or "") else None


def _boxes(log: LogText, top: str, bottom: str) -> Iterator[tuple[Line, list[str] | None]]:
    """Lines outside of boxes with None, and each box's first line with the rows between its borders."""
    opened: dict[str, tuple[Line, list[str]]] = {}
    for line in log:
        if top in line.text:
            if line.source in opened:
                log.lose(UNFINISHED, opened[line.source][0])
            opened[line.source] = line, []
        elif line.source not in opened:
            yield line, None
        elif bottom in line.text:
            yield opened.pop(line.source)
        elif "│" in line.text or "├" in line.text:
            opened[line.source][1].append(line.text)
    for first, _ in opened.values():
        log.lose(UNFINISHED, first)


def is_areal_line(text: str) -> bool:
    """Whether AReaL announces a step's tables with it."""
    return "Train step " in text and _AREAL_STEP.search(text) is not None


def areal_steps(log: LogText) -> Iterator[Part]:
    """Grids of names and values after ``Train step n/m done`` and ``Stats (i/k)``."""
    steps: dict[str, tuple[int, set[str]]] = {}
    tables: dict[str, str] = {}
    for line, rows in _boxes(log, "╒", "╘"):
        step, table = _AREAL_STEP.search(line.text), _AREAL_TABLE.search(line.text)
        if rows is None:
            if step is not None:
                steps[line.source] = int(step[1]), set()
            elif table is not None:
                tables[line.source] = table[1]
            continue
        number, had = steps.get(line.source, (None, set()))
        which = tables.pop(line.source, None)
        if number is None or which is None or which in had:
            log.lose(UNFINISHED, line)
            continue
        had.add(which)
        cells = [[cell.strip() for cell in row.split("│")[1:-1]] for row in rows if "│" in row]
        yield number, {name: value for row in cells for name, value in zip(row[::2], row[1::2], strict=False) if name}


def is_skyrl_line(text: str) -> bool:
    """Whether SkyRL begins a step's dict after it."""
    return "Step " in text and _SKYRL_STEP.search(text) is not None


def skyrl_steps(log: LogText) -> Iterator[Part]:
    """``Step n:`` and a dict of an entry a line, numbers written as texts."""
    opened: dict[str, tuple[int, Line, list[str]]] = {}
    for line in log:
        match = _SKYRL_STEP.search(line.text)
        begins = line.text.lstrip().startswith("{")
        if match is not None:
            if line.source in opened:
                log.lose(UNFINISHED, opened[line.source][1])
            opened[line.source] = int(match[1]), line, []
        elif line.source in opened and _SKYRL_ENTRY.match(line.text):
            number, first, entries = opened[line.source]
            if begins == bool(entries):
                log.lose(UNFINISHED, first)
                del opened[line.source]
                continue
            entries.append(line.text)
            if line.text.rstrip().endswith("}"):
                del opened[line.source]
                values = literal_dict("".join(entries).strip())
                if values is None:
                    log.lose(NOT_READ, first)
                else:
                    yield number, values
    for _, first, _ in opened.values():
        log.lose(UNFINISHED, first)


def is_rlinf_line(text: str) -> bool:
    """Whether it is of RLinf's table of a step, or its progress bar with the step's values."""
    return "Global Step:" in text and ("│" in text or _RLINF_BAR.search(text) is not None)


def rlinf_steps(log: LogText) -> Iterator[Part]:
    """Tables of ``name=value`` by section, and the values behind the progress bar of reasoning runs."""
    for line, rows in _boxes(log, "╭", "╰"):
        if rows is None:
            bar = _RLINF_BAR.search(line.text) if "Global Step:" in line.text else None
            if bar is not None:
                yield int(bar[1]), _bar_values(bar[2])
            continue
        step, prefix, values = None, "", dict[str, object]()
        for row in rows:
            title, counted = _RLINF_TITLE.search(row), _RLINF_STEP.search(row)
            if title is not None:
                prefix = _RLINF_PREFIXES.get(title[1], "train/")
            elif counted is not None:
                step = int(counted[1])
            else:
                values |= {prefix + cell[1].strip(): cell[2] for cell in _RLINF_CELL.finditer(row)}
        if step is None:
            log.lose(UNFINISHED, line)
        else:
            yield step, values


def _bar_values(text: str) -> dict[str, object]:
    """``step_time=12.3, response_length=456`` under the names that the trackers have."""
    pairs = (piece.strip().partition("=") for piece in text.split(","))
    return {
        f"time/{name.removesuffix('_time')}" if name.endswith("_time") else f"rollout/{name}": value
        for name, equals, value in pairs
        if equals
    }


def is_panel_line(text: str) -> bool:
    """Whether open-instruct begins a step's panel with it."""
    return _PANEL_TITLE in text


def panel_steps(log: LogText) -> Iterator[Part]:
    """open-instruct's panel: a row of ``name: value | name: value`` a category, wrapped to the console's width."""
    for line, rows in _boxes(log, "╭", "╰"):
        if rows is None or _PANEL_TITLE not in line.text:
            continue
        values = _panel_values([match[1] for row in rows if (match := _PANEL_ROW.search(row))])
        step = step_number(values.pop("training_step", None))
        if step is None:
            log.lose("panels without training_step (evaluations)", line)
        else:
            yield step, values


def _panel_values(rows: list[str]) -> dict[str, object]:
    """Values by category and name; rows that are further in than the first continue the one before."""
    categories: list[tuple[str, list[str]]] = []
    edge = min((len(row) - len(row.lstrip()) for row in rows if row.strip()), default=0)
    for row in rows:
        if row[:edge].strip() == "" and row[edge : edge + 1].strip():
            name, _, rest = row.strip().partition(" ")
            categories.append((name, [rest.strip()]))
        elif categories:
            categories[-1][1].append(row.strip())
    values: dict[str, object] = {}
    for category, texts in categories:
        prefix = "" if category == "other" else f"{category}/"
        pairs = (piece.rpartition(": ") for piece in " ".join(texts).split(" | "))
        values |= {prefix + name.strip(): value for name, colon, value in pairs if colon}
    return values
