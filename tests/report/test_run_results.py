import pytest

from fedge.core.errors import ConfigError
from fedge.report.run_results import check_outcome, outcome


def test_outcomes_of_a_run(make_run) -> None:
    summary = {"accuracy": 0.5, "bytes_up_to_target": 3, "bytes_down_to_target": 4, "rounds_to_target": None}
    rounds = [{"round": 1, "sim_seconds": 1.0}, {"round": 2, "sim_seconds": 9.0}, {"round": 3, "sim_seconds": 2.0}]
    run = make_run(rounds=rounds, summary=summary | {"ended_by": "rounds"})
    assert outcome(run, "accuracy") == 0.5
    assert outcome(run, "bytes_to_target") == 7
    assert outcome(run, "mean_sim_seconds") == 4
    assert outcome(run, "median_sim_seconds") == 2
    for absent in ("rounds_to_target", "mean_weight_divergence", "ended_by", "nothing"):
        assert outcome(run, absent) is None
    assert outcome(make_run(rounds=rounds, summary=None), "mean_sim_seconds") is None


def test_an_unknown_outcome_names_the_nearest(make_run) -> None:
    runs = [make_run(summary={"accuracy": 0.5, "rounds_to_target": None})]
    check_outcome(runs, "accuracy")
    check_outcome(runs, "rounds_to_target")  # reached by no run, which is a result
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        check_outcome(runs, "acuracy")


def test_a_field_of_the_records_is_a_sum_or_the_last_value(make_run) -> None:
    rounds = [
        {"round": 1, "dropped": 2, "train_loss": 3.0, "bytes_up": 5, "bytes_down": 7},
        {"round": 2, "dropped": 1, "train_loss": 2.0, "bytes_up": 1, "bytes_down": 3, "user_accuracy_clean": 0.5},
        {"round": 3, "dropped": 0, "bytes_up": 3, "bytes_down": 5, "void": True, "f1": 0.25},
    ]
    run = make_run(rounds=rounds, summary={"loss": None})
    found = {name: outcome(run, name) for name in ("dropped", "void", "train_loss", "user_accuracy_clean", "f1")}
    assert found == {"dropped": 3, "void": 1, "train_loss": 2.0, "user_accuracy_clean": 0.5, "f1": 0.25}
    assert outcome(run, "bytes") == 24  # 5 + 7, 1 + 3, 3 + 5
    assert outcome(run, "mean_bytes") == 8  # 24 in three rounds
    assert outcome(run, "loss") is None  # not a number in the summary
