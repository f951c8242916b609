"""The plan: what the server sends of its configuration, and digests with which both sides compare their builds."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from fedge.algorithms import AlgorithmOptions, Cluster, CodecOptions, Personal
from fedge.algorithms.compose import wrapper_versions
from fedge.client.network import Network
from fedge.config import Config
from fedge.core.algorithm import Algorithm
from fedge.core.anchor import map_texts
from fedge.core.effect import digest
from fedge.core.errors import ConfigError, StreamError
from fedge.core.parts import Sources, is_reference, permitting, short_name
from fedge.core.schema import Options, read
from fedge.data.data_plan import DataPlan
from fedge.metrics import MetricOptions
from fedge.models import ModelOptions
from fedge.net.allow import AllowedParts, OwnersRules
from fedge.runs.code import hash_code

Hashes = Annotated[dict[str, str], Meta(max_length=64)]


class ClientPlan(Options, tag=False, kw_only=True):
    """The parts of a configuration that a client needs: no paths, engine, network or tracking settings."""

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
    files: Hashes = field(default_factory=dict)  # SHA-256 of each user file, by name or by hash
    packages: Hashes = field(default_factory=dict)  # version of each package that provides a part, by name


def plan_of(config: Config, data: DataPlan, sources: Sources) -> ClientPlan:
    """Return the plan of a configuration whose parts were loaded from `sources`.

    Files are named without their folders, since clients have their own copies. Raises a ConfigError if two files in
    different folders have the same name.
    """
    hashes = hash_code(sources)
    plan = ClientPlan(
        model=replace(config.model, weights=None),  # the initial variables include the weights
        algorithm=config.algorithm,
        personal=config.personal,
        codec=config.codec,
        cluster=config.cluster,
        fine_tune_steps=config.evaluate.fine_tune_steps,
        metrics=config.evaluate.metrics,
        dtype=config.engine.dtype,
        matmul_precision=config.engine.matmul_precision,
        data=data,
        packages={name: version for name, version in sources.items() if isinstance(version, str)},
    )
    folders: dict[str, str] = {}  # folder of each file that defines a part, by file name

    def without_folder(text: str, key: str) -> str:
        if is_reference(text):
            folder, _, name = f"{text.partition('.py')[0]}.py".rpartition("/")
            if folders.setdefault(name, folder) != folder:
                raise ConfigError(
                    f"{key}: clients cannot distinguish {folder}/{name} from {folders[name]}/{name}; rename one of them"
                )
        return short_name(text)

    raw = map_texts(msgspec.to_builtins(plan), without_folder)
    named = {f"{folder}/{name}": name for name, folder in folders.items()}
    raw["files"] = {
        named.get(path, path_hash): path_hash  # imported files are identified by their content
        for path, path_hash in hashes.items()
        if isinstance(sources[path], bytes)
    }
    with permitting(_Server(folders)):
        return read(raw, ClientPlan)


class _Server:
    """The server's rules, which allow all its own parts."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_file(self, reference: str, where: str) -> str:
        return f"{self._folders[reference.rpartition(':')[0]]}/{reference}"

    def check_package(self, package: str, version: str, where: str) -> None:
        pass


def encode_plan(plan: ClientPlan) -> msgspec.Raw:
    """Return the encoded plan."""
    return msgspec.Raw(msgspec.msgpack.encode(plan))


def read_plan(raw: msgspec.Raw, allowed: AllowedParts) -> ClientPlan:
    """Return the plan that a server sent, with its parts resolved to allowed files and packages.

    Raises a ConfigError for parts that are not allowed, and a StreamError if this version cannot read the plan.
    """
    rules = None
    try:
        told = msgspec.msgpack.decode(raw, type=dict[str, Any])
        hashes = (msgspec.convert(told.get(key, {}), Hashes) for key in ("files", "packages"))
        rules = OwnersRules(allowed, *hashes)
        with permitting(rules):
            return read(told, ClientPlan)
    except (ConfigError, ValueError, RecursionError) as error:
        if rules is not None and rules.refused:
            raise ConfigError(*rules.refused) from None
        raise StreamError(f"this version of fedge cannot read the server's plan: {error}") from None


def digests(plan: ClientPlan, network: Network, algorithm: Algorithm) -> dict[str, str]:
    """Return the digests that both sides compare, by section."""
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
    """Return the first section whose digests differ; None if all agree."""
    return next((name for name, value in own.items() if other.get(name) != value), None)
