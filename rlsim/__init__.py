"""rlsim: simulate reinforcement-learning post-training of language models before buying the GPUs."""

__version__ = "0.1.0"
