"""Write docs/reference/ from the code: `python scripts/make_reference.py`."""

from __future__ import annotations

import inspect
import re
from collections import Counter
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
from fedge.core.schema import item, structs

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
        options_table([option for option in options(Config) if not option.type.startswith("table")]),
        *_sections(_tables(Config)),
    )


def commands() -> str:
    """Return the page of all commands."""
    codes = table(("code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])
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
        "A value that was not measured is absent, not zero; metrics of the model are measured every `evaluate.every` "
        "rounds. Each of `evaluate.metrics` adds a field with its name and, with `data.validation`, a field with the "
        "prefix `validation_`; `config.json` has its direction and range.",
        _table_of_fields([field for field in FIELDS if field.when]),
        "## In the summary",
        table(
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
            field.meaning,
            *([field.when.removeprefix("evaluated, ")] if conditional else []),
            ", ".join(unit.name for unit in field.units),
            "" if field.better == "neither" else field.better,
            field.total if field.role not in ("setting", "label") else "",
        )
        for field in found
    ]
    return table(("field", "meaning", *(["when"] if conditional else []), "shown in", "better", "total"), rows)


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


def _sections(found: Mapping[tuple[type[Struct], ...], Sequence[str]]) -> Iterator[str]:
    """Yield a section for each table; one whose kinds have a section already leads there."""
    described: dict[tuple[type[Struct], ...], str] = {}
    for kinds, paths in found.items():
        heading = ", ".join(f"`{path}`" for path in paths)
        yield f"## {heading}"
        if known := next((text for above, text in described.items() if {*kinds} < {*above}), None):
            anchor = re.sub(r"[^\w -]", "", known).replace(" ", "-")
            yield f"One of these, with the options of [{known}](#{anchor}): {_names(title(kind) for kind in kinds)}."
        else:
            described[kinds] = heading
            yield from parts(kinds)


def parts(kinds: Sequence[type[Struct]]) -> Iterator[str]:
    """Yield the options of one struct, or of each kind of a table; those that most kinds share come first, once."""
    if len(kinds) == 1:
        yield from _kind(kinds[0])
        return
    key = kinds[0].__struct_config__.tag_field
    count = Counter(option for kind in kinds for option in options(kind))
    shared = [option for option, times in count.items() if 2 * times > len(kinds)]
    if shared:
        everywhere = all(count[option] == len(kinds) for option in shared)
        yield f"For every {key}:" if everywhere else f"For every {key}, unless its section differs:"
        yield options_table(shared)
    for kind in kinds:
        yield f'### `{key} = "{title(kind)}"`'
        yield from _kind(kind, shared)


def _kind(kind: type[Struct], shared: Sequence[Option] = ()) -> Iterator[str]:
    yield prose(description(kind))
    found = options(kind)
    if own := [option for option in found if option not in shared]:
        yield options_table(own)
    if missing := {option.name for option in shared} - {option.name for option in found}:
        yield f"Without {_names(option.name for option in shared if option.name in missing)}."


def options_table(found: Sequence[Option]) -> str:
    return table(("option", "meaning", "type", "default"), [row(option, [default(option)]) for option in found])


def row(option: Option, defaults: Sequence[str]) -> list[str]:
    """Return the cells of an option; a line does not break inside of `>= 0`."""
    return [f"`{option.name}`", prose(option.meaning), re.sub(r"([<>]=?) ", r"\1&nbsp;", option.type), *defaults]


def default(option: Option) -> str:
    return "required" if option.required else f"`{option.default}`" if option.default else ""


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
    yield prose(text)
    yield f"```console\n{inspect.cleandoc(examples)}\n```"
    if command.params:
        yield table(("argument or option", "default", "meaning"), [_row(parameter) for parameter in command.params])


def _row(parameter: Any) -> tuple[str, str, str]:
    names = ", ".join(parameter.opts) if parameter.param_type_name == "option" else ""
    given = "" if parameter.default in (None, False, "") else f"`{parameter.default}`"
    value = "required" if parameter.required else given
    return f"`{f'{names} {_value(parameter)}'.strip()}`", value, prose(parameter.help.replace("\\[", "["))


def _value(parameter: Any) -> str:
    """Return the placeholder of a parameter; optional arguments are in brackets."""
    value = f"{parameter.metavar or ''}{'...' if parameter.nargs == -1 else ''}"
    return f"[{value}]" if parameter.param_type_name == "argument" and not parameter.required else value


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def prose(text: str) -> str:
    """Return a docstring or help text as Markdown, in which an asterisk is no emphasis and an option is code."""
    outside = re.compile(r"(`[^`]*`)|(\*)|(?<![\w-])(--[a-z][a-z-]*)")
    return outside.sub(lambda found: found[1] or (f"`{found[3]}`" if found[3] else r"\*"), text)


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
