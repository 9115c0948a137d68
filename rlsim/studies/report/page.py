"""A report as one HTML page: no script, no request to anywhere, everything from files escaped.

The page forbids itself to load anything (Content-Security-Policy), so that a mistake here shows as a missing figure
and never as a request.
"""

from __future__ import annotations

from pathlib import Path

from rlsim.studies.compare import shared_sources
from rlsim.studies.output import write_text
from rlsim.studies.report.figures import of_arm, shared
from rlsim.studies.report.saved import Saved, read_saved
from rlsim.studies.report.tables import report_tables

HERE = Path(__file__).parent


def write_report(directory: Path, target: Path | None = None) -> Path:
    """The page of a directory that ``--out`` wrote, in ``report.html`` there or in ``target``; in full or not at all.

    Raises as ``read_saved``.
    """
    path = target or directory / "report.html"
    write_text(path, html(read_saved(directory)))
    return path


def html(saved: Saved) -> str:
    """The page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = Markup((HERE / "page.css").read_text(encoding="utf-8"))
    return environment.get_template("page.html.jinja").render(
        saved=saved,
        style=style,
        report_tables=report_tables(saved),
        shared=shared(saved),
        of_arm={arm.name: of_arm(arm) for arm in saved.arms},
        labels=labels(saved),
        sources=shared_sources({arm.name: arm.sources for arm in saved.arms}),
        declared=[(arm.name, row) for arm in saved.arms for row in arm.scenario.published if row.is_step_time],
    )


def labels(saved: Saved) -> list[str]:
    """What must be known before any number is read."""
    texts = [source.text for arm in saved.arms for source in arm.sources if source.what == "execution"]
    names = []
    if any("EMULATED" in text for text in texts) or "EMULATED" in saved.name:
        names.append("EMULATED")
    if texts or "LIVE on" in saved.name:
        names.append("LIVE")
    if any(arm.estimated for arm in saved.arms):
        names.append("ESTIMATE")
    return names
