"""From a scenario to what a run is made from: every name resolved, every check passed, nothing started.

The only place that knows cost models, workload and policies together. A fault is a ``ParameterError`` with the key
path of the scenario; the sections are built one by one, so that faults of several are reported at once.
"""

from __future__ import annotations

from rlsim.core.errors import ResolveError
from rlsim.resolve.hardware import ResolvedPool
from rlsim.resolve.scenario import ResolvedScenario, Source, replication_seed, resolve

__all__ = ["ResolveError", "ResolvedPool", "ResolvedScenario", "Source", "replication_seed", "resolve"]
