"""The model of an inference engine: vLLM's scheduler, its KV cache, queues and step times, without SimPy or a clock."""
