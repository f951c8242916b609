"""Counts of asked, reported and dropped clients, in rounds made by hand."""

import numpy as np
import pytest

from fedge.core.algorithm import Costs, Info, Late, Rejected, Reply
from fedge.core.drive import Outcome
from fedge.core.world import Cohort
from fedge.experiment.records import describe_round

INFO = Info(round=3, rate=0.5, num_steps=4, num_epochs=None, num_clients=9, seed=1)
COUNTS = ("cohort", "reported", "dropped")


def reply(
    *ids: int,
    missing: tuple[int, ...] = (),
    late: tuple[int, ...] = (),
    rejected: tuple[int, ...] = (),
    losses: tuple[float, ...] = (),
    cosine: float | None = None,
) -> Reply:
    """Return a reply in which late and rejected clients are missing too."""
    return Reply(
        value={},
        ids=ids,
        samples=np.ones(len(ids)),
        missing=tuple(sorted({*missing, *late, *rejected})),
        costs=Costs.free(len(ids)),
        losses=np.array(losses or [np.nan] * len(ids)),
        communicated=True,
        cosine_distance=cosine,
        late=Late(late, Costs.free(len(late))) if late else None,
        rejected=Rejected(rejected, Costs.free(len(rejected)), ("norm",) * len(rejected)) if rejected else None,
    )


def described(cohorts: list[Cohort], *cells: list[Reply], void: bool = False) -> dict[str, object]:
    return describe_round(INFO, cohorts, [Outcome({}, replies, void) for replies in cells])


def counts(record: dict[str, object]) -> list[object]:
    return [record[name] for name in COUNTS]


def test_one_exchange() -> None:
    """Of five asked clients, client 4 dropped out before anything was sent, and client 2 did not answer."""
    record = described([Cohort(0, (0, 1, 2, 3, 4), (0, 1, 2, 3))], [reply(0, 1, 3, missing=(2,), losses=(1, 2, 6))])
    assert record == {
        "round": 3,
        "cohort": 5,
        "reported": 3,
        "dropped": 2,
        "learning_rate": 0.5,
        "num_local_steps": 4,
        "train_loss": 3.0,
    }


def test_dynamic_averaging_has_several_exchanges() -> None:
    """All train; the models of 1 and 3 are pulled, then that of 0, and the mean is pushed. Clients count once."""
    exchanges = [reply(0, 1, 2, 3), reply(1, 3), reply(0), reply(0, 1, 3)]
    assert counts(described([Cohort(0, (0, 1, 2, 3), (0, 1, 2, 3))], exchanges)) == [4, 4, 0]


def test_a_client_that_is_late_in_the_second_exchange_has_not_reported() -> None:
    """Client 3 answers the first and the third exchange, but not the second in time."""
    exchanges = [reply(0, 1, 2, 3), reply(1, late=(3,)), reply(1, 3)]
    record = described([Cohort(0, (0, 1, 2, 3), (0, 1, 2, 3))], exchanges)
    assert counts(record) == [4, 3, 1]
    assert record["late"] == 1


def test_clustering_asks_all_clients() -> None:
    """Two of six were selected, one of them dropped out; the split asks all six, and client 5 does not answer."""
    record = described([Cohort(0, (1, 4), (1,))], [reply(0, 1, 2, 3, 4, missing=(5,))])
    assert counts(record) == [6, 5, 1]


def test_clusters_are_asked_one_after_another() -> None:
    exchanges = [reply(0, 2), reply(1, missing=(3,)), reply(5)]
    assert counts(described([Cohort(0, (0, 1, 2, 3, 5), (0, 1, 2, 3, 5))], exchanges)) == [5, 4, 1]


def test_cells_add_up() -> None:
    """In cell 2 all clients dropped out, so it had no exchange."""
    cohorts = [Cohort(0, (0, 1), (0, 1)), Cohort(1, (3, 4, 5), (3, 5)), Cohort(2, (8,), ())]
    assert counts(described(cohorts, [reply(0, 1)], [reply(3, 5)])) == [6, 4, 2]


def test_late_and_rejected_clients_are_counted_once() -> None:
    """Client 3 is late twice; client 1 is rejected once and late once."""
    exchanges = [reply(0, 2, late=(3,), rejected=(1,)), reply(0, 2, late=(1, 3), rejected=(4,))]
    record = described([Cohort(0, (0, 1, 2, 3, 4), (0, 1, 2, 3, 4))], exchanges)
    assert (record["late"], record["rejected"]) == (2, 2)
    assert counts(record) == [5, 2, 3]


def test_optional_fields_are_absent() -> None:
    record = described([Cohort(0, (0,), (0,))], [reply(0)])
    assert record.keys() == {"round", *COUNTS, "learning_rate", "num_local_steps"}


@pytest.mark.parametrize("cells", [[], [[reply(late=(0, 1))]]], ids=["no client present", "all were late"])
def test_a_void_round(cells: list[list[Reply]]) -> None:
    record = described([Cohort(0, (0, 1), (0, 1))], *cells, void=True)
    assert counts(record) == [2, 0, 2]
    assert record["void"] is True


def test_a_round_is_void_only_if_all_cells_are() -> None:
    outcomes = [Outcome({}, [reply(0)]), Outcome({}, [reply(missing=(1,))], void=True)]
    record = describe_round(INFO, [Cohort(0, (0,), (0,)), Cohort(1, (1,), (1,))], outcomes)
    assert "void" not in record
    assert counts(record) == [2, 1, 1]


def test_cosine_distance_is_the_mean_over_cells_of_the_first_exchange() -> None:
    cohorts = [Cohort(0, (0, 1), (0, 1)), Cohort(1, (2, 3), (2, 3))]
    first, second = [reply(0, 1, cosine=0.25), reply(0, 1, cosine=9.0)], [reply(2, 3, cosine=0.75)]
    assert described(cohorts, first, second)["cosine_distance"] == 0.5
