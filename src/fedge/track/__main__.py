"""`python -m fedge.track JOB`: the tracker process of one run, started by the run. Standard input is the pipe."""

import os
import signal
import sys

import msgspec

from fedge.core.printable import printable
from fedge.track.following import Job, follow_run
from fedge.track.sinks import quiet_tools


def main() -> int:
    """Track until the run ends. On failure, print the reason in one line and return 1."""
    reports = os.dup(1)
    os.dup2(2, 1)  # tools may print anything
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # the run has priority
    try:
        with quiet_tools():
            follow_run(msgspec.json.decode(sys.argv[1], type=Job), 0)
    except BaseException as error:
        reason = printable(f"{error}".strip().partition("\n")[0])
        kind = "" if type(error).__module__.startswith("fedge.") else f"{type(error).__name__}: "
        os.write(reports, f"{kind}{reason}\n".encode(errors="replace")[:1000])
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main())  # threads of a tool must not keep it alive
