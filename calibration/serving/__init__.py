"""Recorded serving runs, replayed request by request."""
