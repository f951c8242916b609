"""A model of two weights; every gradient is (1, 2), and the rate is 1/2."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fedge.core.algorithm import ALL, Batch, Context, Info, Work
from fedge.core.layout import Layout, Tree
from fedge.core.rehearsal import Rehearsed, rehearse

INFO = Info(round=4, rate=0.5, num_steps=10, num_epochs=None, num_clients=7, seed=0)
GRADIENT = torch.tensor([1.0, 2.0], dtype=torch.float64)


def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
    return {"y": down["x"], "stats": down["stats"]}


def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
    return {"y": local["y"]}, {"seen": kept["seen"] + ctx.num_steps}


def descend(local: Tree, ctx: Context) -> tuple[float, None, float]:
    return 1.0, None, ctx.rate


def perform(work: Work, input_shape: Sequence[int] = (1,)) -> Rehearsed:
    down = {"x": torch.tensor([3.0, 3.0], dtype=torch.float64), "stats": torch.zeros(0)}
    kept = {"seen": torch.tensor([5.0], dtype=torch.float64)}
    layout = Layout.of(nn.Linear(2, 1, bias=False))
    return rehearse(work, down, kept, INFO, layout, input_shape, GRADIENT)


def test_one_affine_step() -> None:
    done = perform(Work(start, final, affine=descend))
    assert done.local["y"].tolist() == [2.5, 2.0]  # 3 - (1, 2)/2
    assert done.upload["y"].tolist() == [2.5, 2.0]
    assert done.kept["seen"].tolist() == [6]  # one step
    assert done.kept["seen"].dtype == torch.float64  # that of the gradient
    assert done.gradients == (0, 1, 0)


def test_the_raw_gradient_is_available_but_not_kept() -> None:
    def step(local: Tree, g: Tensor, ctx: Context) -> Tree:
        return {**local, "y": local["y"] - g - local["raw"]}

    done = perform(Work(start, final, step=step))
    assert done.local["y"].tolist() == [1, -1]  # 3 - 2*(1, 2)
    assert done.local.keys() == {"y", "stats"}


def test_gradients_are_counted_by_kind() -> None:
    def init(down: Tree, kept: Tree, ctx: Context) -> Tree:
        return {**start(down, kept, ctx), "full": ctx.grad_at(down["x"], ALL)}

    def gradient(local: Tree, batches: Sequence[Batch], ctx: Context) -> Tensor:
        return sum((ctx.grad_at(local["y"], batch) for batch in batches), torch.zeros(2))

    done = perform(Work(init, final, affine=descend, gradient=gradient, batches_per_step=3))
    assert done.gradients == (1, 3, 0)
    assert done.local["y"].tolist() == [1.5, 0]  # 3 - 3*(1, 2)/2


def test_work_without_training_sees_inputs_of_the_right_shape() -> None:
    def upload(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return {"size": local["size"]}, kept

    def look(inputs: Tensor) -> Tree:
        return {"size": torch.tensor(inputs.shape)}

    done = perform(Work(lambda down, kept, ctx: {}, upload, look=look), input_shape=(2, 28, 28))
    assert done.upload["size"].tolist() == [1, 2, 28, 28]
    assert done.gradients == (0, 0, 0)


@pytest.mark.parametrize(("field", "expected"), [("round", 4), ("rate", 0.5), ("num_clients", 7), ("step", 0)])
def test_the_context_is_that_of_the_round(field: str, expected: float) -> None:
    def upload(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return {field: torch.tensor([float(getattr(ctx, field))])}, kept

    assert perform(Work(start, upload, affine=descend)).upload[field].item() == expected
