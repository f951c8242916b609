"""Text as numbers: windows of characters and bags of words, both computed on request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz"
"""The 79 known characters; any other is read as a space."""

_CODES = np.full(256, CHARACTERS.index(" "), np.uint8)
_CODES[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(len(CHARACTERS))
_WORD = re.compile(r"[\w']+|[^\w\s]")


def encode(text: str) -> np.ndarray:
    """Return the indexes of a text's characters."""
    return _CODES[np.frombuffer(text.encode("latin-1", "replace"), np.uint8)]


def split_words(text: str) -> list[str]:
    """Return words in lower case, and punctuation marks."""
    return _WORD.findall(text.lower())


def most_frequent(words: Iterable[Iterable[str]], size: int) -> dict[str, int]:
    """Return the `size` most frequent words with their indexes; ties are in alphabetical order."""
    counts = Counter(word for part in words for word in part)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[:size])}


class Windows:
    """Windows of a text, `[n, length]`; the text is stored once, however much the windows overlap."""

    def __init__(self, text: np.ndarray, starts: np.ndarray, length: int) -> None:
        self._text, self._starts, self._places = torch.from_numpy(text), torch.from_numpy(starts), torch.arange(length)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._starts), len(self._places))

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._text[self._starts[rows][:, None] + self._places]


class Bags:
    """Words of a vocabulary in each sample, `[n, size]`: equal values for the words present, which sum to one."""

    def __init__(self, samples: Sequence[Iterable[int]], size: int) -> None:
        unique = [np.unique(np.fromiter(words, np.int64)) for words in samples]
        self._ends = torch.from_numpy(np.cumsum([0, *map(len, unique)]))
        self._words = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *unique]))
        self._size = size

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._ends) - 1, self._size)

    def __getitem__(self, rows: Tensor) -> Tensor:
        starts, counts = self._ends[rows], self._ends[rows + 1] - self._ends[rows]
        sample = torch.arange(len(rows)).repeat_interleave(counts)
        place = torch.arange(len(sample)) - (counts.cumsum(0) - counts)[sample]
        bags = torch.zeros(len(rows), self._size)
        bags[sample, self._words[starts[sample] + place]] = 1 / counts[sample].to(torch.float32)
        return bags
