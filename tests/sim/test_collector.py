"""Garbage is not looked for during a run, seldom after it, and what somebody else has frozen stays frozen."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rlsim.sim import collector
from rlsim.sim.collector import collector_paused


class Node:
    """A cycle of itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Generations that were looked through, each time."""
    told: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            told.append(info["generation"])

    monkeypatch.setattr(collector, "_PUT_OFF", collector._PutOff())
    gc.collect()
    gc.callbacks.append(note)
    yield told
    gc.callbacks.remove(note)
    gc.enable()


def test_what_a_pause_made_is_not_walked_through_when_it_ends(looked: list[int]) -> None:
    with collector_paused():
        kept = [Node() for _ in range(20_000)]
    more = [[] for _ in range(10)]
    assert looked == []
    assert len(kept) + len(more) == 20_010
    assert gc.isenabled()


def test_all_is_looked_through_once_enough_was_put_off(looked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LEAST_UNSEEN", 30_000)
    monkeypatch.setattr(collector.gc, "get_objects", list)
    for _ in range(5):
        with collector_paused():
            for _ in range(10_000):
                Node()
    assert looked.count(2) == 1


def test_what_was_frozen_stays_so_and_a_pause_within_a_pause_ends_with_the_outer() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused():
            with collector_paused():
                pass
            assert not gc.isenabled()
        assert gc.get_freeze_count() >= frozen - 100  # Some of it may have been let go of.
        assert gc.isenabled()
    finally:
        gc.unfreeze()
