"""The packages that talking to servers needs."""

from __future__ import annotations

from rlsim.core.errors import ParameterError


def missing(error: ImportError) -> ParameterError:
    """The error of an environment without the extra, in one line."""
    allowed = "an environment with it: pip install 'rlsim[servers]' (README, section Live)"
    return ParameterError("live.engine", f"openai, and {error.name or 'aiohttp'} is not installed", allowed)
