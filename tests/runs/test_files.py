from pathlib import Path

import msgspec
import numpy as np
import pytest

from fedge.core.errors import RunError
from fedge.runs import files


def test_json_has_no_nan() -> None:
    values = {
        "a": float("nan"),
        "b": [np.float32("inf"), -np.float64("inf")],
        "c": np.float64("nan"),
        "d": None,
    }
    assert files.encode(values) == b'{"a":null,"b":[null,null],"c":null,"d":null}'


def test_json_takes_numpy_scalars() -> None:
    values = {
        "a": np.float32(0.5),
        "b": np.int64(3),
        "c": np.bool_(True),
        "d": np.float64(0.1),
        "e": np.str_("x"),
    }
    assert msgspec.json.decode(files.encode(values)) == {"a": 0.5, "b": 3, "c": True, "d": 0.1, "e": "x"}


def test_json_refuses_other_types() -> None:
    with pytest.raises(TypeError, match="expected a JSON value or a numpy scalar, got complex"):
        files.encode({"a": 1j})


def test_lines() -> None:
    assert files.encode_lines({"client": i} for i in range(2)) == b'{"client":0}\n{"client":1}\n'


def test_config_round_trip(tmp_path: Path) -> None:
    config = {"seed": 3, "data": {"name": "digits", "shape": (1, 2)}, "codec": None}
    (tmp_path / "config.json").write_bytes(files.encode_config(config))
    assert msgspec.json.decode((tmp_path / "config.json").read_bytes())["format"] == 2
    settings = {"seed": 3, "data": {"name": "digits", "shape": [1, 2]}, "codec": None}
    assert files.read_config(tmp_path) == (settings, files.RunMark())
    mark = files.RunMark("0123456789abcdef", 3, ("data.dir", "trace"))
    (tmp_path / "config.json").write_bytes(files.encode_config(config, mark))
    assert files.read_config(tmp_path) == (settings, mark)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no run at .*: expected config\.json in it"),
        (b"", r"config\.json is damaged: expected a JSON object"),
        (b'{"format": 1, "na', r"config\.json is damaged: expected a JSON object"),
        (b'{"format": 1, "name": "\xff"}', r"config\.json is damaged: expected a JSON object"),
        (b"[1, 2]", r"config\.json is damaged: expected a JSON object"),
        (
            b'{"model_type": "bert"}',
            r"is not a run of fedge: expected a format number in config\.json, got None",
        ),
        (b'{"format": "1"}', r"is not a run of fedge: .* got '1'"),
        (b'{"format": true}', r"is not a run of fedge: .* got True"),
        (b'{"format": 1, "id": 7}', r"config\.json is damaged: id: .*put back a copy"),
        (b'{"format": 1, "generation": -1}', r"config\.json is damaged: generation: "),
        (b'{"format": 1, "without_effect": "trace"}', r"config\.json is damaged: without_effect: "),
        (
            b'{"format": 3}',
            r"has format 3, and this fedge reads up to format 2; use fedge of the version that",
        ),
    ],
)
def test_invalid_config(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=message):
        files.read_config(tmp_path)


def test_newer_format_names_the_required_version(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 3}')
    (tmp_path / "environment.json").write_text('{"fedge": "9.1.0"}')
    with pytest.raises(RunError, match=r"use fedge 9\.1\.0 or newer"):
        files.read_config(tmp_path)
