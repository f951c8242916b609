"""What may change when a run is resumed, and how its directory records it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedge.api.functions import run
from fedge.api.run import Run
from fedge.config import Config, change, parse, plain
from fedge.core.effect import paths_without_effect
from fedge.core.errors import ConfigError, DataError, VoidError
from fedge.core.progress import Silent
from fedge.experiment.start import resume
from fedge.runs.read import RunRecords

SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 3,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "logistic"},
    "algorithm": {"name": "scaffold", "local_steps": 2},
    "selection": {"count": 4},
    "engine": {"name": "pool", "workers": 1, "rows": 2},
}
OTHERWISE: dict[str, Any] = {
    "data.dir": "/elsewhere",
    "edge.record": True,
    "trace": {"clients": 2},
    "checkpoint.every": 1,
    "engine.workers": 2,
    "engine.stall_s": 7.0,
    "net": {"fraction": 0.5},
    "track": {"name": "tensorboard"},
}
"""Another value for every setting that does not affect results."""


def train(path: Path, settings: dict[str, Any] = SMALL, **changes: Any) -> Run:
    found = run(settings, runs=path, **changes)
    assert isinstance(found, Run)
    return found


def records(of: Run) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in of.rounds]


def assert_same_results(one: Run, other: Run) -> None:
    assert records(one) == records(other)
    assert one.clients == other.clients
    ours, theirs = one.state(), other.state()
    assert list(ours) == list(theirs)
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_settings_without_effect_do_not_change_results(tmp_path: Path) -> None:
    assert set(OTHERWISE) == set(paths_without_effect(parse(SMALL)))
    usual, otherwise = train(tmp_path), train(tmp_path, **OTHERWISE)
    assert [file.name for file in sorted(otherwise.path.glob("*.jsonl")) if not (usual.path / file.name).exists()] == [
        "edge.jsonl",
        "traces.jsonl",
    ]
    assert_same_results(usual, otherwise)
    assert usual.config != otherwise.config
    assert usual.digest == otherwise.digest
    assert usual.id != otherwise.id


def test_settings_without_effect_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    through = train(tmp_path, rounds=4)
    found = train(tmp_path, rounds=2)
    before = Run(found.path)
    assert before.id is not None
    resume(found.path, {**OTHERWISE, "rounds": 4}, Silent())
    after = Run(found.path)
    assert after.config == plain(parse(change(before.config, {**OTHERWISE, "rounds": 4})))
    assert (after.id, after.digest) == (before.id, through.digest)
    assert_same_results(after, through)


def test_settings_cannot_change_after_the_last_round(tmp_path: Path) -> None:
    """Otherwise the configuration of a complete run would have a learning rate that it was not trained with."""
    found = train(tmp_path, rounds=1)
    with pytest.raises(
        ConfigError, match="algorithm: has no effect, since all 1 rounds are done; also set rounds above"
    ):
        resume(found.path, ["algorithm.learning_rate=0.7"], Silent())
    assert Run(found.path).config == found.config
    resume(found.path, ["algorithm.learning_rate=0.7", "rounds=2"], Silent())
    assert Run(found.path).config["algorithm"]["learning_rate"] == 0.7


def test_a_changed_setting_affects_unfinished_seeds_only(tmp_path: Path) -> None:
    runs = run(SMALL, runs=tmp_path, rounds=1, seeds=[1, 2])
    assert isinstance(runs, list)
    shutil.rmtree(runs[1].path)
    resume(runs[0].path.parent, ["algorithm.learning_rate=0.7"], Silent())
    rates = [Run(each.path).config["algorithm"]["learning_rate"] for each in runs]
    assert rates == [runs[0].config["algorithm"]["learning_rate"], 0.7]


def test_a_data_folder_may_move(tmp_path: Path) -> None:
    found = train(tmp_path, rounds=1)
    resume(found.path, ["data.dir=/moved"], Silent())
    after = Run(found.path)
    assert after.config["data"]["dir"] == "/moved"
    assert (after.status, records(after)) == ("complete", records(found))
    with pytest.raises(ConfigError, match="data: cannot change when a run is resumed"):
        resume(found.path, ["data.dir=/moved", "data.clients=11"], Silent())


def test_an_older_run_records_settings_without_effect_when_it_is_resumed(tmp_path: Path) -> None:
    found = train(tmp_path, rounds=1)
    file = found.path / "config.json"
    file.write_text(json.dumps(found.config | {"format": 1}))
    old = Run(found.path)
    assert (old.id, old.effective) == (None, old.config | {"clock": "simulated"})
    resume(found.path, ["rounds=2"], Silent())
    new = Run(found.path)
    assert new.id is not None
    assert new.config == old.config | {"rounds": 2}
    assert json.loads(file.read_text())["without_effect"] == list(paths_without_effect(parse(new.config)))


def test_repeats_have_an_id_each(tmp_path: Path) -> None:
    found = run(SMALL, runs=tmp_path, rounds=1, seeds=[1, 2])
    assert isinstance(found, list)
    ids = [one.id for one in found]
    assert None not in ids
    assert ids[0] != ids[1]
    assert RunRecords(tmp_path / "small").id is None  # a folder of runs is not a run


@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize(
    ("at", "problem"), [(None, "data: there are no test samples"), ("clients", "evaluate: no client")]
)
def test_test_samples_are_required(at: str | None, problem: str, engine: str, tmp_path: Path) -> None:
    """A fifth of the four rows of each key is none."""
    rows = [f"{user},{row},{row % 2}" for user in "abc" for row in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["user,x,y", *rows]))
    table = {"name": "table", "file": str(tmp_path / "t.csv"), "target": "y"}
    raw = {
        "data": {**table, "partition": {"name": "natural", "column": "user"}},
        "model": "logistic",
        "algorithm": {"name": "fedavg", "local_steps": 1},
        "rounds": 1,
        "evaluate": {"at": at},
        "engine": {"name": engine},
    }
    with pytest.raises(DataError, match=f"^{problem}"):
        train(tmp_path, raw)
    assert train(tmp_path, change(raw, {"data.test_fraction": 0.25})).last("accuracy") is not None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rounds": -3}, "rounds: expected int >= 1, got -3"),
        ({"rounds": "5"}, "rounds: expected int, got '5'"),
        ({"name": "../../x"}, "name: expected at most 200 letters"),
    ],
)
def test_python_objects_are_checked_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    config = parse(SMALL)
    parts = {field: getattr(config, field) for field in config.__struct_fields__}
    with pytest.raises(ConfigError, match=expected):
        run(Config(**parts | changes), runs=tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_any_answer_is_not_complete(tmp_path: Path) -> None:
    edge = {"clock": "fixed", "seconds_per_step": 9.0, "deadline_s": 1.0}
    settings = {**SMALL, "rounds": 2, "edge": edge, "engine": {"name": "loop"}}
    with pytest.raises(VoidError) as caught:
        run(settings, runs=tmp_path)
    assert str(caught.value).splitlines() == [
        "no client answered in any of the 2 rounds; no client can meet edge.deadline_s = 1: raise it",
        f"The run is kept: fedge resume {tmp_path}/small --set edge.deadline_s=10 --set rounds=4",
    ]
    found = Run(tmp_path / "small")
    assert found.status == "unfinished"
    assert [record["void"] for record in found.rounds] == [True, True]


def test_void_rounds_are_announced(tmp_path: Path) -> None:
    edge = {"clock": "fixed", "seconds_per_step": 9.0, "deadline_s": 1.0}
    settings = {**SMALL, "rounds": 2, "edge": edge, "engine": {"name": "loop"}}
    with pytest.raises(VoidError):
        run(settings, runs=tmp_path)
    told = Notices()
    resume(tmp_path / "small", {"edge.deadline_s": 100.0, "rounds": 3}, told)
    assert told.texts == [f"{tmp_path}/small: no client answered in 2 of 3 rounds"]
    summary = Run(tmp_path / "small").summary
    assert summary is not None
    assert summary["void"] == 2
    assert Run(tmp_path / "small").status == "complete"


class Notices(Silent):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def notice(self, text: str) -> None:
        self.texts.append(text)
