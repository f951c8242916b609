import pytest

from fedge.report.text_width import text_width, wrap_to_width


@pytest.mark.parametrize(
    ("text", "pixels"),  # measured in Liberation Sans
    [("SCAFFOLD, η = 0.05, K = 8", 124.5), ("FedAvg, η = 0.1, K = 2", 99.9), ("WWWWMMM", 62.7), ("illil", 11.1)],
)
def test_widths_are_those_of_the_type(text, pixels) -> None:
    assert pixels <= text_width(text) <= 1.05 * pixels


def test_lines_fit_and_keep_all_words() -> None:
    text = "mean of 3 seeds; band: 95% confidence interval; η\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.1 " + "w" * 60
    lines = wrap_to_width(text, 100)
    assert all(text_width(one) <= 100 for one in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert any("η\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.1" in one for one in lines)
    assert wrap_to_width("", 100) == []
