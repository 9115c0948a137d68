"""How a batch is cut: mini-batches, an optimizer update each; shards, one a rank; micro-batches that fit in memory.

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
class Scored:
    """A sample as the loss sees it."""

    place: int
    """In its batch."""
    tokens: tuple[int, ...]
    """Prompt and response."""
    targets: tuple[int, ...]
    """Places in ``tokens`` of those that the model made."""
    behaviour: tuple[float, ...]
    """Their log-probabilities under the weights that made them; empty where engines do not tell."""
    advantage: float


def scored(batch: Sequence[Experience]) -> list[Scored]:
    """Samples with their advantages among those of their group in ``batch``; tool outputs are no targets.

    Raises ``ParameterError`` for an empty prompt, before which nothing could predict, and for lists of unequal length.
    """
    gains = advantages([sample.group for sample in batch], [sample.reward for sample in batch])
    return [_scored(place, sample, gain) for place, (sample, gain) in enumerate(zip(batch, gains, strict=True))]


def blocks(items: Sequence[T], count: int) -> list[list[T]]:
    """``count`` contiguous blocks, the first ones one longer when they do not divide."""
    each, more = divmod(len(items), count)
    starts = [block * each + min(block, more) for block in range(count + 1)]
    return [list(items[start:end]) for start, end in pairwise(starts)]


def micro_batches(samples: Sequence[Scored], most_tokens: int) -> list[list[Scored]]:
    """As many samples as fit into ``most_tokens``, longest first; at least one sample, however long."""
    parts: list[list[Scored]] = []
    room = 0
    for sample in sorted(samples, key=lambda sample: -len(sample.tokens)):
        if not parts or len(sample.tokens) > room:
            parts.append([])
            room = most_tokens
        parts[-1].append(sample)
        room -= len(sample.tokens)
    return parts


def shard(samples: Sequence[Scored], rank: int, ranks: int, most_tokens: int) -> list[list[Scored]]:
    """The micro-batches of a rank; every rank has as many, empty ones at the end, because ranks work in step."""
    parts = [micro_batches(part, most_tokens) for part in blocks(samples, ranks)]
    own = parts[rank]
    return own + [[] for _ in range(max(map(len, parts)) - len(own))]


def target_tokens(samples: Sequence[Scored]) -> int:
    """Tokens that the model made."""
    return sum(len(sample.targets) for sample in samples)


def _scored(place: int, sample: Experience, gain: float) -> Scored:
    response, prompt = len(sample.response), len(sample.prompt)
    if not prompt:
        raise ParameterError(f"batch.{place}.prompt", "no token", "at least one")
    for name in ("made_by_model", "log_probs"):
        found = len(getattr(sample, name))
        if found != response and (found or name == "made_by_model"):
            raise ParameterError(f"batch.{place}.{name}", f"{found} entries", f"{response}, as in response")
    made = [at for at, by_model in enumerate(sample.made_by_model) if by_model]
    known = tuple(sample.log_probs[at] for at in made) if sample.log_probs else ()
    tokens = (*sample.prompt, *sample.response)
    return Scored(place, tokens, tuple(prompt + at for at in made), known, gain)


ATTENTION = "rlsim_segments"
"""The name by which a transformers model finds it; the lengths come with the call, as ``rlsim_segments``."""


def register() -> None:
    """Make the name known to transformers; the same at every call."""
    require_live("transformers").AttentionInterface.register(ATTENTION, segmented_attention)


def segmented_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float | None = None, **given: Any
) -> tuple[Any, None]:
    """Causal attention within each segment of a packed row, or within each row; shapes (rows, heads, tokens, width).

    Neighbours of equal length take one call.
    """
    torch = require_live("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = query.shape[1] != key.shape[1]
    runs = [(length, len(list(same))) for length, same in groupby(given.get("rlsim_segments") or (query.shape[2],))]
    widths = [length * count for length, count in runs]
    mixed = []
    for (length, count), *parts in zip(runs, *(tensor.split(widths, 2) for tensor in (query, key, value)), strict=True):
        rows = (_as_rows(part, length, count) for part in parts)
        mixed.append(_as_segments(attend(*rows, is_causal=True, scale=scaling, enable_gqa=grouped), count))
    return torch.cat(mixed, dim=2).transpose(1, 2).contiguous(), None


def _as_rows(part: Any, length: int, count: int) -> Any:
    return part.unflatten(2, (count, length)).transpose(1, 2).flatten(0, 1)


def _as_segments(rows: Any, count: int) -> Any:
    return rows.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3)
