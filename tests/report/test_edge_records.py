"""Reading the edge records of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from edge_rounds import edge_line
from fedge.core.errors import ConfigError, RunError
from fedge.report.edge_records import EdgeRound, find_round, read_edge, read_one
from fedge.runs.data_names import DataNames
from fedge.runs.read import Run


def test_complete_lines_are_read_and_a_partial_one_is_skipped(tmp_path) -> None:
    first, second = (msgspec.json.encode(edge_line(number, workers=[(7, 0, 1, 2, 0, 3)])) for number in (1, 2))
    (tmp_path / "edge.jsonl").write_bytes(first + b"\n" + second + b"\n" + first[:40])
    rounds = read_edge(Run(tmp_path))
    assert [line.round for line in rounds] == [1, 2]
    assert (rounds[1].clients, rounds[1].finish_s, rounds[1].classes) == ([7], [6.0], None)


def test_a_run_without_edge_record_has_no_edge_records(tmp_path) -> None:
    assert read_edge(Run(tmp_path)) == []


def test_a_damaged_line_is_reported(tmp_path) -> None:
    (tmp_path / "edge.jsonl").write_bytes(b'{"round": 1, "ro\n{"round": 2}\n')
    with pytest.raises(RunError, match=r"edge\.jsonl is damaged: expected a JSON object"):
        read_edge(Run(tmp_path))


def test_lines_of_another_format_are_reported() -> None:
    with pytest.raises(RunError, match=r"^away/edge\.jsonl is damaged: .*`rows`"):
        read_edge(SimpleNamespace(path=Path("away"), edge=[{"round": 1}]))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rows": -5}, r"occupancy: expected -5 \* 1 cells, got 1"),
        ({"cols": 10**9}, r"occupancy: expected 1 \* 1000000000 cells, got 1"),
        ({"classes": []}, "classes: expected 1 cells, got 0"),
        ({"occupancy": [1, 1], "cols": 2, "classes": [[1], [1, 2]]}, "the same number of classes in every cell"),
        ({"up_s": []}, "up_s: expected a value for each of 1 clients, got 0"),
        ({"cell": [3]}, "cell: expected numbers from 0 to 0"),
    ],
)
def test_lists_of_inconsistent_lengths_are_reported(changes, expected) -> None:
    line = edge_line(1, workers=[(7, 0, 1, 2, 0, 3)]) | changes
    with pytest.raises(RunError, match=expected):
        read_edge(SimpleNamespace(path=Path("away"), edge=[line]))


def test_the_only_run_with_edge_records_is_chosen() -> None:
    names = DataNames(("cat", "dog"))
    silent, recorded = SimpleNamespace(edge=[]), SimpleNamespace(edge=[edge_line(4)], names=names)
    rounds, found = read_one([silent, recorded])
    assert ([line.round for line in rounds], found) == ([4], names)
    with pytest.raises(ConfigError, match=r"no run has edge\.jsonl.*--set edge\.record=true"):
        read_one([silent])
    with pytest.raises(ConfigError, match="shows one run, got 2 with edge records; give the path of one"):
        read_one([recorded, silent, recorded])


def test_find_round() -> None:
    rounds = msgspec.convert([edge_line(number) for number in (3, 4, 5)], list[EdgeRound])
    assert find_round(rounds, None).round == 5
    assert find_round(rounds, 3).round == 3
    with pytest.raises(ConfigError, match="--round 6: expected one of the recorded rounds, 3 to 5"):
        find_round(rounds, 6)
