"""Commands about profiles, and those that make them from tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli.options import AsJson

app = typer.Typer(help="Profiles: calibrated costs, and how far they are off.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A shipped profile, or a profile's JSON file.", show_default=False)]


@app.command("list")
def list_all(as_json: AsJson = False) -> None:
    """List the shipped profiles with their hold-out errors and a verdict."""
    from calibration.profiles import text as profile_text
    from rlsim.costs.profile import list_profiles, load_profile

    profiles = [load_profile(name) for name in list_profiles()]
    sys.stdout.write(profile_text.listing_json(profiles) if as_json else profile_text.listing(profiles))


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one profile: verdict, where it comes from, errors, what was measured and where it extrapolates."""
    from calibration.profiles import text as profile_text
    from rlsim.costs.profile import load_profile

    profile = load_profile(name, "profile")
    sys.stdout.write(profile_text.shown_json(profile) if as_json else profile_text.shown(profile))


@app.command()
def plot(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", help="PNG file; default: NAME.png here.")] = None,
) -> None:
    """Draw measured against fitted step times at the held-out points, and the residuals."""
    from calibration.profiles.plot import fit_figure
    from rlsim.costs.profile import load_profile
    from rlsim.results.plots.style import save_figure

    profile = load_profile(name, "profile")
    target = out or Path(f"{profile.name}.png")
    save_figure(fit_figure(profile), target)
    print(target)


def calibrate_tables(
    model: Annotated[str, typer.Option(help="Model of the catalogue, or a folder with a config.json.")],
    device: Annotated[str, typer.Option(help="Device of the catalogue.")],
    out: Annotated[Path, typer.Option(help="Profile (JSON) to write.")],
    tp: Annotated[int, typer.Option(help="Tensor parallelism.", min=1)] = 1,
    ep: Annotated[int, typer.Option(help="Expert parallelism (a divisor of tp).", min=1)] = 1,
    backend: Annotated[str, typer.Option(help="Engine whose kernels were timed.")] = "vllm",
    backend_version: Annotated[str, typer.Option(help="Its version; default: what the tables have.")] = "",
    date: Annotated[str, typer.Option(help="Of the fit, in the provenance; default: today.", show_default=False)] = "",
) -> None:
    """Fit a profile to measured-kernel tables (extra: tables; no network) and test it on held-out points."""
    from datetime import date as Date

    from calibration.profiles.text import shown
    from calibration.silicon_tables.cases import spelled_case
    from calibration.silicon_tables.tables import silicon_profile

    case = spelled_case(model, device, tp, ep, backend, backend_version)
    profile = silicon_profile(case, date or Date.today().isoformat())
    profile.write(out)
    sys.stdout.write(shown(profile))
    print(f"saved to {out}", file=sys.stderr)
