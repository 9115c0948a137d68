"""Configuration files of RL frameworks: read as scenarios, and written for a scenario's policy."""
