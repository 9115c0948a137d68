"""The lines of a log: rotated and compressed files, prefixes of processes, progress bars, cut ends, faulty bytes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlsim.core.errors import ParameterError

LIMIT_BYTES = 500_000_000
CHUNK_BYTES = 1 << 16
TEXT_SUFFIXES = ("", ".log", ".out", ".err", ".txt")
"""Files of a folder that may be a console."""
CUT = "lines at the end of a file without a line's end"

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_SOURCE = re.compile(r"\s*(\((?:[^()]|\([^()]*\))*\bpid=\d+[^()]*\)|\[(?:rank|default)\d+\]:|\d+:)(?:\s|$)")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_ROTATED = re.compile(r"(?P<name>.+?)(?:\.(?P<turn>\d{1,3})|[.-](?P<date>\d{4}-?\d\d-?\d\d[\dTt_.:-]*))(?:\.gz)?")
_DIGITS = re.compile(r"(\d+)")
_BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class Line(NamedTuple):
    """One line, or what was written of it between two carriage returns."""

    place: str
    """Number, after the file's name where there are several."""
    source: str
    """The process that launchers (Ray, torchrun, srun) name in front of it."""
    text: str
    """Without colours and prefixes."""
    whole: bool = True
    """Whether its end was written."""


class LogText:
    """The lines of a log's files, oldest first; a reader says which of them it could not use."""

    def __init__(self, path: Path, suffixes: tuple[str, ...] = TEXT_SUFFIXES) -> None:
        self.origin = path.name
        self.files = text_files(path, suffixes)
        self._lost: dict[str, tuple[int, Line]] = {}

    def __iter__(self) -> Iterator[Line]:
        for file in self.files:
            head = "line " if len(self.files) == 1 else f"{file.name}:"
            lines = read_text(file).split("\n")
            for number, text in enumerate(lines, start=1):
                pieces = text.replace("\x00", "").rstrip("\r").split("\r")
                for piece in pieces:
                    if piece:
                        ended = number < len(lines) or piece is not pieces[-1]
                        yield _line(f"{head}{number}", piece, ended)

    def lose(self, kind: str, line: Line) -> None:
        """Count a line that is not used; ``kind`` is the plural that is printed."""
        count, first = self._lost.get(kind, (0, line))
        self._lost[kind] = (count + 1, first)

    def notes(self) -> Iterator[str]:
        """What is printed of the files and of the lines that are not used."""
        if len(self.files) > 1:
            yield f"{len(self.files)} files, oldest first: {', '.join(file.name for file in self.files)}"
        for kind, (count, first) in self._lost.items():
            yield f"{kind}: {count}, first at {first.place}: {first.text[:60]!r}"


def _line(place: str, text: str, whole: bool) -> Line:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    sources = []
    while (match := _SOURCE.match(text)) is not None:
        sources.append(match[1])
        text = text[match.end() :]
    return Line(place, " ".join(sources), _REPEATED.sub("", text) if "[repeated " in text else text, whole)


def text_files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """A file after those that were rotated away from it, or the files of a folder with such suffixes."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file() and base_suffix(file) in suffixes]
        return sorted(files, key=_age)
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    older = [file for file in beside if (match := _ROTATED.fullmatch(file.name)) and match["name"] == path.name]
    return [*sorted(older, key=_age), path]


def base_suffix(file: Path) -> str:
    """The suffix below those of rotation and compression."""
    match = _ROTATED.fullmatch(file.name)
    name = file.name.removesuffix(".gz")
    if match is not None and Path(match["name"]).suffix in (*TEXT_SUFFIXES[1:], ".jsonl", ".csv"):
        name = match["name"]
    return Path(name).suffix


def _age(file: Path) -> tuple[list[str | int], int, str]:
    """Rotated files before what they were rotated from: the highest number, the earliest date first."""
    match = _ROTATED.fullmatch(file.name)
    name = match["name"] if match else file.name
    parts = [int(part) if part.isdecimal() else part for part in _DIGITS.split(str(file.with_name(name)))]
    turn = -int(match["turn"]) if match and match["turn"] else 0 if match else 1
    return parts, turn, (match and match["date"]) or ""


def read_text(file: Path) -> str:
    """The file's text, faulty bytes replaced; ``ParameterError`` when it cannot be read or is too large."""
    data = _read_bytes(file)
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8-sig")
    return data.decode(encoding, errors="replace")


def _read_bytes(file: Path) -> bytes:
    """All bytes; of a compressed file that was cut, those that are there."""
    parts, size = list[bytes](), 0
    try:
        with file.open("rb") as stream:
            chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
            for part in _unpacked(chunks) if file.suffix == ".gz" else chunks:
                parts.append(part)
                size += len(part)
                if size > LIMIT_BYTES:
                    raise ParameterError(file.name, f"more than {LIMIT_BYTES} bytes", f"at most {LIMIT_BYTES} bytes")
    except zlib.error as error:
        if not parts:
            raise ParameterError(file.name, f"no compressed file ({error})", "a file of gzip") from error
    except OSError as error:
        raise ParameterError(file.name, str(file), f"a readable file ({error.strerror})") from error
    return b"".join(parts)


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """What the members of a gzip file hold, as far as it goes."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        yield unpacker.decompress(chunk)
        while unpacker.eof and (rest := unpacker.unused_data):
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            yield unpacker.decompress(rest)
