"""Candidates of the speed benchmarks: Fedge, and other frameworks, each in an environment of its own."""
