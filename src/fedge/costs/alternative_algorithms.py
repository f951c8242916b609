"""Costs of the same model and data with other algorithms, and with compressed uploads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from fedge.algorithms import ALGORITHMS, CodecOptions
from fedge.algorithms.options import TrainingOptions
from fedge.config import Config
from fedge.core.errors import FedgeError
from fedge.core.parts import short_name
from fedge.core.schema import tag
from fedge.costs.forecast import Forecast, Quote
from fedge.experiment.setup import Setup
from fedge.schedules import SchedulePlan

SPARSITIES = (0.6, 0.9, 0.95)
"""Sparsities for which compressed uploads are quoted."""

_OPTIMISERS: dict[str | None, tuple[str, ...]] = dict.fromkeys(
    ("mfl", "mimelite", "mimexlite", "fedgbo"), ("sgdm", "rmsprop", "adam")
)
"""Algorithms whose optimiser affects a client's costs; others have a fixed one, or run it on the server."""


class Alternative(NamedTuple):
    """The costs of an algorithm."""

    algorithm: str
    codec: str  # none if empty
    quote: Quote
    configured: bool = False


def alternatives(setup: Setup) -> Iterator[Alternative]:
    """Yield the configured algorithm, all others, and some with compressed uploads. Invalid ones are skipped."""
    config = setup.config
    own = _named(config)
    yield from _quotes(setup, configured=True)
    plain = msgspec.structs.replace(config, codec=None, schedule=SchedulePlan(local_steps=config.schedule.local_steps))
    for variant in _variants(plain):
        if _named(variant) == own:
            continue
        try:
            built = setup.variant(variant)
        except FedgeError:
            continue
        yield from _quotes(built)


def _variants(config: Config) -> Iterator[Config]:
    amount = {name: getattr(config.algorithm, name) for name in ("batch_size", "local_steps", "local_epochs")}

    def using(algorithm: TrainingOptions, codec: CodecOptions | None = None) -> Config:
        return msgspec.structs.replace(config, algorithm=algorithm, codec=codec)

    kinds: dict[str | None, Any] = {tag(kind): kind for kind in ALGORITHMS}
    for name, kind in kinds.items():
        if name in _OPTIMISERS:
            yield from (using(kind(**amount, optimiser=optimiser)) for optimiser in _OPTIMISERS[name])
        elif name != "ce_fedavg":
            yield using(kind(**amount))
    for sparsity in SPARSITIES:
        codec = CodecOptions(up=[f"sparsify({sparsity:g})", "uniq", "golomb"], moments=["expq"])
        yield using(kinds["fedavg"](**amount), CodecOptions(up=codec.up))
        yield using(kinds["ce_fedavg"](**amount, sparsity=sparsity))
        if tag(type(config.algorithm)) not in ("fedavg", "ce_fedavg"):
            yield using(config.algorithm, codec)


def _quotes(setup: Setup, configured: bool = False) -> Iterator[Alternative]:
    """Yield the highest costs of an algorithm, and the lowest if they are known to differ."""
    name, codec = _named(setup.config)
    forecast = Forecast(setup)
    yield Alternative(name, codec, forecast.quote(), configured)
    if len(forecast.parts) > 1:
        yield Alternative(f"{name}, silent", codec, Forecast(setup, still=True).quote(), configured)


def _named(config: Config) -> tuple[str, str]:
    """Return labels of (algorithm, codec)."""
    algorithm: Any = config.algorithm
    codec, name = config.codec, short_name(str(tag(type(algorithm))))
    if name in _OPTIMISERS:
        name += f"({algorithm.optimiser})"
    if name == "ce_fedavg":
        name += f"({algorithm.sparsity:g})"
    ways = {"": codec.up, "moments: ": codec.moments, "down: ": codec.down} if codec else {}
    return name, "; ".join(way + ", ".join(stages) for way, stages in ways.items() if stages)
