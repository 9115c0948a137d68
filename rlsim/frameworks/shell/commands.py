"""Commands of a script: the shell's own, functions, programs that can be worked out, and those that are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.frameworks.shell.arithmetic import NotANumber, evaluate
from rlsim.frameworks.shell.programs import output
from rlsim.frameworks.shell.state import State, Word
from rlsim.frameworks.shell.tests import Condition, Token
from rlsim.frameworks.shell.unknown import cleaned, is_known, shown, to_ascii, unknown
from rlsim.frameworks.shell.words import Words, parsed, prepared

if TYPE_CHECKING:
    from tree_sitter import Node

_OTHER_DEVICES = re.compile(r"npu|rocm|hip|xpu|\bamd|hpu|mlu|musa", re.IGNORECASE)
_NO_WORDS = ("comment", "file_redirect", "heredoc_redirect", "herestring_redirect", "variable_assignment")
_SILENT = ("set", "shopt", "ulimit", "trap", "sleep", "wait", "mkdir", "rm", "pkill", "pip", "shift", "module")


class Ended(Exception):
    """The script or function ends here."""


class Commands(Words):
    """The commands of one source text, over the state of the script."""

    def __init__(self, source: bytes, state: State) -> None:
        super().__init__(source, state)
        self._printed: list[str] | None = None
        """Output while a command is substituted; None while nobody reads it."""
        self._stdin = ""
        """Standard input of the command."""
        self._substituting = False

    def run(self, node: Node) -> bool | None:
        """Follow a statement; whether it succeeds, None where only the machine knows."""
        raise NotImplementedError

    def _variable_assignment(self, node: Node) -> bool:
        name, value = node.children[0], node.children[2] if len(node.children) > 2 else None
        adds = node.children[1].type == "+="
        if name.type == "subscript":
            self._assign_element(name, "" if value is None else self.text(value))
            return True
        key = self.raw(name)
        if value is not None and value.type == "array":
            words = self._words(value)
            self._state.arrays[key] = [*(self._state.words(key) if adds else []), *words]
        else:
            text = "" if value is None else self.text(value)
            self._state.set(key, self._state.value(key) + text if adds and self._state.get(key) is not None else text)
        return True

    def _assign_element(self, subscript: Node, text: str) -> None:
        name, index = self.raw(subscript.children[0]), self.text(subscript.children[2])
        words = self._state.arrays.setdefault(name, [])
        word = Word(text, subscript.start_point[0] + 1)
        if index.isdigit() and int(index) < len(words):
            words[int(index)] = word
        else:
            words.append(word)

    def _decided(self, tokens: list[Token], node: Node) -> bool | None:
        condition = Condition(tokens, self._exists)
        holds = condition.holds()
        if condition.said and holds is not None:
            self._state.note(node.start_point[0] + 1, "; ".join(dict.fromkeys(condition.said)))
        return holds

    def _print(self, text: str | None, node: Node) -> bool | None:
        if self._printed is not None:
            self._printed.append(unknown(f"({self.raw(node)})") if text is None else text)
        return None if text is None else True

    @contextmanager
    def _input(self, text: str) -> Iterator[None]:
        before, self._stdin = self._stdin, text
        yield
        self._stdin = before

    def _called(self, name: str, arguments: list[Word]) -> bool | None:
        body, source = self._state.functions[name]
        before, self._state.positional = self._state.positional, arguments
        self._state.depth += 1
        try:
            inner = self if source is self._source else type(self)(source, self._state)
            return inner.run(body) if self._state.depth < 40 else None
        except Ended:
            return True
        finally:
            self._state.positional = before
            self._state.depth -= 1

    def _command(self, node: Node) -> bool | None:
        line = node.start_point[0] + 1
        words = self._words(node)
        for child in node.children:
            if child.type == "variable_assignment":
                self._variable_assignment(child)
            elif child.type == "herestring_redirect":
                with self._input(self.text(child.children[-1]) + "\n"):
                    return self._started(words, node)
        return self._started(words, node) if words else line > 0

    def _words(self, node: Node) -> list[Word]:
        """The words below a command or an array."""
        kept = (child for child in node.children if child.is_named and child.type not in _NO_WORDS)
        return [word for child in kept for word in self.fields(child)]

    def _started(self, words: list[Word], node: Node) -> bool | None:
        """A command by its words: the shell's own, a function, a program that is worked out, or one that is kept."""
        name, texts = words[0].text, [word.text for word in words]
        if name in self._state.functions:
            return self._called(name, words[1:])
        own = getattr(self, f"_do_{name}", self._do_source if name == "." else None)
        if own is not None:
            done: bool | None = own(texts, node)
            return done
        if name in ("[", "test"):
            ends = texts[1:-1] if name == "[" else texts[1:]
            tokens = [("op" if re.fullmatch(r"-[a-z]+|[!()=]|==|!=", one) else "word", one) for one in ends]
            return self._decided(tokens, node)
        if name in _SILENT:
            return True
        shell = next((at for at, text in enumerate(texts) if text in ("bash", "sh")), len(texts))
        if re.fullmatch(r"-\w*c", "".join(texts[shell + 1 : shell + 2])) and len(texts) > shell + 2:
            return self.follow(texts[shell + 2])
        known = all(map(is_known, texts)) and is_known(self._stdin)
        printed = output(texts, self._stdin) if known or name in ("echo", "printf", "basename", "dirname") else None
        if printed is not None:
            return self._print(printed, node)
        asks = name in ("command", "which", "type") or texts[1:2] == ["-c"] or name.endswith(("-smi", "info"))
        if asks and _OTHER_DEVICES.search(" ".join(texts)):
            self._state.note(node.start_point[0] + 1, f"{shown(' '.join(texts))[:60]} is taken to fail: NVIDIA GPUs")
            return False
        if not self._substituting and name.startswith("--") and self._state.commands:
            self._state.note(node.start_point[0] + 1, "a line that begins with a flag continues the command before it")
            self._state.commands[-1] = [*self._state.commands[-1], *words]
        elif not self._substituting:
            self._state.commands.append(words)
        return self._print(None, node)

    def _do_true(self, words: list[str], node: Node) -> bool:
        return True

    def _do_false(self, words: list[str], node: Node) -> bool:
        return False

    def _do_exit(self, words: list[str], node: Node) -> bool:
        if words[1:2] and words[1].isdigit() and int(words[1]):
            self._state.note(node.start_point[0] + 1, "the script stops here where something is missing; it is read on")
            return False
        raise Ended

    def _do_return(self, words: list[str], node: Node) -> bool:
        raise Ended

    def _do_pwd(self, words: list[str], node: Node) -> bool | None:
        return self._print(self._state.variables.get("PWD", unknown("PWD")) + "\n", node)

    def _do_cd(self, words: list[str], node: Node) -> bool:
        self._state.variables["PWD"] = next((word for word in words[1:] if not word.startswith("-")), unknown("HOME"))
        return True

    def _do_let(self, words: list[str], node: Node) -> bool:
        for word in words[1:]:
            try:
                evaluate(word, self._state.numbers())
            except NotANumber:
                self._state.note(node.start_point[0] + 1, f"let {shown(word)} is not worked out")
        return True

    def _do_read(self, words: list[str], node: Node) -> bool:
        names = [word for word in words[1:] if not word.startswith("-")]
        line = self._stdin.split("\n")[0]
        parts = line.replace(self._state.variables.get("IFS", " "), " ").split() if is_known(line) else [line]
        if any(re.fullmatch(r"-\w*a", word) for word in words[1:]) and names:
            if not is_known(line):
                self._state.note(node.start_point[0] + 1, f"what {shown(line)} gives is not known: it is left out")
                self._state.sourced.append(shown(line))
                parts = []
            self._state.arrays[names[-1]] = [Word(one, node.start_point[0] + 1) for one in parts]
            return True
        for at, name in enumerate(names):
            self._state.set(name, " ".join(parts[at:]) if at == len(names) - 1 else "".join(parts[at : at + 1]))
        return True

    def _do_eval(self, words: list[str], node: Node) -> bool | None:
        return self.follow(" ".join(words[1:]))

    def _do_source(self, words: list[str], node: Node) -> bool | None:
        path = words[1] if len(words) > 1 else ""
        self._state.sourced.append(shown(path))
        text = self._neighbour(path)
        if text is not None:
            return self.follow(text)
        self._state.note(node.start_point[0] + 1, f"{shown(path)} is not beside the file: what it sets is not known")
        return True

    def follow(self, text: str) -> bool | None:
        """Follow a script's text in the same state."""
        self._state.depth += 1
        if self._state.depth > 20:
            self._state.depth -= 1
            return None
        source = to_ascii(prepared(cleaned(text) if is_known(text) else text))
        try:
            return type(self)(source, self._state).run(parsed(source))
        finally:
            self._state.depth -= 1

    def _exists(self, path: str) -> bool:
        return self._near(path) is not None

    def _near(self, path: str) -> Path | None:
        """The file of that path, if it lies in the script's folder or in the two above it."""
        if self._state.folder is None or not is_known(path) or not path or "\0" in path or len(path) > 1000:
            return None
        folder = self._state.folder.resolve()
        try:
            resolved = (folder / path).resolve()
            inside = folder.parents[min(1, len(folder.parents) - 1)] in resolved.parents and len(folder.parts) > 3
            return resolved if (inside or folder in resolved.parents) and resolved.is_file() else None
        except OSError:
            return None

    def _neighbour(self, path: str) -> str | None:
        from rlsim.core.errors import ScenarioError
        from rlsim.scenario.reader import read

        neighbour = self._near(path)
        try:
            return None if neighbour is None else read(str(neighbour)).decode("utf-8", "replace")
        except ScenarioError:
            return None
