"""Randomness as a function of its purpose.

A draw depends only on (seed, purpose, client, round, step): not on the order in which clients run, the engine that
runs them, or earlier draws. This lets engines agree and runs resume exactly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from threading import local

import numpy as np
import torch


def key(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> int:
    """Return the 128-bit key that identifies one draw."""
    name = f"{seed}/{purpose}/{client}/{round}/{step}".encode()
    return int.from_bytes(blake2b(name, digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """Return a new generator for one draw."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, client, round, step)))


class _Shared(local):
    """One generator per thread, created once: setting its state is far faster than creating a new one."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.Philox(key=0))


_SHARED = _Shared()
_START = np.zeros(4, np.uint64)


def shared_generator(seed: int, purpose: str, client: int = 0, round: int = 0, step: int = 0) -> np.random.Generator:
    """Return the thread's shared generator, set to draw what a new one would.

    It is valid until the next call in this thread: draw everything before calling other code.
    """
    named = np.array(divmod(key(seed, purpose, client, round, step), 1 << 64)[::-1], np.uint64)
    _SHARED.generator.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": _START, "key": named},
        "buffer": _START,
        "buffer_pos": len(_START),  # exhausted
        "has_uint32": 0,
        "uinteger": 0,
    }
    return _SHARED.generator


def torch_seed(seed: int, purpose: str, client: int = 0, round: int = 0) -> int:
    """Return a seed for code that uses torch's global generator, such as the initialisation of a module."""
    return key(seed, purpose, client, round) & 0x7FFF_FFFF_FFFF_FFFF


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Seed torch's global generator, from which modules and dropout draw, and restore it afterwards."""
    with torch.random.fork_rng(devices=[]):
        if device == "cpu":
            # `torch.manual_seed` also seeds accelerators, and formats the call stack for each one that is not in use.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield
