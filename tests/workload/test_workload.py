"""What chance decides about prompts, groups, turns and tools."""

import itertools
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlsim.core.errors import ParameterError
from rlsim.core.streams import PlacedStream
from rlsim.workload import draws as luck
from rlsim.workload.fitting import group_max_ratio
from rlsim.workload.latency import GammaLatency, LognormalLatency
from rlsim.workload.lengths import Constant, Gamma, LengthDistribution, Lognormal, Pareto, Uniform
from rlsim.workload.workload import Drift, TurnDraws, Workload

HUGE = 2**22


def make(**changes: object) -> Workload:
    fields: dict[str, object] = {
        "seed": 11,
        "group_size": 8,
        "dataset_prompts": 50,
        "prompt_length": Lognormal(120, 0.5, 2048),
        "response_length": Lognormal(1000, 1.0, 16_384),
        "intra_group_correlation": 0.6,
        **changes,
    }
    return Workload(**fields)  # type: ignore[arg-type]


TURNS = TurnDraws(Gamma(4, 2, 40), LognormalLatency(0.5, 0.8), Uniform(10, 500))


def test_an_epoch_visits_every_prompt_once_in_an_order_of_its_own() -> None:
    workload = make()
    visits = [workload.prompt_at(draw) for draw in range(100)]
    first, second = visits[:50], visits[50:]
    assert sorted(first) == [(prompt, 0) for prompt in range(50)]
    assert sorted(second) == [(prompt, 1000) for prompt in range(50)]
    assert [prompt for prompt, _ in first] != [prompt for prompt, _ in second]


def test_epochs_may_be_visited_in_any_order() -> None:
    forwards, backwards = make(), make()
    visits = [forwards.prompt_at(draw) for draw in range(500)]
    assert [backwards.prompt_at(draw) for draw in reversed(range(500))] == visits[::-1]


def _everything(workload: Workload, identities: list[tuple[int, int, int, int]]) -> dict[object, object]:
    return {
        (p, a, m, t): (
            workload.prompt_tokens(p),
            workload.turn_count(p, a, m),
            workload.response_tokens(p, a, m, t),
            workload.tool_latency_seconds(p, a, m, t),
            workload.tool_output_tokens(p, a, m, t),
            workload.reward_latency_seconds(p, a, m),
        )
        for p, a, m, t in identities
    }


def test_nothing_depends_on_the_order_of_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    identities = [(p, a, m, t) for p in range(6) for a in (0, 1, 1000) for m in range(11) for t in range(3)]
    asked = _everything(make(turns=TURNS, reward_latency=GammaLatency(2.0)), identities)
    random.Random(1).shuffle(identities)
    monkeypatch.setattr(luck, "GROUPS_KEPT", 2)
    forgetful = make(turns=TURNS, reward_latency=GammaLatency(2.0))
    assert _everything(forgetful, identities) == asked
    assert len(set(asked.values())) > len(asked) * 0.9


@pytest.mark.interpreted
def test_a_group_costs_one_read_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[int, ...]] = []
    at = PlacedStream.at

    def counted(stream: PlacedStream, *place: int) -> np.random.Generator:
        reads.append(place)
        return at(stream, *place)

    monkeypatch.setattr(PlacedStream, "at", counted)
    workload = make(drift=Drift(growth_per_version=0.01, max_factor=2.0))
    for prompt, member, version in itertools.product(range(40), range(8), range(3)):
        workload.response_tokens(prompt, 0, member, version=version)
    assert len(reads) == 40 + 1


def test_surplus_members_change_nobody_elses_luck() -> None:
    workload = make()
    group = workload.response_quantiles(3, 0)
    assert np.array_equal(workload.response_quantiles(3, 0, members=12)[:8], group)
    assert group.shape == (8,)


def test_the_length_is_the_law_at_the_quantile() -> None:
    workload = make()
    expected = workload.response_length.quantile(workload.response_quantiles(3, 1, 2))
    assert [workload.response_tokens(3, 1, m, 2) for m in range(8)] == expected.tolist()


def test_two_laws_meet_the_same_luck() -> None:
    short, long = make(), make(response_length=Gamma(9000, 2, 32_768))
    assert np.array_equal(short.response_quantiles(5, 0), long.response_quantiles(5, 0))


def test_seeds_prompts_attempts_and_turns_have_luck_of_their_own() -> None:
    workload = make()
    groups = [
        workload.response_quantiles(3, 0),
        workload.response_quantiles(4, 0),
        workload.response_quantiles(3, 1),
        workload.response_quantiles(3, 0, turn=1),
        make(seed=12).response_quantiles(3, 0),
    ]
    assert len({float(u) for group in groups for u in group}) == 40


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.65, 0.9])
def test_the_intraclass_correlation_of_log_lengths_is_rho(rho: float) -> None:
    law = Lognormal(50_000, 0.7, HUGE)
    workload = make(response_length=law, intra_group_correlation=rho, group_size=16, dataset_prompts=3000)
    logs = np.array([[np.log(workload.response_tokens(p, 0, m)) for m in range(16)] for p in range(3000)])
    between, within = 16 * logs.mean(axis=1).var(ddof=1), logs.var(axis=1, ddof=1).mean()
    assert (between - within) / (between + 15 * within) == pytest.approx(rho, abs=0.03)


def test_a_prompt_keeps_its_difficulty_at_the_next_attempt() -> None:
    workload = make(dataset_prompts=3000)
    means = [[np.log(workload.response_tokens(p, a, 0)) for p in range(3000)] for a in (0, 1000)]
    assert np.corrcoef(means)[0, 1] == pytest.approx(0.6, abs=0.05)


def test_lengths_follow_the_law_whatever_the_correlation() -> None:
    workload = make(dataset_prompts=4000, group_size=4)
    tokens = [workload.response_tokens(p, 0, m) for p in range(4000) for m in range(4)]
    standard_error = np.std(tokens) * np.sqrt((1 + 3 * 0.6) / len(tokens))
    assert np.mean(tokens) == pytest.approx(workload.response_length.mean_tokens(), abs=4 * standard_error)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_later_version_never_changes_who_is_longer(early: int, late: int) -> None:
    workload = make(drift=Drift(growth_per_version=0.01, max_factor=3.0), response_length=Lognormal(1000, 1.0, 4096))
    identities = [(p, m) for p in range(10) for m in range(8)]
    before, after = (
        [workload.response_tokens(p, 0, m, version=version) for p, m in identities] for version in sorted((early, late))
    )
    assert all(b <= a <= 4096 for b, a in zip(before, after, strict=True))
    ranked = [a for _, a in sorted(zip(before, after, strict=True))]
    assert ranked == sorted(ranked)


def test_drift_compounds_until_its_limit_both_ways() -> None:
    assert Drift(growth_per_version=0.01, max_factor=3.0).factor(10) == pytest.approx(1.01**10)
    assert Drift(growth_per_version=0.01, max_factor=3.0).factor(10**9) == pytest.approx(3.0)
    assert Drift(growth_per_version=-0.01, max_factor=4.0).factor(10**9) == pytest.approx(0.25)
    workload = make(drift=Drift(growth_per_version=1.0, max_factor=2.0), response_length=Constant(100, 150))
    assert [workload.response_tokens(0, 0, 0, version=v) for v in (0, 1, 5)] == [100, 150, 150]


def test_turns_and_tools_follow_their_laws() -> None:
    workload = make(turns=TURNS, dataset_prompts=2000)
    counts = [workload.turn_count(p, 0, m) for p in range(2000) for m in range(4)]
    latencies = [workload.tool_latency_seconds(p, 0, 0, 1) for p in range(2000)]
    outputs = [workload.tool_output_tokens(p, 0, 0, 1) for p in range(2000)]
    assert np.mean(counts) == pytest.approx(TURNS.count.mean_tokens(), rel=0.05)
    assert np.median(latencies) == pytest.approx(0.5, rel=0.1)
    assert np.mean(outputs) == pytest.approx(255, rel=0.05)
    assert max(counts) <= 40


def test_a_workload_without_tools_says_so() -> None:
    workload = make()
    assert workload.turn_count(0, 0, 0) == 1
    assert workload.reward_latency_seconds(0, 0, 0) == 0.0
    with pytest.raises(ParameterError, match="turns"):
        workload.tool_latency_seconds(0, 0, 0, 0)


def test_a_workload_travels_between_processes() -> None:
    workload = make(turns=TURNS)
    workload.response_tokens(1, 0, 0)
    copy = pickle.loads(pickle.dumps(workload))
    assert copy == workload
    assert copy.response_tokens(1, 0, 0) == workload.response_tokens(1, 0, 0)
    other = replace(workload, seed=99)
    assert other.response_tokens(1, 0, 0) != workload.response_tokens(1, 0, 0)


@pytest.mark.parametrize("members", [1, 2, 8, 32])
def test_the_longest_of_exponentials_is_a_harmonic_number_of_means(members: int) -> None:
    harmonic = sum(1 / k for k in range(1, members + 1))
    assert group_max_ratio(Gamma(5_000, 1, 150_000), members) == pytest.approx(harmonic, rel=1e-3)


@pytest.mark.parametrize("members", [1, 2, 8, 32])
def test_the_longest_of_uniforms_is_two_s_over_s_plus_one_means(members: int) -> None:
    expected = 2 * members / (members + 1)
    assert group_max_ratio(Uniform(1, 200_000), members) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("law", [Lognormal(1000, 1.0, 16_384), Gamma(2000, 0.8, 16_384)])
def test_the_group_ratio_is_what_the_draws_show(law: LengthDistribution) -> None:
    workload = make(response_length=law, dataset_prompts=4000)
    longest = [max(workload.response_tokens(p, 0, m) for m in range(8)) for p in range(4000)]
    error = np.std(longest) / np.sqrt(4000) / law.mean_tokens()
    shown = np.mean(longest) / law.mean_tokens()
    assert workload.expected_group_max_ratio() == pytest.approx(shown, abs=4 * error)


def test_members_alike_have_no_tail() -> None:
    law = Lognormal(1000, 1.0, 16_384)
    ratios = [group_max_ratio(law, 8, rho) for rho in (0.0, 0.5, 0.9, 0.999)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(1.0, abs=0.06)
    assert group_max_ratio(Constant(7), 8, 0.5) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1),
        ("group_size", 0),
        ("group_size", 2.5),
        ("dataset_prompts", 0),
        ("intra_group_correlation", 1.0),
        ("intra_group_correlation", float("nan")),
    ],
)
def test_a_workload_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(ParameterError, match=field):
        make(**{field: value})


def test_a_drift_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="growth_per_version"):
        Drift(growth_per_version=-1.0, max_factor=2.0)
    with pytest.raises(ValidationError, match="max_factor"):
        Drift(growth_per_version=0.1, max_factor=0.5)


def test_the_description_names_what_decides_the_tail() -> None:
    text = make(response_length=Lognormal(1097, 1.69, 30_720)).describe()
    for part in ("mean 3,5", "median 1,097", "cap 30,720 (cuts 2.4%)", "rho 0.6", "M_tail(8)", "sigma 1.69"):
        assert part in text
    assert "\n" not in text


@settings(max_examples=25)
@given(
    st.integers(0, 150),
    st.sampled_from([1, 8, 3000]),
    st.sampled_from([Lognormal(1000, 1.0, 16_384), Gamma(300, 1.5, 4096), Pareto.spliced(800, 0.7, 0.1, 1.5, 8192)]),
)
def test_what_is_foreseen_is_what_would_have_been_drawn(draw: int, size: int, law: LengthDistribution) -> None:
    changes = {"group_size": size, "response_length": law}
    foreseeing, asking = make(**changes), make(**changes)
    tokens = [foreseeing.loaded_tokens(later) for later in range(draw, draw + 3)]
    visits = [asking.prompt_at(later) for later in range(draw, draw + 3)]
    assert tokens == [asking.prompt_tokens(prompt) for prompt, _ in visits]
    for prompt, attempt in visits:
        for member in {0, size // 2, size - 1, size}:
            place = (prompt, attempt, member)
            assert foreseeing.response_tokens(*place) == asking.response_tokens(*place)
