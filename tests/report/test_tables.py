import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fedge.core.fields import Unit
from fedge.report.groups import RunGroup, group_runs
from fedge.report.statistics import Estimate, interval
from fedge.report.tables import compare, grid, records, write
from fedge.report.terminal_table import ResultTable

TARGET = {"metric": "accuracy", "value": 0.9, "stop": False}
ONE = Unit("", 1.0)


def reached(rounds: int, up: int = 1_000_000, down: int = 3_000_000, flops: float = 5e9, seconds=60.0):
    return {
        "rounds_to_target": rounds,
        "bytes_up_to_target": up,
        "bytes_down_to_target": down,
        "flops_to_target": flops,
        "sim_seconds_to_target": seconds,
    }


MISSED = dict.fromkeys(reached(0))


def shown(rows, width: int = 100) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(ResultTable(rows))
    return capture.get()


def final(*accuracies: float):
    return [{"round": i + 1, "accuracy": accuracy} for i, accuracy in enumerate(accuracies)]


def test_a_row_is_the_mean_over_seeds(make_run) -> None:
    runs = [
        make_run("a", 1, final(0.5, 0.92), reached(10, up=1_000_000), TARGET),
        make_run("a", 2, final(0.6, 0.94), reached(14, up=2_000_000), TARGET),
    ]
    (row,) = compare(group_runs(runs))
    assert (row.label, row.seeds, row.unfinished, row.reached) == ("a", 2, 0, 2)
    assert row.accuracy == Estimate(pytest.approx(0.93), 0.92, 0.94, 2, "range")
    assert row.user_accuracy is None
    assert row.rounds_to_target == Estimate(12, 10, 14, 2, "range")
    assert row.bytes_to_target == Estimate(4_500_000, 4_000_000, 5_000_000, 2, "range")
    assert row.flops_to_target == Estimate(5e9, 5e9, 5e9, 2, "range")
    assert row.sim_seconds_to_target == Estimate(60, 60, 60, 2, "range")
    assert row.energy_j_to_target is None


def test_the_last_measured_value_is_the_final_one(make_run) -> None:
    records = [*final(0.5, 0.7), {"round": 3, "user_accuracy": 0.8}, {"round": 4, "user_accuracy": None}]
    (row,) = compare([RunGroup("a", [make_run(rounds=records, summary={})])])
    assert row.accuracy == interval([0.7])
    assert row.user_accuracy == interval([0.8])


def test_seeds_that_missed_the_target_are_counted_not_averaged(make_run) -> None:
    summaries = [reached(10), MISSED, reached(12)]
    runs = [make_run("a", seed, final(0.9), summary, TARGET) for seed, summary in enumerate(summaries)]
    rows = compare(group_runs(runs))
    assert (rows[0].seeds, rows[0].reached) == (3, 2)
    assert rows[0].rounds_to_target == Estimate(11, 10, 12, 2, "range")
    text = shown(rows)
    assert "2/3 reached" in text
    assert "costs to target: of the seeds that reached it" in text


def test_a_target_that_no_seed_reached(make_run) -> None:
    rows = compare(group_runs([make_run("a", 1, final(0.4), MISSED, TARGET)]))
    assert (rows[0].reached, rows[0].rounds_to_target, rows[0].bytes_to_target) == (0, None, None)
    text = shown(rows)
    assert "not reached" in text
    assert "MB" not in text  # nothing to show in that column


def test_a_cost_that_was_not_measured_is_not_a_missed_target(make_run) -> None:
    timeless = reached(10, seconds=None)
    runs = [make_run("a", 1, final(0.9), timeless, TARGET), make_run("b", 1, final(0.9), reached(20), TARGET)]
    rows = compare(group_runs(runs))
    assert (rows[0].reached, rows[0].sim_seconds_to_target) == (1, None)
    line = next(line for line in shown(rows).splitlines() if line.startswith("a "))
    assert line.split() == ["a", "1", "90", "10", "4", "5", "–"]


def test_unfinished_runs_are_counted_separately(make_run) -> None:
    runs = [make_run("a", 1, final(0.9), reached(10), TARGET), make_run("a", 2, final(0.1), None, TARGET)]
    rows = compare(group_runs(runs))
    assert (rows[0].seeds, rows[0].unfinished) == (1, 1)
    assert rows[0].accuracy == interval([0.9])
    assert "1 unfinished" in shown(rows)


def test_a_group_without_a_finished_run_has_no_numbers(make_run) -> None:
    rows = compare(group_runs([make_run("a", 1, final(0.9), None, TARGET)]))
    assert (rows[0].seeds, rows[0].unfinished, rows[0].accuracy) == (0, 1, None)
    assert "reached" not in shown(rows)


def test_rows_are_plain_data(make_run) -> None:
    runs = [make_run("a", seed, final(0.9), reached(10), TARGET) for seed in (1, 2)]
    (data,) = json.loads(json.dumps(records(compare(group_runs(runs)))))
    assert data["target"] == {"metric": "accuracy", "value": 0.9}
    assert data["rounds_to_target"] == {"mean": 10, "low": 10, "high": 10, "count": 2, "band": "range"}
    assert data["user_accuracy"] is None


def test_one_seed_shows_no_interval(make_run) -> None:
    text = shown(compare(group_runs([make_run("a", 1, final(0.9), reached(10), TARGET)])))
    assert "±" not in text
    assert "target: accuracy 90%" in text
    assert "to 90%" in text


def test_two_seeds_show_their_range(make_run) -> None:
    # the interval of 0.88 and 0.914 would be 89.7±21.6
    runs = [make_run("a", seed, final(accuracy), {}) for seed, accuracy in ((1, 0.88), (2, 0.914))]
    text = shown(compare(group_runs(runs)))
    assert "±" not in text
    assert "89.7" in text
    assert "(88.0–91.4)" in text
    assert "(least–greatest): range of fewer than 3 seeds, too few for an interval" in " ".join(text.split())
    runs.append(make_run("a", 3, final(0.897), {}))
    text = shown(compare(group_runs(runs)))
    assert "89.7±4.2" in text  # standard deviation 1.7, over sqrt(3), times 4.303
    assert "least" not in text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (88.0, 91.4, "89.7\n(88.0–91.4)"),
        (10.0, 12.0, "11.0\n(10.0–12.0)"),
        (45.0, 45.0, "45"),
        (93.12, 93.14, "93.13\n(93.12–93.14)"),
        (1_000_000.0, 3_000_000.0, "2,000,000\n(1,000,000–3,000,000)"),
    ],
)
def test_a_range_as_written(low: float, high: float, text: str) -> None:
    assert write(Estimate((low + high) / 2, low, high, 2, "range"), ONE) == text


def test_different_targets_are_each_named(make_run) -> None:
    runs = [
        make_run(name, 1, final(0.9), reached(10), {"metric": "accuracy", "value": value})
        for name, value in (("a", 0.8), ("b", 0.85))
    ]
    text = shown(compare(group_runs(runs)))
    assert "to target" in text
    assert "target of a: accuracy 80%" in text
    assert "target of b: accuracy 85%" in text


def test_without_a_target_there_are_no_costs(make_run) -> None:
    text = shown(compare(group_runs([make_run("a", 1, final(0.875), {})])))
    assert text.split() == ["accuracy", "name", "seeds", "(%)", text.split()[4], "a", "1", "87.50"]


def test_a_label_is_text_not_markup(make_run) -> None:
    assert "run [bold]1" in shown(compare([RunGroup("run [bold]1", [make_run(rounds=final(0.9), summary={})])]))


def test_a_full_table_fits_eighty_columns(make_run) -> None:
    runs = []
    for name, scale in (("FedAvg", 1.0), ("SCAFFOLD", 0.6), ("CE-FedAvg, sparse", 0.2)):
        for seed, shift in enumerate((0.97, 1.0, 1.04, *([1.0] if name == "FedAvg" else []))):
            cost = scale * shift
            rounds = [{"round": 1, "accuracy": 0.93 * shift, "user_accuracy": 0.94 * shift}]
            summary = reached(round(150 * cost), int(4e9 * cost), int(4e9 * cost), 7e12 * cost, 9e3 * cost)
            runs.append(make_run(name, seed, rounds, MISSED if (name, seed) == ("FedAvg", 0) else summary, TARGET))
    text = shown(compare(group_runs(runs)), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    sparse = next(line for line in text.splitlines() if "CE-FedAvg" in line)
    # rounds 29, 30, 31: 30 ± 4.303 / sqrt(3); the others 0.97, 1, 1.04 of 8 * 0.2 GB, 1.4 TFLOPs, 0.5 h,
    # with 4.303 * 0.03512 / sqrt(3) = 8.7 % of their mean of 1.0033
    assert sparse.split()[-4:] == ["30.0±2.5", "1.61±0.14", "1.40±0.12", "0.50±0.04"]


def test_a_wrapped_name_keeps_a_setting_and_its_value_on_one_line(make_run) -> None:
    runs = [
        make_run("x", summary={"accuracy": 0.5}, algorithm={"name": name, "learning_rate": 0.02, "local_steps": steps})
        for name in ("fedavg", "scaffold")
        for steps in (5, 20)
    ]
    text = shown(compare(group_runs(runs)), width=30)
    lines = [line.split("  ")[0].strip() for line in text.splitlines()]
    assert "SCAFFOLD," in lines
    assert "K = 20" in lines


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_full_table_of_two_seeds_is_not_truncated(make_run, width: int) -> None:
    """Columns that do not fit stand in another table below."""
    runs = []
    for name, scale in (("FedAvg", 1.0), ("CE-FedAvg, sparse", 0.2)):
        for seed, shift in enumerate((0.87, 1.04)):
            rounds = [{"round": 1, "accuracy": 0.93 * shift, "user_accuracy": 0.94, "user_accuracy_clean": 0.5 * shift}]
            costs = reached(round(1500 * scale * shift), int(4e9 * shift), int(4e9 * shift), 7e12 * shift, 9e3 * shift)
            runs.append(make_run(name, seed, rounds, costs | {"energy_j_to_target": 9e3 * scale * shift}, TARGET))
    rows = compare(group_runs(runs))
    text = shown(rows, width)
    lines = text.splitlines()
    assert max(map(len, lines[: lines.index("target: accuracy 90%")])) <= width
    assert "…" not in text
    written = {part for line in grid(rows).rows for cell in line[1:] for part in cell.split()}
    assert "(1,305–1,560)" in written
    for part in written:
        assert part in text
    # the head and the names stand once in each table
    tables = sum(line.startswith("───") for line in lines)
    assert tables == sum(line.startswith("FedAvg ") for line in lines)
    assert (tables == 1) == (width >= 120)


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (93.127, 0.43, "93.1±0.4"),  # the first digit of the interval
        (93.127, 1.49, "93.1±1.5"),  # and the second, if the first is a 1
        (93.127, 0.0961, "93.13±0.10"),
        (93.1274, 0.00012, "93.13±0.00"),  # no more than four digits of the mean
        (127.0, 89.0, "127±89"),  # three digits of the mean, whatever the interval
        (20.0, 25.41, "20.0±25.4"),
        (1_234_567.0, 12_345.0, "1,235,000±12,000"),
        (45.0, 0.0, "45±0"),
        (2.345678, 0.0, "2.346±0"),
        (0.0, 0.02, "0.00±0.02"),
        (45.0, None, "45"),
        (12_345.6, None, "12,346"),  # never to tens without a reason
        (0.0123456, None, "0.01235"),
        (0.0, None, "0"),
    ],
)
def test_numbers_have_the_digits_that_the_interval_supports(mean: float, half: float | None, text: str) -> None:
    low, high = (None, None) if half is None else (mean - half, mean + half)
    assert write(Estimate(mean, low, high, 1 if half is None else 3), ONE) == text


@settings(max_examples=100)
@given(st.floats(0.001, 1e7), st.floats(0.001, 0.5))
def test_rounding_stays_within_the_interval(mean: float, relative: float) -> None:
    written = write(Estimate(mean, mean * (1 - relative), mean * (1 + relative), 3), ONE)
    shown_mean, shown_half = (float(part.replace(",", "")) for part in written.split("±"))
    assert abs(shown_mean - mean) <= 0.5 * mean * relative + 0.0005 * mean * 1.001
    assert shown_half == pytest.approx(mean * relative, rel=0.26, abs=0.0005 * mean * 1.001)
