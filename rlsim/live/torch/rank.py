"""One data-parallel rank of the trainer: log-probability pass, gradients of micro-batches, optimizer updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

from rlsim.live.extras import require_live
from rlsim.live.torch.batches import TrainingSample, blocks, scored, shard, target_tokens
from rlsim.live.torch.grpo import divergence
from rlsim.live.torch.model import Network
from rlsim.live.torch.recipe import RankResult, Recipe, TrainRequest

WARM_TOKENS = 32
"""Tokens of a sequence of the micro-batches that warm a process up."""
Cut = list[list[TrainingSample]]
"""Micro-batches of a mini-batch."""


class Rank:
    """The rank's share of model and optimizer; what it keeps between calls are gradients of a step under way."""

    def __init__(self, recipe: Recipe, rank: int = 0) -> None:
        self._torch = torch = require_live("torch")
        self._recipe, self._rank = recipe, rank
        self.network = Network(recipe, rank)
        self.teacher = None if recipe.teacher is None else Network(replace(recipe, model=recipe.teacher), rank)
        self._parameters = list(self.network.model.parameters())
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
        self._tokens = 0
        """Tokens, on all ranks, whose gradients are kept."""

    def train(self, request: TrainRequest) -> RankResult:
        """The rank's share of a batch."""
        work = _Work(self, request)
        minis = blocks(scored(request.batch), min(request.updates, len(request.batch)))
        cuts = [self._cut(mini) for mini in minis]
        old = work.old_log_probs(cuts) if self._recipe.old_log_prob else None
        judged = None if self.teacher is None else work.judged_by(self.teacher, cuts)
        with work.phase("update_actor"):
            for epoch in range(request.epochs):
                for mini, cut in zip(minis, cuts, strict=True):
                    for samples in cut:
                        work.backward(samples, old, judged, count=old is None and epoch == 0)
                    self._tokens += target_tokens(mini)
                    if request.step:
                        work.gradient_norms.append(self._update())
        return work.done()

    def warm_up(self) -> None:
        """Two micro-batches and an update that change nothing: the first ones of a process take a quarter longer."""
        row = tuple([0] * WARM_TOKENS)
        rows = [TrainingSample(0, row, tuple(range(1, len(row))), (), 0.0)] * (
            self._recipe.micro_batch_tokens // WARM_TOKENS or 1
        )
        for _ in range(2):
            self.network.log_probs(rows).sum().backward()
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.zero_()
        for group in self._optimizer.param_groups:
            group["lr"] = 0.0
        self._optimizer.step()
        for group in self._optimizer.param_groups:
            group["lr"] = self._recipe.learning_rate
        for state in self._optimizer.state.values():
            state["step"].zero_()
        self._optimizer.zero_grad(set_to_none=True)

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Of every token but the first, for each sequence, under the weights of now."""
        rows = [TrainingSample(0, tuple(row), tuple(range(1, len(row))), (), 0.0) for row in sequences]
        with self._torch.no_grad():
            return [self.network.log_probs([row]).tolist() for row in rows]

    def _cut(self, mini: Sequence[TrainingSample]) -> Cut:
        return shard(mini, self._rank, self._recipe.processes, self._recipe.micro_batch_tokens)

    def _update(self) -> float:
        """Turn sums of gradients over tokens into the mean, clip it, step; the norm before clipping.

        Reduction over ranks divides by their number, which the mean over all tokens must not.
        """
        scale = self._recipe.processes / max(self._tokens, 1)
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
        norm = self._torch.nn.utils.clip_grad_norm_(self._parameters, self._recipe.most_gradient_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._tokens = 0
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


class _Work:
    """One order, and what is counted while it is carried out."""

    def __init__(self, rank: Rank, request: TrainRequest) -> None:
        self._torch = require_live("torch")
        self._network, self._objective = rank.network, rank._recipe.objective
        self._phases: list[tuple[str, float]] = []
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._log_weights: dict[int, float] = {}
        self.gradient_norms: list[float] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what the device does inside."""
        self._network.wait()
        start = perf_counter()
        yield
        self._network.wait()
        self._phases.append((name, perf_counter() - start))

    def old_log_probs(self, cuts: Sequence[Cut]) -> dict[int, Any]:
        """Log-probabilities of the samples of all micro-batches, by index."""
        old: dict[int, Any] = {}
        with self.phase("old_log_prob"), self._torch.no_grad():
            for samples in (samples for cut in cuts for samples in cut):
                flat = self._network.log_probs(samples)
                self._weigh(samples, flat)
                old.update(zip((one.index for one in samples), _split(flat, samples), strict=True))
        return old

    def judged_by(self, teacher: Network, cuts: Sequence[Cut]) -> dict[int, Any]:
        """The teacher's log-probabilities of the samples of all micro-batches, by index."""
        judged: dict[int, Any] = {}
        with self.phase("reference"), self._torch.no_grad():
            for samples in (samples for cut in cuts for samples in cut):
                flat = teacher.log_probs(samples)
                judged.update(zip((one.index for one in samples), _split(flat, samples), strict=True))
        return judged

    def backward(
        self, samples: Sequence[TrainingSample], old: dict[int, Any] | None, judged: dict[int, Any] | None, count: bool
    ) -> None:
        """Add the gradients of the losses of a micro-batch's tokens."""
        new = self._network.log_probs(samples)
        # The engines' log-probabilities; the trainer's own where engines do not tell.
        parts = zip(samples, _split(new.detach(), samples), strict=True)
        behaviour = self._join([self._floats(one.behaviour) if one.behaviour else own for one, own in parts])
        if count:
            self._weigh(samples, new.detach())
        then = behaviour if old is None else self._join([old[one.index] for one in samples])
        gains = self._gains(samples, then, judged)
        losses = self._objective.losses(new, then, self._objective.weights(then, behaviour), gains)
        losses.sum().backward()
        self._count(losses.detach(), new.detach(), then, behaviour, gains)

    def _gains(self, samples: Sequence[TrainingSample], then: Any, judged: dict[int, Any] | None) -> Any:
        """Gain of each token: its sample's advantage, or how much likelier the teacher finds it.

        The latter is minus the term of the token in KL(student || teacher) (arXiv 2306.13649, on-policy).
        """
        if judged is None:
            return self._floats([one.advantage for one in samples for _ in one.targets])
        gains = self._join([judged[one.index] for one in samples]) - then
        self._sums["teacher"] -= float(gains.sum())
        return gains

    def done(self) -> RankResult:
        """The measurements of the batch."""
        return RankResult(tuple(self._phases), dict(self._sums), self._log_weights, tuple(self.gradient_norms))

    def _count(self, losses: Any, new: Any, old: Any, behaviour: Any, gains: Any) -> None:
        most = self._objective.most_weight
        self._sums["tokens"] += len(losses)
        self._sums["loss"] += float(losses.sum())
        self._sums["clips"] += float(self._objective.clips(new, old, gains).sum())
        self._sums["capped"] += float(((old - behaviour).exp() > most).sum()) if most else 0.0
        self._sums["divergence"] += float(divergence(behaviour, old).sum())

    def _weigh(self, samples: Sequence[TrainingSample], flat: Any) -> None:
        """Keep, for each sample, the logarithm of the trainer's probability over that of the engine."""
        for one, own in zip(samples, _split(flat, samples), strict=True):
            if one.behaviour or not one.targets:
                self._log_weights[one.index] = float(own.sum()) - sum(one.behaviour)

    def _join(self, parts: list[Any]) -> Any:
        return self._torch.cat(parts) if parts else self._floats([])

    def _floats(self, values: Sequence[float]) -> Any:
        return self._torch.tensor(values, dtype=self._torch.float32, device=self._network.device)


def _split(flat: Any, samples: Sequence[TrainingSample]) -> Sequence[Any]:
    """A flat tensor by sample."""
    parts: Sequence[Any] = flat.split([len(one.targets) for one in samples]) if samples else ()
    return parts
