"""Ways of calls to their engines, as a simulation with recorded durations takes them."""

from __future__ import annotations

from rlsim.core.commands import Submit
from rlsim.results.replay.dispatch_delay import in_order
from rlsim.sim.recorded import CallKeys


def test_no_call_overtakes_one_that_was_submitted_before_it() -> None:
    """The second is known to have been late; of the third nothing is known but that it came after."""
    keys = [((0, 0, member), 0, 0) for member in range(4)]
    asked = [(keys[0], 100), (keys[1], 100), (keys[2], 105), (keys[3], 200)]
    assert dict(in_order(asked, {keys[1]: 30})) == {keys[0]: 0, keys[1]: 30, keys[2]: 25, keys[3]: 0}


def test_a_call_is_known_by_its_number_however_much_earlier_ones_made() -> None:
    def names(made_tokens: int) -> list[object]:
        keys = CallKeys()
        calls = [Submit(5, 0, 2, 0, 1, turn=0, made_tokens=0, context_tokens=96)]
        calls.append(calls[0]._replace(made_tokens=made_tokens, context_tokens=96 + made_tokens))
        calls.append(calls[0]._replace(turn=1, context_tokens=300))
        return [keys.next(call) for call in calls]

    assert names(40) == names(41) == [((2, 0, 1), 0, 0), ((2, 0, 1), 0, 1), ((2, 0, 1), 1, 0)]
