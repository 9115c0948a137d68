"""Rules on what goes together read what parts state: a user's own part is refused as the shipped one is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from compositions import DRAIN, KEEP, preset
from policy_runs import scenario
from test_combinations import MEANINGLESS
from test_combinations import STALLS as GENERAL
from test_framework_combinations import STALLS as FRAMEWORKS
from test_framework_combinations import WAITS_FOR_EVER
from test_pool_combinations import BOTH, LENDING
from test_pool_combinations import REFUSED as POOLS

from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes
from rlsim.policies import combinations
from rlsim.policies.facts import part_name
from rlsim.policies.protocols import DEFAULTS, Policy
from rlsim.policies.registry import make_part, parts_of
from rlsim.presets import load_preset
from rlsim.resolve.policy import make_shape

BUFFERED = {"use": "refill-empty", "replica_batch": 4, "buffer_groups": 3}
CUT = {"use": "end-round", "keeps_unfinished": True, "keeps_surplus": True}
OPEN = {"use": "open-arrivals", "requests_per_second": 5.0}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{name: (refusal[0], {}) for name, refusal in {**GENERAL, **MEANINGLESS, **FRAMEWORKS, **WAITS_FOR_EVER}.items()},
    **{name: (refusal[0], {}) for name, refusal in POOLS.items()},
    "candidates that count versions": (preset("areal", update={"use": "tested"}), {}),
    "ages in steps of candidates": (
        preset("prime-rl", admission={"use": "one-step-off"}, update={"use": "tested", "mode": "keep"}),
        {},
    ),
    "a wave beyond the lag": (preset("pipelinerl", {"max_lag": 3}, allocation={"use": "aero"}), {}),
    "forks beyond the lag": (preset("pipelinerl", {"max_lag": 3}, allocation={"use": "replay"}), {}),
    "a batch of one step in rounds that reject": (
        preset(
            "slime-april",
            batching={"use": "oldest-step-first"},
            allocation={"use": "dapo"},
            leftovers=CUT,
        ),
        {},
    ),
    "rounds that are judged and never end": (preset("areal", allocation={"use": "dapo-rounds"}), {}),
    "rounds that reject on shared GPUs": (
        preset(
            "sync-colocated",
            admission={"use": "rounds"},
            allocation={"use": "dapo"},
            leftovers={"use": "keep-all"},
        ),
        {},
    ),
    "a buffer in front of what a step waits for": (
        preset("sync-disaggregated", admission=BUFFERED, batching={"use": "exact-target"}, leftovers=CUT),
        {},
    ),
    "a buffer in front of further samples that a step waits for": (
        preset(
            "prime-rl", batching={"use": "exact-target"}, leftovers={"use": "keep-all"}, allocation={"use": "trace"}
        ),
        {},
    ),
    "requests on shared GPUs": (preset("sync-colocated", admission=OPEN, leftovers={"use": "keep-all"}), {}),
    "requests and replicas that drain": (preset("sync-disaggregated", admission=OPEN, update=DRAIN), {}),
    "requests and rounds": (
        preset("sync-disaggregated", admission=OPEN, update=KEEP, leftovers={"use": "end-round"}),
        {},
    ),
    "requests by rank": (
        preset("sync-disaggregated", admission=OPEN, update=KEEP, ordering={"use": "shortest-first"}),
        {},
    ),
    "replayed groups that are too old": (
        preset(
            "sync-disaggregated", allocation={"use": "replay"}, leftovers={"use": "drop-old", "max_age_versions": 1}
        ),
        {},
    ),
    "replayed groups of steps long past": (
        preset("sync-disaggregated", allocation={"use": "popo"}, batching={"use": "oldest-step-first"}),
        {},
    ),
    "samples that begin with tokens on a prefill pool": (preset("p-d-serve", allocation={"use": "spec-rl"}), {}),
    "a prefill pool that the trainer takes back": (
        LENDING,
        {"rollout__gpus": 4, "rollout__pools": BOTH, "trainer__gpus": 1},
    ),
}


def specs_of(policy: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Part specifications of a policy, by choice."""
    fields = {key: value for key, value in policy.items() if key not in ("preset", "parts")}
    specs = {choice: {"use": use} for choice, use in DEFAULTS.items()}
    return specs | load_preset(policy["preset"]).filled(fields, "policy") | policy.get("parts", {})


@dataclass(frozen=True, slots=True)
class Own:
    """A part that shares no class with the shipped one, and states and does the same."""

    choice: str
    spec: dict[str, object]

    def start(self, shape: RunSizes) -> Any:
        started = make_part(self.choice, self.spec, self.choice).start(shape)
        registered = (name for name, cls in parts_of(self.choice).items() if cls is type(started))
        members = {name: getattr(started, name) for name in dir(started) if not name.startswith("_")}
        attributes = {name: staticmethod(value) if callable(value) else value for name, value in members.items()}
        return type(part_name(started, next(registered, None)), (), attributes)()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's that has the part."""
    own = ModuleType("my_own_parts")
    own.Own = Own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_own_parts", own)
    return "my_own_parts:Own"


def refusal(specs: dict[str, dict[str, Any]], shape: RunSizes) -> tuple[str, str, object, str]:
    """Rule that refuses the parts, path, value and what is allowed."""
    parts: Any = {choice: make_part(choice, spec, choice).start(shape) for choice, spec in specs.items()}
    with pytest.raises(ParameterError) as caught:
        combinations.check(Policy(**parts), shape)
    rules = [entry.name for entry in caught.traceback if entry.name.startswith("_check")]
    return rules[0], caught.value.path, caught.value.found, caught.value.allowed


def refused_by_rules() -> dict[str, tuple[dict[str, dict[str, Any]], RunSizes]]:
    """Compositions whose parts all start, and do not go together."""
    compositions = {}
    for name, (policy, changes) in REFUSED.items():
        specs, shape = specs_of(policy), make_shape(scenario(policy, **changes))
        try:
            for choice, spec in specs.items():
                make_part(choice, spec, choice).start(shape)
        except ParameterError:
            continue
        compositions[name] = specs, shape
    return compositions


COMPOSITIONS = refused_by_rules()


def test_every_rule_refuses_one_of_these_compositions() -> None:
    rules = {rule.__name__ for rule in (*combinations._RULES_OF_SHARED_GPUS, *combinations._RULES)}
    assert {refusal(*composition)[0] for composition in COMPOSITIONS.values()} == rules


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_own_parts_that_state_the_same_are_refused_with_the_same_message(name: str, module: str) -> None:
    specs, shape = COMPOSITIONS[name]
    shipped = refusal(specs, shape)
    for choice, spec in specs.items():
        own = {"use": module, "choice": choice, "spec": spec}
        assert refusal({**specs, choice: own}, shape) == shipped, choice
    every = {choice: {"use": module, "choice": choice, "spec": spec} for choice, spec in specs.items()}
    assert refusal(every, shape) == shipped
