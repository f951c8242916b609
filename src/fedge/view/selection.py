"""The selection of runs: query parameters shared by pages, endpoints and exports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from fedge.core.errors import ConfigError
from fedge.core.fields import SUMS, components, describe
from fedge.report.settings_table import write_value
from fedge.view.run_entry import RunEntry

MOST_ROWS = 1_000
_OPERATOR = re.compile("<=|>=|!=|=|<|>|~")

Which = Literal["last", "best", "at"]
OPTIONS = {
    "q": "search",
    "where": "where",
    "run": "run",
    "group": "group",
    "values": "values",
    "round": "round",
    "sort": "sort",
    "column": "column",
}
"""The query parameters of the table of runs, each with the corresponding option of `fedge list`."""


class Parameters(Protocol):
    """Query parameters, with the interface of Starlette."""

    def get(self, name: str) -> str | None: ...
    def getlist(self, name: str) -> list[str]: ...


class GivenParameters(NamedTuple):
    """Query parameters set by a program: `one` has a single value each, `many` several."""

    one: Mapping[str, str]
    many: Mapping[str, Sequence[str]]

    def get(self, name: str) -> str | None:
        return self.one.get(name)

    def getlist(self, name: str) -> list[str]:
        return list(self.many.get(name, ()))


class Condition(msgspec.Struct, frozen=True):
    """`algorithm.learning_rate >= 0.1`"""

    name: str
    operator: str
    value: str

    @staticmethod
    def parse(text: str) -> Condition:
        text = text.strip()
        found = _OPERATOR.search(text, 1)  # after a name
        if found is None:
            raise ConfigError(
                f"where: expected a name, one of = != < <= > >= ~ and a value, such as seed=1; got {text!r}"
            )
        return Condition(text[: found.start()].rstrip(), found[0], text[found.end() :].lstrip())

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.value}"

    def test(self) -> Callable[[Any], bool]:
        """Return a function that checks whether a value meets the condition; numbers are compared by value."""
        operator, wanted = self.operator, self.value.lower()
        number, compare = _number(self.value), _COMPARE[operator]

        def holds(found: Any) -> bool:
            if isinstance(found, list):
                return any(map(holds, found)) if operator != "!=" else all(map(holds, found))
            if found is None:
                return operator == "!=" or (operator == "=" and wanted == "")
            if number is not None and operator != "~" and is_number(found):
                return compare(float(found), number)
            return compare(_text(found), wanted)

        return holds


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
    "~": lambda a, b: b in a,
}


class RunSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to show, and how."""

    words: Sequence[str] = ()
    where: Sequence[Condition] = ()
    runs: Sequence[str] = ()
    group: str = ""
    which: Which = "last"
    round: int | None = None
    sort: str = ""
    descending: bool = False
    columns: Sequence[str] = ()
    offset: int = 0
    limit: int = 100

    @staticmethod
    def parse(query: Parameters) -> RunSelection:
        """Read query parameters; empty ones count as absent. Raises ConfigError."""
        which = query.get("values") or "last"
        if which not in ("last", "best", "at"):
            raise ConfigError(f"values: expected last, best or at, got {which!r}")
        round = _whole("round", query.get("round"), 1, 2**53) if query.get("round") else None
        if which == "at" and round is None:
            raise ConfigError("round: expected the round of values=at, got none; add round=N")
        sort = query.get("sort") or ""
        return RunSelection(
            words=(query.get("q") or "").lower().split(),
            where=[Condition.parse(text) for text in query.getlist("where") if text],
            runs=[key for text in query.getlist("run") for key in text.split(",") if key],
            group=query.get("group") or "",
            which=which,  # type: ignore[arg-type]
            round=round,
            sort=sort.removeprefix("-"),
            descending=sort.startswith("-"),
            columns=list(dict.fromkeys(name for name in query.getlist("column") if name)),
            offset=_whole("offset", query.get("offset") or "0", 0, 2**53),
            limit=_whole("limit", query.get("limit") or "100", 1, MOST_ROWS),
        )

    def whole(self) -> RunSelection:
        """Return the same selection with all rows on one page."""
        return msgspec.structs.replace(self, offset=0, limit=2**53)

    def list_options(self, columns: Sequence[str]) -> list[str]:
        """Return the options of `fedge list` that print the same table, with these columns."""
        pairs = [*self.pairs(), ("group", self.group), ("values", self.which if self.which != "last" else "")]
        pairs += [("round", str(self.round or ""))] if self.which == "at" else []
        pairs += [("sort", f"{'-' * self.descending}{self.sort}" if self.sort else "")]
        pairs += [("column", name) for name in columns]
        return [word for name, value in pairs if value for word in (f"--{OPTIONS[name]}", value)]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the parameters that select runs, for URLs of other pages."""
        found = [("q", " ".join(self.words))] if self.words else []
        return [*found, *(("where", str(each)) for each in self.where), *(("run", key) for key in self.runs)]


def value_of(entry: RunEntry, name: str, which: Which = "last") -> Any:
    """Return a setting by path, or a result by name; None if the run has neither. A result takes precedence."""
    if name.startswith("config."):
        return entry.settings.get(name.removeprefix("config."))
    summary = entry.summary or {}
    if which == "best" and (best := summary.get(f"best_{name}")) is not None:
        return best
    if name in summary or name in SUMS or components(name) != (name,):
        parts = [summary.get(part) for part in components(name)]
        return None if any(part is None for part in parts) else parts[0] if len(parts) == 1 else sum(parts)
    if name in entry.settings:
        return entry.settings[name]
    # The last record has the cost of one round; the total of a run is recorded only at its end.
    return entry.last.get(name) if describe(name, entry.own_fields).total == "last" else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return write_value(value).lower()


def _whole(name: str, text: str | None, least: int, most: int) -> int:
    try:
        number = int(text or "")
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ConfigError(f"{name}: expected a whole number from {least} to {most}, got {text!r}")
    return number
