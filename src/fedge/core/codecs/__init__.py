"""Compression of the vectors that travel."""
