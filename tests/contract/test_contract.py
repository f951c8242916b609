"""The contract of every algorithm and wrapper in every engine."""

from typing import Any

import pytest
import torch

from federation import BUILDS, SAMPLE, Federation, mixed, sampled
from fedge.algorithm import Algorithm, Context, FedAvg, Layout, Tree
from fedge.testing import CONTRACT, check_contract, contract

AMOUNTS = {"steps": {"steps": 3}, "epochs": {"epochs": 1}}
ENGINES_APART = ("loop", "block")  # `wire` equals `loop`, as the first test shows
# Rounding noise may change an 8-bit code: compressed uploads agree only between loop and wire.
ROUNDED = [name for name in BUILDS if "ce_fedavg" not in name and "codec" not in name]


def every(*variants: str) -> list[Any]:
    """Return every build with each variant; default tests use a sample of builds with the last variant."""
    return [
        pytest.param(
            name,
            variant,
            marks=[] if name in SAMPLE and variant == variants[-1] else pytest.mark.full,
        )
        for name in BUILDS
        for variant in variants
    ]


@pytest.mark.parametrize(("name", "amount"), every("epochs", "steps"))
def test_engines_agree(name: str, amount: str) -> None:
    contract.check_engines_agree(BUILDS[name], codes=name not in ROUNDED, **AMOUNTS[amount])


@pytest.mark.parametrize("name", sampled(ROUNDED))
def test_engines_agree_in_float32(name: str) -> None:
    contract.check_float32(BUILDS[name])


@pytest.mark.parametrize(("name", "engine"), every(*ENGINES_APART))
def test_inputs_are_unchanged(name: str, engine: str) -> None:
    contract.check_inputs_unchanged(BUILDS[name], engine)


@pytest.mark.parametrize(("name", "engine"), every(*ENGINES_APART))
def test_client_without_samples_is_ignored(name: str, engine: str) -> None:
    contract.check_empty_client(BUILDS[name], engine)


@pytest.mark.parametrize(("name", "engine"), every(*ENGINES_APART))
def test_order_of_cohort_does_not_matter(name: str, engine: str) -> None:
    contract.check_order(BUILDS[name], engine)


@pytest.mark.parametrize("name", sampled())
def test_state_survives_a_checkpoint(name: str) -> None:
    contract.check_checkpoint(BUILDS[name])


@pytest.mark.parametrize("name", sampled())
def test_engines_agree_when_clients_join(name: str) -> None:
    contract.check_joining(BUILDS[name], codes=name not in ROUNDED)


@pytest.mark.parametrize("name", sampled())
def test_growing_in_steps_is_growing_at_once(name: str) -> None:
    contract.check_growth(BUILDS[name])


@pytest.mark.parametrize("name", [name for name in BUILDS if "scaffold" in name and "clustered" not in name])
def test_wrappers_forward_growth(name: str) -> None:
    """SCAFFOLD's c is a sum over clients, divided by their number."""
    federation = Federation(BUILDS[name], mixed((6, 9, 9))).rounds(2)
    grown = federation.clients.algorithm.grow(federation.state, 3, 6)
    assert federation.state["c"].any()
    assert torch.equal(grown["c"], federation.state["c"] / 2)


class InPlace(FedAvg):
    """Clients step in place and so modify the server's vectors."""

    def build(self, layout: Layout) -> Algorithm:
        inner = super().build(layout)

        def step(local: Tree, gradient: Tree, ctx: Context) -> Tree:
            local["y"].sub_(ctx.rate * gradient)
            return local

        return inner._replace(works={"train": inner.works["train"]._replace(affine=None, step=step)})


class OverClients(FedAvg):
    """A client's upload is scaled by a norm over all rows of a block."""

    def build(self, layout: Layout) -> Algorithm:
        inner = super().build(layout)

        def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
            return {"y": local["y"] / (1 + local["y"].norm()), "stats": local["stats"]}, kept

        return inner._replace(works={"train": inner.works["train"]._replace(final=final)})


class Remembering(FedAvg):
    """The server counts its rounds in a closure variable."""

    def build(self, layout: Layout) -> Algorithm:
        inner = super().build(layout)
        past: list[int] = []

        def round(state: Tree, info: Any) -> Any:
            past.append(info.round)
            found = yield from inner.round(state, info)
            return {**found, "x": found["x"] * len(past)}

        return inner._replace(round=round)


class Growing(FedAvg):
    """`grow` adds one client too many to the state."""

    def build(self, layout: Layout) -> Algorithm:
        return super().build(layout)._replace(grow=lambda state, n, m: {**state, "x": state["x"] * (m + 1) / n})


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (InPlace, "inputs are unchanged"),
        (OverClients, "engines agree by steps"),
        (Remembering, "state survives a checkpoint"),
        (Growing, "growing in steps is growing at once"),
    ],
)
def test_broken_algorithms_fail_the_contract(kind: type[FedAvg], broken: str) -> None:
    with pytest.raises(AssertionError):
        CONTRACT[broken](kind().build)
    with pytest.raises(AssertionError):
        check_contract(kind())


def test_the_contract_of_an_algorithm_with_its_options() -> None:
    check_contract(FedAvg(momentum=0.5))
