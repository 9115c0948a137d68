"""The frameworks whose files are understood, by name."""

from __future__ import annotations

from rlsim.core.errors import unknown
from rlsim.frameworks.areal import AREAL
from rlsim.frameworks.mapping import Framework
from rlsim.frameworks.miles import MILES
from rlsim.frameworks.nemo_rl import NEMO_RL
from rlsim.frameworks.open_instruct import OPEN_INSTRUCT
from rlsim.frameworks.openrlhf import OPENRLHF
from rlsim.frameworks.prime_rl import PRIME_RL
from rlsim.frameworks.roll import ROLL
from rlsim.frameworks.skyrl import SKYRL
from rlsim.frameworks.slime import SLIME
from rlsim.frameworks.trl import TRL
from rlsim.frameworks.verl import VERL

FRAMEWORKS = {
    one.name: one for one in (VERL, AREAL, SLIME, MILES, NEMO_RL, PRIME_RL, SKYRL, OPENRLHF, OPEN_INSTRUCT, TRL, ROLL)
}


def framework(name: str, path: str) -> Framework:
    """The framework of that name; an unknown one is refused at ``path`` with the nearest spelling."""
    if name not in FRAMEWORKS:
        raise unknown(path, name, FRAMEWORKS)
    return FRAMEWORKS[name]
