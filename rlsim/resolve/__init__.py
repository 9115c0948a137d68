"""From a scenario to a plan: every name resolved, every check passed, nothing started.

The only place that knows cost models, workload and policies together. A fault is a ``ParameterError`` with the key
path of the scenario; the sections are built one by one, so that faults of several are reported at once.
"""

from __future__ import annotations

from rlsim.resolve.faults import PlanError
from rlsim.resolve.pools import PoolPlan
from rlsim.resolve.scenario import Plan, Source, plan, replication_seed

__all__ = ["Plan", "PlanError", "PoolPlan", "Source", "plan", "replication_seed"]
