import json
from pathlib import Path

import pytest

from fedge.report.groups import Target, group_runs, varied
from fedge.runs.directory import RunDirectory
from fedge.runs.files import REGISTRY
from fedge.runs.read import Run, find_runs


def test_runs_that_differ_in_the_seed_are_one_group(make_run) -> None:
    a1, b1, a2 = make_run("a", 1), make_run("b", 1), make_run("a", 2)
    groups = group_runs([a1, b1, a2])
    assert [(group.label, list(group.runs)) for group in groups] == [("a", [a1, a2]), ("b", [b1])]


def test_groups_of_one_name_are_labelled_by_differing_settings(make_run) -> None:
    runs = [
        make_run("x", rounds_limit=5, algorithm={"name": "fedavg", "learning_rate": 0.1}),
        make_run("x", rounds_limit=5, algorithm={"name": "fedavg", "learning_rate": 0.2}),
        make_run("x", rounds_limit=5, algorithm={"name": "scaffold", "learning_rate": 0.1}),
        make_run("y", rounds_limit=5, algorithm={"name": "fedavg", "learning_rate": 0.3}),
    ]
    assert [group.label for group in group_runs(runs)] == [
        "x: FedAvg, η = 0.1",
        "x: FedAvg, η = 0.2",
        "x: SCAFFOLD, η = 0.1",
        "y",
    ]
    assert [group.label for group in group_runs(runs[:3])] == [
        "FedAvg, η = 0.1",
        "FedAvg, η = 0.2",
        "SCAFFOLD, η = 0.1",
    ]
    assert group_runs(runs[:3])[0].parts == {"algorithm.name": "FedAvg", "algorithm.learning_rate": "η = 0.1"}


def test_a_label_has_only_settings_that_distinguish_groups(make_run) -> None:
    runs = [
        make_run("x", algorithm={"name": "fedavg"}, engine={"name": "loop"}),
        make_run("x", algorithm={"name": "scaffold"}, engine={"name": "block"}),
    ]
    assert [group.label for group in group_runs(runs)] == ["FedAvg", "SCAFFOLD"]


def test_groups_are_in_numeric_order(make_run) -> None:
    runs = [make_run("x", algorithm={"name": "fedavg", "local_steps": steps}) for steps in (10, 2, 100, None)]
    assert [group.label for group in group_runs(runs)] == ["K = 2", "K = 10", "K = 100", "K not set"]


def test_settings_without_effect_do_not_split_groups(make_run) -> None:
    def run(seed: int, workers: int, rows: int):
        engine = {"name": "pool", "workers": workers, "rows": rows}
        return make_run("x", seed, engine=engine, without_effect=["engine.workers"])

    runs = [run(1, 2, 8), run(2, 3, 8), run(1, 4, 16)]
    groups = group_runs(runs)
    assert [(group.label, list(group.runs)) for group in groups] == [
        ("rows = 8", runs[:2]),
        ("rows = 16", runs[2:]),
    ]
    assert varied(runs) == {"engine.rows": [8, 8, 16]}


def test_runs_without_declarations_are_grouped_by_all_settings(make_run) -> None:
    runs = [
        make_run("x", engine={"workers": 1}),
        make_run("x", 2, engine={"workers": 2}),
        make_run("x", 3, engine={"workers": 1}),
    ]
    assert [list(group.runs) for group in group_runs(runs)] == [[runs[0], runs[2]], [runs[1]]]


def test_grouping_reads_every_run_a_constant_number_of_times(make_run) -> None:
    """Settings are read once to make groups and once to label them, however many there are."""

    class Counted(dict[str, int]):
        num_reads = 0

        def items(self):
            Counted.num_reads += 1
            return super().items()

    reads = []
    for count in (10, 40):
        Counted.num_reads = 0
        runs = [make_run("x", algorithm=Counted(step=step)) for step in range(count)]
        assert [group.label for group in group_runs(runs)] == [f"step = {step}" for step in range(count)]
        reads.append(Counted.num_reads / count)
    assert reads[0] == reads[1] > 0


def test_a_missing_section_splits_groups(make_run) -> None:
    runs = [make_run("x", codec=None), make_run("x", codec={"up": ["uniq"]})]
    assert [group.label for group in group_runs(runs)] == ["up not set", "up = uniq"]
    runs = [make_run("x", codec=None), make_run("x", codec={})]
    assert [group.label for group in group_runs(runs)] == ["codec not set", "codec = {}"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_repeated_seed_counts_once_as_its_finished_run(make_run, order: tuple[int, int]) -> None:
    runs = [make_run(summary={"rounds": 3}), make_run(summary=None)]
    (group,) = group_runs([runs[i] for i in order])
    assert list(group.runs) == [runs[0]]


def test_of_two_finished_runs_of_a_seed_the_last_is_used(make_run) -> None:
    first, last = make_run(summary={"rounds": 3}), make_run(summary={"rounds": 4})
    (group,) = group_runs([first, last])
    assert list(group.runs) == [last]


def test_target_is_read_in_the_unit_of_its_metric(make_run) -> None:
    with_target = make_run(target={"metric": "user_accuracy", "value": 0.955, "stop": True})
    (group,) = group_runs([with_target])
    assert group.target == Target("user_accuracy", 0.955)
    assert str(group.target) == "user accuracy 95.5%"
    assert str(Target("train_loss", 0.35)) == "train loss 0.35"
    assert group_runs([make_run()])[0].target is None


def test_runs_on_disk_implement_run_view(tmp_path: Path) -> None:
    for seed in (1, 2):
        run = tmp_path / f"seed-{seed}"
        run.mkdir()
        (run / "config.json").write_text(json.dumps({"format": 1, "name": "disk", "seed": seed}))
        (run / "rounds.jsonl").write_text(json.dumps({"round": 1, "accuracy": 0.5}) + "\n")
    (group,) = group_runs(find_runs(tmp_path))
    assert group.label == "disk"
    assert [run.rounds[0]["accuracy"] for run in group.runs] == [0.5, 0.5]
    assert [run.summary for run in group.runs] == [None, None]


def test_measured_and_simulated_runs_are_separate_groups(tmp_path: Path) -> None:
    """Of one experiment file and one seed."""
    for name in ("simulated", "real"):
        with RunDirectory.create(tmp_path / name, {"name": "x", "seed": 1, "rounds": 1}, {}) as directory:
            directory.append({"round": 1, "accuracy": 0.5})
    (tmp_path / "real" / REGISTRY).touch()
    groups = group_runs([Run(tmp_path / "simulated"), Run(tmp_path / "real")])
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("clock = simulated", 1),
        ("clock = measured", 1),
    ]


def test_names_that_sweeps_derive_from_settings_are_ignored(make_run) -> None:
    runs = [
        make_run(f"{name}+local_steps-{steps}", algorithm={"name": name, "local_steps": steps})
        for name in ("fedavg", "scaffold")
        for steps in (10, 2)
    ]
    groups = group_runs([*runs, make_run("my own", algorithm={"name": "fedavg", "local_steps": 7})])
    assert [group.label for group in groups] == [
        "FedAvg, K = 2",
        "FedAvg, K = 10",
        "SCAFFOLD, K = 2",
        "SCAFFOLD, K = 10",
        "my own",
    ]
    assert [group.label for group in group_runs(runs[:1])] == ["FedAvg, K = 10"]
    both = make_run("rate-0.5", algorithm={"rate": 0.5}, schedule={"rate": None}, server={"rate": 0.25})
    assert group_runs([both])[0].parts == {"algorithm.rate": "rate = 0.5"}
    long = make_run("fedavg+local_steps-10+0a1b2c3d", algorithm={"name": "fedavg", "local_steps": 10})
    assert [group.label for group in group_runs([long])] == ["FedAvg, K = 10"]
    same = [make_run(name, algorithm={"name": "fedavg"}) for name in ("name-a", "name-b")]
    assert [group.label for group in group_runs(same)] == ["name-a", "name-b"]
