"""What a client is told of a configuration, and digests by which both sides find out whether they built the same."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from fedge.algorithms import AlgorithmOptions, Cluster, CodecOptions, Personal
from fedge.client.network import Network
from fedge.config import Config
from fedge.core.algorithm import Algorithm
from fedge.core.effect import digest
from fedge.core.errors import ConfigError, StreamError
from fedge.core.schema import Options, read
from fedge.data.data_plan import DataPlan
from fedge.metrics import MetricOptions
from fedge.models import ModelOptions

Part = TypeVar("Part", bound=Options)


class ClientPlan(Options, tag=False, kw_only=True):
    """The parts of a configuration that a client needs: no path, nothing of the engine, the network or tracking."""

    model: ModelOptions
    algorithm: AlgorithmOptions
    personal: Personal | None = None
    codec: CodecOptions | None = None
    cluster: Cluster | None = None
    fine_tune_steps: int = 0
    metrics: Annotated[list[MetricOptions], Meta(max_length=64)] = field(default_factory=list)
    dtype: Literal["float32", "float64"] = "float32"
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    data: DataPlan
    files: Annotated[dict[str, str], Meta(max_length=64)] = field(
        default_factory=dict
    )  # users' files by name: SHA-256 of each


def plan_of(config: Config, data: DataPlan, hashes: dict[str, str]) -> ClientPlan:
    """Return the plan of a configuration; `hashes` are those of the users' files that it names, by path."""
    files = {Path(path).name: found for path, found in hashes.items()}
    if len(files) < len(hashes):
        raise ConfigError(
            "model.name, evaluate.metrics: files of the same name in different folders cannot be told apart by clients"
        )
    return ClientPlan(
        model=replace(_without_folder(config.model), weights=None),  # which travel with the initial variables
        algorithm=config.algorithm,
        personal=config.personal,
        codec=config.codec,
        cluster=config.cluster,
        fine_tune_steps=config.evaluate.fine_tune_steps,
        metrics=[_without_folder(metric) for metric in config.evaluate.metrics],
        dtype=config.engine.dtype,
        matmul_precision=config.engine.matmul_precision,
        data=data,
        files=files,
    )


def encode_plan(plan: ClientPlan) -> msgspec.Raw:
    """Return the plan as it travels."""
    return msgspec.Raw(msgspec.msgpack.encode(plan))


def read_plan(raw: msgspec.Raw) -> ClientPlan:
    """Return the plan that a server sent; a StreamError if it is none that this fedge knows."""
    try:
        return read(msgspec.msgpack.decode(raw, type=dict[str, Any]), ClientPlan)
    except (ConfigError, ValueError, RecursionError) as error:
        raise StreamError(f"the server's plan cannot be used by this fedge: {error}") from None


def digests(plan: ClientPlan, network: Network, algorithm: Algorithm) -> dict[str, str]:
    """Return what both sides compare, section by section."""
    slots = [f"{name} {slot!r}" for name, slot in sorted(algorithm.slots.items())]
    works = sorted(algorithm.works)
    return {
        "options": digest(msgspec.to_builtins(plan)),
        "version of the algorithm": str(type(plan.algorithm).version),
        "layout of the model": network.digest(),
        "slots of the algorithm": sha256("\n".join([*slots, *works]).encode()).hexdigest(),
    }


def first_difference(own: dict[str, str], other: dict[str, str]) -> str | None:
    """Return the first section in which two sides differ; None if they agree."""
    return next((name for name, value in own.items() if other.get(name) != value), None)


def reference_of(options: Options) -> tuple[str, str] | None:
    """Return the file and the function by which options name a user's own part; None if they name none."""
    named = getattr(options, "name", None)
    if not isinstance(named, str) or ".py:" not in named:
        return None
    file, _, function = named.rpartition(":")
    return file, function


def _without_folder(options: Part) -> Part:
    """Return options whose user's file has no folder: a client's owner has it elsewhere."""
    if (reference := reference_of(options)) is None:
        return options
    return replace(options, name=f"{Path(reference[0]).name}:{reference[1]}")
