"""Figures: functions that take tables and return a matplotlib Figure."""
