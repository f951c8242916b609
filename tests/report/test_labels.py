import pytest

from fedge.algorithms import AlgorithmOptions
from fedge.core.errors import ConfigError
from fedge.core.fields import PERCENT, describe
from fedge.core.schema import structs, tag
from fedge.report.groups import group_runs, regroup
from fedge.report.labels import ALGORITHMS, DisplayNames, parse_labels, sorted_values


def test_every_algorithm_has_a_display_name() -> None:
    tags = {tag(kind) for kind in structs(AlgorithmOptions)}
    assert tags - {None} <= set(ALGORITHMS)


def test_values_have_the_digits_that_distinguish_them() -> None:
    labels = DisplayNames()
    assert labels.values("algorithm.learning_rate", [0.1, 1e-05, 0.0125]) == ["0.1", "1e-05", "0.0125"]
    assert labels.values("algorithm.learning_rate", [0.123456789, 0.5]) == ["0.123", "0.5"]
    assert labels.values("algorithm.learning_rate", [0.123456789, 0.1234123456]) == ["0.1235", "0.1234"]
    assert labels.values("rounds", [1000, None]) == ["1,000", "not set"]
    assert labels.values("evaluate.train", [True, False]) == ["true", "false"]
    assert labels.values("algorithm.name", ["a/x.py:Mine", "b/x.py:Mine"]) == ["a/x.py:Mine", "b/x.py:Mine"]
    assert labels.values("algorithm.name", ["a/x.py:Mine", "pfedme"]) == ["x.py:Mine", "pFedMe"]


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("algorithm.learning_rate", "learning rate η"),
        ("algorithm.local_steps", "local steps K"),
        ("selection.fraction", "client fraction C"),
        ("edge.bandwidth_hz", "bandwidth (Hz)"),
        ("edge.up_mbps", "up (Mbit/s)"),
        ("algorithm.weight_decay", "weight decay"),
        ("data.partition.name", "partition"),
        ("reduce.name", "reduce"),
    ],
)
def test_titles_of_settings_have_symbols_and_units(path: str, title: str) -> None:
    assert DisplayNames().setting(path) == title


def test_values_are_sorted_by_size_and_names_by_appearance() -> None:
    assert sorted_values([10, 2, 10, 0.5]) == [0.5, 2, 10]
    assert sorted_values(["b", "a", "b", None]) == ["b", "a", None]


def test_labels_of_the_command_line_are_split_at_the_first_bare_equals_sign() -> None:
    given = parse_labels(["accuracy=test accuracy", "FedAvg, η = 0.1=ours = best", "fedavg="])
    assert given == {"accuracy": "test accuracy", "FedAvg, η = 0.1": "ours = best", "fedavg": ""}
    for wrong in ("accuracy", "=text", "η = 0.1"):
        with pytest.raises(ConfigError, match="expected KEY=TEXT"):
            parse_labels([wrong])


def test_labels_replace_settings_values_fields_and_axes(make_run) -> None:
    runs = [make_run("x", algorithm={"name": name, "learning_rate": r}) for name in ("fedavg", "mtfl") for r in (1, 2)]
    words = DisplayNames({"learning_rate": "lr", "fedavg": "baseline", "mtfl, lr = 1": "ours"})
    assert [group.label for group in group_runs(runs, words)] == [
        "baseline, lr = 1",
        "baseline, lr = 2",
        "ours",
        "mtfl, lr = 2",
    ]
    words.check()
    assert [group.label for group in regroup(group_runs(runs), ["algorithm.name"], words)] == ["baseline", "mtfl"]
    (percent,) = PERCENT
    accuracy = describe("accuracy")
    assert DisplayNames().axis("y", accuracy, percent) == "accuracy (%)"
    assert DisplayNames({"accuracy": "test accuracy"}).axis("y", accuracy, percent) == "test accuracy (%)"
    assert DisplayNames({"y": "top-1"}).axis("y", accuracy, percent) == "top-1"


def test_a_label_that_names_nothing_is_an_error_with_the_nearest_key(make_run) -> None:
    runs = [make_run("x", algorithm={"name": "fedavg", "learning_rate": rate}) for rate in (1, 2)]
    words = DisplayNames({"learning_rat": "lr"})
    group_runs(runs, words)
    with pytest.raises(ConfigError, match=r"the chart has no 'learning_rat', did you mean 'learning_rate'"):
        words.check()


def test_two_groups_cannot_have_one_label(make_run) -> None:
    runs = [make_run("x", algorithm={"learning_rate": rate}) for rate in (1, 2)]
    with pytest.raises(ConfigError, match="two groups of runs would be called 'a'"):
        group_runs(runs, DisplayNames({"η = 1": "a", "η = 2": "a"}))


def test_an_experiment_named_like_its_algorithm_has_the_name_of_the_paper(make_run) -> None:
    runs = [make_run("fedavg", algorithm={"name": "fedavg"}), make_run("mine", algorithm={"name": "fedavg"})]
    assert [group.label for group in group_runs(runs)] == ["FedAvg", "mine"]
    runs = [make_run("fedavg", algorithm={"name": "fedavg"}), make_run("FedAvg", algorithm={"name": "fedavg"})]
    assert [group.label for group in group_runs(runs)] == ["fedavg", "FedAvg"]
