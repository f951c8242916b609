"""Write docs/reference/ from the code: `python scripts/make_reference.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from typer.main import get_command

from fedge.cli import app
from fedge.cli.errors import EXIT_CODES
from fedge.cli.options import Option, description, options, title
from fedge.config import Config
from fedge.core.fields import COSTS, COSTS_TO_TARGET, FIELDS, METRICS, SUMMARY_FIELDS, TO_TARGET, Field
from fedge.core.schema import item, structs, tag

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

_ORIGIN = "`scripts/make_reference.py` generates this page from the code; do not edit it."

_EXAMPLE = """```toml
name = "first"
rounds = 20

[data]
name = "digits"
clients = 20
partition = { name = "shards", per_client = 2 }

[model]
name = "mnist_2nn"

[algorithm]
name = "fedavg"
learning_rate = 0.1
local_epochs = 1

[target]
metric = "accuracy"
value = 0.9
```"""


def configuration() -> str:
    """Return the page of all settings of an experiment file."""
    return _page(
        "# Experiment files",
        _ORIGIN,
        "An experiment is a TOML file. Settings that it omits have the defaults given here. `fedge config FILE` prints "
        "all settings, and `--set a.b=v` changes one for a single run. A table that is chosen by its `name` and needs "
        'no other setting can be given as the name alone: `partition = "iid"`.',
        _EXAMPLE,
        "## Top level",
        _table_of_options([option for option in options(Config) if not option.type.startswith("table")]),
        *(part for kinds, paths in _tables(Config).items() for part in _section(kinds, paths)),
    )


def commands() -> str:
    """Return the page of all commands."""
    codes = _table(("code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])
    return _page(
        "# Commands",
        _ORIGIN,
        "`fedge --install-completion` installs shell completion of commands, options, experiment files and runs. With "
        "`FEDGE_DEBUG=1` errors include a traceback.",
        *(part for name, command in _commands(get_command(app), "fedge") for part in _command(name, command)),
        "## Exit codes",
        codes,
    )


def fields() -> str:
    """Return the page of all recorded fields."""
    return _page(
        "# Recorded fields",
        _ORIGIN,
        "Records hold bytes, seconds, joules, and accuracies from 0 to 1. *Shown in* lists the units in tables and "
        "charts. *Better* is the direction in which results are compared. *Total* is how a run's value is computed: "
        "the sum over its rounds, or the last recorded value.",
        "## In every round",
        _table_of_fields([field for field in FIELDS if not field.when]),
        "## In some rounds",
        "A value that was not measured is absent, not zero. Each of `evaluate.metrics` adds a field with its name and, "
        "with `data.validation`, a field with the prefix `validation_`; `config.json` has its direction and range.",
        _table_of_fields([field for field in FIELDS if field.when]),
        "## In the summary",
        _table(
            ("field", "meaning"),
            [
                *((f"`{field.name}`", field.meaning) for field in SUMMARY_FIELDS),
                (_names(METRICS), "last measured value"),
                (_names(f"best_{name}" for name in METRICS), "best measured value"),
                (_names(COSTS), "totals"),
                (
                    _names(name + TO_TARGET for name in ("rounds", *COSTS_TO_TARGET)),
                    "totals when the target was first reached; null if it was not reached, or if there is no target",
                ),
                ("`seconds`", "real seconds of all rounds"),
            ],
        ),
        "## Derived names",
        "Charts and reports also accept `mean_` and `median_` of any field over the rounds of a run, such as "
        "`mean_sim_up_s`, and `bytes` for the sum of `bytes_up` and `bytes_down`, also as `bytes_to_target`. A field "
        "that is not on this page is shown as a plain number without a better direction.",
    )


def _table_of_fields(found: Sequence[Field]) -> str:
    conditional = any(field.when for field in found)
    rows = [
        (
            f"`{field.name}`",
            *([field.when] if conditional else []),
            field.meaning,
            ", ".join(unit.name for unit in field.units),
            "" if field.better == "neither" else field.better,
            field.total if field.role not in ("setting", "label") else "",
        )
        for field in found
    ]
    return _table(("field", *(["when"] if conditional else []), "meaning", "shown in", "better", "total"), rows)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _tables(kind: type[Struct], prefix: str = "") -> dict[tuple[type[Struct], ...], list[str]]:
    """Return the tables below a struct, at any depth, with their paths in an experiment file."""
    found: dict[tuple[type[Struct], ...], list[str]] = {}
    for field in msgspec.structs.fields(kind):
        if kinds := tuple(structs(field.type) or structs(item(field.type))):
            path = prefix + field.name
            below = [found_below for inner in kinds for found_below in _tables(inner, f"{path}.").items()]
            for tables, paths in [(kinds, [path]), *below]:
                known = found.setdefault(tables, [])
                known += [path for path in paths if path not in known]
    return found


def _section(kinds: Sequence[type[Struct]], paths: Sequence[str]) -> Iterator[str]:
    yield "## " + ", ".join(f"`{path}`" for path in paths)
    if len(kinds) == 1 and tag(kinds[0]) is None:
        yield description(kinds[0])
        yield _table_of_options(options(kinds[0]))
        return
    key = kinds[0].__struct_config__.tag_field
    everywhere = [option for option in options(kinds[0]) if all(option in options(kind) for kind in kinds)]
    if everywhere and len(kinds) > 1:
        yield f"For every {key}:"
        yield _table_of_options(everywhere)
    for kind in kinds:
        yield f'### `{key} = "{title(kind)}"`'
        yield description(kind)
        own = [option for option in options(kind) if len(kinds) == 1 or option not in everywhere]
        if own:
            yield _table_of_options(own)


def _table_of_options(found: Sequence[Option]) -> str:
    rows = [
        (
            f"`{o.name}`",
            o.type,
            "required" if o.required else f"`{o.default}`" if o.default else "",
            o.meaning,
        )
        for o in found
    ]
    return _table(("option", "type", "default", "meaning"), rows)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below a group, at any depth, with their full names."""
    for name, command in group.commands.items():
        full = f"{prefix} {name}"
        yield full, command
        if hasattr(command, "commands"):
            yield from _commands(command, full)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [_value(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    words = [name, "[OPTIONS]", *arguments]
    if hasattr(command, "commands"):
        words = [name, "[OPTIONS]", "[COMMAND]"] if command.invoke_without_command else [name, "COMMAND", "[OPTIONS]"]
    text, _, examples = inspect.cleandoc(command.help).partition("\n\nExamples:\n\n")
    yield f"## {name}"
    yield f"```\n{' '.join(words)}\n```"
    yield text
    yield f"```console\n{inspect.cleandoc(examples)}\n```"
    if command.params:
        yield _table(("argument or option", "default", "meaning"), [_row(parameter) for parameter in command.params])


def _row(parameter: Any) -> tuple[str, str, str]:
    names = ", ".join(parameter.opts) if parameter.param_type_name == "option" else ""
    given = "" if parameter.default in (None, False) else f"`{parameter.default}`"
    default = "required" if parameter.required else given
    return f"`{f'{names} {_value(parameter)}'.strip()}`", default, parameter.help.replace("\\[", "[")


def _value(parameter: Any) -> str:
    """Return the placeholder of a parameter; optional arguments are in brackets."""
    value = f"{parameter.metavar or ''}{'...' if parameter.nargs == -1 else ''}"
    return f"[{value}]" if parameter.param_type_name == "argument" and not parameter.required else value


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "commands.md": commands,
    "fields.md": fields,
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
