"""When a replica had work, as seen from outside it."""

from __future__ import annotations

from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks


class Busy:
    """Windows between changes of the number of calls under way; their steps are not known, and 0."""

    def __init__(self, replica: int) -> None:
        self.rows: list[WindowRow] = []
        """In order; none where nothing was under way."""
        self._replica, self._since, self._calls = replica, 0, 0

    def change(self, now: Ticks, calls: int) -> None:
        """So many calls are under way from now on."""
        if calls == self._calls:
            return
        if self._calls and now > self._since:
            self.rows.append(WindowRow(self._replica, self._since, now, 0, self._calls, 0, 0, 0))
        self._since, self._calls = now, calls
