"""What live execution needs besides the core install, imported when it runs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rlsim.core.errors import ParameterError


def require_live(module: str) -> Any:
    """The module; raises ``ParameterError`` that names the extra which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        allowed = f"an environment with it: pip install 'rlsim[live]', see README, section Live ({error})"
        raise ParameterError(module, "not installed", allowed) from error


def need_live(*modules: str) -> None:
    """Refuse, without importing them, where one of the modules is missing."""
    for module in modules:
        if find_spec(module) is None:
            allowed = "an environment with it: pip install 'rlsim[live]', see README, section Live"
            raise ParameterError(module, "not installed", allowed)
