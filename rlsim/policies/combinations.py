"""Parts that do not go together: what would stall is refused before anything runs, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape
from rlsim.policies import protocols
from rlsim.policies.admission.barrier import Barrier
from rlsim.policies.admission.cumulative_capacity import CumulativeCapacity
from rlsim.policies.admission.fixed_pool import FixedPool
from rlsim.policies.admission.free_running import LaggedSeats, Seats
from rlsim.policies.admission.over_sample import OverSample
from rlsim.policies.admission.target_reservation import TargetReservation
from rlsim.policies.batching.exact_target import ExactTarget
from rlsim.policies.batching.micro_batch_stream import Stream
from rlsim.policies.leftovers.fates import DropOld
from rlsim.policies.policy import Policy
from rlsim.policies.registry import CHOICES

_PROTOCOLS: dict[str, type] = {choice: getattr(protocols, choice.capitalize()) for choice in CHOICES}


def check(policy: Policy, shape: Shape) -> None:
    """Refuse a policy that cannot work; ``ParameterError`` with ``choice.parameter`` as its path.

    Parts from outside the package are held to what their protocol and the flags of the other parts say.
    """
    _check_protocols(policy)
    rules: list[Callable[[Policy, Shape], None]] = [_check_published_steps, _check_targets, _check_rounds]
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


def _check_sleep(policy: Policy, shape: Shape) -> None:
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


def _check_nothing_left(policy: Policy, shape: Shape) -> None:
    if not policy.leftovers.ends_round and _runs_ahead(policy, shape):
        allowed = "end-round: on shared GPUs this admission leaves calls under way when a batch is taken, and they "
        raise ParameterError("leftovers.use", _name("leftovers", policy.leftovers), allowed + "can never drain")


def _check_published_steps(policy: Policy, shape: Shape) -> None:
    """Admission that counts versions starves a trainer that takes several batches a version."""
    every, per_version = _every_steps(policy), _batches_per_version(policy, shape)
    if per_version is not None and every > per_version:
        reason = f"this admission lets {per_version} batch(es) in for each version, then the trainer starves"
        raise ParameterError("update.every_steps", every, f"at most {per_version}: {reason}")


def _check_targets(policy: Policy, shape: Shape) -> None:
    if isinstance(policy.batching, ExactTarget) and _may_drop(policy):
        allowed = "keep-all, or end-round that keeps unfinished and surplus groups: exact-target waits for ever "
        raise ParameterError("leftovers.use", _name("leftovers", policy.leftovers), allowed + "for a dropped group")


def _check_rounds(policy: Policy, shape: Shape) -> None:
    leftovers, admission = policy.leftovers, policy.admission
    if isinstance(admission, OverSample) and not leftovers.ends_round:
        allowed = "end-round: over-sample submits by the round, and replaces nothing that is dropped within it"
        raise ParameterError("leftovers.use", _name("leftovers", leftovers), allowed)
    stuck = isinstance(admission, CumulativeCapacity) and leftovers.keeps_unfinished
    if leftovers.ends_round and (stuck or isinstance(admission, LaggedSeats)):
        allowed = "keep-all or drop-old: groups that a round's end cuts keep their places in this admission's count, "
        raise ParameterError("leftovers.use", _name("leftovers", leftovers), allowed + "so it may never resume them")


def _runs_ahead(policy: Policy, shape: Shape) -> bool:
    """Whether calls may be under way when a batch is taken; of an unknown part it is not known."""
    match policy.admission:
        case CumulativeCapacity(max_staleness=versions):
            return versions > 0
        case LaggedSeats(ahead_groups=ahead, groups_per_version=groups):
            return ahead > 0 or groups > shape.prompts_per_step
    return isinstance(policy.admission, TargetReservation | FixedPool | Seats)


def _batches_per_version(policy: Policy, shape: Shape) -> int | None:
    """Batches that a new version lets in; None where versions are not counted."""
    if isinstance(policy.admission, LaggedSeats):
        return policy.admission.groups_per_version // shape.prompts_per_step
    return 1 if isinstance(policy.admission, Barrier | CumulativeCapacity | TargetReservation) else None


def _may_drop(policy: Policy) -> bool:
    leftovers = policy.leftovers
    if isinstance(leftovers, DropOld):
        return leftovers.max_age_versions is not None or leftovers.buffer_groups is not None
    return leftovers.ends_round and not (leftovers.keeps_unfinished and leftovers.keeps_surplus)


def _every_steps(policy: Policy) -> int:
    every: int = getattr(policy.update, "every_steps", 1)
    return every


def _name(choice: str, part: object) -> str:
    names = (name for name, cls in CHOICES[choice].items() if type(part) is cls)
    return next(names, type(part).__name__)
