"""What servers of several kinds are found to offer: by their answers, never by their name."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aiohttp")

from small_server import WORD_TOKENS, SmallServer

from rlsim.core.errors import ParameterError
from rlsim.live.openai.capabilities import ServerCapabilities
from rlsim.live.openai.probe import probe_all
from rlsim.live.openai.settings import server_settings
from rlsim.live.protocols import EngineLostError


def offers_of(*servers: SmallServer, model: str = "") -> tuple[ServerCapabilities, ...]:
    async def whole() -> tuple[ServerCapabilities, ...]:
        async with asyncio.TaskGroup() as group:
            for server in servers:
                group.create_task(server.__aenter__())
        try:
            return await probe_all(server_settings([server.url for server in servers], model=model))
        finally:
            for server in servers:
                await server.__aexit__()

    return asyncio.run(whole())


ABILITIES = (
    "token_ids",
    "counts",
    "log_probs",
    "priorities",
    "span_versions",
    "weight_version",
    "pause",
    "abort",
    "reset",
    "update",
    "sleep",
)


def offered(found: ServerCapabilities) -> set[str]:
    return {name for name in ABILITIES if getattr(found, name)}


def test_vllm_with_everything_switched_on_offers_everything() -> None:
    (found,) = offers_of(SmallServer(scale_out=True, metrics="vllm:num_requests_running 0\n"))
    assert (found.protocol, found.exact_lengths, found.model, found.max_model_len) == (
        "tokens",
        "declared",
        "small",
        512,
    )
    assert offered(found) == set(ABILITIES)
    assert (found.gauges, found.prompt) == (frozenset({"running"}), None)


def test_vllm_without_development_mode_offers_calls_alone() -> None:
    (found,) = offers_of(SmallServer(dev=False))
    assert (found.protocol, found.token_ids, found.log_probs) == ("completions", True, True)
    assert offered(found) == {"token_ids", "counts", "log_probs", "priorities"}


def test_a_server_of_text_alone_is_sent_words_and_its_own_tokens_are_known() -> None:
    (found,) = offers_of(SmallServer(ids=False, dev=False, fields=set(), usage="end", declares=False))
    assert found.protocol == "text"
    assert found.prompt is not None
    assert found.prompt.overhead_tokens == WORD_TOKENS
    assert (found.fields, found.exact_lengths, found.token_ids, found.counts) == (frozenset(), "", False, False)


def test_exact_lengths_are_believed_after_trials_only() -> None:
    taken = SmallServer(declares=False)
    ending = SmallServer(declares=False, eos_after=5, ignores_ignore_eos=True)
    refused = SmallServer(declares=False, fields={"stream_options"})
    lengths = [found.exact_lengths for found in offers_of(taken, ending, refused)]
    assert lengths == ["seen", "", ""]


def test_priorities_need_a_declaration_since_any_server_may_ignore_what_it_does_not_know() -> None:
    declared, silent = offers_of(SmallServer(), SmallServer(declares=False))
    assert (declared.priorities, silent.priorities) == (True, False)


def test_the_model_is_the_one_named_or_the_first_listed() -> None:
    assert offers_of(SmallServer(), model="other")[0].model == "other"
    with pytest.raises(ParameterError, match=r"live.server_model: found 'mine'; allowed: .*small, other"):
        offers_of(SmallServer(), model="mine")


def test_a_server_that_counts_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match="does not say how many tokens"):
        offers_of(SmallServer(ids=False, usage="never"))


def test_a_server_that_refuses_every_call_is_refused_with_its_own_words() -> None:
    with pytest.raises(ParameterError, match="no such model here"):
        offers_of(SmallServer(status=400, complaint="no such model here"))


def test_a_server_that_wants_a_key_says_which_parameter_is_missing() -> None:
    with pytest.raises(ParameterError, match=r"live\.api_key_env"):
        offers_of(SmallServer(key="abc"))


def test_a_server_that_breaks_is_lost() -> None:
    with pytest.raises(EngineLostError, match="500"):
        offers_of(SmallServer(status=500))


def test_the_rows_for_people_say_what_is_not_offered() -> None:
    (found,) = offers_of(SmallServer(ids=False, dev=False, fields=set(), usage="end", declares=False))
    rows = dict(found.rows())
    assert rows["response lengths"] == "the model's own"
    assert rows["token counts"] == "at its end only"
    assert rows["prompt lengths"] == f"one word a token, and {WORD_TOKENS} tokens that the server adds"
