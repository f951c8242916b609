"""Candidates of the speed benchmarks: Fedge and other frameworks, each in its own environment."""
