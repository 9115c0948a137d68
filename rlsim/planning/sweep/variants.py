"""Variants of a scenario: each checked as a scenario of its own before any of them runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlsim.build import Plan, PlanError, plan
from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.planning.sweep.identity import code_version, identity
from rlsim.planning.sweep.orders import Order
from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import Document
from rlsim.scenario.variation import Choice, arm_of, parted, settings_of

MOST_FAULTS = 20
"""Faults that a refusal lists; a wrong value can be in hundreds of variants."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One choice of levels, resolved."""

    levels: dict[str, str]
    """As written, by factor."""
    scenario: Scenario
    run: str
    """Hash of what its runs are made from."""
    plan: Plan

    @property
    def label(self) -> str:
        """Its levels in one line."""
        return ", ".join(f"{name}={text}" for name, text in self.levels.items()) or self.scenario.name

    def orders(self, replications: int) -> list[Order]:
        """Its runs."""
        return [
            Order(self.run, replication, self.label, self.scenario, code_version())
            for replication in range(replications)
        ]


def variants(document: Document, choices: Iterable[Choice]) -> list[Variant]:
    """All of them; ScenarioError with the faults of every one that is refused, before anything runs."""
    document.resolve_all()
    made: list[Variant] = []
    faults: dict[str, None] = {}
    for choice in choices:
        try:
            made.append(variant(document, choice))
        except ScenarioError as error:
            faults |= dict.fromkeys(error.faults)
    if faults:
        raise ScenarioError(_most(list(faults)))
    if not made:
        raise ParameterError("--set", "no variant", "at least one")
    return made


def variant(document: Document, choice: Choice) -> Variant:
    """One of them; ScenarioError, with file, line and key, when it is refused."""
    laid, arm = document.with_settings(settings_of(choice)), arm_of(choice)
    scenario = laid.resolve_only(arm)
    try:
        made = plan(scenario)
    except PlanError as error:
        raise laid.scenario_error(error.errors, arm) from None
    return Variant({name: one.text for name, one in choice.items()}, scenario, identity(scenario), made)


def baseline_of(made: Sequence[Variant], texts: Sequence[str]) -> Variant:
    """The one variant that has all ``factor=level`` of the texts; the first where there is no text."""
    if not texts:
        return made[0]
    wanted = dict(_pair(piece) for text in texts for piece in _pieces(text, made[0].levels))
    for name, text in wanted.items():
        known = list(dict.fromkeys(one.levels.get(name, "") for one in made))
        if text not in known:
            found = f"{name}={text}"
            allowed = f"one of {', '.join(known)}" if name in made[0].levels else f"one of {', '.join(made[0].levels)}"
            raise ParameterError("--baseline", found, allowed)
    matches = [one for one in made if wanted.items() <= one.levels.items()]
    if len(matches) != 1:
        raise ParameterError("--baseline", ",".join(texts), f"levels that one variant has; {len(matches)} have these")
    return matches[0]


def _pieces(text: str, factors: Mapping[str, str]) -> Iterator[str]:
    """Several pairs in one text, or one whose value has commas."""
    pieces = parted(text, ",")
    is_list = all(piece.partition("=")[0].strip() in factors for piece in pieces)
    yield from pieces if is_list else [text]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ParameterError("--baseline", text, "factor=level, the levels of one variant")
    return name.strip(), value.strip()


def _most(faults: list[str]) -> list[str]:
    more = len(faults) - MOST_FAULTS
    return faults if more <= 0 else [*faults[:MOST_FAULTS], f"... and {more} more faults like these"]
