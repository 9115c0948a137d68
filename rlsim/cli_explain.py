"""``rlsim explain``: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli_options import ArmName, AsJson, Sets, Workers


def explain(
    scenarios: Annotated[
        list[Path] | None, typer.Argument(help="Scenario file; several: a table of their cases.", show_default=False)
    ] = None,
    arm: ArmName = None,
    cases: Annotated[Path | None, typer.Option("--cases", help="Directory of cases.", show_default=False)] = None,
    sets: Sets = [],  # noqa: B006
    as_json: AsJson = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Put the table of cases into this file, between its markers.")
    ] = None,
    workers: Workers = None,
) -> None:
    """Say what holds a run back, with the evidence and the changes that help most; answer users' questions."""
    from rlsim.core.errors import ParameterError

    files = list(scenarios or [])
    if cases is not None or len(files) > 1 or markdown is not None:
        if arm is not None or sets:
            raise ParameterError("--arm" if arm else "--set", arm or sets[0], "only with one scenario, and no --cases")
        _answer(files, cases, as_json, markdown, workers)
    elif not files:
        raise ParameterError("SCENARIO", None, "a scenario file, or --cases with a directory")
    else:
        _explain(files[0], arm, sets, as_json, workers)


def _answer(files: list[Path], folder: Path | None, as_json: bool, markdown: Path | None, workers: int | None) -> None:
    from rlsim.cli_progress import progress
    from rlsim.planning.explain import page, text
    from rlsim.planning.explain.cases import answers, case_files, read_case

    questions = [read_case(file) for file in files + (case_files(folder) if folder else [])]
    with progress(sum(len(question.tasks) for question in questions)) as done:
        found = answers(questions, lambda seen: done(1), workers)
    print(text.answers_json(found) if as_json else text.table_text(found), end="")
    if markdown is not None:
        page.put(markdown, found)
        print(f"written to {markdown}", file=sys.stderr)


def _explain(file: Path, arm: str | None, sets: list[str], as_json: bool, workers: int | None) -> None:
    from rlsim.cli_progress import progress
    from rlsim.planning.comparison import plans
    from rlsim.planning.explain import text
    from rlsim.planning.explain.cases import answers, asked
    from rlsim.planning.explain.explaining import explain as explained
    from rlsim.scenario.source import load

    document = load(str(file), [], sets)
    made, question = plans(document), asked(document)
    if arm is None and question is not None:
        arm = question.case.arm
    chosen = document.resolve(arm if document.arms() else None)
    name = arm or next(iter(made)) if document.arms() else chosen.name
    with progress(None) as done:
        told = explained(name, made[name], lambda seen: done(1), workers)
        answer = answers([question], lambda seen: done(1), workers)[0] if question else None
    if as_json:
        print(text.explanation_json(told, made[name], answer), end="")
        return
    print(text.explanation_text(told, made[name]), end="")
    if answer is not None:
        print(f"\n{text.answer_text(answer)}", end="")
