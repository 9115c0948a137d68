"""Statements of a script followed as a machine with NVIDIA GPUs would, without running anything.

Where a branch depends on what only the machine knows, the reader takes files and variables that nobody sets for
absent, other devices' modules for not installed, and a branch that ends the script for not taken; each is a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from rlsim.frameworks.shell.commands import Commands, Ended
from rlsim.frameworks.shell.state import Word
from rlsim.frameworks.shell.tests import Token
from rlsim.frameworks.shell.unknown import is_known, shown, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

_ENDS = re.compile(r"(^|[;\s{&|])(exit|return)\b")
_LOOPS = 200


class Evaluation(Commands):
    """The statements of one source text, over the state of the script."""

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

    # Assignments

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

    def _subshell(self, node: Node) -> bool | None:
        return self._all(node.children)

    def _compound_statement(self, node: Node) -> bool | None:
        if node.children and node.children[0].type == "((":
            return self._arithmetic_test(self.raw(node)[2:-2])
        return self._all(node.children)

    # Pipelines and redirections

    def _pipeline(self, node: Node) -> bool | None:
        stages = [child for child in node.children if child.is_named]
        outer, done = self._printed, None
        outer_stdin = self._stdin
        for at, stage in enumerate(stages):
            self._printed = [] if at < len(stages) - 1 else outer
            done = self.run(stage)
            self._stdin = "".join(self._printed or []) if at < len(stages) - 1 else outer_stdin
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
