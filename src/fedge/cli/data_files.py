"""`fedge data get` and `fedge data check`"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli.parameters import Format, complete_experiment

if TYPE_CHECKING:
    from fedge.data.download import Progress
    from fedge.data.files import Collection, Finding

    Found = list[tuple[Collection, Finding]]

Dir = Annotated[str | None, typer.Option("--dir", metavar="DIR", help="The data directory, like data.dir.")]


def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set; see fedge info datasets.")],
    origin: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Copy the files from this directory and check them.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Download nothing; print the commands that would get the files.")
    ] = False,
    dir: Dir = None,
    format: Format = "text",
) -> None:
    """Download or copy the files of a data set.

    Existing files are kept. An interrupted download continues where it stopped; a file is
    moved into place only after its SHA-256 has been verified. If a file has no published
    checksum, or must be converted from other files, the commands to run are printed
    instead. The exit code is 0 once all files are present.

    Examples:

      fedge data get mnist
      fedge data get mnist --from ~/Downloads
      fedge data get cifar10 --dry-run
    """
    from fedge.cli.output import say
    from fedge.core.errors import DataError
    from fedge.data.download import fetch
    from fedge.data.files import data_dir

    root = data_dir(dir)
    collections = _collections(name)
    if origin is not None:
        if not origin.is_dir():
            raise DataError(f"--from: no such directory: {origin}")
        copied = [path for collection in collections for path in collection.copy(origin, root)]
        if format == "text":
            say(*(f"copied {path}" for path in copied))
    elif not dry_run:
        for download, target in [each for collection in collections for each in collection.downloads(root)]:
            with _progress(target.name) as progress:
                fetch(download, target, progress)
            if format == "text":
                say(f"downloaded {target}")
    _report(name, _findings(collections, root), format)


def check(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="A data set or an experiment file; default: all data sets.",
            autocompletion=complete_experiment,
        ),
    ] = None,
    dir: Dir = None,
    format: Format = "text",
) -> None:
    """Check that the files of a data set are present and match their published checksums.

    For an experiment file, also check that its data can be partitioned as configured.
    Without an argument, list every data set and check those that are present.

    Examples:

      fedge data check
      fedge data check mnist
      fedge data check cifar10 --dir ~/data
      fedge data check first.toml
    """
    from fedge.data.files import data_dir

    if name is None:
        _check_all(data_dir(dir), format)
        return
    if not name.endswith(".toml"):
        _report(name, _findings(_collections(name), data_dir(dir)), format)
        return
    from fedge.cli.output import say, say_json
    from fedge.config import load

    options: Any = load(Path(name), [f"data.dir={dir}"] if dir else ()).data
    clients = options.build(1)
    found = {"clients": len(clients.sizes), "samples": int(clients.sizes.sum()), "shape": clients.shape}
    if format == "json":
        say_json(found)
    else:
        shape = "x".join(map(str, clients.shape))
        say(f"ok: {found['clients']} clients with {found['samples']} training samples of shape {shape}")


def _check_all(root: Path, format: str) -> None:
    """List every data set that is read from files; raise a DataError if one is incomplete or damaged."""
    from fedge.cli.output import say, say_json
    from fedge.core.errors import DataError
    from fedge.core.schema import tag
    from fedge.data import DATASETS

    listed: list[dict[str, Any]] = []
    bad: list[str] = []
    for kind in DATASETS:
        if not (sources := getattr(kind, "sources", ())):
            continue
        name = str(tag(kind))
        found = _findings(sources, root)
        if all(finding.status == "missing" for _, finding in found):
            can = all(source.download for collection in sources for source in collection.files)
            listed.append({"name": name, "status": "missing", "downloadable": can, "files": []})
            continue
        problems = _problems(found)
        bad += [name] if problems else []
        status = "wrong" if problems else "ok"
        listed.append({"name": name, "status": status, "files": [_entry(*each) for each in found]})
    if format == "json":
        say_json(listed)
    else:
        say(f"data directory {root}")
        for entry in listed:
            get, check = (f"`fedge data {command} {entry['name']}`" for command in ("get", "check"))
            ways = {"missing": f"{get} {'downloads it' if entry.get('downloadable') else 'explains how to get it'}"}
            ways["wrong"] = f"{check} lists its files"
            say(f"{entry['status']:8} {entry['name']:15} {ways.get(entry['status'], '')}".rstrip())
    if bad:
        raise DataError(f"missing or wrong files of {', '.join(bad)}; `fedge data check {bad[0]}` lists them")


def _collections(name: str) -> tuple[Collection, ...]:
    """Return the file collections of a data set; raise a ConfigError if it is unknown or is not read from files."""
    from fedge.core.errors import ConfigError
    from fedge.core.schema import choose, tag
    from fedge.data import DATASETS

    kind: Any = choose(name, [kind for kind in DATASETS if tag(kind)], "data.name")
    found: tuple[Collection, ...] = getattr(kind, "sources", ())
    if not found:
        raise ConfigError(
            f"{name} is not read from published files; `fedge data check FILE` checks the data of an experiment file"
        )
    return found


def _findings(collections: Sequence[Collection], root: Path) -> Found:
    return [(collection, finding) for collection in collections for finding in collection.check(root)]


def _problems(found: Found) -> list[str]:
    """Return the names of the files that are wrong, or missing and required."""
    return [
        finding.source.name
        for collection, finding in found
        if finding.status == "wrong" or (finding.status == "missing" and not collection.purpose)
    ]


def _entry(collection: Collection, finding: Finding) -> dict[str, str | None]:
    return {
        "file": finding.source.name,
        "status": finding.status,
        "path": str(finding.path),
        "problem": finding.problem or None,
        "purpose": collection.purpose or None,
    }


def _report(name: str, found: Found, format: str) -> None:
    """Print the status of each file; raise a DataError if one is wrong, or missing and required."""
    from fedge.cli.output import say, say_json
    from fedge.core.errors import DataError

    if format == "json":
        say_json([_entry(*each) for each in found])
    else:
        for collection, finding in found:
            purpose = f" (only for {collection.purpose})" if collection.purpose else ""
            problem = f"\n         {finding.problem}" if finding.problem else ""
            say(f"{finding.status:8} {finding.path}{purpose}{problem}")
    if missing := _problems(found):
        raise DataError(f"{name}: missing or wrong: {', '.join(missing)}; the lines above explain how to get them")


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """Yield a callback that draws a progress bar on a terminal's stderr, and does nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
