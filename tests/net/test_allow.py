"""A server cannot make a client run or read a file that was not allowed."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from fedge.core.errors import ConfigError
from fedge.net.allow import AllowedParts, FileReference

CODE = "def build(shape, num_outputs): ...\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(CODE)
    return path


def test_reference_has_name_function_and_hash(model: Path) -> None:
    expected = FileReference("model.py", "build", sha256(CODE.encode()).hexdigest())
    assert FileReference.of(model, "build") == expected
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(expected), type=FileReference) == expected


@pytest.mark.parametrize("function", ["", ":build"])
def test_allowed_file_is_found_by_content_not_name(tmp_path: Path, model: Path, function: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(CODE)
    assert AllowedParts([f"{mine}{function}"]).find(FileReference.of(model, "build"), "model.name") == mine


def test_weights_are_found(tmp_path: Path) -> None:
    weights = tmp_path / "start.safetensors"
    weights.write_bytes(b"\0" * 100)
    assert AllowedParts([str(weights)]).find(FileReference.of(weights), "model.weights") == weights


def test_first_allowed_file_with_the_function_is_used(tmp_path: Path, model: Path) -> None:
    copy = tmp_path / "copy.py"
    copy.write_text(CODE)
    allowed = AllowedParts([f"{copy}:other", str(model)])
    assert allowed.find(FileReference.of(model, "build"), "model.name") == model


def test_refusal_names_what_to_allow(model: Path) -> None:
    digest = sha256(CODE.encode()).hexdigest()
    message = (
        rf"^model\.name: the server asks for model\.py:build \(SHA-256 {digest[:12]}\.\.\.\).*--allow path/to/model"
    )
    with pytest.raises(ConfigError, match=message):
        AllowedParts().find(FileReference.of(model, "build"), "model.name")


def test_other_function_of_the_file_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match=rf"model\.py:build .*only other is allowed.*--allow {model}$"):
        AllowedParts([f"{model}:other"]).find(FileReference.of(model, "build"), "model.name")


def test_other_content_under_the_same_name_is_refused(tmp_path: Path, model: Path) -> None:
    theirs = tmp_path / "server" / "model.py"
    theirs.parent.mkdir()
    theirs.write_text(CODE + "# newer\n")
    with pytest.raises(ConfigError, match=rf"the allowed file {model} has other content"):
        AllowedParts([str(model)]).find(FileReference.of(theirs, "build"), "model.name")


def test_content_is_hashed_at_lookup(model: Path) -> None:
    allowed, reference = AllowedParts([str(model)]), FileReference.of(model, "build")
    model.write_text("import os\n")
    with pytest.raises(ConfigError, match="has other content"):
        allowed.find(reference, "model.name")
    model.unlink()
    with pytest.raises(ConfigError, match=r"has other content \(SHA-256 unknown"):
        allowed.find(reference, "model.name")


def test_path_in_the_name_is_ignored(tmp_path: Path, model: Path) -> None:
    """The name is used in messages only: no file at that path is read, and the message cannot forge a line."""
    reference = FileReference(f"{model}\nall is well", "build", sha256(CODE.encode()).hexdigest())
    with pytest.raises(ConfigError) as raised:
        AllowedParts().find(reference, "model.name")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n"])
def test_a_reference_with_a_bad_hash_is_not_read(digest: str) -> None:
    data = msgspec.msgpack.encode({"file": "a.py", "function": None, "sha256": digest})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=FileReference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.py", r"--allow nowhere\.py: cannot read .*/nowhere\.py \(No such file"),
        ("nowhere.py:build", r"cannot read .*/nowhere\.py"),
        (".", r"cannot read .* \(Is a directory\)"),
        ("model.py:not a name", "got the name 'not a name'"),
    ],
)
def test_invalid_allow_is_an_error_at_startup(
    text: str, message: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    with pytest.raises(ConfigError, match=message):
        AllowedParts([text])
