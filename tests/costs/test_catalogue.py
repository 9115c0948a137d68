"""Names, facts and sources of the catalogue."""

from __future__ import annotations

import pytest

from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, device_names, model, model_names, model_source


def test_every_model_builds_and_says_where_its_shape_comes_from() -> None:
    assert {model(name).name for name in model_names()} == set(model_names())
    assert all("arXiv" in model_source(name) for name in model_names())


def test_every_device_has_a_source_and_its_price_is_called_an_assumption() -> None:
    for name in device_names():
        assert device(name).source
        assert "assumption" in device(name).price_source


def test_case_and_organisation_do_not_matter() -> None:
    assert model("Qwen/qwen3-8b") == model("Qwen3-8B")
    assert device("h100-sxm") == device("H100-SXM")


def test_an_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(ParameterError, match=r"^model: found 'Lama-3.1-8B'.*did you mean 'Llama-3.1-8B'"):
        model("Lama-3.1-8B")


def test_an_unknown_device_gets_the_nearest_spelling() -> None:
    with pytest.raises(ParameterError, match=r"^cluster.device: .*did you mean 'H100-SXM'"):
        device("H100SXM")


def test_an_h200_is_an_h100_with_more_and_faster_memory() -> None:
    h100, h200 = device("H100-SXM"), device("H200-SXM")
    assert h100.bf16_flops == h200.bf16_flops
    assert h200.memory_bytes_per_second / h100.memory_bytes_per_second == pytest.approx(4.8 / 3.35)
