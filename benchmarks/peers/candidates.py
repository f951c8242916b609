"""Common code of the peers that run on torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.candidate import Rounds, serve
from benchmarks.workloads import WORKLOADS, Workload


def run(prepare: Callable[[Workload], Rounds], packages: Sequence[str]) -> None:
    """Run a peer's program: `python -m benchmarks.peers.NAME WORKLOAD [--threads N]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    serve(lambda: prepare(WORKLOADS[options.workload]), packages)


def allow_torchvision() -> None:
    """Make torchvision importable although its operators cannot be loaded.

    PyPI's torchvision is built for CUDA, whose libraries a CPU build of torch lacks. Peers import it for its data sets,
    which are not used here; its import only requires that two operators are defined.
    """
    (folder,) = find_spec("torchvision").submodule_search_locations
    try:
        torch.ops.load_library(Path(folder) / "_C.so")
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
