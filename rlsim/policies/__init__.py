"""Policies are compositions of small decisions; one folder a choice."""
