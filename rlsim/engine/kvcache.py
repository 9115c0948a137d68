"""The paged KV cache of one engine: how many blocks are free and, with prefix caching, which contents they still hold.

vLLM keeps a block in its hash table until the block is handed out again; free blocks without a hash are handed out
first, cached ones in the order in which they were freed, the tail of a request before its head. Only whole
requests come and go here, so contents are kept as *runs* of consecutive blocks, never block by block: a
request costs a few runs whatever its length. Modelled on vLLM 0.32 (``v1/core/block_pool.py``).

Invariant: ``free`` + blocks held by running requests = all blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlsim.engine.requests import Request

Content = tuple[object, ...]
"""Whose tokens a block holds: ``("prompt", prompt)`` or the content of the request."""


class BlockRun:
    """Consecutive full blocks ``[first, last)`` of one content, held by the same requests."""

    __slots__ = ("content", "entry", "first", "holders", "last")

    def __init__(self, content: Content, first: int, last: int) -> None:
        self.content, self.first, self.last = content, first, last
        self.holders: list[Request] = []
        self.entry: CacheEntry | None = None

    def __len__(self) -> int:
        return self.last - self.first


class CacheEntry:
    """What one release put into the queue of free blocks: handed out from its end."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[BlockRun] = []


@dataclass(frozen=True, slots=True)
class Hit:
    """The cached prefix of a request: its blocks, how many of them are free now, and where they are."""

    blocks: int = 0
    evictable: int = 0
    pieces: list[tuple[BlockRun, int, int]] = field(default_factory=list)


NO_HIT = Hit()


class BlockPool:
    """Blocks without prefix caching: only their number matters."""

    __slots__ = ("free",)

    def __init__(self, blocks: int) -> None:
        self.free = blocks

    def lookup(self, request: Request, limit: int) -> Hit:
        """Nothing is ever cached."""
        return NO_HIT

    def take(self, blocks: int) -> None:
        """Hand out free blocks."""
        self.free -= blocks

    def adopt(self, request: Request, hit: Hit) -> None:
        """Nothing to hold."""

    def register(self, request: Request, full_blocks: int) -> None:
        """Nothing to remember."""

    def show_decoded(self, request: Request, running: Iterable[Request], step: int) -> None:
        """Nothing can be found."""

    def release(self, request: Request, blocks: int, full_blocks: int) -> None:
        """Take back all blocks of a request."""
        self.free += blocks

    def forget(self) -> None:
        """Nothing to forget."""


class PrefixCache:
    """Blocks whose contents can be found again until they are handed out."""

    __slots__ = ("_blank", "_block_size", "_contents", "_queue", "free")

    def __init__(self, blocks: int, block_size: int) -> None:
        self.free = self._blank = blocks
        self._block_size = block_size
        self._contents: dict[Content, list[BlockRun]] = {}
        """Copies of each content, oldest first: vLLM hits the oldest."""
        self._queue: OrderedDict[CacheEntry, None] = OrderedDict()

    def lookup(self, request: Request, limit: int) -> Hit:
        """The longest cached prefix of at most ``limit`` blocks."""
        pieces: list[tuple[BlockRun, int, int]] = []
        at = evictable = 0
        for content, end in self._spans(request, limit):
            while at < end:
                run = self._oldest(content, at)
                if run is None:
                    return Hit(at, evictable, pieces) if pieces else NO_HIT
                stop = min(run.last, end)
                pieces.append((run, at, stop))
                if not run.holders:
                    evictable += stop - at
                at = stop
        return Hit(at, evictable, pieces) if pieces else NO_HIT

    def take(self, blocks: int) -> None:
        """Hand out free blocks, blank ones first, then the least recently freed contents."""
        self.free -= blocks
        blank = min(blocks, self._blank)
        self._blank -= blank
        if blocks > blank:
            self._evict(blocks - blank)

    def adopt(self, request: Request, hit: Hit) -> None:
        """Hold the blocks of a hit."""
        self.free -= hit.evictable
        for run, first, last in hit.pieces:
            held = run if run.first == first else self._split(run, first)
            if held.last > last:
                self._split(held, last)
            if held.entry is not None:
                self._unqueue(held, held.entry)
            held.holders.append(request)
            request.runs.append(held)

    def register(self, request: Request, full_blocks: int) -> None:
        """Make the request's blocks up to ``full_blocks`` findable, from the moment they are scheduled."""
        at = request.cached_blocks
        if full_blocks <= at:
            return
        for content, end in self._spans(request, full_blocks):
            if at < end:
                run = BlockRun(content, at, end)
                run.holders.append(request)
                request.runs.append(run)
                self._contents.setdefault(content, []).append(run)
                at = end
        request.cached_blocks = full_blocks

    def show_decoded(self, request: Request, running: Iterable[Request], step: int) -> None:
        """What running requests have decoded can be hit by one that begins with it; others never look for it."""
        for content, _ in request.lineage:
            for parent in running:
                if parent.content == content and parent.finish_at >= 0:
                    tokens = parent.tokens + step - parent.joined_at
                    self.register(parent, tokens // self._block_size)

    def release(self, request: Request, blocks: int, full_blocks: int) -> None:
        """Take back all blocks; full ones stay findable until they are handed out again."""
        self.register(request, full_blocks)
        entry = CacheEntry()
        for run in request.runs:
            assert isinstance(run, BlockRun)
            run.holders.remove(request)
            if not run.holders:
                run.entry = entry
                entry.runs.append(run)
                self.free += len(run)
        if entry.runs:
            self._queue[entry] = None
        self._blank += blocks - full_blocks
        self.free += blocks - full_blocks
        request.runs = []

    def forget(self) -> None:
        """Drop every content; no request may hold a block."""
        self._contents.clear()
        self._queue.clear()
        self._blank = self.free

    def _spans(self, request: Request, limit: int) -> Sequence[tuple[Content, int]]:
        """Contents of the first ``limit`` blocks in order, each with the block before which it ends."""
        shared = min(request.prompt_tokens // self._block_size, limit)
        prompt, own = (("prompt", request.prompt), shared), (request.content, limit)
        if not request.lineage:
            return prompt, own
        return prompt, *((of, min(tokens // self._block_size, limit)) for of, tokens in request.lineage), own

    def _oldest(self, content: Content, block: int) -> BlockRun | None:
        for run in self._contents.get(content, ()):
            if run.first <= block < run.last:
                return run
        return None

    def _split(self, run: BlockRun, at: int) -> BlockRun:
        """Cut ``run`` at ``at``; the new run is its right part."""
        right = BlockRun(run.content, at, run.last)
        run.last = at
        copies = self._contents[run.content]
        copies.insert(copies.index(run) + 1, right)  # As old as what it was cut off.
        for holder in run.holders:
            holder.runs.insert(holder.runs.index(run) + 1, right)
            right.holders.append(holder)
        if run.entry is not None:
            right.entry = run.entry
            run.entry.runs.insert(run.entry.runs.index(run) + 1, right)
        return right

    def _unqueue(self, run: BlockRun, entry: CacheEntry) -> None:
        entry.runs.remove(run)
        run.entry = None
        if not entry.runs:
            del self._queue[entry]

    def _evict(self, blocks: int) -> None:
        while blocks:
            entry = next(iter(self._queue))
            run = entry.runs[-1]
            if len(run) > blocks:
                run.last -= blocks
                return
            blocks -= len(run)
            self._unqueue(run, entry)
            copies = self._contents[run.content]
            copies.remove(run)
            if not copies:
                del self._contents[run.content]
