import numpy as np
import pytest

from fedge.core.errors import ConfigError
from fedge.report.groups import RunGroup
from fedge.report.series import MAX_POINTS, trace


def rounds(values, **costs):
    """Records of rounds 1, 2, ...; None where nothing was evaluated; costs as lists."""
    records = []
    for i, value in enumerate(values):
        record = {"round": i + 1} | {name: cost[i] for name, cost in costs.items()}
        records.append(record if value is None else record | {"accuracy": value})
    return records


def test_a_line_has_points_only_where_something_was_measured(make_run) -> None:
    line = trace(RunGroup("a", [make_run(rounds=rounds([0.1, None, 0.3, None, 0.4]))]), "round", "accuracy")
    assert line.x.tolist() == [1, 3, 5]
    assert line.mean.tolist() == [0.1, 0.3, 0.4]
    assert (line.count, line.band) == (1, "none")


def test_a_value_that_is_not_finite_is_skipped(make_run) -> None:
    records = [{"round": 1, "loss": 2.0}, {"round": 2, "loss": None}]
    assert trace(RunGroup("a", [make_run(rounds=records)]), "round", "loss").x.tolist() == [1]


def test_two_seeds_have_their_range_as_band(make_run) -> None:
    seeds = [make_run(rounds=rounds([0.1, 0.6])), make_run(rounds=rounds([0.3, 0.4]))]
    line = trace(RunGroup("a", seeds), "round", "accuracy")
    assert line.mean.tolist() == pytest.approx([0.2, 0.5])
    assert (line.low.tolist(), line.high.tolist()) == ([0.1, 0.4], [0.3, 0.6])
    assert (line.count, line.band) == (2, "range")


def test_three_seeds_have_the_interval_as_band(make_run) -> None:
    seeds = [make_run(rounds=rounds([value])) for value in (0.1, 0.2, 0.3)]
    line = trace(RunGroup("a", seeds), "round", "accuracy")
    # standard deviation 0.1, error 0.1/sqrt(3) = 0.057735, t(2) = 4.302653
    assert line.high.tolist() == pytest.approx([0.2 + 4.302653 * 0.057735], abs=1e-6)
    assert line.low.tolist() == pytest.approx([0.2 - 4.302653 * 0.057735], abs=1e-6)
    assert (line.count, line.band) == (3, "interval")


def test_costs_include_rounds_without_evaluation(make_run) -> None:
    run = make_run(rounds=rounds([None, 0.2, None, 0.4], bytes_up=[10, 20, 30, 40]))
    assert trace(RunGroup("a", [run]), "bytes_up", "accuracy").x.tolist() == [30, 100]


def test_seeds_with_different_costs_are_averaged_in_their_common_range(make_run) -> None:
    one = make_run(rounds=rounds([0.0, 0.4], flops=[10, 40]))  # at 10 and 50
    two = make_run(rounds=rounds([0.2, 0.6], flops=[20, 40]))  # at 20 and 60
    line = trace(RunGroup("a", [one, two]), "flops", "accuracy")
    assert line.x.tolist() == [20, 50]
    # at 20 the first is a quarter of its way from 0 to 0.4; at 50 the second three quarters from 0.2 to 0.6
    assert line.mean.tolist() == pytest.approx([(0.1 + 0.2) / 2, (0.4 + 0.5) / 2])


def test_of_rounds_without_cost_the_last_is_used(make_run) -> None:
    run = make_run(rounds=rounds([0.1, 0.2, 0.3], bytes_up=[5, 0, 5]))
    line = trace(RunGroup("a", [run]), "bytes_up", "accuracy")
    assert (line.x.tolist(), line.mean.tolist()) == ([5, 10], [0.2, 0.3])


def test_an_unfinished_run_does_not_shorten_the_others(make_run) -> None:
    done = make_run(rounds=rounds([0.1, 0.2, 0.3]), summary={"rounds": 3})
    going = make_run(rounds=rounds([0.5]))
    line = trace(RunGroup("a", [done, going]), "round", "accuracy")
    assert (line.x.tolist(), line.count) == ([1, 2, 3], 1)
    assert trace(RunGroup("a", [going]), "round", "accuracy").mean.tolist() == [0.5]


def test_long_runs_keep_ends_and_extremes(make_run) -> None:
    values = np.linspace(0, 0.5, 3 * MAX_POINTS)
    values[777] = 0.9  # a single round, which even steps would miss
    line = trace(RunGroup("a", [make_run(rounds=rounds(values.tolist()))]), "round", "accuracy")
    assert len(line.x) <= MAX_POINTS
    assert (line.x[0], line.x[-1], line.mean[0], line.mean[-1]) == (1, len(values), 0, 0.5)
    assert line.mean.max() == 0.9
    assert line.x[line.mean.argmax()] == 778


def test_curves_are_averaged_before_they_are_thinned(make_run) -> None:
    up, down = np.zeros(3 * MAX_POINTS), np.zeros(3 * MAX_POINTS)
    up[500], down[500] = 1, -1
    group = RunGroup("a", [make_run(seed=i, rounds=rounds(v.tolist())) for i, v in enumerate((up, down))])
    line = trace(group, "round", "accuracy")
    assert not line.mean.any()
    assert (line.low.min(), line.high.max()) == (-1, 1)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ("byte_up", "accuracy", "x: unknown 'byte_up', did you mean 'bytes_up'"),
        ("round", "acuracy", "a: no round has 'acuracy', did you mean 'accuracy'.*recorded: accuracy, round"),
        ("sim_seconds", "accuracy", r"a has no sim_seconds in round 1.*\[edge\] clock"),
    ],
)
def test_a_field_that_was_not_recorded_is_reported(make_run, x: str, y: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        trace(RunGroup("a", [make_run(rounds=rounds([0.1]))]), x, y)


def test_seeds_without_a_common_range_are_reported(make_run) -> None:
    early, late = make_run(rounds=rounds([0.1, 0.2])), make_run(rounds=rounds([None, None, 0.3]))
    with pytest.raises(ConfigError, match="begins at 3, another ends at 2"):
        trace(RunGroup("a", [early, late]), "round", "accuracy")


def test_runs_of_different_settings_have_their_range_as_band(make_run) -> None:
    runs = [make_run(rounds=rounds([value])) for value in (0.1, 0.2, 0.6)]
    line = trace(RunGroup("a", runs, mixed=True), "round", "accuracy")
    assert (line.low.tolist(), line.high.tolist(), line.band) == ([0.1], [0.6], "range")


@pytest.mark.parametrize("x", ["messages", "sim_up_s", "seconds", "dropped"])
def test_any_field_that_adds_up_may_be_the_axis(make_run, x) -> None:
    run = make_run(rounds=rounds([0.1, 0.2], **{x: [3, 4]}))
    assert trace(RunGroup("a", [run]), x, "accuracy").x.tolist() == [3, 7]
