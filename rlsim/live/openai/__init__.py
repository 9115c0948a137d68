"""OpenAI-compatible servers as replicas: where they are, what they offer, what is refused, how one talks to them."""
