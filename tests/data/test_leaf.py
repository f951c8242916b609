"""Data sets in the JSON files of LEAF."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import DataError
from fedge.data.femnist import Femnist
from fedge.data.partition import Iid, Natural
from fedge.data.sent140 import Sent140


def put(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": data}))


def image(value: int) -> list[float]:
    return [value / 255] * 784


def test_writers_are_clients(tmp_path: Path) -> None:
    put(tmp_path / "femnist/train/1.json", {"f1": ([image(3), image(4)], [10, 61]), "f2": ([image(5)], [0])})
    put(tmp_path / "femnist/train/2.json", {"f0": ([image(6)], [7])})
    put(tmp_path / "femnist/test/1.json", {"f2": ([image(8)], [9])})
    clients = Femnist(dir=str(tmp_path)).build(seed=1)
    assert (clients.shape, clients.num_outputs) == ((1, 28, 28), 62)
    assert [clients.train(client, 1).y.tolist() for client in range(3)] == [[7], [10, 61], [0]]
    assert torch.equal(clients.train(1, 1).x[:, 0, 0, 0], torch.tensor([3, 4]) / 255)
    assert [clients.test(client, 1).y.tolist() for client in range(3)] == [[], [], [9]]
    dealt = Femnist(dir=str(tmp_path), partition=Iid(), clients=2).build(seed=1)
    assert dealt.sizes.tolist() == [2, 2]


def test_files_without_a_split(tmp_path: Path) -> None:
    labels = list(range(10))
    put(tmp_path / "femnist/all_data/1.json", {"f1": ([image(i) for i in labels], labels), "f2": ([image(0)], [3])})
    clients = Femnist(dir=str(tmp_path), test_fraction=0.3).build(seed=1)
    assert [clients.train(client, 1).y.tolist() for client in range(2)] == [[0, 1, 2, 3, 4, 5, 6], [3]]
    assert [clients.test(client, 1).y.tolist() for client in range(2)] == [[7, 8, 9], []]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([image(1)], [62], "expected classes from 0 to 61, got 62 to 62"),
        ([[0.5] * 783], [1], "expected 784 numbers and a class for each image"),
        ([[2.0] * 784], [1], "expected pixels from 0 to 1, got values from 2.0 to 2.0"),
        ([image(1)], [1, 2], "expected equal numbers of inputs and targets for user 'u', got 1 inputs and 2 targets"),
        ([], [], "expected samples of at least one user, got none"),
    ],
)
def test_invalid_images_are_rejected(tmp_path: Path, x: list[Any], y: list[Any], message: str) -> None:
    put(tmp_path / "femnist/all_data/1.json", {"u": (x, y)})
    with pytest.raises(DataError, match=message):
        Femnist(dir=str(tmp_path)).build(seed=1)


@pytest.mark.parametrize("content", ["{", "[]", '{"users": []}', '{"user_data": {"u": {"x": []}}}'])
def test_files_in_another_format(tmp_path: Path, content: str) -> None:
    path = tmp_path / "femnist/all_data/1.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DataError, match=r"1\.json: expected JSON in LEAF's format"):
        Femnist(dir=str(tmp_path)).build(seed=1)


def test_error_about_missing_files_has_leafs_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"femnist needs train/\*\.json, test/\*\.json") as caught:
        Femnist(dir=str(tmp_path)).build(seed=1)
    assert "./preprocess.sh" in str(caught.value)
    assert f"cp -r data/train data/test {tmp_path}/femnist" in str(caught.value)


def tweet(text: str) -> list[str]:
    return ["1", "Mon", "NO_QUERY", "me", text, "more"]


def test_tweets_are_bags_of_the_most_frequent_words(tmp_path: Path) -> None:
    # Of "good" three times, "bad" twice, "day" twice and "sad" once, the first three are known, numbered 0 for
    # good, 1 for bad, 2 for day; a tweet with only "sad" is omitted. A word counts once however often it occurs.
    train = [tweet("Good GOOD day"), tweet("bad day"), tweet("good bad"), tweet("sad")]
    put(tmp_path / "sent140/train/a.json", {"u": (train, [1, 0, 1, 0])})
    put(tmp_path / "sent140/test/a.json", {"u": ([tweet("sad day"), tweet("sad")], [0, 0])})
    clients = Sent140(dir=str(tmp_path), words=3, partition=Natural()).build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((3,), 2, "classes")
    assert clients.train(0, 1).x.tolist() == [[0.5, 0, 0.5], [0, 0.5, 0.5], [0.5, 0.5, 0]]
    assert clients.train(0, 1).y.tolist() == [1, 0, 1]
    assert clients.test(0, 1).x.tolist() == [[0, 0, 1]]


def test_users_with_few_tweets_are_omitted(tmp_path: Path) -> None:
    users = {"few": ([tweet("a b")] * 7, [1] * 7), "many": ([tweet("a c")] * 8, [0] * 8)}
    put(tmp_path / "sent140/train/a.json", users)
    put(tmp_path / "sent140/test/a.json", users)
    clients = Sent140(dir=str(tmp_path)).build(seed=1)
    assert clients.shape == (5000,)
    assert clients.sizes.tolist() == [8]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [([3], [0], "expected a tweet as text"), (["a"], [4], r"expected targets 0 and 1, got \[4\]")],
)
def test_invalid_tweets_are_rejected(tmp_path: Path, x: list[Any], y: list[Any], message: str) -> None:
    put(tmp_path / "sent140/all_data/a.json", {"u": (x, y)})
    with pytest.raises(DataError, match=message):
        Sent140(dir=str(tmp_path)).build(seed=1)


def test_samples_of_a_user_keep_their_order(tmp_path: Path) -> None:
    put(tmp_path / "femnist/all_data/1.json", {"b": ([image(1), image(2)], [1, 2]), "a": ([image(3)], [3])})
    clients = Femnist(dir=str(tmp_path), test_fraction=0).build(seed=1)
    assert np.array_equal(clients.train(1, 1).y.numpy(), [1, 2])
