"""`drive`, the only code that advances server halves."""

import ast
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import fedge
from fedge.core.algorithm import Algorithm, Costs, Exchange, Info, Reply
from fedge.core.drive import drive, first_exchange, map_exchanges
from fedge.core.layout import Tree

INFO = Info(round=1, rate=0.1, num_steps=1, num_epochs=None, num_clients=9, seed=0)


def state(exchanges: float, total: float = 0.0) -> Tree:
    return {"exchanges": torch.tensor([exchanges]), "total": torch.tensor([total])}


def infos(*cohorts: Sequence[int]) -> list[Info]:
    return [INFO._replace(cohort=tuple(cohort)) for cohort in cohorts]


class Asking:
    """A round with `exchanges` exchanges, taken from the state, that sums the replies; records closed rounds."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional
        self.closed: list[tuple[int, ...]] = []
        self.started: list[Generator[Exchange, Reply, Tree]] = []  # referenced, so that only `close` closes them
        self.algorithm = Algorithm({}, init=dict, keep=dict, works={}, round=self.start, model=lambda s, v: s)

    def start(self, state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
        self.started.append(self.round(state, info))
        return self.started[-1]

    def round(self, state: Tree, info: Info) -> Generator[Exchange, Reply, Tree]:
        total = state["total"]
        try:
            for number in range(int(state["exchanges"])):
                reply = yield Exchange(f"work {number}", {}, info.cohort, optional=self.optional)
                total = total + reply.value["u"]
        except GeneratorExit:
            self.closed.append(info.cohort)
            raise
        return {**state, "total": total}


class Answering:
    """Replies with the sum of the cohort's ids; clients that are silent from some exchange on are missing."""

    def __init__(self, silent: dict[int, int] | None = None, asking: Asking | None = None) -> None:
        self.silent, self.asking = silent or {}, asking or Asking()
        self.calls: list[list[tuple[str, tuple[int, ...]]]] = []
        self.closed: list[int] = []  # number of rounds closed before each call

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        assert [tuple(e.cohort) for e in exchanges] == [info.cohort for info in infos]
        number = len(self.calls)
        self.closed.append(len(self.asking.closed))
        self.calls.append([(exchange.work, tuple(exchange.cohort)) for exchange in exchanges])
        return [self._reply([c for c in e.cohort if self.silent.get(c, 99) > number], e.cohort) for e in exchanges]

    def _reply(self, ids: list[int], cohort: Sequence[int]) -> Reply:
        zeros = np.zeros(len(ids))
        value = {"u": torch.tensor([float(sum(ids))])}
        missing = tuple(client for client in cohort if client not in ids)
        return Reply(value, tuple(ids), zeros, missing, Costs.free(len(ids)), zeros, communicated=True)


def test_exchanges_of_one_step_are_one_call() -> None:
    engine = Answering()
    drive(engine, Asking().algorithm, [state(2), state(0), state(3)], infos((1,), (2,), (3, 4)))
    assert engine.calls == [
        [("work 0", (1,)), ("work 0", (3, 4))],
        [("work 1", (1,)), ("work 1", (3, 4))],
        [("work 2", (3, 4))],
    ]


def test_every_state_gets_its_own_replies() -> None:
    outcomes = drive(Answering(), Asking().algorithm, [state(2), state(0), state(3)], infos((1,), (2,), (3, 4)))
    # twice client 1, nothing, three times clients 3 and 4
    assert [float(outcome.state["total"]) for outcome in outcomes] == [2, 0, 21]
    assert [[reply.ids for reply in outcome.replies] for outcome in outcomes] == [[(1,)] * 2, [], [(3, 4)] * 3]
    assert not any(outcome.void for outcome in outcomes)


def test_a_round_without_exchanges_needs_no_engine() -> None:
    engine = Answering()
    (outcome,) = drive(engine, Asking().algorithm, [state(0, total=5)], infos(()))
    assert (float(outcome.state["total"]), outcome.void, engine.calls) == (5, False, [])


def test_a_void_round_leaves_the_state_and_is_closed() -> None:
    asking, before = Asking(), state(3)
    engine = Answering(silent={7: 1, 8: 1}, asking=asking)  # both answer the first exchange only
    void, other = drive(engine, asking.algorithm, [before, state(3)], infos((7, 8), (1,)))
    assert void.void
    assert void.state is before
    assert float(before["total"]) == 0
    assert [reply.ids for reply in void.replies] == [(7, 8), ()]
    assert void.replies[1].missing == (7, 8)
    assert asking.closed == [(7, 8)]
    assert engine.closed == [0, 0, 1]  # at once, not after the last round has ended
    assert (float(other.state["total"]), other.void) == (3, False)  # the other state's round continues


def test_a_round_continues_without_an_optional_answer() -> None:
    asking = Asking(optional=True)
    (outcome,) = drive(Answering(silent={7: 1, 8: 2}), asking.algorithm, [state(3)], infos((7, 8)))
    assert [reply.ids for reply in outcome.replies] == [(7, 8), (8,), ()]
    assert (float(outcome.state["total"]), outcome.void, asking.closed) == (23, False, [])


def test_one_answer_is_enough() -> None:
    (outcome,) = drive(Answering(silent={7: 0}), Asking().algorithm, [state(1)], infos((7, 8)))
    assert (float(outcome.state["total"]), outcome.void) == (8, False)


def test_every_state_needs_its_info() -> None:
    with pytest.raises(ValueError, match="shorter"):
        drive(Answering(), Asking().algorithm, [state(1), state(1)], infos((1,)))


# ---------------------------------------------------------------- parts of a round


def test_first_exchange_abandons_the_round() -> None:
    asking, before = Asking(), state(2)
    exchange = first_exchange(asking.algorithm, before, INFO._replace(cohort=(3, 4)))
    assert (exchange.work, exchange.cohort) == ("work 0", (3, 4))
    assert asking.closed == [(3, 4)]
    assert float(before["total"]) == 0


def test_a_round_without_exchanges_has_no_first_exchange() -> None:
    with pytest.raises(ValueError, match="round 1 has no exchange"):
        first_exchange(Asking().algorithm, state(0), INFO)


def renamed(asking: Asking) -> Algorithm:
    """Return the same rounds with other names of works."""

    def change(exchange: Exchange) -> Exchange:
        return exchange._replace(work=exchange.work.upper())

    inner = asking.algorithm.round
    return asking.algorithm._replace(round=lambda state, info: map_exchanges(inner(state, info), change))


def test_every_exchange_is_changed_and_every_reply_passes() -> None:
    engine = Answering()
    changed, nothing = drive(engine, renamed(Asking()), [state(2, total=1), state(0, total=5)], infos((3, 4), ()))
    assert engine.calls == [[("WORK 0", (3, 4))], [("WORK 1", (3, 4))]]
    assert [float(outcome.state["total"]) for outcome in (changed, nothing)] == [1 + 7 + 7, 5]


def test_a_round_with_changed_exchanges_is_closed_at_once() -> None:
    asking = Asking()
    engine = Answering(silent={7: 1}, asking=asking)
    void, _ = drive(engine, renamed(asking), [state(3), state(3)], infos((7,), (1,)))
    assert void.void
    assert asking.closed == [(7,)]
    assert engine.closed == [0, 0, 1]


# ---------------------------------------------------------------- no other code advances rounds


def undelegated(source: str) -> list[int]:
    """Return the lines that start a round, `x.round(state, info)`, without delegating all of it.

    Only code that holds a generator can advance it, and delegating code does not hold it.
    """
    nodes = list(ast.walk(ast.parse(source)))
    delegated = [node.value for node in nodes if isinstance(node, ast.YieldFrom)]
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "map_exchanges":
            delegated += node.args
    return sorted(
        node.lineno
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "round"
        and len(node.args) + len(node.keywords) == 2
        and node not in delegated
    )


def test_no_other_package_advances_a_round() -> None:
    root = Path(fedge.__file__).parent
    found = {path.relative_to(root): undelegated(path.read_text()) for path in root.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines and path.parts[0] != "core"} == {}
    assert len(found[Path("core/drive.py")]) == 2  # the check sees `drive` and `first_exchange`


def test_code_that_advances_a_round_is_detected() -> None:
    source = """
exchange = next(algorithm.round(state, info))
rounds = job.algorithm.round(state, info=info)
rounds.send(reply)
changed = map_exchanges(one.round(state, info), change)
def round(state, info):
    state = yield from one.round(state, info)
    return {**state, "t": state["t"].round(), "x": round(x, 2)}
"""
    assert undelegated(source) == [2, 3]
