"""Live runs compared with their prediction, and the parts of the error; definitions in docs/concepts/parity.md."""
