"""A client's effort, planned and actual."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation import BUILDS, SAMPLE, Federation, dense, mixed, normed
from fedge.algorithms.fedavg import FedAvg
from fedge.client.perform import perform
from fedge.core.algorithm import Exchange, Info, Work
from fedge.core.answer import Request
from fedge.core.effort import Effort, most_effort, num_batches, num_steps, steps_per_epoch
from fedge.core.gate import Gate
from fedge.core.layout import Layout
from fedge.core.rehearsal import Gradients
from fedge.data.clients import Samples

STEPS = Info(round=1, rate=0.1, num_steps=3, num_epochs=None, num_clients=4, seed=0)
EPOCHS = STEPS._replace(num_steps=None, num_epochs=2)
ONE_A_STEP = Gradients(full=0, step=1, step_full=0)
TRAIN = FedAvg().build(Layout.of(dense())).works["train"]
MODELS = {"dense": dense, "normed": normed}
WITHOUT_NORM = [name for name in BUILDS if "bn" not in name and "1.*" not in name]
"""Builds that do not name a layer of the model with BatchNorm."""


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "drops", "expected"),
    [(8, 4, False, 2), (9, 4, False, 3), (9, 4, True, 2), (10, 4, True, 3), (3, 4, True, 1), (1, 4, True, 1)],
)  # fmt: skip
def test_steps_per_epoch(num_samples: int, batch_size: int, drops: bool, expected: int) -> None:
    assert steps_per_epoch(num_samples, batch_size, drops) == expected


def test_work_may_override_the_number_of_steps() -> None:
    idle = TRAIN._replace(affine=None)
    assert num_steps(TRAIN, STEPS, 9, 4, drop_single=True) == 3
    assert num_steps(TRAIN, EPOCHS, 9, 4, drop_single=True) == 4  # two epochs of two steps
    assert num_steps(TRAIN, EPOCHS, 9, 4, drop_single=False) == 6
    assert num_steps(TRAIN._replace(num_steps=1), EPOCHS, 9, 4, drop_single=False) == 1
    assert num_steps(idle, STEPS, 9, 4, drop_single=False) == 0


@pytest.mark.parametrize(("num_samples", "size", "expected"), [(4, 9, 1), (1, 9, 1), (9, 9, 3), (2, 2, 1)])
def test_a_full_gradient_counts_as_minibatches(num_samples: int, size: int, expected: int) -> None:
    assert num_batches(num_samples, size, 4) == expected


@pytest.mark.parametrize(
    ("info", "size", "drops", "gradients", "work", "expected"),
    [
        (STEPS, 9, False, ONE_A_STEP, TRAIN, (3, 3, 12)),
        (STEPS, 2, False, ONE_A_STEP, TRAIN, (3, 3, 6)),  # a client with fewer samples than a batch uses all of them
        (EPOCHS, 9, False, ONE_A_STEP, TRAIN, (6, 6, 18)),  # 4 + 4 + 1, twice
        (EPOCHS, 9, True, ONE_A_STEP, TRAIN, (4, 4, 16)),  # 4 + 4, twice
        (EPOCHS, 10, True, ONE_A_STEP, TRAIN, (6, 6, 20)),
        (EPOCHS, 1, True, ONE_A_STEP, TRAIN, (2, 2, 2)),  # the only batch is not dropped
        (STEPS, 9, False, Gradients(1, 1, 0), TRAIN, (3, 6, 21)),  # all 9 samples once: 3 minibatches
        (STEPS, 9, False, Gradients(0, 0, 1), TRAIN, (3, 9, 27)),  # all in each of 3 steps
        (STEPS, 9, False, Gradients(0, 4, 0), TRAIN._replace(batches_per_step=3), (3, 12, 48)),
        (EPOCHS, 9, False, Gradients(0, 4, 0), TRAIN._replace(batches_per_step=3), (6, 24, 96)),  # whole batches
        (EPOCHS, 9, False, ONE_A_STEP, TRAIN._replace(num_steps=1), (1, 1, 4)),
        (EPOCHS, 9, False, Gradients(0, 0, 0), TRAIN._replace(affine=None), (0, 0, 0)),
    ],
)  # fmt: skip
def test_most_effort_by_hand(
    info: Info, size: int, drops: bool, gradients: Gradients, work: Work, expected: tuple[int, int, int]
) -> None:
    """Batches of 4."""
    assert most_effort(work, gradients, info, size, 4, drops)[:3] == expected


class Watched(Federation):
    """Compares, in every exchange, the effort that the gate allows with that of each client."""

    def check(self) -> int:
        """Run a round; return the number of answers compared."""
        sides, run, compared = self.sides, self.engine.run, []

        def watched(exchanges: list[Exchange], infos: list[Info]) -> object:
            for exchange, info in zip(exchanges, infos, strict=True):
                request = sides.server.send(exchange, info)
                gate = Gate(sides.server, request)
                compared.extend(self._compare(gate, request, client) for client in sides.server.present(exchange))
            return run(exchanges, infos)

        self.engine.run = watched  # type: ignore[method-assign]
        self.round()
        return len(compared)

    def _compare(self, gate: Gate, request: Request, client: int) -> None:
        work = self.clients.algorithm.works[request.exchange.work]
        kept = self.clients.kept.read(client)
        done = perform(self.clients, work, client, request.exchange.down, kept, request.info)[2]
        assert gate._most_effort(client)[:3] == done[:3], (request.exchange.work, client)


@pytest.mark.parametrize("amount", [{"steps": 3}, {"epochs": 2}], ids=["steps", "epochs"])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param(name, model, marks=[] if name in SAMPLE else pytest.mark.full)
        for model, names in (("normed", list(BUILDS)), ("dense", WITHOUT_NORM))
        for name in names
    ],
)
def test_most_effort_equals_the_effort_of_clients(name: str, model: str, amount: dict[str, int]) -> None:
    """Batches of 4: with 9 samples the last has one sample, which BatchNorm models drop; with 6 it is short."""
    made = Watched(BUILDS[name], mixed((6, 9, 3, 1)), make=MODELS[model], **amount)
    assert made.check() >= 4


class Growing:
    """Clients that have only some of their samples."""

    def __init__(self, sizes: list[int], present: list[int]) -> None:
        self._all, self._present = mixed(sizes), present
        self.shape, self.num_outputs, self.task = self._all.shape, 3, "classes"
        self.sizes, self.noisy = np.array(sizes), np.empty(0, int)

    def num_samples(self, client: int, round: int) -> int:
        return self._present[client]

    def train(self, client: int, round: int) -> Samples:
        return Samples(*(side[: self._present[client]] for side in self._all.train(client, round)))

    test = train

    def pooled_test(self) -> Samples:
        return self._all.pooled_test()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["fedavg", "scaffold(I)", "per_fedavg", "mimelite", "mtfl(fedavg, bn)"]),
    st.lists(st.integers(1, 14).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))), min_size=1, max_size=3),
    st.integers(1, 6),
    st.booleans(),
)
def test_no_client_exceeds_most_effort(
    name: str, sizes: list[tuple[int, int]], batch_size: int, by_epochs: bool
) -> None:
    """A client may have any part of its registered samples: no honest client is rejected for its effort."""
    data = Growing([most for most, _ in sizes], [present for _, present in sizes])
    amount = {"epochs": 2} if by_epochs else {"steps": 3}
    made = Federation(BUILDS[name], data, batch_size=batch_size, **amount)  # type: ignore[arg-type]
    info = made.info._replace(round=1)
    exchange = next(made.clients.algorithm.round(made.state, info))
    request = made.sides.server.send(exchange, info)
    gate, work = Gate(made.sides.server, request), made.clients.algorithm.works[exchange.work]
    for client, (registered, present) in enumerate(sizes):
        kept = made.clients.kept.read(client)
        done = perform(made.clients, work, client, exchange.down, kept, info)[2]
        most = gate._most_effort(client)
        assert all(did <= allowed for did, allowed in zip(done[:3], most[:3], strict=True))
        if registered == present:
            assert done[:3] == most[:3]


def test_no_effort_has_no_loss() -> None:
    assert Effort()[:3] == (0, 0, 0)
    assert np.isnan(Effort().loss)
