"""Prompts and progress fitted to a run's rewards."""
