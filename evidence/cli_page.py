"""The command line as a page of Markdown, generated from the functions behind the commands."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any

HEAD = """# Command line

Generated from the commands. Results go to standard output, progress and errors to standard error. The exit code is 0
for success, 1 for a mistake in the program, 2 for a request that was refused, 3 for a run that cannot go on. Live runs
add 4 and 130 ([live runs](../guide/run-live.md#exit-codes)).
"""


def page() -> str:
    """Every command with its arguments and options."""
    from rlsim.cli.main import app

    return "\n".join([HEAD, *(line for name, call in sorted(commands("rlsim", app)) for line in _section(name, call))])


def commands(name: str, app: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The full name and the function of every command of a Typer application."""
    for command in app.registered_commands:
        yield f"{name} {command.name or command.callback.__name__.replace('_', '-')}", command.callback
    if app.registered_callback is not None and app.registered_callback.callback is not None:
        yield name, app.registered_callback.callback
    for group in app.registered_groups:
        yield from commands(f"{name} {group.name}", group.typer_instance)


def _section(name: str, call: Callable[..., Any]) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{_text(inspect.getdoc(call))}\n"
    rows = list(_rows(call))
    if rows:
        yield "| parameter | type | default | meaning |\n|---|---|---|---|"
        yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
        yield ""


def _rows(call: Callable[..., Any]) -> Iterator[tuple[str, ...]]:
    hints = typing.get_type_hints(call, include_extras=True)
    for name, parameter in inspect.signature(call).parameters.items():
        kind, *notes = typing.get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        info = next((note for note in notes if hasattr(note, "param_decls")), None)
        if info is None or getattr(info, "hidden", False):
            continue
        is_argument = type(info).__name__ == "ArgumentInfo"
        names = (info.default, *(info.param_decls or ()))  # Inside Annotated, Typer has the first name as default.
        option = ", ".join(one for one in names if isinstance(one, str) and one.startswith("-"))
        shown = name.upper() if is_argument else option or f"--{name.replace('_', '-')}"
        default = parameter.default
        value = (
            "needed" if default is inspect.Parameter.empty else "" if default in (None, False, "") else f"`{default}`"
        )
        yield f"`{shown}`", _kind(kind), value, _text(info.help)


def _kind(kind: Any) -> str:
    """A type in words; of a list, that of its items."""
    if isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union:
        return " or ".join(_kind(one) for one in typing.get_args(kind) if one is not NoneType)
    if typing.get_origin(kind) is list:
        return f"{_kind(typing.get_args(kind)[0])}, several"
    names = {str: "text", int: "whole number", float: "number", bool: "flag"}
    return names.get(kind, getattr(kind, "__name__", str(kind)).lower())


def _text(text: str | None) -> str:
    """The text in one line, with what Markdown would take for HTML escaped."""
    return " ".join((text or "").replace("<", "&lt;").split())
