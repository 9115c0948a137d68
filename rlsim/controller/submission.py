"""The next call of a sample: where it goes, in which rank, with how many tokens, and what is watched or checked."""

from __future__ import annotations

from collections.abc import Callable

from rlsim.core.commands import Submit
from rlsim.core.view import AFRESH, Sample, View
from rlsim.policies.hooks import Caps, Reuses, Watches
from rlsim.policies.protocols import FetchesKv, Policy


class Submission:
    """Asks the dispatch, ordering and allocation parts."""

    def __init__(self, policy: Policy, view: View) -> None:
        self._policy, self._view = policy, view
        allocation, ordering = policy.allocation, policy.ordering
        self._caps = allocation if isinstance(allocation, Caps) else None
        self._watches = allocation if isinstance(allocation, Watches) else None
        self._reuses = allocation if isinstance(allocation, Reuses) else None
        self._fetches_kv: Callable[[View, Sample], bool] = (
            ordering.fetches_kv if isinstance(ordering, FetchesKv) else lambda view, sample: ordering.shares_kv
        )

    def submit(self, sample: Sample) -> Submit:
        """Put the sample on a replica."""
        view, group, policy = self._view, sample.group, self._policy
        moved = sample.destination >= 0 and view.loads.is_open(sample.destination)
        if sample.destination == AFRESH:
            sample.replica = -1
        replica = sample.destination if moved else policy.dispatch.replica(view, sample)
        view.loads.add(replica, 1, sample.context_tokens)
        sample.replica, sample.state, sample.destination = replica, "running", -1
        view.generating_samples[sample.sample] = sample
        fetches = policy.migration.transfers_kv if moved else self._fetches_kv(view, sample)
        chunk_tokens = policy.ordering.chunk_tokens(view, sample)
        if self._caps is not None:
            chunk_tokens = self._capped(sample, chunk_tokens)
        draft = self._draft(sample)
        watches = self._watches if draft is None else None
        return Submit(
            sample.sample,
            replica,
            group.draw,
            group.recycle,
            sample.member,
            sample.turn,
            sample.made_tokens,
            sample.context_tokens,
            policy.ordering.priority(view, sample),
            chunk_tokens if draft is None else 0,
            fetches and sample.made_tokens > 0 and sample.response_tokens > 0,
            None if watches is None else watches.watch(view, sample),
            sample.fork,
            -1 if draft is None else draft.sample,
        )

    def _draft(self, sample: Sample) -> Sample | None:
        """What the sample may begin with, as far as a check accepts it."""
        if self._reuses is None or sample.checked or sample.turn or sample.response_tokens:
            return None
        return self._reuses.draft(self._view, sample)

    def _capped(self, sample: Sample, chunk_tokens: int) -> int:
        """Tokens of the next call, with the length budget that allocation gives the turn."""
        assert self._caps is not None
        sample.cap_tokens = self._caps.cap_tokens(self._view, sample)
        if not sample.cap_tokens:
            return chunk_tokens
        left = max(1, sample.cap_tokens - sample.made_tokens)
        return min(chunk_tokens, left) if chunk_tokens else left
