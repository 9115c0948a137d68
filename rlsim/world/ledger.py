"""What became of every sample by the end of a run, and what a cut call had made."""

from __future__ import annotations

from collections.abc import Container

from rlsim.controller import Controller
from rlsim.core.engine import Request
from rlsim.core.events import Cut
from rlsim.core.log import FinalRow


def final_rows(controller: Controller, made: dict[int, int], begun: Container[int]) -> list[FinalRow]:
    """What became of every sample; ``made`` are tokens of calls still under way, by sample.

    Calls asked for by the very last decision were never begun: samples that had no call before, which are not in
    ``begun``, are left out, resumed ones still wait.
    """
    rows = [FinalRow(sample, fate, tokens) for sample, (fate, tokens) in controller.fates.items()]
    for sample in controller.samples.values():
        under_way = sample.sample in made or sample.state in ("tool", "scoring", "waiting")
        if under_way or sample.sample in begun or sample.state != "running":
            fate = "in_flight" if under_way else "buffered"
            rows.append(FinalRow(sample.sample, fate, sample.response_tokens + made.get(sample.sample, 0)))
    return sorted(rows)


def cut_of(request: Request, replica: int) -> Cut:
    """What an aborted call had made."""
    made = request.tokens - request.context_tokens
    return Cut(request.sample, replica, made, tuple(request.segments), request.first_token)
