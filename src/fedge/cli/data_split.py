"""`fedge data split`"""

from __future__ import annotations

from pathlib import Path
from re import fullmatch
from typing import Annotated, Any

import typer

from fedge.cli.parameters import Changes, Format, complete_experiment


def split(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An experiment file.", autocompletion=complete_experiment)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the folders.")],
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="N,N,...", help="Numbers of the clients to write; default: all.")
    ] = None,
    changes: Changes = None,
    format: Format = "text",
) -> None:
    """Write each client's share of an experiment's data to a separate folder.

    Pass a folder to `fedge client --data` on another machine: that client then has exactly
    the samples and the number that it has in simulation. Existing folders are replaced.
    Data that changes by round (data.drift, data.augment) cannot be split.

    Examples:

      fedge data split first.toml -o parts
      fedge data split first.toml -o parts --clients 0,1,2
    """
    from fedge.cli.output import say, say_json
    from fedge.config import load
    from fedge.core.errors import ConfigError
    from fedge.data.data_plan import travelling_settings
    from fedge.data.slices import write_slice

    config = load(file, changes or ())
    options: Any = config.data
    for name in ("drift", "augment"):
        if getattr(options, name, None) is not None:
            raise ConfigError(
                f"data.{name}: changes samples every round, so a folder cannot hold them; remove it, or give clients "
                f"the experiment file: --data {file.name}#0"
            )
    if config.seed is None:
        raise ConfigError(f"seeds: expected one seed, got {len(config.seeds or ())}; pass --set seed=1")
    divided = options.build(config.seed)
    chosen = _numbers(clients, len(divided.sizes))
    settings = travelling_settings(options)
    folders = [write_slice(output, divided, number, config.seed, settings) for number in chosen]
    if format == "json":
        say_json([{"client": number, "folder": str(path)} for number, path in zip(chosen, folders, strict=True)])
    else:
        say(*(f"wrote {folder}" for folder in folders))


def _numbers(text: str | None, num_clients: int) -> list[int]:
    from fedge.core.errors import ConfigError

    if text is None:
        return list(range(num_clients))
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not fullmatch("[0-9]{1,8}", part) or int(part) >= num_clients]
    if wrong:
        raise ConfigError(f"--clients: expected numbers from 0 to {num_clients - 1}, got {wrong[0]!r}")
    return sorted({int(part) for part in parts})
