"""Escaping of untrusted text, such as names of runs and files, so that it is safe to print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls: terminal escape sequences, and characters that SVG and HTML forbid
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"  # line separators and bidirectional controls
    "\ud800-\udfff\ufffe\uffff]"  # surrogates (file names that are not UTF-8) and non-characters
)


def printable(text: str, keep: str = "") -> str:
    """Return the text with unsafe characters escaped, such as `\\u001b`; those in `keep` stay.

    The result can be encoded as UTF-8. Inside a JSON or TOML string it denotes the same text.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def printable_command(words: Iterable[object]) -> str:
    """Return a command line, safe to print and quoted for Bash and Zsh, which read `$'\\x1b'` as that character."""
    return " ".join(_quote(str(word)) for word in words)


def _quote(word: str) -> str:
    if not _UNSAFE.search(word):
        return shlex.quote(word)
    text = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_UNSAFE.sub(_bytes, text)}'"


def _bytes(found: re.Match[str]) -> str:
    is_byte = "\udc80" <= found[0] <= "\udcff"  # of a file name that is not UTF-8
    return "".join(
        f"\\x{byte:02x}" for byte in found[0].encode(errors="surrogateescape" if is_byte else "surrogatepass")
    )
