"""Commands about policies, and about the configuration files of the frameworks that have them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli.options import ArmName, AsJson, ScenarioFile

app = typer.Typer(help="List the policies: choices, parts and presets.", invoke_without_command=True)


@app.callback()
def policies(context: typer.Context, as_json: AsJson = False) -> None:
    """List the policies: choices, parts and presets, with their parameters."""
    if context.invoked_subcommand is None:
        from rlsim.studies.text import policies as policies_text

        sys.stdout.write(policies_text.as_json() if as_json else policies_text.listing())


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A preset, a part or a choice.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a preset's composition, formula, bound and source, or a part's parameters."""
    from rlsim.frameworks.catalogue import described
    from rlsim.studies.text import policies as policies_text

    description = described(name)
    sys.stdout.write(policies_text.as_json(description) if as_json else policies_text.shown_in_full(description))


def import_config(
    file: Annotated[
        Path, typer.Argument(help="Configuration: YAML, JSON, TOML or a shell script.", show_default=False)
    ],
    framework: Annotated[str, typer.Option("--from", help="The framework it is of.", show_default=False)],
    preset: Annotated[
        str | None, typer.Option("--preset", help="Its mode, where the file does not say.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Scenario file; default: stdout.")] = None,
) -> None:
    """Make a scenario from a framework's configuration; what was used, assumed and ignored goes to stderr."""
    from rlsim.frameworks.imported import scenario_yaml
    from rlsim.frameworks.importing import import_config

    imported = import_config(file, framework, preset)
    _put(scenario_yaml(imported), imported.report(), out)


def export_config(
    scenario: ScenarioFile,
    framework: Annotated[str, typer.Option("--to", help="The framework to write for.", show_default=False)],
    arm: ArmName = None,
    out: Annotated[Path | None, typer.Option("--out", help="Configuration file; default: stdout.")] = None,
) -> None:
    """Write a scenario's policy, split and bounds as a framework's configuration."""
    from rlsim.frameworks.exporting import export_config
    from rlsim.scenario.document import load

    exported = export_config(load(str(scenario)).resolve(arm), framework)
    _put(exported.text, exported.report(), out)


def _put(text: str, report: Iterable[str], out: Path | None) -> None:
    from rlsim.studies.text.table import wrapped

    for line in report:
        print(wrapped(line), file=sys.stderr)
    if out is None:
        sys.stdout.write(text)
    else:
        from rlsim.results.store import replacing

        with replacing(out) as temporary:
            temporary.write_text(text, encoding="utf-8")
