"""What is in flight where: the least loaded replica of all or of a range, without a scan; which one is empty.

A replica can be *closed*: calls under way there still count, but it is no longer the least loaded one of anything, and
no dispatch or migration part sends a call to it until it is open again. One that is *lost* never opens again.
"""

from __future__ import annotations

from collections.abc import Iterator

NONE_OPEN = 1 << 200
"""The key of a closed replica: above that of any load."""


class Least:
    """Numbers by replica; the smallest one of the open ones, of all or of a range, in O(log replicas).

    A tournament tree over keys that order by number, then by replica. It is built when somebody first asks.
    """

    __slots__ = ("_closed", "_tree", "values")

    def __init__(self, replicas: int, closed: set[int]) -> None:
        self.values = [0] * replicas
        self._closed = closed
        self._tree: list[int] = []

    def add(self, replica: int, change: int) -> None:
        """Change one of them."""
        self.values[replica] += change
        if self._tree:
            self.refresh(replica)

    def refresh(self, replica: int) -> None:
        """Bring the tree up to date with one replica's number, and with whether it is open."""
        tree = self._tree
        if not tree:
            return
        node = len(tree) // 2 + replica
        tree[node] = self._key(replica)
        while node > 1:
            winner = min(tree[node], tree[node ^ 1])
            node //= 2
            if tree[node] == winner:
                return
            tree[node] = winner

    def least(self, within: range | None = None) -> int | None:
        """The open replica with the smallest number, the lowest replica on ties; None when all are closed."""
        tree = self._tree or self._built()
        key = tree[1] if within is None else min(self._keys(tree, within), default=NONE_OPEN)
        return None if key == NONE_OPEN else key % len(self.values)

    def _keys(self, tree: list[int], within: range) -> Iterator[int]:
        """Winners of the subtrees that make up the range."""
        low, high = within.start + len(tree) // 2, within.stop + len(tree) // 2
        while low < high:
            if low & 1:
                yield tree[low]
                low += 1
            if high & 1:
                high -= 1
                yield tree[high]
            low, high = low // 2, high // 2

    def _key(self, replica: int) -> int:
        if replica in self._closed:
            return NONE_OPEN
        return self.values[replica] * len(self.values) + replica

    def _built(self) -> list[int]:
        count = len(self.values)
        self._tree = [NONE_OPEN] * count + [self._key(replica) for replica in range(count)]
        for node in range(count - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])
        return self._tree


class Loads:
    """Calls in flight by replica, the tokens that they began with, and the samples between two calls."""

    def __init__(self, replicas: int) -> None:
        self._closed: set[int] = set()
        self._lost: set[int] = set()
        self._calls, self._tokens = Least(replicas, self._closed), Least(replicas, self._closed)
        self._unfinished = Least(replicas, self._closed)

    @property
    def in_flight(self) -> list[int]:
        """Calls by replica, closed ones included."""
        return self._calls.values

    @property
    def context_tokens(self) -> list[int]:
        """Context tokens by replica, as of the submission of its calls."""
        return self._tokens.values

    def add(self, replica: int, change: int, context_tokens: int = 0) -> None:
        """A call begins (+1) or ends (-1), with the context tokens of its submission."""
        self._calls.add(replica, change)
        self._tokens.add(replica, change * context_tokens)
        self._unfinished.add(replica, change)

    def add_between_calls(self, replica: int, change: int) -> None:
        """A sample of the replica begins (+1) or ends (-1) to be in a tool, or to wait for the others of its turn."""
        self._unfinished.add(replica, change)

    @property
    def has_empty(self) -> bool:
        """Whether an open replica has no unfinished sample, neither in a call nor between two calls."""
        least = self._unfinished.least()
        return least is not None and not self._unfinished.values[least]

    def least(self, within: range | None = None) -> int:
        """The open replica (of ``within``) with the fewest calls in flight, the lowest number on ties.

        ``LookupError`` when all of them are closed; ask ``any_open`` first where that can be.
        """
        return _found(self._calls.least(within), within)

    def least_tokens(self, within: range | None = None) -> int:
        """The open replica (of ``within``) whose calls began with the fewest tokens, the lowest number on ties.

        ``LookupError`` when all of them are closed.
        """
        return _found(self._tokens.least(within), within)

    def close(self, replica: int) -> None:
        """Let no further call go there; what is in flight stays."""
        self._closed.add(replica)
        self._refresh(replica)

    def open(self, replica: int) -> None:
        """Let calls go there again, unless it was lost."""
        if replica not in self._lost:
            self._closed.discard(replica)
            self._refresh(replica)

    def lose(self, replica: int) -> None:
        """Close it for good."""
        self._lost.add(replica)
        self.close(replica)

    def is_lost(self, replica: int) -> bool:
        """Whether it is closed for good."""
        return replica in self._lost

    def is_open(self, replica: int) -> bool:
        """Whether calls may go there."""
        return replica not in self._closed

    @property
    def all_open(self) -> bool:
        """Whether no replica is closed."""
        return not self._closed

    @property
    def open_count(self) -> int:
        """Replicas that are open."""
        return len(self.in_flight) - len(self._closed)

    def any_open(self, within: range | None = None) -> bool:
        """Whether a replica (of ``within``) is open."""
        return self._calls.least(within) is not None

    def _refresh(self, replica: int) -> None:
        self._calls.refresh(replica)
        self._tokens.refresh(replica)
        self._unfinished.refresh(replica)


def _found(replica: int | None, within: range | None) -> int:
    if replica is None:
        raise LookupError(f"no open replica {'at all' if within is None else f'among {within}'}")
    return replica
