"""Fork `fedge` processes from one that has already imported everything.

Importing torch takes seconds, and these tests start hundreds of processes. This process reads requests from its
standard input, one line of JSON each, and answers each with a line:

{"start": {"args": [...], "folder": ..., ...}}    the child's process id; see `become`
{"wait": process id}                              the child's exit code and peak memory

A child is not reaped before it is waited for, so that its process id is not reused.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from e2e.experiments import SMALL, write
from fedge.cli import app, main


def warm_up() -> None:
    """Run the command once, since many imports and set-ups are lazy."""
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        file = write(Path(folder), SMALL)
        app(["run", str(file), "--runs", f"{folder}/runs"], prog_name="fedge", standalone_mode=False)
    gc.collect()
    gc.freeze()  # so that garbage collection in children does not copy all memory


def serve() -> dict[str, Any] | None:
    """Answer requests. Returns in every child, with its request, and at the end of the input."""
    print('"ready"', flush=True)
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
    """Set up this process as requested."""
    os.chdir(wanted["folder"])
    os.environ.update(wanted["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # not the default for tests in the background
    redirect(0, Path(os.devnull), os.O_RDONLY)
    output = Path(wanted["output"])
    redirect(1, output.with_suffix(".out"), os.O_WRONLY | os.O_CREAT)
    redirect(2, output.with_suffix(".err"), os.O_WRONLY | os.O_CREAT)
    if wanted["file_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (wanted["file_bytes"], wanted["file_bytes"]))
    if wanted["powerless"] and os.geteuid() == 0:
        drop_capabilities()
    sys.argv = ["fedge", *wanted["args"]]
    for module, function, arguments in wanted["hooks"]:
        getattr(importlib.import_module(module), function)(**arguments)


def redirect(number: int, path: Path, flags: int) -> None:
    file = os.open(path, flags, 0o600)
    os.dup2(file, number)
    os.close(file)


def drop_capabilities() -> None:
    """Drop root's capabilities, so that file permissions apply."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this process
    if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset failed")


def finish() -> None:
    """Run the command and exit with its code, immediately, since tearing down unused modules is slow."""
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a thread pool would not survive a fork
    warm_up()
    assert "grpc" not in sys.modules, "grpc does not survive a fork"
    if (wanted := serve()) is not None:
        become(wanted)
        finish()
