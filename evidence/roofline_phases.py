"""Prefill and decode on two kinds of GPU by our rooflines, beside what RollArt measured for whole tasks.

``python -m evidence.roofline_phases`` prints the table of the accuracy page.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.costs.catalogue import device, model
from rlsim.costs.roofline import roofline
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.steptime import attention_pairs

SOURCE = "RollArt, arXiv 2512.22560: 6 H20 against 2 H800, which cost the same"
PREFILL_PUBLISHED = (0.53, 0.53)
"""Time of FrozenLake (many short turns: prefill) on the H800, over that on the H20."""
DECODE_PUBLISHED = (0.49, 0.79)
"""Time of GEM-Math (long answers: decode) on the H20, over that on the H800."""
H20_GPUS, H800_GPUS = 6, 2
CHUNK_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Row:
    """One ratio of times, and the one that was published."""

    phase: str
    conditions: str
    ratio: float
    published: tuple[float, float]

    @property
    def error(self) -> float:
        """Relative, to the nearest end of the published range; 0 inside it."""
        low, high = self.published
        return self.ratio / min(max(self.ratio, low), high) - 1


def rows(name: str = "Qwen3-8B") -> list[Row]:
    """The same work on either set of GPUs, one engine a GPU, evenly spread."""
    h20, h800 = (roofline(model(name), device(gpu)) for gpu in ("H20", "H800"))
    found = []
    for prompt in (1024, 4096, 16384):
        ratio = _prefill(h800, prompt) / H800_GPUS / (_prefill(h20, prompt) / H20_GPUS)
        found.append(Row("prefill, H800 / H20", f"prompts of {prompt} tokens", ratio, PREFILL_PUBLISHED))
    for calls, context in ((24, 4096), (96, 4096), (96, 16384), (384, 16384)):
        ratio = _decode(h20, calls // H20_GPUS, context) / _decode(h800, calls // H800_GPUS, context)
        found.append(Row("decode, H20 / H800", f"{calls} calls of {context} tokens", ratio, DECODE_PUBLISHED))
    return found


def _prefill(law: StepTimeModel, prompt_tokens: int) -> float:
    """Seconds of a step full of prompts, or of the mean chunk of a longer one."""
    if prompt_tokens <= CHUNK_TOKENS:
        chunks = CHUNK_TOKENS // prompt_tokens
        return law.mixed_seconds(0, 0, chunks, CHUNK_TOKENS, chunks * attention_pairs(prompt_tokens, 0))
    parts = prompt_tokens // CHUNK_TOKENS
    return law.mixed_seconds(0, 0, 1, CHUNK_TOKENS, attention_pairs(prompt_tokens, 0) / parts)


def _decode(law: StepTimeModel, calls: int, context_tokens: int) -> float:
    """Seconds of a step."""
    return law.decode_seconds(calls, calls * context_tokens)


def page() -> str:
    """The table as Markdown."""
    lines = ["| phase | conditions | roofline | measured, whole task | error |", "|---|---|---|---|---|"]
    for row in rows():
        low, high = row.published
        measured = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        lines.append(f"| {row.phase} | {row.conditions} | {row.ratio:.2f} | {measured} | {row.error:+.0%} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
