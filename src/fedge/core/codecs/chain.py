"""Chains of compression stages, as users write them: `["sparsify(0.9)", "uniq", "golomb"]`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, cast

from msgspec import Meta, field

from fedge.core.codecs.golomb import bits_per_place
from fedge.core.codecs.quantise import FLOAT32, ExpQ, Fp16, Qsgd, Quantiser, QuantiserStage, UniQ
from fedge.core.errors import ConfigError, nearest
from fedge.core.layout import Entry, Layout
from fedge.core.parts import find_own, own_entries
from fedge.core.schema import Options, read

FRAME_BITS = 96  # of a stream: magic, signature, checksum
COUNT_BITS = 32  # of a sparse tensor: how many values it keeps, and the width of their places
_STAGE = re.compile(r"(\w+)(?:\(\s*([-+.\w]+)\s*\))?")


@dataclass(frozen=True)
class Chain:
    """What is done to a vector, tensor by tensor."""

    sparsity: float | None = None  # the fraction removed; None: all values travel, and need no places
    quantiser: Quantiser = FLOAT32
    golomb: bool = False
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise ConfigError(f"sparsify takes a fraction that is at least 0 and less than 1, got {self.sparsity}")
        if self.golomb and self.sparsity is None:
            raise ConfigError("golomb codes the places of kept values; put sparsify(s) before it")
        if self.error_feedback and getattr(self.quantiser, "is_random", False):
            raise ConfigError(
                f"error_feedback cannot stand before {self.quantiser.name}, whose random rounding has no lasting error "
                "to feed back; drop one of them, or quantise with uniq, expq or fp16"
            )
        if self.error_feedback and not self.loses:
            raise ConfigError("error_feedback needs a stage that loses something after it: sparsify or a quantiser")

    @property
    def loses(self) -> bool:
        return self.sparsity is not None or self.quantiser != FLOAT32

    @property
    def is_full(self) -> bool:
        """Whether it is a quantiser of full vectors and nothing else."""
        return self.sparsity is None and not self.error_feedback

    def sparsity_of(self, entry: Entry) -> float | None:
        """That of one tensor: those of one dimension lose their zeros only."""
        return 0.0 if self.sparsity is not None and len(entry.shape) <= 1 else self.sparsity


class _Stage(NamedTuple):
    order: int
    help: str
    fields: Callable[[str], dict[str, Any]]  # of the chain, from the argument
    argument: str = ""  # what stands between the parentheses


_QUANTISING = 2  # the order of a quantiser
_STAGES = {
    "error_feedback": _Stage(
        0, "a client adds to a change what its last upload did not carry", lambda _: {"error_feedback": True}
    ),
    "sparsify": _Stage(
        1,
        "drops the fraction s of each tensor's changes, the smallest; of one dimension, only zeros",
        lambda s: {"sparsity": float(s)},
        "s",
    ),
    "uniq": _Stage(
        _QUANTISING, "8 bits a value: equal steps between the bounds of each sign", lambda _: {"quantiser": UniQ()}
    ),
    "expq": _Stage(
        _QUANTISING, "8 bits a value: equal ratios, for very different scales", lambda _: {"quantiser": ExpQ()}
    ),
    "qsgd": _Stage(
        _QUANTISING,
        "2, 4 or 8 bits a value, rounded at random such that the mean is right",
        lambda bits: {"quantiser": Qsgd(int(bits))},
        "bits",
    ),
    "fp16": _Stage(
        _QUANTISING, "16 bits a value: half precision, scaled to its range", lambda _: {"quantiser": Fp16()}
    ),
    "golomb": _Stage(3, "few bits for each place of a kept value, instead of 32", lambda _: {"golomb": True}),
}
_QUANTISERS = "uniq, expq, qsgd(bits) or fp16"
_ORDER = f"error_feedback, sparsify(s), a quantiser ({_QUANTISERS}), golomb"

_USAGE = {name: f"{name}({stage.argument})" if stage.argument else name for name, stage in _STAGES.items()}

CODECS = {name: f"{_USAGE[name]}: {stage.help}" for name, stage in _STAGES.items()}
"""The stages of a chain, with a line on each."""


def parse_chain(stages: Sequence[str], full: bool = False) -> Chain | None:
    """The chain that the stages describe, of full vectors if so said; None if there are none."""
    fields: dict[str, Any] = {}
    reached = -1
    for text in stages:
        stage, argument = _parse_stage(text)
        if full and stage.order != _QUANTISING:
            raise ConfigError(f"{text!r} cannot stand there: expected a quantiser alone, {_QUANTISERS}")
        if stage.order <= reached:
            raise ConfigError(f"{text!r} cannot stand there: the order is {_ORDER}, each at most once")
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
    """A quantiser of one's own, such as `mine.py:Sign` or `mine.py:Sign(0.5)`; None if there is none of that name.

    Between the parentheses stands the value of its first option, or `option = value` for any of them.
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
    """The chains of a configuration; None where nothing is done."""

    up: Chain | None
    moments: Chain | None
    down: Chain | None


class CodecOptions(Options, tag=False, dict=True):
    """Compression of what travels, by chains of stages. What no chain is for travels as it is."""

    up: Annotated[list[str], Meta(description=f"uploads of parameters: {_ORDER}")] = field(default_factory=list)
    moments: Annotated[
        list[str],
        Meta(description=f"uploads of optimiser statistics, at the places of the parameters: {_QUANTISERS}"),
    ] = field(default_factory=list)
    down: Annotated[list[str], Meta(description=f"downloads: {_QUANTISERS}")] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.chains  # noqa: B018 - whatever is wrong is said now
        except ConfigError as error:
            raise ValueError(str(error)) from None

    @property
    def made_of(self) -> list[object]:
        """The quantisers, which may be parts of the user's own."""
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
    """The mean length of the stream of one vector, with moments at the same places, if no change is zero.

    A download of several vectors is one vector with the others as its moments.
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
            bits_per_kept += bits_per_place(1 - num_kept / size) if chain.golomb and size else 32
            bits += COUNT_BITS + bits_per_kept * num_kept
    return bits


def kept(size: int, sparsity: float) -> int:
    """How many of so many values a sparse tensor keeps, unless there are zeros among them."""
    return min(size, max(1, size - int(size * sparsity)))


def bits_per_value(sparsity: float, moments: bool) -> float:
    """The published number of bits for each value of a tensor, with its two moments or without."""
    return (1 - sparsity) * ((24 if moments else 8) + bits_per_place(sparsity))


def formula_bits(tensors: Iterable[tuple[int, float]], moments: bool) -> float:
    """The published size of an upload of CE-FedAvg, from (size, sparsity) of each tensor.

    With moments a stream needs 64 bits a tensor more, as each ExpQ sends two bounds, not one base.
    """
    header_bits = 224 if moments else 160
    return sum(header_bits + bits_per_value(sparsity, moments) * size for size, sparsity in tensors)
