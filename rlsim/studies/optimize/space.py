"""A space of choices: axes with their values, from the command line or the scenario's ``search`` section.

An axis whose values have an order (numbers, or splits) is searched by neighbours; any other value by value. The axis
``split`` shares a number of GPUs out: ``{gpus: 32, step: 4}`` is 4 + 28, 8 + 24, ... for rollout and trainer, and with
``shared: true`` also all 32 for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.scenario.document import Document
from rlsim.scenario.schema import Scenario
from rlsim.scenario.tree import Node, find, plain
from rlsim.scenario.variation import ARM, Choice, Factor, Level, arms_factor, factor, keys_once, level, level_of

SPLIT = "split"
SPLIT_KEYS = "rollout.gpus:trainer.gpus:cluster.gpus"
MOST_LEVELS = 1000
"""Values of one axis."""
At = tuple[int, ...]
"""A point of the space: the number of each axis' level."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What is chosen, and from what."""

    factor: Factor
    is_ordered: bool

    @property
    def name(self) -> str:
        """Of its key."""
        return self.factor.name

    def kin(self, index: int) -> list[int]:
        """Of a split, the splits of other numbers of GPUs that are most like it; none of any other axis."""
        if self.name != SPLIT:
            return []
        levels = [_gpus(one) for one in self.factor.levels]
        own, total = levels[index]
        others = dict.fromkeys(whole for _, whole in levels if whole != total)
        return [
            min(
                (place for place, (_, whole) in enumerate(levels) if whole == other),
                key=lambda place: abs(levels[place][0] / other - own / total),
            )
            for other in others
        ]


@dataclass(frozen=True, slots=True)
class Space:
    """All combinations of the axes' levels."""

    document: Document
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Points."""
        return math.prod(len(axis.factor.levels) for axis in self.axes)

    def points(self) -> Iterator[At]:
        """All of them, the last axis varying fastest."""
        return product(*(range(len(axis.factor.levels)) for axis in self.axes))

    def scattered(self) -> Iterator[At]:
        """All of them, far from each other one after the other."""
        stride = max(1, round(0.618 * self.size))
        while math.gcd(stride, self.size) != 1:
            stride += 1
        return (self._numbered(place * stride % self.size) for place in range(self.size))

    def _numbered(self, number: int) -> At:
        at = []
        for axis in reversed(self.axes):
            number, index = divmod(number, len(axis.factor.levels))
            at.append(index)
        return tuple(reversed(at))

    def choice(self, at: At) -> Choice:
        """The levels of a point."""
        return {axis.name: axis.factor.levels[index] for axis, index in zip(self.axes, at, strict=True)}

    def written(self) -> list[At]:
        """The points that are the scenario as it stands, one an arm; fewer where it has values that are no level."""
        found = [self._place(arm, scenario) for arm, scenario in self.document.resolve_all().items()]
        return [at for at in dict.fromkeys(found) if at is not None]

    def _place(self, arm: str | None, scenario: Scenario) -> At | None:
        tree = scenario.model_dump(mode="json")
        at = [_matching(axis.factor, arm, tree) for axis in self.axes]
        return None if None in at else tuple(index for index in at if index is not None)

    def texts(self, at: At) -> dict[str, str]:
        """The levels of a point as written."""
        return {name: one.text for name, one in self.choice(at).items()}


def space_of(document: Document, texts: Sequence[str], arms: Sequence[str]) -> Space:
    """The axes of the command line, and those of the scenario that it does not name; arms are an axis.

    ScenarioError for axes that cannot be read; ParameterError where there is nothing to choose.
    """
    asked = {one.name: one for one in (axis_of_text(text) for text in texts)}
    written = {one.name: one for one in written_factors(document, "axes")}
    factors = [*(one for name, one in written.items() if name not in asked), *asked.values()]
    arm = None if any(one.name == ARM for one in factors) else arms_factor(arms, document.arms())
    if arm is not None:
        factors.insert(0, arm)
    keys_once(factors, option="--search")
    if not factors:
        raise ParameterError("--search", "no axis", "key=a,b,c, or a search section with axes in the scenario")
    return Space(document, tuple(Axis(one, is_ordered(one)) for one in factors))


def axis_of_text(text: str, option: str = "--search") -> Factor:
    """``key=a,b,c`` or ``key={from: 1, to: 9, step: 2}``."""
    found = factor(text, option)
    first = found.levels[0]
    if len(found.levels) == 1 and first.text.startswith("{"):
        from rlsim.scenario.reader import parse

        node, _ = parse(first.text, f"{option} {text}", (found.name,), numbered=False)
        if _is_range(found.name, node):
            return ranged(found.name, node)
    return found


def written_factors(document: Document, section: str) -> list[Factor]:
    """The factors of a part of the ``search`` section (axes, uncertain, sensitivity)."""
    from rlsim.scenario.tree import merge, without

    node, rest = find(merge(without(document.root, "arms"), document.settings), ("search", section))
    return [] if rest else [factor_of(name, below) for name, below in node.children.items()]


def factor_of(name: str, node: Node) -> Factor:
    """A list of values or a range, as a file writes them."""
    if _is_range(name, node):
        return ranged(name, node)
    values = node.value if isinstance(node.value, list) else [node]
    if not values:
        raise ScenarioError([f"{node.place}: search: {name}: found an empty list; allowed: at least one value"])
    return Factor(name, tuple(level_of(name, value) for value in values))


def _is_range(name: str, node: Node) -> bool:
    keys = set(node.children)
    return {"from", "to"} <= keys or (name == SPLIT and "gpus" in keys)


def ranged(name: str, node: Node) -> Factor:
    """The values from one number to another by a step or a factor; of ``split``, the ways to share GPUs out."""
    given = {key: plain(child) for key, child in node.children.items()}
    where = f"{node.place}: {name}"
    if name == SPLIT:
        return Factor(SPLIT, tuple(_split_level(text, where) for text in _splits(given, where)))
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in _steps(given, where)]
    return Factor(name, tuple(level(name, text, str(node.place)) for text in texts))


def _split_level(text: str, where: str) -> Level:
    rollout, trainer = map(int, text.split("+")) if "+" in text else (int(text), int(text))
    total = rollout + trainer if "+" in text else rollout
    found = level(SPLIT_KEYS, f"{rollout}:{trainer}:{total}", where)
    return Level(text, found.settings)


def _splits(given: Mapping[str, object], where: str) -> list[str]:
    totals: Any = given.get("gpus")
    step: Any = given.get("step", 1)
    counts = totals if isinstance(totals, list) else [totals]
    known = {"gpus", "step", "shared"}
    if set(given) - known or not all(_is_count(count) for count in (*counts, step)):
        raise ScenarioError([f"{where}: found {given}; allowed: gpus (a number or a list), step, shared"])
    texts = []
    for total in map(int, counts):
        texts += [f"{rollout}+{total - rollout}" for rollout in range(int(step), total, int(step))]
        texts += [f"{total}"] if given.get("shared") else []
    if not texts:
        raise ScenarioError([f"{where}: found no split; allowed: a step below the number of GPUs"])
    return texts


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _steps(given: Mapping[str, object], where: str) -> list[int | float]:
    numbers = {key: value for key, value in given.items() if isinstance(value, int | float) and value > 0}
    if set(numbers) != set(given) or set(given) not in ({"from", "to", "step"}, {"from", "to", "factor"}):
        raise ScenarioError([f"{where}: found {given}; allowed: from, to, and step or factor, numbers above 0"])
    value, last = numbers["from"], numbers["to"]
    if numbers.get("factor", 2) <= 1:
        raise ScenarioError([f"{where}: found factor {numbers['factor']}; allowed: above 1"])
    found: list[int | float] = []
    while value <= last * (1 + 1e-9) and len(found) <= MOST_LEVELS:
        found.append(value)
        value = value * numbers["factor"] if "factor" in numbers else value + numbers["step"]
    if not found or len(found) > MOST_LEVELS:
        raise ScenarioError([f"{where}: found {len(found)} values; allowed: 1 to {MOST_LEVELS}"])
    return [round(one, 12) if isinstance(one, float) else one for one in found]


def is_ordered(one: Factor) -> bool:
    """Whether the levels are in an order in which neighbours are alike: numbers that rise or fall, or splits."""
    if one.name == SPLIT:
        return True
    values = [_first_number(level) for level in one.levels]
    numbers = [value for value in values if value is not None]
    return len(numbers) == len(values) and sorted(numbers) in (numbers, numbers[::-1])


def _matching(one: Factor, arm: str | None, tree: Mapping[str, Any]) -> int | None:
    """The first level that changes nothing."""
    for index, found in enumerate(one.levels):
        is_arm = one.name == ARM
        if found.arm == arm if is_arm else all(plain(node) == _value(tree, path) for path, node in found.settings):
            return index
    return None


def _value(tree: Mapping[str, Any], path: Sequence[str]) -> object:
    node: Any = tree
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _gpus(one: Level) -> tuple[int, int]:
    """GPUs of rollout and in all of a split."""
    rollout, _, total = (int(str(node.value)) for _, node in one.settings)
    return rollout, total


def _first_number(one: Level) -> float | None:
    """The number a level sets first; None for a level that sets none."""
    value = one.settings[0][1].value if one.settings else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
