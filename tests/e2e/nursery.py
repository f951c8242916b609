"""Forks processes that are the `fedge` command, from one that has imported everything.

Importing torch takes seconds, and these tests start hundreds of processes. This one reads requests from its standard
input, a line of JSON each, and answers each with a line:

{"start": {"args", "folder", "environment", "output", "file_bytes", "powerless"}}    its process id
{"wait": its process id}                                                         its exit code and peak memory

A child goes on as if it had been started by a shell, until Python's own end. It is not reaped before it is waited for,
so that its id stays its own.
"""

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from fedge import experiment  # noqa: F401 - what takes long to import
from fedge.cli import comparison, display, main  # noqa: F401


def serve() -> dict[str, Any] | None:
    """Answer requests. Returns in every child, with what it was asked to be, and at the end of the input."""
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer: Any = os.fork()
            if answer == 0:
                return request["start"]
        else:
            _, status, usage = os.wait4(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status), usage.ru_maxrss
        print(json.dumps(answer), flush=True)
    return None


def become(wanted: dict[str, Any]) -> None:
    """Make this process the one that was asked for."""
    os.chdir(wanted["folder"])
    os.environ.update(wanted["environment"])
    redirect(0, Path(os.devnull), os.O_RDONLY)
    output = Path(wanted["output"])
    redirect(1, output.with_suffix(".out"), os.O_WRONLY | os.O_CREAT)
    redirect(2, output.with_suffix(".err"), os.O_WRONLY | os.O_CREAT)
    if wanted["file_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (wanted["file_bytes"], wanted["file_bytes"]))
    if wanted["powerless"] and os.geteuid() == 0:
        drop_capabilities()
    sys.argv = ["fedge", *wanted["args"]]


def redirect(number: int, path: Path, flags: int) -> None:
    file = os.open(path, flags, 0o600)
    os.dup2(file, number)
    os.close(file)


def drop_capabilities() -> None:
    """Make root a person like any other, who may not write where the permissions say so."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the call, this process
    if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset failed")


if __name__ == "__main__":
    torch.set_num_threads(1)  # a pool of threads would not be there after a fork
    wanted = serve()
    if wanted is not None:
        become(wanted)
        main()
