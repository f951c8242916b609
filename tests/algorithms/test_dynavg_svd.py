"""Samples along the axes, whose lengths are the singular values."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federation import ENGINES, Federation, Handmade, Losing, Scripted, points, slope
from fedge.algorithms.compressed import compressed
from fedge.algorithms.dynavg_svd import DynAvgSvd
from fedge.algorithms.spectrum import Method, find_q, singular_values
from fedge.algorithms.talk_schedule import share_out
from fedge.core.codecs.chain import CodecOptions
from fedge.core.errors import ConfigError
from fedge.data.clients import Samples

EVERYONE = (0, 1, 2)


def axes(*values: float, dimension: int = 8) -> torch.Tensor:
    """Return one sample per axis, in random order, as images of two rows."""
    data = torch.zeros(len(values), dimension)
    data[range(len(values)), range(len(values))] = torch.tensor(values, dtype=torch.float32)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))
    return data[order].view(-1, 2, dimension // 2)


def q_of(data: torch.Tensor, share: float = 0.95, squared: bool = False, method: Method = "full", rank: int = 4) -> int:
    return find_q(data, share, squared, method, rank, oversampling=1)


# ---------------------------------------------------------------- q


def test_q_is_the_index_at_which_the_sum_reaches_the_share() -> None:
    data = axes(6, 2, 1, 1)  # sums 6, 8, 9, 10
    assert [q_of(data, share) for share in (0.5, 0.61, 0.81, 0.95, 1.0)] == [0, 1, 2, 3, 3]


def test_q_by_squares() -> None:
    data = axes(6, 2, 1, 1)  # 36, 40, 41, 42
    assert [q_of(data, share, squared=True) for share in (0.85, 0.86, 0.96, 0.99)] == [0, 1, 2, 3]


def test_data_is_not_centred() -> None:
    # squared values 200 and 2, of which the first is 10/11 of the sum; without its mean it has one direction
    data = torch.tensor([[10.0, 1.0], [10.0, -1.0]])
    assert (q_of(data), q_of(data - data.mean(0))) == (1, 0)


def test_q_of_zero_data() -> None:
    assert q_of(torch.zeros(3, 8)) == 0


def test_one_sample_has_one_direction() -> None:
    assert q_of(torch.tensor([[3, 4]])) == 0  # integers, such as characters, are accepted


# ---------------------------------------------------------------- largest values only


@pytest.fixture(scope="module")
def decaying() -> torch.Tensor:
    """Return 60 samples of 40 numbers with singular values 1, 1/2, 1/4, ..."""
    rng = torch.Generator().manual_seed(3)
    left, right = (torch.linalg.qr(torch.randn(n, 40, generator=rng, dtype=torch.float64)).Q for n in (60, 40))
    return left @ torch.diag(0.5 ** torch.arange(40.0, dtype=torch.float64)) @ right.T


@pytest.mark.parametrize(("method", "tolerance"), [("truncated", 1e-5), ("randomised", 0.05)])
def test_largest_values(decaying: torch.Tensor, method: Method, tolerance: float) -> None:
    found = singular_values(decaying, method, 6, 4)
    torch.testing.assert_close(found, 0.5 ** torch.arange(6.0).double(), rtol=tolerance, atol=0)
    assert torch.equal(found, singular_values(decaying, method, 6, 4))


@pytest.mark.parametrize("method", ["truncated", "randomised"])
@pytest.mark.parametrize("squared", [False, True])
def test_q_from_the_largest_values(decaying: torch.Tensor, method: Method, squared: bool) -> None:
    # 1 - 2^-(q+1) >= 0.7 is q = 1 for sums, 1 - 4^-(q+1) >= 0.7 is q = 0 for squares
    assert find_q(decaying, 0.7, squared, method, 8, 4) == find_q(decaying, 0.7, squared, "full", 8, 4)
    assert find_q(decaying, 0.7, squared, method, 8, 4) == (0 if squared else 1)


def test_the_bound_of_the_sum_is_tight_for_equal_values() -> None:
    # of nine ones three are seen; the other six have squares of 6, and at most a sum of sqrt(6*6)
    assert find_q(torch.eye(9), 0.3, False, "truncated", 3, 1) == 2  # 3 of 9 is the first to reach 2.7


@pytest.mark.parametrize("squared", [False, True])
def test_a_rank_that_is_too_low_is_reported(squared: bool) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.rank: the 3 largest .* only 33\.3% .* 95\.0%"):
        find_q(torch.eye(9), 0.95, squared, "truncated", 3, 1)


def test_small_data_is_decomposed_in_full() -> None:
    assert find_q(torch.eye(4), 0.95, False, "randomised", 3, 1) == 3


# ---------------------------------------------------------------- from q to epochs


def test_shares_of_a_hundred_epochs() -> None:
    q = torch.tensor([120, 150, 180, 240])
    assert share_out(q, q >= 0, 100).tolist() == [1, 25, 50, 100]


def test_shares_are_not_rounded_up_by_float_noise() -> None:
    q = torch.tensor([0, 7, 100])  # 0.07*100 is 7.000000000000001
    assert share_out(q, q >= 0, 100).tolist() == [1, 7, 100]


def test_equal_or_unknown_shares_get_all_epochs() -> None:
    q = torch.tensor([5, 5, 5])
    assert share_out(q, q >= 0, 10).tolist() == [10, 10, 10]
    assert share_out(torch.tensor([2, -1, 4]), torch.tensor([True, False, True]), 10).tolist() == [1, 10, 10]


def play(q: Sequence[int], rounds: int, cohort: Callable[[int], Sequence[int]] | None = None, **options: object):
    """Return a federation after `rounds` rounds, and the clients that talked in each round."""
    federation = Federation(DynAvgSvd(**options).build, points(*q), make=slope)
    federation.engine = scripted = Scripted(q=q)
    for t in range(1, rounds + 1):
        federation.round(cohort(t) if cohort else None)
    return federation, [scripted.talked[t] for t in range(1, rounds + 1)]


def test_talks_are_evenly_spaced() -> None:
    _, talked = play((0, 1, 2), 12, epochs=6)  # E_k = 1, 3, 6
    period = [[2], [1, 2], [2], [1, 2], [2], [0, 1, 2]]
    assert talked == period * 2


@settings(max_examples=40, deadline=None)
@given(epochs=st.integers(1, 24), q=st.integers(0, 24))
def test_epochs_of_talks(epochs: int, q: int) -> None:
    """There are E_k of them, including the last epoch, and gaps differ by at most one epoch."""
    _, talked = play((0, q, 24), epochs, epochs=epochs)
    found = [t for t, talkers in enumerate(talked, 1) if 1 in talkers]
    assert len(found) == max(1, math.ceil(q * epochs / 24))
    assert found[-1] == epochs
    gaps = {after - before for before, after in zip([0, *found], found, strict=False)}
    assert max(gaps) - min(gaps) <= 1


# ---------------------------------------------------------------- rule = "document" (Reddy 2020)


def test_rule_document_starts_in_the_first_epoch_and_catches_up_at_the_end() -> None:
    """E_k = 1, 4, 6, 7, 10 of ten epochs: every rho = 10, 3, 2, 2, 1 of them, and in the last E_k - floor(10/rho)."""
    _, talked = play((0, 4, 6, 7, 10), 10, epochs=10, rule="document")
    by_client = [[t for t, talkers in enumerate(talked, 1) if client in talkers] for client in range(5)]
    assert by_client == [
        [1],
        [1, 4, 7, 10],
        [1, 3, 5, 7, 9, 10],  # 10 by equation 3.11
        [1, 3, 5, 7, 9, 10],  # 9 and 10, of which 9 is due anyway
        list(range(1, 11)),
    ]


def test_rule_document_sends_the_mean_to_all() -> None:
    # the inputs 1 and 3 both have q = 0, so all available clients talk in every epoch
    federation = Federation(DynAvgSvd(epochs=4, rule="document").build, points(1, 5), make=slope, rate=0.5, steps=1)
    federation.engine = Losing(federation.engine, lambda work, info: (0,) if work == "pull" else ())
    outcome = federation.round()
    assert [reply.ids for reply in outcome.replies] == [(0, 1), (0, 1), (1,), (0, 1)]  # train, measure, pull, push
    assert [federation.clients.kept.read(client)["y"].item() for client in (0, 1)] == [3, 3]


# ---------------------------------------------------------------- unavailable clients


def test_a_client_unavailable_when_due_talks_when_it_returns() -> None:
    _, talked = play((0, 1, 2), 6, lambda t: (0, 2) if t == 2 else EVERYONE, epochs=6)
    assert talked == [[2], [2], [1, 2], [1, 2], [2], [0, 1, 2]]


def test_a_late_client_is_measured_on_arrival() -> None:
    # without client 2 client 1 has the highest q; with it E_k = 1, 3, 6
    federation, talked = play((0, 1, 2), 6, lambda t: (0, 1) if t == 1 else EVERYONE, epochs=6)
    assert talked == [[1], [1, 2], [2], [1, 2], [2], [0, 1, 2]]
    assert federation.state["q"].tolist() == [0, 1, 2]


def test_a_client_that_joins_is_measured_on_arrival() -> None:
    federation = Federation(DynAvgSvd(epochs=6).build, points(*EVERYONE), make=slope, num_clients=2)
    federation.engine = scripted = Scripted(q=(0, 4, 2))
    federation.rounds(2)
    assert [scripted.talked[t] for t in (1, 2)] == [[1], [1]]  # E_k = 1, 6
    federation.grow(3)
    assert federation.state["q"].tolist() == [0, 4, -1]
    assert federation.state["last"].tolist() == [-6, 2, -6]
    federation.rounds(4)
    assert federation.state["q"].tolist() == [0, 4, 2]
    # E_k = 1, 6, 3: client 2 is due in epochs 2, 4 and 6, and was unavailable in the first of them
    assert [scripted.talked[t] for t in range(3, 7)] == [[1, 2], [1, 2], [1], [0, 1, 2]]


def test_the_q_of_a_single_client_is_kept_when_others_join() -> None:
    federation = Federation(DynAvgSvd(epochs=6).build, points(*EVERYONE), make=slope, num_clients=1)
    federation.engine = Scripted(q=(5,))
    federation.rounds(1).grow(3)
    assert federation.state["q"].tolist() == [5, -1, -1]
    assert federation.state["last"].tolist() == [1, -6, -6]


def losing(silent: Callable[[str, int], Sequence[int]], rounds: int) -> tuple[Federation, Scripted]:
    federation = Federation(DynAvgSvd(epochs=6).build, points(*EVERYONE), make=slope)
    scripted = Scripted(q=EVERYONE)
    federation.engine = Losing(scripted, lambda work, info: silent(work, info.round))
    return federation.rounds(rounds), scripted


def test_a_client_that_does_not_answer_stays_due() -> None:
    _, scripted = losing(lambda work, t: (1,) if (work, t) == ("pull", 2) else (), 3)
    assert [scripted.talked[t] for t in (1, 2, 3)] == [[2], [2], [1, 2]]


def test_a_client_without_q_is_asked_again_and_does_not_talk_before() -> None:
    federation, scripted = losing(lambda work, t: (2,) if (work, t) == ("measure", 1) else (), 1)
    assert federation.state["q"].tolist() == [0, 1, -1]
    assert scripted.talked[1] == [1]
    federation.round()
    assert federation.state["q"].tolist() == [0, 1, 2]
    assert scripted.talked[2] == [1, 2]


def test_a_client_that_is_never_measured_does_not_block_others() -> None:
    """Client 1 trains in time but is always late with its q."""
    federation, scripted = losing(lambda work, t: (1,) if work == "measure" else (), 6)
    assert federation.state["q"].tolist() == [0, -1, 2]
    assert [scripted.talked[t] for t in range(1, 7)] == [[2]] * 5 + [[0, 2]]


# ---------------------------------------------------------------- in engines


def spread() -> Handmade:
    """Return three clients whose data has one, two and four directions."""
    data = [axes(*[1.0] * n, dimension=4) for n in (1, 2, 4)]
    return Handmade([Samples(x.flatten(1), torch.zeros(len(x), 1)) for x in data], 1, "values")


def line() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 1))


@pytest.mark.parametrize("engine", ENGINES)
def test_look_receives_the_clients_own_inputs_in_every_engine(engine: str) -> None:
    federation = Federation(DynAvgSvd(epochs=6).build, spread(), engine, make=line)
    outcome = federation.round()
    assert federation.state["q"].tolist() == [0, 1, 3]
    works = [reply.ids for reply in outcome.replies]
    assert works == [(0, 1, 2), (0, 1, 2), (2,), (2,)]  # train, measure, pull, push
    assert [reply.communicated for reply in outcome.replies] == [False, False, True, False]
    assert len(federation.round().replies) == 3  # no client is measured twice


def test_only_clients_that_talk_contribute_to_and_receive_the_mean() -> None:
    federation = Federation(DynAvgSvd(epochs=6).build, spread(), make=line)
    federation.rounds(3)  # E_k = 1, 2, 6: client 1 talks in the third with client 2
    own = [federation.clients.kept.read(client)["y"] for client in EVERYONE]
    assert torch.equal(own[1], federation.state["x"])
    assert torch.equal(own[2], federation.state["x"])
    assert not torch.equal(own[0], federation.state["x"])


def test_q_is_not_compressed() -> None:
    build = compressed(DynAvgSvd(epochs=6).build, *CodecOptions(up=["fp16"]).chains)
    assert Federation(build, spread(), make=line).rounds(1).state["q"].tolist() == [0, 1, 3]


def test_notes_have_q_and_the_number_of_talks() -> None:
    federation = Federation(DynAvgSvd(epochs=6).build, spread(), make=line)
    federation.round((0, 2))
    notes = federation.clients.algorithm.notes
    assert notes is not None
    found = notes(federation.state)
    assert [math.isnan(value[1]) for value in found.values()] == [True, True]
    assert found["q"][[0, 2]].tolist() == [0, 3]
    assert found["E_k"][[0, 2]].tolist() == [1, 6]
