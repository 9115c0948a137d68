"""rlsim: simulate reinforcement-learning post-training of language models before buying the GPUs.

For notebooks and scripts: ``load``, ``variants``, ``compare``, ``race``, ``simulate``, ``tables``, ``text`` and
``report`` (``rlsim.api``), imported when they are first used. Figures are in ``rlsim.results.plots.run``.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rlsim.api import compare, load, race, report, simulate, tables, text, variants

__all__ = ["__version__", "compare", "load", "race", "report", "simulate", "tables", "text", "variants"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'rlsim' has no attribute {name!r}")
    from importlib import import_module  # by name: no module below may seem to depend on the whole

    return getattr(import_module("rlsim.api"), name)
