"""Laws from what the user writes: names, keys, files."""

import json
import math
from pathlib import Path

import pytest

from rlsim.core.errors import ParameterError
from rlsim.workload.empirical import Empirical
from rlsim.workload.latency import ConstantLatency, EmpiricalLatency, GammaLatency, LognormalLatency, NormalLatency
from rlsim.workload.lengths import Constant, Gamma, Lognormal, Mixture, Pareto, Uniform
from rlsim.workload.spec import (
    LATENCY_FIELDS,
    LENGTH_FIELDS,
    latency_from_fields,
    lengths_from_fields,
)

PATH = "workload.response_tokens"

GOOD: dict[str, dict[str, object]] = {
    "constant": {"tokens": 300},
    "lognormal": {"median_tokens": 1000, "sigma": 1.0, "cap_tokens": 4096},
    "gamma": {"mean_tokens": 900, "shape": 2, "cap_tokens": 4096},
    "pareto": {"scale_tokens": 100, "tail_index": 1.3, "cap_tokens": 4096},
    "uniform": {"low_tokens": 5, "high_tokens": 50},
    "mixture": {"weights": [1, 3], "laws": [40, {"law": "uniform", "low_tokens": 1, "high_tokens": 9}]},
    "empirical": {"values": [4, 5, 6]},
}

GOOD_LATENCY: dict[str, dict[str, object]] = {
    "constant": {"seconds": 0.5},
    "exponential": {"mean_seconds": 2.0},
    "lognormal": {"median_seconds": 2.0, "sigma": 1.0, "cap_seconds": 30},
    "gamma": {"mean_seconds": 2.0, "shape": 3.0},
    "normal": {"mean_seconds": 10.0, "deviation_seconds": 3.0},
    "empirical": {"values": [0.1, 0.2]},
}


def test_every_kind_makes_its_law() -> None:
    made = {kind: lengths_from_fields(kind, fields, PATH) for kind, fields in GOOD.items()}
    assert set(made) == set(LENGTH_FIELDS)
    assert made["constant"] == Constant(300)
    assert made["lognormal"] == Lognormal(1000, 1.0, 4096)
    assert isinstance(made["gamma"], Gamma)
    assert made["gamma"].mean_tokens() == pytest.approx(900, rel=1e-5)
    assert made["pareto"] == Pareto(100, 1.3, 4096)
    assert made["uniform"] == Uniform(5, 50)
    assert made["mixture"] == Mixture((0.25, 0.75), (Constant(40), Uniform(1, 9)))
    assert made["empirical"] == Empirical((4, 5, 6))


def test_every_kind_makes_its_latency() -> None:
    made = {kind: latency_from_fields(kind, fields, PATH) for kind, fields in GOOD_LATENCY.items()}
    assert set(made) == set(LATENCY_FIELDS)
    assert made["constant"] == ConstantLatency(0.5)
    assert made["exponential"] == GammaLatency(2.0, 1.0)
    assert made["lognormal"] == LognormalLatency(2.0, 1.0, 30)
    assert made["gamma"] == GammaLatency(2.0, 3.0)
    assert made["normal"] == NormalLatency(10.0, 3.0)
    assert made["empirical"] == EmpiricalLatency((0.1, 0.2))


def test_a_lognormal_takes_any_two_of_median_mean_and_sigma() -> None:
    by_sigma = lengths_from_fields("lognormal", {"mean_tokens": 3536, "sigma": 1.69, "cap_tokens": 30720}, PATH)
    by_median = lengths_from_fields(
        "lognormal", {"mean_tokens": 3536, "median_tokens": 1097, "cap_tokens": 30720}, PATH
    )
    assert isinstance(by_sigma, Lognormal)
    assert by_sigma.median_tokens == pytest.approx(1097, rel=0.01)
    assert by_median.mean_tokens() == pytest.approx(3536, rel=1e-5)
    with pytest.raises(ParameterError, match=f"{PATH}.lognormal: .*two of"):
        lengths_from_fields("lognormal", {"mean_tokens": 3536, "cap_tokens": 30720}, PATH)


def test_a_spliced_pareto_needs_its_whole_body() -> None:
    fields: dict[str, object] = {"tail_index": 1.5, "cap_tokens": 8192, "median_tokens": 500, "sigma": 0.8}
    law = lengths_from_fields("pareto", {**fields, "tail_share": 0.1}, PATH)
    assert law == Pareto.spliced(500, 0.8, 0.1, 1.5, 8192)
    with pytest.raises(ParameterError, match="tail_share"):
        lengths_from_fields("pareto", fields, PATH)
    with pytest.raises(ParameterError, match="scale_tokens alone"):
        lengths_from_fields("pareto", {**fields, "tail_share": 0.1, "scale_tokens": 3}, PATH)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match=rf"{PATH}\.law: .*did you mean 'lognormal'"):
        lengths_from_fields("lognormol", GOOD["lognormal"], PATH)
    with pytest.raises(ParameterError, match=rf"{PATH}\.sigmax: .*did you mean 'sigma'"):
        lengths_from_fields("lognormal", {**GOOD["lognormal"], "sigmax": 1}, PATH)
    laws = [40, {"law": "uniform", "low_token": 1, "high_tokens": 9}]
    with pytest.raises(ParameterError, match=rf"{PATH}\.laws\.1\.low_token: .*did you mean 'low_tokens'"):
        lengths_from_fields("mixture", {"weights": [1, 3], "laws": laws}, PATH)
    with pytest.raises(ParameterError, match="did you mean 'mean_seconds'"):
        latency_from_fields("gamma", {"mean_second": 1, "shape": 1}, PATH)


@pytest.mark.parametrize(("kind", "key"), [(k, key) for k, fs in LENGTH_FIELDS.items() for key in fs if fs[key]])
def test_a_missing_key_is_named(kind: str, key: str) -> None:
    fields = {name: value for name, value in GOOD[kind].items() if name != key}
    with pytest.raises(ParameterError, match=rf"{PATH}\.{key}: found null"):
        lengths_from_fields(kind, fields, PATH)


NUMERIC = [(k, key) for k, fs in GOOD.items() for key, v in fs.items() if isinstance(v, int | float)]


@pytest.mark.parametrize(("kind", "key"), NUMERIC)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, 0, "12", True, None, [1]])
def test_a_number_that_means_nothing_is_refused_at_its_key(kind: str, key: str, bad: object) -> None:
    with pytest.raises(ParameterError) as caught:
        lengths_from_fields(kind, {**GOOD[kind], key: bad}, PATH)
    assert caught.value.path == f"{PATH}.{key}"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "12", True, None])
def test_a_bad_latency_is_refused_at_its_key(bad: object) -> None:
    for kind, fields in GOOD_LATENCY.items():
        for key, value in fields.items():
            changed = [0.1, bad] if isinstance(value, list) else bad
            with pytest.raises(ParameterError) as caught:
                latency_from_fields(kind, {**fields, key: changed}, PATH)
            assert caught.value.path.startswith(f"{PATH}.{key}")


@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        ("mixture", {"weights": [1], "laws": [3, 4]}, "weights"),
        ("mixture", {"weights": [1, -1], "laws": [3, 4]}, "weights.1"),
        ("mixture", {"weights": [], "laws": []}, "weights"),
        ("mixture", {"weights": [1], "laws": [{"law": "mixture"}]}, "laws.0.law"),
        ("mixture", {"weights": [1], "laws": [{"tokens": 3}]}, "laws.0.law"),
        ("empirical", {"values": [3, math.nan]}, "values.1"),
        ("empirical", {"values": [3, -4]}, "values.1"),
        ("empirical", {"values": []}, "values"),
        ("empirical", {}, "values"),
        ("empirical", {"values": [3], "file": "x"}, "values"),
        ("empirical", {"file": 3}, "file"),
        ("uniform", {"low_tokens": 9, "high_tokens": 5}, "high_tokens"),
        ("lognormal", {"median_tokens": 9, "sigma": 1, "cap_tokens": 2**40}, "cap_tokens"),
    ],
)
def test_a_contradiction_is_refused_at_its_key(kind: str, fields: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        lengths_from_fields(kind, fields, PATH)
    assert caught.value.path == f"{PATH}.{path}"


def test_lengths_are_read_from_lines_json_and_csv(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# tokens\n12\n\n7\n1e3\n")
    (tmp_path / "a.json").write_text(json.dumps([12, 7, 1000]))
    (tmp_path / "a.csv").write_text("id,tokens\nx,12\ny,7\nz,1000\n")
    for fields in ({"file": "a.txt"}, {"file": "a.json"}, {"file": "a.csv", "column": "tokens"}):
        assert lengths_from_fields("empirical", fields, PATH, directory=tmp_path) == Empirical((12, 7, 1000))


@pytest.mark.parametrize(
    ("name", "text", "fields", "message"),
    [
        ("a.txt", "12\nnan\n", {}, "nan at .*a.txt:2"),
        ("a.txt", "12\n\n-3\n", {}, "-3 at .*a.txt:3"),
        ("a.txt", "12\n3.5\n", {}, "3.5 at .*a.txt:2"),
        ("a.txt", "12\ntwelve\n", {}, "twelve at .*a.txt:2"),
        ("a.txt", "", {}, "0 values"),
        ("a.txt", "1\n", {"column": "x"}, "a .csv file"),
        ("a.json", "[12,\n 7,\n NaN]", {}, "NaN at .*a.json:3"),
        ("a.json", "[12,\n -7]", {}, "-7 at .*a.json:2"),
        ("a.json", "[12,", {}, "a JSON list"),
        ("a.json", "[12, [7]]", {}, "a flat JSON list"),
        ("a.json", "[" * 100_000, {}, "a JSON list"),
        ("a.csv", "id,tokens\nx,12\ny,-7\n", {"column": "tokens"}, "-7 at .*a.csv:3"),
        ("a.csv", "id,tokens\nx,12\ny\n", {"column": "tokens"}, "at .*a.csv:3"),
        ("a.csv", "id,tokens\nx,12\n", {"column": "token"}, "did you mean 'tokens'"),
        ("a.csv", "id,tokens\nx,12\n", {}, "column"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_line(
    tmp_path: Path, name: str, text: str, fields: dict[str, object], message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ParameterError, match=message) as caught:
        lengths_from_fields("empirical", {"file": name, **fields}, PATH, directory=tmp_path)
    assert caught.value.path == f"{PATH}.file"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\xd8")
    (tmp_path / "large").write_text("1\n" * 100)
    monkeypatch.setattr("rlsim.workload.empirical.LARGEST_FILE_BYTES", 99)
    for name, message in (("none", "No such file"), ("binary", "UTF-8"), ("large", "at most 99 bytes")):
        with pytest.raises(ParameterError, match=message):
            latency_from_fields("empirical", {"file": name}, PATH, directory=tmp_path)


def test_latencies_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "tools.csv").write_text("ms,seconds\n100,0.1\n250,0.25\n")
    fields = {"file": "tools.csv", "column": "seconds"}
    law = latency_from_fields("empirical", fields, PATH, directory=tmp_path)
    assert law == EmpiricalLatency((0.1, 0.25))
