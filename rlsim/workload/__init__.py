"""What is asked of the cluster: prompts, groups, lengths, turns and tools."""
