"""Check which settings of a run may change when it is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedge import config as configuration
from fedge.config import Config
from fedge.core.errors import ConfigError
from fedge.runs.read import Run

_SAME = ("name", "seed", "seeds", "data", "model", "personal", "codec", "cluster")
"""Settings that identify a run: changing them makes another run, unless the changed options do not affect results."""
_OF_THE_END = ("rounds", "target", "budget")
"""Settings that determine when a run ends and what its summary contains."""


def changed_config(path: Path, changes: Sequence[str] | Mapping[str, Any]) -> Config:
    """Return the configuration of a run with changes applied. Raises ConfigError if they would make another run."""
    before = configuration.parse(Run(path).config)
    values = changes if isinstance(changes, Mapping) else configuration.assignments(changes)
    config = configuration.parse(configuration.change(configuration.plain(before), values))
    check_same_run(before, config)
    return config


def check_same_run(before: Config, config: Config) -> None:
    """Raise a ConfigError that names every setting that would change although it must not."""
    had, wanted = configuration.effective(before), configuration.effective(config)
    fixed = [name for name in _SAME if had[name] != wanted[name]]
    if type(before.algorithm) is not type(config.algorithm):
        fixed.append("algorithm.name")
    if before.engine.dtype != config.engine.dtype:
        fixed.append("engine.dtype")
    if (before.edge.divided, before.edge.cell_grid) != (config.edge.divided, config.edge.cell_grid):
        fixed.append("edge.cells")
    if fixed:
        raise ConfigError(*(f"{name}: cannot change when a run is resumed; start a new run instead" for name in fixed))


def check_takes_effect(before: Config, config: Config, trained: int) -> None:
    """Raise a ConfigError that names every changed setting without effect because no round is left to use it.

    Otherwise the configuration of a complete run would have values that it was not made with.
    """
    if unused := settings_without_rounds(before, config, trained):
        raise ConfigError(
            *(
                f"{name}: has no effect, since all {trained} rounds are done; also set rounds above {trained}"
                for name in unused
            )
        )


def settings_without_rounds(before: Config, config: Config, trained: int) -> list[str]:
    """Return the changed settings that no round is left to use."""
    if config.rounds > trained:
        return []
    had, wanted = configuration.effective(before), configuration.effective(config)
    return [name for name in had if name not in _OF_THE_END and had[name] != wanted.get(name)]
