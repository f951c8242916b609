"""The chart of the distribution of data over clients."""

from __future__ import annotations

import pytest

from fedge.report.class_distribution import class_distribution

pytest.importorskip("altair", reason="needs the extra `view`")


def test_a_cell_for_each_class_of_a_client() -> None:
    heat, histogram = class_distribution({0: [3, 0], 5: [1, 1]}, [3, 2, 2, 2], 2).to_dict()["hconcat"]
    assert heat["data"]["values"] == [
        {"client": "0", "class": "0", "samples": 3},
        {"client": "5", "class": "0", "samples": 1},
        {"client": "5", "class": "1", "samples": 1},
    ]
    assert heat["encoding"]["x"]["scale"]["domain"] == ["0", "5"]
    assert heat["encoding"]["y"]["scale"]["domain"] == ["0", "1"]
    assert histogram["data"]["values"] == [
        {"from": 2, "to": 3, "clients": 3},
        {"from": 3, "to": 4, "clients": 1},
    ]


def test_classes_and_clients_have_their_names() -> None:
    heat, _ = class_distribution({1: [3, 1]}, [3, 4], 2, ["cat", "dog"], ["north", "south"]).to_dict()["hconcat"]
    assert heat["data"]["values"] == [
        {"client": "south", "class": "cat", "samples": 3},
        {"client": "south", "class": "dog", "samples": 1},
    ]
    assert heat["encoding"]["x"]["scale"]["domain"] == ["south"]
    assert heat["encoding"]["y"]["scale"]["domain"] == ["cat", "dog"]


def test_data_without_classes_has_only_a_histogram_with_bars_of_equal_width() -> None:
    # 41 different sizes make bars of three, the last of which ends beyond the largest.
    bars = class_distribution({0: None}, list(range(10, 51)), 1).to_dict()["data"]["values"]
    assert {bar["to"] - bar["from"] for bar in bars} == {3}
    assert (bars[0]["from"], bars[-1]["to"]) == (10, 52)
    assert sum(bar["clients"] for bar in bars) == 41
