import pytest
import torch
from torch import nn

from federation import dense, normed
from fedge.algorithms.private import private_part, put, take
from fedge.core.errors import ConfigError
from fedge.core.layout import Layout

NORMED = Layout.of(normed())


def names(layout: Layout) -> list[str]:
    return [entry.name for entry in (*layout.params, *layout.stats)]


@pytest.mark.parametrize(
    ("private", "expected"),
    [
        ("bn", ["2.weight", "2.bias", "2.running_mean", "2.running_var"]),
        ("bn_params", ["2.weight", "2.bias"]),
        ("bn_stats", ["2.running_mean", "2.running_var"]),
        ("none", []),
        (["4.*"], ["4.weight", "4.bias"]),
        (["*.bias", "2.running_var"], ["2.bias", "4.bias", "2.running_var"]),
        (["*"], ["1.weight", "2.weight", "2.bias", "4.weight", "4.bias", "2.running_mean", "2.running_var"]),
    ],
    ids=str,
)
def test_selection_of_private_tensors(private: str | list[str], expected: list[str]) -> None:
    mine, ours = private_part(NORMED, private)
    assert names(mine) == expected
    assert sorted(names(mine) + names(ours)) == sorted(names(NORMED))


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"personal\.private: 'bias' matches no tensor; the model has 1\.weight, "):
        private_part(NORMED, ["4.*", "bias"])


@pytest.mark.parametrize("private", ["bn", "bn_params", "bn_stats"])
def test_a_model_without_batchnorm_has_nothing_private(private: str) -> None:
    with pytest.raises(ConfigError, match=r"personal\.private: the model has no BatchNorm layer"):
        private_part(Layout.of(dense()), private)


def test_batchnorm_without_parameters_has_none_to_keep_private() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)))
    assert names(private_part(layout, "bn")[0]) == ["1.running_mean", "1.running_var"]
    with pytest.raises(ConfigError, match="selects nothing"):
        private_part(layout, "bn_params")


def test_two_scalars_are_spread_each_over_its_own_parameters() -> None:
    layout = Layout.of(nn.Linear(2, 1))
    mine, ours = private_part(layout, ["bias"])
    spread = put(layout, ours, torch.tensor([6.0]), mine, torch.tensor([4.0]), "scalar")
    assert spread.tolist() == [6, 6, 4]
    assert take(layout, spread, ours, "scalar").tolist() == [6]
    assert take(layout, spread, mine, "scalar").tolist() == [4]


def test_without_private_parameters_a_scalar_stays_one() -> None:
    mine, ours = private_part(NORMED, "bn_stats")
    shared = torch.tensor([6.0])
    assert put(NORMED, ours, shared, mine, torch.tensor([4.0]), "scalar") is shared
    assert take(NORMED, shared, mine, "scalar").tolist() == [6]


def test_without_shared_parameters_the_private_scalar_counts() -> None:
    mine, ours = private_part(NORMED, ["*"])
    assert put(NORMED, ours, torch.tensor([6.0]), mine, torch.tensor([4.0]), "scalar").tolist() == [4]
