"""What simulated and live execution share: trajectories, the system that a run describes, timers and termination."""
