"""vLLM V1's scheduler for one engine, jumping over the steps in which its batch cannot change.

``schedule`` decides the next step as vLLM 0.32 does with synchronous scheduling (``v1/core/sched/scheduler.py``):
running requests first, in order of admission, each a decode token or the next chunk of its prefill; then
waiting ones while a seat, the token budget and the KV blocks last, unless something was just preempted. It
answers for how many steps that decision stands: until a request finishes, a block is missing, or a
prefill, an admission or a preemption makes the next step different. ``advance`` runs any number of them. A
discipline in the limits replaces single rules (:mod:`rlsim.engine.discipline`); without one they are vLLM's.

All decodes gain one token a step, so a request's own state is kept as of the step at which it began to decode
(``joined_at``) and the need for blocks as a count of requests by the residue of that need. Times are
not known here. Left out: speculative decoding, multimodal inputs, LoRA, KV connectors, sliding windows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from rlsim.engine.admission import AdmissionTest, Chunk, PacedChunks
from rlsim.engine.kvcache import BlockPool, PrefixCache
from rlsim.engine.queues import WaitingQueue, waiting_queue
from rlsim.engine.requests import Authorship, EngineLimits, Request, TokenWatch
from rlsim.engine.steptime import StepTime


class Scheduler:
    """The waiting and running requests of one engine and the KV blocks they hold."""

    def __init__(self, limits: EngineLimits, law: StepTime | None = None) -> None:
        """``law`` predicts step times where the discipline has a target for them."""
        self.limits, rules = limits, limits.discipline
        self.length: Callable[[Request, int], int] | None = None
        """Gives the target of a request whose first token is made by weights of a version, where that matters."""
        self.pool: BlockPool | PrefixCache = (
            PrefixCache(limits.kv_blocks, limits.block_size)
            if limits.enable_prefix_caching
            else BlockPool(limits.kv_blocks)
        )
        self.waiting: WaitingQueue = waiting_queue(limits)
        self.running: dict[int, Request] = {}
        self.step = 0
        self.decodes = self.kv_tokens = 0
        """Decodes of the next step and the sum of their tokens, the one to be computed included."""
        self.chunks: list[Chunk] = []
        self.preempted: list[int] = []
        self.first_tokens: list[Request] = []
        """Requests that got their first token in the last ``advance``."""
        self.token_watch = TokenWatch()
        self.authors = Authorship()
        self.decoded_tokens = self.prefill_tokens = self.preemptions = self.lost_tokens = 0
        """Of those decoded, sampled in steps during which their requests were aborted."""
        self.resets = self.recomputed_tokens = self.prompt_tokens = self.cached_tokens = self.blocked_steps = 0
        """Requests that a weight update put back; tokens prefilled once more; tokens that new requests brought, and
        those of them that were cached; steps in which a request waits for KV blocks."""
        self._is_blocked = False
        self._partial: Request | None = None
        self._stalled: list[Request] = []
        self._granted: set[int] = set()
        self._finish: list[tuple[int, int, Request]] = []
        self._needs = [0] * limits.block_size
        self._entries = 0
        self._test = AdmissionTest(rules.admission, limits) if rules.admission else None
        self._paced = PacedChunks(rules.step_target, law) if rules.step_target and law else None
        self._most_chunks = rules.max_concurrent_prefills or limits.max_num_seqs

    # -- what the outside does ------------------------------------------------------------------------

    def add(self, request: Request) -> bool:
        """Enqueue; true when the request could be admitted at the next boundary."""
        return self.waiting.push(request) and len(self.running) < self.limits.max_num_seqs

    def abort(self, sample: int) -> Request | None:
        """Remove a request between steps; its tokens so far and its segments are up to date."""
        request = self.running.get(sample)
        if request is None:
            return self.waiting.remove(sample)
        self._remove(request)
        return request

    def reset(self) -> None:
        """Preempt all running requests and forget the prefix cache, as a weight update that drops the KV does."""
        self.resets += len(self.running)
        for request in reversed(list(self.running.values())):
            self._put_back(request)
        self.pool.forget()

    def set_version(self, version: int) -> None:
        """Tokens from the next step on are made by these weights."""
        self.authors.change(self.step, version)

    def has_requests(self) -> bool:
        return bool(self.running or len(self.waiting))

    @property
    def free_blocks(self) -> int:
        """KV blocks that no running request holds."""
        return self.pool.free

    @property
    def waiting_count(self) -> int:
        return len(self.waiting)

    @property
    def running_count(self) -> int:
        return len(self.running)

    def scheduled(self) -> dict[int, int]:
        """Tokens by sample in the step just decided, in scheduling order; for conformance tests."""
        chunked = {request.sample: tokens for request, tokens in self.chunks}
        idle = {request.sample for request in self._stalled}
        if self._partial is not None and self._partial.sample not in chunked:
            idle.add(self._partial.sample)
        return {sample: chunked.get(sample, 1) for sample in self.running if sample not in idle}

    def in_step(self, sample: int) -> bool:
        """Whether a request has a part in the step just decided."""
        request = self.running.get(sample)
        return request is not None and (request.finish_at >= 0 or any(other is request for other, _ in self.chunks))

    # -- one decision ---------------------------------------------------------------------------------

    def schedule(self) -> int:
        """Decide the next step; for how many steps the decision stands, 0 when nothing runs."""
        self.chunks.clear()
        self.preempted.clear()
        self._granted.clear()
        self._is_blocked = False
        if self._stalled:
            self._revive()
        budget = self.limits.max_num_batched_tokens
        if self._is_short_of_blocks() and self.limits.scheduling_policy == "priority":
            budget = self._run_short_of_blocks(budget)
        else:
            # First come first served, the victim is the last: no turn of the pass comes after it, so it can go before.
            while self._is_short_of_blocks():
                self._preempt(self.running[next(reversed(self.running))])
            self.pool.take(self._needs[-self.step % self.limits.block_size])
            budget -= self.decodes
            if self._partial is not None and budget:
                budget = self._continue_prefill(self._partial, budget)
        if budget and not self.preempted and len(self.waiting):
            self._admit(budget)
        return self._steps()

    def advance(self, steps: int, aborted: Sequence[int] = ()) -> list[Request]:
        """Run ``steps`` of the steps decided, the ``aborted`` without what the last makes for them; who finished."""
        if steps > 1:
            self.pool.take(self._blocks_for(self.step + 1, steps - 1))
        self.first_tokens.clear()
        if aborted:
            self._decode(steps - 1)
            steps = 1
            for sample in aborted:
                self._drop(sample)
        if self._is_blocked:
            self.blocked_steps += steps
        self._decode(steps)
        self._granted.clear()
        finished = self._finish_decodes()
        if self.token_watch:
            self.token_watch.advance(self.step, self.running)
        if self._stalled:
            self._revive()
        for request, tokens in self.chunks:
            request.computed += tokens
            self.prefill_tokens += tokens
            if request.computed == request.tokens and self._sample_after_prefill(request):
                finished.append(request)
        if finished and self._test is not None:
            self._test.learn(finished)
        return finished

    def _decode(self, steps: int) -> None:
        self.kv_tokens += steps * self.decodes
        self.decoded_tokens += steps * self.decodes
        self.step += steps

    def _drop(self, sample: int) -> None:
        """Abort a request of the step under way: what the step makes for it is lost."""
        request = self.running[sample]
        if chunk := sum(tokens for other, tokens in self.chunks if other is request):
            self.chunks = [pair for pair in self.chunks if pair[0] is not request]
            self.prefill_tokens += chunk
            request.computed += chunk
        self._granted.add(sample)
        request.lost_tokens = int(not chunk or request.computed == request.tokens)
        self.decoded_tokens += request.lost_tokens
        self.lost_tokens += request.lost_tokens
        self._remove(request)

    def _steps(self) -> int:
        if self.chunks:
            return 1
        if not self.decodes:
            return 0
        if self.preempted or self._stalled:
            return 1
        finish = self._finish
        while finish[0][2].finish_at != finish[0][0]:
            heapq.heappop(finish)
        steps = self.token_watch.steps_to_next(self.step, finish[0][0] - self.step)
        if self._test is not None and self._test.refused_until > self.step:
            steps = min(steps, self._test.refused_until - self.step)
        if (steps // self.limits.block_size + 1) * self.decodes <= self.pool.free:
            return steps  # enough whatever the residues
        return min(steps, 1 + self._steps_that_fit(self.step + 1, self.pool.free))

    def _continue_prefill(self, request: Request, budget: int) -> int:
        """Schedule the next chunk; what is left of the budget, nothing when the chunk was cut short."""
        tokens = self._chunk_tokens(request, request.computed, budget)
        self._schedule_chunk(request, tokens)
        return budget - tokens if self._partial is None else 0

    def _chunk_tokens(self, request: Request, computed: int, budget: int) -> int:
        tokens = min(request.tokens - computed, budget)
        if self._paced is None or not tokens:
            return tokens
        return self._paced.tokens(self.decodes, self.kv_tokens, self.chunks, computed, tokens)

    def _is_short_of_blocks(self) -> bool:
        needed = self._needs[-self.step % self.limits.block_size]
        if self._partial is not None:
            request, budget = self._partial, self.limits.max_num_batched_tokens - self.decodes
            tokens = self._chunk_tokens(request, request.computed, budget)
            needed += self._blocks(request.computed + tokens) - request.blocks if tokens else 0
        return needed > self.pool.free

    def _schedule_chunk(self, request: Request, tokens: int) -> None:
        computed = request.computed + tokens
        blocks = self._blocks(computed)
        self.pool.take(blocks - request.blocks)
        request.blocks = blocks
        self.pool.register(request, computed // self.limits.block_size)
        self.chunks.append((request, tokens))
        self._partial = request if computed < request.tokens else None

    def _admit(self, budget: int) -> None:
        limits, pool, test = self.limits, self.pool, self._test
        while budget and len(self.waiting) and len(self.running) < limits.max_num_seqs:
            if len(self.chunks) >= self._most_chunks:
                return
            request = self.waiting.head()
            if request.lineage:
                pool.show_decoded(request, self.running.values(), self.step)
            hit = pool.lookup(request, (request.tokens - 1) // limits.block_size)
            computed = max(hit.blocks * limits.block_size, min(request.restored_tokens, request.tokens - 1))
            if not limits.enable_chunked_prefill and request.tokens - computed > budget:
                return
            if self._blocks(request.tokens) - hit.blocks + hit.evictable > pool.free:
                self._is_blocked = True
                return
            if self._paced is not None and not self._chunk_tokens(request, computed, budget):
                return
            if test is not None and not test.admits(request, self.running, self._entries, self.step):
                return
            self.waiting.pop()
            pool.adopt(request, hit)
            self._count_entry(request, computed)
            request.computed, request.blocks, request.cached_blocks = computed, hit.blocks, hit.blocks
            self.running[request.sample] = request
            self._entries += 1
            request.entry = self._entries
            budget = self._continue_prefill(request, budget)

    def _count_entry(self, request: Request, computed: int) -> None:
        """Book what a request brings, or what of it must be computed once more."""
        if request.entry < 0:
            self.prompt_tokens += request.tokens
            self.cached_tokens += computed
        else:
            self.recomputed_tokens += request.tokens - computed

    def _run_short_of_blocks(self, budget: int) -> int:
        """The running pass by priority when blocks are short: request by request, as a victim may have had its turn."""
        order = list(self.running.values())
        for position, request in enumerate(order):
            if not budget:
                break
            if request.sample not in self.running:
                continue
            chunking = request is self._partial
            tokens = self._chunk_tokens(request, request.computed, budget) if chunking else 1
            while (needed := self._blocks_needed(request, tokens)) > self.pool.free:
                victim = max(self.running.values(), key=lambda request: (request.priority, request.arrival))
                budget += victim.sample in self._granted
                self._preempt(victim)
                if request.sample not in self.running:
                    for later in order[position + 1 :]:  # vLLM does not reach them in this step.
                        if later.sample in self.running and later is not self._partial:
                            self._stop_decoding(later)
                            self._stalled.append(later)
                    return budget
            if chunking:
                self._schedule_chunk(request, tokens)
            else:
                if needed:
                    self.pool.take(needed)
                self._granted.add(request.sample)
            budget -= tokens
        return budget

    def _blocks_needed(self, request: Request, tokens: int) -> int:
        if request is self._partial:
            return self._blocks(request.computed + tokens) - request.blocks
        computed = request.tokens + self.step - request.joined_at - 1
        return int(computed % self.limits.block_size == 0)

    def _revive(self) -> None:
        for request in self._stalled:
            self._begin_decoding(request)
        self._stalled.clear()

    # -- one request ----------------------------------------------------------------------------------

    def _preempt(self, request: Request) -> None:
        """Put a running request back for want of KV blocks."""
        self.preemptions += 1
        self._is_blocked = True
        self._put_back(request)

    def _put_back(self, request: Request) -> None:
        self._remove(request)
        request.computed = request.cached_blocks = request.blocks = request.restored_tokens = 0
        request.preemptions += 1
        self.preempted.append(request.sample)
        self.waiting.push_front(request)

    def _remove(self, request: Request) -> None:
        """Take a running request out and free its blocks."""
        del self.running[request.sample]
        if request is self._partial:
            self._partial = None
        if request.finish_at < 0:
            blocks, computed = request.blocks, request.computed
        else:
            self._stop_decoding(request)
            computed = request.computed + (request.sample in self._granted)
            blocks = self._blocks(computed)
        self.pool.release(request, blocks, computed // self.limits.block_size)

    def _sample_after_prefill(self, request: Request) -> bool:
        """The token that ends a prefill; whether it is the last."""
        self.decoded_tokens += 1
        request.tokens += 1
        self.authors.credit(request, 1)
        if request.tokens - request.context_tokens == 1:
            self.first_tokens.append(request)
            if self.length is not None:
                request.target_tokens = self.length(request, self.authors.version)
        self.token_watch.token_of_prefill(request)
        self._begin_decoding(request)
        if request.finish_at > self.step:
            return False
        self._remove(request)
        return True

    def _begin_decoding(self, request: Request) -> None:
        request.joined_at = self.step
        self.decodes += 1
        self.kv_tokens += request.tokens
        self._needs[(request.tokens - 1 - self.step) % self.limits.block_size] += 1
        last = min(request.context_tokens + request.target_tokens, self.limits.max_model_len)
        request.finish_at = self.step + max(0, last - request.tokens)
        heapq.heappush(self._finish, (request.finish_at, request.entry, request))
        if request.marks:
            self.token_watch.expect(request, self.step)

    def _stop_decoding(self, request: Request) -> None:
        self.authors.credit_steps(request, request.joined_at, self.step)
        request.tokens += self.step - request.joined_at
        request.computed = request.tokens - 1
        request.finish_at = -1
        self.decodes -= 1
        self.kv_tokens -= request.tokens
        self._needs[(request.computed - self.step) % self.limits.block_size] -= 1

    def _finish_decodes(self) -> list[Request]:
        finished, finish = [], self._finish
        while finish and finish[0][0] <= self.step:
            at, entry, request = heapq.heappop(finish)
            if request.finish_at == at and request.entry == entry:
                self._remove(request)
                finished.append(request)
        return finished

    # -- blocks ---------------------------------------------------------------------------------------

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _blocks_for(self, start: int, steps: int) -> int:
        """Blocks that the running decodes need in ``steps`` steps from step ``start``."""
        size, needs = self.limits.block_size, self._needs
        first, (cycles, rest) = -start % size, divmod(steps, size)
        return cycles * self.decodes + sum(needs[first - offset] for offset in range(rest))

    def _steps_that_fit(self, start: int, free: int) -> int:
        """Steps from ``start`` before the running decodes need more than ``free`` blocks."""
        size, needs = self.limits.block_size, self._needs
        cycles, left = divmod(free, self.decodes)
        first, steps = -start % size, 0
        while steps < size and needs[first - steps] <= left:
            left -= needs[first - steps]
            steps += 1
        return cycles * size + steps
