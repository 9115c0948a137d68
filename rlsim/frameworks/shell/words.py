"""Words of a script worked out: quotes, expansions, arithmetic and substituted commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

from rlsim.frameworks.shell import parameters
from rlsim.frameworks.shell.arithmetic import NotANumber, evaluate
from rlsim.frameworks.shell.state import MOST_WORDS, Exhausted, State, Word
from rlsim.frameworks.shell.unknown import from_ascii, is_known, split_blanks, to_ascii, unknown

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_EXPANSIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")
_ELEMENTS = re.compile(r"\$\{(\w+)\[[@*]\]\}|\$\{?([@*])\}?")
_SLICE = re.compile(r"\$\{([\w@]+)(?:\[[@*]\])?:\s*(-?\d+)(?::(\d+))?\}")
_ALTERNATIVES = re.compile(r"\{([^{}\s:'\"$]*,[^{}\s:'\"$]*)\}|\{(-?\d+)\.\.(-?\d+)\}")
_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^"\']+|.', re.DOTALL)
_SUM = re.compile(r"\$\[([^\[\]]*)\]")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r"}


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def prepared(text: str) -> str:
    """The script with ``$[...]`` for ``$((...))`` inside ``${...}``, where the grammar knows no nested brackets."""
    parts: list[str] = []
    at = depth = 0
    while at < len(text):
        end = _closed(text, at + 3) if depth and text.startswith("$((", at) else None
        if end is not None:
            parts.append(f"$[{text[at + 3 : end]}]")
            at = end + 2
            continue
        depth += text.startswith("${", at)
        depth -= depth > 0 and text[at] == "}"
        parts.append(text[at])
        at += 1
    return "".join(parts)


def _closed(text: str, at: int) -> int | None:
    """The place of the ``))`` that closes what begins at ``at``; None where it does not end on the line."""
    depth = 0
    for place in range(at, len(text)):
        if text[place] == "\n" or (depth == 0 and text[place] == ")"):
            return place if text.startswith("))", place) else None
        depth += {"(": 1, ")": -1}.get(text[place], 0)
    return None


def parsed(source: bytes) -> Node:
    """The syntax tree of a script."""
    return _parser().parse(source).root_node


Piece = tuple[str, bool]
"""A text, and whether blanks in it part words."""


class Words:
    """The words of one source text, over the state of the script."""

    def __init__(self, source: bytes, state: State) -> None:
        self._source, self._state = source, state

    def capture(self, node: Node) -> str:
        """What a substituted command prints."""
        raise NotImplementedError

    def raw(self, node: Node) -> str:
        """The source text of a node."""
        return from_ascii(self._source[node.start_byte : node.end_byte])

    def text(self, node: Node) -> str:
        """The node as one text, blanks kept."""
        return "".join(text for text, _ in self._pieces(node))

    def fields(self, node: Node) -> list[Word]:
        """The words that the node comes to; none for an empty array or an unquoted empty variable."""
        self._state.count()
        line = node.start_point[0] + 1
        elements = self._elements(node)
        if elements is not None:
            return elements
        texts: list[str] = []
        open_word = False
        for text, parts in self._pieces(node):
            pieces = split_blanks(text) if parts else [text]
            for at, piece in enumerate(pieces):
                if open_word and at == 0:
                    texts[-1] += piece
                elif piece or not parts:
                    texts.append(piece)
                    open_word = True
                elif at == len(pieces) - 1:
                    open_word = False
        spread = [word for text in texts for word in self._alternatives(node, text)]
        if len(spread) > MOST_WORDS:
            raise Exhausted
        return [Word(text, line) for text in spread]

    def _alternatives(self, node: Node, text: str) -> list[str]:
        """Brace expansion of an unquoted word: ``{a,b}`` and ``{1..3}``."""
        if node.type not in ("word", "concatenation", "brace_expression") or '"' in self.raw(node):
            return [text]
        match = _ALTERNATIVES.search(text)
        if match is None:
            return [text]
        if match[1] is not None:
            inner = match[1].split(",")
        else:
            first, last = int(match[2]), int(match[3])
            if abs(last - first) > 1000:
                raise Exhausted
            inner = [
                str(value) for value in range(first, last + (1 if last >= first else -1), 1 if last >= first else -1)
            ]
        return [
            word
            for one in inner
            for word in self._alternatives(node, text[: match.start()] + one + text[match.end() :])
        ]

    def _elements(self, node: Node) -> list[Word] | None:
        """The elements of an array that stands alone; None for any other word."""
        text = self.raw(node)
        inner = text[1:-1] if node.type == "string" else text
        part = _SLICE.fullmatch(inner)
        if part is not None and (part[1] in self._state.arrays or part[1] == "@"):
            words, start = self._state.words(part[1]), int(part[2]) - (1 if part[1] == "@" else 0)
            return words[start : start + int(part[3])] if part[3] else words[start:]
        whole = _ELEMENTS.fullmatch(inner)
        if whole is None:
            return None
        name = whole[1] or whole[2]
        if whole[1] and name not in self._state.arrays and name not in self._state.variables:
            self._state.note(node.start_point[0] + 1, f"what {inner} holds is not known: it is left out")
            return []
        words = self._state.words(name)
        if node.type == "string":
            return list(words)
        return [Word(one, word.line) for word in words for one in split_blanks(word.text) if one]

    def _pieces(self, node: Node) -> Iterator[Piece]:
        kind = node.type
        if kind == "concatenation":
            yield from self._joined(node)
        elif kind == "string":
            yield self._between(node, node.start_byte + 1, node.end_byte - 1), False
        elif kind == "raw_string":
            yield self.raw(node)[1:-1], False
        elif kind == "ansi_c_string":
            yield re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), self.raw(node)[2:-1]), False
        elif kind == "translated_string":
            yield from self._pieces(node.children[-1])
        elif kind in _EXPANSIONS:
            yield self._expanded(node), True
        elif kind == "command_name":
            yield from self._pieces(node.children[0])
        elif node.children and any(child.type in (*_EXPANSIONS, "string", "raw_string") for child in node.children):
            yield from self._joined(node)
        else:
            yield re.sub(r"\\(.)", r"\1", re.sub(r"\\\r?\n", "", self.raw(node)), flags=re.DOTALL), False

    def _joined(self, node: Node) -> Iterator[Piece]:
        yield from self._spanned(node.children, node.start_byte)

    def _spanned(self, nodes: list[Node], at: int) -> Iterator[Piece]:
        """The nodes one after another, with the source between them."""
        for child in nodes:
            if child.start_byte > at:
                yield from_ascii(self._source[at : child.start_byte]), False
            yield from self._pieces(child)
            at = child.end_byte

    def _between(self, node: Node, start: int, end: int) -> str:
        """Text inside double quotes, or of a here-document, with its expansions worked out."""
        inside = [child for child in node.children if child.type in _EXPANSIONS]
        bounds = [start, *(bound for child in inside for bound in (child.start_byte, child.end_byte)), end]
        gaps = [self._source[one:two] for one, two in list(pairwise(bounds))[::2]]
        texts = [re.sub(r"\\([\\$`\"\n])", _unescaped, from_ascii(gap)) for gap in gaps]
        values = [self._expanded(child) for child in inside]
        return texts[0] + "".join(value + text for value, text in zip(values, texts[1:], strict=True))

    def document(self, body: Node, quoted: bool) -> str:
        """The text of a here-document; nothing is worked out where its delimiter is quoted."""
        return self.raw(body) if quoted else self._between(body, body.start_byte, body.end_byte)

    def _expanded(self, node: Node) -> str:
        """The value of an expansion; blanks before it that the grammar counts as its own are kept."""
        self._state.count()
        whole = self.raw(node)
        text = whole.lstrip()
        return whole[: len(whole) - len(text)] + self._value(node, text)

    def _value(self, node: Node, text: str) -> str:
        if node.type == "simple_expansion":
            name = text[1:]
            parameter = parameters.special(name, self._state)
            return self._state.value(name) if parameter is None else parameter
        if node.type == "expansion":
            return parameters.expanded(text[2:-1], self._state, partial(self._after_operator, node))
        if node.type == "arithmetic_expansion" or (text.startswith("$((") and text.endswith("))")):
            return self.arithmetic(text[3:-2] if text.startswith("$((") else text[2:-1])
        return self.capture(node)

    def _after_operator(self, node: Node, text: str) -> str:
        """What follows the operator of an expansion, by the grammar's own nodes where they are the whole text."""
        if "$[" in text:
            return self.inner(_SUM.sub(lambda match: self.arithmetic(match[1]), text))
        at = next((at for at, child in enumerate(node.children) if at > 1 and not child.is_named), len(node.children))
        nodes = node.children[at + 1 : -1]
        if not nodes or from_ascii(self._source[nodes[0].start_byte : nodes[-1].end_byte]) != text:
            return self.inner(text)
        return "".join(piece for piece, _ in self._spanned(nodes, nodes[0].start_byte))

    def inner(self, text: str) -> str:
        """A text inside an expansion, such as a default, worked out."""
        if not set("$`\"'\\") & set(text):
            return text
        if len(text) > 1 and text[0] == text[-1] == '"' and _is_one_string(text):
            text = text[1:-1]
        elif set("\"'") & set(text):
            return "".join(
                self._part(match[0]) for match in re.finditer(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^"\']+|.', text, re.S)
            )
        return self._part(f'"{text}"')

    def _part(self, text: str) -> str:
        """One quoted or unquoted part."""
        if text[0] == "'" or not set('$`\\"') & set(text):
            return text.strip("'")
        quoted = text if text[0] == '"' else f'"{text}"'
        self._state.depth += 1
        if self._state.depth > 50:
            raise Exhausted
        source = to_ascii(f": {quoted}\n")
        root = parsed(source)
        strings = [node for node in root.children[0].children if node.type == "string"] if root.children else []
        worked_out = type(self)(source, self._state).text(strings[0]) if strings else text.strip('"')
        self._state.depth -= 1
        return worked_out

    def arithmetic(self, text: str) -> str:
        """The value of an expression; unknown where a variable of it is, or it is none."""
        inner = self._part(f'"{text}"') if "$" in text or "`" in text else text
        if not is_known(inner):
            return inner if re.fullmatch("\ue000[^\ue000\ue001]*\ue001", inner.strip()) else unknown(f"(({text}))")
        try:
            return str(evaluate(inner.replace('"', ""), self._state.numbers()))
        except NotANumber:
            return unknown(f"(({text}))")


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _is_one_string(text: str) -> bool:
    return re.fullmatch(r'"(?:[^"\\$]|\\.|\$(?!\{)|\$\{[^}]*\})*"', text, re.DOTALL) is not None
