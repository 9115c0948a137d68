"""Results as text tables for a terminal."""
