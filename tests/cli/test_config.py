"""`fedge config`"""

from __future__ import annotations

import json
import tomllib


def test_output_is_a_valid_experiment_file(fedge, experiment_file, tmp_path):
    first = fedge("config", experiment_file)
    assert first.exit_code == 0
    assert tomllib.loads(first.stdout)["data"]["partition"] == {"name": "iid"}  # a default
    again = tmp_path / "again.toml"
    again.write_text(first.stdout)
    assert fedge("config", again).stdout == first.stdout


def test_json_and_toml_agree(fedge, experiment_file):
    def without_none(value):
        if not isinstance(value, dict):
            return value
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}

    as_toml = tomllib.loads(fedge("config", experiment_file).stdout)
    as_json = json.loads(fedge("config", experiment_file, "--format", "json").stdout)
    assert as_json["seeds"] is None
    assert without_none(as_json) == as_toml


def test_changes(fedge, experiment_file):
    changes = ["--set", "algorithm.learning_rate=0.5", "--set", "name=other", "--set", "seeds=[3, 4]"]
    found = tomllib.loads(fedge("config", experiment_file, *changes).stdout)
    assert found["algorithm"]["learning_rate"] == 0.5
    assert found["name"] == "other"
    assert found["seeds"] == [3, 4]


def test_all_problems_at_once(fedge, experiment_file):
    changes = ["--set", "algorithm.learning_rate=-1", "--set", "rounds=0", "--set", "data.cleints=3"]
    result = fedge("config", experiment_file, *changes)
    assert result.exit_code == 2
    first, *problems = result.stderr.splitlines()
    assert first == "error: 3 problems"
    assert sorted(problem.split()[1] for problem in problems) == [
        "algorithm.learning_rate:",
        "data.cleints:",
        "rounds:",
    ]


def test_no_such_file(fedge, tmp_path):
    result = fedge("config", tmp_path / "absent.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {tmp_path / 'absent.toml'}: ")
