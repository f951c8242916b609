import numpy as np
import pytest
from benchmarks.workloads import WORKLOADS


def test_flops_of_the_perceptron() -> None:
    # 156,800 + 40,000 + 2,000 multiply-accumulates; the first layer needs no gradient of its input.
    per_sample = 2 * (156_800 * 2 + 42_000 * 3)
    assert WORKLOADS["W1"].flops == per_sample * 20 * 15 * 100


def test_flops_of_the_first_convolution_and_of_the_linear_model() -> None:
    assert WORKLOADS["W2"].macs[:2] == (26 * 26 * 32 * 9, 11 * 11 * 64 * 288)
    assert WORKLOADS["W4"].flops == 2 * (2 * 10_000) * 8 * 10 * 50


@pytest.mark.parametrize("name", WORKLOADS)
def test_steps_are_whole_epochs_of_full_batches(name: str) -> None:
    workload = WORKLOADS[name]
    x, y = workload.full_batches(workload.registered - 1)
    assert len(x) == len(y)
    assert workload.num_epochs * len(y) == workload.steps * workload.batch


@pytest.mark.parametrize("name", WORKLOADS)
def test_samples_have_the_right_shape_and_classes_and_are_reproducible(name: str) -> None:
    workload = WORKLOADS[name]
    x, y = workload.samples(workload.registered - 1)
    assert x.shape == (workload.num_samples, *workload.shape)
    assert (x.dtype.kind, y.min() >= 0, y.max() < workload.num_classes) == ("i" if workload.characters else "f", 1, 1)
    again, _ = workload.samples(workload.registered - 1)
    assert np.shares_memory(x, again)


def test_cohorts_cycle_through_all_clients() -> None:
    workload = WORKLOADS["W3"]
    assert workload.clients(1) == list(range(7, 14))
    assert workload.clients(14) == [98, 99, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", WORKLOADS)
def test_fraction_of_registered_clients_gives_the_cohort(name: str) -> None:
    workload = WORKLOADS[name]
    assert int(workload.fraction * workload.registered) == workload.cohort
