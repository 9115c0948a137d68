"""Logs of training runs: read, and fitted to a scenario."""
