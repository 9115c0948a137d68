"""Profiles: written, printed, drawn and judged."""
