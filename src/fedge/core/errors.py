"""The exceptions that a user can act on, with their exit codes.

    FedgeError                 1  any other error
    ├── ConfigError            2  the command line or the configuration is wrong
    ├── DataError              3  a data file is missing or corrupt, or data cannot be partitioned
    ├── ModelError             4  the model cannot be built, or does not fit the data or the algorithm
    ├── TrainingError          5  training diverged: a loss or an update is not finite
    │   └── VoidError          5  no client answered in several rounds in a row
    ├── RunError               6  the run directory is missing, not a run, of a newer format, or in use
    ├── StorageError           7  the disk is full, read-only, or access was denied
    ├── StreamError            8  encoded bytes are malformed
    └── NetworkError           9  the network: server not found, bad certificate, or client refused

The number is the exit code of the `fedge` command. 0 means success, 130 an interruption by Ctrl-C,
143 that a server, a client or the results page shut down cleanly on SIGTERM.
Messages state what was expected, what was found and what to do.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class FedgeError(Exception):
    exit_code = 1


class ConfigError(FedgeError, ValueError):
    """One or several problems in a configuration, each with its path: `algorithm.learning_rate: ...`."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems: Sequence[str] = problems
        super().__init__("\n".join(problems))


class DataError(FedgeError):
    exit_code = 3


class ModelError(FedgeError):
    exit_code = 4


class TrainingError(FedgeError):
    exit_code = 5


class VoidError(TrainingError):
    pass


class RunError(FedgeError):
    exit_code = 6


class StorageError(FedgeError):
    exit_code = 7


class StreamError(FedgeError):
    exit_code = 8


class NetworkError(FedgeError):
    exit_code = 9


def nearest(word: str, words: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the most similar known word; empty if none is similar."""
    by_small = {known.lower(): known for known in words}
    close = [by_small[found] for found in get_close_matches(word.lower(), by_small, n=1, cutoff=0.5)]
    return f", did you mean {close[0]!r}?" if close else ""
