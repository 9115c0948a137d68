"""Sweeps: variants of a scenario, their runs on shared luck, and a store that survives an interrupted command."""
