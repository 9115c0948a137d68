"""Engines and a trainer as actors of a Ray cluster."""
