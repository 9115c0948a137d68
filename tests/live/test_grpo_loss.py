"""The loss of tokens, and its gradient, against values computed by hand; in torch."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from rlsim.live.torch.grpo import Objective, divergence

RATIOS = [1.0, 1.1, 1.5, 0.5, 1.5, 0.5]
GAINS = [1.0, -2.0, 2.0, 2.0, -1.0, -1.0]


def logs(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def losses(objective: Objective, new: torch.Tensor, old: torch.Tensor, behaviour: torch.Tensor) -> torch.Tensor:
    return objective.losses(new, old, objective.weights(old, behaviour), torch.tensor(GAINS, dtype=torch.float64))


def test_losses_of_clipped_and_unclipped_tokens() -> None:
    """``-min(r A, clip(r) A)`` with r clipped to [0.8, 1.3], behaviour as old."""
    old = logs([0.25] * 6)
    found = losses(Objective(0.2, 0.3), old + logs(RATIOS), old, old)
    assert found.tolist() == pytest.approx([-1.0, 2.2, -2.6, -1.0, 1.5, 0.8])


def test_clipped_tokens_give_no_gradient_and_others_that_of_the_ratio() -> None:
    old = logs([0.25] * 6)
    new = (old + logs(RATIOS)).requires_grad_()
    objective = Objective(0.2, 0.3)
    losses(objective, new, old, old).sum().backward()
    expected = [-r * a for r, a in zip(RATIOS, GAINS, strict=True)]
    clipped = [False, False, True, False, False, True]
    assert new.grad.tolist() == pytest.approx([0.0 if c else e for c, e in zip(clipped, expected, strict=True)])
    assert objective.clips(new.detach(), old, torch.tensor(GAINS)).tolist() == clipped


def test_weights_are_truncated_and_carry_no_gradient() -> None:
    behaviour = logs([0.5, 0.25, 0.1, 0.5, 0.5, 0.5])
    old = logs([0.25, 0.5, 0.5, 0.5, 0.5, 0.5])
    new = old.clone().requires_grad_()
    losses(Objective(most_weight=3.0), new, old, behaviour).sum().backward()
    assert new.grad.tolist() == pytest.approx([-0.5 * 1, 2.0 * 2, -3.0 * 2, -2.0, 1.0, 1.0])


def test_without_correction_the_behaviour_does_not_matter() -> None:
    old, objective = logs([0.5] * 6), Objective(most_weight=None)
    assert objective.weights(old, logs([0.01] * 6)).tolist() == [1.0] * 6
    assert torch.equal(losses(objective, old, old, logs([0.01] * 6)), losses(objective, old, old, old))


def test_the_mean_divergence_of_samples_is_the_divergence() -> None:
    """Over all outcomes, weighted by their probability, it is the sum of p log(p / q) exactly."""
    p, q = [0.7, 0.2, 0.1], [0.4, 0.4, 0.2]
    terms = divergence(logs(p), logs(q))
    assert (terms >= 0).all()
    exact = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert float((torch.tensor(p, dtype=torch.float64) * terms).sum()) == pytest.approx(exact)
