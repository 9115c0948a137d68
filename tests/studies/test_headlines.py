"""Published speed-ups: what a verdict means, and that every shipped headline can be looked for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evidence import results_pages
from evidence.claims import Bracket, Found, as_json, as_text, brackets, conditioned, hunt, ratio
from rlsim.core.errors import ParameterError
from rlsim.resolve import resolve
from rlsim.resolve.scenario import gpus_used, price
from rlsim.results.statistics import interval, paired_ratio
from rlsim.scenario.document import Document, load
from rlsim.scenario.schema import Headline, PointConfig, Scenario
from rlsim.studies.runs.executor import Processes, RunExecutor, local_executor, make_run
from rlsim.studies.runs.record import RunRecord, RunRequest
from rlsim.studies.runs.store import RunStore

FOLDER = Path(__file__).parents[2] / "scenarios" / "systems"
FILES = sorted(FOLDER.glob("*.yaml"))
ALLOCATION = sorted((FOLDER.parent / "allocation" / "headlines").glob("*.yaml"))
DOCUMENTED = results_pages.claims()

STEP_SECONDS = 0.01
CONSTANT = f"""
name: one slot, one sample
model: Qwen3-0.6B
cluster: {{device: H100-SXM, gpus: 2}}
rollout: {{gpus: 1, step_time: {{source: coefficients, base_seconds: {STEP_SECONDS}}}}}
trainer: {{gpus: 1, mfu: 0.4}}
workload: {{prompts_per_step: 1, group_size: 1, prompt_tokens: 1, response_tokens: 1000}}
policy: {{preset: sync-disaggregated}}
run: {{steps: 3, warmup_steps: 1, replications: 2}}
headline:
  system: Half
  source: arithmetic
  claim: half the tokens take half the time
  ratios: [1.9, 2.0]
  measure: MEASURE
  baseline: whole
  improved: half
  assumed: [nothing]
  points:
    - {{label: as written}}
    - {{label: three quarters, settings: {{arms.half.workload.response_tokens: {{law: constant, tokens: 750}}}}}}
    - {{label: both quick, settings: {{rollout.step_time.base_seconds: 0.001}}}}
arms:
  whole: {{}}
  half: {{workload: {{response_tokens: 500}}}}
"""


def claimed(low: float, high: float) -> Headline:
    given: dict[str, Any] = {"system": "S", "source": "a paper", "claim": "faster", "ratios": (low, high)}
    points = ({"label": "here"},)
    return Headline(**given, measure="step", baseline="a", improved="b", assumed=("the rest",), points=points)


def found(*ratios: float) -> tuple[Found, ...]:
    return tuple(Found(f"point {number}", interval([ratio, ratio])) for number, ratio in enumerate(ratios))


def small(directory: Path, measure: str = "step", changes: Mapping[str, str] = {}) -> Document:
    text = CONSTANT.replace("MEASURE", measure)
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    path = directory / "headline.yaml"
    path.write_text(text)
    return load(path)


def arms_of(document: Document) -> dict[str, Scenario]:
    return {arm or "": scenario for arm, scenario in document.resolve_all().items()}


def looked_for(document: Document) -> Bracket:
    with local_executor() as runs:
        return brackets([hunt(document)], runs)[0]


def usd_per_hour(scenario: Scenario) -> float:
    made = resolve(scenario)
    return gpus_used(made) * price(made)[0]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.0, 3.0), "bracketed"),
        ((3.0, 1.2, 1.0), "bracketed"),
        ((1.5, 2.0), "bracketed"),
        ((1.0, 1.7), "overlaps"),
        ((1.6, 1.8), "overlaps"),
        ((1.6, 4.0), "overlaps"),
        ((0.9, 1.2), "not reached: -20% at best"),
        ((1.49,), "not reached: -1% at best"),
        ((2.5, 3.0), "exceeded everywhere: +25% at least"),
    ],
)
def test_a_verdict_says_where_the_claim_lies_in_what_was_found(ratios: tuple[float, ...], verdict: str) -> None:
    assert Bracket(claimed(1.5, 2.0), found(*ratios)).verdict == verdict


def test_a_claim_of_one_number_is_bracketed_from_both_sides_only() -> None:
    assert Bracket(claimed(2.0, 2.0), found(1.9, 2.1)).verdict == "bracketed"
    assert Bracket(claimed(2.0, 2.0), found(1.8, 1.9)).verdict == "not reached: -5% at best"


def test_a_step_of_half_the_tokens_is_half_as_long(tmp_path: Path) -> None:
    told = looked_for(small(tmp_path))
    whole, part, quick = (point.ratio.mean for point in told.found)
    assert whole == pytest.approx(2, rel=0.02)
    assert part == pytest.approx(4 / 3, rel=0.02)
    assert 1 < quick < whole, "training and sync weigh more beside quick engines"


@pytest.mark.parametrize("measure", ["throughput", "rollout", "collection"])
def test_tokens_a_second_do_not_reward_shorter_responses(tmp_path: Path, measure: str) -> None:
    told = looked_for(small(tmp_path, measure))
    assert told.found[0].ratio.mean == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("measure", ["latency_mean", "latency_median", "latency_p99"])
def test_half_the_tokens_wait_half_as_long(tmp_path: Path, measure: str) -> None:
    told = looked_for(small(tmp_path, measure))
    assert told.found[0].ratio.mean == pytest.approx(2, rel=0.01)


def test_goodput_counts_the_requests_within_the_objectives(tmp_path: Path) -> None:
    """One request at a time: those of half the tokens are as good, and come twice as often."""
    slo = {"ratios: [1.9, 2.0]": "slo: {ttft_seconds: 0.02, tpot_seconds: 0.0101}\n  ratios: [1.9, 2.0]"}
    told = looked_for(small(tmp_path, "goodput", slo))
    assert told.found[0].ratio.mean == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize(("measure", "slo"), [("goodput", ""), ("step", "slo: {ttft_seconds: 1, tpot_seconds: 1}\n  ")])
def test_objectives_belong_to_goodput_and_goodput_to_objectives(tmp_path: Path, measure: str, slo: str) -> None:
    with pytest.raises(ValueError, match=r"headline\.slo"):
        hunt(small(tmp_path, measure, {"ratios: [1.9, 2.0]": f"{slo}ratios: [1.9, 2.0]"}))


class Counting(Processes):
    """Counts the runs that are made, and is killed after so many."""

    def __init__(self, most: int = 1000) -> None:
        super().__init__(1, self._counted)
        self.most, self.made = most, 0

    def _counted(self, request: RunRequest) -> RunRecord:
        if self.made == self.most:
            raise KeyboardInterrupt
        self.made += 1
        return make_run(request)


def test_conditions_share_the_runs_that_they_have_in_common(tmp_path: Path) -> None:
    """Three conditions of two arms, and one that changes an arm alone: five arms of two replications."""
    asked, told = hunt(small(tmp_path)), []
    with RunStore() as store, Counting() as backend:
        brackets([asked, asked], RunExecutor(backend, store, told.append))
    assert [request.replication for request in asked.requests] == [0, 1] * 5
    assert backend.made == 10
    assert told == [0] + [1] * 10


def test_a_command_that_was_killed_goes_on_with_what_it_lacks(tmp_path: Path) -> None:
    asked, told = hunt(small(tmp_path)), []
    with pytest.raises(KeyboardInterrupt), RunStore(tmp_path / "kept") as store, Counting(3) as backend:
        brackets([asked], RunExecutor(backend, store))
    with RunStore(tmp_path / "kept") as store, Counting() as backend:
        later = brackets([asked], RunExecutor(backend, store, told.append))
        assert backend.made == 7
    assert told == [3] + [1] * 7
    assert later == [looked_for(small(tmp_path))]
    with RunStore(tmp_path / "kept") as store, Counting(0) as backend:
        assert brackets([asked], RunExecutor(backend, store)) == later, "read back from disk"


def test_other_objectives_are_other_runs(tmp_path: Path) -> None:
    ratios = "ratios: [1.9, 2.0]"
    tight, loose = (
        hunt(small(tmp_path, "goodput", {ratios: f"slo: {{ttft_seconds: {limit}, tpot_seconds: 0.0101}}\n  {ratios}"}))
        for limit in (0.02, 0.03)
    )
    assert not {request.key for request in tight.requests} & {request.key for request in loose.requests}


def test_a_setting_of_an_arm_leaves_the_other_alone(tmp_path: Path) -> None:
    document = small(tmp_path)
    point = PointConfig(label="p", settings={"arms.half.rollout.max_num_seqs": 3, "workload.group_size": 2})
    whole, half = (conditioned(arms_of(document), arm, point) for arm in ("whole", "half"))
    assert (whole.rollout.max_num_seqs, half.rollout.max_num_seqs) == (256, 3)
    assert whole.workload.group_size == half.workload.group_size == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rollout.step_time.base_seconds: 0.001": "rollout.step_time.bases: 1"}, "both quick.rollout.step_time.bases"),
        ({"rollout.step_time.base_seconds: 0.001": "rollout.gpus.more: 1"}, "both quick.rollout.gpus.more"),
        ({"rollout.step_time.base_seconds: 0.001": "rollout.gpus: -1"}, "rollout.gpus"),
        ({"arms.half.workload": "arms.halves.workload"}, "did you mean 'half'"),
        ({"improved: half": "improved: haft"}, "did you mean 'half'"),
    ],
)
def test_a_headline_that_names_what_is_not_there_is_refused(
    tmp_path: Path, changes: Mapping[str, str], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        hunt(small(tmp_path, changes=changes))


def test_a_scenario_without_a_headline_is_refused() -> None:
    with pytest.raises(ParameterError, match="headline"):
        hunt(load(FOLDER.parent / "quickstart.yaml"))


def test_the_text_shows_the_claim_the_range_the_verdict_and_what_is_assumed() -> None:
    text = as_text([Bracket(claimed(1.5, 2.0), (Found("here", paired_ratio([2, 3], [1, 2])), *found(1.0)))])
    for part in (
        "S ",
        "1.50x to 2.00x",
        "1.00x (1.00-1.00) to 1.73x",
        "overlaps",
        "faster (a paper)",
        "assumed: the rest",
    ):
        assert part in text, part


def test_the_json_holds_the_same() -> None:
    (system,) = json.loads(as_json([Bracket(claimed(1.5, 2.0), found(1.0, 3.0))]))["systems"]
    assert system["verdict"] == "bracketed"
    assert system["ratios"] == [1.5, 2.0]
    assert [point["mean"] for point in system["points"]] == [1.0, 3.0]


def test_there_are_headlines() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("file", [*FILES, *ALLOCATION], ids=lambda file: file.stem)
def test_every_shipped_headline_names_arms_and_keys_that_exist(file: Path) -> None:
    asked = hunt(load(file))
    assert asked.headline.ratios[0] <= asked.headline.ratios[1]
    assert len({case.label for case in asked.cases}) == len(asked.cases)
    for case in asked.cases:
        assert len(case.baseline) == len(case.improved) > 1, case.label
        arms = [request.scenario for request in (case.baseline[0], case.improved[0])]
        if len({pool.device for arm in arms for pool in resolve(arm).pools}) == 1:
            assert len({gpus_used(resolve(arm)) for arm in arms}) == 1, f"{case.label}: both arms use as many GPUs"
        else:
            assert usd_per_hour(arms[1]) == pytest.approx(usd_per_hour(arms[0]), rel=0.15), f"{case.label}: money"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_one_point_of_every_shipped_headline_runs_when_shortened(file: Path) -> None:
    members = min(2, min(scenario.workload.group_size for scenario in load(file).resolve_all().values()))
    sizes = ("workload.prompts_per_step=16", f"workload.group_size={members}", "trainer.updates_per_step=1")
    runs = ("run.steps=2", "run.warmup_steps=0", "run.replications=1")
    asked = hunt(load(file, sets=(*sizes, *runs)))
    base, better = (list(map(make_run, arm)) for arm in (asked.cases[0].baseline, asked.cases[0].improved))
    told = ratio(asked.headline, base, better)
    assert math.isfinite(told.mean)
    assert told.mean > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_shipped_headline_is_in_the_documentation(file: Path) -> None:
    asked = hunt(load(file))
    headline = asked.headline
    assert f"\n{headline.system}: {headline.claim} ({headline.source})." in DOCUMENTED
    end = "\n" if headline.also is None else "; "
    for said in (
        *(f": {case.label}{end}" for case in asked.cases),
        *(f"- assumed: {item}\n" for item in headline.assumed),
    ):
        assert said in DOCUMENTED, said


LEARNS = {
    "policy: {preset": "learning: {population: {mean_success: 0.4}, curve: {asymptote: 0.8, half_updates: 20}}\n"
    "policy: {preset",
    "prompts_per_step: 1, group_size: 1": "prompts_per_step: 4, group_size: 4",
    "steps: 3": "steps: 30",
    "    - {label: three quarters, settings: {arms.half.workload.response_tokens: {law: constant, tokens: 750}}}\n": "",
    "    - {label: both quick, settings: {rollout.step_time.base_seconds: 0.001}}\n": "",
    "{workload: {response_tokens: 500}}": "{learning: {curve: {half_updates: 10}}}",
}
"""The improved arm learns twice as fast, by the same samples."""


def test_a_target_is_a_share_of_the_way_from_untrained_to_the_asymptote(tmp_path: Path) -> None:
    changes = {**LEARNS, "  baseline: whole": "  also: seconds_to_target\n  target_share: 0.25\n  baseline: whole"}
    asked = hunt(small(tmp_path, "rollouts_to_target", changes))
    assert [case.target for case in asked.cases] == [pytest.approx(0.5)]
    with local_executor() as runs:
        point = brackets([asked], runs)[0].found[0]
    assert point.ratio.mean == pytest.approx(2, rel=0.2)
    assert point.also is not None
    assert point.also.mean == pytest.approx(2, rel=0.2)


def test_success_is_compared_after_as_many_rollouts(tmp_path: Path) -> None:
    point = looked_for(small(tmp_path, "success", LEARNS)).found[0]
    assert 1.05 < point.ratio.mean < 2


def test_a_target_that_is_not_reached_says_how_far_the_run_came(tmp_path: Path) -> None:
    changes = {**LEARNS, "  baseline: whole": "  target_share: 0.9\n  baseline: whole"}
    with pytest.raises(ParameterError, match=r"or more run\.steps"):
        looked_for(small(tmp_path, "tokens_to_target", changes))
