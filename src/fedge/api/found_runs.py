"""Find the run that `Experiment.run(resume=True)` continues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedge import config as configuration
from fedge.config import Config
from fedge.core.effect import settings
from fedge.core.errors import FedgeError, RunError
from fedge.core.schema import show
from fedge.runs.files import CONFIG, read_environment
from fedge.runs.read import RunRecords

_MOST_SHOWN = 5
_REMEDIES = {
    "model.digest": (
        "the model's code, structure or initial weights; seed torch before creating a module, or pass its class"
    ),
    "data.digest": "the samples",
}


def find_same(config: Config, place: Path) -> Path | None:
    """Return the newest run at `place`, `place`-2, ... with the same settings except `rounds`; None if there is no run.

    If every run has other settings, raise a RunError that names the differences of the newest.
    """
    wanted = _comparable(config)
    candidates = sorted(_candidates(place), key=_age, reverse=True)
    problems = []
    for path in candidates:
        try:
            found = _comparable(configuration.parse(RunRecords(path).config))
        except FedgeError as error:
            problems.append(f"{path}: {error}")
            continue
        if found == wanted:
            return path
        problems.append(f"{path} differs in {_difference(found, wanted)}")
    if problems:
        raise RunError(f"resume: {problems[0]}. Start a new run without resume=True, or choose another name")
    return None


def _candidates(place: Path) -> Iterator[Path]:
    """Yield the runs with this name, or with a number appended because the name was taken."""
    folder = place.parent
    for path in folder.iterdir() if folder.is_dir() else ():
        if re.fullmatch(rf"{re.escape(place.name)}(-\d+)?", path.name) and (path / CONFIG).is_file():
            yield path


def _age(path: Path) -> tuple[str, int, str]:
    started = read_environment(path).get("started")
    return str(started or ""), len(path.name), path.name


def _comparable(config: Config) -> dict[str, Any]:
    found = configuration.effective(config)
    del found["rounds"]
    return found


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    there, here = dict(settings(found)), dict(settings(wanted))
    other = [key for key in dict.fromkeys([*here, *there]) if there.get(key) != here.get(key)]
    named = [
        _REMEDIES.get(key) or f"{key} ({show(there.get(key))} there, {show(here.get(key))} here)"
        for key in other[:_MOST_SHOWN]
    ]
    return ", ".join(named) + (" and more" if len(other) > _MOST_SHOWN else "")
