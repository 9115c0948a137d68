"""The validation as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlsim.planning.validation.running import Row


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Predicted over measured, every row with a prediction; ``ParameterError`` for a name that is no PNG."""
    from rlsim.results.plots_validation import Point, predicted_and_measured
    from rlsim.results.style import save_figure

    points = [
        Point(row.framework, row.published.measured, row.predicted, row.published.calibrated)
        for row in rows
        if row.predicted is not None
    ]
    save_figure(predicted_and_measured(points), path)
