"""Which cost term makes two makespans differ: rlsim's schedule at the prices of AISimulate's step-time model.

A schedule is kept (which steps ran, with how many decodes, KV tokens and prefill tokens) and only its price is changed;
what then remains between the sum and the other tool's own makespan is a different schedule.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.benchmarks.peers_cases import BUDGET_TOKENS, KV_BLOCKS, PROFILE, SEATS
from evidence.benchmarks.peers_tools import HERE, ToolError
from rlsim.core.log import WindowRow
from rlsim.core.ticks import to_seconds
from rlsim.costs.profile import load_profile
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.steptime import attention_pairs

State = tuple[int, int, int, int]
"""Decodes and the sum of their KV tokens, prefill chunks and the sum of their tokens, of one engine step."""

STATES: tuple[State, ...] = (
    (1, 2048, 0, 0),
    (16, 16 * 1024, 0, 0),
    (64, 64 * 2048, 0, 0),
    (128, 128 * 1024, 0, 0),
    (256, 256 * 512, 0, 0),
    (256, 256 * 1024, 0, 0),
    (0, 0, 1, 512),
    (0, 0, 16, 8192),
    (255, 255 * 768, 1, 256),
)


KINDS = ("prefill only", "prefill and decodes", "decodes only")


@dataclass(frozen=True, slots=True)
class Share:
    """Steps of one kind on the replica that ends last, at three prices, in seconds."""

    kind: str
    steps: int
    rlsim_seconds: float
    whole_seconds: float
    """Peer's price of a step with everything that is in it."""
    phases_seconds: float
    """Peer's price of its prefill alone and its decodes alone, added."""


def law() -> StepTimeModel:
    """rlsim's law of a step in all cases."""
    found = load_profile(PROFILE).law
    assert found is not None
    return found


def write_law(path: Path, block_tokens: int) -> None:
    """The law as tables in seconds, for tools that have none, beside the limits of an engine."""
    made = law().quantise(BUDGET_TOKENS, SEATS)
    lists = {"dense": made.dense_ps, "sequence": made.sequence_ps, "kv": made.kv_ps, "prefill": made.prefill_ps}
    tables = {name: [to_seconds(ticks) for ticks in values] for name, values in lists.items()}
    limits = {"block_tokens": block_tokens, "kv_blocks": KV_BLOCKS, "seats": SEATS, "budget": BUDGET_TOKENS}
    path.write_text(json.dumps({**tables, "pair": to_seconds(made.pair_ps), **limits}))


def own_seconds(state: State) -> float:
    """rlsim's price of a step whose prefill chunks are equally long and begin their prompts."""
    decodes, kv_tokens, chunks, prefill = state
    pairs = chunks * attention_pairs(prefill // chunks, 0) if chunks else 0
    return law().mixed_seconds(decodes, kv_tokens, chunks, prefill, pairs)


def peer_seconds(python: Path, states: Sequence[State]) -> list[float]:
    """AISimulate's price of each state; ToolError when it has none."""
    arguments = [str(python), str(HERE / "peers_aisimulate_steps.py")]
    done = subprocess.run(arguments, input=json.dumps(states), capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise ToolError(done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "no prices")
    prices: list[float] = json.loads(done.stdout.splitlines()[-1])
    return prices


def last_replica(rows: Iterable[Sequence[int]]) -> list[WindowRow]:
    """Windows of the replica that ends last."""
    windows = [WindowRow(*row) for row in rows]
    slowest = max(windows, key=lambda window: window.end).replica
    return [window for window in windows if window.replica == slowest]


def shares(python: Path, windows: Sequence[WindowRow]) -> list[Share]:
    """The schedule of one replica by kind of step, at the three prices."""
    middles = [_middle(window) for window in windows]
    decodes = [(state[0], state[1], 0, 0) for state in middles]
    prefills = [(0, 0, state[2], state[3]) for state in middles]
    prices = peer_seconds(python, [*middles, *decodes, *prefills])
    count = len(windows)
    apart = [alone + chunks for alone, chunks in zip(prices[count : 2 * count], prices[2 * count :], strict=True)]
    priced = list(zip(windows, prices[:count], apart, strict=True))
    return [_share(kind, [row for row in priced if _kind(row[0]) == kind]) for kind in KINDS]


def _share(kind: str, priced: Sequence[tuple[WindowRow, float, float]]) -> Share:
    return Share(
        kind,
        sum(window.steps for window, _, _ in priced),
        sum(to_seconds(window.end - window.start) for window, _, _ in priced),
        sum(window.steps * whole for window, whole, _ in priced),
        sum(window.steps * apart for window, _, apart in priced),
    )


def _kind(window: WindowRow) -> str:
    if not window.chunks:
        return KINDS[2]
    return KINDS[1] if window.decodes else KINDS[0]


def _middle(window: WindowRow) -> State:
    """The state half way through a window: both laws are affine in the KV tokens, or nearly so."""
    grown = window.decodes * (window.steps - 1) // 2
    return window.decodes, window.kv_tokens + grown, window.chunks, window.prefill_tokens
