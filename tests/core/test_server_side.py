"""What a server knows without data: the clients it can ask, and the result of a rehearsal."""

import pytest
import torch

from federation import BUILDS, Federation, mixed, sampled
from fedge.client.perform import perform
from fedge.core.algorithm import Algorithm, Context, Exchange, Info
from fedge.core.codecs.codec import RESIDUAL
from fedge.core.layout import Layout, Tree


def test_clients_without_samples_are_not_asked() -> None:
    server = Federation(BUILDS["fedavg"], mixed((6, 0, 9))).sides.server
    assert server.present(Exchange("train", {}, (2, 1, 0))) == [0, 2]


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", sampled())
def test_a_rehearsal_predicts_dtypes_and_shapes_of_real_uploads(name: str, dtype: torch.dtype) -> None:
    """In every exchange of two rounds, including the residuals that a codec removes from an upload."""
    made, compared = Federation(BUILDS[name], mixed(), dtype=dtype), []
    run = made.engine.run

    def watched(exchanges: list[Exchange], infos: list[Info]) -> object:
        for exchange, info in zip(exchanges, infos, strict=True):
            clients, server = made.clients, made.sides.server
            down = server.send(exchange, info).exchange.down
            expected = server.rehearse(exchange, info).upload
            for client in server.present(exchange):
                work = clients.algorithm.works[exchange.work]
                found, _, _ = perform(clients, work, client, down, clients.kept.read(client), info)
                assert forms(found) == forms(expected), (exchange.work, client)
                compared.append(client)
        return run(exchanges, infos)

    made.engine.run = watched  # type: ignore[method-assign]
    made.rounds(2)
    assert len(compared) >= 8


def forms(tree: Tree) -> dict[str, tuple[torch.dtype, torch.Size]]:
    """Return dtypes and shapes without residuals, whose dtype depends on earlier feedback; they do not travel."""
    return {n: (value.dtype, value.shape) for n, value in tree.items() if not n.startswith(f"{RESIDUAL}.")}


def test_a_rehearsal_allocates_nothing_and_runs_once() -> None:
    calls: list[str] = []

    def build(layout: Layout) -> Algorithm:
        algorithm = BUILDS["scaffold"](layout)
        work = algorithm.works["train"]

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            calls.append(local["y"].device.type)
            return work.final(down, local, kept, ctx)

        return algorithm._replace(works={"train": work._replace(final=final)})

    made = Federation(build, mixed())
    exchange = next(made.clients.algorithm.round(made.state, made.info))
    for _ in range(2):
        found = made.sides.server.rehearse(exchange, made.info)
    assert calls == ["meta"]
    assert (found.local, found.kept) == ({}, {})
    assert {value.device.type for value in found.upload.values()} == {"meta"}


def test_work_that_needs_values_is_rehearsed_with_values() -> None:
    """The residuals of error feedback are computed by numpy."""
    made = Federation(BUILDS["codec(fedavg, sparse)"], mixed())
    exchange = next(made.clients.algorithm.round(made.state, made.info))
    found = made.sides.server.rehearse(exchange, made.info)
    assert f"{RESIDUAL}.y" in found.upload
    assert {value.device.type for value in found.upload.values()} == {"meta"}


def test_an_error_of_an_algorithm_is_not_hidden() -> None:
    def build(layout: Layout) -> Algorithm:
        algorithm = BUILDS["fedavg"](layout)
        work = algorithm.works["train"]._replace(init=lambda down, kept, ctx: {"y": down["x"] @ down["stats"]})
        return algorithm._replace(works={"train": work})

    made = Federation(build, mixed())
    with pytest.raises(RuntimeError):
        made.round()
