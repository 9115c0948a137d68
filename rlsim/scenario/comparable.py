"""Whether a measured number still stands beside a run: what it was measured with must be what is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

MEASURED_WITH = ("model", "cluster", "workload", "policy", "rollout.gpus", "trainer.gpus")
"""Keys that say what was measured; speeds, overheads and links are what a prediction assumes."""
_OF_NO_TIME = ("cluster.price_usd_per_gpu_hour", "cluster.allow_other_hardware")


def changed_keys(stated: Scenario, run: Scenario) -> list[str]:
    """Keys of what was measured that differ between the scenario that a number stands in and the one that is run."""
    before, after = stated.model_dump(mode="json"), run.model_dump(mode="json")
    changed: list[str] = []
    for key in MEASURED_WITH:
        section, _, name = key.partition(".")
        own, other = before[section], after[section]
        changed += _differing(own[name], other[name], key) if name else _differing(own, other, key)
    return [key for key in changed if key not in _OF_NO_TIME]


def _differing(before: Any, after: Any, path: str) -> list[str]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [path] if before != after else []
    keys = dict.fromkeys([*before, *after])
    return [name for key in keys for name in _differing(before.get(key), after.get(key), f"{path}.{key}")]
