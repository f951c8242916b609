"""Shakespeare by speaker: predict the next character. From speeches, or from LEAF's files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.files import Collection, Dir, checksums, data_dir, read_rows
from fedge.data.leaf import Users, leaf_files, read_leaf
from fedge.data.partition import Natural, Partition
from fedge.data.text import CHARACTERS, Windows, encode
from fedge.data.whole import SamplePool, Whole

LENGTH = 80  # characters in a window

FILES = leaf_files(
    "shakespeare",
    {"speeches.tsv": None, "speeches.tsv.gz": None, "moby_speeches.tsv.gz": "6ac5dba39a895ce26072eb1863bd5a22"},
    how="write {folder}/speeches.tsv, one line `play<TAB>speaker<TAB>verse / verse / ...` per speech "
    "(plays: https://github.com/TheMITTech/shakespeare)",
)


class Shakespeare(Divided, tag="shakespeare"):
    """Plays by speaker: predict the next character from windows of 80 characters; there are 79 different ones.

    From a table of speeches, where the last verses of a speaker are the test set, or from LEAF's JSON files.
    """

    sources: ClassVar[tuple[Collection, ...]] = (FILES,)

    partition: Annotated[Partition, Meta(description="How samples are assigned to clients.")] = Natural()
    dir: Dir = None
    stride: Annotated[int, Meta(ge=1, description="For speeches: characters from one training window to the next.")] = 1
    test_stride: Annotated[
        int, Meta(ge=1, description="For speeches: characters from one test window to the next.")
    ] = LENGTH
    test_fraction: Annotated[
        Share,
        Meta(description="Share of a speaker's last verses that is held out, if the files are not already split."),
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        files = self.sources[0]
        found = files.find(data_dir(self.dir), "shakespeare")
        path = found[0][0]
        if path.suffix == ".json":
            samples = read_leaf(found, self.test_fraction)
            parts = [_encode(part) for part in samples]
        else:
            texts = _speeches(path, checksums(files.files[0], path), self.test_fraction)
            strides = (self.stride, self.test_stride)
            parts = [_cut(part, stride) for part, stride in zip(texts, strides, strict=True)]
        (windows, keys), (test, test_keys) = parts
        if not len(windows.y):
            raise DataError(f"{path}: no speaker has the {LENGTH + 1} characters of a training window")
        return Whole(windows, test, len(CHARACTERS), words=True, columns={"speaker": (keys, test_keys)})


class _Texts(NamedTuple):
    """The text of each speaker."""

    speakers: np.ndarray
    texts: list[str]


def _speeches(path: Path, expected: Sequence[str], test_fraction: float) -> tuple[_Texts, _Texts]:
    verses: dict[str, list[str]] = {}
    for play, speaker, speech in read_rows(path, ("play", "speaker", "verse / verse / ..."), expected):
        verses.setdefault(f"{play}: {speaker}", []).extend(speech.split(" / "))
    speakers = np.array(list(verses))
    cuts = [len(lines) - int(len(lines) * test_fraction) for lines in verses.values()]
    pairs = list(zip(verses.values(), cuts, strict=True))
    return (
        _Texts(speakers, ["\n".join(lines[:cut]) for lines, cut in pairs]),
        _Texts(speakers, ["\n".join(lines[cut:]) for lines, cut in pairs]),
    )


def _cut(spoken: _Texts, stride: int) -> tuple[SamplePool, np.ndarray]:
    """Return windows that do not cross speakers, and the speaker's index of each."""
    ends = np.cumsum([0, *map(len, spoken.texts)])
    starts = [np.arange(begin, end - LENGTH, stride) for begin, end in pairwise(ends)]
    text, places = encode("".join(spoken.texts)), np.concatenate(starts)
    y = torch.from_numpy(text[places + LENGTH].astype(np.int64))
    # Indexes, not names: a name for each of millions of windows would take more memory than the text.
    return SamplePool(Windows(text, places, LENGTH), y), np.repeat(
        np.arange(len(starts)), [len(part) for part in starts]
    )


def _encode(samples: Users) -> tuple[SamplePool, np.ndarray]:
    """Return LEAF's windows, each a string with the character that follows it."""
    if any(not isinstance(x, str) or len(x) != LENGTH for x in samples.x):
        raise DataError(f"shakespeare: expected strings of {LENGTH} characters as inputs")
    if any(not isinstance(y, str) or len(y) != 1 for y in samples.y):
        raise DataError("shakespeare: expected single characters as targets")
    x = encode("".join(samples.x)).reshape(-1, LENGTH)
    return SamplePool(torch.from_numpy(x), torch.from_numpy(encode("".join(samples.y)).astype(np.int64))), samples.users
