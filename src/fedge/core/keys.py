"""Randomness as a function of what it is for.

A draw depends on (seed, purpose, client, round, step) and on nothing else: not on the order in which clients run,
not on which engine runs them, not on what was drawn before. That lets engines agree and runs resume exactly.
"""

from hashlib import blake2b
from threading import local

import numpy as np


def key(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> int:
    """128 bits that name one draw."""
    name = f"{seed}/{purpose}/{client}/{round}/{step}".encode()
    return int.from_bytes(blake2b(name, digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """A fresh generator for one draw."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, client, round, step)))


class _Shared(local):
    """The generator of each thread, made once: setting its state is far faster than making one."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.Philox(key=0))


_SHARED = _Shared()
_START = np.zeros(4, np.uint64)


def shared_generator(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """The thread's one generator, set to draw what a fresh one would.

    It is valid until the next call: draw everything before anything else that may call this.
    """
    named = np.array(divmod(key(seed, purpose, client, round, step), 1 << 64)[::-1], np.uint64)
    _SHARED.generator.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": _START, "key": named},
        "buffer": _START,
        "buffer_pos": len(_START),  # used up
        "has_uint32": 0,
        "uinteger": 0,
    }
    return _SHARED.generator


def torch_seed(seed: int, purpose: str, client: int = 0, round: int = 0) -> int:
    """A seed for code that only knows torch's own generator, such as a module's initialisation."""
    return key(seed, purpose, client, round) & 0x7FFF_FFFF_FFFF_FFFF
