"""Choice of the engine and of the block size."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from federation import Federation, Handmade, dense, make_sides, mixed
from fedge.algorithms.fedavg import FedAvg
from fedge.config import EngineOptions
from fedge.core.algorithm import Exchange
from fedge.core.errors import ConfigError
from fedge.core.reduce import Mean
from fedge.data.clients import Samples
from fedge.engines import auto
from fedge.engines.auto import Auto, suggest_rows
from fedge.engines.both_sides import BothSides
from fedge.experiment.engine_choice import Chosen, check_device, choose


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to have two cores, and 8 MiB of cache for the weights of a block."""
    monkeypatch.setenv("FEDGE_CORES", "2")
    monkeypatch.setattr(auto, "num_processors", lambda: 2)
    monkeypatch.setattr(auto, "_cache_bytes", lambda: 8 << 20)


def sides_of(make: Callable[[], nn.Module] = dense, num_samples: int = 3) -> BothSides:
    return make_sides(FedAvg().build, mixed((num_samples,) * 4), make, dtype=torch.float32)


def chosen(
    options: EngineOptions, sides: BothSides, notices: list[str] | None = None, rows: int | None = None
) -> Chosen:
    return choose(options, sides, 4, rows, (notices if notices is not None else []).append)


@pytest.mark.parametrize(
    ("width", "num_rows"),
    # at most 64 rows, 13 of 8*20,000 float32 weights, at least one
    [(1, 64), (20_000, 13), (300_000, 1)],
)
def test_a_block_fits_into_the_cache(width: int, num_rows: int) -> None:
    assert suggest_rows(sides_of(lambda: nn.Linear(8, width, bias=False)).server, 100) == num_rows


def test_heavy_work_gives_every_core_a_block() -> None:
    sides = sides_of()  # 4 clients with 3 samples each, 100 FLOPs per sample: light work
    assert suggest_rows(sides.server, 7) == 64
    assert suggest_rows(replace(sides.server, flops_per_sample=10**8), 7) == 4  # 2.1 GFLOPs on two cores
    assert suggest_rows(replace(sides.server, flops_per_sample=10**8), 1000) == 64


def test_rows_do_not_depend_on_workers() -> None:
    facts = [chosen(EngineOptions(name="pool", workers=workers), sides_of()).facts["rows"] for workers in (1, 2, 5)]
    assert facts == [64, 64, 64]


def test_rows_do_not_depend_on_the_share_of_a_run_in_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = sides_of()
    heavy = plain._replace(server=replace(plain.server, flops_per_sample=10**8))
    found = []
    for share in ("1", "2"):
        monkeypatch.setenv("FEDGE_CORES", share)
        found.append(suggest_rows(heavy.server, 7))
    assert found == [4, 4]


@pytest.mark.parametrize("given", [None, 5])
def test_configured_rows_override_those_of_a_resumed_run(given: int | None) -> None:
    assert chosen(EngineOptions(name="block", rows=given), sides_of(), rows=7).facts["rows"] == (given or 7)


@pytest.mark.parametrize("name", ["loop", "wire", "block", "pool"])
def test_the_configured_engine_is_chosen(name: str) -> None:
    found = chosen(EngineOptions(name=name), sides_of())  # type: ignore[arg-type]
    assert type(found.engine).__name__.lower() == name
    assert found.facts["engine"] == name
    found.close()


def test_one_core_needs_no_workers() -> None:
    assert chosen(EngineOptions(workers=1), sides_of()).facts["engine"] == "block"


class Undecided(nn.Module):
    """A model whose computation depends on its input, so that it has no batched form."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


def test_a_model_without_a_batched_form_runs_in_loop_with_a_notice() -> None:
    notices: list[str] = []
    assert chosen(EngineOptions(name="auto"), sides_of(Undecided), notices).facts == {"engine": "loop"}
    assert len(notices) == 1
    assert notices[0].startswith("engine: clients run one at a time (loop), because Undecided")


def test_a_model_without_kernels_runs_through_torch_func_with_a_notice() -> None:
    notices: list[str] = []
    found = chosen(
        EngineOptions(name="block"), sides_of(lambda: nn.Sequential(nn.Linear(8, 3), nn.Softplus())), notices
    )
    assert found.facts["engine"] == "block"
    assert notices == ["engine: torch.func, because Softplus has no batched kernel"]


def test_a_missing_device() -> None:
    absent = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(ConfigError, match=f"engine.device: torch finds no {absent} on this machine; available: cpu"):
        check_device(EngineOptions(device=absent))  # type: ignore[arg-type]


class Slow(Handmade):
    """Clients whose data loads slowly, depending on the process."""

    def __init__(self, here_s: float, elsewhere_s: float) -> None:
        super().__init__([mixed((3,)).train(0, 1)] * 4, 3)
        self._parent, self._here_s, self._elsewhere_s = os.getpid(), here_s, elsewhere_s

    def train(self, client: int, round: int) -> Samples:
        time.sleep(self._here_s if os.getpid() == self._parent else self._elsewhere_s)
        return super().train(client, round)


@pytest.mark.parametrize(("here_s", "elsewhere_s", "better"), [(0.05, 0.0, "pool"), (0.01, 0.1, "block")])
def test_auto_chooses_the_faster_engine_with_a_notice(here_s: float, elsewhere_s: float, better: str) -> None:
    expected = Federation(FedAvg().build, Slow(0, 0), "block", make=dense).rounds(6).everything()
    federation = Federation(FedAvg().build, Slow(here_s, elsewhere_s), "block", make=dense)
    notices: list[str] = []
    found = chosen(EngineOptions(rows=2), federation.sides, notices)
    assert isinstance(found.engine, Auto)
    federation.engine = found.engine
    federation.rounds(6)
    found.close()
    assert [text.partition(";")[0] for text in notices] == [f"engine: {better}"]
    for key, value in federation.everything().items():  # independent of which engine ran which round
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize(
    ("block_s", "pool_s", "tried"),
    [
        ([2.0], [1.5], "block pool"),  # 0.75 of block's time
        ([2.0], [1.7, 1.5], "block pool pool"),
        ([2.0, 1.8], [1.7, 1.7], "block pool pool block"),  # never under 0.8
    ],
)
def test_auto_stops_its_trials_when_the_pool_is_clearly_faster(
    block_s: list[float], pool_s: list[float], tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, ran, now = {"block": iter(block_s), "pool": iter(pool_s)}, list[str](), [0.0]
    monkeypatch.setattr(auto.time, "perf_counter", lambda: now[0])

    class Timed:
        def __init__(self, name: str) -> None:
            self._name = name

        def run(self, exchanges: object, infos: object) -> list[object]:
            ran.append(self._name)
            now[0] += next(times[self._name], 0.0)
            return []

    engine = Auto(sides_of(), Timed("block"), Timed("pool"), 2, lambda text: None)  # type: ignore[arg-type]
    exchange = Exchange("train", {}, (0,), Mean)
    for _ in range(6):
        engine.run([exchange], [])
    assert ran == tried.split() + ["pool"] * (6 - len(tried.split()))


def test_auto_does_not_try_workers_on_short_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_WORTH_TRYING_S", 1e6)  # so that this also holds on a busy machine
    federation = Federation(FedAvg().build, mixed(), "block", make=dense)
    notices: list[str] = []
    found = chosen(EngineOptions(), federation.sides, notices)
    federation.engine = found.engine
    federation.rounds(5)
    assert notices == []
    found.close()


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-3", 4), ("0-1,8-9", 4)])
def test_cpus_are_counted(text: str, count: int) -> None:
    assert auto._count_cpus(text) == count
