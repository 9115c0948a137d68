"""Programs whose output depends on their arguments and input alone, as far as launch scripts use them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from functools import partial

from rlsim.frameworks.shell.arithmetic import NotANumber, evaluate

_MOST_LINES = 1000


def _echo(words: Sequence[str], stdin: str) -> str | None:
    ends = "\n"
    while words and re.fullmatch(r"-[neE]+", words[0]):
        ends = "" if "n" in words[0] else ends
        words = words[1:]
    return " ".join(words) + ends


def _printf(words: Sequence[str], stdin: str) -> str | None:
    if words and words[0] == "-v":
        return None
    form, values = words[0].replace("\\n", "\n").replace("\\t", "\t"), list(words[1:])
    places = len(re.findall(r"%(?!%)", form))
    if not places:
        return form.replace("%%", "%")
    out = ""
    while True:
        row = [values.pop(0) if values else "" for _ in range(places)]
        try:
            out += re.sub(r"%(%|[-+0 ]*\d*(?:\.\d+)?[sdig])", partial(_formatted, row), form)
        except ValueError:
            return None
        if not values:
            return out


def _formatted(row: list[str], match: re.Match[str]) -> str:
    spec = match[1]
    if spec == "%":
        return "%"
    value = row.pop(0)
    return f"%{spec}" % (value if spec[-1] == "s" else float(value) if spec[-1] == "g" else int(value or 0))


def _basename(words: Sequence[str], stdin: str) -> str | None:
    name = words[0].rstrip("/").rpartition("/")[2]
    return (name.removesuffix(words[1]) if len(words) > 1 and words[1] != name else name) + "\n"


def _dirname(words: Sequence[str], stdin: str) -> str | None:
    return (posixpath.dirname(words[0].rstrip("/")) or ("/" if words[0].startswith("/") else ".")) + "\n"


def _seq(words: Sequence[str], stdin: str) -> str | None:
    separator = "\n"
    if words[0] == "-s":
        separator, words = words[1], words[2:]
    numbers = [int(word) for word in words]
    first, step, last = (1, 1, numbers[0]) if len(numbers) == 1 else (*numbers, 0)[:3]
    if len(numbers) == 2:
        first, step, last = numbers[0], 1, numbers[1]
    numbers_of_range = range(first, last + (1 if step > 0 else -1), step)
    return separator.join(map(str, numbers_of_range)) + "\n" if len(numbers_of_range) <= _MOST_LINES else None


def _tr(words: Sequence[str], stdin: str) -> str | None:
    unescaped = [word.replace("\\n", "\n").replace("\\t", "\t") for word in words]
    sets = [re.sub(r"([a-zA-Z0-9])-([a-zA-Z0-9])", _spelt, one) for one in unescaped]
    sets = [
        {"[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "[:lower:]": "abcdefghijklmnopqrstuvwxyz"}.get(s, s) for s in sets
    ]
    if sets[0] == "-d":
        return stdin.translate({ord(one): None for one in sets[1]})
    if len(sets) != 2 or sets[0].startswith("-"):
        return None
    target = sets[1] + sets[1][-1:] * (len(sets[0]) - len(sets[1]))
    return stdin.translate({ord(one): two for one, two in zip(sets[0], target, strict=False)})


def _spelt(match: re.Match[str]) -> str:
    return "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1)))


def _wc(words: Sequence[str], stdin: str) -> str | None:
    counts = {"-l": stdin.count("\n"), "-w": len(stdin.split()), "-c": len(stdin)}
    return f"{counts[words[0]]}\n" if len(words) == 1 and words[0] in counts else None


def _cut(words: Sequence[str], stdin: str) -> str | None:
    options = dict(re.findall(r"-([df])\s*(\S)", " ".join(words)))
    if options.keys() != {"d", "f"} or not options["f"].isdigit():
        return None
    at = int(options["f"]) - 1
    rows = (line.split(options["d"]) for line in stdin.splitlines())
    return "".join(f"{row[at] if at < len(row) else ''}\n" for row in rows)


def _head(words: Sequence[str], stdin: str) -> str | None:
    count = re.fullmatch(r"-n?\s*(\d+)", " ".join(words) or "-10")
    return "".join(stdin.splitlines(keepends=True)[: int(count[1])]) if count else None


def _expr(words: Sequence[str], stdin: str) -> str | None:
    return f"{evaluate(' '.join(words), {})}\n"


def _bc(words: Sequence[str], stdin: str) -> str | None:
    return f"{evaluate(stdin, {})}\n" if not words or words == ["-l"] else None


def _cat(words: Sequence[str], stdin: str) -> str | None:
    return stdin if not words or words == ["-"] else None


_PROGRAMS: dict[str, Callable[[Sequence[str], str], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "basename": _basename,
    "dirname": _dirname,
    "seq": _seq,
    "tr": _tr,
    "wc": _wc,
    "cut": _cut,
    "head": _head,
    "expr": _expr,
    "bc": _bc,
    "cat": _cat,
    "xargs": lambda words, stdin: " ".join(stdin.split()) + "\n" if not words else None,
    "realpath": lambda words, stdin: f"{posixpath.normpath(words[-1])}\n",
    "readlink": lambda words, stdin: f"{posixpath.normpath(words[-1])}\n" if words[0] == "-f" else None,
}


def output(words: Sequence[str], stdin: str) -> str | None:
    """What the program prints with that input; None where it is no such program, or cannot be worked out."""
    program = _PROGRAMS.get(words[0].rpartition("/")[2]) if words else None
    rest = [word for word in words[1:] if word != "--"]
    try:
        return program(rest, stdin) if program is not None else None
    except (IndexError, ValueError, NotANumber):
        return None
