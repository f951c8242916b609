"""A data set that exists as a whole and is divided over clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, Protocol

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.core.registered import Task
from fedge.core.schema import Options
from fedge.data.apportionment import choose_clients, nearest_whole
from fedge.data.augment import Augment, draw_augmentation
from fedge.data.clients import Samples
from fedge.data.drift import DriftOptions, Hands, Steady
from fedge.data.partition import Iid, Labels, Natural, Partition, Split
from fedge.data.validation import ValidationShare, check_held_out, choose_held_out

NUM_CLIENTS = 100
Count = Annotated[int, Meta(ge=1)]
_CHUNK = 4096  # samples that are looked at together


class Inputs(Protocol):
    """Inputs of samples: a tensor, or what makes its rows when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, rows: Tensor) -> Tensor: ...


class SamplePool(NamedTuple):
    """Samples of which some are given out: inputs, and targets as a tensor."""

    x: Inputs
    y: Tensor


class Whole(NamedTuple):
    """A data set before it is divided. Images may stay bytes, which take a quarter of the memory."""

    train: SamplePool
    test: SamplePool
    num_outputs: int
    task: Task = "classes"
    full_scale: int = 1  # inputs are divided by it when they are given out
    words: bool = False  # inputs are numbers of words or characters, and given out as integers
    columns: Mapping[str, tuple[np.ndarray, np.ndarray]] = {}  # more about training and test samples: who wrote them

    def labels(self) -> tuple[Labels, Labels]:
        """What partitioners know of the training and the test samples."""
        return (
            Labels(self.train.y.numpy(), {name: column[0] for name, column in self.columns.items()}),
            Labels(self.test.y.numpy(), {name: column[1] for name, column in self.columns.items()}),
        )


class Noise(Options, tag=False, kw_only=True):
    """Gaussian noise on the training inputs of some clients, clipped to the range of the training data."""

    fraction: Annotated[float, Meta(ge=0, le=1, description="Share of the clients that are noisy.")]
    std: Annotated[
        float, Meta(ge=0, le=1e6, description="Standard deviation, in units of the inputs before they are normalised.")
    ]


class DividedClients:
    """Clients whose samples are cut out of a whole data set. `held_out`: rows of the training set, for validation."""

    def __init__(self, whole: Whole, split: Split, held_out: Hands, options: Divided, seed: int) -> None:
        self._whole, self._split, self._options, self._seed = whole, split, options, seed
        self._held_out = held_out
        shape = tuple(whole.train.x.shape[1:])
        self.shape: tuple[int, ...] = options.augment.shape(shape) if options.augment else shape
        self.num_outputs = whole.num_outputs
        self.task: Task = whole.task
        self.sizes = np.array([len(indices) for indices in split.train])
        self.noisy = choose_clients(
            len(self.sizes), options.noise.fraction if options.noise else 0.0, generator(seed, "noisy clients")
        )
        if whole.words and (options.noise or options.augment or options.normalise):
            raise DataError(
                "data.noise, data.augment and data.normalise change numbers, but the inputs of this data set are "
                "words or characters; leave them out"
            )
        self._drift: Steady = options.drift or Steady()
        self._drift.check(self.task, shape, whole.words, len(self.sizes))
        self._drawn = self._drift.draw(len(self.sizes), seed)
        self._draws: tuple[int, np.ndarray] | None = None  # of the last round asked for: what augments its samples
        self._low, self._high = self._extremes() if options.noise else (0.0, 0.0)
        self._mean, self._std = self._moments() if options.normalise else (torch.zeros(()), torch.ones(()))

    def num_samples(self, client: int, round: int) -> int:
        return self._drift.num_samples(int(self.sizes[client]), round)

    def train(self, client: int, round: int) -> Samples:
        rows, options = self._train_rows(client, round), self._options
        x, y = self._cut(self._whole.train, rows)
        if options.augment:
            x = options.augment.train(x, self._augmentation(round)[rows])
        x = self._noised(x, client, "noise")
        return Samples(self._normalised(self._drifted(x, client, round)), y)

    def validation(self, client: int, round: int) -> Samples:
        """Noisy as the client's training data, otherwise treated as its test data: not augmented, drifting alike."""
        rows = self._drift.test(self._held_out, client, round, self._seed, self._drawn)
        x, y = self._unaugmented(self._whole.train, rows)
        x = self._noised(x, client, "validation noise")
        return Samples(self._normalised(self._drifted(x, client, round)), y)

    def test(self, client: int, round: int) -> Samples:
        x, y = self._unaugmented(
            self._whole.test, self._drift.test(self._split.test, client, round, self._seed, self._drawn)
        )
        return Samples(self._normalised(self._drifted(x, client, round)), y)

    def pooled_test(self) -> Samples:
        """The whole test set, which no drift changes."""
        x, y = self._unaugmented(self._whole.test, np.arange(len(self._whole.test.y)))
        return Samples(self._normalised(x), y)

    def num_test(self, client: int) -> int:
        """The size of the client's own test set."""
        return len(self._split.test[client])

    def labels(self, client: int, round: int) -> Tensor:
        """The targets of the client's training set."""
        return self._whole.train.y[torch.from_numpy(self._train_rows(client, round))]

    def _train_rows(self, client: int, round: int) -> np.ndarray:
        return self._drift.train(self._split.train, client, round, self._seed, self._drawn)

    def _drifted(self, x: Tensor, client: int, round: int) -> Tensor:
        return self._drift.inputs(x, client, round, self._seed, self._drawn)

    def _augmentation(self, round: int) -> np.ndarray:
        """Return the draws of a round for all samples. Clients of one round share them, so the last ones are kept."""
        if self._draws is None or self._draws[0] != round:
            self._draws = round, draw_augmentation(len(self._whole.train.y), self._seed, round)
        return self._draws[1]

    def _noised(self, x: Tensor, client: int, purpose: str) -> Tensor:
        """The inputs, with noise if the client is noisy."""
        if not (self._options.noise and client in self.noisy):
            return x
        noise = generator(self._seed, purpose, client).standard_normal(x.shape, dtype=np.float32)
        return x.add(torch.from_numpy(noise), alpha=self._options.noise.std).clamp_(self._low, self._high)

    def _unaugmented(self, pool: SamplePool, rows: np.ndarray) -> Samples:
        """Samples to test on: of the size that augmentation makes, without any other change."""
        x, y = self._cut(pool, rows)
        return Samples(self._options.augment.test(x) if self._options.augment else x, y)

    def _cut(self, pool: SamplePool, rows: np.ndarray) -> Samples:
        chosen = torch.from_numpy(rows)
        # index_select copies rows whole, where indexing copies number by number
        x = pool.x.index_select(0, chosen) if isinstance(pool.x, Tensor) else pool.x[chosen]
        return Samples(self._scale(x), pool.y[chosen])

    def _scale(self, x: Tensor) -> Tensor:
        if self._whole.words:
            return x.to(torch.int64)
        if self._whole.full_scale == 1:
            return x.to(torch.float32)
        return x.to(torch.float32, copy=True).div_(self._whole.full_scale)

    def _normalised(self, x: Tensor) -> Tensor:
        return (x - self._mean) / self._std if self._options.normalise else x

    def _extremes(self) -> tuple[float, float]:
        """The range of the training inputs."""
        parts = [self._scale(part).aminmax() for part in _chunks(self._whole.train.x)]
        return min(float(part.min) for part in parts), max(float(part.max) for part in parts)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the training inputs: of each channel of images, of each feature of rows."""
        count, total, square = 0, torch.zeros(()), torch.zeros(())
        for part in _chunks(self._whole.train.x):
            x = self._scale(part).to(torch.float64)
            axes = [0, *range(2, x.dim())]
            count += x[:, 0].numel() if x.dim() > 2 else len(x)
            total, square = total + x.sum(axes), square + (x * x).sum(axes)
        mean = total / count
        std = (square / count - mean * mean).clamp(min=0).sqrt()
        std = torch.where(std > 1e-6, std, 1.0)  # what is always the same becomes zero, not infinite
        shape = (-1,) + (1,) * (len(self.shape) - 1)
        return mean.view(shape).to(torch.float32), std.view(shape).to(torch.float32)


class Divided(Options):
    """What every data set that is divided over clients can be told."""

    clients: Annotated[
        Count | None, Meta(description=f"Number of clients: {NUM_CLIENTS} if not given, all if they are natural.")
    ] = None
    partition: Annotated[Partition, Meta(description="How samples are dealt to clients.")] = Iid()
    noise: Annotated[Noise | None, Meta(description="Noise on the training inputs of some clients.")] = None
    augment: Annotated[Augment | None, Meta(description="Random changes of the training images.")] = None
    normalise: Annotated[
        bool, Meta(description="Shift and scale inputs to the training set's mean 0 and deviation 1, by channel.")
    ] = False
    shared_fraction: Annotated[
        float, Meta(ge=0, lt=1, description="Share of the training set that is given to all clients, not dealt.")
    ] = 0.0
    oversample: Annotated[
        bool, Meta(description="Repeat a client's samples of its rarer classes until all its classes are as frequent.")
    ] = False
    drift: Annotated[DriftOptions | None, Meta(description="How the data changes by round.")] = None
    validation: ValidationShare = None

    def divide(self, whole: Whole, seed: int) -> DividedClients:
        split, held_out = self._split(*whole.labels(), generator(seed, "partition"), seed)
        if self.oversample:
            if whole.task != "classes":
                raise DataError(f"data.oversample: repeats samples of rare classes, but targets here are {whole.task}")
            labels = whole.train.y.numpy()
            split = split._replace(train=[_balanced(rows, labels[rows]) for rows in split.train])
        return DividedClients(whole, split, held_out, self, seed)

    def _split(self, train: Labels, test: Labels, rng: np.random.Generator, seed: int) -> tuple[Split, Hands]:
        """What clients train and are tested on, and what they hold out of the samples that they were dealt."""
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


def _chunks(x: Inputs) -> Iterator[Tensor]:
    return (x[rows] for rows in torch.split(torch.arange(x.shape[0]), _CHUNK))


def _balanced(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The samples, repeated in turn until every class has as many as the largest."""
    classes, counts = np.unique(labels, return_counts=True)
    return np.sort(np.concatenate([np.resize(rows[labels == label], counts.max()) for label in classes]))
