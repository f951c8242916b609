"""The gate with a model of one weight, sent as 1: an upload y is a change of y - 1."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from federation import Federation, mixed, pair, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.mfl import Mfl
from fedge.core import message
from fedge.core.answer import Answer
from fedge.core.drive import first_exchange
from fedge.core.effort import Effort
from fedge.core.gate import Gate, problem_of_sums, read_evaluation
from fedge.core.message import EvaluationAnswer
from fedge.core.question import write_sums
from fedge.core.registered import RegisteredClients
from fedge.core.server_side import Limits

HONEST = Effort(3, 3, 3, 0.5)  # three steps on its only sample
F64 = torch.float64


def gate_of(made: Federation) -> Gate:
    info = made.info._replace(round=1)
    exchange = first_exchange(made.clients.algorithm, made.state, info)
    return Gate(made.sides.server, made.sides.server.send(exchange, info))


def gate(limits: Limits = Limits(), **options: Any) -> Gate:  # noqa: B008 - it is a constant
    return gate_of(Federation(FedAvg().build, points(0, 4), make=slope, limits=limits, **options))


def upload(y: float = 0.5, **others: Any) -> dict[str, torch.Tensor]:
    return {"y": torch.tensor([y], dtype=F64), "stats": torch.zeros(0, dtype=F64), **others}


def answer(samples: int = 1, effort: Effort = HONEST, **others: Any) -> Answer:
    return Answer(1, samples, effort, {}, **others)


# ---------------------------------------------------------------- one answer


def test_an_honest_answer_passes() -> None:
    assert gate().problem(answer(), upload()) is None
    assert gate(Limits(0.5, "reject")).problem(answer(), upload()) is None


def test_less_effort_than_requested_passes() -> None:
    assert gate().problem(answer(effort=Effort()), upload()) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (answer(samples=2), "it claims 2 samples, expected 1 to 1, the number it registered"),
        (answer(samples=0), "it claims 0 samples, expected 1 to 1, the number it registered"),
        (answer(samples=-1), "it claims -1 samples, expected 1 to 1, the number it registered"),
        (answer(effort=HONEST._replace(steps=4)), "it claims 4 steps, expected at most 3"),
        (answer(effort=HONEST._replace(batches=-1)), "it claims -1 batches, expected at most 3"),
        (answer(effort=HONEST._replace(grad_samples=2**63)), f"it claims {2**63} grad_samples, expected at most 3"),
        (answer(effort=HONEST._replace(loss=nan)), "the loss is not finite"),
        (answer(effort=HONEST._replace(loss=-inf)), "the loss is not finite"),
        (answer(effort=HONEST._replace(loss=-1e39)), "it claims the loss -1e+39, expected at most 3.40282e+38"),
        (answer(effort=Effort(loss=0.5)), "it claims the loss 0.5 without a gradient"),
        (answer(effort=Effort(loss=inf)), "it claims the loss inf without a gradient"),
        (answer(problem="it ran out of memory"), "it reports that it ran out of memory"),
    ],
)
def test_implausible_claims_are_rejected(given: Answer, reason: str) -> None:
    assert gate().problem(given, upload()) == reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (upload(nan), "the upload 'y' is not finite"),
        (upload(inf), "the upload 'y' is not finite"),
        (upload(z=torch.ones(1)), "its upload has 'stats', 'y', 'z', expected 'stats', 'y'"),
        (upload(y=0.5) | {"y": torch.ones(1)}, "the upload 'y' is float32[1], expected float64[1]"),
        (upload(stats=torch.zeros(1, dtype=F64)), "the upload 'stats' is float64[1], expected float64[0]"),
    ],
)
def test_malformed_uploads_are_rejected(given: dict[str, torch.Tensor], reason: str) -> None:
    assert gate().problem(answer(), given) == reason


def test_long_names_are_cut() -> None:
    names = {f"{i:03}" + "x" * 1000: torch.ones(1) for i in range(500)}
    assert len(gate().problem(answer(), names) or "") < 1200


@given(st.floats(0.01, 100), st.floats(-1000, 1000))
def test_a_change_is_measured_against_its_anchor(most: float, y: float) -> None:
    problem = gate(Limits(most, "reject")).problem(answer(), upload(y))
    if abs(y - 1.0) <= most:
        assert problem is None
    else:
        expected = f"the change of 'y' has the norm {abs(y - 1.0):.6g}, expected at most reduce.max_norm = {most:g}"
        assert problem == expected


def test_the_norm_is_that_of_the_vector() -> None:
    """Two weights, both sent as 1: the change (3, 4) has the norm 5."""
    clients = mixed((1, 1), features=2)
    given = {"y": torch.tensor([4.0, 5.0], dtype=F64), "stats": torch.zeros(0, dtype=F64)}
    for most, passes in ((5.0, True), (4.999, False)):
        made = Federation(FedAvg().build, clients, make=pair, limits=Limits(most))
        assert (gate_of(made).problem(answer(), given) is None) == passes


def test_counters_have_no_norm() -> None:
    """MFL uploads the moments m and v, sent as 0 and 1, and the number of steps t, a scalar without a norm."""
    made = Federation(Mfl().build, points(0, 4), make=slope, limits=Limits(2.0))
    given = {
        "y": torch.tensor([2.0], dtype=F64),
        "m": torch.tensor([2.0], dtype=F64),
        "v": torch.tensor([2.0], dtype=F64),
        "t": torch.tensor([1e6], dtype=F64),
        "stats": torch.zeros(0, dtype=F64),
    }
    assert gate_of(made).problem(answer(), given) is None
    problem = gate_of(made).problem(answer(), {**given, "v": torch.tensor([-2.5], dtype=F64)})
    assert problem == "the change of 'v' has the norm 3.5, expected at most reduce.max_norm = 2"


def test_a_norm_that_overflows_is_too_large() -> None:
    problem = gate(Limits(1e300)).problem(answer(), upload(-1.7e308)) or ""
    assert "the norm 1.7e+308" in problem


def test_believable_effort_is_limited_to_the_request() -> None:
    claimed = Effort(2**63, -5, 2, nan)
    assert gate().believable(answer(effort=claimed))[:3] == (3, 0, 2)


# ---------------------------------------------------------------- rows of a block


def rows(*values: float) -> dict[str, torch.Tensor]:
    return {"y": torch.tensor([[y] for y in values], dtype=F64), "stats": torch.zeros(len(values), 0, dtype=F64)}


def answers(*samples: int) -> Sequence[Answer]:
    return [Answer(client, number, HONEST, {}) for client, number in enumerate(samples)]


def test_rows_are_checked_one_by_one() -> None:
    found = gate(Limits(10.0, "reject")).problems_of_rows(answers(1, 1), rows(0.5, nan))
    assert found == [None, "the upload 'y' is not finite"]
    found = gate(Limits(10.0, "reject")).problems_of_rows(answers(2, 1), rows(0.5, 20.0))
    assert found == [
        "it claims 2 samples, expected 1 to 1, the number it registered",
        "the change of 'y' has the norm 19, expected at most reduce.max_norm = 10",
    ]


def test_rows_have_one_form() -> None:
    wide = {**rows(0.5, 0.5), "y": torch.ones(2, 2, dtype=F64)}
    expected = "the upload 'y' is float64[2], expected float64[1]"
    assert gate().problems_of_rows(answers(1, 1), wide) == [expected] * 2


def test_values_of_rows_are_checked_in_the_mean_if_bad_answers_stop_the_run() -> None:
    found = gate()
    assert not found.looks_at_rows
    assert found.problems_of_rows(answers(1, 2), rows(nan, 0.5))[0] is None
    assert gate(Limits(1.0)).looks_at_rows
    assert gate(Limits(None, "reject")).looks_at_rows


# ---------------------------------------------------------------- sums

CLIENTS = RegisteredClients((1,), 2, "classes", np.array([4, 9]), np.empty(0, int), np.array([2, 5]))
VALUES = CLIENTS._replace(task="values")


def sums(count: float = 2, correct: float = 1, loss: float = 0.5) -> dict[str, float]:
    return {"count": float(count), "correct": float(correct), "loss": float(loss)}


@pytest.mark.parametrize("given", [sums(), sums(1, 0, 0), sums(5, 5), sums(5, 2.5), sums(5, 5, 1e38)])
def test_possible_sums_are_accepted(given: dict[str, float]) -> None:
    assert problem_of_sums(CLIENTS, 1, "test", given) is None


@pytest.mark.parametrize(
    "given",
    [sums(6), sums(0, 0, 0), sums(-1), sums(1.5), sums(2, 3), sums(2, -1), sums(2, 1, -0.1), sums(2, 1, 1e39),
     sums(nan), sums(2, inf), sums(2, 1, nan), {}, {"count": 1.0}, {**sums(), "more": 1.0}],
)  # fmt: skip
def test_impossible_sums_are_rejected(given: dict[str, float]) -> None:
    assert problem_of_sums(CLIENTS, 1, "test", given)


def test_counts_are_bounded_by_the_registered_size_of_the_set() -> None:
    for measure, most in (("test", 5), ("user", 5), ("trained", 5), ("train", 9)):
        assert problem_of_sums(CLIENTS, 1, measure, sums(most)) is None  # type: ignore[arg-type]
        expected = f"its sums are impossible: correct 1, count {most + 1}, loss 0.5; expected a count from 1 to {most}"
        assert problem_of_sums(CLIENTS, 1, measure, sums(most + 1)) == expected  # type: ignore[arg-type]


def test_a_test_set_that_was_not_registered_may_have_any_size() -> None:
    unknown = CLIENTS._replace(test_sizes=None)
    assert problem_of_sums(unknown, 1, "test", sums(1e6)) is None
    assert problem_of_sums(unknown, 1, "train", sums(10))


def test_a_regression_has_no_correct_answers() -> None:
    assert problem_of_sums(VALUES, 0, "test", {"count": 2.0, "loss": 3.0}) is None
    problem = problem_of_sums(VALUES, 0, "test", sums())
    assert problem == "its sums are 'correct', 'count', 'loss', expected 'count', 'loss'"


def test_evaluation_answers_are_read() -> None:
    data = message.pack(EvaluationAnswer(1), write_sums(sums()))
    assert read_evaluation(1, data) == sums()
    assert read_evaluation(1, message.pack(EvaluationAnswer(1), {})) is None
    assert read_evaluation(0, data) == "it claims to be client 1"
    assert str(read_evaluation(1, data[:-1])).startswith("its answer cannot be read: message is cut short")
    two = message.pack(EvaluationAnswer(1), {"count": torch.ones(2, dtype=F64)})
    assert str(read_evaluation(1, two)).startswith("its answer cannot be read: expected the sum 'count' as float64[1]")
