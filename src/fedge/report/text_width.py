"""The width of text in a chart, so that labels, legends and captions fit the width of a column."""

from __future__ import annotations

from collections.abc import Iterator

LINE = "  "
"""Separates the lines of a text in a chart, where control characters such as line feeds are escaped."""
_ADVANCES = {
    0.23: "ijl|'‘’",
    0.28: " \N{NO-BREAK SPACE}.,:;/!ft[]I\\",
    0.34: "r()-·“”",
    0.5: "ckvxyszJ",
    0.61: "FTLZ+=<>±−",
    0.67: "ABEKPSVXY&",
    0.73: "CDHNRUw",
    0.78: "GOQ",
    0.85: "mM→",
    0.96: "W%@—",
}
"""Letters of Helvetica, Arial and Liberation Sans by width, relative to the font size."""
_WIDTHS = {letter: advance for advance, letters in _ADVANCES.items() for letter in letters}
_OTHER = 0.56  # digits and most small letters
_WIDE = 1.0  # ideographs and all other scripts than Latin and Greek
_LATIN_OR_GREEK = "\u03ff"


def text_width(text: str, size: float = 10) -> float:
    """Return the width of a line of text, in the unit of `size`."""
    return size * sum(_WIDTHS.get(letter, _OTHER if letter <= _LATIN_OR_GREEK else _WIDE) for letter in text)


def wrap_to_width(text: str, room: float, size: float = 10, wider: float = 1.0) -> list[str]:
    """Return the text in lines of at most `room`, broken at spaces, or inside words longer than a line.

    `wider` is the relative width of a heavier font.
    """
    return list(_lines(text.split(" "), room / wider, size))


def _lines(words: list[str], room: float, size: float) -> Iterator[str]:
    line = ""
    for word in words:
        longer = f"{line} {word}".strip()
        if text_width(longer, size) <= room:
            line = longer
            continue
        if line:
            yield line
        while text_width(word, size) > room and len(word) > 1:
            fits = max(1, next(i for i in range(len(word)) if text_width(word[: i + 1], size) > room))
            yield word[:fits]
            word = word[fits:]
        line = word
    if line:
        yield line
