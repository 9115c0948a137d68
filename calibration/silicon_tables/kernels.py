"""Step laws from layer-time tables: what each layer of a model takes on one GPU, measured alone.

A folder holds three files, times in microseconds of one GPU's shard: ``dense.csv`` (layer, tokens),
``per_sequence.csv`` (layer, sequences) and ``attention.csv`` (prefill_chunk, kv_prefill, n_decode, kv_decode): one
layer's attention over a chunk after ``kv_prefill`` cached tokens beside ``n_decode`` decodes at a context of
``kv_decode`` tokens each. Of a mixture of experts there is ``moe.csv`` as well (tokens, activated_experts): one
layer's routed experts on one rank, by the tokens that come to it and the experts of it that they touch (LLMServingSim,
docs/docs/profiler/output-bundle.md at 5daddb2).

A step is the sum of its layers. Not in such tables, and so not in the law: host overhead and collectives.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibration.fitting.step_model import StepSample
from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.architecture import Experts
from rlsim.costs.evidence import Provenance
from rlsim.costs.step_model import StepTimeModel, interpolate
from rlsim.engine.steptime import attention_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

DENSE_LAYERS = {
    "embedding": (1, 0),
    "final_layernorm": (1, 0),
    "layernorm": (0, 2),
    "qkv_proj": (0, 1),
    "qk_norm": (0, 1),
    "rotary_emb": (0, 1),
    "o_proj": (0, 1),
    "gate_up_proj": (0, 1),
    "act_fn": (0, 1),
    "down_proj": (0, 1),
}
"""How often a layer runs in a forward pass and, further, in each decoder layer (a norm before each of its halves)."""

SEQUENCE_LAYERS = {"lm_head": (1, 0), "sampler": (1, 0)}
"""How often a layer runs of those that only see the last token of each sequence."""

FITTED_CONTEXTS = (256, 4096)
"""Contexts the attention terms are fitted to; in shorter ones a kernel takes what its launch takes."""

ATTENTION_COLUMNS = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
LIMIT_BYTES = 50_000_000


class KernelCurve(NamedTuple):
    """Seconds at increasing counts, piecewise linear between them."""

    counts: tuple[int, ...]
    seconds: tuple[float, ...]


class AttentionTime(NamedTuple):
    """One row of the attention table: one layer's seconds."""

    chunk: int
    cached: int
    decodes: int
    context: int
    seconds: float


class ExpertTime(NamedTuple):
    """One row of the table of experts: one layer's routed experts on one rank."""

    tokens: int
    """Tokens of which the rank has at least one expert."""
    activated: int
    """Experts of the rank that these tokens touch."""
    seconds: float


@dataclass(frozen=True, slots=True)
class ExpertLayers:
    """Layers of routed experts, and how they are split over the ranks."""

    layers: int
    experts: Experts
    ranks: int = 1
    """GPUs that split the experts."""
    data_ranks: int = 1
    """Data-parallel ranks, whose tokens all meet in these layers, padded to those of the largest."""

    def seconds(self, table: Sequence[ExpertTime], tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of all these layers with so many tokens on each data-parallel rank, evenly routed.

        Linear between the rows of the table; raises ``ParameterError`` for none.
        """
        if not table:
            raise ParameterError("moe.csv", "no file", "tokens, activated_experts, time_us: this model has experts")
        counts = sorted({row.tokens for row in table})
        met = tokens * self.data_ranks
        here = met * (1 - (1 - 1 / self.ranks) ** self.experts.active)
        touched = np.array([self.experts.touched(each) for each in met.tolist()]) * self.experts.experts / self.ranks
        curves = [_at_experts(table, count, touched) for count in counts]
        one_layer = [
            float(interpolate(np.array([each]), counts, [float(curve[index]) for curve in curves])[0])
            for index, each in enumerate(here.tolist())
        ]
        return self.layers * np.array(one_layer)


def _at_experts(table: Sequence[ExpertTime], tokens: int, activated: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of so many tokens by the experts that they touch."""
    rows = sorted((row.activated, row.seconds) for row in table if row.tokens == tokens)
    seconds: NDArray[np.float64] = np.interp(activated, [row[0] for row in rows], [row[1] for row in rows])
    return seconds


@dataclass(frozen=True, slots=True)
class StepShape:
    """What of a model and its engine a step is priced by."""

    decoder_layers: int
    capture_sizes: tuple[int, ...] = ()
    experts: ExpertLayers | None = None


@dataclass(frozen=True, slots=True)
class KernelTables:
    """Layer times of one model shard on one GPU."""

    dense: Mapping[str, KernelCurve]
    """Curves by tokens in the step."""
    per_sequence: Mapping[str, KernelCurve]
    """Curves by sequences in the step."""
    attention: tuple[AttentionTime, ...]
    source: str
    experts: tuple[ExpertTime, ...] = ()

    def dense_curve(self, shape: StepShape) -> KernelCurve:
        """Matrix work of a whole step; one of at most ``capture_sizes[-1]`` tokens runs padded to the next of them.

        Where a larger batch was measured to be faster, the slower one's time stands for both: a law never decreases.
        """
        counts, seconds = _sum_of_layers(self.dense, DENSE_LAYERS, shape.decoder_layers)
        if shape.experts is not None:
            seconds = tuple((np.array(seconds) + shape.experts.seconds(self.experts, np.array(counts))).tolist())
        captured = list(shape.capture_sizes)
        knots = sorted({*counts, *range(1, captured[-1] + 2 if captured else 2)})
        padded = [captured[np.searchsorted(captured, n)] if captured and n <= captured[-1] else n for n in knots]
        rising = np.maximum.accumulate(interpolate(np.array(padded), counts, seconds))
        return KernelCurve(tuple(knots), tuple(rising.tolist()))

    def sequence_curve(self) -> KernelCurve:
        """Head and sampling of a step."""
        return _sum_of_layers(self.per_sequence, SEQUENCE_LAYERS, 0)

    def decode_attention(self) -> dict[int, tuple[float, float]]:
        """One layer's constant and seconds a KV token, by decodes: a line through the fitted contexts."""
        low, high = FITTED_CONTEXTS
        rows: dict[int, list[AttentionTime]] = {}
        for row in sorted(self.attention):
            if row.chunk == 0 and low <= row.context <= high:
                rows.setdefault(row.decodes, []).append(row)
        if 1 not in rows or min(map(len, rows.values())) < 2 or all(row.decodes for row in self.attention):
            allowed = f"prefill rows, and decodes from 1 up at two or more contexts from {low} to {high}"
            raise ParameterError("attention.csv", sorted(rows), allowed)
        return {decodes: _line(at_decodes) for decodes, at_decodes in rows.items()}

    def pair_seconds(self) -> float:
        """One layer's seconds a (query, key) pair, over what a lone decode's kernel takes at least."""
        launch = self.decode_attention()[1][0]
        rows = [row for row in self.attention if row.decodes == 0 and row.cached <= FITTED_CONTEXTS[1]]
        pairs = np.array([attention_pairs(row.chunk, row.cached) for row in rows], dtype=float)
        seconds = np.array([row.seconds for row in rows])
        return max(0.0, float(pairs @ (seconds - launch) / (pairs @ pairs)))

    def mixed_attention(self) -> dict[int, float]:
        """One layer's seconds a KV token beside a chunk, by decodes, over the constant of as many decodes alone.

        Least squared relative error over all chunks and contexts fitted. Empty for tables without mixed rows; batches
        that were only measured alone take the nearest mixed one's surcharge factor.
        """
        low, high = FITTED_CONTEXTS
        pair, alone = self.pair_seconds(), self.decode_attention()
        rows: dict[int, list[AttentionTime]] = {}
        for row in self.attention:
            if row.chunk and row.decodes in alone and row.cached <= high and low <= row.context <= high:
                rows.setdefault(row.decodes, []).append(row)
        factors = dict[int, float]()
        for n in sorted(rows):
            constant, slope = alone[n]
            if slope:
                seconds = np.array([row.seconds for row in rows[n]])
                share = np.array([row.decodes * row.context for row in rows[n]], dtype=float) / seconds
                pairs = np.array([attention_pairs(row.chunk, row.cached) for row in rows[n]], dtype=float)
                over = 1.0 - (constant + pair * pairs) / seconds
                factors[n] = max(0.0, float(share @ over / (share @ share))) / slope
        if not factors:
            return {}
        spread = np.interp(list(alone), list(factors), list(factors.values()))
        return {n: float(factor * alone[n][1]) for n, factor in zip(alone, spread, strict=True)}

    def step_law(self, shape: StepShape) -> StepTimeModel:
        """The law of a step of a model of that shape, without host overhead and collectives.

        The constant of the attention kernel is booked with the sequences, its slope with the KV tokens. Raises
        ``ParameterError`` when the table has no decodes of one sequence, or no prefill.
        """
        dense, head, decoder_layers = self.dense_curve(shape), self.sequence_curve(), shape.decoder_layers
        attention = self.decode_attention()
        batches = tuple(attention)
        constants = [decoder_layers * constant for constant, _ in attention.values()]
        sequences = sorted({*head.counts, *batches})
        launched = interpolate(np.array(sequences), batches, constants)
        return StepTimeModel(
            tokens=dense.counts,
            dense_seconds=dense.seconds,
            sequences=tuple(sequences),
            sequence_seconds=tuple((interpolate(np.array(sequences), *head) + launched).tolist()),
            decodes=batches,
            kv_seconds_per_token=tuple(decoder_layers * slope for _, slope in attention.values()),
            pair_seconds=decoder_layers * self.pair_seconds(),
            provenance=Provenance("silicon-table", self.source),
            mixed_kv_seconds_per_token=tuple(decoder_layers * slope for slope in self.mixed_attention().values()),
        )

    def step_samples(self, shape: StepShape) -> list[StepSample]:
        """A whole step for every attention row within the tables and the fitted contexts.

        What :func:`calibration.fitting.step_model.hold_out_by_kind` compares with the law.
        """
        dense, head, decoder_layers = self.dense_curve(shape), self.sequence_curve(), shape.decoder_layers
        low, high = FITTED_CONTEXTS
        samples = []
        for row in self.attention:
            tokens = row.chunk + row.decodes
            if tokens <= dense.counts[-1] and row.cached <= high and (low <= row.context <= high or not row.decodes):
                sequences = row.decodes + (row.chunk > 0)
                seconds = _at(dense, tokens) + _at(head, sequences) + decoder_layers * row.seconds
                samples.append(
                    StepSample(
                        seconds,
                        decodes=row.decodes,
                        kv_tokens=row.decodes * row.context,
                        chunks=int(row.chunk > 0),
                        prefill_tokens=row.chunk,
                        pairs=attention_pairs(row.chunk, row.cached),
                    )
                )
        return samples


def default_capture_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Batch sizes vLLM 0.19 captures CUDA graphs of: steps of 8 up to 256, of 16 to twice the seats, 512 at most."""
    largest = min(2 * max_num_seqs, 512)
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
    return tuple(size for size in sizes if size <= largest)


def read_kernel_tables(directory: Path) -> KernelTables:
    """The three tables in a folder.

    Raises ``ParameterError`` for a missing or too large file, a missing column, a layer whose place in the
    forward pass is not known, and a value that is not a count or a time.
    """
    file, attention = directory / "attention.csv", []
    for line, row in _rows(file, (*ATTENTION_COLUMNS, "time_us")):
        chunk, cached, decodes, context = (_count(file, line, row, column) for column in ATTENTION_COLUMNS)
        attention.append(AttentionTime(chunk, cached, decodes, context, _seconds(file, line, row)))
    return KernelTables(
        dense=_curves(directory / "dense.csv", "tokens", DENSE_LAYERS),
        per_sequence=_curves(directory / "per_sequence.csv", "sequences", SEQUENCE_LAYERS),
        attention=tuple(attention),
        source=f"layer-time tables {directory.name}",
        experts=_experts(directory / "moe.csv"),
    )


def _experts(file: Path) -> tuple[ExpertTime, ...]:
    """Rows of the table of experts; none without the file."""
    if not file.exists():
        return ()
    columns = ("tokens", "activated_experts")
    return tuple(
        ExpertTime(_count(file, line, row, columns[0]), _count(file, line, row, columns[1]), _seconds(file, line, row))
        for line, row in _rows(file, (*columns, "time_us"))
    )


def _curves(file: Path, by: str, known: Iterable[str]) -> dict[str, KernelCurve]:
    points: dict[str, dict[int, float]] = {}
    for line, row in _rows(file, ("layer", by, "time_us")):
        if row["layer"] not in known:
            raise unknown(f"{file.name}:{line}: layer", row["layer"], known)
        points.setdefault(row["layer"], {})[_count(file, line, row, by)] = _seconds(file, line, row)
    if not points:
        raise ParameterError(file.name, "no rows", "one row a layer and count")
    curves = {}
    for layer, times in points.items():
        counts = sorted(times)
        curves[layer] = KernelCurve(tuple(counts), tuple(times[count] for count in counts))
    return curves


def _rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        if file.stat().st_size > LIMIT_BYTES:
            raise ParameterError(file.name, f"{file.stat().st_size} bytes", f"at most {LIMIT_BYTES} bytes")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(file.name, str(file), f"a readable file ({error})") from error
    reader = csv.DictReader(text.splitlines())
    if not set(columns) <= set(reader.fieldnames or ()):
        raise ParameterError(file.name, reader.fieldnames, f"the columns {', '.join(columns)}")
    yield from enumerate(reader, start=2)


def _count(file: Path, line: int, row: Mapping[str, str | None], column: str) -> int:
    text = row[column] or ""
    if not text.isascii() or not text.isdigit():
        raise ParameterError(f"{file.name}:{line}: {column}", text, "a whole number >= 0")
    return int(text)


def _seconds(file: Path, line: int, row: Mapping[str, str | None]) -> float:
    text = row["time_us"] or ""
    try:
        microseconds = float(text)
    except ValueError:
        microseconds = math.nan
    if not math.isfinite(microseconds) or microseconds < 0:
        raise ParameterError(f"{file.name}:{line}: time_us", text, "a finite number >= 0")
    return microseconds * 1e-6


def _sum_of_layers(
    curves: Mapping[str, KernelCurve], runs: Mapping[str, tuple[int, int]], decoder_layers: int
) -> KernelCurve:
    counts = sorted({count for curve in curves.values() for count in curve.counts} - {0})
    total = np.zeros(len(counts))
    for layer, curve in curves.items():
        once, repeated = runs[layer]
        total += (once + decoder_layers * repeated) * interpolate(np.array(counts), *curve)
    return KernelCurve(tuple(counts), tuple(total.tolist()))


def _line(rows: Sequence[AttentionTime]) -> tuple[float, float]:
    """Constant and slope of seconds over KV tokens, least squared error, neither below zero."""
    tokens: NDArray[np.float64] = np.array([row.decodes * row.context for row in rows], dtype=float)
    seconds = np.array([row.seconds for row in rows])
    slope = max(0.0, float(np.polyfit(tokens, seconds, 1)[0]))
    return max(0.0, float((seconds - slope * tokens).mean())), slope


def _at(curve: KernelCurve, count: int) -> float:
    return float(interpolate(np.array([count]), *curve)[0])
