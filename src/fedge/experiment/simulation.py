"""A simulated run: server and clients in one process, with a simulated world and the chosen engine."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import numpy as np

from fedge.core.errors import DataError
from fedge.core.progress import Progress
from fedge.data.scale_hint import scale_hint
from fedge.engines.both_sides import BothSides
from fedge.experiment.engine_choice import choose
from fedge.experiment.rounds import Record, Surroundings, TrainingRun
from fedge.experiment.setup import Setup
from fedge.experiment.trace import Tracer
from fedge.runs.directory import RunDirectory
from fedge.runs.pace import Pace


class Simulation:
    """A run that is set up and restored, ready to train."""

    def __init__(self, setup: Setup, directory: RunDirectory, progress: Progress) -> None:
        config, world = setup.config, setup.world()
        kept = directory.kept_store(setup.algorithm.keep(setup.network.variables))
        test = None if config.evaluate.at == "clients" else setup.test
        if test is None and config.evaluate.at is None and not setup.clients_test:
            raise DataError(
                "data: there are no test samples, so nothing can be measured; add a test set, or hold out a larger "
                "share of the samples (data.test_file or data.test_fraction of a table)"
            )
        sides = BothSides(setup.server_side(), setup.client_side(kept), test)
        num_selected = sum(len(cohort.asked) for cohort in world.gather(1)) or 1
        self._chosen = choose(
            config.engine,
            sides,
            num_selected,
            directory.facts.get("rows"),
            progress.notice,
            lambda: setup.rebuilt().client_side(kept),
        )
        given = Surroundings(
            sides.server,
            self._chosen.engine,
            world,
            setup.hierarchy(),
            lambda last: Pace(config.checkpoint.every, last=last),
            test is not None,
            Tracer(config.trace, sides.clients) if config.trace else None,
            (lambda: setup.class_counts) if setup.registered.task == "classes" else None,
        )
        self._setup, self._directory, self._progress = setup, directory, progress
        self._training = TrainingRun(config, setup.seed, given, directory, progress)

    def steps(self) -> Generator[Record, bool | None, None]:
        """Train to the end, round by round, like `TrainingRun.steps`."""
        self._directory.note(self._chosen.facts)
        with closing(self._chosen):
            self._give_notice()
            yield from self._training.steps()

    def _give_notice(self) -> None:
        config, size = self._setup.config, self._setup.config.algorithm.batch_size
        if self._setup.network.has_norm and config.personal is None:
            self._progress.notice(
                "model: its BatchNorm parameters and statistics are averaged like all others; "
                'to keep them private set personal.private = "bn", or "none" to silence this notice'
            )
        data = self._setup.clients
        hint = scale_hint(data.train(int(np.argmax(data.sizes)), 1).x, getattr(data, "features", ()))
        if hint:
            self._progress.notice(hint)
        small = int(np.count_nonzero(self._setup.registered.sizes < size))
        if small:
            self._progress.notice(
                f"data: {small} clients have fewer samples than a batch of {size}; their batches are all their samples"
            )
