"""A run that is advanced round by round, and the callbacks that receive each round's record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from fedge.api.run import Run
from fedge.core.errors import ConfigError
from fedge.core.lent import lending
from fedge.core.progress import Progress, Silent
from fedge.experiment.rounds import Record
from fedge.experiment.start import Steps, training
from fedge.report.run_display import Watch, choose_screen


class Stop(Exception):  # noqa: N818 - not an error
    """Raise in a callback to end the run after this round; the run is then complete."""


class Callback:
    """Called between rounds. Override what you need, or use any object that has one of the methods.

    A method that returns True, or raises `fedge.Stop`, ends the run after this round.
    """

    def on_round(self, record: Record) -> bool | None:
        """Called after every round with its record."""

    def on_evaluate(self, record: Record) -> bool | None:
        """Called after every round in which the model was evaluated, with its record."""


CallbackLike = Callback | Callable[[Record], bool | None]
"""A callback, or a function that is called with each round's record."""


class Rounds(Iterator[Record]):
    """An iterator over the rounds of a run: `next` trains a round and returns its record.

    If a loop is left early, closing or deleting the iterator saves a checkpoint from which the run can be resumed; a
    `with` statement makes sure of this. Between rounds, torch's number of threads is restored.
    """

    def __init__(
        self,
        path: Path,
        steps: Callable[[Progress], Steps],
        *,
        precision: str,
        lent: Mapping[str, Any],
        progress: bool | Progress,
        callbacks: Sequence[CallbackLike],
    ) -> None:
        _check(callbacks)
        self.path = path
        self._precision, self._lent, self._callbacks = precision, lent, callbacks
        self._stack = ExitStack()
        self._stopping: bool | None = None
        self._closed = False
        self._steps = steps(self._stack.enter_context(watched(progress)))

    def __next__(self) -> Record:
        try:
            with training(self._precision), lending(self._lent):
                record = self._steps.send(self._stopping)
            wishes = [_tell(callback, record) for callback in self._callbacks]
            self._stopping = any(wishes)
        except BaseException:
            self.close()
            raise
        return record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_steps"):
            self.close()

    @property
    def run(self) -> Run:
        """The run as it is on disk now. Raises a RunError before the first round."""
        return Run(self.path, self._lent)

    def stop(self) -> None:
        """End the run after the round that was returned last; the run is then complete."""
        if self._stopping is not None:  # a round was trained
            self._stopping = True
            next(self, None)

    def close(self) -> None:
        """Save a checkpoint and release the run, if it has not ended. Further calls do nothing."""
        if self._closed:  # also when Python exits, where modules may be gone
            return
        self._closed = True
        with training(self._precision), lending(self._lent), self._stack:
            self._steps.close()


@contextmanager
def watched(progress: bool | Progress | None) -> Iterator[Progress]:
    """Yield a progress listener: the given one, a display if True, else a silent one."""
    if progress is not None and not isinstance(progress, bool):
        yield progress
        return
    screen = choose_screen(quiet=not progress)
    try:
        yield Watch(screen) if progress else Silent()
    finally:
        screen.close()


def _check(callbacks: object) -> None:
    """Raise a ConfigError unless all of them are valid callbacks."""
    if not isinstance(callbacks, Sequence):
        raise ConfigError(f"callbacks: expected a list, got {type(callbacks).__name__}; write callbacks=[...]")
    for callback in callbacks:
        if isinstance(callback, type):
            name = callback.__name__
            raise ConfigError(f"callbacks: expected an object or a function, got the class {name}; write {name}(...)")
        if not (_has_methods(callback) or callable(callback)):
            kind = type(callback).__name__
            raise ConfigError(f"callbacks: expected an object with on_round or on_evaluate, or a function, got {kind}")


def _has_methods(callback: object) -> bool:
    return hasattr(callback, "on_round") or hasattr(callback, "on_evaluate")


def _tell(callback: Any, record: Record) -> bool:
    """Call a callback and return whether it wants the run to end."""
    names = ["on_round", "on_evaluate"] if "evaluated_at" in record else ["on_round"]
    methods = [getattr(callback, name) for name in names if hasattr(callback, name)]
    try:
        wishes = [bool(method(record)) for method in (methods if _has_methods(callback) else [callback])]
    except Stop:
        return True
    return any(wishes)
