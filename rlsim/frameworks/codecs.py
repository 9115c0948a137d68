"""Relations between a framework's numbers and a scenario's; each can be read in both directions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rlsim.frameworks.mapping import Codec, Partial

NODE_GPUS = 8
"""GPUs of a node, where a framework counts nodes and a scenario does not say."""


def whole(value: Any) -> int:
    """A count; ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("whole numbers, at least 1")
    return value


def divided(total: int, by: int, what: str) -> int:
    """The quotient; ``ValueError`` where there is a rest."""
    if by < 1 or total % by:
        raise ValueError(f"{what} that divides {total} without rest")
    return total // by


def nodes_of(gpus: int, most: int = NODE_GPUS) -> tuple[int, int]:
    """Nodes and GPUs of each, the fullest nodes that make up ``gpus``."""
    each = max(size for size in range(1, most + 1) if gpus % size == 0)
    return gpus // each, each


def checkpoint_name(name: Any) -> str:
    """The last component of a checkpoint's name or path; a path of a ``config.json`` that is there stays whole."""
    text = str(name or "").rstrip("/")
    if not text:
        raise ValueError("the name of a model")
    if text.endswith("config.json") or Path(text, "config.json").is_file():
        return text
    return text.rpartition("/")[2]


def mini_batches(total: int, mini: Any, *known: Any) -> int:
    """Mini-batches in a step; Partial, with the values that are ``known`` without it, where they do not divide."""
    try:
        return divided(total, whole(mini), "a mini-batch")
    except ValueError as error:
        raise Partial((*known, None), str(error)) from None


def _updates(batch: Any, mini: Any) -> tuple[int, int]:
    return whole(batch), mini_batches(whole(batch), mini, batch)


def _mini_batch(prompts: int, updates: int) -> tuple[int, int]:
    return prompts, divided(prompts, updates, "a number of updates")


def _sample_updates(prompts: Any, group: Any, mini: Any) -> tuple[int, int, int]:
    samples = whole(prompts) * whole(group)
    return prompts, group, 1 if mini is None else mini_batches(samples, mini, prompts, group)


def _mini_samples(prompts: int, group: int, updates: int) -> tuple[int, int, int]:
    return prompts, group, divided(prompts * group, updates, "a number of updates")


def _shares(gpus: int, *rest: Any) -> tuple[int, int]:
    return nodes_of(gpus)


MODEL = Codec(lambda name: (checkpoint_name(name),), lambda name: (name,), "name of the checkpoint")
GPUS = Codec(lambda nodes, each: (whole(nodes) * whole(each),), nodes_of, "nodes x GPUs of a node")
SHARED_GPUS = Codec(
    lambda nodes, each: (whole(nodes) * whole(each),) * 2, _shares, "nodes x GPUs of a node, for both roles"
)
ENGINE_GPUS = Codec(
    lambda engines, tensor: (whole(engines) * whole(tensor), tensor),
    lambda gpus, tensor: (divided(gpus, tensor, "GPUs of an engine"), tensor),
    "GPUs = engines x tensor",
)
UPDATES = Codec(_updates, _mini_batch, "updates = prompts / mini-batch")
SAMPLE_UPDATES = Codec(_sample_updates, _mini_samples, "updates = prompts x samples / mini-batch in samples")
REFERENCE = Codec(
    lambda loss, reward: (bool(loss) or bool(reward),), lambda kept: (kept, False), "a KL term of either kind"
)
KL = Codec(
    lambda weight: (weight not in (0, None),),
    lambda kept: (0.001 if kept else 0.0,),
    "a weight that is not 0: with a reference model",
)
BALANCE = Codec(lambda on: ("lpt" if on else "none",), lambda kind: (kind == "lpt",), "true: lpt, false: none")
EITHER = Codec(lambda *flags: (any(flags),), lambda flag: (flag, False), "either")
RECOMPUTE = Codec(lambda kind: (kind is not None,), lambda kept: ("full" if kept else None,), "full or selective: true")
ALL_OFFLOADED = Codec(
    lambda on: (bool(on), bool(on)), lambda optimizer, weights: (optimizer,), "optimizer state and weights"
)
NOT = Codec(lambda flag: (not flag,), lambda flag: (not flag,), "the opposite")


def _carved(nodes: Any, each: Any, lent_nodes: Any, lent_each: Any) -> tuple[int, int]:
    total = whole(nodes) * whole(each)
    lent = whole(lent_each) if nodes == 1 else whole(lent_nodes) * whole(lent_each or each)
    if lent >= total:
        raise ValueError(f"fewer GPUs for generation than the cluster's {total}")
    return total - lent, lent


def _whole_nodes(trainer: int, rollout: int) -> tuple[int, int, int, int]:
    if trainer + rollout <= NODE_GPUS:
        return 1, trainer + rollout, 1, rollout
    _, each = nodes_of(math.gcd(trainer, rollout))
    return (trainer + rollout) // each, each, rollout // each, each


CARVED_GPUS = Codec(_carved, _whole_nodes, "the cluster less the nodes (on one node: the GPUs) for generation")
