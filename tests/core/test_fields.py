import re

import pytest

from fedge.core.fields import (
    AXES,
    BYTES,
    COSTS,
    COSTS_TO_TARGET,
    FIELDS,
    FLOPS,
    METRICS,
    PERCENT,
    SECONDS,
    SUMMARY_FIELDS,
    Unit,
    components,
    describe,
    fitting,
    is_text,
    is_to_target,
    titled,
)


def test_every_field_is_declared_once_with_a_meaning() -> None:
    names = [field.name for field in (*FIELDS, *SUMMARY_FIELDS)]
    assert len(names) == len(set(names))
    assert [field.name for field in (*FIELDS, *SUMMARY_FIELDS) if not field.meaning or not field.title] == []
    titles = [field.title for field in FIELDS]
    assert len(titles) == len(set(titles))  # two columns or axes with one title could not be told apart


def test_the_fields_that_scripts_rely_on_are_declared() -> None:
    contract = """round messages bytes_backhaul cohort reported dropped accuracy loss train_accuracy train_eval_loss
    train_loss user_accuracy user_accuracy_std user_accuracy_min generalisation_gap bytes_down bytes_up local_steps
    flops sim_seconds sim_down_s sim_compute_s sim_up_s sim_wait_s energy_j seconds num_local_steps learning_rate
    weight_divergence cosine_distance clock void rejected late declined validation_accuracy validation_loss
    user_accuracy_clean evaluated_at"""
    assert set(contract.split()) <= {field.name for field in FIELDS}


@pytest.mark.parametrize(
    ("name", "title", "better"),
    [
        ("accuracy", "accuracy", "higher"),
        ("validation_accuracy", "validation accuracy", "higher"),
        ("best_user_accuracy", "best user accuracy", "higher"),
        ("user_accuracy_std", "user accuracy std", "lower"),
        ("user_accuracy_after_min", "user accuracy after min", "higher"),
        ("mean_user_accuracy_std", "mean user accuracy std per round", "lower"),
        ("loss", "loss", "lower"),
        ("best_loss", "best loss", "lower"),
        ("messages", "messages", "lower"),
        ("dropped", "dropped clients", "lower"),
        ("mean_dropped", "mean dropped clients per round", "lower"),
        ("reported", "clients that reported", "higher"),
        ("mean_sim_up_s", "mean edge upload time per round", "lower"),
        ("mean_sim_wait_s", "mean edge waiting time per round", "lower"),
        ("median_sim_seconds", "median edge time per round", "lower"),
        ("mean_weight_divergence", "mean weight divergence per round", "lower"),
        ("bytes", "upload + download", "lower"),
        ("bytes_to_target", "upload + download to target", "lower"),
        ("rounds_to_target", "rounds to target", "lower"),
        ("local_steps_to_target", "local steps to target", "lower"),
        ("learning_rate", "learning rate", "neither"),
        ("cohort", "clients asked", "neither"),
    ],
)
def test_titles_and_directions(name: str, title: str, better: str) -> None:
    assert (describe(name).name, describe(name).title, describe(name).better) == (name, title, better)


@pytest.mark.parametrize("name", ["my_loss", "lossless_accuracy", "bytes_saved", "f1", "f1_std", "loss_to_target"])
def test_an_unknown_name_is_neutral(name: str) -> None:
    found = describe(name)
    assert (found.title, found.units, found.better) == (name.replace("_", " "), (Unit("", 1.0),), "neither")
    assert describe(f"mean_{name}").better == describe(f"best_{name}").better == "neither"


def test_derived_names_keep_the_unit() -> None:
    for name in ("bytes_up", "bytes_up_to_target", "mean_bytes_up", "bytes", "median_bytes", "bytes_to_target"):
        assert describe(name).units == BYTES
    for name in ("accuracy", "best_accuracy", "user_accuracy_std", "train_accuracy", "user_accuracy_after_clean"):
        assert describe(name).units == PERCENT
    assert describe("seconds").units == describe("sim_wait_s").units == SECONDS


def test_fields_with_the_role_of_a_label_are_text() -> None:
    declared = [field.name for field in (*FIELDS, *SUMMARY_FIELDS)]
    names = [f"{prefix}{name}" for prefix in ("", "best_", "mean_", "median_best_") for name in declared]
    names += ["bytes", "bytes_to_target", "best_", "unknown", "round_to_target"]
    assert [name for name in names if is_text(name)] == [name for name in names if describe(name).role == "label"]
    assert is_text("best_round")
    assert not is_text("best_accuracy")


def test_a_total_is_a_sum_or_the_last_value() -> None:
    assert {describe(name).total for name in (*COSTS, "bytes", "seconds", "dropped", "void")} == {"sum"}
    assert {describe(name).total for name in (*METRICS, "learning_rate", "mean_bytes_up", "unheard_of")} == {"last"}


def test_the_groups_of_fields() -> None:
    costs = "messages bytes_down bytes_up bytes_backhaul local_steps flops sim_seconds energy_j"
    assert costs.split() == list(COSTS)
    assert set(COSTS) - set(COSTS_TO_TARGET) == {"messages", "bytes_backhaul"}
    assert [name for name in METRICS if describe(name).role != "metric"] == []
    assert AXES[0] == "round"
    assert {*COSTS, "seconds", "sim_up_s", "dropped"} <= set(AXES)
    assert not {"rejected", "accuracy", "learning_rate"} & set(AXES)  # not in every round, or nothing to add up


def test_a_better_value_has_a_smaller_rank() -> None:
    accuracy, loss, rate = describe("accuracy"), describe("loss"), describe("learning_rate")
    assert accuracy.rank(0.9) < accuracy.rank(0.8)
    assert loss.rank(0.8) < loss.rank(0.9)
    assert rate.rank(0.9) < rate.rank(0.8)  # neither is better: the larger comes first


def test_components_add_up_to_a_name() -> None:
    assert components("bytes") == ("bytes_up", "bytes_down")
    assert components("bytes_to_target") == ("bytes_up_to_target", "bytes_down_to_target")
    assert components("flops_to_target") == ("flops_to_target",)
    assert [is_to_target(name) for name in ("flops_to_target", "flops", "target")] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("accuracy", 0.8125, "81.25%"),
        ("best_accuracy", 1.0, "100.00%"),
        ("bytes_up", 6_000_000, "6 MB"),
        ("bytes_to_target", 3_210_000_000, "3.21 GB"),
        ("sim_seconds", 9000.0, "2.5 h"),
        ("local_steps", 1_234_567, "1,234,567"),
        ("local_steps", 12.5, "12.5"),  # a client's mean
        ("loss", 0.123456, "0.1235"),
        ("loss", float("inf"), "inf"),
        ("clock", "simulated", "simulated"),
        ("void", True, "True"),
    ],
)
def test_values_are_written_with_units(name: str, value: float | str, text: str) -> None:
    assert describe(name).write(value) == text


@pytest.mark.parametrize(
    ("units", "largest", "name"),
    [
        (BYTES, 12.0, "MB"),  # nothing smaller is on offer
        (BYTES, 1.9e9, "MB"),
        (BYTES, 2e9, "GB"),
        (BYTES, 7e15, "TB"),
        (FLOPS, 3e12, "TFLOPs"),
        (SECONDS, 0.0, "s"),
        (SECONDS, 0.0005, "ms"),
        (SECONDS, 0.999, "ms"),
        (SECONDS, 1.0, "s"),
        (SECONDS, 7199.0, "s"),
        (SECONDS, 7200.0, "h"),
    ],
)
def test_the_unit_fits_the_largest_value(units: tuple[Unit, ...], largest: float, name: str) -> None:
    assert fitting(units, largest).name == name


def test_a_title_has_its_unit_in_brackets() -> None:
    assert titled("upload", Unit("MB", 1e6)) == "upload (MB)"
    assert titled("loss", Unit("", 1.0)) == "loss"


def test_meanings_name_only_fields_that_exist() -> None:
    names = {field.name for field in (*FIELDS, *SUMMARY_FIELDS)}
    words = {"simulated", "measured", "server", "clients", "target", "patience", "callback"}
    quoted = {name for field in (*FIELDS, *SUMMARY_FIELDS) for name in re.findall(r"`(\w+)`", field.meaning)}
    assert quoted - words <= names
