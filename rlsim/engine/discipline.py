"""Engine disciplines: what an engine decides in every step beyond, or instead of, vLLM's own rules.

A discipline is a value installed on a replica: pure rules over the batch, the KV blocks and the waiting queue, of what
the engine itself can see. It reads no clock and no hidden length. Simulation evaluates it at the edges of its
windows, a live vLLM in a subclass of its scheduler; an engine behind an API cannot take one. Without one the
engine is vLLM's, to the integer. docs/concepts/engine-model.md gives the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.ticks import Ticks


@dataclass(frozen=True, slots=True)
class Conservative:
    """Admit a call only if all that run, and it, could make their longest outputs at once.

    The baseline of arXiv 2507.10150 that never evicts and queues too long.
    """

    reserved_fraction: float = 0.0
    """Share of the KV blocks that the test leaves out."""


@dataclass(frozen=True, slots=True)
class PastFuture:
    """Admit a call only if the peak of the predicted future memory fits (arXiv 2507.10150).

    The past: outputs of the last ``history_calls`` calls that this engine finished give P(l | l > generated),
    from which each call's output is predicted. The future: with each call's tokens ``c`` and predicted rest ``r``,
    the peak is the greatest sum of ``c + t`` over the calls with ``r >= t``, of all ``t`` at which a call should end.
    """

    quantile: float | None = None
    """In (0, 1]: every call is predicted at this quantile. None: each at a hash of (seed, sample), as if drawn."""
    reserved_fraction: float = 0.05
    """Share of the KV blocks that the test leaves out."""
    history_calls: int = 200
    initial_calls: int = 100
    """Calls of the longest output that the history begins with; an empty history predicts the longest output too."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StepTarget:
    """Chunks as long as the predicted time of their step allows (LPRS of arXiv 2606.09061)."""

    ticks: Ticks
    min_chunk_tokens: int
    """Prefill tokens that a step may always take, so that prefill is never starved."""
    predicted_scale: float = 1.0
    """The predictor says this many times what the replica's step law says."""


@dataclass(frozen=True, slots=True)
class AgeingQueue:
    """The waiting queue by time waited and prefill left (the ageing of arXiv 2606.09061).

    First is the call with the lowest ``prefill_weight * prefill left - waiting_weight * time waited``. The second
    term grows equally fast for all that wait and the first is fixed while they do, so the order of two waiting
    calls never changes: :meth:`rank` leaves the common clock out, is static, and can be the key of a heap.
    """

    waiting_weight: int
    """Of a tick waited."""
    prefill_weight: int
    """Of a token of prefill left; only the ratio of the two matters."""

    def rank(self, prefill_tokens: int, arrival: Ticks) -> int:
        """Lowest first. Prefill left is all tokens of the call: what a cache may still hold is not known in advance."""
        return self.prefill_weight * prefill_tokens + self.waiting_weight * arrival


@dataclass(frozen=True, slots=True)
class Discipline:
    """The rules that replace vLLM's; None, the default of each, is vLLM's own."""

    admission: Conservative | PastFuture | None = None
    """None: aggressive, a call enters when its prompt fits now."""
    step_target: StepTarget | None = None
    max_concurrent_prefills: int | None = None
    """Prefill chunks in a step (APC of arXiv 2606.09061)."""
    ageing: AgeingQueue | None = None


VLLM = Discipline()
"""No rule beyond vLLM's own."""
