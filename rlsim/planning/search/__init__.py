"""Plans: which choice of GPUs, split and policy is best, by how much, and what would change that."""
