"""What is said of a run that cannot progress."""

from __future__ import annotations

from rlsim.controller import Controller
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_seconds


def deadlock_report(now: Ticks, controller: Controller, log: RunLog, steps: int, calls: int) -> str:
    """Which gate is closed, since when, and what is outstanding; ``calls`` are those on replicas."""
    view = controller.view
    since = log.gates[-1].now if log.gates else 0
    return (
        f"deadlock at {to_seconds(now):.3f} s after {controller.iterations} of {steps} "
        f"training iterations: nothing is left to happen.\n"
        f"  gate: {view.gate or 'open'} (since {to_seconds(since):.3f} s); trainer: {view.trainer}\n"
        f"  complete groups waiting: {len(view.ready)} of {view.shape.prompts_per_step} for a batch; "
        f"open groups: {view.open_groups}\n"
        f"  samples in flight: {view.running_samples} ({calls} calls on replicas); parked: {len(view.parked)}"
    )
