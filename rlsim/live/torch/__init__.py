"""A trainer in torch: a small Llama, its ranks, its losses and its checkpoints."""
