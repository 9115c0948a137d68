"""Cutting of a batch: mini-batches, an optimizer update each; shards, one a rank; micro-batches that fit in memory.

Samples packed into one row, each attending within itself: nothing is padded, and no mask is as large as a square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeVar

from rlsim.core.errors import ParameterError
from rlsim.live.extras import require_live
from rlsim.live.protocols import Experience
from rlsim.live.torch.grpo import advantages

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A sample as the loss sees it."""

    index: int
    """Position in its batch."""
    tokens: tuple[int, ...]
    """Prompt and response."""
    targets: tuple[int, ...]
    """Positions in ``tokens`` of those that the model generated."""
    behaviour: tuple[float, ...]
    """Their log-probabilities under the weights that sampled them; empty where engines do not tell."""
    advantage: float


def scored(batch: Sequence[Experience]) -> list[TrainingSample]:
    """Samples with their advantages among those of their group in ``batch``; tool outputs are no targets.

    Raises ``ParameterError`` for an empty prompt, before which nothing could predict, and for lists of unequal length.
    """
    gains = advantages([sample.group for sample in batch], [sample.reward for sample in batch])
    return [_scored(index, sample, gain) for index, (sample, gain) in enumerate(zip(batch, gains, strict=True))]


def blocks(items: Sequence[T], count: int) -> list[list[T]]:
    """``count`` contiguous blocks, the first ones one longer when they do not divide."""
    each, more = divmod(len(items), count)
    starts = [block * each + min(block, more) for block in range(count + 1)]
    return [list(items[start:end]) for start, end in pairwise(starts)]


def micro_batches(samples: Sequence[TrainingSample], most_tokens: int) -> list[list[TrainingSample]]:
    """As many samples as fit into ``most_tokens``, longest first; at least one sample, however long."""
    parts: list[list[TrainingSample]] = []
    room = 0
    for sample in sorted(samples, key=lambda sample: -len(sample.tokens)):
        if not parts or len(sample.tokens) > room:
            parts.append([])
            room = most_tokens
        parts[-1].append(sample)
        room -= len(sample.tokens)
    return parts


def shard(samples: Sequence[TrainingSample], rank: int, ranks: int, most_tokens: int) -> list[list[TrainingSample]]:
    """The micro-batches of a rank; every rank has as many, empty ones at the end, because ranks work in step."""
    parts = [micro_batches(part, most_tokens) for part in blocks(samples, ranks)]
    own = parts[rank]
    return own + [[] for _ in range(max(map(len, parts)) - len(own))]


def target_tokens(samples: Sequence[TrainingSample]) -> int:
    """Count of the tokens that the model generated."""
    return sum(len(sample.targets) for sample in samples)


def _scored(index: int, sample: Experience, gain: float) -> TrainingSample:
    response, prompt = len(sample.response), len(sample.prompt)
    if not prompt:
        raise ParameterError(f"batch.{index}.prompt", "no token", "at least one")
    for name in ("made_by_model", "log_probs"):
        entries = len(getattr(sample, name))
        if entries != response and (entries or name == "made_by_model"):
            raise ParameterError(f"batch.{index}.{name}", f"{entries} entries", f"{response}, as in response")
    generated = [position for position, by_model in enumerate(sample.made_by_model) if by_model]
    behaviour = tuple(sample.log_probs[position] for position in generated) if sample.log_probs else ()
    tokens = (*sample.prompt, *sample.response)
    return TrainingSample(index, tokens, tuple(prompt + position for position in generated), behaviour, gain)


ATTENTION = "rlsim_segments"
"""The name by which a transformers model finds it; the lengths come with the call, as ``rlsim_segments``."""


def register() -> None:
    """Make the name known to transformers; the same at every call."""
    require_live("transformers").AttentionInterface.register(ATTENTION, segmented_attention)


def segmented_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float | None = None, **options: Any
) -> tuple[Any, None]:
    """Causal attention within each segment of a packed row, or within each row; shapes (rows, heads, tokens, width).

    Neighbours of equal length take one call.
    """
    torch = require_live("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = query.shape[1] != key.shape[1]
    runs = [(length, len(list(same))) for length, same in groupby(options.get("rlsim_segments") or (query.shape[2],))]
    widths = [length * count for length, count in runs]
    mixed = []
    for (length, count), *parts in zip(runs, *(tensor.split(widths, 2) for tensor in (query, key, value)), strict=True):
        rows = (part.unflatten(2, (count, length)).transpose(1, 2).flatten(0, 1) for part in parts)
        attended = attend(*rows, is_causal=True, scale=scaling, enable_gqa=grouped)
        mixed.append(attended.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3))
    return torch.cat(mixed, dim=2).transpose(1, 2).contiguous(), None
