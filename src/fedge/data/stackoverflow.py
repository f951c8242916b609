"""Stack Overflow questions by user, to predict their tags, from text tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.data.divided_dataset import Divided
from fedge.data.files import Collection, Dir, Source, data_dir, read_rows
from fedge.data.partition import Natural, Partition
from fedge.data.text import Bags, most_frequent, split_words
from fedge.data.whole import SamplePool, Whole

_HOW = (
    "write {path}, one line `user<TAB>text<TAB>tag|tag|...` per question "
    "(from https://archive.org/details/stackexchange, or TensorFlow Federated's stackoverflow)"
)
FILES = Collection(
    ("stackoverflow",), tuple(Source({f"{part}.tsv": None, f"{part}.tsv.gz": None}, _HOW) for part in ("train", "test"))
)


class StackOverflow(Divided, tag="stackoverflow"):
    """Questions by user as bags of the most frequent words; targets are the most frequent tags.

    From `train.tsv` and `test.tsv`, UTF-8, one line `user<TAB>text<TAB>tag|tag|...` per question. A target has the
    value 1 for each tag of the question, 0 for the others. Questions without any known word are omitted.
    """

    sources: ClassVar[tuple[Collection, ...]] = (FILES,)

    partition: Annotated[Partition, Meta(description="How samples are assigned to clients.")] = Natural()
    dir: Dir = None
    words: Annotated[int, Meta(ge=1, description="Size of the vocabulary: the training set's most frequent.")] = 10_000
    tags: Annotated[int, Meta(ge=1, description="Number of tags: the training set's most frequent.")] = 500

    def whole(self, train: bool = True) -> Whole:
        asked, test = (_read(paths) for paths in self.sources[0].find(data_dir(self.dir), "stackoverflow"))
        words = most_frequent((question.words for question in asked), self.words)
        tags = most_frequent((question.tags for question in asked), self.tags)
        asked, test = ([q for q in part if not words.keys().isdisjoint(q.words)] for part in (asked, test))
        return Whole(
            self._pool(asked, words, tags),
            self._pool(test, words, tags),
            num_outputs=self.tags,
            task="labels",
            columns={"user": (_users(asked), _users(test))},
        )

    def _pool(self, questions: list[_Question], words: dict[str, int], tags: dict[str, int]) -> SamplePool:
        y = torch.zeros(len(questions), self.tags)
        for row, question in enumerate(questions):
            y[row, [tags[tag] for tag in question.tags if tag in tags]] = 1
        return SamplePool(Bags([[words[w] for w in q.words if w in words] for q in questions], self.words), y)


class _Question(NamedTuple):
    user: str
    words: list[str]
    tags: list[str]


def _read(paths: list[Path]) -> list[_Question]:
    rows = read_rows(paths[0], ("user", "text", "tag|tag|..."))
    found = [_Question(user, split_words(text), list(filter(None, tags.split("|")))) for user, text, tags in rows]
    if not found:
        raise DataError(f"{paths[0]}: expected at least one question, got none")
    return found


def _users(questions: list[_Question]) -> np.ndarray:
    return np.array([question.user for question in questions], str)
