"""Time is never what a test judges: a slow machine fails nothing."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
