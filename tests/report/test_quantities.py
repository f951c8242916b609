import pytest

from fedge.report.quantities import BYTES, FLOPS, SECONDS, Unit, fitting, metric, titled


@pytest.mark.parametrize(
    ("units", "largest", "name"),
    [
        (BYTES, 12.0, "MB"),  # nothing smaller is on offer
        (BYTES, 1.9e9, "MB"),
        (BYTES, 2e9, "GB"),
        (BYTES, 7e15, "TB"),
        (FLOPS, 3e12, "TFLOPs"),
        (SECONDS, 7199.0, "s"),
        (SECONDS, 7200.0, "h"),
    ],
)
def test_the_unit_fits_the_largest_value(units: tuple[Unit, ...], largest: float, name: str) -> None:
    assert fitting(units, largest).name == name


def test_accuracies_are_read_in_percent() -> None:
    accuracy = metric("user_accuracy")
    assert (accuracy.title, accuracy.units) == ("user accuracy", (Unit("%", 0.01),))
    assert metric("train_loss").units[0].size == 1


def test_a_title_has_its_unit_in_brackets() -> None:
    assert titled("upload", Unit("MB", 1e6)) == "upload (MB)"
    assert titled("loss", Unit("", 1.0)) == "loss"
