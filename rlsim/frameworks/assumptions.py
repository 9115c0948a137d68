"""What a configuration file does not say and a scenario needs: an assumption, with its reason, never in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.costs import catalogue
from rlsim.costs.memory import kv_blocks
from rlsim.costs.profile import fitting_profile

MEAN_SHARE = 0.3
"""Mean response length as a share of its cap: an assumption, to be replaced by the mean of a log."""
PROMPT_SHARE = 0.25
SIGMA = 0.8
LONGEST_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Assumed:
    """A value that no key gave."""

    path: str
    value: Any
    reason: str


_PROMPT, _RESPONSE, _LIMIT = "workload.prompt_tokens", "workload.response_tokens", "rollout.max_model_len"

_FIXED: tuple[tuple[str, Any, str], ...] = (
    ("trainer.gpus", 8, "no key gives the number"),
    ("rollout.gpus", 8, "no key gives the number"),
    ("rollout.step_time.source", "roofline", "an estimate; a measured profile is better"),
    ("trainer.mfu", 0.4, "no key gives it; calibrate on a log"),
    ("workload.prompts_per_step", 128, "no key gives the number"),
    ("workload.group_size", 8, "no key gives the number"),
    ("run.steps", 8, "of the simulation, not of the training run"),
    ("run.warmup_steps", 2, "left out of every mean"),
)
SENSITIVITY_REASON = "a configuration gives the cap alone"


DEVICES = ("H100-SXM", "H200-SXM", "B200")
"""GPUs that are assumed where no key names one: the first that holds the model."""


PARAMETER_BYTES = (2.0, 1.0, 0.5)
"""Bytes of a weight of the engine, tried in this order: fewer where the model fits no GPU with more."""


def assume(
    flat: dict[str, Any], shares_gpus: bool, device: str = DEVICES[0], bytes_per_parameter: float = PARAMETER_BYTES[0]
) -> list[Assumed]:
    """Fill in what is missing in ``flat`` (values by scenario key); what was assumed, in order."""
    assumed: list[Assumed] = []

    def put(path: str, value: Any, reason: str) -> None:
        if path not in flat:
            flat[path] = value
            assumed.append(Assumed(path, value, reason))

    _roles(flat, shares_gpus, put)
    fits = "" if device == DEVICES[0] else f"; the model does not fit {DEVICES[0]}"
    put("cluster.device", device, f"no key names the GPU{fits}")
    profile = _profile(flat)
    if profile is not None:
        put("rollout.step_time.source", "profile", "shipped for this model, GPU and split")
        put("rollout.step_time.profile", profile, "shipped for this model, GPU and split")
    for path, value, reason in _FIXED:
        put(path, value, reason)
    if bytes_per_parameter != PARAMETER_BYTES[0]:
        blocks = _blocks(flat, bytes_per_parameter)
        if blocks is not None:
            reason = f"weights of {bytes_per_parameter:g} bytes a parameter: with {PARAMETER_BYTES[0]:g} nothing fits"
            put("rollout.kv_blocks", blocks, reason)
    _lengths(flat, put)
    together = max if shares_gpus else lambda *sizes: sum(sizes)
    flat.setdefault("cluster.gpus", _sum(together, flat))
    assumed += _fitted(flat)
    return assumed


def _profile(flat: dict[str, Any]) -> str | None:
    """The shipped profile that fits; None where the model is not known or no profile has its split."""
    try:
        shape = catalogue.model(str(flat.get("model")))
    except ParameterError:
        return None
    tensor, experts = flat.get("rollout.tensor_parallel", 1), flat.get("rollout.expert_parallel", 1)
    apart = flat.get("rollout.pipeline_parallel", 1) > 1 or flat.get("rollout.data_parallel", 1) > 1
    return None if apart else fitting_profile(shape.name, str(flat["cluster.device"]), tensor, experts)


def _blocks(flat: dict[str, Any], bytes_per_parameter: float) -> int | None:
    """KV blocks that smaller weights leave room for; None where there is none, or the model is not known."""
    try:
        return kv_blocks(
            catalogue.model(str(flat.get("model"))),
            catalogue.device(str(flat["cluster.device"])),
            flat.get("rollout.tensor_parallel", 1),
            flat.get("rollout.pipeline_parallel", 1),
            flat.get("rollout.gpu_memory_utilization", 0.9),
            expert_parallel=flat.get("rollout.expert_parallel", 1),
            bytes_per_parameter=bytes_per_parameter,
        )
    except ParameterError:
        return None


def _roles(flat: dict[str, Any], shares_gpus: bool, put: Callable[[str, Any, str], None]) -> None:
    """GPUs of a role whose number no key gives, from the cluster's and the other role's."""
    total = flat.get("cluster.gpus")
    if isinstance(total, int) and total > 1 and not shares_gpus and not {"rollout.gpus", "trainer.gpus"} & flat.keys():
        put("trainer.gpus", total // 2, "half of the cluster")
    for role, other in (("rollout.gpus", "trainer.gpus"), ("trainer.gpus", "rollout.gpus")):
        if role in flat:
            continue
        if isinstance(total, int) and shares_gpus:
            put(role, total, "all of the cluster")
        elif isinstance(total, int) and isinstance(flat.get(other), int) and total > flat[other]:
            put(role, total - flat[other], "what the other role leaves of the cluster")
        elif other in flat:
            put(role, flat[other], f"as {other}")


def _sum(together: Callable[..., Any], flat: dict[str, Any]) -> Any:
    sizes = [flat["trainer.gpus"], flat["rollout.gpus"]]
    return together(*sizes) if all(isinstance(size, int) for size in sizes) else sizes[0]


def _lengths(flat: dict[str, Any], put: Callable[[str, Any, str], None]) -> None:
    """Laws of lengths from their caps, which are all that a configuration has."""
    limit = flat.get(_LIMIT)
    put(f"{_PROMPT}.cap_tokens", max(1, (limit or LONGEST_TOKENS) // 8), "no key caps the prompt")
    prompt = flat[f"{_PROMPT}.cap_tokens"]
    if isinstance(limit, int) and isinstance(prompt, int):
        put(f"{_RESPONSE}.cap_tokens", limit - prompt if prompt < limit else limit, "what the engine's limit leaves")
    put(f"{_RESPONSE}.cap_tokens", LONGEST_TOKENS, "no key caps the response")
    prompt, response = (_within(flat[f"{path}.cap_tokens"], limit) for path in (_PROMPT, _RESPONSE))
    put(f"{_PROMPT}.law", "constant", "only the cap is known")
    put(f"{_PROMPT}.tokens", _share(prompt, PROMPT_SHARE), f"{PROMPT_SHARE:g} of the cap")
    put(f"{_RESPONSE}.law", "lognormal", "only the cap is known")
    put(f"{_RESPONSE}.mean_tokens", _share(response, MEAN_SHARE), f"{MEAN_SHARE:g} of the cap; take it from a log")
    put(f"{_RESPONSE}.sigma", SIGMA, "spread of the logarithm; take it from a log")
    flat["sensitivity"] = [
        {"key": f"{_RESPONSE}.mean_tokens", "values": _shares(response), "reason": SENSITIVITY_REASON},
        {"key": f"{_RESPONSE}.sigma", "values": [0.5, 1.1], "reason": SENSITIVITY_REASON},
    ]


def _within(cap: Any, limit: Any) -> Any:
    """A cap, or the engine's own limit where that is less: it cuts there."""
    return min(cap, limit) if isinstance(cap, int) and isinstance(limit, int) else cap


def _share(cap: Any, share: float) -> Any:
    return max(1, round(cap * share)) if isinstance(cap, int) else cap


def _shares(cap: Any) -> list[Any]:
    return [_share(cap, MEAN_SHARE / 2), _share(cap, min(1.0, MEAN_SHARE * 2))]


def _fitted(flat: dict[str, Any]) -> list[Assumed]:
    """The engine's own limits that must agree with those that a configuration gives."""
    assumed = []
    slots, budget = flat.get("rollout.max_num_seqs"), flat.get("rollout.max_num_batched_tokens")
    if flat.get("rollout.enable_chunked_prefill") is False and flat.get(_LIMIT) is None:
        longest = flat[f"{_PROMPT}.cap_tokens"] + flat[f"{_RESPONSE}.cap_tokens"]
        assumed.append(Assumed(_LIMIT, longest, "prompt and response: without chunked prefill it must be set"))
    limit = assumed[0].value if assumed else flat.get(_LIMIT)
    least = limit if flat.get("rollout.enable_chunked_prefill") is False else slots
    if isinstance(least, int) and least > (budget or 8192):
        reason = "a whole prompt, as chunked prefill is off" if least == limit else "at least the sequences of a step"
        assumed.append(Assumed("rollout.max_num_batched_tokens", least, reason))
    flat |= {one.path: one.value for one in assumed}
    return assumed
