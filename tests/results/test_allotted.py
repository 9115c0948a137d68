"""Which prompts got what: counted by hand, and in runs of every kind no sample and no token is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from handmade import handmade
from runs import small_plan, small_run

from rlsim.core.errors import ParameterError
from rlsim.core.events import Scored
from rlsim.core.log import Decision, OddsRow
from rlsim.core.ticks import to_ticks
from rlsim.executor.run import FinishedRun
from rlsim.learning.dynamics import LearningDynamics
from rlsim.results.allocation import BANDS, EDGES, ROWS, UNKNOWN, Allotted, allotted, allotted_columns
from rlsim.results.columns import Columns
from rlsim.results.metrics import metrics
from rlsim.results.plots.run import allotted_map
from rlsim.results.store import save
from rlsim.results.tables import digest

LEARNING = ("learning={curve: {half_updates: 4}}",)
PRUNED = (*LEARNING, "policy.parts={allocation: {use: arrol}}")
FOUR = (0.01, 0.5, 0.5, 0.97)
"""Of the samples of the run written by hand: 10, 12, 8 and 4 tokens, two begun before the first step's end at 21 s."""


def written(odds: tuple[float, ...] = FOUR, rewards: tuple[float, ...] = ()) -> FinishedRun:
    """The run written by hand, with hidden success probabilities and rewards that were told."""
    run = handmade()
    run.log.last_commands_idle, run.log.final = True, run.log.final[:4]
    run.log.odds = [OddsRow(sample, success) for sample, success in enumerate(odds)]
    told = [Decision(to_ticks(26), Scored(sample, reward=value), ()) for sample, value in enumerate(rewards)]
    run.log.decisions[6:6] = told
    return run


def columns(run: FinishedRun) -> Columns:
    return allotted_columns(digest(run))


def matrix(cells: dict[tuple[int, int], int], steps: int = 1) -> np.ndarray:
    made = np.zeros((ROWS + 1, steps), np.int64)
    for cell, count in cells.items():
        made[cell] = count
    return made


def test_samples_and_tokens_are_where_they_were_counted_by_hand() -> None:
    run = written()
    run.log.iterations[0] = run.log.iterations[0]._replace(end=to_ticks(11))
    [found] = allotted([columns(run)])
    always, middle, never = ROWS - 1, int(np.digitize(0.5, EDGES)), 0
    assert (found.samples == matrix({(never, 0): 1, (middle, 0): 1, (middle, 1): 1, (always, 1): 1}, 2)).all()
    assert (found.tokens == matrix({(never, 0): 10, (middle, 0): 12, (middle, 1): 8, (always, 1): 4}, 2)).all()
    assert found.band_shares("samples") == {
        "never": 0.25, "hard": 0.0, "middle": 0.5, "easy": 0.0, "always": 0.25, "unknown": 0.0,
    }  # fmt: skip
    assert found.band_shares("tokens")["middle"] == 20 / 34


def test_where_chances_are_hidden_the_pass_rate_of_the_group_stands_for_them() -> None:
    [found] = allotted([columns(written((), (1.0, 0.0, 1.0, 1.4)))])
    assert found.measured
    half, whole = int(np.digitize(0.5, EDGES)), ROWS - 1
    assert (found.samples == matrix({(half, 0): 2, (whole, 0): 2})).all()


def test_one_sample_without_a_chance_has_all_rows_measured_in_every_run() -> None:
    hidden, measured = columns(written()), columns(written(FOUR[:3], (1.0, 1.0)))
    assert not allotted([hidden])[0].measured
    one, other = allotted([hidden, measured])
    assert one.measured
    assert other.measured
    assert one.samples[UNKNOWN].sum() == 4
    assert other.samples.sum(axis=1)[[ROWS - 1, UNKNOWN]].tolist() == [2, 2]


@pytest.mark.parametrize("eighths", range(9))
def test_every_pass_rate_of_eight_has_a_row_of_its_own(eighths: int) -> None:
    assert int(np.digitize(eighths / 8, EDGES)) == eighths


def test_bands_are_all_rows_once_and_end_where_they_say() -> None:
    assert [row for low, high in BANDS.values() for row in range(low, high)] == list(range(ROWS + 1))
    ends = [(0.0, *EDGES, 1.0, math.nan)[high] for _, high in BANDS.values()][:-1]
    assert ends == [0.05, 0.35, 0.65, 0.95, 1.0]


@pytest.mark.parametrize("preset", ["sync-colocated", "areal", "pipelinerl", "slime-april"])
@pytest.mark.parametrize("extra", [LEARNING, PRUNED], ids=["uniform", "pruned"])
def test_no_sample_and_no_token_is_lost_or_counted_twice(preset: str, extra: tuple[str, ...]) -> None:
    run = small_run(preset, extra=extra)
    [found] = allotted([columns(run)])
    assert not found.measured
    assert found.samples.sum() == len(run.log.final)
    told = sum(metrics(run).ledger_tokens.values())
    assert told == run.log.generated_tokens
    assert found.tokens.sum() == told - run.log.check_tokens - run.log.undelivered_tokens
    assert sum(found.band_shares("tokens").values()) == pytest.approx(1)


def test_the_chance_is_that_of_the_weights_that_were_published_when_the_sample_began() -> None:
    """Before the first publication it is the untrained model's, whatever the step."""
    plan, found = small_plan("sync-colocated", LEARNING), columns(small_run("sync-colocated", extra=LEARNING))
    assert plan.learning is not None
    workload = plan.workload_of(0)
    untrained = LearningDynamics(plan.learning, workload.seed, workload.dataset_prompts)
    kinds = ((found["step"] == 0, True), (found["step"] == found["step"].max(), False))
    for chosen, same in kinds:
        pairs = zip(found["prompt"][chosen].tolist(), found["success"][chosen].tolist(), strict=True)
        assert {untrained.success(prompt, 0) == odds for prompt, odds in pairs} == {same}


def test_where_nobody_is_rewarded_there_is_no_such_table() -> None:
    assert len(columns(small_run())["step"]) == 0


def test_the_table_is_saved_and_read_as_it_was(tmp_path: Path) -> None:
    run = small_run(extra=LEARNING)
    table = pd.read_parquet(save(tmp_path, "arm", [run]) / "replication-0" / "allotted.parquet")
    [saved] = allotted([{str(name): table[name].to_numpy() for name in table}])
    [made] = allotted([columns(run)])
    assert (saved.samples == made.samples).all()
    assert (saved.tokens == made.tokens).all()


# -- the figure -------------------------------------------------------------------------------------------

ONE = Allotted(matrix({(0, 0): 6, (4, 1): 2, (4, 3): 4}, 4), matrix({(0, 0): 600, (4, 1): 7400}, 4), False)


def cells(figure: matplotlib.figure.Figure) -> list[np.ndarray]:
    meshes = [axes.collections[0] for axes in figure.axes if axes.get_title("left")]
    return [np.ma.filled(mesh.get_array(), 0.0) for mesh in meshes]


def test_colours_are_samples_a_step_mean_over_replications() -> None:
    figure = allotted_map({"a": [ONE, replace(ONE, samples=3 * ONE.samples)], "b": [ONE]}, "samples")
    a, b = cells(figure)
    assert a.shape == (ROWS, 4)
    assert (a == 2 * ONE.samples[:ROWS]).all()
    assert (b == ONE.samples[:ROWS]).all()
    limits = {axes.collections[0].get_clim() for axes in figure.axes if axes.get_title("left")}
    assert limits == {(0, 12)}


def test_tokens_are_in_thousands_and_their_shares_stand_beside_the_rows() -> None:
    figure = allotted_map({"a": [ONE]}, "tokens")
    [a] = cells(figure)
    assert a.sum() == pytest.approx(8.0)
    beside = [text.get_text() for text in figure.axes[0].texts]
    assert [beside[0], beside[1], beside[4]] == ["8 %", "0", "92 %"]


def test_long_runs_are_drawn_in_windows_that_lose_nothing() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 9, (ROWS + 1, 61))
    counts[UNKNOWN] = 0
    figure = allotted_map({"long": [Allotted(counts, counts, False)]}, "samples")
    [found] = cells(figure)
    widths = np.array([6] * 10 + [1])
    assert (found @ widths).tolist() == pytest.approx(counts[:ROWS].sum(axis=1).tolist())


def test_unknown_chances_have_a_row_only_where_there_are_some() -> None:
    known = allotted_map({"a": [ONE]}).axes[0]
    some = replace(ONE, samples=ONE.samples + matrix({(UNKNOWN, 2): 1}, 4))
    unknown = allotted_map({"a": [some]}).axes[0]
    names = [[label.get_text() for label in axes.get_yticklabels()] for axes in (known, unknown)]
    assert names[1] == [*names[0], "unknown"]


def test_hidden_and_measured_rows_are_not_put_side_by_side() -> None:
    with pytest.raises(ParameterError, match="one kind"):
        allotted_map({"a": [ONE], "b": [replace(ONE, measured=True)]})
    with pytest.raises(ParameterError, match="samples"):
        allotted_map({})


def test_the_colours_only_get_darker() -> None:
    mesh = allotted_map({"a": [ONE]}).axes[0].collections[0]
    red, green, blue, _ = mesh.get_cmap()(np.linspace(0, 1, 64)).T
    assert (np.diff(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2) < 0).all()
