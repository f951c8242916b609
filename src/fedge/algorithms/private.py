"""Private tensors: their selection, and the split of vectors into a private and a shared part."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta
from torch import Tensor

from fedge.core.errors import ConfigError
from fedge.core.layout import Entry, Kind, Layout
from fedge.core.schema import Options

Private = Literal["bn", "bn_params", "bn_stats", "none"] | list[str]


class Personal(Options, tag=False):
    """MTFL around the algorithm: private tensors never leave their client."""

    private: Annotated[
        Private,
        Meta(
            description="bn, bn_params (gamma, beta), bn_stats (mean, variance), none, or glob patterns of tensor names"
        ),
    ] = "bn_params"


def private_part(layout: Layout, private: Private) -> tuple[Layout, Layout]:
    """Return the layouts of the private and of the shared tensors; raises ConfigError if nothing would be private."""
    statistics = set(layout.stats)
    rules: dict[str, Callable[[Entry], bool]] = {
        "bn": lambda entry: entry.norm,
        "bn_params": lambda entry: entry.norm and entry not in statistics,
        "bn_stats": lambda entry: entry in statistics,
        "none": lambda entry: False,
    }
    if isinstance(private, str):
        rule = rules[private]
    else:
        names = [entry.name for entry in (*layout.params, *layout.stats)]
        for pattern in private:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"personal.private: {pattern!r} matches no tensor; the model has {', '.join(names)}")
        rule = lambda entry: any(fnmatchcase(entry.name, pattern) for pattern in private)  # noqa: E731
    mine = layout.part(rule)
    if private != "none" and not (mine.params or mine.stats):
        raise ConfigError(f"personal.private: the model has no BatchNorm layer, so {private!r} selects nothing")
    return mine, layout.part(lambda entry: not rule(entry))


def take(layout: Layout, value: Tensor, part: Layout, kind: Kind) -> Tensor:
    """Return a part's share of a vector; a scalar that `put` spread over the parameters becomes a scalar again."""
    if kind != "scalar":
        return layout.take(value, part, kind)
    return value if value.shape[-1] == 1 else layout.take(value, part, "params")[..., :1]


def put(layout: Layout, ours: Layout, shared: Tensor, mine: Layout, own: Tensor, kind: Kind) -> Tensor:
    """Return a vector of the whole model from its two parts; scalars are spread over the parameters of their part."""
    if kind != "scalar":
        return layout.put([(ours, shared), (mine, own)], kind)
    if not mine.params:
        return shared
    return layout.put([(ours, shared), (mine, own)], "params") if ours.params else own
