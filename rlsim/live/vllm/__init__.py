"""Engines that are vLLM processes: settings, scheduler subclasses, weight updates and the log of steps."""
