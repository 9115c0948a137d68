"""Routing inside a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rlsim.core.view import Pool, Sample, View
from rlsim.policies.hashed import hashed

Route = Literal["least-in-flight", "least-tokens", "by-prompt"]
"""Within a pool: fewest calls, fewest tokens of context, or always the same replica for a prompt."""

Router = Callable[[View, Sample], int]


def router(route: Route, pool: Pool) -> Router:
    """Which replica of the pool serves a call; closed ones are passed over."""
    if route == "least-in-flight":
        return lambda view, sample: view.loads.least(pool.replicas)
    if route == "least-tokens":
        return lambda view, sample: view.loads.least_tokens(pool.replicas)
    return lambda view, sample: _by_prompt(view, sample, pool)


def _by_prompt(view: View, sample: Sample, pool: Pool) -> int:
    """The prompt's own replica, so that its group and its later turns find what is cached there."""
    start = hashed("prompt", sample.group.draw) % pool.count
    places = (pool.first + (start + step) % pool.count for step in range(pool.count))
    for replica in places:
        if view.loads.is_open(replica):
            return replica
    return view.loads.least(pool.replicas)
