"""One look for all figures: colours that colour-blind readers tell apart, the same for a cause in every figure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from rlsim.core.errors import ParameterError
from rlsim.results.store import replacing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
"""The palette of Okabe and Ito, Color Universal Design (2008)."""
GREY, PALE = "#767676", "#E3E3E3"

DOTS_PER_INCH = 100
WIDTH_INCHES = 12.0

_STYLE: dict[str, Any] = {
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "figure.dpi": DOTS_PER_INCH,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
}


class Cause(NamedTuple):
    """How a cause of GPU time is drawn."""

    label: str
    colour: str
    hatch: str = ""


CAUSES = {
    "decode": Cause("decode", BLUE),
    "prefill": Cause("prefill or mixed step", SKY),
    "old_log_prob": Cause("old log-prob", "#96DBAA"),
    "reference": Cause("reference log-prob", "#D9FFD8"),
    "values": Cause("critic values", "#7D99F8"),
    "update_critic": Cause("critic update", PURPLE),
    "update_actor": Cause("actor update", GREEN),
    "overhead": Cause("fixed overhead", "#4D4D4D"),
    "sync": Cause("weight sync", VERMILLION),
    "switch": Cause("role switch", YELLOW),
    "idle:tail": Cause("idle: tail", "#F3CF8E", "//"),
    "idle:staleness": Cause("idle: staleness bound", "#F4CCE0", "\\\\"),
    "idle:concurrency": Cause("idle: concurrency limit", "#ACD6FF", ".."),
    "idle:data": Cause("idle: waits for data", "#B2B6B1", "--"),
    "idle:tools": Cause("idle: waits for tools", "#FFFEBD", "++"),
    "idle:reward": Cause("idle: waits for rewards", "#FFF58F", "||"),
    "idle:trainer": Cause("idle: waits for the trainer", "#B7ADD1", "xx"),
    "idle:quiesce": Cause("idle: stops for an update", "#D19E53", "oo"),
    "idle:open": Cause("idle: not held back", "#FFFFFF"),
}
"""Shades keep a CIE76 distance of 10 from each other for normal, deuteranopic and protanopic eyes."""
_OTHERS = (("#C2C2C2", "*"), ("#9A9A9A", "O"), ("#B0A090", "x"), ("#A9B0C0", "+"))


def cause(what: str) -> Cause:
    """Label, colour and hatch of a cause, also for one that the palette does not know."""
    if what in CAUSES:
        return CAUSES[what]
    colour, hatch = _OTHERS[sum(what.encode()) % len(_OTHERS)]
    return Cause(what.replace("idle:", "idle: ").replace("_", " "), colour, hatch)


def ordered(whats: Iterable[str]) -> list[str]:
    """Causes in the order in which they are stacked and listed: work first, idleness last."""
    known = {what: place for place, what in enumerate(CAUSES)}
    return sorted(set(whats), key=lambda what: (known.get(what, len(known)), what.startswith("idle"), what))


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Run ``draw`` under the project's style, whatever the user's own matplotlib settings are."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        from matplotlib import style

        with style.context(["default", _STYLE]):
            return draw(*args, **kwargs)

    return drawn


def new_figure(height_inches: float, title: str, note: str) -> Figure:
    """An empty figure that fits itself; ``title`` says what is shown, ``note`` of what and how certain."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A notebook shows it as it is saved; pyplot, which would do that otherwise, keeps global state."""

        def _repr_png_(self) -> bytes:
            return png(self)

    figure = ShownFigure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=14, fontweight="bold")
    figure.text(0.01, 1 - 0.34 / height_inches, note, ha="left", va="top", fontsize=10, color="#555555")
    return figure


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """One legend for the whole figure, under the axes, in as many columns as its longest label allows."""
    if handles:
        widest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, int((WIDTH_INCHES - 0.3) / (0.088 * widest + 0.62)))
        figure.legend(handles=list(handles), loc="outside lower center", ncols=min(columns, len(handles)))


def cause_patches(whats: Iterable[str], hatched: bool) -> list[Artist]:
    """Legend entries of causes."""
    from matplotlib.patches import Patch

    causes = [cause(what) for what in ordered(whats)]
    return [Patch(fc=c.colour, ec=GREY, lw=0.5, hatch=c.hatch if hatched else "", label=c.label) for c in causes]


def mark_versions(axes: Axes, seconds: Sequence[float], label: bool = True, most: int = 20) -> None:
    """A line where each weights version was published; at most about ``most`` of them are numbered."""
    every = max(1, -(-len(seconds) // most))
    for version, at in enumerate(seconds, start=1):
        axes.axvline(at, color=BLACK, lw=0.9 if len(seconds) <= 4 * most else 0.3, ls=(0, (4, 2)), zorder=4)
        if label and version % every == 0:
            axes.annotate(
                f"v{version}", (at, 1), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
                ha="center", fontsize=10,
            )  # fmt: skip


@styled
def png(figure: Figure) -> bytes:
    """The bytes that ``save_figure`` writes."""
    held = BytesIO()
    figure.savefig(held, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return held.getvalue()


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a PNG, 1200 pixels wide; the same figure gives the same bytes, and no half file is ever left.

    Raises ``ParameterError`` when ``path`` does not end in ``.png``.
    """
    if Path(path).suffix.lower() != ".png":
        raise ParameterError("path", str(path), "a file name that ends in .png")
    with replacing(path) as part:
        part.write_bytes(png(figure))
