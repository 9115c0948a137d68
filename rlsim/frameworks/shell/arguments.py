"""Words of a launch command as the keys and values that the program's own parser makes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlsim.frameworks.mapping import PROGRAM
from rlsim.frameworks.shell.state import Word
from rlsim.frameworks.shell.unknown import is_known, shown, unset_names

_SETTING = re.compile(r"(\+{0,2}|~)([A-Za-z_(\ue000][\w@/.\-()$\ue000\ue001]*)(?:=(.*))?", re.DOTALL)
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-?(\d|\.\d)[\d.eE+-]*")
_LAUNCHERS = re.compile(
    r"(^|/)mason\.py$|^torch\.distributed\.(run|launch)$|^accelerate\.commands\.launch$|^deepspeed\.launcher"
)
_OTHER_WORK = re.compile(
    r"convert|download|serve|server|prepare|preprocess|merge|upload|_eval|eval_|check|install|ray\.cli"
)
_SERVER = re.compile(r"vllm-serve|\bserve$|api_server|launch_server")
_COMMANDS = {"trl": 2, "vllm": 2, "rl": 1, "verl": 1, "rllm": 1, "prime-rl": 1, "grpo": 1}
"""Programs that are neither a file nor a module, and the words of their name."""


@dataclass(slots=True)
class Arguments:
    """Keys and values of a command line."""

    values: dict[str, Any] = field(default_factory=dict)
    unresolved: dict[str, str] = field(default_factory=dict)
    """Values that depend on the environment, as text."""
    unset: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, texts: Sequence[str], value: Any, line: int) -> None:
        """Keep a value; what is not known goes to ``unresolved``. The last value of a key counts."""
        self.lines[key] = line
        if all(map(is_known, texts)):
            self.unresolved.pop(key, None)
            self.values[key] = value
        else:
            self.values.pop(key, None)
            self.unresolved[key] = " ".join(map(shown, texts))
            self.unset[key] = tuple(name for text in texts for name in unset_names(text))


@dataclass(slots=True)
class Launch:
    """What a script starts."""

    own: Arguments = field(default_factory=Arguments)
    """Of the training program."""
    launcher: Arguments = field(default_factory=Arguments)
    server: Arguments = field(default_factory=Arguments)
    """Of the engine that is started beside it."""
    programs: list[str] = field(default_factory=list)


def launch(commands: Sequence[Sequence[Word]]) -> Launch:
    """The programs that a script starts, and their arguments.

    Of several programs, the training one has the most arguments and is no server or converter.
    """
    launches = [(words, at) for words in commands if (at := _program(words)) is not None]
    started = Launch(programs=[_name(*one) for one in launches])
    if not launches:
        _read(max(commands, key=_settings, default=()), started.own)
        return started
    words, at = max(launches, key=lambda one: (not _OTHER_WORK.search(_name(*one)), len(one[0]) - one[1]))
    for other in commands:
        if other is not words and _first(other) == "ray":
            _read(other[1:], started.launcher)
    for other, place in launches:
        if other is not words and _SERVER.search(_name(other, place)):
            _read(_until_end(other, place), started.server)
    _read(words[: at - 1] if words[at - 1].text == "-m" else words[:at], started.launcher)
    _read(_until_end(words, at), started.own)
    started.own.put(PROGRAM, [_name(words, at)], _name(words, at), words[at].line)
    return started


def _until_end(words: Sequence[Word], at: int) -> Sequence[Word]:
    """The words after the program's name, to the end of its command."""
    end = next((end for end in range(at, len(words)) if words[end].text in ("&&", ";", "|", "&")), len(words))
    return words[at + 1 : end]


def _settings(words: Sequence[Word]) -> int:
    """How many words of a command set something."""
    return sum(1 for word in words if re.match(r"--[A-Za-z]|[+~]{0,2}[A-Za-z_][\w@/.-]*=", word.text))


def _first(words: Sequence[Word]) -> str:
    return words[0].text.rpartition("/")[2] if words else ""


def _name(words: Sequence[Word], at: int) -> str:
    text = shown(words[at].text)
    return text.rpartition("/")[2] if text.endswith(".py") else text


def _program(words: Sequence[Word]) -> int | None:
    """The place of the program's name: a Python file, a module after -m, or a known command."""
    for at, word in enumerate(words):
        text = shown(word.text)
        module = at > 0 and words[at - 1].text == "-m"
        if (module or text.endswith(".py")) and not text.startswith("-") and not _LAUNCHERS.search(text):
            return at
        if at < 6 and text in _COMMANDS and (at == 0 or _first(words[:1]) in ("uv", "exec", "srun", "nohup", "env")):
            return at + _COMMANDS[text] - 1 if at + _COMMANDS[text] <= len(words) else None
    return None


def _read(words: Sequence[Word], into: Arguments) -> None:
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        flag, setting = _FLAG.fullmatch(word.text), _SETTING.fullmatch(word.text)
        if flag is not None and not _NUMBER.fullmatch(word.text):
            values = [flag[2]] if flag[2] is not None else []
            while flag[2] is None and at < len(words) and _is_value(words[at].text):
                values.append(words[at].text)
                at += 1
            into.put(flag[1], values, _flagged(values), word.line)
        elif setting is not None and setting[1] == "~":
            into.values.pop(setting[2], None)
        elif setting is not None and setting[3] is not None:
            into.put(shown(setting[2]), [setting[3]], hydra_value(setting[3]), word.line)


def _is_value(text: str) -> bool:
    """Whether a word belongs to the flag before it."""
    if _NUMBER.fullmatch(text):
        return True
    setting = _SETTING.fullmatch(text)
    is_setting = setting is not None and setting[3] is not None and ("." in setting[2] or setting[1] != "")
    return (
        not text.startswith("--")
        and not re.fullmatch(r"-[A-Za-z]", text)
        and not is_setting
        and text not in ("&&", ";")
    )


def _flagged(texts: list[str]) -> Any:
    if not texts:
        return True
    values = [plain_value(text) for text in texts]
    return values if len(values) > 1 else values[0]


def plain_value(text: str) -> Any:
    """The value that a parser of flags makes of a word: a number, a truth value, JSON, else the text."""
    if _NUMBER.fullmatch(text) or text[:1] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    try:
        return float(text) if _NUMBER.fullmatch(text) else {"true": True, "false": False}.get(text.lower(), text)
    except ValueError:
        return text


def hydra_value(text: str) -> Any:
    """The value that Hydra makes of the right side of an override, references kept as text."""
    from omegaconf import OmegaConf

    if not is_known(text):
        return text
    try:
        container = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)
    except Exception:  # a text that no YAML parser reads is the text itself
        return text
    return container["value"] if isinstance(container, dict) else text
