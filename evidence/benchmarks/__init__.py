"""Benchmarks, alone and beside other simulators."""
