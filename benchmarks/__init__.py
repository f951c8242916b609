"""Benchmarks of speed and memory: `make bench`."""
