"""Needs of a run, and the refusals when its servers lack a capability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlsim.core.commands import UpdateMode
from rlsim.core.errors import ParameterError
from rlsim.live.openai.capabilities import ServerCapabilities
from rlsim.policies.migration import Stay
from rlsim.policies.protocols import ElasticReplicas, Policy
from rlsim.resolve.scenario import ResolvedScenario
from rlsim.scenario.discipline import DisciplineConfig


@dataclass(frozen=True, slots=True)
class ServerNeeds:
    """Demands of a scenario's policy and workload on every server."""

    replicas: int
    update: UpdateMode
    exact_lengths: bool
    """The workload decides lengths, not the model."""
    token_ids: bool
    """Something reads the responses: a task's reward, a trainer."""
    log_probs: bool
    loads_weights: bool
    """A model is trained, and its weights go to the servers."""
    cuts: bool
    """Calls may be ended before they end by themselves."""
    ranks: bool
    moves_kv: bool
    discipline: bool
    sleeps: bool
    """The servers' GPUs are the trainer's too."""
    keeps_kv: bool = True
    """KV of earlier turns stays in the prefix cache as long as there is room, and is not moved to the host."""
    longest_tokens: int = 0
    """Of prompt and response; 0 where the scenario sets no limit."""


def needs_of(
    plan: ResolvedScenario, policy: Policy, *, task: bool = False, trained: bool = False, log_probs: bool = False
) -> ServerNeeds:
    """Needs of a run; ``task``: lengths are the model's own, ``trained``: its weights go to the servers.

    Whether calls are cut is known as far as the parts tell beforehand: leftovers may still give up running groups.
    """
    moves = not isinstance(policy.migration, Stay)
    ends = (
        policy.leftovers.ends_round or policy.allocation.aborts_surplus or isinstance(policy.placement, ElasticReplicas)
    )
    return ServerNeeds(
        replicas=plan.shape.replicas,
        update=policy.update.mode,
        exact_lengths=not task,
        token_ids=task or trained,
        log_probs=trained or log_probs,
        loads_weights=trained,
        cuts=moves or ends or policy.update.mode == "abort",
        ranks=policy.ordering.ranks,
        moves_kv=policy.ordering.shares_kv or policy.migration.transfers_kv,
        discipline=any(section.discipline != DisciplineConfig() for section in plan.scenario.rollout.sections()),
        sleeps=policy.placement.shared or isinstance(policy.placement, ElasticReplicas),
        keeps_kv=plan.scenario.rollout.kv_while_waiting == "keep",
        longest_tokens=plan.scenario.rollout.max_model_len or 0,
    )


def refusals(needs: ServerNeeds, capabilities: Sequence[ServerCapabilities]) -> list[ParameterError]:
    """Everything that these servers cannot give, each with the key to change; empty where the run may start."""
    errors = []
    if len(capabilities) != needs.replicas:
        allowed = f"{needs.replicas} URLs, one a replica of the scenario"
        errors.append(ParameterError("live.servers", f"{len(capabilities)} URLs", allowed))
    if needs.discipline:
        allowed = "no rule beyond vLLM's own: a server behind an API cannot take one"
        errors.append(ParameterError("rollout.discipline", "an engine discipline", allowed))
    if not needs.keeps_kv:
        allowed = "keep: a server holds the KV of earlier turns in its prefix cache as long as there is room"
        errors.append(ParameterError("rollout.kv_while_waiting", "drop or offload", allowed))
    for index, server in enumerate(capabilities):
        for key, lacks, allowed in (*_calls(needs, server), *_weights(needs, server)):
            errors.append(ParameterError(key or f"live.servers[{index}]", f"{server.url}: {lacks}", allowed))
    return errors


Lack = tuple[str, str, str]
"""(key path, or empty for the server's own; what it lacks; what would do)."""


def _calls(needs: ServerNeeds, capabilities: ServerCapabilities) -> Iterator[Lack]:
    if needs.exact_lengths and not capabilities.exact_lengths:
        yield "", "does not make a given number of tokens", "a server that honours ignore_eos"
    if needs.longest_tokens and 0 < capabilities.max_model_len < needs.longest_tokens:
        allowed = f"at most {capabilities.max_model_len}, the server's own limit"
        yield "rollout.max_model_len", f"serves no {needs.longest_tokens} tokens", allowed
    if needs.token_ids and capabilities.prompt is not None:
        yield "", "takes no token ids", "a server that takes token ids: the task's prompts are some"
    if needs.token_ids and not capabilities.token_ids:
        yield (
            "",
            "does not say which tokens it made",
            "a server that returns token ids, or no task and no trained model",
        )
    if needs.log_probs and not capabilities.log_probs:
        allowed = "a server that gives log-probs of what it samples, or no trained model and no part that watches"
        yield "", "gives no log-probs", allowed
    if needs.cuts and not capabilities.counts:
        yield "policy", "does not count tokens while a call runs", "a policy that cuts no calls"
    if needs.ranks and not capabilities.priorities:
        yield "policy", "takes no priorities", "an ordering without ranks (fcfs), or a server with priority scheduling"
    if needs.moves_kv:
        yield "policy", "moves no KV between replicas", "an ordering and a migration that compute it again"


def _weights(needs: ServerNeeds, capabilities: ServerCapabilities) -> Iterator[Lack]:
    if needs.update in ("keep", "rebuild"):
        if not capabilities.pause:
            yield "policy", "cannot pause calls", "an update mode without calls under way: drain, abort, pull"
        if not capabilities.span_versions:
            allowed = "drain, abort or pull; or vLLM with --enable-scale-out"
            yield "policy", "does not say by which weights each token was made", allowed
    if needs.update == "rebuild" and not capabilities.reset:
        yield "policy", "cannot rebuild KV of running calls", "another update mode"
    if needs.loads_weights and not (capabilities.update and capabilities.pause):
        allowed = "vLLM with VLLM_SERVER_DEV_MODE=1 and a weight transfer backend, or no trained model"
        yield "", "cannot load weights in place", allowed
    if needs.sleeps and not capabilities.sleep:
        yield "policy", "cannot sleep", "a placement of its own GPUs (disaggregated)"
