"""Studies over many runs: comparisons, sweeps, searches, explanations, validation and their reports."""
