"""Points of the design of an engine's steps, and the timed steps at them."""

from __future__ import annotations

from dataclasses import dataclass

from calibration.fitting.step_model import StepSample
from rlsim.engine.steptime import attention_pairs


@dataclass(frozen=True, slots=True, order=True)
class StepPoint:
    """One composition of an engine step: ``decodes`` of equal context beside ``chunks`` of equal size."""

    decodes: int = 0
    context: int = 0
    """Tokens of each decode, the one computed in the step included."""
    chunks: int = 0
    tokens: int = 0
    """Tokens of each chunk."""
    cached: int = 0
    """Tokens before each chunk that are computed already: an earlier chunk or a hit of the prefix cache."""

    @property
    def kind(self) -> str:
        """``decode``, ``prefill`` or ``mixed``."""
        return self.sample(1.0).kind

    def sample(self, seconds: float) -> StepSample:
        """The point as a timed step."""
        return StepSample(
            seconds=seconds,
            decodes=self.decodes,
            kv_tokens=self.decodes * self.context,
            chunks=self.chunks,
            prefill_tokens=self.chunks * self.tokens,
            pairs=self.chunks * attention_pairs(self.tokens, self.cached),
        )

    def __str__(self) -> str:
        decodes = f"{self.decodes} decodes of {self.context} tokens" if self.decodes else ""
        after = f" after {self.cached}" if self.cached else ""
        chunks = f"{self.chunks} chunks of {self.tokens} tokens{after}" if self.chunks else ""
        return " beside ".join(part for part in (decodes, chunks) if part)


@dataclass(frozen=True, slots=True)
class TimedStep(StepSample):
    """One engine step as the scheduler's log has it."""

    cpu_seconds: float = 0.0
    """CPU time of all threads of this process meanwhile."""
    preempted: int = 0

    def is_at(self, point: StepPoint) -> bool:
        """Whether the step is of the point's composition; contexts grow while decodes are timed."""
        wanted = point.sample(1.0)
        names = ("decodes", "chunks", "prefill_tokens", "pairs")
        return all(getattr(self, name) == getattr(wanted, name) for name in names)
