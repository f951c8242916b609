"""A networked client, started by `fedge client`."""

from __future__ import annotations

import msgspec
import torch

from fedge.algorithms import compose
from fedge.algorithms.reduced import ByMean
from fedge.client.client_side import ClientSide
from fedge.client.network import Network
from fedge.client.state_directory import StateDirectory
from fedge.core.algorithm import Kept
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree, pick
from fedge.core.machine import num_shared
from fedge.core.metric_set import MetricSet
from fedge.core.parts import noting_parts
from fedge.data.normalise import Scaling
from fedge.data.own_data import OwnData
from fedge.engines.memory import keep_freed_memory
from fedge.metrics import load_metrics
from fedge.net.address import read_address
from fedge.net.agent import Agent, Built
from fedge.net.allow import AllowedParts
from fedge.net.client_data import DataSpec, load_spec
from fedge.net.client_options import ClientOptions
from fedge.net.grpc_client import connect
from fedge.net.identity import load_client
from fedge.net.plan import digests, read_plan
from fedge.net.protocol import Facts, InputMoments, Scaled
from fedge.net.transport import ClientStreams
from fedge.net.views import ClientView
from fedge.runs.code import hash_code
from fedge.runs.environment import environment

_KEPT_BYTES = 32 << 20  # devices may have little memory: larger freed blocks are returned to the system


def join(options: ClientOptions, view: ClientView) -> None:
    """Take part in a run until it is complete. Raises FedgeError if the user has to act."""
    keep_freed_memory(_KEPT_BYTES)
    torch.set_num_threads(options.threads or num_shared())
    identity = None if options.credentials_dir is None else load_client(options.credentials_dir)
    name = identity.name if identity else options.name
    if name is None:
        raise ConfigError("--name: expected the client's name, since there is no certificate that contains it")
    for notice in identity.notices if identity else ():
        view.notice(notice)
    credentials = identity.credentials if identity else None
    address = read_address(options.server, "--server")
    spec = load_spec(options.data)

    async def open_session() -> ClientStreams:
        return await connect(*address, credentials, options.proxy)

    with StateDirectory(options.state, name, options.server, options.reset_state) as state:
        builder = PlanBuilder(spec, options.allow)
        Agent(name, spec.named, open_session, state, builder, options.policy, view, _software()).run()


class PlanBuilder:
    """Builds a client's side from the server's plan, the client's data and the files that its owner allows."""

    def __init__(self, spec: DataSpec, allow: AllowedParts) -> None:
        self._spec, self._allow = spec, allow

    def __call__(self, plan: msgspec.Raw, number: int, initial: Tree, kept: Kept) -> Built:
        told = read_plan(plan, self._allow)
        torch.set_float32_matmul_precision(told.matmul_precision)
        data = self._spec.load(told.data, number)
        with noting_parts(told) as sources:
            network = Network(
                lambda: told.model.build(data.shape, data.num_outputs), 0, data.task, getattr(torch, told.dtype)
            )
            network.adopt({key: initial[key] for key in ("x", "stats") if key in initial}, pick("constant", initial))
            algorithm = compose(
                told.algorithm, ByMean(), told.personal, told.codec, told.cluster, told.fine_tune_steps
            )(network.layout)
            metrics = MetricSet(load_metrics(told.metrics), data.task, data.num_outputs, network.dtype)
        for path, found in hash_code(sources).items():
            # The client's copy may have another name. Package versions were compared before loading.
            if isinstance(sources[path], bytes) and found not in told.files.values():
                raise ConfigError(f"{path} differs from the server's file; get the same one")
        side = ClientSide(algorithm, network, data, kept, told.algorithm.batch_size, metrics)
        moments = _plain(data.moments()) if told.data.sums else None
        return Built(side, digests(told, network, algorithm), Facts(*data.facts), moments)

    def scale(self, built: Built, scaled: Scaled) -> Built:
        data = built.side.data
        assert isinstance(data, OwnData)
        scaling = Scaling(mean=scaled.mean, std=scaled.std)
        return built._replace(side=built.side._replace(data=data.scaled(scaling)))

    def name_weights(self, built: Built, variables: Tree) -> Tree:
        module = built.side.network.trained(variables)
        return {name: value.contiguous() for name, value in module.state_dict().items()}


def _plain(moments: Tree) -> InputMoments:
    return InputMoments(float(moments["count"]), moments["sum"].tolist(), moments["square"].tolist())


def _software() -> dict[str, str]:
    """Return the software versions that are reported to the server, for information only."""
    found = environment()
    return {name: str(found[name])[:100] for name in ("fedge", "torch", "cpu")}
