"""Where a cost came from, so that every prediction can say how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rlsim.core.errors import unknown

Kind = Literal["measured", "silicon-table", "fitted", "given", "estimate"]
"""``measured`` on the hardware at hand, ``silicon-table`` composed from measured kernels, ``fitted`` to the
logs of a run, ``given`` by the user, ``estimate`` from data-sheet facts."""

KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The source of a set of coefficients."""

    kind: Kind
    source: str
    date: str = ""
    """ISO date of the measurement or fit; empty when it does not apply."""
    licence: str = ""
    """Licence and attribution of the underlying data; empty when it is the user's own."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("provenance.kind", self.kind, KINDS)

    @property
    def is_estimate(self) -> bool:
        """True when no measurement stands behind the numbers: output must say so."""
        return self.kind == "estimate"

    def __str__(self) -> str:
        return ", ".join(part for part in (f"{self.kind}: {self.source}", self.date) if part)
