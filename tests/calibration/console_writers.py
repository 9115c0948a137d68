"""Consoles of frameworks, written line for line as their loggers print, from rows of numbers by name."""

from __future__ import annotations

import io
import json
import math
import pprint
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import simulated_logs as logs
from rich.console import Console as RichConsole
from rich.panel import Panel
from rich.table import Table

from calibration.logs.formats import READERS, format_of
from calibration.logs.records import TrainingLog

Texts = Mapping[str, str]
"""Values as they are printed, by name."""
Rows = Sequence[tuple[int, Mapping[str, float]]]


@dataclass(frozen=True)
class Console:
    """How a framework prints a step."""

    kind: str
    """The format's name."""
    names: logs.Named
    digits: str
    """Format of a value."""
    print_step: Callable[[int, Texts], list[str]]
    is_block: bool = False
    """Whether a line does not say of which step it is."""

    def texts(self, row: Mapping[str, float]) -> Texts:
        return {name: format(value, self.digits) for name, value in row.items()}

    def blocks(self, rows: Rows) -> list[list[str]]:
        """The lines of each step."""
        return [self.print_step(step, self.texts(row)) for step, row in rows]

    def expected(self, rows: Rows) -> dict[int, dict[str, float]]:
        """The values as printed; of steps that come again the last ones."""
        printed = {step: {name: float(text) for name, text in self.texts(row).items()} for step, row in rows}
        return {
            step: {name: value for name, value in printed[step].items() if math.isfinite(value)}
            for step in sorted(printed)
        }

    def known(self, log: TrainingLog) -> dict[int, dict[str, float]]:
        """What was read of the names that were written."""
        names = {name for name in self.names.values() if name}
        return {step: {name: value for name, value in row.items() if name in names} for step, row in log.rows.items()}

    def rows(self) -> Rows:
        """A noisy run's, of which eight steps come again."""
        return noisy_rows(tuple((ours, name) for ours, name in self.names.items() if name))

    def is_part(self, log: TrainingLog, rows: Rows) -> bool:
        """Whether every row that was read is one that was written, or some of its values."""
        written: dict[int, list[Mapping[str, float]]] = {}
        for step, row in rows:
            printed = {name: float(text) for name, text in self.texts(row).items()}
            written.setdefault(step, []).append(printed)
        every = [row for printed in written.values() for row in printed]
        counted = self.kind == "trainer-dicts"
        return all(
            any(row.items() <= one.items() for one in (every if counted else written.get(step, [])))
            for step, row in self.known(log).items()
        )


def read(file: Path) -> TrainingLog:
    """The log, by the reader of the format that is recognised."""
    return READERS[format_of(file)](file)


ENGINE_LINE = (
    "(vLLMHttpServer pid=77) INFO 01-01 10:00:{:02d} [loggers.py:248] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 99.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
)
BAR = "Generating:  50%|█████     | 32/64 [00:07<00:07]\rGenerating: 100%|██████████| 64/64 [00:14<00:00]"


@cache
def noisy_rows(names: tuple[tuple[str, str], ...]) -> Rows:
    """Twelve steps of a simulated run that drifts, with noise, NaN and infinity, then eight again after a restart."""
    table = logs.steps_of(logs.true_run()).head(12)
    table = table.assign(rate=table.tokens / table.step, drift=range(len(table)))
    rows = logs.named(table, dict(names))
    rng = random.Random(4)
    noisy = [
        (step, {name: value * (1 + 0.01 * step) * rng.uniform(0.9, 1.1) for name, value in row.items()})
        for step, row in [*rows, *rows[3:11]]
    ]
    for index, (step, row) in enumerate(noisy):
        if index in (2, 15):
            name = sorted(row)[index % len(row)]
            noisy[index] = step, {**row, name: (math.nan, math.inf)[index % 2]}
    return noisy


def mixed(blocks: list[list[str]]) -> str:
    """A console with engine lines and progress bars between the lines of the steps."""
    lines = ["loading 3 of 7 shards", *(line for n, block in enumerate(blocks) for line in between(n, block))]
    return "\n".join(lines) + "\n"


def between(number: int, block: list[str]) -> list[str]:
    return [BAR, ENGINE_LINE.format(number), *(one for line in block for one in (line, ENGINE_LINE.format(number)))]


def _verl(step: int, row: Texts) -> list[str]:
    values = [
        f"{name}:np.float64({text})" if n % 3 == 2 else f"{name}:{text}" for n, (name, text) in enumerate(row.items())
    ]
    return [f"\x1b[36m(TaskRunner pid=411, ip=10.0.0.7)\x1b[0m step:{step} - " + " - ".join(values)]


def _dict(row: Texts) -> str:
    return "{" + ", ".join(f"'{name}': {text}" for name, text in row.items()) + "}"


def _slime(step: int, row: Texts) -> list[str]:
    parts = [{name: text for name, text in row.items() if name.startswith(prefix)} for prefix in ("rollout/", "perf/")]
    head = "(RolloutManager pid=12) [2026-01-01 10:00:00] rollout_metrics.py:268 - "
    return [
        *(
            f"{head}{title} {step}: {_dict(part)}"
            for title, part in zip(("rollout", "perf"), parts, strict=True)
            if part
        ),
        f"{head}step {step}: {{'train/loss': 0.25, 'train/step': {step}}}",
        f"{head}eval {step}: {{'eval/aime': 0.5}}",
    ]


def _openrlhf(step: int, row: Texts) -> list[str]:
    return [
        f"(PPOTrainer pid=7) INFO 01-01 10:00:00 ppo_trainer.py:547] ✨ Global step {step}: {_dict(row)}",
        f"(PPOTrainer pid=7) INFO 01-01 10:00:00 ppo_trainer_async.py:214] Eval at step {step}: {{'eval_pass1': 0.5}}",
    ]


def _trainer(step: int, row: Texts) -> list[str]:
    return [
        f"  {step}%|█▏        | {step}/100 [08:12<55:01, 41.2s/it]\r{_dict({**row, 'epoch': f'{step / 64:.4f}'})}",
        f"{{'eval_loss': 0.25, 'epoch': {step / 64:.4f}}}",
    ]


def _nemo(step: int, row: Texts) -> list[str]:
    total = float(row["timing/train/total_step_time"])
    share = {
        name: f"{0.0 if math.isnan(total) else 100 * float(text) / max(total, 1e-9):.1f}" for name, text in row.items()
    }
    timings = {
        name: text for name, text in row.items() if name.startswith("timing/train/") and "total_step" not in name
    }
    return [
        f"{'=' * 25} Step {step}/1000 {'=' * 25}",
        "▶ Preparing batch...",
        "📊 Training Results:",
        "  • Loss: 0.1032",
        f"  • Mean Generation Length: {float(row['train/mean_gen_tokens_per_sample']):.4f}",
        "⏱️  Timing:",
        f"  • Total step time: {row['timing/train/total_step_time']}s",
        *(f"  • {name.removeprefix('timing/train/')}: {text}s ({share[name]}%)" for name, text in timings.items()),
        "🔍 Performance Metrics:",
        "  • Average Token Imbalance: 12.00%",
        *(["  ⏱️  Validation Timing:", "    • Total validation time: 1.50s"] if step == 1 else []),
    ]


def _areal(step: int, row: Texts) -> list[str]:
    items = list(row.items())
    half = (len(items) + 1) // 2
    pairs = [(*items[n], *(items[n + half] if n + half < len(items) else ("", ""))) for n in range(half)]
    width = max(map(len, row))
    grid = [f"│ {a:<{width}} │ {x:>12} │ {b:<{width}} │ {y:>12} │" for a, x, b, y in pairs]
    edges = [f"{left}{'═' * (width + 2)}{right}" for left, right in (("╒", "╕"), ("╘", "╛"))]
    head = "(AReaL) 20260101-10:00:00.123 StatsLogger INFO: "
    table = [f"{head}", edges[0], *(line for row in grid for line in (row, "├────┤"))]
    return [f"{head}Epoch 1/5 Step {step}/99 Train step {step}/495 done.", f"{head}Stats (1/2):", *table[:-1], edges[1]]


def _skyrl(step: int, row: Texts) -> list[str]:
    text = pprint.pformat(dict(row))
    lines = [
        f"2026-01-01 10:00:00.123 | INFO     | skyrl.train.utils.tracking:log:197 - Step {step}: ",
        *text.split("\n"),
    ]
    return [f"(skyrl_entrypoint pid=9) {line}" for line in lines]


def _roll(step: int, row: Texts) -> list[str]:
    head = "[2026-01-01 10:00:00] [rlvr_pipeline.py (838)] [INFO] [DRIVER 0 / 1][PID 5] "
    numbers = ", ".join(
        f'"{name}@mean": {text.replace("nan", "NaN").replace("inf", "Infinity")}' for name, text in row.items()
    )
    return [
        f"{head}pipeline step {step} start...",
        f'{head}[{{"prompt": "1 + 1", "response": "2"}}]',
        f"{head}{{{numbers}}}",
        f"{head}pipeline step {step} finished",
    ]


def _roll_tag(step: int, row: Texts) -> list[str]:
    numbers = {name: float(text) for name, text in row.items()}
    return [f"[PID 5] metrics_tag: {json.dumps({'step': step, 'metrics': numbers})}"]


def _rlinf(step: int, row: Texts) -> list[str]:
    lines = [
        "╭" + "─" * 118 + "╮",
        "├─── Metric Table ───┤",
        f"│ Global Step: {step:4d}/500 │ Progress: █░ │  12.0%     │",
    ]
    lines.append("│ Elapsed: 01:02 │ ETA: 03:04 │ Step Time: 99.000s      │")
    for title, prefix in (("Time", "time/"), ("Rollout", "rollout/")):
        cells = [f"{name.removeprefix(prefix)}={text}" for name, text in row.items() if name.startswith(prefix)]
        lines += [f"├──── {title} ────┤", "│" + " " * 118 + "│"]
        groups = [[*cells[n : n + 3], "", ""][:3] for n in range(0, len(cells), 3)]
        lines += ["".join(f"│{cell:<38}" for cell in group) + "│" for group in groups]
    return [*lines, "╰" + "─" * 118 + "╯"]


def _rlinf_bar(step: int, row: Texts) -> list[str]:
    values = [
        f"{name.removeprefix('time/')}_time={text}"
        if name.startswith("time/")
        else f"{name.removeprefix('rollout/')}={text}"
        for name, text in row.items()
    ]
    bar = f"Global Step:  1%|▏     | {step}/500 [10:00<99:00, 41.2s/it, {', '.join(values)}]"
    return [f"Global Step:  1%|▏     | {step}/500 [09:00<99:00, 41.2s/it]\r{bar}\r{bar}"]


def _open_instruct(step: int, row: Texts) -> list[str]:
    table = Table(show_header=False, box=None)
    categories = sorted({name.split("/")[0] for name in row})
    for category in categories:
        own = [f"{name.partition('/')[2]}: {text}" for name, text in row.items() if name.startswith(f"{category}/")]
        table.add_row(category, " | ".join(own))
    table.add_row("other", f"episode: {64 * step} | global_step: {64 * step} | training_step: {step}")
    console = RichConsole(file=io.StringIO(), width=60, color_system=None)
    console.print(Panel(table, title="Metrics", expand=False))
    return console.file.getvalue().rstrip("\n").split("\n")  # type: ignore[attr-defined]


def _prime(step: int, row: Texts) -> list[str]:
    own = {name.partition("/")[2]: text for name, text in row.items() if name.startswith("orchestrator/")}
    return [
        f"\x1b[2m10:00:00\x1b[0m\x1b[32m SUCCESS\x1b[0m Step {step} | Time: {own['Time']}s | Reward: 0.5000 | "
        f"Throughput: {own['Throughput']} tokens/s | Seq. Length: {own['Seq. Length']} tokens/sample | Async Level: 1"
    ]


OPENRLHF: logs.Named = {
    "step": "timing/step_total",
    "generation": "timing/generation",
    "passes": "timing/make_experience",
    "update_actor": "timing/ppo_train",
    "sync": "timing/broadcast",
    "mean": "rollout/response_length_mean",
}
ROLL: logs.Named = {
    "step": "time/step_total",
    "generation": "time/step_generate",
    "old_log_prob": "time/old_log_probs",
    "reference": "time/ref_log_probs_values",
    "update_actor": "time/step_train",
    "sync": "time/step_model_update",
    "mean": "token/response_length/mean",
    "max": "token/response_length/max",
    "prompt": "token/prompt_length/mean",
}
RLINF: logs.Named = {
    "step": "time/step",
    "generation": "time/rollout",
    "passes": "time/actor/inference",
    "update_actor": "time/actor/training",
    "sync": "time/sync_weights",
    "mean": "rollout/response_length",
    "max": "rollout/max_of_response_length",
    "prompt": "rollout/prompt_length",
}
OPEN_INSTRUCT: logs.Named = {
    "step": "time/total",
    "wait": "time/trainer_waiting_for_data",
    "update_actor": "time/training",
    "sync": "time/weight_sync",
    "mean": "val/sequence_lengths",
    "max": "val/sequence_lengths_max",
    "tokens": "val/num_step_tokens",
}
PRIME: logs.Named = {
    "step": "orchestrator/Time",
    "total": "orchestrator/Seq. Length",
    "rate": "orchestrator/Throughput",
}
NEMO_CONSOLE: logs.Named = {
    ours: name for ours, name in logs.NEMO_RL.items() if name.startswith("timing/") or ours == "mean"
}

CONSOLES = {
    "verl": Console("verl", logs.VERL, ".3f", _verl),
    "slime": Console("console-dicts", logs.SLIME, ".17g", _slime),
    "OpenRLHF": Console("console-dicts", OPENRLHF, ".17g", _openrlhf),
    "TRL": Console("trainer-dicts", logs.TRL, ".17g", _trainer),
    "prime-rl": Console("prime-rl", PRIME, ".2f", _prime),
    "ROLL": Console("roll", ROLL, ".17g", _roll),
    "ROLL, stdout tracker": Console("roll", ROLL, ".17g", _roll_tag),
    "NeMo-RL": Console("nemo-rl", NEMO_CONSOLE, ".2f", _nemo, is_block=True),
    "AReaL": Console("areal", logs.AREAL, ".4e", _areal, is_block=True),
    "SkyRL": Console("skyrl", logs.SKYRL, ".4f", _skyrl, is_block=True),
    "RLinf": Console("rlinf", RLINF, ".3f", _rlinf, is_block=True),
    "RLinf, progress bar": Console("rlinf", RLINF, ".3g", _rlinf_bar),
    "open-instruct": Console("open-instruct", OPEN_INSTRUCT, ".2f", _open_instruct, is_block=True),
}
