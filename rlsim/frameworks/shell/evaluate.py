"""Statements of a script followed as a machine with NVIDIA GPUs would, without running anything.

Where a branch depends on what only the machine knows, the reader takes files and variables that nobody sets for
absent, other devices' modules for not installed, and a branch that ends the script for not taken; each is a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.frameworks.shell.arithmetic import NotANumber, evaluate
from rlsim.frameworks.shell.programs import output
from rlsim.frameworks.shell.state import State, Word
from rlsim.frameworks.shell.tests import Condition, Token
from rlsim.frameworks.shell.unknown import cleaned, is_known, shown, unknown
from rlsim.frameworks.shell.words import Words, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_ENDS = re.compile(r"(^|[;\s{&|])(exit|return)\b")
_OTHER_DEVICES = re.compile(r"npu|rocm|hip|xpu|\bamd|hpu|mlu|musa", re.IGNORECASE)
_NO_WORDS = ("comment", "file_redirect", "heredoc_redirect", "herestring_redirect", "variable_assignment")
_LOOPS = 200
_SILENT = ("set", "shopt", "ulimit", "trap", "sleep", "wait", "mkdir", "rm", "pkill", "pip", "shift", "module")


class Ended(Exception):
    """The script or function ends here."""


class Evaluation(Words):
    """The statements of one source text, over the state of the script."""

    def __init__(self, source: bytes, state: State) -> None:
        super().__init__(source, state)
        self._printed: list[str] | None = None
        """Output while a command is substituted; None while nobody reads it."""
        self._given = ""
        """Standard input of the command."""
        self._substituting = False

    def run(self, node: Node) -> bool | None:
        """Follow a statement; whether it succeeds, None where only the machine knows."""
        self._state.count()
        method = getattr(self, f"_{node.type}", None)
        if node.type == "ERROR":
            line = node.start_point[0] + 1
            self._state.faults.append(f"{self._state.file}:{line}: {self.raw(node)[:60]!r} is not read as Bash")
        if method is not None:
            done: bool | None = method(node)
            return done
        return self._all(node.children) if node.is_named else True

    def _all(self, nodes: list[Node]) -> bool | None:
        done: bool | None = True
        for node in nodes:
            if node.is_named and node.type != "comment":
                done = self.run(node)
        return done

    def capture(self, node: Node) -> str:
        """What a substituted command prints, without blank lines at its end; unknown where it cannot be told."""
        self._state.depth += 1
        if self._state.depth > 50:
            self._state.depth -= 1
            return unknown("(nested)")
        before, self._printed = (self._printed, self._substituting), []
        self._substituting = True
        folder = self._state.variables.get("PWD")
        with suppress(Ended):
            self._all(node.children)
        text = "".join(self._printed).rstrip("\n")
        self._printed, self._substituting = before
        self._state.depth -= 1
        self._state.variables.pop("PWD", None)
        self._state.variables |= {} if folder is None else {"PWD": folder}
        return unknown(self.raw(node).removeprefix("$")) if re.fullmatch("\ue000\\([^\ue000]*", text) else text

    def _print(self, text: str | None, node: Node) -> bool | None:
        if self._printed is not None:
            self._printed.append(unknown(f"({self.raw(node)})") if text is None else text)
        return None if text is None else True

    # Assignments

    def _variable_assignment(self, node: Node) -> bool:
        name, value = node.children[0], node.children[2] if len(node.children) > 2 else None
        adds = node.children[1].type == "+="
        if name.type == "subscript":
            self._assign_element(name, "" if value is None else self.text(value))
            return True
        key = self.raw(name)
        if value is not None and value.type == "array":
            words = [
                word
                for child in value.children
                if child.is_named and child.type != "comment"
                for word in self.fields(child)
            ]
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

    def _declaration_command(self, node: Node) -> bool:
        for child in node.children:
            if child.type == "variable_assignment":
                self._variable_assignment(child)
        return True

    def _unset_command(self, node: Node) -> bool:
        for child in node.children[1:]:
            self._state.variables.pop(self.raw(child), None)
            self._state.arrays.pop(self.raw(child), None)
        return True

    # Branches

    def _list(self, node: Node) -> bool | None:
        left, operator, right = node.children[0], node.children[1].type, node.children[2]
        done = self.run(left)
        if done is None:
            done = operator == "||" or _ENDS.search(self.raw(right)) is None
        return self.run(right) if done == (operator == "&&") else done

    def _negated_command(self, node: Node) -> bool | None:
        done = self.run(node.children[1])
        return None if done is None else not done

    def _test_command(self, node: Node) -> bool | None:
        if node.children[0].type == "((":
            return self._arithmetic_test(self.raw(node)[2:-2])
        tokens = [token for child in node.children[1:-1] for token in self._tokens(child)]
        return self._decided(tokens, node)

    def _decided(self, tokens: list[Token], node: Node) -> bool | None:
        condition = Condition(tokens, self._exists)
        holds = condition.holds()
        if condition.said and holds is not None:
            self._state.note(node.start_point[0] + 1, "; ".join(dict.fromkeys(condition.said)))
        return holds

    def _tokens(self, node: Node) -> Iterator[Token]:
        if node.type in ("binary_expression", "unary_expression", "parenthesized_expression"):
            for child in node.children:
                yield from self._tokens(child)
        elif not node.is_named or node.type == "test_operator":
            yield "op", self.raw(node)
        elif node.type in ("regex", "extglob_pattern"):
            yield "word", self.inner(self.raw(node))
        else:
            yield "word", self.text(node)

    def _arithmetic_test(self, text: str) -> bool | None:
        value = self.arithmetic(text)
        return value != "0" if is_known(value) else None

    def _if_statement(self, node: Node) -> bool | None:
        branches = self._branches(node)
        done = None
        for at, (condition, body) in enumerate(branches):
            holds = True if condition is None else self._all(condition)
            ends = any(_ENDS.search(self.raw(one)) for one in body)
            if holds is None and condition is not None:
                line, text = node.start_point[0] + 1, " ".join(self.raw(one) for one in condition)
                holds = not ends
                self._state.note(line, f"{shown(text)[:80]} is taken for {'true' if holds else 'false'}")
            elif holds and ends and self._depends(condition):
                holds = False
            if holds:
                done = self._all(body)
                break
            if at == len(branches) - 1:
                done = True
        return done

    def _depends(self, condition: list[Node] | None) -> bool:
        """Whether a condition is about what nobody sets in the file: a script that ends there asks its user for it."""
        words = re.findall(r"\$\{?(\w+|#)", " ".join(self.raw(one) for one in condition or []))
        return any(word == "#" or word.isdigit() or not is_known(self._state.value(word)) for word in words)

    def _branches(self, node: Node) -> list[tuple[list[Node] | None, list[Node]]]:
        """Conditions and bodies in order; no condition for else."""
        conditions, bodies = [[]], [[]]  # type: list[list[Node] | None], list[list[Node]]
        target = conditions[0]
        for child in node.children:
            if child.type == "then":
                target = bodies[-1]
            elif child.type == "elif_clause":
                for inner in self._branches(child):
                    conditions.append(inner[0])
                    bodies.append(inner[1])
            elif child.type == "else_clause":
                conditions.append(None)
                bodies.append([one for one in child.children if one.is_named])
            elif child.is_named and target is not None:
                target.append(child)
        return list(zip(conditions, bodies, strict=True))

    def _case_statement(self, node: Node) -> bool | None:
        value = next((child for child in node.children if child.is_named), None)
        subject = "" if value is None else self.text(value)
        items = [child for child in node.children if child.type == "case_item"]
        for item in items:
            at = next((at for at, child in enumerate(item.children) if child.type == ")"), 0)
            patterns = [child for child in item.children[:at] if child.is_named]
            tokens = [[("word", subject), ("op", "=="), ("word", self.inner(self.raw(one)))] for one in patterns]
            if any(self._decided(one, item) for one in tokens):
                return self._all(item.children[at + 1 :])
        return True

    # Loops and functions

    def _for_statement(self, node: Node) -> bool | None:
        name = next(self.raw(child) for child in node.children if child.type == "variable_name")
        body = next((child for child in node.children if child.type in ("do_group", "compound_statement")), None)
        started, words = False, list[Word]()
        for child in node.children:
            started = started or child.type == "in"
            if started and child.is_named and child is not body:
                words += self.fields(child)
        if not all(is_known(word.text) for word in words):
            self._state.note(node.start_point[0] + 1, "a loop over what only the machine knows is passed over")
            return True
        for word in words[:_LOOPS]:
            self._state.set(name, word.text)
            if body is not None:
                self._all(body.children)
        return True

    def _c_style_for_statement(self, node: Node) -> bool | None:
        body = next((child for child in node.children if child.type in ("do_group", "compound_statement")), None)
        header = re.search(r"\(\((.*?);(.*?);(.*?)\)\)", self.raw(node), re.DOTALL)
        if header is None or body is None:
            return None
        self.arithmetic(header[1])
        for _ in range(_LOOPS):
            if not self._arithmetic_test(header[2]):
                break
            self._all(body.children)
            self.arithmetic(header[3])
        return True

    def _while_statement(self, node: Node) -> bool | None:
        conditions = [child for child in node.children[1:] if child.is_named and child.type != "do_group"]
        body = next((child for child in node.children if child.type == "do_group"), None)
        for _ in range(_LOOPS if body is not None else 0):
            holds = self._all(conditions)
            if (
                holds is None
                or holds == (node.children[0].type == "until")
                or re.search(r"\bbreak\b", self.raw(body or node))
            ):
                break
            self._all(body.children if body is not None else [])
        return True

    def _function_definition(self, node: Node) -> bool:
        name = next(self.raw(child) for child in node.children if child.type == "word")
        self._state.functions[name] = (node.children[-1], self._source)
        return True

    def _called(self, name: str, arguments: list[Word]) -> bool | None:
        body, source = self._state.functions[name]
        before, self._state.positional = self._state.positional, arguments
        self._state.depth += 1
        try:
            inner = self if source is self._source else Evaluation(source, self._state)
            return inner._all(body.children) if self._state.depth < 40 else None
        except Ended:
            return True
        finally:
            self._state.positional = before
            self._state.depth -= 1

    def _subshell(self, node: Node) -> bool | None:
        return self._all(node.children)

    def _compound_statement(self, node: Node) -> bool | None:
        if node.children and node.children[0].type == "((":
            return self._arithmetic_test(self.raw(node)[2:-2])
        return self._all(node.children)

    # Commands

    def _pipeline(self, node: Node) -> bool | None:
        stages = [child for child in node.children if child.is_named]
        outer, done = self._printed, None
        given = self._given
        for at, stage in enumerate(stages):
            self._printed = [] if at < len(stages) - 1 else outer
            done = self.run(stage)
            self._given = "".join(self._printed or []) if at < len(stages) - 1 else given
        self._printed = outer
        return done

    def _redirected_statement(self, node: Node) -> bool | None:
        body = node.children[0]
        heredoc = next((child for child in node.children if child.type == "heredoc_redirect"), None)
        files = [child for child in node.children if child.type == "file_redirect"]
        if heredoc is not None:
            files += [child for child in heredoc.children if child.type == "file_redirect"]
            written = next((child for child in heredoc.children if child.type == "heredoc_body"), None)
            start = next(self.raw(child) for child in heredoc.children if child.type == "heredoc_start")
            text = "" if written is None else self.document(written, start[:1] in "'\"\\")
            for target in files:
                self._state.documents[self.text(target.children[-1])] = text
            with self._input(text):
                return self.run(body) if not files else True
        outputs = [
            one for one in files if one.children[0].type in (">", ">>") and self.text(one.children[-1]) != "/dev/null"
        ]
        if outputs and self._printed is None and body.type == "command":
            self._printed = []
            done = self.run(body)
            self._state.documents[self.text(outputs[-1].children[-1])] = "".join(self._printed)
            self._printed = None
            return done
        return self.run(body)

    @contextmanager
    def _input(self, text: str) -> Iterator[None]:
        before, self._given = self._given, text
        yield
        self._given = before

    def _command(self, node: Node) -> bool | None:
        line = node.start_point[0] + 1
        words = [
            word
            for child in node.children
            if child.is_named and child.type not in _NO_WORDS
            for word in self.fields(child)
        ]
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
        own = (
            getattr(self, f"_do_{'source' if name == '.' else name}", None)
            if re.fullmatch(r"[a-z]+|\.", name)
            else None
        )
        if own is not None:
            done: bool | None = own(texts, node)
            return done
        if name in ("[", "test"):
            ends = texts[1:-1] if name == "[" else texts[1:]
            return self._decided(
                [("op" if re.fullmatch(r"-\w+|[!()=]|==|!=", one) else "word", one) for one in ends], node
            )
        if name in _SILENT:
            return True
        shell = next((at for at, text in enumerate(texts) if text in ("bash", "sh")), len(texts))
        if re.fullmatch(r"-\w*c", "".join(texts[shell + 1 : shell + 2])) and len(texts) > shell + 2:
            return self.follow(texts[shell + 2])
        known = all(map(is_known, texts)) and is_known(self._given)
        printed = output(texts, self._given) if known or name in ("echo", "printf", "basename", "dirname") else None
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
        line = self._given.split("\n")[0]
        found = line.replace(self._state.variables.get("IFS", " "), " ").split() if is_known(line) else [line]
        if any(re.fullmatch(r"-\w*a", word) for word in words[1:]) and names:
            if not is_known(line):
                self._state.note(node.start_point[0] + 1, f"what {shown(line)} gives is not known: it is left out")
                self._state.sourced.append(shown(line))
                found = []
            self._state.arrays[names[-1]] = [Word(one, node.start_point[0] + 1) for one in found]
            return True
        for at, name in enumerate(names):
            self._state.set(name, " ".join(found[at:]) if at == len(names) - 1 else "".join(found[at : at + 1]))
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
        source = cleaned(text).encode() if is_known(text) else text.encode()
        try:
            return Evaluation(source, self._state).run(parsed(source))
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
            found = (folder / path).resolve()
            inside = folder.parents[min(1, len(folder.parents) - 1)] in found.parents and len(folder.parts) > 3
            return found if (inside or folder in found.parents) and found.is_file() else None
        except OSError:
            return None

    def _neighbour(self, path: str) -> str | None:
        from rlsim.core.errors import ScenarioError
        from rlsim.scenario.reader import read

        found = self._near(path)
        try:
            return None if found is None else read(str(found)).decode("utf-8", "replace")
        except ScenarioError:
            return None
