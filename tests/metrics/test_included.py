"""Values computed by hand, and equal sums for any split of the samples."""

from __future__ import annotations

from math import exp, isnan, log, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedge.core.errors import ConfigError
from fedge.core.metric import Metric
from fedge.metrics.included import F1, Auc, Perplexity, Rmse, Top5, TopK


def logits(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows)


def saying(classes: list[int], num_classes: int) -> Tensor:
    """Return outputs for which these classes are the most likely."""
    return torch.eye(num_classes)[classes]


def measure(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    return metric.value(metric.count(outputs, targets))


# ---------------------------------------------------------------- F1


def test_macro_f1_of_a_confusion_matrix() -> None:
    """Class 0: 2 of 3 found, 1 false positive; class 1: 1 of 2 found, 1 false positive; class 2 does not occur."""
    found = measure(F1(), saying([0, 0, 1, 1, 0], 3), torch.tensor([0, 0, 0, 1, 1]))
    first, second = 2 * 2 / (3 + 3), 2 * 1 / (2 + 2)
    assert found == pytest.approx((first + second) / 2)


def test_a_class_that_is_predicted_but_never_true_counts_as_0() -> None:
    assert measure(F1(), saying([0, 1], 3), torch.tensor([0, 0])) == pytest.approx((2 / 3 + 0) / 2)


def test_f1_of_labels_predicts_probabilities_above_one_half() -> None:
    outputs, targets = logits((1.0, -1.0), (2.0, 3.0)), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert measure(F1(), outputs, targets) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_f1_without_samples_is_undefined() -> None:
    assert isnan(F1().value({name: torch.zeros(3).double() for name in ("hits", "predicted", "true")}))


# ---------------------------------------------------------------- AUC


def binary(scores: list[float]) -> Tensor:
    """Return outputs in which class 1 has these log-odds."""
    return torch.stack([torch.zeros(len(scores)), torch.tensor(scores)], -1)


def exact(scores: Tensor, positive: Tensor) -> float:
    """Return how often a positive scores higher than a negative; ties count half."""
    above = scores[positive][:, None] - scores[~positive][None, :]
    return float(((above > 0) + 0.5 * (above == 0)).double().mean())


def test_auc_by_hand() -> None:
    """Positives score 3, 1 and 2, negatives 0 and 2: of 6 pairs 4 are ranked correctly, and 2 and 2 tie."""
    found = measure(Auc(), binary([3.0, 0.0, 1.0, 2.0, 2.0]), torch.tensor([1, 0, 1, 1, 0]))
    assert found == pytest.approx((2 + 1 + 1.5) / 6)


def test_the_pooled_auc_is_not_the_mean_over_clients() -> None:
    """Each client ranks its own samples perfectly, but all scores of the first are below those of the second."""
    first, second = ([-3.0, -2.0], [0, 1]), ([2.0, 3.0], [0, 1])
    parts = [Auc().count(binary(scores), torch.tensor(y)) for scores, y in (first, second)]
    assert [Auc().value(part) for part in parts] == [1, 1]
    assert Auc().value({name: parts[0][name] + parts[1][name] for name in parts[0]}) == 3 / 4


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-30, 30, width=32), st.booleans()), min_size=2, max_size=30).filter(
        lambda pairs: len({y for _, y in pairs}) == 2
    ),
    st.sampled_from([2, 7, 50, 500]),
)
def test_the_error_of_the_histogram_is_at_most_half_the_pairs_in_one_bin(
    pairs: list[tuple[float, bool]], bins: int
) -> None:
    scores, positive = [score for score, _ in pairs], torch.tensor([y for _, y in pairs])
    sums = Auc(bins=bins).count(binary(scores), positive.long())
    together = float((sums["positive"] * sums["negative"]).sum() / (sums["positive"].sum() * sums["negative"].sum()))
    wanted = exact(torch.tensor(scores, dtype=torch.float64), positive)
    assert abs(Auc(bins=bins).value(sums) - wanted) <= together / 2 + 1e-12


def test_auc_of_classes_is_the_mean_of_one_vs_rest() -> None:
    generator = torch.Generator().manual_seed(3)
    outputs, targets = torch.randn(40, 3, generator=generator), torch.randint(2, (40,), generator=generator)
    odds = torch.log_softmax(outputs.double(), -1)
    odds = odds - torch.log(-torch.expm1(odds))
    wanted = [exact(odds[:, label], targets == label) for label in (0, 1)]  # class 2 has no positive sample
    assert measure(Auc(bins=100_000), outputs, targets) == pytest.approx(sum(wanted) / 2, abs=1e-3)


def test_scores_that_are_certain_fall_into_the_last_bins() -> None:
    outputs = logits((0.0, 200.0), (200.0, 0.0), (0.0, 1e30))
    assert measure(Auc(), outputs, torch.tensor([1, 0, 1])) == 1


def test_auc_of_a_single_class_is_undefined() -> None:
    assert isnan(measure(Auc(), binary([1.0, 2.0]), torch.tensor([1, 1])))


# ---------------------------------------------------------------- top-k, RMSE, perplexity


def test_top_k_by_hand() -> None:
    outputs = logits((3.0, 2.0, 1.0, 0.0), (3.0, 2.0, 1.0, 0.0), (3.0, 2.0, 1.0, 0.0))
    targets = torch.tensor([0, 1, 3])
    assert [measure(TopK(k=k), outputs, targets) for k in (1, 2, 3)] == [pytest.approx(n / 3) for n in (1, 2, 2)]


def test_ties_go_to_the_first_class() -> None:
    assert [measure(TopK(k=2), torch.zeros(1, 4), torch.tensor([y])) for y in range(4)] == [1, 1, 0, 0]


def test_top5_considers_five_classes() -> None:
    outputs = torch.arange(10.0).expand(10, 10)
    assert measure(Top5(), outputs, torch.arange(10)) == 0.5
    assert (Top5().recorded_as, TopK(k=3).recorded_as) == ("top5", "top3")


@pytest.mark.parametrize("k", [4, 7])
def test_top_k_of_all_classes_is_rejected(k: int) -> None:
    with pytest.raises(ConfigError, match=rf"^evaluate\.metrics: top{k} considers {k} of 4 classes"):
        TopK(k=k).check("classes", 4)


def test_rmse_by_hand() -> None:
    """Squared errors 1, 9, 0 and 4: their mean is 3.5."""
    assert measure(Rmse(), logits((1.0, 3.0), (2.0, 0.0)), logits((0.0, 0.0), (2.0, 2.0))) == pytest.approx(sqrt(3.5))


def test_perplexity_of_a_uniform_guess_is_the_number_of_classes() -> None:
    assert measure(Perplexity(), torch.zeros(3, 7), torch.tensor([0, 3, 6])) == pytest.approx(7)


def test_perplexity_is_e_to_the_mean_loss() -> None:
    outputs, targets = torch.randn(9, 4, generator=torch.Generator().manual_seed(1)), torch.arange(9) % 4
    wanted = exp(float(cross_entropy(outputs.double(), targets)))
    assert measure(Perplexity(), outputs, targets) == pytest.approx(wanted, rel=1e-12)


def test_a_perplexity_that_overflows_is_undefined() -> None:
    assert isnan(measure(Perplexity(), logits((0.0, 1000.0)), torch.tensor([0])))
    assert log(measure(Perplexity(), logits((0.0, 600.0)), torch.tensor([0]))) == pytest.approx(600)


# ---------------------------------------------------------------- sums add up


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("metric", [F1(), Auc(bins=9), TopK(k=2), Perplexity()], ids=lambda metric: metric.recorded_as)
def test_whole_equals_parts(metric: Metric, data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 20))
    cut = data.draw(st.integers(1, size - 1))
    numbers = st.floats(-100, 100, width=32)
    rows = data.draw(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=size, max_size=size))
    outputs, targets = (
        torch.tensor(rows),
        torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))),
    )
    whole = metric.count(outputs, targets)
    parts = metric.count(outputs[:cut], targets[:cut]), metric.count(outputs[cut:], targets[cut:])
    for name, vector in whole.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], vector, rtol=1e-12, atol=1e-12)
    value = metric.value(whole)
    assert isnan(value) or metric.contains(value)
