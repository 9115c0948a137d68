"""``python -m evidence``: commands for the authors, from the root of the repository.

``claims`` looks for published speed-ups; ``published`` fits what an entry leaves open; ``cases-page`` puts the answers
to users' questions into a page; ``docs-pages`` writes the generated pages; ``catalog`` makes the shipped profiles.
"""

from __future__ import annotations

import sys
from datetime import date as Date
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli.options import (
    ArmName,
    AsJson,
    Cluster,
    Out,
    RayAddress,
    ScenarioFile,
    Sets,
    Workers,
    let_readers_leave,
    progress,
)
from rlsim.core.errors import DeadlockError, RlsimError
from rlsim.scenario.document import load

app = typer.Typer(
    help="What the authors show of rlsim: published claims, users' questions, generated pages, shipped profiles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def claims(
    files: Annotated[list[Path], typer.Argument(help="Scenario files with a headline section.", show_default=False)],
    out: Out = None,
    as_json: AsJson = False,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Look for published speed-ups over the conditions that their sources leave open."""
    from evidence import claims as published
    from rlsim.cli.runs import executor

    hunts = [published.hunt(load(str(file))) for file in files]
    count = len({request.key for hunt in hunts for request in hunt.requests})
    with executor(out, workers, cluster, ray_address, count) as runs:
        brackets = published.brackets(hunts, runs)
    print(published.as_json(brackets) if as_json else published.as_text(brackets), end="")


@app.command("published")
def fit_published_numbers(
    scenario: ScenarioFile,
    arm: ArmName = None,
    sets: Sets = [],  # noqa: B006
) -> None:
    """Solve the fitted parameters of an arm so that its published numbers come out."""
    from evidence.fit_published import fit_published

    for line in fit_published(load(str(scenario), [], sets), arm):
        print(line)


@app.command()
def cases_page(
    page: Annotated[Path, typer.Argument(help="Page whose table is replaced, between its markers.")],
    cases: Annotated[Path, typer.Option("--cases", help="Directory of cases.")] = Path("scenarios/cases"),
    out: Out = None,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Answer users' questions and put the table of answers into a page."""
    from evidence.cases_page import put
    from rlsim.cli.runs import executor
    from rlsim.studies.explain.cases import case_files, read_case, run_cases

    questions = [read_case(file) for file in case_files(cases)]
    with executor(out, workers, cluster, ray_address, None) as runs:
        put(page, run_cases(questions, runs))
    print(f"written to {page}", file=sys.stderr)


@app.command()
def docs_pages(
    out: Annotated[Path, typer.Option("--out", help="Folder of the pages.")] = Path("build/docs"),
) -> None:
    """Write the generated pages of the documentation, as the site has them."""
    from evidence.site import generated
    from rlsim.results.store import replacing

    for name, page in generated().items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(page(), encoding="utf-8")
        print(path)


@app.command()
def catalog(
    out: Annotated[Path, typer.Option(help="Folder of the profiles.")] = Path("rlsim/costs/data/profiles"),
    cases: Annotated[
        Path | None, typer.Option(help="List of cases (CSV); default: cases.csv of the catalogue.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Make those again that are made already.")] = False,
    date: Annotated[str, typer.Option(help="Of the fit, in the provenance; default: today.", show_default=False)] = "",
) -> None:
    """Make the profiles of a list of cases from the tables; goes on where it was interrupted."""
    from calibration.silicon_tables.cases import read_cases
    from calibration.silicon_tables.tables import CASES, build_catalog
    from rlsim.costs.profile import catalog_folder

    listed = read_cases(cases or catalog_folder() / CASES)
    with progress(len(listed), "cases") as done:
        written = build_catalog(listed, out, date or Date.today().isoformat(), again, lambda name: done(1))
    print(f"{len(written)} profiles written to {out}, {len(listed) - len(written)} were there")


def main() -> None:
    """Entry point: errors that one can act on end with one line and exit code 2, a deadlock with 3."""
    let_readers_leave()
    try:
        app()
    except RlsimError as error:
        print(error, file=sys.stderr)
        sys.exit(3 if isinstance(error, DeadlockError) else 2)


if __name__ == "__main__":
    main()
