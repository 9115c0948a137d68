"""Which GPUs do what?"""
