"""Recorded decisions: written, read back and replayed through a fresh controller."""
