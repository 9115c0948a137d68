"""The waiting queue of an engine: first come first served, or by priority, as vLLM orders them, or by a discipline."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from rlsim.engine.discipline import AgeingQueue
from rlsim.engine.requests import EngineLimits, Request

Rank = tuple[int, int, int]


class WaitingQueue(Protocol):
    """Requests that hold no KV blocks."""

    def push(self, request: Request) -> bool:
        """Enqueue an arrival; true when it is now the head."""

    def push_front(self, request: Request) -> None:
        """Put a preempted request back."""

    def head(self) -> Request:
        """The next request to admit."""

    def pop(self) -> None:
        """Remove the head."""

    def remove(self, sample: int) -> Request | None:
        """Remove one request, wherever it stands."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...


class FcfsQueue:
    """Arrival order; a preempted request returns to the front."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: OrderedDict[int, Request] = OrderedDict()

    def push(self, request: Request) -> bool:
        self._requests[request.sample] = request
        return len(self._requests) == 1

    def push_front(self, request: Request) -> None:
        self._requests[request.sample] = request
        self._requests.move_to_end(request.sample, last=False)

    def head(self) -> Request:
        return next(iter(self._requests.values()))

    def pop(self) -> None:
        self._requests.popitem(last=False)

    def remove(self, sample: int) -> Request | None:
        return self._requests.pop(sample, None)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests.values()))


def by_priority(request: Request) -> Rank:
    """VLLM's rank: priority, then arrival."""
    return request.priority, request.arrival, request.sample


class RankedQueue:
    """Lowest rank first; a preempted request takes its own place again.

    A rank ends in the sample and stays the same while the request waits.
    """

    __slots__ = ("_heap", "_live", "_rank")

    def __init__(self, rank: Callable[[Request], Rank] = by_priority) -> None:
        self._rank = rank
        self._heap: list[Rank] = []
        self._live: dict[int, Request] = {}

    def push(self, request: Request) -> bool:
        """Enqueue by rank; true when it is now the head."""
        self._live[request.sample] = request
        heapq.heappush(self._heap, self._rank(request))
        return self.head() is request

    def push_front(self, request: Request) -> None:
        """There is no front: the rank decides."""
        self.push(request)

    def head(self) -> Request:
        while True:
            request = self._live.get(self._heap[0][2])
            if request is not None and self._rank(request) == self._heap[0]:
                return request
            heapq.heappop(self._heap)

    def pop(self) -> None:
        del self._live[self.head().sample]
        heapq.heappop(self._heap)

    def remove(self, sample: int) -> Request | None:
        return self._live.pop(sample, None)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._live.values(), key=self._rank))


def by_age(ageing: AgeingQueue) -> Callable[[Request], Rank]:
    """The rank of a discipline; equal ones by arrival, then by sample."""
    return lambda request: (ageing.rank(request.tokens, request.arrival), request.arrival, request.sample)


def waiting_queue(limits: EngineLimits) -> WaitingQueue:
    """The queue that the limits and their discipline ask for."""
    if limits.discipline.ageing is not None:
        return RankedQueue(by_age(limits.discipline.ageing))
    return RankedQueue() if limits.scheduling_policy == "priority" else FcfsQueue()
