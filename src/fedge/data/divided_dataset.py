"""A data set that exists as a whole and is divided over clients."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.core.parts import Part
from fedge.core.registered import Task
from fedge.core.schema import Options
from fedge.data.apportionment import choose_clients, nearest_whole
from fedge.data.augment import Augment, draw_augmentation
from fedge.data.clients import Samples, ServerPart
from fedge.data.data_plan import DataPlan, Share, travelling_settings
from fedge.data.drift import DriftOptions, Hands, Steady
from fedge.data.normalise import Normalise
from fedge.data.partition import Iid, Labels, Natural, Partition, Split
from fedge.data.preparation import Preparation
from fedge.data.validation import ValidationShare, check_held_out, choose_held_out
from fedge.data.whole import Whole

NUM_CLIENTS = 100
Count = Annotated[int, Meta(ge=1)]


class Noise(Options, tag=False, kw_only=True):
    """Gaussian noise on the training inputs of some clients, clipped to the range of the training data."""

    fraction: Annotated[float, Meta(ge=0, le=1, description="Share of clients that are noisy.")]
    std: Annotated[
        float, Meta(ge=0, le=1e6, description="Standard deviation, in units of the inputs before normalisation.")
    ]


class DividedClients:
    """Clients whose samples are selected from a whole data set.

    `held_out` has each client's rows of the training set for validation.
    """

    def __init__(self, whole: Whole, split: Split, held_out: Hands, options: Divided, seed: int) -> None:
        self._whole, self._split, self._options, self._seed = whole, split, options, seed
        self._held_out = held_out
        self._preparation = options.prepare(whole)
        self.shape = self._preparation.shape
        self.num_outputs = whole.num_outputs
        self.task: Task = whole.task
        self.classes, self.features, self.names = whole.classes, whole.features, split.names
        self.shown_classes = whole.classes or whole.described
        self.sizes = np.array([len(indices) for indices in split.train])
        self.noisy = choose_clients(
            len(self.sizes), options.noise.fraction if options.noise else 0.0, generator(seed, "noisy clients")
        )
        self._drift: Steady = options.drift or Steady()
        self._drift.check(self.task, tuple(whole.train.x.shape[1:]), whole.words, len(self.sizes))
        self._drawn = self._drift.draw(len(self.sizes), seed)
        self._draws: tuple[int, np.ndarray] | None = None  # of the last round requested: the draws of its augmentation
        self._low, self._high = self._preparation.extremes() if options.noise else (0.0, 0.0)

    def num_samples(self, client: int, round: int) -> int:
        return self._drift.num_samples(int(self.sizes[client]), round)

    def train(self, client: int, round: int) -> Samples:
        rows, options = self._train_rows(client, round), self._options
        x, y = self._preparation.cut(self._whole.train, rows)
        if options.augment:
            x = options.augment.train(x, self._augmentation(round)[rows])
        x = self._noised(x, client, "noise")
        return Samples(self._preparation.normalised(self._drifted(x, client, round)), y)

    def validation(self, client: int, round: int) -> Samples:
        """Return held-out samples: noisy like the training data, otherwise treated like test data (no augmentation)."""
        rows = self._drift.test(self._held_out, client, round, self._seed, self._drawn)
        x, y = self._preparation.cut_unaugmented(self._whole.train, rows)
        x = self._noised(x, client, "validation noise")
        return Samples(self._preparation.normalised(self._drifted(x, client, round)), y)

    def test(self, client: int, round: int) -> Samples:
        x, y = self._preparation.cut_unaugmented(
            self._whole.test, self._drift.test(self._split.test, client, round, self._seed, self._drawn)
        )
        return Samples(self._preparation.normalised(self._drifted(x, client, round)), y)

    def pooled_test(self) -> Samples:
        """Return the whole test set, which drift does not change."""
        return self._preparation.pooled_test()

    def num_test(self, client: int) -> int:
        """Return the size of the client's test set."""
        return len(self._split.test[client])

    def labels(self, client: int, round: int) -> Tensor:
        """Return the targets of the client's training set."""
        return self._whole.train.y[torch.from_numpy(self._train_rows(client, round))]

    def _train_rows(self, client: int, round: int) -> np.ndarray:
        return self._drift.train(self._split.train, client, round, self._seed, self._drawn)

    def _drifted(self, x: Tensor, client: int, round: int) -> Tensor:
        return self._drift.inputs(x, client, round, self._seed, self._drawn)

    def _augmentation(self, round: int) -> np.ndarray:
        """Return the draws of a round for all samples; cached for one round, because its clients share them."""
        if self._draws is None or self._draws[0] != round:
            self._draws = round, draw_augmentation(len(self._whole.train.y), self._seed, round)
        return self._draws[1]

    def _noised(self, x: Tensor, client: int, purpose: str) -> Tensor:
        """Return the inputs, with noise if the client is noisy."""
        if not (self._options.noise and client in self.noisy):
            return x
        noise = generator(self._seed, purpose, client).standard_normal(x.shape, dtype=np.float32)
        return x.add(torch.from_numpy(noise), alpha=self._options.noise.std).clamp_(self._low, self._high)


class Divided(Options):
    """Common options of data sets that are divided over clients."""

    part = Part("data set", "fedge.datasets")
    clients: Annotated[
        Count | None, Meta(description=f"Number of clients (default: {NUM_CLIENTS}; with partition natural, all).")
    ] = None
    partition: Annotated[Partition, Meta(description="How samples are assigned to clients.")] = Iid()
    noise: Annotated[Noise | None, Meta(description="Noise on the training inputs of some clients.")] = None
    augment: Annotated[Augment | None, Meta(description="Random changes of the training images.")] = None
    normalise: Normalise = False
    shared_fraction: Annotated[Share, Meta(description="Share of the training set that all clients have.")] = 0.0
    oversample: Annotated[
        bool, Meta(description="Repeat samples of a client's rarer classes until its classes are equally frequent.")
    ] = False
    drift: Annotated[DriftOptions | None, Meta(description="How the data changes from round to round.")] = None
    validation: ValidationShare = None

    def whole(self, train: bool = True) -> Whole:
        """Return the data set; without `train`, training samples may be omitted where nothing depends on them."""
        raise NotImplementedError

    def build(self, seed: int) -> DividedClients:
        """Return the clients with their samples."""
        return self.divide(self.whole(), seed)

    def server_part(self, seed: int) -> ServerPart:
        """Return the server's part; reads training samples only if the test set or the number of clients needs them."""
        counts_keys = isinstance(self.partition, Natural) and self.clients is None
        whole = self.whole(train=self.normalise is True or counts_keys)
        prepared = self.prepare(whole)
        num_clients = self.clients or NUM_CLIENTS
        if counts_keys:
            num_clients = len(self._split(*whole.labels(), generator(seed, "partition"), seed)[0].train)
        plan = DataPlan(
            shape=prepared.shape,
            num_outputs=whole.num_outputs,
            task=whole.task,
            seed=seed,
            settings=travelling_settings(self),
            words=whole.words,
            classes=whole.classes,
            columns=whole.features,
            validation=self.validation,
            scaling=prepared.normaliser.scaling() if prepared.normaliser else None,
        )
        test = prepared.pooled_test()
        return ServerPart(plan, test if len(test) else None, num_clients)

    def prepare(self, whole: Whole) -> Preparation:
        """Return the preparation of samples; a DataError if the options do not fit the data."""
        if whole.words and (self.noise or self.augment or self.normalise):
            raise DataError(
                "data.noise, data.augment and data.normalise apply to numbers, but the inputs of this data set are "
                "words or characters; remove these settings"
            )
        return Preparation(whole, self.augment, self.normalise)

    def divide(self, whole: Whole, seed: int) -> DividedClients:
        split, held_out = self._split(*whole.labels(), generator(seed, "partition"), seed)
        if self.oversample:
            if whole.task != "classes":
                raise DataError(f"data.oversample: expected classes, of which rare ones are repeated, got {whole.task}")
            labels = whole.train.y.numpy()
            split = split._replace(train=[_balanced(rows, labels[rows]) for rows in split.train])
        return DividedClients(whole, split, held_out, self, seed)

    def _split(self, train: Labels, test: Labels, rng: np.random.Generator, seed: int) -> tuple[Split, Hands]:
        """Return the training and test samples of clients, and the samples that they hold out for validation."""
        num_shared = nearest_whole(self.shared_fraction * len(train.y))
        order = generator(seed, "shared samples").permutation(len(train.y)) if num_shared else np.arange(len(train.y))
        shared, dealt = order[:num_shared], np.sort(order[num_shared:])
        if num_shared:
            train = train.take(dealt)
        if isinstance(self.partition, Natural):
            split = self.partition.split(train, test, self.clients, rng)
        else:
            split = self.partition.split(train, test, self.clients or NUM_CLIENTS, rng)
        hands = [dealt[rows] for rows in split.train] if num_shared else split.train
        held_out = [rows[:0] for rows in hands]
        if self.validation is not None:
            chosen = [choose_held_out(len(rows), self.validation, seed, client) for client, rows in enumerate(hands)]
            held_out = [rows[held] for rows, held in zip(hands, chosen, strict=True)]
            check_held_out([len(rows) for rows in held_out])
            hands = [rows[~held] for rows, held in zip(hands, chosen, strict=True)]
        if num_shared:
            hands = [np.sort(np.concatenate([shared, rows])) for rows in hands]
        return split._replace(train=hands), held_out


def _balanced(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the samples, repeated in turn until every class is as large as the largest."""
    classes, counts = np.unique(labels, return_counts=True)
    return np.sort(np.concatenate([np.resize(rows[labels == label], counts.max()) for label in classes]))
