"""Chains of compression stages as written in a configuration: `["sparsify(0.9)", "uniq", "golomb"]`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, cast

from msgspec import Meta, field

from fedge.core.codecs.golomb import bits_per_index
from fedge.core.codecs.quantise import FLOAT32, ExpQ, Fp16, Qsgd, Quantiser, QuantiserStage, UniQ
from fedge.core.errors import ConfigError, nearest
from fedge.core.layout import Entry, Layout
from fedge.core.parts import find_own, own_entries
from fedge.core.schema import Options, read

FRAME_BITS = 96  # of a stream: magic, signature, checksum
COUNT_BITS = 32  # of a sparse tensor: the number of kept values and the Golomb parameter b*
_STAGE = re.compile(r"(\w+)(?:\(\s*([-+.\w]+)\s*\))?")


@dataclass(frozen=True)
class Chain:
    """The compression applied to each tensor of a vector."""

    sparsity: float | None = None  # fraction of values dropped; None: dense, all values travel without indices
    quantiser: Quantiser = FLOAT32
    golomb: bool = False
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise ConfigError(f"sparsify expects a fraction of at least 0 and below 1, got {self.sparsity}")
        if self.golomb and self.sparsity is None:
            raise ConfigError("golomb encodes the indices of kept values; put sparsify(s) before it")
        if self.error_feedback and getattr(self.quantiser, "is_random", False):
            raise ConfigError(
                f"error_feedback cannot be combined with {self.quantiser.name}, whose random rounding is unbiased and "
                "leaves no error to feed back; drop one of them, or quantise with uniq, expq or fp16"
            )
        if self.error_feedback and not self.loses:
            raise ConfigError("error_feedback needs a lossy stage after it: sparsify or a quantiser")

    @property
    def loses(self) -> bool:
        return self.sparsity is not None or self.quantiser != FLOAT32

    @property
    def is_full(self) -> bool:
        """Whether the chain only quantises: it neither sparsifies nor feeds errors back."""
        return self.sparsity is None and not self.error_feedback

    def sparsity_of(self, entry: Entry) -> float | None:
        """Return the sparsity of one tensor; one-dimensional tensors only drop zeros."""
        return 0.0 if self.sparsity is not None and len(entry.shape) <= 1 else self.sparsity


class _Stage(NamedTuple):
    order: int
    help: str
    fields: Callable[[str], dict[str, Any]]  # argument -> fields of the chain
    argument: str = ""  # name of the argument in parentheses


_QUANTISING = 2  # the order of a quantiser
_STAGES = {
    "error_feedback": _Stage(
        0, "a client adds the error of its last upload to its next change", lambda _: {"error_feedback": True}
    ),
    "sparsify": _Stage(
        1,
        "drops the smallest changes of each tensor, a fraction s of them; one-dimensional tensors only drop zeros",
        lambda s: {"sparsity": float(s)},
        "s",
    ),
    "uniq": _Stage(
        _QUANTISING, "8 bits per value: equal steps between the bounds of each sign", lambda _: {"quantiser": UniQ()}
    ),
    "expq": _Stage(
        _QUANTISING, "8 bits per value: equal ratios, for a wide range of magnitudes", lambda _: {"quantiser": ExpQ()}
    ),
    "qsgd": _Stage(
        _QUANTISING,
        "2, 4 or 8 bits per value, rounded at random without bias",
        lambda bits: {"quantiser": Qsgd(int(bits))},
        "bits",
    ),
    "fp16": _Stage(
        _QUANTISING, "16 bits per value: half precision, scaled to its range", lambda _: {"quantiser": Fp16()}
    ),
    "golomb": _Stage(3, "encodes the index of each kept value in a few bits instead of 32", lambda _: {"golomb": True}),
}
_QUANTISERS = "uniq, expq, qsgd(bits) or fp16"
_ORDER = f"error_feedback, sparsify(s), a quantiser ({_QUANTISERS}), golomb"

_USAGE = {name: f"{name}({stage.argument})" if stage.argument else name for name, stage in _STAGES.items()}

CODECS = {name: f"{_USAGE[name]}: {stage.help}" for name, stage in _STAGES.items()}
"""The stages of a chain, each with a one-line description."""


def parse_chain(stages: Sequence[str], full: bool = False) -> Chain | None:
    """Return the chain described by the stages, None if there are none; with `full`, only quantisers are allowed.

    Raises ConfigError for an unknown, invalid or misplaced stage.
    """
    fields: dict[str, Any] = {}
    reached = -1
    for text in stages:
        stage, argument = _parse_stage(text)
        if full and stage.order != _QUANTISING:
            raise ConfigError(f"{text!r} is not allowed here: expected only a quantiser, {_QUANTISERS}")
        if stage.order <= reached:
            raise ConfigError(f"{text!r} is out of order: the order is {_ORDER}, each at most once")
        reached = stage.order
        try:
            fields |= stage.fields(argument)
        except ConfigError:
            raise
        except ValueError:
            raise ConfigError(f"{text!r}: expected a number for {stage.argument}, got {argument!r}") from None
    return Chain(**fields) if stages else None


def _parse_stage(text: str) -> tuple[_Stage, str]:
    match = _STAGE.fullmatch(text.strip())
    name, argument = (match[1], match[2] or "") if match else (text, "")
    if name not in _STAGES and (own := _own_stage(text.strip())) is not None:
        return own, argument
    if name not in _STAGES:
        known = _USAGE | {entry.name: entry.name for entry in own_entries([QuantiserStage])}
        raise ConfigError(f"unknown stage {text!r}{nearest(name, known)}; possible: {', '.join(known.values())}")
    stage = _STAGES[name]
    if bool(argument) != bool(stage.argument):
        raise ConfigError(f"{text!r}: expected {_USAGE[name]}")
    return stage, argument


def _own_stage(text: str) -> _Stage | None:
    """Return the stage of a user-defined quantiser, such as `mine.py:Sign(0.5)`; None if there is none of that name.

    The parentheses hold the value of its first option, or `option = value` pairs.
    """
    name, _, rest = text.partition("(")
    kind = find_own(name, [QuantiserStage], name)
    if kind is None:
        return None
    argument = rest.removesuffix(")").strip()
    try:
        values = tomllib.loads(f"values = {{ {argument} }}")["values"]
    except ValueError:
        try:
            values = dict(zip(kind.__struct_fields__, [tomllib.loads(f"value = {argument}")["value"]], strict=False))
        except ValueError:
            raise ConfigError(f"{name}: expected (value) or (option = value, ...), got ({argument})") from None
    made = cast(QuantiserStage, read(values, kind, name))
    return _Stage(_QUANTISING, "", lambda _: {"quantiser": made})


class Chains(NamedTuple):
    """The chains of a configuration; None means no compression."""

    up: Chain | None
    moments: Chain | None
    down: Chain | None


class CodecOptions(Options, tag=False, dict=True):
    """Compression of uploads and downloads by chains of stages. An empty chain means no compression."""

    up: Annotated[list[str], Meta(description=f"uploads of parameters: {_ORDER}")] = field(default_factory=list)
    moments: Annotated[
        list[str],
        Meta(description=f"uploads of optimiser statistics, at the same indices as the parameters: {_QUANTISERS}"),
    ] = field(default_factory=list)
    down: Annotated[list[str], Meta(description=f"downloads: {_QUANTISERS}")] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.chains  # noqa: B018 - raises now if a chain is invalid
        except ConfigError as error:
            raise ValueError(str(error)) from None

    @property
    def made_of(self) -> list[object]:
        """The quantisers, some of which may be user-defined parts."""
        return [chain.quantiser for chain in self.chains if chain]

    @cached_property
    def chains(self) -> Chains:
        found = []
        for way in Chains._fields:
            try:
                found.append(parse_chain(getattr(self, way), full=way != "up"))
            except ConfigError as error:
                raise ConfigError(f"{way}: {error}") from None
        return Chains(*found)


def expected_bits(chain: Chain, layout: Layout, moments: Chain | None = None, num_moments: int = 0) -> float:
    """Return the expected bits of the stream of one vector, with moments at the same indices, if no change is zero.

    A download of several vectors counts as one vector with the others as its moments.
    """
    quantisers = [chain.quantiser, *([moments.quantiser] * num_moments if moments else [])]
    bits = float(FRAME_BITS)
    for entry in layout.params:
        size, sparsity = entry.stop - entry.start, chain.sparsity_of(entry)
        bits += 32 * sum(quantiser.num_bounds for quantiser in quantisers)
        bits_per_kept: float = sum(quantiser.bits for quantiser in quantisers)
        if sparsity is None:
            bits += bits_per_kept * size
        else:
            num_kept = kept(size, sparsity)
            bits_per_kept += bits_per_index(1 - num_kept / size) if chain.golomb and size else 32
            bits += COUNT_BITS + bits_per_kept * num_kept
    return bits


def kept(size: int, sparsity: float) -> int:
    """Return how many of `size` values a sparse tensor keeps if none of them is zero."""
    return min(size, max(1, size - int(size * sparsity)))
