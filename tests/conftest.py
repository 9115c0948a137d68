"""Time is never what a test judges: a slow machine fails nothing."""

import sys
from pathlib import Path

from hypothesis import settings

# ``evidence`` is in the checkout alone. At the end: an installed rlsim, such as the compiled one, goes first.
sys.path.append(str(Path(__file__).parents[1]))

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
