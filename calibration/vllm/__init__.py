"""vLLM measured: its step times, and its scheduler beside the simulated one."""
