"""Decisions as JSON, exactly; and the proof that a recorded run is what its controller would do again.

Decisions on disk as they are taken, so that a run that breaks off can be replayed as far as it came.

A reserve of disk space is kept beside the journal: when the disk is full it is given up, so that the run can stop in
good order and everything it knows is written.
"""

from __future__ import annotations

import errno
import json
import os
import types
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, Union, get_args, get_origin, get_type_hints

from rlsim.controller import Controller
from rlsim.core.commands import Command
from rlsim.core.errors import RlsimError, unknown
from rlsim.core.events import Event
from rlsim.core.log import Decision
from rlsim.core.ticks import to_seconds

EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}
COMMANDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Command)}


class RecordError(RlsimError, ValueError):
    """A record that is not a decision; the message says where and why."""


class ReplayError(RlsimError):
    """The first decision that a fresh controller takes differently."""


def to_json(decision: Decision) -> dict[str, Any]:
    """Plain values: ``{"now": ticks, "event": {"type": ...}, "commands": [...]}``."""
    return {
        "now": decision.now,
        "event": _tagged(decision.event),
        "commands": [_tagged(command) for command in decision.commands],
    }


def from_json(value: object) -> Decision:
    """The decision that ``to_json`` wrote; ``RecordError`` for anything else."""
    record = _mapping(value, ("now", "event", "commands"), "decision")
    now = _parsed(record["now"], int, "now")
    event = _untagged(record["event"], EVENTS, "event")
    commands = record["commands"]
    if not isinstance(commands, list):
        raise _refused("commands", commands, "a list")
    parsed = [_untagged(command, COMMANDS, f"commands[{index}]") for index, command in enumerate(commands)]
    return Decision(now, event, tuple(parsed))


def replay(decisions: Iterable[Decision], controller: Controller) -> None:
    """Give a fresh controller the recorded events; ``ReplayError`` at the first answer that differs."""
    for number, decision in enumerate(decisions):
        try:
            commands = tuple(controller.handle(decision.now, decision.event))
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise ReplayError(f"{_place(number, decision)}: the controller cannot take it: {error!r}") from error
        if _told(commands) != _told(decision.commands):
            raise ReplayError(f"{_place(number, decision)}:\n{_side_by_side(decision.commands, commands)}")


def _told(commands: Sequence[Command]) -> list[tuple[type, Command]]:
    """With their types: commands are tuples, and those of two types may hold the same."""
    return [(type(command), command) for command in commands]


def _place(number: int, decision: Decision) -> str:
    return f"decision {number} at {to_seconds(decision.now):.6f} s, {decision.event}"


def _side_by_side(recorded: tuple[Command, ...], new: tuple[Command, ...]) -> str:
    """The first command that differs, on two lines."""
    pairs = zip(recorded, new, strict=False)
    same = next(
        (at for at, (old, now) in enumerate(pairs) if _told([old]) != _told([now])), min(len(recorded), len(new))
    )
    sides = (("recorded", recorded), ("new", new))
    lines = [f"  {side:8} {_command(commands, same)} (of {len(commands)})" for side, commands in sides]
    return "\n".join([f"  command {same} differs", *lines])


def _command(commands: tuple[Command, ...], index: int) -> str:
    return str(commands[index]) if index < len(commands) else "none"


# -- values -------------------------------------------------------------------------------------------


def _tagged(value: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, **_plain_fields(value)}


def _plain_fields(value: Any) -> dict[str, Any]:
    kind: type = type(value)
    return {name: _plain(getattr(value, name)) for name in _hints(kind)}


def _plain(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return _plain_fields(value) if hasattr(value, "_fields") else [_plain(item) for item in value]


def _untagged(value: object, kinds: dict[str, type], where: str) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise _refused(where, value, "a mapping with a type")
    kind = kinds.get(value["type"])
    if kind is None:
        raise RecordError(str(unknown(f"{where}.type", value["type"], kinds)))
    return _made({name: item for name, item in value.items() if name != "type"}, kind, where)


def _made(value: object, kind: type, where: str) -> Any:
    hints = _hints(kind)
    fields = _mapping(value, tuple(hints), where)
    return kind(**{name: _parsed(fields[name], hint, f"{where}.{name}") for name, hint in hints.items()})


def _parsed(value: object, hint: Any, where: str) -> Any:
    """``value`` as ``hint`` says, or a refusal."""
    origin = get_origin(hint)
    if hint is int or hint is bool or hint is str:
        fits = type(value) is hint
    elif hint is float:
        fits = type(value) in (int, float)
    elif origin is Literal:
        fits = value in get_args(hint)
    elif origin is tuple:
        items = get_args(hint)
        any_length = items[-1] is Ellipsis
        if not isinstance(value, list) or (not any_length and len(value) != len(items)):
            raise _refused(where, value, "a list" if any_length else f"a list of {len(items)}")
        hints = [items[0]] * len(value) if any_length else items
        return tuple(_parsed(item, hint, where) for item, hint in zip(value, hints, strict=True))
    elif origin in (Union, types.UnionType):
        if value is None and types.NoneType in get_args(hint):
            return None
        return _parsed(value, next(kind for kind in get_args(hint) if kind is not types.NoneType), where)
    else:
        return _made(value, hint, where)
    if not fits:
        raise _refused(where, value, str(getattr(hint, "__name__", hint)))
    return float(value) if hint is float and isinstance(value, int) else value


def _mapping(value: object, names: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        keys = sorted(map(str, value)) if isinstance(value, dict) else value
        raise _refused(where, keys, f"a mapping with exactly {', '.join(names) or 'no keys'}")
    return value


def _refused(where: str, value: object, allowed: str) -> RecordError:
    text = repr(value)
    return RecordError(f"{where}: found {text if len(text) <= 80 else text[:77] + '...'}; allowed: {allowed}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


RESERVE_BYTES = 16 * 2**20


class JournalError(RlsimError, OSError):
    """The journal cannot be written any more; what it holds is whole lines."""


class FileJournal:
    """One JSON value a line, each written before its commands are carried out.

    Lines reach the operating system at once: they outlive the process, not a power cut.
    """

    def __init__(self, path: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._reserve: BinaryIO | None = _reserved(path.with_name(".reserve"), reserve_bytes)
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from error

    def note(self, decision: Decision) -> None:
        """Write one; the first that finds the disk full is still written, from the reserve, and stops the run.

        ``JournalError`` then, and for every line that cannot be kept; what is in the file stays whole lines.
        """
        line = (self._encode(to_json(decision)) + "\n").encode()
        at = self._file.tell()
        full = self._refused(line, at)
        if full is not None and self._reserve is not None and full.errno in (errno.ENOSPC, errno.EDQUOT):
            self.release()
            kept = self._refused(line, at) is None
            said = "the run has stopped, its log is whole" if kept else "the run has stopped"
            raise JournalError(f"{self._path}: {full.strerror}; {said}") from full
        if full is not None:
            raise JournalError(f"{self._path}: {full.strerror}; the run has stopped") from full

    def _refused(self, line: bytes, at: int) -> OSError | None:
        """Write a line at a place, in full or not at all; why not."""
        try:
            self._write(line)
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(at)
                self._file.seek(at)
            return error
        return None

    def _write(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += self._file.write(line[written:])

    def release(self) -> None:
        """Give the reserve to whatever is still to be written."""
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None

    def close(self) -> None:
        """The run is over."""
        self.release()
        self._file.close()


def _reserved(path: Path, size_bytes: int) -> BinaryIO:
    """Disk space that is free again when the file is closed, however the process ends: it has no name."""
    reserve = open(path, "wb")  # noqa: SIM115
    try:
        os.posix_fallocate(reserve.fileno(), 0, size_bytes)
    except OSError:
        reserve.close()
        raise
    finally:
        path.unlink()
    return reserve


class NoJournal:
    """For runs that nobody keeps."""

    def note(self, decision: Decision) -> None:
        """Forget it."""
