"""Text as numbers, and text data sets that are not in LEAF's format."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import DataError
from fedge.data.files import data_dir
from fedge.data.partition import Iid, Natural
from fedge.data.shakespeare import LENGTH, Shakespeare
from fedge.data.stackoverflow import StackOverflow
from fedge.data.text import CHARACTERS, Bags, Windows, encode, most_frequent, split_words


def test_there_are_79_characters() -> None:
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 79
    assert encode(CHARACTERS).tolist() == list(range(79))
    assert encode("a$é€b").tolist()[1:3] == [CHARACTERS.index(" ")] * 2
    assert len(encode("a$é€b")) == 5


def test_words_and_punctuation() -> None:
    assert split_words("Don't panic, @you!") == ["don't", "panic", ",", "@", "you", "!"]


def test_most_frequent_words_first_then_alphabetical() -> None:
    assert most_frequent([["b", "a"], ["c", "b"]], 2) == {"b": 0, "a": 1}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=8), st.data())
def test_bags_hold_each_word_once(samples: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(samples) - 1), max_size=6))
    bags = Bags(samples, 7)
    assert bags.shape == (len(samples), 7)
    given_out = bags[torch.tensor(rows, dtype=torch.int64)]
    assert given_out.shape == (len(rows), 7)
    for row, bag in zip(rows, given_out, strict=True):
        assert set(bag.nonzero().flatten().tolist()) == set(samples[row])
        assert torch.allclose(bag.sum(), torch.tensor(1.0))


def test_windows_are_computed_on_request() -> None:
    windows = Windows(np.arange(10, dtype=np.uint8), np.array([0, 3, 6]), 4)
    assert windows.shape == (3, 4)
    assert windows[torch.tensor([2, 0])].tolist() == [[6, 7, 8, 9], [0, 1, 2, 3]]


ALPHABET = "abcdefghij"
LONG = (ALPHABET * 9)[:82]  # two windows of 80 characters, each with the next one


def put(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize("name", ["speeches.tsv", "speeches.tsv.gz"])
def test_windows_of_a_speaker_predict_the_next_character(tmp_path: Path, name: str) -> None:
    lines = [f"Hamlet\tHAM\t{LONG}", f"Hamlet\tGHOST\t{LONG[:80]}", f"Lear\tHAM\t{LONG[:81]}"]
    put(tmp_path / "shakespeare" / name, *lines)
    clients = Shakespeare(dir=str(tmp_path)).build(seed=1)
    assert (clients.shape, clients.num_outputs) == ((80,), 79)
    # The ghost has fewer than 81 characters; the two other parts called HAM are from different plays.
    assert clients.sizes.tolist() == [2, 1]
    x, y = clients.train(0, 1)
    assert x.dtype == torch.int64
    assert "".join(CHARACTERS[i] for i in x[1]) == LONG[1:81]
    assert [CHARACTERS[i] for i in y] == [LONG[80], LONG[81]]


def test_the_last_verses_are_for_the_test(tmp_path: Path) -> None:
    verses = [letter * 50 for letter in "abcde"]
    put(tmp_path / "shakespeare/speeches.tsv", f"P\tS\t{' / '.join(verses[:2])}", f"P\tS\t{' / '.join(verses[2:])}")
    clients = Shakespeare(dir=str(tmp_path), test_fraction=0.4, stride=10, test_stride=7).build(seed=1)
    text = "\n".join(verses[:3])  # 152 characters: windows begin at 0, 10, ..., 70
    x, y = clients.train(0, 1)
    assert ["".join(CHARACTERS[i] for i in row) for row in x] == [text[i : i + 80] for i in range(0, 72, 10)]
    assert [CHARACTERS[i] for i in y] == [text[i + 80] for i in range(0, 72, 10)]
    assert len(clients.test(0, 1)) == len(range(0, 101 - LENGTH, 7))


def test_leafs_windows(tmp_path: Path) -> None:
    data = {"P_S": {"x": [LONG[:80], LONG[1:81]], "y": [LONG[80], LONG[81]]}}
    for part in ("train", "test"):
        path = tmp_path / f"shakespeare/{part}/a.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"users": ["P_S"], "num_samples": [2], "user_data": data}))
    clients = Shakespeare(dir=str(tmp_path)).build(seed=1)
    x, y = clients.test(0, 1)
    assert "".join(CHARACTERS[i] for i in x[1]) == LONG[1:81]
    assert [CHARACTERS[i] for i in y] == [LONG[80], LONG[81]]
    data["P_S"]["x"][0] = "short"
    path.write_text(json.dumps({"user_data": data}))
    with pytest.raises(DataError, match="expected strings of 80 characters"):
        Shakespeare(dir=str(tmp_path)).build(seed=1)


def test_invalid_speeches(tmp_path: Path) -> None:
    put(tmp_path / "shakespeare/speeches.tsv", "Hamlet\tHAM\tTo be", "no tabs")
    with pytest.raises(DataError, match=r"speeches\.tsv, line 2: expected play<TAB>speaker<TAB>verse"):
        Shakespeare(dir=str(tmp_path)).build(seed=1)
    put(tmp_path / "shakespeare/speeches.tsv", "Hamlet\tHAM\tTo be")
    with pytest.raises(DataError, match="no speaker has the 81 characters"):
        Shakespeare(dir=str(tmp_path)).build(seed=1)


def test_questions_have_several_tags(tmp_path: Path) -> None:
    # All three words occur twice, and two are known: list and loop, numbered 0 and 1 alphabetically. Of the tags, list
    # and python occur twice, c once: two are known, numbered in the same way.
    lines = ["u1\tloop list\tpython|c", "u2\tlist loop swap\tpython|list", "u1\tswap\tlist"]
    put(tmp_path / "stackoverflow/train.tsv", *lines)
    put(tmp_path / "stackoverflow/test.tsv.gz", "u2\tlist of\tc|other", "u2\tunknown\tc")
    clients = StackOverflow(dir=str(tmp_path), words=2, tags=2).build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((2,), 2, "labels")
    assert clients.sizes.tolist() == [1, 1]  # "swap" is not a known word
    assert clients.train(0, 1).x.tolist() == [[0.5, 0.5]]
    assert [clients.train(client, 1).y.tolist() for client in range(2)] == [[[0, 1]], [[1, 1]]]
    assert clients.test(1, 1).x.tolist() == [[1, 0]]
    assert clients.test(1, 1).y.tolist() == [[0, 0]]
    assert clients.train(0, 1).y.dtype == clients.test(0, 1).y.dtype == clients.pooled_test().y.dtype == torch.float32


def test_questions_can_be_partitioned(tmp_path: Path) -> None:
    for part in ("train", "test"):
        put(tmp_path / f"stackoverflow/{part}.tsv", *(f"u{i}\tword\ttag" for i in range(6)))
    clients = StackOverflow(dir=str(tmp_path), partition=Iid(), clients=2).build(seed=1)
    assert (clients.shape, clients.num_outputs) == ((10_000,), 500)
    assert clients.sizes.tolist() == [3, 3]


def test_invalid_questions_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"stackoverflow needs train\.tsv, test\.tsv(.|\n)*user<TAB>text<TAB>tag"):
        StackOverflow(dir=str(tmp_path)).build(seed=1)
    for part in ("train", "test"):
        put(tmp_path / f"stackoverflow/{part}.tsv", "u1\ttext")
    with pytest.raises(DataError, match=r"train\.tsv, line 1: expected user<TAB>text<TAB>tag\|tag"):
        StackOverflow(dir=str(tmp_path)).build(seed=1)
    put(tmp_path / "stackoverflow/train.tsv")
    with pytest.raises(DataError, match="expected at least one question"):
        StackOverflow(dir=str(tmp_path)).build(seed=1)


@pytest.mark.full
def test_available_plays() -> None:
    if not (data_dir(None) / "shakespeare/moby_speeches.tsv.gz").is_file():
        pytest.skip("needs the speeches: set FEDGE_DATA")
    clients = Shakespeare(test_fraction=0).build(seed=1)
    assert len(clients.sizes) == 1155  # of 1,391 parts, those with 81 characters or more
    largest = Shakespeare(partition=Natural(pick="largest"), clients=10).build(seed=1)
    assert sorted(largest.sizes)[0] > np.median(clients.sizes)
