"""A run on servers is refused for what they lack, before it starts; what a policy does is what it was said to need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from policy_runs import POLICIES, commands, run_of, scenario

from rlsim.core.commands import Abort, SetRole, Submit, Sync
from rlsim.live.openai.capabilities import Prompt, ServerCapabilities
from rlsim.live.openai.refusals import ServerNeeds, needs_of, refusals
from rlsim.resolve import resolve

EVERYTHING = ServerCapabilities(
    url="http://127.0.0.1:8000/v1",
    model="m",
    protocol="tokens",
    fields=frozenset(),
    exact_lengths="declared",
    token_ids=True,
    counts=True,
    log_probs=True,
    priorities=True,
    span_versions=True,
    weight_version=True,
    pause=True,
    abort=True,
    reset=True,
    update=True,
    sleep=True,
    max_model_len=4096,
)
LITTLE = ServerNeeds(1, "drain", False, False, False, False, False, False, False, False, False)


def needs_of_preset(preset: str, **changes: object) -> ServerNeeds:
    made = resolve(scenario({"preset": preset, **POLICIES[preset]}, **changes))
    return needs_of(made, made.policy(made.shape))


@pytest.mark.parametrize("preset", POLICIES)
def test_what_a_preset_does_is_what_it_was_said_to_need(preset: str) -> None:
    needs, log = needs_of_preset(preset), run_of(preset)
    submits = [made for _, made in commands(log, Submit)]
    assert needs.cuts or not commands(log, Abort)
    assert needs.ranks or len({one.priority for one in submits}) <= 1
    assert needs.moves_kv or not any(one.kv_from_pool for one in submits)
    assert needs.sleeps or not commands(log, SetRole)
    assert {made.mode for _, made in commands(log, Sync)} <= {needs.update}
    assert needs.replicas > max(one.replica for one in submits)


@pytest.mark.parametrize(
    ("needs", "lacks", "says"),
    [
        ({"exact_lengths": True}, {"exact_lengths": ""}, "does not make a given number of tokens"),
        ({"token_ids": True}, {"token_ids": False}, "does not say which tokens"),
        ({"token_ids": True}, {"prompt": Prompt((" a",), 0)}, "takes no token ids"),
        ({"log_probs": True}, {"log_probs": False}, "gives no log-probs"),
        ({"cuts": True}, {"counts": False}, "does not count tokens while a call runs"),
        ({"ranks": True}, {"priorities": False}, "takes no priorities"),
        ({"update": "keep"}, {"pause": False}, "cannot pause calls"),
        ({"update": "keep"}, {"span_versions": False}, "by which weights each token was made"),
        ({"update": "rebuild"}, {"reset": False}, "cannot rebuild KV"),
        ({"loads_weights": True}, {"update": False}, "cannot load weights"),
        ({"sleeps": True}, {"sleep": False}, "cannot sleep"),
        ({"longest_tokens": 8192}, {}, "serves no 8192 tokens"),
        ({"moves_kv": True}, {}, "moves no KV"),
        ({"discipline": True}, {}, "an engine discipline"),
        ({"keeps_kv": False}, {}, "rollout.kv_while_waiting"),
        ({"replicas": 2}, {}, "1 URLs"),
    ],
)
def test_each_lack_is_refused_where_it_matters_and_nowhere_else(
    needs: dict[str, object], lacks: dict[str, object], says: str
) -> None:
    lacking = replace(EVERYTHING, **lacks)  # type: ignore[arg-type]
    (error,) = refusals(replace(LITTLE, **needs), [lacking])  # type: ignore[arg-type]
    assert says in str(error)
    assert refusals(LITTLE, [lacking]) == []
    if lacks:
        assert refusals(replace(LITTLE, **needs), [EVERYTHING]) == []  # type: ignore[arg-type]


def test_every_server_is_judged_and_named() -> None:
    second = replace(EVERYTHING, url="http://127.0.0.1:8001/v1", priorities=False)
    (error,) = refusals(replace(LITTLE, replicas=2, ranks=True), [EVERYTHING, second])
    assert "127.0.0.1:8001" in str(error)


def test_a_discipline_of_one_pool_or_of_all_is_seen() -> None:
    assert not needs_of_preset("sync-disaggregated").discipline
    limited = {"rollout__discipline": {"max_concurrent_prefills": 1}}
    assert needs_of_preset("sync-disaggregated", **limited).discipline


def test_a_trained_model_and_a_task_ask_for_more() -> None:
    made = resolve(scenario({"preset": "sync-disaggregated"}))
    policy = made.policy(made.shape)
    bare, task = needs_of(made, policy), needs_of(made, policy, task=True)
    trained = needs_of(made, policy, task=True, trained=True)
    assert (bare.exact_lengths, bare.token_ids, bare.log_probs) == (True, False, False)
    assert (task.exact_lengths, task.token_ids, task.log_probs, task.loads_weights) == (False, True, False, False)
    assert (trained.log_probs, trained.loads_weights) == (True, True)
