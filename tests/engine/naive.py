"""vLLM V1's scheduler and its KV blocks, one block and one step at a time: the oracle of the jumping engine.

Nothing here is fast and nothing is clever: every block is an object, every queue a list, every running
request is looked at in every step. It is held to the real scheduler object step for step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rlsim.engine.requests import EngineLimits, Request

Content = tuple[str, int, int]
"""What a full block holds: ("prompt", prompt, index) or ("sample", sample, index)."""


class Block:
    __slots__ = ("content", "users")

    def __init__(self) -> None:
        self.content: Content | None = None
        self.users = 0


class BlockPool:
    """The free list and the prefix cache: uncached blocks are reused first, then the longest unused."""

    def __init__(self, count: int) -> None:
        self.free = deque(Block() for _ in range(count))
        self.cached: dict[Content, list[Block]] = {}

    def take(self) -> Block:
        block = self.free.popleft()
        if block.content is not None:
            self._forget(block, block.content)
        block.users = 1
        return block

    def _forget(self, block: Block, content: Content) -> None:
        copies = self.cached[content]
        copies.remove(block)
        if not copies:
            del self.cached[content]
        block.content = None

    def share(self, block: Block) -> None:
        if block.users == 0:
            self.free.remove(block)
        block.users += 1

    def register(self, block: Block, content: Content) -> None:
        block.content = content
        self.cached.setdefault(content, []).append(block)

    def release(self, blocks: Iterable[Block]) -> None:
        """Give up ``blocks`` in the order given."""
        uncached: list[Block] = []
        for block in blocks:
            block.users -= 1
            if block.users == 0:
                if block.content is None:
                    uncached.append(block)
                else:
                    self.free.append(block)
        self.free.extendleft(reversed(uncached))

    def forget_all(self) -> None:
        for copies in self.cached.values():
            for block in copies:
                block.content = None
        self.cached.clear()


class NaiveScheduler:
    """One engine's scheduler: decides a step, then runs it. Ids are ``request.sample``."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.kv_blocks)
        self.requests: dict[int, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preempted: list[int] = []
        self.prefix_hits = 0
        """Admissions that found at least one block in the prefix cache."""
        self._held: dict[int, list[Block]] = {}
        self._step: dict[int, int] = {}
        self._budget = 0

    @property
    def free_blocks(self) -> int:
        return len(self.pool.free)

    @property
    def waiting_count(self) -> int:
        return len(self.waiting)

    @property
    def running_count(self) -> int:
        return len(self.running)

    def has_requests(self) -> bool:
        return bool(self.requests)

    def add(self, request: Request) -> None:
        assert request.sample not in self.requests
        self.requests[request.sample] = request
        self.waiting.append(request)

    def abort(self, sample: int) -> Request | None:
        request = self.requests.get(sample)
        if request is not None:
            (self.running if request in self.running else self.waiting).remove(request)
            self._step.pop(sample, None)
            self._drop(request)
        return request

    def reset(self) -> None:
        """Every running request back to the queue, in the order it ran, and nothing cached any more."""
        while self.running:
            self._send_back(self.running[-1])
        self.pool.forget_all()

    def scheduled(self) -> dict[int, int]:
        return dict(self._step)

    def schedule(self) -> int:
        self.preempted = []
        self._step = {}
        self._budget = self.limits.max_num_batched_tokens
        self._serve_running()
        if not self.preempted:
            self._admit_waiting()
        return 1 if self._step else 0

    def advance(self, steps: int) -> list[Request]:
        assert steps == 1
        finished = []
        for sample, tokens in self._step.items():
            request = self.requests[sample]
            request.computed += tokens
            if request.computed == request.tokens:
                request.tokens += 1
                if self._is_finished(request):
                    self.running.remove(request)
                    self._drop(request)
                    finished.append(request)
        self._step = {}
        return finished

    def _is_finished(self, request: Request) -> bool:
        output = request.tokens - request.context_tokens
        return output >= request.target_tokens or request.tokens >= self.limits.max_model_len

    def _serve_running(self) -> None:
        index = 0
        while index < len(self.running) and self._budget > 0:
            request = self.running[index]
            tokens = self._granted(request, request.computed)
            while self._missing(request, request.computed + tokens) > len(self.pool.free):
                victim = self._victim()
                index -= self.running.index(victim) < index
                self._send_back(victim)
                self.preempted.append(victim.sample)
                self._budget += self._step.pop(victim.sample, 0)
                if victim is request:
                    return
            self._place(request, tokens)
            index += 1

    def _admit_waiting(self) -> None:
        while self.waiting and self._budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self._head()
            hits = self._cached_prefix(request)
            computed = len(hits) * self.limits.block_size
            if request.tokens - computed > self._budget and not self.limits.enable_chunked_prefill:
                return
            idle_hits = sum(block.users == 0 for block in hits)
            if self._missing(request, request.tokens) - len(hits) + idle_hits > len(self.pool.free):
                return
            tokens = self._granted(request, computed)
            if not tokens or not self._may_enter(request):
                return
            self.waiting.remove(request)
            self.running.append(request)
            self._adopt(request, hits)
            self._place(request, tokens)

    def _granted(self, request: Request, computed: int) -> int:
        """Tokens of ``request`` in this step, after ``computed`` ones; 0: it does not enter."""
        return min(request.tokens - computed, self._budget)

    def _may_enter(self, request: Request) -> bool:
        """Whether the head of the queue, which fits, may be admitted."""
        return True

    def _head(self) -> Request:
        if self.limits.scheduling_policy == "fcfs":
            return self.waiting[0]
        return min(self.waiting, key=lambda request: (request.priority, request.arrival, request.sample))

    def _victim(self) -> Request:
        if self.limits.scheduling_policy == "fcfs":
            return self.running[-1]
        return max(self.running, key=lambda request: (request.priority, request.arrival))

    def _missing(self, request: Request, tokens: int) -> int:
        """Blocks that ``request`` lacks to hold ``tokens``."""
        return -(-tokens // self.limits.block_size) - len(self._held.get(request.sample, ()))

    def _content(self, request: Request, index: int) -> Content:
        if (index + 1) * self.limits.block_size <= request.prompt_tokens:
            return ("prompt", request.prompt, index)
        for content, tokens in request.lineage:
            if (index + 1) * self.limits.block_size <= tokens:
                return (*content, index)
        return ("sample", request.sample, index)

    def _cached_prefix(self, request: Request) -> list[Block]:
        """The oldest copies of the longest cached prefix, at least one token short of the whole."""
        found: list[Block] = []
        for index in range((request.tokens - 1) // self.limits.block_size):
            copies = self.pool.cached.get(self._content(request, index))
            if not copies:
                break
            found.append(copies[0])
        return found

    def _adopt(self, request: Request, hits: list[Block]) -> None:
        for block in hits:
            self.pool.share(block)
        self._held[request.sample] = hits
        request.computed = len(hits) * self.limits.block_size
        self.prefix_hits += bool(hits)

    def _place(self, request: Request, tokens: int) -> None:
        """Blocks for the next ``tokens``; those that fill up can be hit from this moment on."""
        end = request.computed + tokens
        held = self._held[request.sample]
        for _ in range(self._missing(request, end)):
            held.append(self.pool.take())
        if self.limits.enable_prefix_caching:
            for index in range(end // self.limits.block_size):
                if held[index].content is None:
                    self.pool.register(held[index], self._content(request, index))
        self._step[request.sample] = tokens
        self._budget -= tokens

    def _send_back(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(reversed(self._held.pop(request.sample)))
        request.computed = 0
        request.preemptions += 1
        self.waiting.insert(0, request)

    def _drop(self, request: Request) -> None:
        del self.requests[request.sample]
        self.pool.release(reversed(self._held.pop(request.sample, [])))
