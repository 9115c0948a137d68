"""What a batch is worth: a small statistical model of prompts, rewards and progress, hidden from every policy."""
