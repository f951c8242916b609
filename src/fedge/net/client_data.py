"""The data that `fedge client --data SPEC` refers to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from re import fullmatch
from typing import Any, Protocol

from fedge.config import load
from fedge.core.errors import ConfigError, DataError
from fedge.data.clients import Clients
from fedge.data.data_plan import DataPlan, check_settings, travelling_settings
from fedge.data.fitting import DataForm, fit
from fedge.data.own_data import OwnData
from fedge.data.own_files import is_own_file, read_own
from fedge.data.slices import MANIFEST, read_manifest, read_slice


class DataSpec(Protocol):
    """The source of one client's data, not read yet."""

    @property
    def named(self) -> int | None:
        """The client's number, if its data names one."""

    def load(self, plan: DataPlan, number: int) -> OwnData:
        """Read the data in the form that the server's plan requires; raise a DataError if it does not match."""


class PartOfExperiment:
    """`experiment.toml#3`: client 3 of an experiment's partitioned data set, as in simulation."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self.named = path, number
        self._options = load(path).data
        num_clients = getattr(self._options, "clients", None)  # None: the data determines the number
        if num_clients is not None:
            self._check_number(num_clients)

    def load(self, plan: DataPlan, number: int) -> OwnData:
        _check(plan, number, self.named, travelling_settings(self._options), str(self._path))
        clients: Clients = self._options.build(plan.seed)
        self._check_number(len(clients.sizes))
        names = (getattr(clients, "classes", ()), getattr(clients, "features", ()))
        return _own(clients, self.named, names, plan, number, str(self._path))

    def _check_number(self, num_clients: int) -> None:
        if self.named >= num_clients:
            raise DataError(
                f"{self._path}#{self.named}: expected a client number from 0 to {num_clients - 1}, got {self.named}"
            )


class SliceFolder:
    """A folder written by `fedge data split`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._manifest = folder, read_manifest(folder)
        self.named = self._manifest.number

    def load(self, plan: DataPlan, number: int) -> OwnData:
        manifest = self._manifest
        _check(plan, number, self.named, manifest.settings, str(self._folder), manifest.seed)
        client = read_slice(self._folder, manifest)
        return _own(client, 0, (manifest.classes, manifest.columns), plan, number, str(self._folder))


class OwnFile:
    """The client's own files, or a function that returns arrays."""

    named = None

    def __init__(self, spec: str) -> None:
        self._spec = spec

    def load(self, plan: DataPlan, number: int) -> OwnData:
        return read_own(self._spec, plan, number)


def load_spec(spec: str) -> DataSpec:
    """Return the data source of a SPEC; samples are read later, once the server's plan is known.

    Raises a ConfigError for a malformed SPEC or a missing file.
    """
    if found := fullmatch(r"(.+\.toml)#([0-9]{1,8})", spec):
        return PartOfExperiment(Path(found[1]).expanduser(), int(found[2]))
    path = Path(spec).expanduser()
    if (path / MANIFEST).is_file():
        return SliceFolder(path)
    if ".py:" not in spec and not path.exists() and "#" not in spec:
        raise ConfigError(f"--data: no such file or folder: {path}")
    if is_own_file(spec):
        return OwnFile(spec)
    raise ConfigError(
        "--data: expected FILE.toml#NUMBER, a folder from `fedge data split`, a folder of images or .npy arrays, a "
        f".csv, .parquet or .npz file, or FILE.py:FUNCTION, got {spec!r}"
    )


def _check(
    plan: DataPlan, number: int, named: int, settings: Mapping[str, Any], whose: str, seed: int | None = None
) -> None:
    """Raise a DataError if number, settings or seed of the data differ from the server's."""
    if number != named:
        raise DataError(f"the server gave this client number {number}, but its data belongs to client {named}")
    if plan.settings is not None:
        check_settings(plan.settings, settings, whose)
        if seed is not None and seed != plan.seed:
            raise DataError(f"seed: the server has {plan.seed}, but {whose} was split with seed {seed}; split it again")
    elif (plan.scaling or plan.sums) and settings.get("normalise"):
        raise DataError(f"data.normalise: the server already normalises inputs; remove it from {whose}")


def _own(
    source: Clients, place: int, names: tuple[tuple[str, ...], tuple[str, ...]], plan: DataPlan, number: int, whose: str
) -> OwnData:
    """Return one client's part of a data set; it is already normalised if the server uses the same settings."""
    fitting = fit(DataForm(source.shape, source.num_outputs, source.task, *names), plan, whose)
    return OwnData(number, source, place, plan, fitting, normalise=plan.settings is None)
