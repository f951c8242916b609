"""What a client is told of a configuration, and digests by which both sides find out whether they built the same."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from fedge.algorithms import AlgorithmOptions, Cluster, CodecOptions, Personal
from fedge.algorithms.compose import wrapper_versions
from fedge.client.network import Network
from fedge.config import Config
from fedge.core.algorithm import Algorithm
from fedge.core.effect import digest
from fedge.core.errors import ConfigError, StreamError
from fedge.core.schema import Options, read
from fedge.data.data_plan import DataPlan
from fedge.models import ModelOptions


class ClientPlan(Options, tag=False, kw_only=True):
    """The parts of a configuration that a client needs: no path, nothing of the engine, the network or tracking."""

    model: ModelOptions
    algorithm: AlgorithmOptions
    personal: Personal | None = None
    codec: CodecOptions | None = None
    cluster: Cluster | None = None
    fine_tune_steps: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    data: DataPlan
    files: Annotated[dict[str, str], Meta(max_length=64)] = field(
        default_factory=dict
    )  # users' files by name: SHA-256 of each


def plan_of(config: Config, data: DataPlan, hashes: dict[str, str]) -> ClientPlan:
    """Return the plan of a configuration; `hashes` are those of the users' files that it names, by path."""
    model = config.model
    named = getattr(model, "name", "")
    if isinstance(named, str) and ".py:" in named:
        model = replace(model, name=_without_folder(named))
    files = {Path(path).name: found for path, found in hashes.items()}
    if len(files) < len(hashes):
        raise ConfigError("model.name: files of the same name in different folders cannot be told apart by clients")
    return ClientPlan(
        model=replace(model, weights=None),  # which travel with the initial variables
        algorithm=config.algorithm,
        personal=config.personal,
        codec=config.codec,
        cluster=config.cluster,
        fine_tune_steps=config.evaluate.fine_tune_steps,
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
        "versions of the wrappers": digest(
            wrapper_versions(plan.algorithm, plan.personal, plan.codec, plan.cluster, plan.fine_tune_steps)
        ),
        "layout of the model": network.digest(),
        "slots of the algorithm": sha256("\n".join([*slots, *works]).encode()).hexdigest(),
    }


def first_difference(own: dict[str, str], other: dict[str, str]) -> str | None:
    """Return the first section in which two sides differ; None if they agree."""
    return next((name for name, value in own.items() if other.get(name) != value), None)


def _without_folder(reference: str) -> str:
    file, _, name = reference.rpartition(":")
    return f"{Path(file).name}:{name}"
