"""The HTML page of a saved comparison: what is on it, where its figures come from, and what files cannot put on it."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest
from saved_comparison import COMMAND, HOSTILE, saved_comparison
from typer.testing import CliRunner

from rlsim.cli.main import app
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.studies.compare import Comparison, arm_folder
from rlsim.studies.report.page import html, labels, write_report
from rlsim.studies.report.saved import read_saved
from rlsim.studies.report.tables import report_tables

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Elements with their attributes, and the text of the page; unbalanced elements are an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    return saved_comparison(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(made: tuple[Path, Comparison]) -> Page:
    return Page(html(read_saved(made[0])))


def rows(directory: Path, title: str) -> dict[str, tuple[str, ...]]:
    (view,) = (view for view in report_tables(read_saved(directory)) if view.title == title)
    return {row[0]: row for row in view.rows}


def test_it_has_a_section_for_everything_that_was_promised(page: Page) -> None:
    for heading in (
        "Step time", "GPU time by use", "Staleness", "Token ledger", "Cost", "Assumed inputs", "Figures", "Provenance",
        "Resolved scenario", "What holds each arm back",
    ):  # fmt: skip
        assert heading in page.texts, heading
    targets = {attributes.get("id") for _, attributes in page.elements}
    assert {str(link["href"]).removeprefix("#") for link in page.of("a")} <= targets


def test_it_says_what_ended_the_runs(page: Page) -> None:
    assert page.text.count("ended by run.steps") == 2


def test_its_estimates_are_those_of_the_comparison(made: tuple[Path, Comparison]) -> None:
    out, told = made
    found = rows(out, "Step time")
    for arm in told.arms[1:]:
        step, difference, ratio = (
            arm.estimate("step_seconds"), told.difference_to_first(arm), told.speedup_over_first(arm),
        )  # fmt: skip
        assert found[arm.name][1] == f"{step.mean:.1f} ± {step.high - step.mean:.1f}"
        assert found[arm.name][4] == f"{difference.mean:+.1f} ± {difference.high - difference.mean:.1f}"
        assert found[arm.name][5] == f"{ratio.mean:.2f}× ({ratio.low:.2f} to {ratio.high:.2f})"


def test_shares_of_gpu_time_and_of_tokens_are_wholes(made: tuple[Path, Comparison]) -> None:
    for arm, row in rows(made[0], "Token ledger").items():
        shares = [float(cell) for cell in row[2:-1]]
        assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares)), arm
        assert row[-1] == "yes"
    (view,) = (view for view in report_tables(read_saved(made[0])) if view.title == "GPU time by use")
    for row in view.rows:
        assert sum(float(cell) for cell in row[2:] if cell) == pytest.approx(100, abs=0.5 * len(row)), row


def test_figures_are_inside_the_page_and_are_the_saved_ones(made: tuple[Path, Comparison], page: Page) -> None:
    pictures = [str(image["src"]) for image in page.of("img")]
    captions = " ".join(str(image["alt"]) for image in page.of("img"))
    shared = ("Step time", "GPUs spend", "Timelines", "Success against", "got the samples", "got the response tokens")
    for figure in (*shared, "lengths", "Staleness", "in flight"):
        assert figure in captions
    assert len(pictures) == 6 + 4 * len(made[1].arms)
    data = {b64decode(source.removeprefix("data:image/png;base64,"), validate=True) for source in pictures}
    saved = {path.read_bytes() for path in made[0].rglob("*.png")}
    assert saved <= data


def test_provenance_and_labels_are_kept(made: tuple[Path, Comparison], page: Page) -> None:
    assert COMMAND in page.text
    assert "seed 7, replications 0, 1; 3 steps, the first 1 left out" in page.text
    for arm in made[1].arms:
        for source in arm.plan.sources:
            assert source.text in page.text
    assert labels(read_saved(made[0])) == ["ESTIMATE"]
    estimates = sum(attributes.get("class") == "label estimate" for attributes in page.of("span"))
    assert estimates == 1 + len({(s.what, s.text) for arm in made[1].arms for s in arm.plan.sources if s.estimate})


def test_nothing_in_a_file_becomes_markup(page: Page) -> None:
    assert HOSTILE in page.text
    assert not {"script", "iframe", "object", "form", "base"} & {name for name, _ in page.elements}
    for name, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on")], name
        for key in ("src", "href"):
            assert re.match(r"data:|#", attributes.get(key) or "#"), (name, key)


def test_it_may_load_nothing(page: Page) -> None:
    (policy,) = (meta["content"] for meta in page.of("meta") if "http-equiv" in meta)
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    (css,) = (text for text in page.texts if "color-scheme" in text)
    assert "url(" not in css
    assert "@import" not in css


def test_an_arms_folder_and_a_replication_give_a_page_of_that_arm(made: tuple[Path, Comparison]) -> None:
    out, told = made
    folder = out / arm_folder(told.arms[1].name)
    for place in (folder, folder / "replication-1"):
        assert [arm.name for arm in read_saved(place).arms] == [told.arms[1].name]
        assert write_report(place) == place / "report.html"
        (place / "report.html").unlink()


def test_the_command_says_where_the_page_is_and_writes_the_same_bytes(
    made: tuple[Path, Comparison], tmp_path: Path
) -> None:
    written = []
    for name in ("a.html", "b.html"):
        done = CliRunner().invoke(app, ["report", str(made[0]), "--to", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert done.output.split() == [str(tmp_path / name)]
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


BROKEN = {
    "no JSON": lambda text: text[:100],
    "a list": lambda text: "[]",
    "no arms": lambda text: json.dumps({**json.loads(text), "arms": {}}),
    "another shape": lambda text: json.dumps({**json.loads(text), "sensitivity": [1]}),
    "no replications": lambda text: text.replace('"replications": [', '"replications": [], "others": ['),
    "a metric that is a list": lambda text: text.replace('"step_seconds": 1', '"step_seconds": [1], "x": 1', 1),
    "a metric gone": lambda text: text.replace('"usd_per_step"', '"usd"'),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused_by_name(made: tuple[Path, Comparison], tmp_path: Path, how: str) -> None:
    out = tmp_path / "out"
    shutil.copytree(made[0], out, ignore=shutil.ignore_patterns("*.parquet", "*.png", "*.jsonl"))
    path = out / "comparison.json"
    text = path.read_text()
    path.write_text(BROKEN[how](text))
    assert path.read_text() != text
    with pytest.raises(RlsimError, match=re.escape(str(path))):
        write_report(out)
    assert not (out / "report.html").exists()


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"no comparison\.json"):
        read_saved(tmp_path)


def test_a_picture_that_is_none_is_left_out(made: tuple[Path, Comparison], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(made[0], out)
    (out / "step_time.png").write_text(HOSTILE)
    assert "Step time of the arms" not in html(read_saved(out))


def test_a_live_run_keeps_its_label(tmp_path: Path) -> None:
    command = ["run", "scenarios/quickstart.yaml", "--arm", "one-off 8+8", "--live", "fake", "--out", str(tmp_path)]
    for key in ("workload.prompts_per_step=4", "workload.group_size=4", "trainer.updates_per_step=1", "run.steps=3"):
        command += ["--set", key]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    page = Page(html(read_saved(tmp_path)))
    found = [attributes.get("class") for attributes in page.of("span")]
    assert "label emulated" in found
    assert "label live" in found
    assert "rlsim run scenarios/quickstart.yaml" in page.text
    assert "--live=fake" in page.text
