"""Layers for a block of clients at once, with their backward passes written by hand."""
