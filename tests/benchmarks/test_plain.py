import pytest
import torch
from benchmarks.plain import MODELS, tensors, train
from benchmarks.workloads import WORKLOADS

PARAMETERS = {
    "mnist_2nn": 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10,
    "femnist_cnn": 870_334,
    "shakespeare_gru": 79 * 8 + 3 * 128 * (8 + 128 + 2) + 3 * 128 * (128 + 128 + 2) + 128 * 79 + 79,
    "bag_of_words": 10_002,
    "mtfl_cnn": (27 + 1 + 2) * 32 + (288 + 1 + 2) * 64 + 2305 * 512 + 513 * 10,
    "hfl_cnn": 26 * 10 + 251 * 30 + 481 * 100 + 101 * 10,
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_models_take_the_inputs_and_have_the_declared_parameters(name: str) -> None:
    workload = WORKLOADS[name]
    model = MODELS[workload.model]()
    x, _ = tensors(workload, 0)
    assert model(x[:2]).shape == (2, workload.num_classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[workload.model]


def test_client_takes_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: (taken.append(1), step(self)))
    workload = WORKLOADS["W4"]
    train(MODELS[workload.model](), *tensors(workload, 0), workload)
    assert len(taken) == workload.steps
