"""How the plans of vLLM's scheduler are read: as the simulated replica counts them."""

from __future__ import annotations

from types import SimpleNamespace

from rlsim.engine.steptime import StepTime, attention_pairs
from rlsim.live.vllm.batch import Composer, StepBatch


def request(computed: int, tokens: int) -> SimpleNamespace:
    """A request of ``tokens`` tokens as the scheduler leaves it behind."""
    return SimpleNamespace(num_computed_tokens=computed, is_prefill_chunk=computed < tokens)


def plan(
    scheduled: dict[str, int], new: tuple[str, ...] = (), resumed: tuple[str, ...] = (), ended: tuple[str, ...] = ()
) -> SimpleNamespace:
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set(resumed)),
        finished_req_ids=set(ended),
        preempted_req_ids=None,
    )


def test_a_decode_attends_to_its_tokens_and_the_rest_is_prefill() -> None:
    composer = Composer()
    first = composer.batch(plan({"a": 60}, new=("a",)), {"a": request(60, 60)})
    assert first == StepBatch(0, 0, 1, 60, attention_pairs(60, 0), 0, frozenset("a"))
    requests = {"a": request(61, 61), "hit": request(64, 64), "long": request(200, 500)}
    second = composer.batch(plan({"a": 1, "hit": 1, "long": 200}, new=("hit", "long")), requests)
    pairs = attention_pairs(1, 63) + attention_pairs(200, 0)
    assert second == StepBatch(1, 61, 2, 201, pairs, 0, frozenset({"a", "hit"}))


def test_a_last_chunk_of_one_token_is_still_a_chunk() -> None:
    """Also where the prefill goes over tokens that were made before a preemption."""
    composer = Composer()
    composer.batch(plan({"a": 60}, new=("a",)), {"a": request(60, 60)})
    composer.batch(plan({"a": 99}, resumed=("a",)), {"a": request(99, 100)})
    last = composer.batch(plan({"a": 1}), {"a": request(100, 100)})
    assert (last.decodes, last.chunks, last.prefill_tokens, last.pairs) == (0, 1, 1, attention_pairs(1, 99))
    assert last.samplers == frozenset("a")
    assert composer.batch(plan({"a": 1}), {"a": request(101, 101)}).decodes == 1


def test_a_name_that_comes_again_starts_anew() -> None:
    composer = Composer()
    composer.batch(plan({"a": 4}, new=("a",)), {"a": request(4, 4)})
    composer.batch(plan({"b": 4}, new=("b",), ended=("a",)), {"b": request(4, 4)})
    assert composer.batch(plan({"a": 1}, new=("a",)), {"a": request(1, 1)}).chunks == 1


def test_a_batch_lasts_as_long_as_the_law_says() -> None:
    law = StepTime([0, 10, 20, 30, 40], [0, 1, 2], [0, 3], 5, [0, 0, 0, 7], [0, 4])
    assert StepBatch(decodes=1, kv_tokens=6).ticks(law) == 10 + 1 + 3 * 6
    assert StepBatch(1, 6, 1, 3, 6).ticks(law) == 40 + 2 + 4 * 6 + 5 * 6 + 7
