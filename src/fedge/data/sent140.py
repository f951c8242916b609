"""Sentiment140: tweets by user as bags of words, from LEAF's files."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.files import Collection, Dir, data_dir
from fedge.data.leaf import Users, leaf_files, read_leaf
from fedge.data.partition import Natural, Partition
from fedge.data.text import Bags, most_frequent, split_words
from fedge.data.whole import SamplePool, Whole

_TEXT = 4  # index of the text in the fields of a tweet: number, date, query, user, text


class Sent140(Divided, tag="sent140"):
    """Tweets by user, positive or negative, as bags of the most frequent words; LEAF's JSON files.

    An input has equal values, which sum to one, for the words of the vocabulary in the tweet. Tweets without any known
    word are omitted.
    """

    sources: ClassVar[tuple[Collection, ...]] = (leaf_files("sent140"),)

    partition: Annotated[Partition, Meta(description="How samples are assigned to clients.")] = Natural(min_size=8)
    dir: Dir = None
    words: Annotated[int, Meta(ge=1, description="Size of the vocabulary: the training set's most frequent.")] = 5000
    test_fraction: Annotated[
        Share, Meta(description="Share of a user's last tweets that is held out, if the files are not already split.")
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        found = self.sources[0].find(data_dir(self.dir), "sent140")
        tweets, test = (_tokenised(part) for part in read_leaf(found, self.test_fraction))
        numbers = most_frequent(tweets.x, self.words)
        tweets, test = (part.where(lambda words: any(word in numbers for word in words)) for part in (tweets, test))
        return Whole(
            _pool(tweets, numbers, self.words),
            _pool(test, numbers, self.words),
            num_outputs=2,
            columns={"user": (tweets.users, test.users)},
        )


def _tokenised(samples: Users) -> Users:
    return samples._replace(x=[split_words(_text(tweet)) for tweet in samples.x])


def _text(tweet: Any) -> str:
    text = tweet[_TEXT] if isinstance(tweet, list) and len(tweet) > _TEXT else tweet
    if not isinstance(text, str):
        raise DataError(
            f"sent140: expected a tweet as text, or as a list with the text as its fifth item, got {tweet!r}"
        )
    return text


def _pool(samples: Users, numbers: dict[str, int], size: int) -> SamplePool:
    if not set(samples.y) <= {0, 1}:
        raise DataError(f"sent140: expected targets 0 and 1, got {sorted(set(samples.y), key=str)[:5]}")
    bags = [[numbers[word] for word in words if word in numbers] for words in samples.x]
    return SamplePool(Bags(bags, size), torch.tensor(samples.y, dtype=torch.int64))
