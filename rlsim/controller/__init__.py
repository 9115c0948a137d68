"""The sans-IO state machine that the parts of a policy make together: ``handle(now, event) -> commands``.

The same object runs in simulation and live: it sees events and its own ledger, never a clock or a length still to come.
``rollouts`` has the samples, ``controller`` the trainer.
"""

from __future__ import annotations

from rlsim.controller.controller import Controller
from rlsim.controller.rollouts import Outcome

__all__ = ["Controller", "Outcome"]
