"""What `fedge client --data SPEC` names."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedge.config import Config, load
from fedge.core.errors import ConfigError, DataError
from fedge.data.clients import Clients
from fedge.data.data_plan import DataPlan, check_settings, travelling_settings
from fedge.data.own_data import OwnData
from fedge.data.slices import MANIFEST, read_manifest, read_slice


class DataSpec(Protocol):
    """Data of one client, not read yet."""

    @property
    def named(self) -> int | None:
        """The client's number, if its data names one."""

    def load(self, plan: DataPlan, number: int) -> OwnData:
        """Read the data as the server's plan asks for it; a DataError if it does not fit."""


class PartOfExperiment:
    """`experiment.toml#3`: client 3 of the data set that an experiment file divides, as in simulation."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self.named = path, number
        self._config: Config = load(path)

    def load(self, plan: DataPlan, number: int) -> OwnData:
        _check_number(number, self.named)
        options = self._config.data
        if plan.settings is not None:
            check_settings(plan.settings, travelling_settings(options), str(self._path))
        clients: Clients = options.build(plan.seed)
        if self.named >= len(clients.sizes):
            raise DataError(
                f"{self._path}#{self.named}: its clients are 0 to {len(clients.sizes) - 1}; name one of them"
            )
        return OwnData(number, clients, self.named)


class SliceFolder:
    """A folder that `fedge data split` wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._manifest = folder, read_manifest(folder)
        self.named = self._manifest.number

    def load(self, plan: DataPlan, number: int) -> OwnData:
        _check_number(number, self.named)
        if plan.settings is not None:
            check_settings(
                plan.settings | {"seed": plan.seed},
                self._manifest.settings | {"seed": self._manifest.seed},
                str(self._folder),
            )
        return OwnData(number, read_slice(self._folder).client)


def load_spec(spec: str) -> DataSpec:
    """Return the data that a SPEC names; files are read when the server has told what it needs."""
    file, hash, number = spec.rpartition("#")
    if hash and file.endswith(".toml"):
        if not number.isascii() or not number.isdigit() or len(number) > 8:
            raise ConfigError(f"--data: expected FILE.toml#NUMBER with a client's number, got {spec!r}")
        return PartOfExperiment(Path(file), int(number))
    path = Path(spec).expanduser()
    if (path / MANIFEST).is_file():
        return SliceFolder(path)
    raise ConfigError(f"--data: expected FILE.toml#NUMBER or a folder from `fedge data split`, got {spec!r}")


def _check_number(given: int, named: int) -> None:
    if given != named:
        raise DataError(f"the server gave this client number {given}, but its data is that of client {named}")
