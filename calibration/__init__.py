"""Profiles, fits and readers that turn real runs and measured tables into cost models."""
