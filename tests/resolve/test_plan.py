"""What a plan takes from a scenario: costs given in part, seeds, sources."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from rlsim.costs.transfer import SyncCost
from rlsim.resolve import ResolveError, replication_seed, resolve
from rlsim.scenario.schema import Scenario


def scenario(
    sync: dict[str, Any] | None = None, trainer: dict[str, Any] | None = None, step: dict[str, Any] | None = None
) -> Scenario:
    """A small one."""
    return Scenario.model_validate(
        {
            "name": "plan",
            "model": "Qwen2.5-0.5B",
            "cluster": {"device": "H100-SXM", "gpus": 2},
            "rollout": {"gpus": 1, "step_time": {"source": "coefficients", "base_seconds": 0.01, **(step or {})}},
            "trainer": {"gpus": 1, "mfu": 0.4, **(trainer or {})},
            "sync": sync or {},
            "workload": {"prompts_per_step": 2, "group_size": 2, "prompt_tokens": 10, "response_tokens": 20},
            "policy": {"preset": "sync-disaggregated"},
            "run": {"steps": 2},
        }
    )


def test_a_sync_without_numbers_is_that_of_the_default_transport() -> None:
    made = resolve(scenario())
    assert made.sync == SyncCost.over("nccl", made.architecture.weight_bytes())


@pytest.mark.parametrize(
    ("given", "extra_seconds"),
    [({"base_seconds": 4.0}, 3.9), ({"tensors": 300, "per_tensor_seconds": 0.01}, 3.0)],
)
def test_what_a_scenario_says_of_the_sync_counts_without_a_link_rate(
    given: dict[str, Any], extra_seconds: float
) -> None:
    default = resolve(scenario()).sync.seconds()
    assert resolve(scenario(given)).sync.seconds() == pytest.approx(default + extra_seconds)


def test_offloaded_weights_come_back_over_the_host_link_before_they_are_sent() -> None:
    made, plain = resolve(scenario(trainer={"weights_offload": True})), resolve(scenario())
    assert made.sync.seconds() - plain.sync.seconds() == pytest.approx(made.architecture.weight_bytes() / 64e9)


def test_stages_of_the_trainer_send_at_once_and_not_beside_a_rate_of_the_whole() -> None:
    made = resolve(scenario({"stage_bytes_per_second": 1e9, "base_seconds": 0.5}))
    assert made.sync.seconds() == pytest.approx(made.architecture.weight_bytes() / 1e9 + 0.5)
    with pytest.raises(ValidationError, match="stage_bytes_per_second"):
        scenario({"stage_bytes_per_second": 1e9, "link_bytes_per_second": 1e9})


def test_the_host_time_of_a_step_may_grow_with_the_layers() -> None:
    plain, hosted = resolve(scenario()), resolve(scenario(step={"offset_seconds_per_layer": 1e-4}))
    added = hosted.pools[0].law.decode_seconds(1, 0.0) - plain.pools[0].law.decode_seconds(1, 0.0)
    assert added == pytest.approx(1e-4 * hosted.architecture.layers)


def test_a_given_link_takes_the_bytes_of_the_model_and_the_given_overheads() -> None:
    given = {"link_bytes_per_second": 1e9, "base_seconds": 0.5, "tensors": 10, "per_tensor_seconds": 0.1}
    made = resolve(scenario(given))
    assert made.sync.seconds() == pytest.approx(made.architecture.weight_bytes() / 1e9 + 0.5 + 1.0)
    assert [source.estimate for source in made.sources if source.what == "weight sync"] == [False]


@pytest.mark.parametrize("link", [{}, {"link_bytes_per_second": 1e9}])
def test_an_adapter_moves_its_share_of_the_bytes_and_all_of_the_overheads(link: dict[str, float]) -> None:
    whole, adapter = (
        resolve(scenario({**link, "base_seconds": 2.0, "payload_share": share})).sync for share in (1.0, 0.01)
    )
    assert adapter.seconds() - 2.0 == pytest.approx((whole.seconds() - 2.0) / 100)


def test_replications_have_luck_of_their_own_and_share_it_between_policies() -> None:
    seeds = [replication_seed(7, number) for number in range(50)]
    assert len(set(seeds)) == 50
    made = resolve(scenario())
    assert [made.workload_of(number).seed for number in range(50)] == [replication_seed(0, n) for n in range(50)]


def test_a_plan_error_holds_every_fault_and_reads_as_the_first() -> None:
    bad = scenario().model_copy(update={"model": "nothing", "seed": 1})
    with pytest.raises(ResolveError) as caught:
        resolve(bad)
    assert [error.path for error in caught.value.errors] == ["model"]
    assert str(caught.value).startswith("model: found 'nothing'; allowed: a known model or fine-tune")


def test_a_plan_error_comes_back_whole_from_a_worker() -> None:
    bad = scenario().model_copy(update={"model": "nothing"})
    with pytest.raises(ResolveError) as caught:
        resolve(bad)
    again = pickle.loads(pickle.dumps(caught.value))
    assert [str(error) for error in again.errors] == [str(error) for error in caught.value.errors]
