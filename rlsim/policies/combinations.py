"""Parts that do not go together: what would stall is refused before anything runs, with the reason.

The rules read what parts state about themselves (:mod:`rlsim.policies.facts`), their hooks and their protocols. They
name no part, so that a user's own part is refused where a shipped one is.
"""

from __future__ import annotations

from collections.abc import Callable

from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes
from rlsim.policies.facts import DispatchFacts, part_name
from rlsim.policies.hooks import Branches, Extends, Regrows, Rejects, Replays, Resizes, Reuses, Watches
from rlsim.policies.protocols import PROTOCOLS, ElasticReplicas, Policy, PolicyFacts
from rlsim.policies.registry import parts_of

Rule = Callable[[Policy, PolicyFacts, RunSizes], None]


def check(policy: Policy, shape: RunSizes) -> None:
    """Refuse a policy that cannot work; ``ParameterError`` with ``choice.parameter`` as its path."""
    for choice, protocol in PROTOCOLS.items():
        part = getattr(policy, choice)
        missing = [name for name in vars(protocol) if not name.startswith("_") and not hasattr(part, name)]
        if missing:
            allowed = f"a part with {', '.join(missing)} (rlsim.policies.protocols.{protocol.__name__})"
            raise ParameterError(f"{choice}.use", type(part).__name__, allowed)
    facts = policy.facts
    for rule in (*_RULES_OF_SHARED_GPUS, *_RULES) if policy.placement.shared else _RULES:
        rule(policy, facts, shape)


def _check_sleep(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """The engines on shared GPUs sleep while the trainer works."""
    batching = facts.batching
    if policy.update.mode != "drain":
        allowed = "drain: engines on shared GPUs sleep while the trainer works, so no call is under way at an update"
        raise ParameterError("update.mode", policy.update.mode, allowed)
    if facts.update.every_steps > 1:
        allowed = "1: engines on shared GPUs wake with the trained weights after every step"
        raise ParameterError("update.every_steps", facts.update.every_steps, allowed)
    if batching.streams:
        allowed = "complete-groups or exact-target: on shared GPUs nothing generates while a micro-batch trains, "
        raise ParameterError(
            "batching.use", _name(policy, "batching"), allowed + "so the rest of the batch never comes"
        )
    if batching.batches_per_step > 1:
        allowed = "1: on shared GPUs nothing generates while a local batch trains, so the next one never comes"
        raise ParameterError("batching.batches_per_step", batching.batches_per_step, allowed)


def _check_nothing_left(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    if not policy.leftovers.ends_round and _runs_ahead(policy, facts, shape):
        allowed = "end-round: on shared GPUs this admission leaves calls under way when a batch is taken, and they "
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed + "can never drain")
    if facts.allocation.spares and not policy.allocation.aborts_surplus and not policy.leftovers.ends_round:
        allowed = "true: on shared GPUs spare samples that run on when a batch is taken can never drain"
        raise ParameterError("allocation.aborts_surplus", False, allowed)


def _check_published_steps(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Admission that counts versions starves a trainer that takes several batches a version."""
    every, per_version = facts.update.every_steps, facts.admission.batches_per_version
    setting, value = facts.update.interval or ("every_steps", every)
    if facts.leftovers.compares_steps and every > 1:
        allowed = "a version for every step: off-policy-steps compares the two"
        raise ParameterError(f"update.{setting}", value, allowed)
    cuts = policy.leftovers.ends_round and _runs_ahead(policy, facts, shape)
    whole = facts.admission.whole_batches and not (_may_drop(policy, facts) or facts.allocation.spares or cuts)
    if facts.update.publishes_when_drained and whole:
        return  # What is in flight makes whole batches, and after the last of them publication is due.
    if per_version is not None and every > per_version:
        reason = f"this admission lets {per_version} batch(es) in for each version, then the trainer starves"
        raise ParameterError(f"update.{setting}", value, f"at most {per_version}: {reason}")


def _check_targets(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    if facts.batching.waits_for_target and _may_drop(policy, facts):
        allowed = "keep-all, or end-round that keeps unfinished and surplus groups: exact-target waits for ever "
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed + "for a dropped group")


def _check_rounds(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    leftovers, admission = policy.leftovers, facts.admission
    if admission.submits_by_round and (facts.leftovers.drops_by_age or not leftovers.ends_round):
        name = _name(policy, "admission")
        allowed = f"end-round: {name} submits by the round, and replaces nothing that is dropped within it"
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed)
    stuck = admission.counts_unfinished and leftovers.keeps_unfinished
    if leftovers.ends_round and (stuck or admission.counts_begun_samples):
        allowed = "keep-all or drop-old: groups that a round's end cuts keep their places in this admission's count, "
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed + "so it may never resume them")


def _check_tests(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """A publication that is refused makes no version, and admission that counts versions lets nothing in for it."""
    counted = not facts.admission.counts_refused_versions and facts.admission.batches_per_version is not None
    if facts.update.tests_candidates and (counted or facts.leftovers.compares_steps):
        name, allowed = _name(policy, "admission"), "barrier, or one that does not count versions: "
        raise ParameterError("admission.use", name, allowed + "weights that are refused make none, then it starves")


def _check_spares(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """A lag counted in samples that groups need would be used up by samples to spare."""
    if not facts.admission.counts_begun_samples:
        return
    name, allocation = _name(policy, "allocation"), policy.allocation
    if facts.allocation.spares:
        allowed = "uniform without redundancy: the samples to spare would use up the lag of this admission"
        raise ParameterError("allocation.use", name, allowed)
    if isinstance(allocation, Extends) or (isinstance(allocation, Resizes) and allocation.resizes):
        allowed = (
            "one with groups of workload.group_size at once: others would use up the lag of this admission, which "
        )
        raise ParameterError("allocation.use", name, allowed + "counts samples")


def _check_rejects(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Groups of later steps fill the round, so that what was rejected of the one waited for is never replaced."""
    if not isinstance(policy.allocation, Rejects | Watches):
        return
    if facts.admission.submits_by_round and _waits_for_some(facts):
        allowed = "complete-groups: this admission counts the groups of a round, and this allocation rejects some"
        raise ParameterError("batching.use", _name(policy, "batching"), allowed)
    if facts.admission.stops_at_full_buffer and facts.batching.waits_for_target:
        allowed = "complete-groups: groups of later steps may fill the buffer of this admission, and then what this "
        raise ParameterError("batching.use", _name(policy, "batching"), allowed + "allocation rejects is not replaced")


def _check_waves(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Further samples of a group that is waited for may not enter while a buffer is full of other groups."""
    grows = isinstance(policy.allocation, Extends | Regrows | Branches) and policy.admission.unit == "sample"
    if grows and facts.admission.stops_at_full_buffer and _waits_for_some(facts):
        allowed = "complete-groups: other groups may fill the buffer of this admission, and then further samples of "
        raise ParameterError("batching.use", _name(policy, "batching"), allowed + "the group waited for never enter")


def _check_roundwise(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Where groups are judged once nothing is under way, work must not be replaced as it ends."""
    if facts.allocation.judges_rounds and not facts.admission.admits_when_idle:
        allowed = "rounds or barrier: groups are judged once nothing is under way, and this admission lets more in"
        raise ParameterError("admission.use", _name(policy, "admission"), allowed)


def _check_old_steps(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """A fraction of the batch from the oldest step needs the rest of it from the current one."""
    if facts.batching.old_groups is not None and not facts.admission.batch_of_every_version:
        allowed = "ratio: with a fractional ratio every version has to let a batch of its own in"
        raise ParameterError("admission.use", _name(policy, "admission"), allowed)


def _check_waits(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Work that is replaced without end is never all complete."""
    admission, leftovers = facts.admission, policy.leftovers
    endless = admission.replaces_finished or admission.fills_empty_replicas or admission.open_loop
    if facts.batching.waits_from_age == 1 and (endless or admission.adds_prompts):
        allowed = "at least 2: this admission replaces what ends, and 1 waits until nothing is under way"
        raise ParameterError("batching.max_off_policy_threshold", 1, allowed)
    if admission.adds_prompts and not (leftovers.ends_round and not leftovers.keeps_unfinished):
        allowed = "end-round without keeps_unfinished: additional prompts are aborted when the batch is complete"
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed)


def _check_pull(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """A replica that is never empty never takes new weights."""
    full = facts.admission.replaces_finished and not policy.leftovers.ends_round
    if policy.update.mode == "pull" and full:
        allowed = f"drain, abort, keep or rebuild: {_name(policy, 'admission')} keeps the replicas busy, and "
        raise ParameterError("update.mode", "pull", allowed + "with pull they take new weights only when empty")


def _check_refills(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Replicas that no new call goes to are never filled; and what a batch waits for may be behind a full buffer."""
    admission = facts.admission
    if not admission.fills_empty_replicas:
        return
    if admission.stops_at_full_buffer and policy.leftovers.ends_round and _waits_for_some(facts):
        allowed = "complete-groups: with a buffer of this admission the groups waited for may never be resumed"
        raise ParameterError("batching.use", _name(policy, "batching"), allowed)
    if facts.dispatch.may_starve_a_replica:
        name = _name(policy, "dispatch")
        allowed = f"another part: it submits until no replica is empty, and with {name} some get no new call"
        raise ParameterError("admission.use", _name(policy, "admission"), allowed)


def _check_legs(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Prefill legs need both parts, calls that stay where they are, and KV that no update takes away."""
    prefill, leg = facts.dispatch.prefills_on, facts.ordering.prefills_on
    if prefill is None:
        if leg is not None:
            allowed = (
                "another ordering, or dispatch prefill-decode: calls that leave after one token need a place to go on"
            )
            raise ParameterError("ordering.use", _name(policy, "ordering"), allowed)
        return
    if leg != prefill:
        allowed = f"prefill-leg with prefill_pool {prefill.name}: otherwise calls decode on the prefill pool"
        raise ParameterError("ordering.use", _name(policy, "ordering"), allowed)
    if facts.migration.moves_calls:
        allowed = "stay: dispatch prefill-decode says where calls go on, and the pools are not alike"
        raise ParameterError("migration.use", _name(policy, "migration"), allowed)
    if policy.update.mode not in ("drain", "keep"):
        allowed = "drain or keep: the others drop the KV, and then decode replicas prefill what they run"
        raise ParameterError("update.mode", policy.update.mode, allowed)
    if isinstance(policy.placement, ElasticReplicas):
        _check_shared_legs(_name(policy, "placement"), facts.dispatch, set(shape.lent_replicas))


def _check_shared_legs(placement: str, dispatch: DispatchFacts, shared: set[int]) -> None:
    """What has been prefilled goes on at once, so a replica must be there; and a prefill leg that is cut made no KV."""
    prefill, decode = dispatch.prefills_on, dispatch.decodes_on
    if prefill is not None and shared & set(prefill.replicas):
        allowed = f"disaggregated, or another last pool than {prefill.name}: its replicas are the trainer's"
        raise ParameterError("placement.use", placement, f"{allowed} at times, and prefill legs would be cut")
    if decode is not None and shared.issuperset(decode.replicas):
        allowed = f"disaggregated, or a replica of {decode.name} on other GPUs than the trainer's: while it"
        raise ParameterError("placement.use", placement, f"{allowed} trains, nothing that was prefilled could go on")


def _check_arrivals(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Requests that come when they come are submitted then: nothing holds them back, so latency is what they see."""
    if not facts.admission.open_loop:
        return
    if policy.placement.shared:
        allowed = "disaggregated: requests arrive whether or not the trainer works"
        raise ParameterError("placement.use", _name(policy, "placement"), allowed)
    if policy.update.mode not in ("keep", "rebuild", "abort"):
        allowed = "keep, rebuild or abort: requests arrive without end, so replicas are never surely empty"
        raise ParameterError("update.mode", policy.update.mode, allowed)
    if policy.leftovers.ends_round:
        allowed = "keep-all or drop-old: requests arrive without end, and there are no rounds"
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed)
    # An order by rank may starve a call for ever while others arrive.
    if policy.ordering.ranks and shape.group_size > 1:
        allowed = "fcfs where workload.group_size is above 1: groups may never be complete while others arrive"
        raise ParameterError("ordering.use", _name(policy, "ordering"), allowed)
    if policy.ordering.ranks and _waits_for_some(facts):
        allowed = "complete-groups, with this ordering: the group that is waited for may starve while others arrive"
        raise ParameterError("batching.use", _name(policy, "batching"), allowed)


def _check_replays(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """What is trained on again is older than what leftovers keep, or than the steps that a batch is made of."""
    if not isinstance(policy.allocation, Replays):
        return
    if facts.leftovers.drops_by_age:
        allowed = "leftovers that drop nothing for its age: what this allocation replays would be dropped at once"
        raise ParameterError("leftovers.use", _name(policy, "leftovers"), allowed)
    if facts.batching.oldest_step_first:
        allowed = "complete-groups or exact-target: this allocation replays groups of steps long past"
        raise ParameterError("batching.use", _name(policy, "batching"), allowed)


def _check_inherited(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> None:
    """Samples that begin with tokens of others: calls go where these were made, and groups have no fixed size."""
    allocation = policy.allocation
    if isinstance(allocation, Branches | Regrows | Reuses) and facts.dispatch.prefills_on is not None:
        allowed = "another part: prefill legs are told by what a sample has made, and with this allocation some begin "
        raise ParameterError("dispatch.use", _name(policy, "dispatch"), allowed + "with tokens that others made")
    if isinstance(allocation, Branches | Regrows | Replays) and facts.admission.counts_begun_samples:
        allowed = "another part: it counts samples by the lag, and with this allocation groups have more or fewer"
        raise ParameterError("admission.use", _name(policy, "admission"), allowed)


_RULES_OF_SHARED_GPUS: tuple[Rule, ...] = (_check_sleep, _check_nothing_left)
_RULES: tuple[Rule, ...] = (
    _check_published_steps,
    _check_targets,
    _check_rounds,
    _check_pull,
    _check_tests,
    _check_spares,
    _check_old_steps,
    _check_waits,
    _check_legs,
    _check_refills,
    _check_arrivals,
    _check_rejects,
    _check_waves,
    _check_roundwise,
    _check_replays,
    _check_inherited,
)
"""In the order in which a fault is looked for: the first is reported."""


def _waits_for_some(facts: PolicyFacts) -> bool:
    """Whether the trainer waits for certain groups though others are complete."""
    batching = facts.batching
    return batching.waits_from_age is not None or batching.waits_for_target or batching.oldest_step_first


def _runs_ahead(policy: Policy, facts: PolicyFacts, shape: RunSizes) -> bool:
    """Whether calls may be under way when a batch is taken."""
    round_groups = facts.admission.round_groups
    if round_groups is None or facts.allocation.judges_rounds:
        return facts.admission.runs_ahead
    return shape.prompts_per_step % round_groups > 0 or isinstance(policy.allocation, Rejects)


def _may_drop(policy: Policy, facts: PolicyFacts) -> bool:
    leftovers = policy.leftovers
    return facts.leftovers.may_drop or (
        leftovers.ends_round and not (leftovers.keeps_unfinished and leftovers.keeps_surplus)
    )


def _name(policy: Policy, choice: str) -> str:
    started = getattr(policy, choice)
    registered = (name for name, cls in parts_of(choice).items() if type(started) is cls)
    return part_name(started, next(registered, None))
