"""`rlsim sweep`: factors of a scenario, all their combinations or a list of them.

``rlsim explain``: parse, call, print.

``rlsim race``: parse, call, print.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.cli.options import ArmName, AsJson, Cluster, Kept, Out, Overlays, RayAddress, ScenarioFile, Sets, Workers

if TYPE_CHECKING:
    from rlsim.studies.runs.executor import Makers


Factors = Annotated[
    list[str],
    typer.Option("--set", help="key.path=a,b,c, a factor; several keys together: k:l=1:2,3:4.", show_default=False),
]


def sweep(
    scenario: ScenarioFile,
    sets: Factors = [],  # noqa: B006
    lists: Annotated[
        Path | None,
        typer.Option("--list", help="YAML file: a list of mappings of keys to values, a variant each."),
    ] = None,
    arms: Annotated[
        list[str], typer.Option("--arm", help="Arms, A,B: a factor as well; default: all.", show_default=False)
    ] = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    replications: Annotated[
        int | None, typer.Option(min=1, help="Of every variant; default: as the scenario says.", show_default=False)
    ] = None,
    baseline: Annotated[
        list[str], typer.Option(help="factor=level of the variant to compare with; default: the first.")
    ] = [],  # noqa: B006
    metrics: Annotated[
        list[str], typer.Option("--metric", help="Columns of the table, the first with ratios.", show_default=False)
    ] = [],  # noqa: B006
    out: Kept = None,
    as_json: AsJson = False,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Simulate every combination of the factors' values on the same luck, and compare.

    Everything is checked before anything runs. Exit code 3: some variants did not come to their end; the others are
    told.
    """
    from rlsim.cli.options import progress
    from rlsim.results.store import replacing
    from rlsim.scenario.document import load
    from rlsim.scenario.variation import arms_factor, choices, factor, listed
    from rlsim.studies import sweep as study
    from rlsim.studies.runs.store import opened
    from rlsim.studies.sweep import baseline_of, variants
    from rlsim.studies.text import sweep as present

    asked = {text: factor(text) for text in sets}
    fixed = [text for text, one in asked.items() if len(one.levels) == 1 and ":" not in one.name]
    document = load(str(scenario), [str(overlay) for overlay in overlays], fixed)
    arm = arms_factor(arms, document.arms())
    factors = [*([arm] if arm is not None else []), *(one for text, one in asked.items() if text not in fixed)]
    made = variants(document, choices(factors, listed(str(lists)) if lists is not None else ()))
    against = baseline_of(made, baseline)
    count = replications or made[0].scenario.run.replications
    with opened(out) as store, makers_of(cluster, ray_address, workers) as makers, progress(len(made) * count) as done:
        told = study.sweep(made, against, count, store, makers, metrics or study.METRICS, done)
    text = present.as_json(told)
    if out is not None:
        with replacing(out / "sweep.json") as part:
            part.write_text(text, encoding="utf-8")
        print(f"saved to {out}", file=sys.stderr)
    print(text if as_json else present.as_text(told), end="")
    if any(result.fault for result in told.results):
        raise typer.Exit(3)


def makers_of(cluster: str | None, ray_address: str | None, workers: int | None) -> Makers:
    """Who makes the runs; ``ParameterError`` for an unknown place, ``RlsimError`` where its extra is missing."""
    from rlsim.core.errors import ParameterError, unknown
    from rlsim.studies.runs.executor import Processes, RayTasks

    if cluster is None:
        if ray_address is not None:
            raise ParameterError("--ray-address", ray_address, "only with --cluster ray")
        return Processes(workers)
    if cluster != "ray":
        raise unknown("--cluster", cluster, ["ray"])
    return RayTasks(ray_address)


def explain(
    scenarios: Annotated[
        list[Path] | None, typer.Argument(help="Scenario file; several: a table of their cases.", show_default=False)
    ] = None,
    arm: ArmName = None,
    cases: Annotated[Path | None, typer.Option("--cases", help="Directory of cases.", show_default=False)] = None,
    sets: Sets = [],  # noqa: B006
    as_json: AsJson = False,
    workers: Workers = None,
) -> None:
    """Say what holds a run back, with the evidence and the changes that help most; answer users' questions."""
    from rlsim.core.errors import ParameterError

    files = list(scenarios or [])
    if cases is not None or len(files) > 1:
        if arm is not None or sets:
            raise ParameterError("--arm" if arm else "--set", arm or sets[0], "only with one scenario, and no --cases")
        _answer(files, cases, as_json, workers)
    elif not files:
        raise ParameterError("SCENARIO", None, "a scenario file, or --cases with a directory")
    else:
        _explain(files[0], arm, sets, as_json, workers)


def _answer(files: list[Path], folder: Path | None, as_json: bool, workers: int | None) -> None:
    from rlsim.cli.options import progress
    from rlsim.studies.explain.cases import answers, case_files, read_case
    from rlsim.studies.text import explain as text

    questions = [read_case(file) for file in files + (case_files(folder) if folder else [])]
    with progress(sum(len(question.tasks) for question in questions)) as done:
        found = answers(questions, lambda seen: done(1), workers)
    print(text.answers_json(found) if as_json else text.table_text(found), end="")


def _explain(file: Path, arm: str | None, sets: list[str], as_json: bool, workers: int | None) -> None:
    from rlsim.cli.options import progress
    from rlsim.scenario.document import load
    from rlsim.studies.compare import plans
    from rlsim.studies.explain.cases import answers, asked
    from rlsim.studies.explain.explain import explain as explained
    from rlsim.studies.text import explain as text

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


def race(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (YAML) with a learning section.", show_default=False)],
    to: Annotated[float, typer.Option("--to", min=0, max=1, help="Success that the arms are to reach.")] = 0.6,
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    out: Out = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Race the arms to a success rate: rollouts, tokens, time and money that each takes, and what it wastes."""
    from rlsim.cli.options import progress
    from rlsim.scenario.document import load
    from rlsim.studies.compare import Comparison, plans, replications
    from rlsim.studies.race import run_race
    from rlsim.studies.text import race as race_text

    document = load(str(scenario), [str(overlay) for overlay in overlays], sets)
    with progress(len(replications(plans(document), None))) as more:
        told = run_race(document, to, out, workers, lambda outcome: more(1))
    print(race_text.as_json(told) if as_json else race_text.as_text(told), end="")
    if out is not None:
        from rlsim.cli.report import command_of
        from rlsim.studies.save import save_comparison, save_provenance

        save_comparison(out, Comparison(told.name, told.arms, ()))
        figures = race_text.save_figures(told, out)
        save_provenance(out, command_of("race", scenario, overlays, sets, {"to": f"{to:g}"}))
        print(f"saved to {out}: {', '.join(path.name for path in figures)}", file=sys.stderr)
