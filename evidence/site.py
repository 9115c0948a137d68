"""The pages of the documentation that are generated when MkDocs builds the site (see ``mkdocs.yml``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PYTHON = """# Python API

`import rlsim` gives these functions. A notebook that uses them is in `notebooks/`.

::: rlsim.api
"""
METRICS = """# Fields of the metrics

`metrics.json`, `--json` and the Python API use these names. [Metrics](../concepts/metrics.md) has the formulas, the
tables and the names that frameworks use.

::: rlsim.results.metrics.Metrics

::: rlsim.results.latency
"""


def generated() -> dict[str, Callable[[], str]]:
    """The generator of every page by its path under ``docs/``."""
    from evidence import cli_page, docs_pages, results_pages

    return {
        "reference/scenario.md": docs_pages.scenario_page,
        "reference/policies.md": docs_pages.policies_page,
        "reference/frameworks.md": docs_pages.frameworks_page,
        "reference/metrics.md": lambda: METRICS,
        "reference/log-columns.md": docs_pages.log_columns,
        "reference/cli.md": cli_page.page,
        "reference/python.md": lambda: PYTHON,
        "evidence/validation.md": results_pages.validation,
        "evidence/claims.md": results_pages.claims,
        "evidence/cases.md": results_pages.cases,
        "evidence/accuracy.md": results_pages.accuracy,
        "evidence/allocation.md": lambda: results_pages.prose("Allocation: claims and live runs", "allocation"),
        "evidence/parity.md": lambda: results_pages.prose("Parity, as measured", "parity"),
        "evidence/benchmarks.md": lambda: results_pages.prose(
            "Beside other simulators", "benchmarks-findings", "benchmarks"
        ),
        "evidence/coverage.md": lambda: results_pages.prose("Published methods, and what expresses them", "coverage"),
        "develop/deliberate-faults.md": docs_pages.deliberate_faults,
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of ``docs/``; MkDocs calls this once a build."""
    from mkdocs.structure.files import File

    for path, page in generated().items():
        files.append(File.generated(config, path, content=page()))
    return files
