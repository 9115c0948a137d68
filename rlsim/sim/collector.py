"""When Python looks for garbage: not while a run is made, and after it as seldom as it does elsewhere."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LEAST_UNSEEN = 500_000
"""Containers that may wait unseen, whatever else there is: some 60 MiB."""


class _PutOff:
    """What runs made and left, since all of it was last looked through.

    CPython does so once what is new exceeds a quarter of what is old. What a long pause made it would take for young,
    and walk through at once; handed to the oldest objects instead, it is seen when that rule says so.
    """

    def __init__(self) -> None:
        self._unseen = self._seen = 0

    def hand_over(self) -> None:
        """The pause is over."""
        self._unseen += gc.get_count()[0]
        if self._unseen > max(LEAST_UNSEEN, self._seen // 4):
            gc.collect()
            self._unseen, self._seen = 0, len(gc.get_objects())
        elif not gc.get_freeze_count():  # What somebody else has frozen stays so.
            gc.freeze()
            gc.unfreeze()


_PUT_OFF = _PutOff()


@contextmanager
def collector_paused() -> Iterator[None]:
    """A run keeps nearly all it makes: looking for garbage meanwhile doubles its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            _PUT_OFF.hand_over()
            gc.enable()
