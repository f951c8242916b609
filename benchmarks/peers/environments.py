"""Virtual environments of the peers: their requirements exclude each other, and Fedge's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.candidate import UnavailableError

CACHE = Path.home() / ".cache" / "fedge-bench"
_TORCH = "torch==2.13.0"  # Fedge's own; a range would fetch a newer one, of gigabytes
_TORCHVISION = "torchvision==0.28.0"  # the one for this torch
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "flower": ("flwr[simulation]==1.41.0", _TORCH),
    "pfl": ("pfl==0.6.0", _TORCH),
    # Its last release calls jax.tree_map and jax.device_put_sharded, which newer versions of JAX lack.
    "fedjax": (
        *("fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12"),
        *("optax==0.2.2", "chex==0.1.86", "numpy==1.26.4", "scipy==1.12.0"),
    ),
    "fluke": ("fluke-fl==0.8.1", _TORCH, _TORCHVISION),
    "fedlab": ("fedlab==1.3.0", _TORCH, _TORCHVISION),
}
PAGES: dict[str, tuple[str, ...]] = {"mlflow": ("mlflow==3.17.2",), "trackio": ("trackio==0.43.0", "numpy==2.4.6")}
"""Peers of the results page."""


def interpreter(peer: str, cache: Path = CACHE) -> Path:
    """Python of the peer's environment, which is made if it is missing or out of date."""
    folder, wanted = cache / peer, "\n".join((REQUIREMENTS | PAGES)[peer])
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", *(REQUIREMENTS | PAGES)[peer]])
        installed.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
        raise UnavailableError(f"cannot be installed: {errors[-1]}")
