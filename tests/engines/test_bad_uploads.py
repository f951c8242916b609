"""A hostile client affects only itself, in every engine and with every reducer."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import fedge.client.answer as client_answer
from federation import BUILDS, CODINGS, Federation, batched_of, dense, mixed
from fedge.algorithms.compressed import compressed
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.reduced import reduced
from fedge.algorithms.scaffold import Scaffold
from fedge.client.client_side import ClientSide
from fedge.client.serve import Served, serve
from fedge.core import message
from fedge.core.algorithm import Build, Costs, Reply
from fedge.core.answer import Answer
from fedge.core.codecs.chain import CodecOptions
from fedge.core.drive import Outcome, drive
from fedge.core.effort import Effort
from fedge.core.errors import TrainingError
from fedge.core.layout import Tree
from fedge.core.message import WorkAnswer
from fedge.core.reduce import Krum, Mean, Median, Reduce, TrimmedMean
from fedge.core.server_side import Limits
from fedge.engines import blocks, wire
from fedge.engines.pool import Pool
from hostile_clients import BAD, forged, poisoned

SIZES = (6, 9, 9, 5, 8)
OTHERS = (0, 1, 3, 4)
ENGINES = ("loop", "wire", "block", "pool")
REDUCERS: dict[str, Reduce] = {
    "mean": Mean,
    "median": Median,
    "trimmed_mean": partial(TrimmedMean, fraction=0.25),
    "krum": partial(Krum, fraction=0.25, keep=2),
}
REJECT, STOP = Limits(None, "reject"), Limits(None, "stop")
FAULTS: dict[str, tuple[float | None, Limits, str]] = {
    "nan": (float("nan"), REJECT, "the upload 'dy' is not finite"),
    "infinite": (float("-inf"), REJECT, "the upload 'dy' is not finite"),
    "huge": (1e6, Limits(50.0, "reject"), "expected at most reduce.max_norm = 50"),
    "weight": (None, REJECT, "it claims 1000000000000 samples, expected 1 to 9, the number it registered"),
}
"""By name: the value of all the client's uploads (None: it claims false samples), the limits, the reason."""

Make = Callable[..., Federation]


@pytest.fixture
def federate() -> Iterator[Make]:
    """Makes federations in any engine and closes them. One block has all clients, so that omitting one does not change
    which clients are reduced together."""
    opened: list[Pool] = []

    def make(build: Build, engine: str, limits: Limits, **options: Any) -> Federation:
        made = Federation(
            build, mixed(SIZES), "block" if engine == "pool" else engine, make=dense, limits=limits, **options
        )
        if engine == "block":
            made.engine.num_rows = 8  # type: ignore[attr-defined]
        if engine == "pool":
            opened.append(Pool(made.sides, batched_of(made.sides), num_rows=8, num_workers=2))
            made.engine = opened[-1]
        return made

    yield make
    for pool in opened:
        pool.close()


@pytest.fixture
def boast(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the bad client claim 10**12 samples from now on."""

    def claim(client: int, samples: int, effort: Effort, upload: Tree) -> Answer:
        return Answer(client, 10**12 if client == BAD else samples, effort, upload)

    def begin() -> None:
        monkeypatch.setattr(client_answer, "Answer", claim)
        monkeypatch.setattr(blocks, "Answer", claim)

    return begin


def assert_same(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def assert_rejected(reply: Reply, reason: str) -> None:
    assert reply.ids == OTHERS
    assert reply.missing == (BAD,)
    assert reply.samples.tolist() == [6, 9, 5, 8]
    assert reply.rejected is not None
    assert reply.rejected.ids == (BAD,)
    assert len(reply.rejected.reasons) == 1
    assert reason in reply.rejected.reasons[0]


# ---------------------------------------------------------------- values and weights, in every engine


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_round_equals_one_without_the_hostile_client(
    fault: str, engine: str, reducer: str, federate: Make, boast: Callable[[], None]
) -> None:
    value, limits, reason = FAULTS[fault]
    inner = reduced(Scaffold().build, REDUCERS[reducer])
    expected = federate(inner, engine, limits).rounds(1)
    made = federate(inner if value is None else poisoned(inner, value), engine, limits).rounds(1)
    assert_same(made.everything(), expected.everything())
    kept = made.clients.kept.read(BAD)
    assert kept["c_i"].any()
    if value is None and engine != "pool":
        boast()
    elif value is None:  # before workers are forked
        boast()
        made = federate(inner, engine, limits)
        made.state, made.info = expected.state, expected.info
        for client in range(len(SIZES)):
            made.clients.kept.write(client, expected.clients.kept.read(client))
    (reply,) = made.round().replies
    expected.round(OTHERS)
    assert_rejected(reply, reason)
    assert_same(made.everything(), expected.everything())
    assert_same(made.clients.kept.read(BAD), kept)


@pytest.mark.parametrize("engine", ENGINES)
def test_rejected_work_is_charged(engine: str, federate: Make) -> None:
    """Three steps with batches of 4 are 12 samples. A gradient costs 100 FLOPs per sample here, a step of FedAvg 2 per
    weight, of which there are (8 + 1)*6 + (6 + 1)*3 = 75. The answers have equal lengths."""
    (reply,) = federate(poisoned(FedAvg().build, float("nan")), engine, REJECT).rounds(1).round().replies
    assert reply.rejected is not None
    costs = reply.rejected.costs
    assert costs.bytes_down.tolist() == [reply.costs.bytes_down[0]]
    assert costs.bytes_up.tolist() == [reply.costs.bytes_up[1]]  # as for client 1, which also has 9 samples
    assert (costs.steps.tolist(), costs.batches.tolist(), costs.samples.tolist()) == ([3], [3], [12])
    assert costs.flops.tolist() == [12 * 100 + 3 * 2 * 75]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CODINGS)
def test_with_a_codec_the_client_reports_the_problem(name: str, engine: str, federate: Make) -> None:
    def build(value: float | None) -> Build:
        inner = Scaffold().build if value is None else poisoned(Scaffold().build, value)
        return compressed(inner, *CodecOptions(**CODINGS[name]).chains)

    made, expected = (federate(build(value), engine, REJECT).rounds(1) for value in (float("nan"), None))
    kept = made.clients.kept.read(BAD)
    (reply,) = made.round().replies
    expected.round(OTHERS)
    assert_rejected(reply, "it reports that the upload 'dy' is not finite")
    assert_same(made.everything(), expected.everything())
    assert_same(made.clients.kept.read(BAD), kept)
    assert reply.rejected is not None
    assert reply.rejected.costs.bytes_up[0] < reply.costs.bytes_up.min()  # an answer without an upload


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_by_default_the_run_stops_and_names_the_client(reducer: str, engine: str, federate: Make) -> None:
    made = federate(poisoned(reduced(FedAvg().build, REDUCERS[reducer]), float("nan")), engine, STOP).rounds(1)
    with pytest.raises(
        TrainingError,
        match=r"^round 2, client 2: the upload 'y' is not finite \(loss of the first step: .*learning_rate",
    ):
        made.round()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_change_that_is_too_large_stops_the_run_too(engine: str, federate: Make) -> None:
    made = federate(poisoned(FedAvg().build, 1e6), engine, Limits(50.0, "stop")).rounds(1)
    with pytest.raises(TrainingError, match=r'^round 2, client 2: the change of .*set reduce\.on_bad = "reject"$'):
        made.round()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round_in_which_all_are_rejected_is_void(engine: str, federate: Make) -> None:
    made = federate(poisoned(Scaffold().build, float("nan"), range(5)), engine, REJECT).rounds(1)
    before = made.everything()
    outcome = made.round()
    (reply,) = outcome.replies
    assert outcome.void
    assert (reply.value, reply.ids, reply.missing) == ({}, (), (0, 1, 2, 3, 4))
    assert reply.rejected is not None
    assert reply.rejected.ids == (0, 1, 2, 3, 4)
    assert_same(made.everything(), before)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_optional_exchange_without_accepted_answers_does_not_void_the_round(engine: str, federate: Make) -> None:
    """With delta = 0, dynamic averaging asks all clients for their models. All are bad, and it continues without."""
    made = federate(poisoned(DynAvg(delta=0).build, float("nan"), range(5), ["pull"]), engine, REJECT).rounds(1)
    before = made.state
    outcome = made.round()
    assert not outcome.void
    flags, pulled = outcome.replies[:2]
    assert (flags.ids, flags.rejected) == ((0, 1, 2, 3, 4), None)
    assert (pulled.ids, pulled.value) == ((), {})
    assert pulled.rejected is not None
    assert pulled.rejected.ids == (0, 1, 2, 3, 4)
    assert torch.equal(made.state["x"], before["x"])


# ---------------------------------------------------------------- lateness


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_admission_includes_rejected_clients(reducer: str, engine: str, federate: Make) -> None:
    """Their uploads used the channel. Client 4 is late, so 0, 1 and 3 remain."""
    inner = reduced(Scaffold().build, REDUCERS[reducer])
    made, expected = (federate(build, engine, REJECT).rounds(1) for build in (poisoned(inner, float("nan")), inner))
    asked: list[tuple[tuple[int, ...], Costs]] = []

    def admit(number: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
        asked.append((ids, costs))
        return np.isin(ids, (0, 1, 2, 3))

    outcome = play(made, admit)
    (reply,) = outcome.replies
    ((ids, costs),) = asked
    assert ids == (0, 1, 2, 3, 4)
    assert costs.samples.tolist() == [12] * 5
    assert (reply.ids, reply.missing) == ((0, 1, 3), (2, 4))
    assert reply.late is not None
    assert reply.late.ids == (4,)
    assert reply.rejected is not None
    assert reply.rejected.ids == (2,)
    play(expected, lambda number, ids, costs: np.isin(ids, (0, 1, 3)))
    assert_same(made.everything(), expected.everything())


def play(federation: Federation, admit: Callable[[int, tuple[int, ...], Costs], np.ndarray]) -> Outcome:
    federation.info = federation.info._replace(round=federation.info.round + 1)
    (outcome,) = drive(federation.engine, federation.clients.algorithm, [federation.state], [federation.info], admit)
    federation.state = outcome.state
    return outcome


# ---------------------------------------------------------------- names, shapes and dtypes

FORMS: dict[str, tuple[Callable[[Tree], Tree], str]] = {
    "one missing": (lambda up: {"y": up["y"]}, "its upload has 'y', expected 'stats', 'y'"),
    "one more": (lambda up: {**up, "z": up["y"]}, "its upload has 'stats', 'y', 'z', expected 'stats', 'y'"),
    "another": (lambda up: {"x": up["y"], "stats": up["stats"]}, "its upload has 'stats', 'x', expected 'stats', 'y'"),
    "nothing": (lambda up: {}, "its upload has nothing, expected 'stats', 'y'"),
    "broadcast": (lambda up: {**up, "y": up["y"][:1]}, "the upload 'y' is float64[1], expected float64[75]"),
    "scalar": (lambda up: {**up, "y": up["y"][0]}, "the upload 'y' is float64[], expected float64[75]"),
    "row": (lambda up: {**up, "y": up["y"][None]}, "the upload 'y' is float64[1, 75], expected float64[75]"),
    "longer": (lambda up: {**up, "stats": up["y"]}, "the upload 'stats' is float64[75], expected float64[0]"),
    "half": (lambda up: {**up, "y": up["y"].half()}, "the upload 'y' is float16[75], expected float64[75]"),
    "integers": (lambda up: {**up, "y": up["y"].long()}, "the upload 'y' is int64[75], expected float64[75]"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_an_upload_with_wrong_names_or_shapes_is_rejected(engine: str, form: str, federate: Make) -> None:
    change, reason = FORMS[form]
    made, expected = (
        federate(build, engine, REJECT).rounds(1) for build in (forged(FedAvg().build, change), FedAvg().build)
    )
    (reply,) = made.round().replies
    expected.round(OTHERS)
    assert_rejected(reply, reason)
    assert_same(made.everything(), expected.everything())


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_an_upload_with_wrong_names_or_shapes_stops_a_run_by_default(engine: str, federate: Make) -> None:
    made = federate(forged(FedAvg().build, FORMS["broadcast"][0]), engine, STOP).rounds(1)
    with pytest.raises(TrainingError, match=r"^round 2, client 2: the upload 'y' is float64\[1\].*on_bad"):
        made.round()


# ---------------------------------------------------------------- bytes


def claiming(**changes: Any) -> Callable[[bytes], bytes]:
    """Return an answer with a changed meta."""

    def change(data: bytes) -> bytes:
        meta, tree = message.unpack(data, WorkAnswer)
        return message.pack(WorkAnswer(**{name: changes.get(name, getattr(meta, name)) for name in FIELDS}), tree)

    return change


FIELDS = WorkAnswer.__struct_fields__
LIES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "its answer cannot be read: not a message"),
    "cut": (lambda data: data[:-9], "its answer cannot be read: message is cut short"),
    "flipped": (lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], "its checksum does not match"),
    "another client": (claiming(client=3), "it claims to be client 3"),
    "nobody": (claiming(client=10**9), "it claims to be client 1000000000"),
    "no samples": (claiming(samples=0), "it claims 0 samples, expected 1 to 9, the number it registered"),
    "one sample more": (claiming(samples=10), "it claims 10 samples, expected 1 to 9, the number it registered"),
    "steps": (claiming(steps=2**63), "it claims 9223372036854775808 steps, expected at most 3"),
    "one step more": (claiming(steps=4), "it claims 4 steps, expected at most 3"),
    "batches": (claiming(batches=4), "it claims 4 batches, expected at most 3"),
    "negative": (claiming(grad_samples=-1), "it claims -1 grad_samples, expected at most 12"),
    "samples seen": (claiming(grad_samples=13), "it claims 13 grad_samples, expected at most 12"),
    "loss": (claiming(loss=float("inf")), "the loss is not finite"),
    "large loss": (claiming(loss=1e300), "it claims the loss 1e+300"),
    "loss without samples": (claiming(batches=0, loss=1.0), "it claims the loss 1 without a gradient"),
    "problem": (claiming(problem="x" * 1000), "it reports that " + "x" * 200),
}


@pytest.mark.parametrize("lie", LIES)
def test_bytes_of_a_hostile_client(lie: str, monkeypatch: pytest.MonkeyPatch, federate: Make) -> None:
    """Its claimed effort is charged up to the maximum that is possible."""
    change, reason = LIES[lie]

    def served(side: ClientSide, client: int, request: bytes) -> Served:
        honest = serve(side, client, request)
        return honest._replace(data=change(honest.data)) if client == BAD else honest

    made, expected = (federate(Scaffold().build, "wire", REJECT).rounds(1) for _ in range(2))
    kept = made.clients.kept.read(BAD)
    monkeypatch.setattr(wire, "serve", served)
    (reply,) = made.round().replies
    monkeypatch.undo()
    expected.round(OTHERS)
    assert_rejected(reply, reason)
    assert_same(made.everything(), expected.everything())
    assert_same(made.clients.kept.read(BAD), kept)
    assert reply.rejected is not None
    assert len(reply.rejected.reasons[0]) < 300
    assert 0 <= reply.rejected.costs.steps[0] <= 3
    assert 0 <= reply.rejected.costs.samples[0] <= 12


@pytest.mark.parametrize("name", ["mtfl(fedavg_adam, bn)", "clustered(fedavg)", "per_fedavg"])
@pytest.mark.parametrize("engine", ["loop", "wire", "block"])
def test_norms_of_every_kind_of_upload(name: str, engine: str) -> None:
    """Honest changes of a round are small; an algorithm's counters are not measured."""
    limits = Limits(1e3, "reject")
    made = Federation(poisoned(BUILDS[name], 1e6), mixed(SIZES), engine, limits=limits).rounds(1)
    rejected = {i for reply in made.round().replies if reply.rejected for i in reply.rejected.ids}
    assert rejected == {BAD}
