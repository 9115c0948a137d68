"""Tasks with verifiable rewards that need no download: prompts, answers and a vocabulary made on the spot."""
