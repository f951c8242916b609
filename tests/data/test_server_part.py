"""The server's part of a data set: bit-equal to simulation, and without unnecessary training samples."""

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from fedge.core.schema import choose, read
from fedge.data import DATASETS, DataOptions
from fedge.data.augment import Augment
from fedge.data.digits import Digits
from fedge.data.divided_dataset import Divided, Noise
from fedge.data.drift import Arriving
from fedge.data.femnist import Femnist
from fedge.data.images import Images
from fedge.data.normalise import Scaling
from fedge.data.partition import Iid, Natural
from fedge.data.sent140 import Sent140
from fedge.data.shakespeare import Shakespeare
from fedge.data.stackoverflow import StackOverflow
from fedge.data.synthetic import Synthetic
from fedge.data.table import Table
from fedge.data.whole import SamplePool, Whole

OPTIONS: list[dict[str, Any]] = [
    {},
    {"normalise": True},
    {"normalise": Scaling(mean=0.1, std=0.3)},
    {"augment": Augment(flip=True, crop=20)},
    {"noise": Noise(fraction=0.5, std=1.0), "drift": Arriving(start=0.5, until=3), "validation": 0.1},
]


def check(options: Any, seed: int = 3) -> None:
    """Assert that the server's part equals that of the simulated clients."""
    part, clients = options.server_part(seed), options.build(seed)
    assert (part.shape, part.num_outputs, part.task) == (clients.shape, clients.num_outputs, clients.task)
    assert part.num_clients == len(clients.sizes)
    pooled = clients.pooled_test()
    if part.test is None:
        assert not len(pooled)
    else:
        assert part.test.x.dtype == pooled.x.dtype
        assert all(torch.equal(a, b) for a, b in zip(part.test, pooled, strict=True))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_digits(options: dict[str, Any]) -> None:
    check(Digits(clients=7, **options))


@pytest.mark.parametrize("kind", ["mixture", "quadratic"])
def test_generated(kind: Any) -> None:
    check(Synthetic(kind=kind, clients=150, features=3, validation=0.1))


def test_table_by_key_and_without_test_rows(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{i * i},{'ab'[i % 2]},h{i % 3}" for i in range(12))
    (tmp_path / "t.csv").write_text(f"x,y,label,hospital\n{rows}\n")
    file = str(tmp_path / "t.csv")
    natural = Natural(column="hospital")
    check(Table(file=file, target="label", partition=natural, normalise=True))
    check(Table(file=file, target="y", task="values", ignore=["label", "hospital"], clients=2))
    check(Table(file=file, target="label", partition=natural, clients=2, test_fraction=0.0))
    plan = Table(file=file, target="label", partition=natural).server_part(1).plan
    assert (plan.classes, plan.columns) == (("a", "b"), ("x", "y"))


def test_function(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\ndef load():\n    x = np.arange(24).reshape(12, 2)\n    y = np.arange(12) % 3\n"
        "    return x, y, x[:5], y[:5]\n"
    )
    kind = choose(f"{path}:load", DATASETS, "data.name")
    check(kind(clients=3))
    check(kind(clients=3, words=True))


def test_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(3):
                pixels = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
                image.fromarray(pixels).save(folder / f"{number}.png")
    check(Images(folder=str(tmp_path), size=4, clients=2))
    check(Images(folder=str(tmp_path), size=4, clients=2, normalise=True))


def test_text_by_user(tmp_path: Path) -> None:
    speeches = [f"Lear\t{who}\t{' / '.join(f'{who} speaks line {n} of many' for n in range(30))}" for who in "ABC"]
    questions = [f"u{n % 3}\tquestion {n % 5} of many\ta|b{n % 4}" for n in range(12)]
    users = {f"u{n}": {"x": [f"tweet {n} by me"] * 10, "y": [n % 2] * 10} for n in range(3)}
    images = {f"w{n}": {"x": [[n / 255] * 784] * 5, "y": [n] * 5} for n in range(3)}
    files = {
        "shakespeare/speeches.tsv": "\n".join(speeches),
        "stackoverflow/train.tsv": "\n".join(questions),
        "stackoverflow/test.tsv": "\n".join(questions[:5]),
        "sent140/all_data/1.json": json.dumps({"user_data": users}),
        "femnist/train/1.json": json.dumps({"user_data": images}),
        "femnist/test/1.json": json.dumps({"user_data": images}),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for kind in (Shakespeare, StackOverflow, Sent140, Femnist):
        check(kind(dir=str(tmp_path)))
        check(kind(dir=str(tmp_path), clients=2))
        check(kind(dir=str(tmp_path), clients=2, partition=Iid()))


class Counted(Divided, tag="counted"):
    """A data set that records whether its training samples were requested."""

    def whole(self, train: bool = True) -> Whole:
        assert train == (self.normalise is True or isinstance(self.partition, Natural))
        x, y = torch.arange(12.0).view(6, 2), torch.arange(6) % 2
        users = np.arange(6) // 2
        return Whole(SamplePool(x, y), SamplePool(x, y), 2, columns={"user": (users, users)})


@pytest.mark.parametrize(
    "options",
    [{}, {"normalise": True}, {"normalise": {"mean": 1.0, "std": 2.0}}, {"partition": "natural"}],
    ids=str,
)
def test_training_samples_are_read_only_if_something_depends_on_them(options: dict[str, Any]) -> None:
    read(options, Counted).server_part(1)


def test_every_data_set_has_a_part_for_the_server() -> None:
    assert all(hasattr(kind, "server_part") for kind in get_args(DataOptions))
