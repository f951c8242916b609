"""Randomness as a function of what it is for.

A draw depends on (seed, purpose, client, round, step) and on nothing else: not on the order in which clients run,
not on which engine runs them, not on what was drawn before. That lets engines agree and runs resume exactly.
"""

from hashlib import blake2b

import numpy as np


def key(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> int:
    """128 bits that name one draw."""
    name = f"{seed}/{purpose}/{client}/{round}/{step}".encode()
    return int.from_bytes(blake2b(name, digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """A fresh generator for one draw."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, client, round, step)))


def torch_seed(seed: int, purpose: str, client: int = 0, round: int = 0) -> int:
    """A seed for code that only knows torch's own generator, such as a module's initialisation."""
    return key(seed, purpose, client, round) & 0x7FFF_FFFF_FFFF_FFFF
