"""Text of unknown origin, such as names of runs and files, made fit to be shown."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls: escape sequences for terminals, and what neither SVG nor HTML may contain
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"  # line ends, and what reverses the order of letters
    "\ud800-\udfff\ufffe\uffff]"  # bytes of file names that are not UTF-8, and what is no character
)


def printable(text: str, keep: str = "") -> str:
    """The text with each character that is not safe to print as `\\u001b`; those in `keep` stay.

    What it returns can be encoded as UTF-8. Inside the strings of JSON and TOML the result means the same.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)
