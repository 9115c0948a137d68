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
GridPoint = tuple[int, ...]
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
        # Each split as the GPUs of rollout and those in all.
        numbers = [[int(str(node.value)) for _, node in split.settings] for split in self.factor.levels]
        levels = [(rollout, total) for rollout, _, total in numbers]
        own, total = levels[index]
        others = dict.fromkeys(whole for _, whole in levels if whole != total)
        return [
            min(
                (other_index for other_index, (_, whole) in enumerate(levels) if whole == other),
                key=lambda other_index: abs(levels[other_index][0] / other - own / total),
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

    def points(self) -> Iterator[GridPoint]:
        """All of them, the last axis varying fastest."""
        return product(*(range(len(axis.factor.levels)) for axis in self.axes))

    def scattered(self) -> Iterator[GridPoint]:
        """All of them, far from each other one after the other."""
        stride = max(1, round(0.618 * self.size))
        while math.gcd(stride, self.size) != 1:
            stride += 1
        for number in range(self.size):
            rest, indices = number * stride % self.size, list[int]()
            for axis in reversed(self.axes):
                rest, index = divmod(rest, len(axis.factor.levels))
                indices.append(index)
            yield tuple(reversed(indices))

    def choice(self, point: GridPoint) -> Choice:
        """The levels of a point."""
        return {axis.name: axis.factor.levels[index] for axis, index in zip(self.axes, point, strict=True)}

    def scenarios(self) -> dict[str | None, Scenario]:
        """The scenario as it stands, by the arms that may be chosen; under None when the file has no arms."""
        arms = [axis.factor.levels for axis in self.axes if axis.name == ARM]
        return self.document.resolve_all([arm.text for levels in arms for arm in levels])

    def written(self) -> list[GridPoint]:
        """The points that are the scenario as it stands, one an arm; fewer where it has values that are no level."""
        points = []
        for arm, scenario in self.scenarios().items():
            tree = scenario.model_dump(mode="json")
            indices = [_matching(axis.factor, arm, tree) for axis in self.axes]
            points.append(tuple(index for index in indices if index is not None))
        return [point for point in dict.fromkeys(points) if len(point) == len(self.axes)]

    def texts(self, point: GridPoint) -> dict[str, str]:
        """The levels of a point as written."""
        return {name: axis_level.text for name, axis_level in self.choice(point).items()}


def space_of(document: Document, texts: Sequence[str], arms: Sequence[str]) -> Space:
    """The axes of the command line, and those of the scenario that it does not name; arms are an axis.

    ScenarioError for axes that cannot be read; ParameterError where there is nothing to choose.
    """
    requested = {axis_factor.name: axis_factor for axis_factor in (axis_of_text(text) for text in texts)}
    written = {axis_factor.name: axis_factor for axis_factor in written_factors(document, "axes")}
    factors = [*(axis_factor for name, axis_factor in written.items() if name not in requested), *requested.values()]
    arm = None if any(axis_factor.name == ARM for axis_factor in factors) else arms_factor(arms, document.arms())
    if arm is not None:
        factors.insert(0, arm)
    keys_once(factors, option="--search")
    if not factors:
        raise ParameterError("--search", "no axis", "key=a,b,c, or a search section with axes in the scenario")
    return Space(document, tuple(Axis(axis_factor, is_ordered(axis_factor)) for axis_factor in factors))


def axis_of_text(text: str, option: str = "--search") -> Factor:
    """``key=a,b,c`` or ``key={from: 1, to: 9, step: 2}``."""
    axis_factor = factor(text, option)
    first = axis_factor.levels[0]
    if len(axis_factor.levels) == 1 and first.text.startswith("{"):
        from rlsim.scenario.reader import parse

        node, _ = parse(first.text, f"{option} {text}", (axis_factor.name,), numbered=False)
        if _is_range(axis_factor.name, node):
            return ranged(axis_factor.name, node)
    return axis_factor


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
    section = {key: plain(child) for key, child in node.children.items()}
    location = f"{node.place}: {name}"
    if name == SPLIT:
        return Factor(SPLIT, tuple(_split_level(text, location) for text in _splits(section, location)))
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in _steps(section, location)]
    return Factor(name, tuple(level(name, text, str(node.place)) for text in texts))


def _split_level(text: str, location: str) -> Level:
    rollout, trainer = map(int, text.split("+")) if "+" in text else (int(text), int(text))
    total = rollout + trainer if "+" in text else rollout
    split_level = level(SPLIT_KEYS, f"{rollout}:{trainer}:{total}", location)
    return Level(text, split_level.settings)


def _splits(section: Mapping[str, object], location: str) -> list[str]:
    totals: Any = section.get("gpus")
    step: Any = section.get("step", 1)
    counts = totals if isinstance(totals, list) else [totals]
    known = {"gpus", "step", "shared"}
    if set(section) - known or not all(type(count) is int and count >= 1 for count in (*counts, step)):
        raise ScenarioError([f"{location}: found {section}; allowed: gpus (a number or a list), step, shared"])
    texts = []
    for total in map(int, counts):
        texts += [f"{rollout}+{total - rollout}" for rollout in range(int(step), total, int(step))]
        texts += [f"{total}"] if section.get("shared") else []
    if not texts:
        raise ScenarioError([f"{location}: found no split; allowed: a step below the number of GPUs"])
    return texts


def _steps(section: Mapping[str, object], location: str) -> list[int | float]:
    numbers = {key: value for key, value in section.items() if isinstance(value, int | float) and value > 0}
    if set(numbers) != set(section) or set(section) not in ({"from", "to", "step"}, {"from", "to", "factor"}):
        raise ScenarioError([f"{location}: found {section}; allowed: from, to, and step or factor, numbers above 0"])
    value, last = numbers["from"], numbers["to"]
    if numbers.get("factor", 2) <= 1:
        raise ScenarioError([f"{location}: found factor {numbers['factor']}; allowed: above 1"])
    values: list[int | float] = []
    while value <= last * (1 + 1e-9) and len(values) <= MOST_LEVELS:
        values.append(value)
        value = value * numbers["factor"] if "factor" in numbers else value + numbers["step"]
    if not values or len(values) > MOST_LEVELS:
        raise ScenarioError([f"{location}: found {len(values)} values; allowed: 1 to {MOST_LEVELS}"])
    return [round(value, 12) if isinstance(value, float) else value for value in values]


def is_ordered(axis_factor: Factor) -> bool:
    """Whether the levels are in an order in which neighbours are alike: numbers that rise or fall, or splits."""
    if axis_factor.name == SPLIT:
        return True
    firsts = [axis_level.settings[0][1].value if axis_level.settings else None for axis_level in axis_factor.levels]
    values = [
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None for value in firsts
    ]
    numbers = [value for value in values if value is not None]
    return len(numbers) == len(values) and sorted(numbers) in (numbers, numbers[::-1])


def _matching(axis_factor: Factor, arm: str | None, tree: Mapping[str, Any]) -> int | None:
    """The first level that changes nothing."""
    for index, axis_level in enumerate(axis_factor.levels):
        is_arm = axis_factor.name == ARM
        if (
            axis_level.arm == arm
            if is_arm
            else all(plain(node) == _value(tree, path) for path, node in axis_level.settings)
        ):
            return index
    return None


def _value(tree: Mapping[str, Any], path: Sequence[str]) -> object:
    node: Any = tree
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node
