"""Values that a plan and its engines are made of travel between processes, in a compiled build as well."""

from __future__ import annotations

import copy
import pickle

import pytest

from rlsim.core.view import Pool, RequestClass, RunSizes
from rlsim.engine.requests import EngineLimits
from rlsim.engine.steptime import StepTime

POOL = Pool("prefill", 0, 2, 16, shares_gpus_with="decode")
VALUES = [
    POOL,
    RequestClass("chat", 2.0, 1),
    RunSizes(4, 8, 2, 16, (POOL,), (RequestClass("all"),), seed=3, lent_replicas=range(1, 2)),
    EngineLimits(16, 2048, 4096, 16, 1000, scheduling_policy="priority"),
    StepTime([1, 2], [3, 4], [5, 6], 7),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_frozen_value_comes_back_as_it_was(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == value
    assert type(pickle.loads(pickle.dumps(value))) is type(value)
