import pytest

from fedge.core.errors import ConfigError
from fedge.report.outcomes import check_outcome, describe, lower_is_better, outcome


def test_what_a_run_came_to(make_run) -> None:
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
    check_outcome(runs, "rounds_to_target")  # reached by none, which is a result
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        check_outcome(runs, "acuracy")


@pytest.mark.parametrize(
    ("field", "title", "lower"),
    [
        ("accuracy", "accuracy", False),
        ("best_user_accuracy", "best user accuracy", False),
        ("user_accuracy_std", "user accuracy std", True),
        ("loss", "loss", True),
        ("bytes_to_target", "upload + download to target", True),
        ("local_steps_to_target", "local steps to target", True),
        ("median_sim_seconds", "median edge time of a round", True),
        ("mean_weight_divergence", "mean weight divergence of a round", True),
    ],
)
def test_how_it_is_called_and_which_way_is_better(field, title, lower) -> None:
    assert (describe(field).title, lower_is_better(field)) == (title, lower)
