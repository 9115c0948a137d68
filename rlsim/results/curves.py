"""What a run held over time, as step functions derived from its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from pandas import DataFrame

Tables = Mapping[str, "DataFrame"]
"""Tidy tables of one run, by name."""

TRAINER = -1
ENGINE = ("decode", "prefill")
"""What a replica does in engine steps; ``prefill`` books steps that hold prompt tokens, decodes included."""


class Curve(NamedTuple):
    """A step function: ``values[i]`` holds from ``seconds[i]`` on; it is 0 before the first."""

    seconds: NDArray[np.float64]
    values: NDArray[np.int64]


def curve(starts: ArrayLike, ends: ArrayLike, weights: ArrayLike | None = None) -> Curve:
    """How much is under way: each interval adds its weight (default 1) from its start up to its end."""
    start, end = np.asarray(starts, float), np.asarray(ends, float)
    weight = np.ones(len(start), np.int64) if weights is None else np.asarray(weights, np.int64)
    seconds, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.zeros(len(seconds), np.int64)
    np.add.at(change, place, np.concatenate([weight, -weight]))
    values = np.cumsum(change)[change != 0]
    return Curve(seconds[change != 0], values)


def end_seconds(tables: Tables) -> float:
    """The last instant of which the activity table tells; 0 for an empty table."""
    activity = tables["activity"]
    return float(activity["end_seconds"].max()) if len(activity) else 0.0


def samples_in_flight(tables: Tables) -> Curve:
    """Samples that have begun and not ended: queued, generating, parked or in a tool.

    When an unfinished sample was dropped is not in the tables: it counts until the next start of training.
    """
    begun = tables["samples"].dropna(subset=["submitted_seconds"])
    start, end = begun["submitted_seconds"].to_numpy(float), begun["finished_seconds"].to_numpy(float, copy=True)
    lost = np.isnan(end) & begun["outcome"].str.startswith("dropped").to_numpy(bool)
    trainings = np.append(np.unique(begun["trained_seconds"].dropna()), end_seconds(tables))
    end[lost] = trainings[np.minimum(np.searchsorted(trainings, start[lost], "right"), len(trainings) - 1)]
    return curve(start, np.where(np.isnan(end), end_seconds(tables), end))


def samples_decoding(tables: Tables) -> Curve:
    """Samples that produce a token in every engine step, summed over replicas."""
    activity = tables["activity"]
    engine = activity[activity["what"].isin(ENGINE)]
    return curve(engine["start_seconds"], engine["end_seconds"], engine["decodes"])


def groups_waiting(tables: Tables) -> Curve:
    """Complete groups between the end of their last member and the start of their training.

    Only groups that were trained, or that still wait at the end of the run: when a dropped group left the
    buffer is not in the tables.
    """
    samples = tables["samples"]
    settled = samples["outcome"].isin(["trained", "buffered"]) & samples["finish_reason"].isin(
        ["stop", "length", "cut"]
    )
    groups = samples.assign(settled=settled, ready=samples["finished_seconds"]).groupby("group", sort=True)
    ends = groups.agg(settled=("settled", "all"), ready=("ready", "max"), taken=("trained_seconds", "max"))
    ends = ends[ends["settled"]]
    return curve(ends["ready"], ends["taken"].fillna(end_seconds(tables)).clip(lower=ends["ready"]))


def publications(tables: Tables) -> NDArray[np.float64]:
    """Seconds at which weights versions 1, 2, ... had been published to all replicas."""
    activity = tables["activity"]
    syncs = activity[(activity["who"] == TRAINER) & (activity["what"] == "sync")]
    return np.sort(syncs["end_seconds"].to_numpy(float))


def replicas(tables: Tables) -> list[int]:
    """Indices of the replicas that appear in the activity table."""
    who = tables["activity"]["who"]
    return [int(index) for index in np.unique(who[who != TRAINER])]


def occupancy(starts: ArrayLike, ends: ArrayLike, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean number of intervals under way in each bin between ``edges`` (seconds, ascending)."""
    return np.diff(_elapsed(starts, edges) - _elapsed(ends, edges)) / np.diff(edges)


def _elapsed(instants: ArrayLike, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each ``at``, the seconds since every earlier instant, added up."""
    ordered = np.sort(np.asarray(instants, float))
    earlier = np.searchsorted(ordered, at)
    total = np.concatenate([[0.0], np.cumsum(ordered)])
    return np.asarray(earlier * at - total[earlier], float)
