import gzip
import os
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
import torch

from fedge.core.errors import DataError
from fedge.data import mnist
from fedge.data.mnist import Mnist

FILES = tuple(mnist.CHECKSUMS)


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Files of the same form with 20 training and 10 test images; their checksums stand for the published."""
    made = {}
    for part, count in (("train", 20), ("t10k", 10)):
        pixels = np.arange(count * 784, dtype=np.uint32).astype(np.uint8)
        made[f"{part}-images-idx3-ubyte"] = (
            np.array([2051, count, 28, 28], ">i4").tobytes() + pixels.tobytes()
        )
        labels = np.arange(count, dtype=np.uint8) % 10
        made[f"{part}-labels-idx1-ubyte"] = np.array([2049, count], ">i4").tobytes() + labels.tobytes()
    for file, raw in made.items():
        forms = {f"{file}.gz": gzip.compress(raw, mtime=0), file: raw}
        monkeypatch.setitem(
            mnist.CHECKSUMS, file, {form: md5(data).hexdigest() for form, data in forms.items()}
        )
    return made


def put(folder: Path, contents: dict[str, bytes], zipped: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, raw in contents.items():
        if zipped:
            (folder / f"{file}.gz").write_bytes(gzip.compress(raw, mtime=0))
        else:
            (folder / file).write_bytes(raw)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["mnist", "."])
def test_files_are_read_zipped_or_not_in_either_folder(
    tmp_path: Path, contents: dict[str, bytes], folder: str, zipped: bool
) -> None:
    put(tmp_path / folder, contents, zipped)
    clients = Mnist(dir=str(tmp_path), clients=4).build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.regression) == ((1, 28, 28), 10, False)
    assert clients.sizes.tolist() == [5, 5, 5, 5]
    x, y = clients.pooled_test()
    assert x.shape == (10, 1, 28, 28)
    assert y.tolist() == list(range(10))
    # Pixel p of image i is the byte i * 784 + p, of 255.
    assert torch.equal(x[3, 0, 2], torch.tensor([(3 * 784 + 2 * 28 + c) % 256 for c in range(28)]) / 255)


def test_the_environment_and_the_cache_are_looked_in_next(
    tmp_path: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put(tmp_path / "cache/fedge/mnist", contents)
    assert Mnist(clients=2).build(seed=1).sizes.tolist() == [10, 10]
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere/mnist"):
        Mnist(clients=2).build(seed=1)
    with pytest.raises(DataError, match="nowhere/mnist"):
        Mnist(clients=2, dir=str(tmp_path / "nowhere")).build(seed=1)


def test_without_any_setting_the_cache_is_in_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FEDGE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"{tmp_path}/.cache/fedge/mnist"):
        Mnist().build(seed=1)


def test_missing_files_are_named_with_where_to_put_them(tmp_path: Path, contents: dict[str, bytes]) -> None:
    put(tmp_path / "mnist", contents)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as caught:
        Mnist(dir=str(tmp_path)).build(seed=1)
    message = str(caught.value)
    assert message.startswith("data.name: mnist needs t10k-labels-idx1-ubyte.gz, looked for in")
    assert f"curl -L --create-dirs -o {tmp_path}/mnist/NAME {mnist.SOURCE}/NAME" in message
    assert "FEDGE_DATA" in message


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_file_is_named_with_both_checksums(
    tmp_path: Path, contents: dict[str, bytes], file: str
) -> None:
    put(tmp_path, contents)
    path = tmp_path / f"{file}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError) as caught:
        Mnist(dir=str(tmp_path)).build(seed=1)
    expected, got = mnist.CHECKSUMS[file][path.name], md5(path.read_bytes()).hexdigest()
    assert f"{path} is truncated or corrupt: expected MD5 {expected}, got {got}" in str(caught.value)


def test_a_single_wrong_bit_is_found(tmp_path: Path, contents: dict[str, bytes]) -> None:
    put(tmp_path, contents, zipped=False)
    path = tmp_path / "train-images-idx3-ubyte"
    wrong = bytearray(path.read_bytes())
    wrong[5000] ^= 1
    path.write_bytes(wrong)
    with pytest.raises(DataError, match="corrupt"):
        Mnist(dir=str(tmp_path)).build(seed=1)


@pytest.mark.full
def test_the_published_files() -> None:
    if "FEDGE_DATA" not in os.environ:
        pytest.skip("needs the MNIST files: set FEDGE_DATA")
    clients = Mnist(clients=100).build(seed=1)
    labels = torch.cat([clients.train(client).y for client in range(100)])
    assert labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert clients.pooled_test().y.bincount().tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    mean = torch.stack([clients.train(client).x.mean() for client in range(100)]).mean()
    assert float(mean) == pytest.approx(0.1307, abs=5e-5)
