"""Examples and statements of the docs page and the recipe hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from fedge.core.schema import read
from fedge.sweeps.options import SweepOptions
from fedge.sweeps.plan import load, parse, work_out

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")


def test_example():
    example, halving = (tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
    plan = work_out(parse(example))
    # 2 partitions x 3 zipped pairs x (fedavg, scaffold I, scaffold II), without 3 x (iid, scaffold I); 2 seeds
    assert (len(plan.trials), plan.sweep.num_runs) == (2 * 3 * 3 - 3, 30)
    assert [trial.problems for trial in plan.trials if trial.problems] == []
    assert plan.trials[0].name in PAGE
    options = read(halving["sweep"], SweepOptions)
    assert options.halving is not None
    assert options.halving.rungs(100) == [5, 15, 45, 100]


def test_recipe_is_48_runs():
    plan = work_out(load(ROOT / "recipes" / "sweep" / "digits.toml"))
    assert plan.sweep.num_runs == 48
    assert [trial.problems for trial in plan.trials if trial.problems] == []


@pytest.mark.parametrize("field", msgspec.structs.fields(SweepOptions), ids=lambda field: field.name)
def test_every_option_is_on_the_page(field):
    assert f"| `{field.name}` |" in PAGE
