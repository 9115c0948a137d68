"""Optional packages, imported when a command needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rlsim.core.errors import ParameterError


def require(module: str, extra: str) -> Any:
    """The module; raises ``ParameterError`` that names the extra which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        allowed = f"an environment with it: pip install 'rlsim[{extra}]', see README, section Live ({error})"
        raise ParameterError(module, "not installed", allowed) from error
