"""`rlsim sweep`: factors of a scenario, all their combinations or a list of them.

``rlsim explain``: parse, call, print.

``rlsim race``: parse, call, print.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.cli.options import ArmName, AsJson, Cluster, Out, Overlays, RayAddress, ScenarioFile, Sets, Workers

if TYPE_CHECKING:
    from rlsim.studies.runs.executor import RunExecutor

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
    out: Out = None,
    as_json: AsJson = False,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Simulate every combination of the factors' values with common random numbers, and compare.

    Everything is checked before anything runs. Exit code 3: some variants did not come to their end; the others are
    told.
    """
    from rlsim.cli.runs import executor
    from rlsim.scenario.document import load
    from rlsim.scenario.variation import arms_factor, choices, factor, listed
    from rlsim.studies import sweep as study
    from rlsim.studies.output import json_text
    from rlsim.studies.sweep import baseline_of, variants
    from rlsim.studies.text.sweep import as_text

    requested = {text: factor(text) for text in sets}
    fixed = [text for text, one in requested.items() if len(one.levels) == 1 and ":" not in one.name]
    document = load(str(scenario), [str(overlay) for overlay in overlays], fixed)
    arm = arms_factor(arms, document.arms())
    factors = [*([arm] if arm is not None else []), *(one for text, one in requested.items() if text not in fixed)]
    scenarios = variants(document, choices(factors, listed(str(lists)) if lists is not None else ()))
    against = baseline_of(scenarios, baseline)
    count = replications or scenarios[0].scenario.run.replications
    with executor(out, workers, cluster, ray_address, len(scenarios) * count) as runs:
        result = study.sweep(scenarios, against, count, runs, metrics or study.METRICS)
    text = json_text(result.to_dict())
    _save(out, "sweep.json", text)
    print(text if as_json else as_text(result), end="")
    if any(result.fault for result in result.results):
        raise typer.Exit(3)


def explain(
    scenarios: Annotated[
        list[Path] | None, typer.Argument(help="Scenario file; several: a table of their cases.", show_default=False)
    ] = None,
    arm: ArmName = None,
    cases: Annotated[Path | None, typer.Option("--cases", help="Directory of cases.", show_default=False)] = None,
    sets: Sets = [],  # noqa: B006
    as_json: AsJson = False,
    out: Out = None,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Say what holds a run back, with the evidence and the changes that help most; answer users' questions."""
    from rlsim.cli.runs import executor
    from rlsim.core.errors import ParameterError

    files = list(scenarios or [])
    if cases is not None or len(files) > 1:
        if arm is not None or sets:
            raise ParameterError("--arm" if arm else "--set", arm or sets[0], "only with one scenario, and no --cases")
        with executor(out, workers, cluster, ray_address, None) as runs:
            _answer(files, cases, runs, out, as_json)
    elif not files:
        raise ParameterError("SCENARIO", None, "a scenario file, or --cases with a directory")
    else:
        with executor(out, workers, cluster, ray_address, None) as runs:
            _explain(files[0], arm, sets, runs, out, as_json)


def _answer(files: list[Path], folder: Path | None, runs: RunExecutor, out: Path | None, as_json: bool) -> None:
    from rlsim.studies.explain.cases import case_files, read_case, run_cases
    from rlsim.studies.text import explain as text

    cases = run_cases([read_case(file) for file in files + (case_files(folder) if folder else [])], runs)
    _save(out, "cases.json", text.cases_json(cases))
    print(text.cases_json(cases) if as_json else text.table_text(cases), end="")


def _explain(file: Path, arm: str | None, sets: list[str], runs: RunExecutor, out: Path | None, as_json: bool) -> None:
    from rlsim.scenario.document import load
    from rlsim.studies.compare import plans
    from rlsim.studies.explain.cases import case_study_of, run_cases
    from rlsim.studies.explain.explain import explain as explained
    from rlsim.studies.text import explain as text

    document = load(str(file), [], sets)
    question = case_study_of(document) if arm is None else None
    chosen = document.chosen(question.case.arm if question and document.arms() else arm)
    name, plan = next(iter(plans(document, chosen).items()))
    explanation = explained(name, plan, runs)
    answer = run_cases([question], runs)[0] if question else None
    tree = text.explanation_json(explanation, plan, answer)
    _save(out, "explanation.json", tree)
    if as_json:
        print(tree, end="")
        return
    print(text.explanation_text(explanation, plan), end="")
    if answer is not None:
        print(f"\n{text.case_text(answer)}", end="")


def _save(out: Path | None, name: str, text: str) -> None:
    """A result beside the runs that it is made from."""
    from rlsim.studies.output import write_text

    if out is not None:
        write_text(out / name, text)
        print(f"saved to {out}", file=sys.stderr)


def race(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (YAML) with a learning section.", show_default=False)],
    to: Annotated[float, typer.Option("--to", min=0, max=1, help="Success that the arms are to reach.")] = 0.6,
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    out: Out = None,
    workers: Workers = None,
    as_json: AsJson = False,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Race the arms to a success rate: rollouts, tokens, time and money that each takes, and what it wastes."""
    from rlsim.cli.runs import executor
    from rlsim.scenario.document import load
    from rlsim.studies.compare import Comparison, plans
    from rlsim.studies.output import json_text
    from rlsim.studies.race import race_plans
    from rlsim.studies.text import race as race_text

    resolved = plans(load(str(scenario), [str(overlay) for overlay in overlays], sets))
    count = sum(one.scenario.run.replications for one in resolved.values())
    with executor(out, workers, cluster, ray_address, count) as runs:
        raced = race_plans(resolved, to, runs, out)
    print(json_text(raced.to_dict()) if as_json else race_text.as_text(raced), end="")
    if out is not None:
        from rlsim.cli.report import command_of
        from rlsim.studies.save import save_comparison, save_provenance

        save_comparison(out, Comparison(raced.name, raced.arms, ()))
        figures = race_text.save_figures(raced, out)
        save_provenance(out, command_of("race", scenario, overlays, sets, {"to": f"{to:g}"}))
        print(f"saved to {out}: {', '.join(path.name for path in figures)}", file=sys.stderr)
