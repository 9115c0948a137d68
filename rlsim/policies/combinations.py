"""Parts that do not go together: what would stall is refused before anything runs, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes
from rlsim.policies import protocols
from rlsim.policies.admission.bounded_staleness import (
    BatchesAhead,
    Budget,
    CumulativeCapacity,
    LeadGate,
    Ratio,
    Running,
    TargetReservation,
)
from rlsim.policies.admission.fixed_concurrency import (
    EmptyReplicas,
    EngineQueue,
    FixedPool,
    LaggedSeats,
    OneForOne,
    Producers,
    QueueSlots,
    Seats,
    Slots,
)
from rlsim.policies.admission.open_loop import Arrivals
from rlsim.policies.admission.synchronous import Barrier, OverSample, Rounds, TailBatching
from rlsim.policies.allocation.filtering import RoundwiseSampling
from rlsim.policies.allocation.group_size import ShortRounds, Uniform
from rlsim.policies.batching import ExactTarget, Local, Steps, Stream
from rlsim.policies.dispatch.pools import Legs, Lengths, OwnPools
from rlsim.policies.hooks import Branches, Extends, Regrows, Rejects, Replays, Resizes, Reuses, Watches
from rlsim.policies.leftovers import DropOld, MaxOffPolicy, OffPolicySteps
from rlsim.policies.migration import Stay
from rlsim.policies.ordering.chunked import Legged
from rlsim.policies.protocols import Elastic, Policy, Tests
from rlsim.policies.registry import CHOICES
from rlsim.policies.update import Deferral, Publish

_ALWAYS_FULL = Seats | Slots | FixedPool | LeadGate | OneForOne | EngineQueue | Producers
"""Admission that replaces what ends, whatever the version."""
_BY_VERSION = Barrier | CumulativeCapacity | TargetReservation | TailBatching | BatchesAhead | Running | Ratio
"""Admission of a batch for each version."""
_BY_POOL: dict[type, str] = {Legs: "prefill-decode", Lengths: "by-context", OwnPools: "by-class"}
"""Dispatch for which some replicas may get no new call."""
_BATCH_AFTER_BATCH = Barrier | CumulativeCapacity | TargetReservation
_PROTOCOLS: dict[str, type] = {choice: getattr(protocols, choice.capitalize()) for choice in CHOICES}


def check(policy: Policy, shape: RunSizes) -> None:
    """Refuse a policy that cannot work; ``ParameterError`` with ``choice.parameter`` as its path.

    Parts from outside the package are held to what their protocol and the flags of the other parts say.
    """
    _check_protocols(policy)
    rules: list[Callable[[Policy, RunSizes], None]] = [
        _check_published_steps,
        _check_targets,
        _check_rounds,
        _check_pull,
    ]
    rules += [_check_tests, _check_spares, _check_old_steps, _check_waits, _check_legs, _check_refills]
    rules += [_check_arrivals, _check_rejects, _check_roundwise, _check_replays, _check_inherited]
    if policy.placement.shared:
        rules = [_check_sleep, _check_nothing_left, *rules]
    for rule in rules:
        rule(policy, shape)


def _check_protocols(policy: Policy) -> None:
    for choice, protocol in _PROTOCOLS.items():
        part = getattr(policy, choice)
        missing = [name for name in vars(protocol) if not name.startswith("_") and not hasattr(part, name)]
        if missing:
            allowed = f"a part with {', '.join(missing)} (rlsim.policies.protocols.{protocol.__name__})"
            raise ParameterError(f"{choice}.use", type(part).__name__, allowed)


def _check_sleep(policy: Policy, shape: RunSizes) -> None:
    """The engines on shared GPUs sleep while the trainer works."""
    if policy.update.mode != "drain":
        allowed = "drain: engines on shared GPUs sleep while the trainer works, so no call is under way at an update"
        raise ParameterError("update.mode", policy.update.mode, allowed)
    if _every_steps(policy) > 1:
        allowed = "1: engines on shared GPUs wake with the trained weights after every step"
        raise ParameterError("update.every_steps", _every_steps(policy), allowed)
    if isinstance(policy.batching, Stream):
        allowed = "complete-groups or exact-target: on shared GPUs nothing generates while a micro-batch trains, "
        raise ParameterError("batching.use", "micro-batch-stream", allowed + "so the rest of the batch never comes")
    if isinstance(policy.batching, Local) and policy.batching.spec.batches_per_step > 1:
        allowed = "1: on shared GPUs nothing generates while a local batch trains, so the next one never comes"
        raise ParameterError("batching.batches_per_step", policy.batching.spec.batches_per_step, allowed)


def _check_nothing_left(policy: Policy, shape: RunSizes) -> None:
    if not policy.leftovers.ends_round and _runs_ahead(policy, shape):
        allowed = "end-round: on shared GPUs this admission leaves calls under way when a batch is taken, and they "
        raise ParameterError("leftovers.use", _name("leftovers", policy.leftovers), allowed + "can never drain")
    if _spares(policy) and not policy.allocation.aborts_surplus and not policy.leftovers.ends_round:
        allowed = "true: on shared GPUs spare samples that run on when a batch is taken can never drain"
        raise ParameterError("allocation.aborts_surplus", False, allowed)


def _check_published_steps(policy: Policy, shape: RunSizes) -> None:
    """Admission that counts versions starves a trainer that takes several batches a version."""
    every, per_version = _every_steps(policy), _batches_per_version(policy, shape)
    if isinstance(policy.leftovers, OffPolicySteps) and every > 1:
        raise ParameterError(*_step_setting(policy), "a version for every step: off-policy-steps compares the two")
    cuts = policy.leftovers.ends_round and _runs_ahead(policy, shape)
    whole = not _may_drop(policy) and not _spares(policy) and not cuts
    if isinstance(policy.update, Deferral) and isinstance(policy.admission, _BATCH_AFTER_BATCH) and whole:
        return  # What is in flight makes whole batches, and after the last of them publication is due.
    if per_version is not None and every > per_version:
        reason = f"this admission lets {per_version} batch(es) in for each version, then the trainer starves"
        raise ParameterError(*_step_setting(policy), f"at most {per_version}: {reason}")


def _check_targets(policy: Policy, shape: RunSizes) -> None:
    if isinstance(policy.batching, ExactTarget) and _may_drop(policy):
        allowed = "keep-all, or end-round that keeps unfinished and surplus groups: exact-target waits for ever "
        raise ParameterError("leftovers.use", _name("leftovers", policy.leftovers), allowed + "for a dropped group")


def _check_rounds(policy: Policy, shape: RunSizes) -> None:
    leftovers, admission = policy.leftovers, policy.admission
    expires = isinstance(leftovers, MaxOffPolicy) and leftovers.max_off_policy_strategy == "drop"
    if isinstance(admission, OverSample | TailBatching) and (expires or not leftovers.ends_round):
        name = _name("admission", admission)
        allowed = f"end-round: {name} submits by the round, and replaces nothing that is dropped within it"
        raise ParameterError("leftovers.use", _name("leftovers", leftovers), allowed)
    counts_open = isinstance(admission, CumulativeCapacity | Budget | QueueSlots | EngineQueue | OneForOne) or (
        isinstance(admission, Producers) and admission.unit == "group"
    )
    stuck = counts_open and leftovers.keeps_unfinished
    if leftovers.ends_round and (stuck or isinstance(admission, LaggedSeats)):
        allowed = "keep-all or drop-old: groups that a round's end cuts keep their places in this admission's count, "
        raise ParameterError("leftovers.use", _name("leftovers", leftovers), allowed + "so it may never resume them")


def _check_tests(policy: Policy, shape: RunSizes) -> None:
    """A publication that is refused makes no version, and admission that counts versions lets nothing in for it."""
    tests = isinstance(policy.update, Tests) and policy.update.tests_candidates
    counted = not isinstance(policy.admission, Barrier) and _batches_per_version(policy, shape) is not None
    if tests and (counted or isinstance(policy.leftovers, OffPolicySteps)):
        name, allowed = _name("admission", policy.admission), "barrier, or one that does not count versions: "
        raise ParameterError("admission.use", name, allowed + "weights that are refused make none, then it starves")


def _check_spares(policy: Policy, shape: RunSizes) -> None:
    """A lag counted in samples that groups need would be used up by samples to spare."""
    if not isinstance(policy.admission, LaggedSeats):
        return
    name, allocation = _name("allocation", policy.allocation), policy.allocation
    if _spares(policy):
        allowed = "uniform without redundancy: the samples to spare would use up the lag of this admission"
        raise ParameterError("allocation.use", name, allowed)
    if isinstance(allocation, Extends) or (isinstance(allocation, Resizes) and allocation.resizes):
        allowed = (
            "one with groups of workload.group_size at once: others would use up the lag of this admission, which "
        )
        raise ParameterError("allocation.use", name, allowed + "counts samples")


def _check_rejects(policy: Policy, shape: RunSizes) -> None:
    """Groups of later steps fill the round, so that what was rejected of the one waited for is never replaced."""
    rejects = isinstance(policy.allocation, Rejects | Watches)
    if rejects and isinstance(policy.admission, OverSample | TailBatching) and _waits_for_some(policy):
        allowed = "complete-groups: this admission counts the groups of a round, and this allocation rejects some"
        raise ParameterError("batching.use", _name("batching", policy.batching), allowed)


def _check_roundwise(policy: Policy, shape: RunSizes) -> None:
    """Where groups are judged once nothing is under way, work must not be replaced as it ends."""
    by_round = Barrier | Rounds
    if isinstance(policy.allocation, RoundwiseSampling) and not isinstance(policy.admission, by_round):
        allowed = "rounds or barrier: groups are judged once nothing is under way, and this admission lets more in"
        raise ParameterError("admission.use", _name("admission", policy.admission), allowed)


def _check_old_steps(policy: Policy, shape: RunSizes) -> None:
    """A fraction of the batch from the oldest step needs the rest of it from the current one."""
    batching, admission = policy.batching, policy.admission
    if isinstance(batching, Steps) and batching.old_groups is not None and not isinstance(admission, Ratio):
        allowed = "ratio: with a fractional ratio every version has to let a batch of its own in"
        raise ParameterError("admission.use", _name("admission", admission), allowed)


def _check_waits(policy: Policy, shape: RunSizes) -> None:
    """Work that is replaced without end is never all complete."""
    batching, admission = policy.batching, policy.admission
    endless = isinstance(admission, _ALWAYS_FULL | EmptyReplicas | Arrivals) or _adds_prompts(policy)
    waits = isinstance(batching, Local) and batching.spec.max_off_policy_strategy == "wait"
    if isinstance(batching, Local) and waits and endless and batching.spec.max_off_policy_threshold == 1:
        allowed = "at least 2: this admission replaces what ends, and 1 waits until nothing is under way"
        raise ParameterError("batching.max_off_policy_threshold", 1, allowed)
    if _adds_prompts(policy) and not (policy.leftovers.ends_round and not policy.leftovers.keeps_unfinished):
        allowed = "end-round without keeps_unfinished: additional prompts are aborted when the batch is complete"
        raise ParameterError("leftovers.use", _name("leftovers", policy.leftovers), allowed)


def _adds_prompts(policy: Policy) -> bool:
    return isinstance(policy.admission, Ratio) and policy.admission.max_additional_running_prompts > 0


def _check_pull(policy: Policy, shape: RunSizes) -> None:
    """A replica that is never empty never takes new weights."""
    full = isinstance(policy.admission, _ALWAYS_FULL) and not policy.leftovers.ends_round
    if policy.update.mode == "pull" and full:
        allowed = f"drain, abort, keep or rebuild: {_name('admission', policy.admission)} keeps the replicas busy, and "
        raise ParameterError("update.mode", "pull", allowed + "with pull they take new weights only when empty")


def _check_refills(policy: Policy, shape: RunSizes) -> None:
    """Replicas that no new call goes to are never filled; and what a batch waits for may be behind a full buffer."""
    full = isinstance(policy.admission, EmptyReplicas) and policy.admission.buffer_groups is not None
    if full and policy.leftovers.ends_round and _waits_for_some(policy):
        allowed = "complete-groups: with a buffer of this admission the groups waited for may never be resumed"
        raise ParameterError("batching.use", _name("batching", policy.batching), allowed)
    name = _BY_POOL.get(type(policy.dispatch))
    if isinstance(policy.admission, EmptyReplicas) and name is not None:
        allowed = f"another part: it submits until no replica is empty, and with {name} some get no new call"
        raise ParameterError("admission.use", "refill-empty", allowed)


def _check_legs(policy: Policy, shape: RunSizes) -> None:
    """Prefill legs need both parts, calls that stay where they are, and KV that no update takes away."""
    dispatch, ordering = policy.dispatch, policy.ordering
    if not isinstance(dispatch, Legs):
        if isinstance(ordering, Legged):
            allowed = (
                "another ordering, or dispatch prefill-decode: calls that leave after one token need a place to go on"
            )
            raise ParameterError("ordering.use", "prefill-leg", allowed)
        return
    if not isinstance(ordering, Legged) or ordering.pool != dispatch.prefill:
        allowed = f"prefill-leg with prefill_pool {dispatch.prefill.name}: otherwise calls decode on the prefill pool"
        raise ParameterError("ordering.use", _name("ordering", ordering), allowed)
    if not isinstance(policy.migration, Stay):
        allowed = "stay: dispatch prefill-decode says where calls go on, and the pools are not alike"
        raise ParameterError("migration.use", _name("migration", policy.migration), allowed)
    if policy.update.mode not in ("drain", "keep"):
        allowed = "drain or keep: the others drop the KV, and then decode replicas prefill what they run"
        raise ParameterError("update.mode", policy.update.mode, allowed)
    if isinstance(policy.placement, Elastic):
        _check_lent_legs(policy, dispatch, set(shape.lent_replicas))


def _check_lent_legs(policy: Policy, dispatch: Legs, lent: set[int]) -> None:
    """What has been prefilled goes on at once, so somebody must be there; and a prefill leg that is cut made no KV."""
    name = _name("placement", policy.placement)
    if lent & set(dispatch.prefill.replicas):
        allowed = f"disaggregated, or another last pool than {dispatch.prefill.name}: its replicas are the trainer's"
        raise ParameterError("placement.use", name, f"{allowed} at times, and prefill legs would be cut")
    if lent.issuperset(dispatch.decode.replicas):
        allowed = f"disaggregated, or a replica of {dispatch.decode.name} on other GPUs than the trainer's: while it"
        raise ParameterError("placement.use", name, f"{allowed} trains, nothing that was prefilled could go on")


def _check_arrivals(policy: Policy, shape: RunSizes) -> None:
    """Requests that come when they come are submitted then: nothing holds them back, so latency is what they see."""
    if not isinstance(policy.admission, Arrivals):
        return
    if policy.placement.shared:
        allowed = "disaggregated: requests arrive whether or not the trainer works"
        raise ParameterError("placement.use", _name("placement", policy.placement), allowed)
    if policy.update.mode not in ("keep", "rebuild", "abort"):
        allowed = "keep, rebuild or abort: requests arrive without end, so replicas are never surely empty"
        raise ParameterError("update.mode", policy.update.mode, allowed)
    if policy.leftovers.ends_round:
        allowed = "keep-all or drop-old: requests arrive without end, and there are no rounds"
        raise ParameterError("leftovers.use", _name("leftovers", policy.leftovers), allowed)
    _check_starving(policy, shape)


def _check_replays(policy: Policy, shape: RunSizes) -> None:
    """What is trained on again is older than what leftovers keep, or than the steps that a batch is made of."""
    if not isinstance(policy.allocation, Replays):
        return
    leftovers = policy.leftovers
    ages = isinstance(leftovers, DropOld) and leftovers.max_age_versions is not None
    strict = isinstance(leftovers, MaxOffPolicy) and leftovers.max_off_policy_strategy == "drop"
    if ages or strict or isinstance(leftovers, OffPolicySteps):
        allowed = "leftovers that drop nothing for its age: what this allocation replays would be dropped at once"
        raise ParameterError("leftovers.use", _name("leftovers", leftovers), allowed)
    if isinstance(policy.batching, Steps):
        allowed = "complete-groups or exact-target: this allocation replays groups of steps long past"
        raise ParameterError("batching.use", _name("batching", policy.batching), allowed)


def _check_inherited(policy: Policy, shape: RunSizes) -> None:
    """Samples that begin with tokens of others: calls go where these were made, and groups have no fixed size."""
    allocation = policy.allocation
    begins_with_tokens = isinstance(allocation, Branches | Regrows | Reuses)
    if begins_with_tokens and isinstance(policy.dispatch, Legs):
        allowed = "another part: prefill legs are told by what a sample has made, and with this allocation some begin "
        raise ParameterError("dispatch.use", "prefill-decode", allowed + "with tokens that others made")
    if isinstance(allocation, Branches | Regrows | Replays) and isinstance(policy.admission, LaggedSeats):
        allowed = "another part: it counts samples by the lag, and with this allocation groups have more or fewer"
        raise ParameterError("admission.use", _name("admission", policy.admission), allowed)


def _check_starving(policy: Policy, shape: RunSizes) -> None:
    """An order by rank may starve a call for ever while others arrive."""
    if not policy.ordering.ranks:
        return
    if shape.group_size > 1:
        allowed = "fcfs where workload.group_size is above 1: groups may never be complete while others arrive"
        raise ParameterError("ordering.use", _name("ordering", policy.ordering), allowed)
    if _waits_for_some(policy):
        allowed = "complete-groups, with this ordering: the group that is waited for may starve while others arrive"
        raise ParameterError("batching.use", _name("batching", policy.batching), allowed)


def _waits_for_some(policy: Policy) -> bool:
    """Whether the trainer waits for certain groups though others are complete."""
    batching = policy.batching
    waits = isinstance(batching, Local) and batching.spec.max_off_policy_strategy == "wait"
    return waits or isinstance(batching, ExactTarget | Steps)


def _runs_ahead(policy: Policy, shape: RunSizes) -> bool:
    """Whether calls may be under way when a batch is taken; of an unknown part it is not known."""
    match policy.admission:
        case CumulativeCapacity(max_staleness=versions):
            return versions > 0
        case LaggedSeats(ahead_groups=ahead, groups_per_version=groups):
            return ahead > 0 or groups > shape.prompts_per_step
        case Budget(groups=groups):
            return groups > shape.prompts_per_step
        case BatchesAhead(num_warmup_batches=ahead) | Running(ahead=ahead):
            return ahead > 0
        case Rounds(gen_batch_size=groups):
            judged = isinstance(policy.allocation, RoundwiseSampling)
            return not judged and (shape.prompts_per_step % (groups or 1) > 0 or isinstance(policy.allocation, Rejects))
        case Ratio(async_generation_ratio=ratio):
            return ratio > 0 or _adds_prompts(policy)
    return isinstance(policy.admission, TargetReservation | EmptyReplicas | _ALWAYS_FULL)


def _batches_per_version(policy: Policy, shape: RunSizes) -> int | None:
    """Batches that a new version lets in; None where versions are not counted."""
    if isinstance(policy.admission, LaggedSeats):
        return policy.admission.groups_per_version // shape.prompts_per_step
    if isinstance(policy.admission, LeadGate):
        return 1  # It compares steps with versions: publishing less often, the trainer would draw away from them.
    if isinstance(policy.admission, Budget):
        return policy.admission.groups // shape.prompts_per_step
    return 1 if isinstance(policy.admission, _BY_VERSION) else None


def _may_drop(policy: Policy) -> bool:
    leftovers = policy.leftovers
    if isinstance(leftovers, DropOld):
        return (leftovers.max_age_versions, leftovers.max_open_age_versions, leftovers.buffer_groups) != (None,) * 3
    if isinstance(leftovers, OffPolicySteps):
        return True
    if isinstance(leftovers, MaxOffPolicy):
        return leftovers.max_off_policy_strategy == "drop"
    return leftovers.ends_round and not (leftovers.keeps_unfinished and leftovers.keeps_surplus)


def _spares(policy: Policy) -> bool:
    """Whether groups have more samples than they need."""
    allocation = policy.allocation
    more = isinstance(allocation, ShortRounds) and allocation.eta_r > 1
    return more or (isinstance(allocation, Uniform) and allocation.redundancy > 0)


def _every_steps(policy: Policy) -> int:
    every: int = getattr(policy.update, "every_steps", 1)
    return every


def _step_setting(policy: Policy) -> tuple[str, int]:
    """The parameter that says how many steps a version serves, and its value."""
    update = policy.update
    if isinstance(update, Publish) and update.every_samples is not None:
        return "update.every_samples", update.every_samples
    return f"update.{'max_steps_behind' if isinstance(update, Deferral) else 'every_steps'}", _every_steps(policy)


def _name(choice: str, part: object) -> str:
    names = (name for name, cls in CHOICES[choice].items() if type(part) is cls)
    return next(names, type(part).__name__)
