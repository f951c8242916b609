import pytest
from benchmarks.candidate import Outcome
from benchmarks.speed import describe, table
from benchmarks.workloads import WORKLOADS


def test_results_and_table() -> None:
    workload = WORKLOADS["W4"]  # 160 MFLOP per round
    measured = {
        "plain": Outcome([0.2, 0.4, 0.2], 100.0, {"torch": "2"}),
        "fedge block": Outcome([0.1, 0.1, 0.05], 200.4, {"torch": "2"}),
    }
    found = describe(workload, measured, {"pfl": "no wheel"}, peak_gflops=3.2)
    fast = found["candidates"]["fedge block"]
    assert fast["seconds"] == 0.1
    assert fast["times_plain"] == 4  # median of 2, 4 and 4
    assert fast["share_of_peak"] == pytest.approx(0.16 / 0.1 / 3.2)
    text = table({"W4": found})
    assert "| plain | 1.00 (0.2) |" in text
    assert "| fedge block | 4.00 (0.1) |" in text
    assert "| fedge block | 50% |" in text
    assert "| fedge block | 200 |" in text
    assert "| pfl | - |" in text
    assert text.endswith("- pfl, W4: unavailable: no wheel")
