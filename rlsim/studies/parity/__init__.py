"""Live runs held against their prediction, and the error taken apart; method and definitions in docs/parity.md."""
