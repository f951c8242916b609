"""Facts that pages of the documentation once had wrong."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedge.core.codecs.chain import parse_chain
from fedge.core.codecs.codec import ChainCodec
from fedge.core.layout import Layout
from fedge.core.slots import Slot

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("docs/engines.md", r"`loop` and `block` differ by 4e-4 after six rounds, .* and by 6e-4 in another set-up"),
        ("docs/engines.md", r"`engine\.rows` sets it, and changes bits"),
        ("recipes/hfl/README.md", r"240 images per client and rounds the cohort up"),
        ("recipes/dynavg/README.md", r"github\.com/sashlinreddy/dyn-fed"),
        ("recipes/comparisons/README.md", r"against uncompressed FedAvg by upload"),
        ("recipes/mnist/README.md", r"a limit of this recipe: Mills \(2023\) has 131 rounds for FedAvg-Adam"),
        ("docs/decisions/dynavg-flags.md", r"neither the request nor its answer is charged"),
        ("docs/decisions/intervals.md", r"The number of seeds is stated beside every mean"),
        ("docs/decisions/torch-range.md", r"has no upper bound"),
    ],
)
def test_a_page_has_it_right(page: str, said: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert re.search(said, text)


def test_the_name_of_a_compressed_entry() -> None:
    """docs/messages.md has an example, which is what an encoder writes."""
    layout = Layout.of(nn.Linear(3, 2))
    slots = {name: Slot("params", moment=name != "y") for name in ("y", "m", "v")}
    codec = ChainCodec(layout, slots, parse_chain(["sparsify(0.5)", "uniq"]), parse_chain(["expq"]))
    vector = torch.arange(1.0, 1 + layout.num_params)
    coded = codec.encode(dict.fromkeys(slots, vector), {}, np.random.default_rng(1))
    (name,) = coded
    assert f"such as `{name}`" in (ROOT / "docs/messages.md").read_text(encoding="utf-8")


def test_the_comparison_by_upload_is_with_uncompressed_fedavg() -> None:
    text = (ROOT / "recipes/comparisons/upload.toml").read_text(encoding="utf-8")
    assert '"fedavg"' in text
    assert "codec" not in text


def test_the_demo_has_three_seeds() -> None:
    """Fewer have no confidence interval."""
    for file in (ROOT / "recipes/demo").glob("*.toml"):
        assert "seeds = [1, 2, 3]\n" in file.read_text(encoding="utf-8"), file


@pytest.mark.full
def test_the_quadratic_example_prints_the_numbers_of_its_page(tmp_path: Path) -> None:
    script = shutil.copy(ROOT / "recipes/quadratic/draw.py", tmp_path)
    printed = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^(K .+): (\S+) over the last 500 rounds, .+, (\d+) steps per client$", printed, re.MULTILINE)
    assert len(lines) == 8
    page = (ROOT / "recipes/quadratic/README.md").read_text(encoding="utf-8")
    for label, end, steps in lines:
        assert re.search(
            rf"^\| {re.escape(label)}(?: a round)? \| {end} \| .* \| {int(steps):,} \|$", page, re.MULTILINE
        )
    assert {file.name for file in tmp_path.glob("*.svg")} == {"rates.svg", "steps.svg"}
