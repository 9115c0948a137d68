"""The commands of the documentation run as they stand; every page is in the navigation, and all pages are short.

A block of ``bash`` in *Start* or *Guide* is run, unless a comment before it says ``<!-- not run: reason -->``. What a
comment ``<!-- test adds: OPTIONS -->`` has is added to its commands, so that they are quick here. Blocks of YAML and
Python whose first line is a file's name in a comment are saved under that name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evidence.site import generated

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*(DOCS / "start").glob("*.md"), *(DOCS / "guide").glob("*.md")])
BLOCK = re.compile(r"(?:^<!-- (not run|test adds): ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REASONS = (
    "vllm",
    "torch",
    "ray",
    "server",
    "nodes",
    "xllamacpp",
    "extra",
    "environment",
    "log of a run",
    "rewards of a run",
    "minutes",
)
"""Words of which one is in every reason not to run a block."""
MOST_BYTES = 220_000
"""Of all committed Markdown."""
PLAYER = """
import json, os, sys

os.cpu_count = lambda: 1  # Starting processes takes longer than these runs.
from rlsim.cli.main import main

for words, target in json.load(sys.stdin):
    sys.argv, terminal = words, os.dup(1)
    if target:
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    try:
        main()
    except SystemExit as end:
        if end.code not in (0, None):
            sys.exit(f"{' '.join(words)}: exit code {end.code}")
    sys.stdout.flush()
    os.dup2(terminal, 1)
    os.close(terminal)
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block, with what the comment before it says."""

    comment: str
    said: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language == "bash" and self.comment != "not run"

    def commands(self) -> Iterator[tuple[list[str], str]]:
        """The words of every command, and the file that its output goes to, or nothing."""
        import shlex

        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            target = words.pop() if len(words) > 1 and words[-2] == ">" else ""
            words = words[:-1] if target else words
            yield [*words, *(shlex.split(self.said) if self.comment == "test adds" else ())], target


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    for block in blocks(page):
        name = re.match(r"# (\w[\w.-]*\.(?:yaml|py))\n", block.text)
        if name is not None and block.comment != "not run":
            (tmp_path / name.group(1)).write_text(block.text, encoding="utf-8")
    commands = [command for block in blocks(page) if block.is_run for command in block.commands()]
    assert all(words[0] == "rlsim" for words, _ in commands), commands
    played = subprocess.run(
        [sys.executable, "-c", PLAYER],
        input=json.dumps(commands),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert played.returncode == 0, played.stderr[-3000:]
    if page.stem == "first-comparison":
        assert (tmp_path / "out" / "one-off_8+8" / "replication-0" / "trace.json.gz").is_file()


def test_most_commands_run_and_the_others_say_why_not() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language == "bash"]
    run, left = [one for one in found if one.is_run], [one for one in found if not one.is_run]
    print(f"{len(run)} blocks are run, {len(left)} are not")
    assert len(run) > len(left)
    assert [one.said for one in left if not any(word in one.said.lower() for word in REASONS)] == []


def test_every_page_of_the_navigation_is_there_and_no_generated_one_is_committed() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert named == written | set(generated())
    assert not written & set(generated())


def test_every_promise_of_reliability_names_a_test_that_is_there() -> None:
    rows = [line for line in (DOCS / "guide" / "reliability.md").read_text().splitlines() if line.startswith("|")]
    promises = [row for row in rows if row not in ("| promise | test |", "|---|---|")]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row) for row in promises]
    assert promises
    assert [row for row, tests in zip(promises, named, strict=True) if not tests] == []
    lost = [f"{path}::{name}" for tests in named for path, name in tests if not _defines(ROOT / path, name)]
    assert lost == []


def _defines(path: Path, name: str) -> bool:
    return path.is_file() and re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE) is not None


def test_a_guide_is_one_task() -> None:
    assert {page.name: count for page in PAGES if (count := page.read_text(encoding="utf-8").count("\n")) > 150} == {}


def test_the_documents_stay_short() -> None:
    skipped = {".venv", "build", "dist", "out", "node_modules", ".git"}
    pages = [page for page in ROOT.rglob("*.md") if not skipped & set(page.relative_to(ROOT).parts)]
    assert sum(page.stat().st_size for page in pages) <= MOST_BYTES
    assert (ROOT / "README.md").stat().st_size <= 5120
