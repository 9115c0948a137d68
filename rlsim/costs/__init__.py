"""Costs: step time, memory, training, weight sync, switching and price, from facts with a source."""
