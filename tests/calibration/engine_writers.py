"""Statistics lines of engines, written from the windows of a simulated run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from simulated_logs import COEFFICIENTS, OFFSET, SCALE

from rlsim.executor.run import FinishedRun


def write_vllm_lines(folder: Path, run: FinishedRun, every_seconds: float, capacity: int) -> Path:
    """A line an interval and engine; a request's first token is made by the step of its last chunk."""
    lines = [f"INFO 01-01 10:00:00 [kv_cache_utils.py:1]  GPU KV cache size: {capacity:,} tokens"]
    for engine in range(run.plan.shape.replicas):
        rows = [row for row in run.log.windows if row.replica == engine]
        ends = np.arange(1, int(rows[-1].end / 1e12 / every_seconds)) * every_seconds
        for end in ends.tolist():
            prompt, made, running, held = _interval(rows, end - every_seconds, end)
            lines.append(
                f"INFO 01-01 {clock(end)} [loggers.py:248] Engine {engine:03d}: "
                f"Avg prompt throughput: {prompt / every_seconds:.1f} tokens/s, "
                f"Avg generation throughput: {made / every_seconds:.1f} tokens/s, "
                f"Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: {100 * held / capacity:.1f}%, "
                "Prefix cache hit rate: 0.0%"
            )
    file = folder / "vllm.log"
    file.write_text("\n".join(lines) + "\n")
    return file


DECODE_LOG_INTERVAL = 20


def write_sglang_lines(folder: Path, run: FinishedRun) -> Path:
    """A line every so many decode steps of each data-parallel rank, and one for every batch of prompts before it.

    A window's steps take longer as the tokens in the cache grow.
    """
    lines = [f"[2026-01-01 00:00:00] server_args=ServerArgs(decode_log_interval={DECODE_LOG_INTERVAL})"]
    for rank in range(run.plan.shape.replicas):
        steps = made = seconds = 0.0
        for row in (row for row in run.log.windows if row.replica == rank):
            head = f"[2026-01-01 {clock(row.end / 1e12)} DP{rank} TP0]"
            if row.prefill_tokens:
                idle = 0 if row.decodes == 0 else row.decodes
                lines.append(
                    f"{head} Prefill batch. #new-seq: {row.chunks}, #new-token: {row.steps * row.prefill_tokens}, "
                    f"#cached-token: 0, token usage: 0.10, #running-req: {idle}, #queue-req: 0, "
                )
            held = row.kv_tokens + row.decodes * np.arange(row.steps)
            base, sequence, token = (float(COEFFICIENTS[name]) for name in list(COEFFICIENTS)[1:4])
            weights = SCALE * (base + sequence * row.decodes + token * held) + OFFSET
            each = (row.end - row.start) / 1e12 * weights / weights.sum()
            for number in range(row.steps):
                steps, made, seconds = steps + 1, made + row.decodes, seconds + each[number]
                if steps >= DECODE_LOG_INTERVAL and row.decodes:
                    lines.append(
                        f"{head} Decode batch. #running-req: {row.decodes}, #token: {held[number]}, token usage: 0.10, "
                        f"cuda graph: True, gen throughput (token/s): {made / seconds:.2f}, #queue-req: 0, "
                    )
                    steps = made = seconds = 0.0
    file = folder / "sglang.log"
    file.write_text("\n".join(lines) + "\n")
    return file


def clock(seconds: float) -> str:
    """The time of the day, from midnight on."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}:{rest:02d}"


def _interval(rows: list[Any], start: float, end: float) -> tuple[float, float, int, int]:
    prompt = made = 0.0
    running = held = 0
    for row in rows:
        low, high = row.start / 1e12, row.end / 1e12
        share = max(0.0, min(high, end) - max(low, start)) / (high - low)
        prompt += share * row.steps * row.prefill_tokens
        made += share * row.steps * row.decodes
        if low <= end < high:
            running = row.decodes + row.chunks
            held = row.kv_tokens + round((end - low) / (high - low) * row.steps * row.decodes)
    return prompt, made, running, held
