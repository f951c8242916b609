"""Layers for a block of clients, with hand-written backward passes."""
