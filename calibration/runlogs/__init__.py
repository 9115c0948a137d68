"""Costs and length laws from the logs of real runs: ``rlsim calibrate logs``."""
