"""Shared by simulation and live: time, randomness, events, commands, views and the replica itself."""
