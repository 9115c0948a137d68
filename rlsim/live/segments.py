"""Samples packed into one row, each attending within itself: nothing is padded, and no mask is as large as a square."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rlsim.live.extras import require_live

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
