"""Costs fitted to recorded live runs."""
