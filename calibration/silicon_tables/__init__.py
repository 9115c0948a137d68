"""Profiles from tables of measured silicon."""
