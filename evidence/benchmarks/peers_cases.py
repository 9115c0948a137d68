"""The requests that every simulator is given: drawn by rlsim, written to one trace file, at time 0, all of them.

A prompt of a group has the same hash blocks for all samples, so that a simulator with a prefix cache can share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlsim.core.view import RunSizes, View
from rlsim.policies.protocols import Unit
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.schema import Scenario

MODEL, DEVICE, PROFILE = "Qwen3-8B", "H100-SXM", "qwen3-8b_h100-sxm_tp1"
BLOCK_TOKENS, KV_BLOCKS, SEATS, BUDGET_TOKENS = 16, 24_000, 256, 8192
"""Of each replica, the same for all tools: 384,000 tokens, what the memory of the GPU holds beside the weights."""


@dataclass(frozen=True, slots=True)
class Case:
    """Prompts, samples of each, replicas, and the laws of the lengths (lognormal, in tokens)."""

    name: str
    title: str
    prompts: int
    group: int
    replicas: int
    prompt_median: int
    response_median: int
    response_cap: int
    bar: float | None = None
    """Times the fastest compiled peer's tokens a CPU-second that rlsim aims at; None: shown without one."""

    @property
    def requests(self) -> int:
        """All samples of all prompts."""
        return self.prompts * self.group


CASES = (
    Case("requests", "5,000 requests, 1 H100", 5000, 1, 1, 200, 430, 8192, bar=10),
    Case("rollouts", "10,000 rollouts in groups of 8, 64 H100", 1250, 8, 64, 400, 1667, 16384, bar=30),
    Case("rollouts-8", "the same rollouts, 8 H100", 1250, 8, 8, 400, 1667, 16384),
)


@dataclass(frozen=True, slots=True)
class Once:
    """Admit one batch, all of it at once, and nothing after it: what a simulator of serving can be given."""

    unit: ClassVar[Unit] = "group"

    def start(self, shape: RunSizes) -> Once:
        """Nothing to check."""
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """What is left of the batch."""
        return view.shape.prompts_per_step - view.started_groups, "once"


def scenario(case: Case) -> ResolvedScenario:
    """The case as a synchronous step on GPUs of its own, its step times from the shipped profile."""
    tree: dict[str, Any] = {
        "name": case.title,
        "model": MODEL,
        "cluster": {"device": DEVICE, "gpus": 2 * case.replicas},
        "rollout": {
            "gpus": case.replicas,
            "block_size": BLOCK_TOKENS,
            "kv_blocks": KV_BLOCKS,
            "max_num_seqs": SEATS,
            "max_num_batched_tokens": BUDGET_TOKENS,
            "step_time": {"source": "profile", "profile": PROFILE},
        },
        "trainer": {"gpus": case.replicas, "mfu": 0.4},
        "workload": {
            "prompts_per_step": case.prompts,
            "group_size": case.group,
            "dataset_prompts": case.prompts,
            "prompt_tokens": _lognormal(case.prompt_median, 0.6, 1024),
            "response_tokens": _lognormal(case.response_median, 0.9, case.response_cap),
        },
        "policy": {
            "preset": "sync-disaggregated",
            "parts": {"admission": {"use": f"{__name__}:Once"}},
        },
        "run": {"steps": 1, "warmup_steps": 0},
    }
    return resolve(Scenario.model_validate(tree))


def _lognormal(median: int, sigma: float, cap: int) -> dict[str, object]:
    return {"law": "lognormal", "median_tokens": median, "sigma": sigma, "cap_tokens": cap}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its prompt's number, and tokens in and out."""

    prompt: int
    input_tokens: int
    output_tokens: int


def requests(made: ResolvedScenario) -> Iterator[Asked]:
    """What rlsim will ask for in the first step, in the order in which it is submitted."""
    workload = made.workload_of(0)
    for draw in range(made.scenario.workload.prompts_per_step):
        tokens = workload.loaded_tokens(draw)
        prompt, attempt = workload.prompt_at(draw)
        for member in range(workload.group_size):
            yield Asked(draw, tokens, workload.response_tokens(prompt, attempt, member))


def write_trace(path: Path, asked: Iterable[Asked]) -> None:
    """JSON lines in the Mooncake format (ai-dynamo/aisimulate, docs/cli-design.md), a hash for each KV block."""
    first_hash: dict[int, int] = {}
    used = 0
    with path.open("w", encoding="utf-8") as file:
        for row in asked:
            blocks = -(-row.input_tokens // BLOCK_TOKENS)
            if row.prompt not in first_hash:
                first_hash[row.prompt], used = used, used + blocks
            hashes = list(range(first_hash[row.prompt], first_hash[row.prompt] + blocks))
            lengths = {"input_length": row.input_tokens, "output_length": row.output_tokens}
            file.write(json.dumps({"timestamp": 0, **lengths, "hash_ids": hashes}) + "\n")


def read_lengths(path: Path) -> list[tuple[int, int]]:
    """(Input, output) tokens of the requests of a trace file, in its order."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row["input_length"], row["output_length"]) for row in rows]
