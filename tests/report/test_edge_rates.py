"""The footnote of edge time and energy."""

from typing import Any

import pytest

from fedge.report.edge_rates import edge_note

WATTS = {"compute_power_w": 2.0, "client_power_w": 0.25}
FIXED = {"clock": "fixed", "down_mbps": 20.0, "up_mbps": 5.0, "seconds_per_step": 0.017, **WATTS}
WRITTEN = "2 W computing, 0.25 W sending"


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"edge": FIXED}, f"simulated with 20 Mbit/s down, 5 Mbit/s up, 0.017 s a step, {WRITTEN}"),
        (
            {"edge": FIXED | {"up_mbps": [1.0, 8, 3.0]}},
            f"simulated with 20 Mbit/s down, 1 to 8 Mbit/s up, 0.017 s a step, {WRITTEN}",
        ),
        ({"edge": FIXED, "clock": "measured"}, f"seconds measured; {WRITTEN}"),
        (
            {"edge": {"clock": "cells", "bandwidth_hz": 20e6, "seconds_per_sample_param": 5e-9, **WATTS}},
            f"simulated with cells of 20 MHz each, 5e-09 s a sample and parameter, {WRITTEN}",
        ),
    ],
)
def test_the_rates_are_written_out(settings: dict[str, Any], rates: str) -> None:
    assert edge_note(settings) == f"edge time, energy: {rates}"


@pytest.mark.parametrize("value", [[1.0, "x"], ["x"], [], None, "fast", {"name": "uniform", "low": "x"}])
def test_a_run_with_damaged_records_still_has_a_footnote(value: Any) -> None:
    assert (edge_note({"edge": FIXED | {"up_mbps": value}}) or "").endswith(f"s a step, {WRITTEN}")


def test_settings_without_rates_have_no_footnote() -> None:
    assert edge_note({}) is None
