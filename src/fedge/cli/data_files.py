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

Dir = Annotated[str | None, typer.Option("--dir", metavar="DIR", help="The data directory, as data.dir.")]


def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set; fedge info datasets lists them.")],
    origin: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Copy from this directory what it has, and check it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that get the files, and download nothing.")
    ] = False,
    dir: Dir = None,
    format: Format = "text",
) -> None:
    """Download the files of a data set, or copy them.

    Files that are there already are left alone. A download that was interrupted continues
    where it stopped, and is put in place once its SHA-256 is right. Where there is no such
    checksum, or files have to be made from others, the commands to run are printed. The
    exit code is 0 once all files are there.

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
            raise DataError(f"--from: there is no directory {origin}")
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
            help="A data set, or an experiment file; without, all data sets.",
            autocompletion=complete_experiment,
        ),
    ] = None,
    dir: Dir = None,
    format: Format = "text",
) -> None:
    """Check that the files of a data set are there and as published.

    Of an experiment file, also that its data can be divided over its clients as it says.
    Without a name every data set is listed, and those that are there are checked.

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
        say(f"{found['clients']} clients with {found['samples']} training samples of shape {shape}: all is there")


def _check_all(root: Path, format: str) -> None:
    """List every data set that is read from files; a DataError if one is there, but not as it should be."""
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
            ways = {"missing": f"{get} {'gets it' if entry.get('downloadable') else 'says how to get it'}"}
            ways["wrong"] = f"{check} lists its files"
            say(f"{entry['status']:8} {entry['name']:15} {ways.get(entry['status'], '')}".rstrip())
    if bad:
        raise DataError(f"missing or wrong files of {', '.join(bad)}; `fedge data check {bad[0]}` lists them")


def _collections(name: str) -> tuple[Collection, ...]:
    """The files of a data set by its name."""
    from fedge.core.errors import ConfigError
    from fedge.core.schema import choose, tag
    from fedge.data import DATASETS

    kind: Any = choose(name, [kind for kind in DATASETS if tag(kind)], "data.name")
    found: tuple[Collection, ...] = getattr(kind, "sources", ())
    if not found:
        raise ConfigError(
            f"{name} has no files of its own; `fedge data check FILE` checks the data of an experiment file"
        )
    return found


def _findings(collections: Sequence[Collection], root: Path) -> Found:
    return [(collection, finding) for collection in collections for finding in collection.check(root)]


def _problems(found: Found) -> list[str]:
    """The files that are wrong, and those that are missing but needed."""
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
    """Print what there is of each file; a DataError if one that is needed is not there or not right."""
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
        raise DataError(f"{name}: missing or wrong: {', '.join(missing)}; the lines above say how to get them")


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on the terminal, beside the result; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
