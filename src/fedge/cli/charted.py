"""Whether a chart's metric can be there, found out before anything is trained or printed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import FIELDS

if TYPE_CHECKING:
    from fedge.config import Config


def check_charted(y: str, config: Config | None = None) -> None:
    """Raise a ConfigError unless records have the field y; of a configuration, unless its runs measure it."""
    known = {field.name: field for field in FIELDS if field.role != "label"}
    if y not in known:
        raise ConfigError(f"--y: no round has {y!r}{nearest(y, known)}; recorded: {', '.join(known)}")
    needed = re.search(r"with `([a-z_.]+)`", known[y].when)
    if config is None or needed is None:
        return
    value: Any = config
    for name in needed[1].split("."):
        value = getattr(value, name)
    if not value:
        example = "0.1" if needed[1] == "data.validation" else "true"
        raise ConfigError(f"--y: {y} is not measured; set {needed[1]}={example}")
