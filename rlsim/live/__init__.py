"""Live execution: the same commands, carried out by real engines and a real trainer in real time."""
