import gzip
import os
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
import torch

from fedge.core.errors import DataError
from fedge.data.download import check_content
from fedge.data.files import Collection, Source, checksums, data_dir, read_checked
from fedge.data.mnist import FASHION, MNIST, WRITERS, FashionMnist, Mnist
from fedge.data.partition import Natural

FILES = [source.name.removesuffix(".gz") for source in MNIST.files]


def publish(collection: Collection, made: dict[str, bytes]) -> Collection:
    """Return the same files, with the checksums of those made here as the published ones."""
    files = []
    for source in collection.files:
        raw = made[source.name.removesuffix(".gz")]
        forms = {f"{source.name}": gzip.compress(raw, mtime=0), source.name.removesuffix(".gz"): raw}
        files.append(Source({form: md5(data).hexdigest() for form, data in forms.items()}, source.how))
    return collection._replace(files=tuple(files))


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Return files in the same format with 20 training and 10 test images, registered as the published ones."""
    made = {}
    for part, count in (("train", 20), ("t10k", 10)):
        pixels = np.arange(count * 784, dtype=np.uint32).astype(np.uint8)
        made[f"{part}-images-idx3-ubyte"] = np.array([2051, count, 28, 28], ">i4").tobytes() + pixels.tobytes()
        labels = np.arange(count, dtype=np.uint8) % 10
        made[f"{part}-labels-idx1-ubyte"] = np.array([2049, count], ">i4").tobytes() + labels.tobytes()
    monkeypatch.setattr(Mnist, "sources", (publish(MNIST, made), WRITERS))
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
    assert (clients.shape, clients.num_outputs, clients.task) == ((1, 28, 28), 10, "classes")
    assert clients.sizes.tolist() == [5, 5, 5, 5]
    x, y = clients.pooled_test()
    assert x.shape == (10, 1, 28, 28)
    assert y.tolist() == list(range(10))
    # Pixel p of image i is the byte i * 784 + p, of 255.
    assert torch.equal(x[3, 0, 2], torch.tensor([(3 * 784 + 2 * 28 + c) % 256 for c in range(28)]) / 255)


def test_environment_variable_and_cache_are_searched_next(
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


def test_default_cache_is_in_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDGE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"{tmp_path}/.cache/fedge/mnist"):
        Mnist().build(seed=1)


def test_error_about_missing_files_names_their_folder(tmp_path: Path, contents: dict[str, bytes]) -> None:
    put(tmp_path / "mnist", contents)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as caught:
        Mnist(dir=str(tmp_path)).build(seed=1)
    message = str(caught.value)
    assert message.startswith("data.name: mnist needs t10k-labels-idx1-ubyte.gz, looked for in")
    file = "t10k-labels-idx1-ubyte.gz"
    assert f"  curl -L --create-dirs -o {tmp_path}/mnist/{file} https://" in message
    assert "train-images" not in message
    assert "FEDGE_DATA" in message


@pytest.mark.parametrize("file", FILES)
def test_error_about_a_truncated_file_has_both_checksums(tmp_path: Path, contents: dict[str, bytes], file: str) -> None:
    put(tmp_path, contents)
    path = tmp_path / f"{file}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError) as caught:
        Mnist(dir=str(tmp_path)).build(seed=1)
    (source,) = [source for source in Mnist.sources[0].files if path.name in source.forms]
    expected, got = source.forms[path.name], md5(path.read_bytes()).hexdigest()
    assert f"{path} is truncated or corrupt: expected MD5 {expected}, got {got}" in str(caught.value)


def test_files_zipped_by_another_program_are_accepted(tmp_path: Path, contents: dict[str, bytes]) -> None:
    put(tmp_path, contents)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(contents[path.stem], compresslevel=1, mtime=1))
    assert Mnist(dir=str(tmp_path), clients=4).build(seed=1).sizes.tolist() == [5, 5, 5, 5]
    wrong = bytearray(contents[path.stem])
    wrong[5000] ^= 1
    path.write_bytes(gzip.compress(wrong))
    with pytest.raises(DataError, match="corrupt: expected MD5"):
        Mnist(dir=str(tmp_path)).build(seed=1)


def test_single_wrong_bit_is_detected(tmp_path: Path, contents: dict[str, bytes]) -> None:
    put(tmp_path, contents, zipped=False)
    path = tmp_path / "train-images-idx3-ubyte"
    wrong = bytearray(path.read_bytes())
    wrong[5000] ^= 1
    path.write_bytes(wrong)
    with pytest.raises(DataError, match="corrupt"):
        Mnist(dir=str(tmp_path)).build(seed=1)


def test_images_and_labels_that_do_not_match_are_rejected(
    tmp_path: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents["train-labels-idx1-ubyte"] = np.array([2049, 3], ">i4").tobytes() + b"123"
    monkeypatch.setattr(Mnist, "sources", (publish(MNIST, contents), WRITERS))
    put(tmp_path, contents)
    with pytest.raises(DataError, match=r"expected images of 28x28, .* got shapes \(20, 28, 28\) and \(3,\)"):
        Mnist(dir=str(tmp_path)).build(seed=1)


def test_clients_may_be_writers(tmp_path: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    # Writers 7 and 9 alternate and have ten training digits each. A fifth of each, the last two, are held out: rows
    # 16 and 18 of writer 7. The ten test digits are of writer 8, who is no client.
    made = {}
    for part, count, writers in (("train", 20, [7, 9]), ("test", 12, [8])):
        table = np.zeros((count, 8), ">i4")
        table[:, 0] = np.arange(count) % 10
        table[:, 2] = np.resize(writers, count)
        head = bytes([0, 0, 12, 2]) + np.array(table.shape, ">i4").tobytes()
        made[f"qmnist-{part}-labels-idx2-int"] = head + table.tobytes()
    monkeypatch.setattr(Mnist, "sources", (Mnist.sources[0], publish(WRITERS, made)))
    put(tmp_path / "mnist", contents)
    options = Mnist(dir=str(tmp_path), partition=Natural())
    with pytest.raises(DataError, match=r"mnist by writer needs qmnist-train.*qmnist-test"):
        options.build(seed=1)
    put(tmp_path / "mnist-writers", made)
    clients = options.build(seed=1)
    assert clients.sizes.tolist() == [8, 8]
    assert clients.train(0, 1).y.tolist() == [0, 2, 4, 6, 8, 0, 2, 4]
    assert clients.test(0, 1).y.tolist() == [6, 8]
    assert clients.test(1, 1).y.tolist() == [7, 9]
    assert clients.pooled_test().y.tolist() == [6, 7, 8, 9, *range(10)]
    images = Mnist(dir=str(tmp_path), clients=1).build(seed=1).train(0, 1).x
    assert torch.equal(clients.test(0, 1).x, images[[16, 18]])


def test_fashion_mnist_has_its_own_folder(
    tmp_path: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FashionMnist, "sources", (publish(FashionMnist.sources[0], contents),))
    put(tmp_path, contents)  # could be MNIST files
    with pytest.raises(DataError, match=r"fashion_mnist needs train-images-idx3-ubyte\.gz"):
        FashionMnist(dir=str(tmp_path)).build(seed=1)
    put(tmp_path / "fashion-mnist", contents)
    clients = FashionMnist(dir=str(tmp_path), clients=2).build(seed=1)
    assert clients.sizes.tolist() == [10, 10]
    assert (clients.shown_classes[0], clients.shown_classes[9], clients.classes) == ("T-shirt/top", "ankle boot", ())


@pytest.mark.full
def test_published_files() -> None:
    if "FEDGE_DATA" not in os.environ:
        pytest.skip("needs the MNIST files: set FEDGE_DATA")
    clients = Mnist(clients=100).build(seed=1)
    labels = torch.cat([clients.train(client, 1).y for client in range(100)])
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
    mean = torch.stack([clients.train(client, 1).x.mean() for client in range(100)]).mean()
    assert float(mean) == pytest.approx(0.1307, abs=5e-5)


@pytest.mark.full
def test_published_writers() -> None:
    if not (data_dir(None) / "mnist-writers").is_dir():
        pytest.skip("needs the labels of QMNIST: set FEDGE_DATA")
    clients = Mnist(partition=Natural(), test_fraction=0).build(seed=1)
    assert len(clients.sizes) == 539
    assert (clients.sizes.min(), np.median(clients.sizes), clients.sizes.max()) == (19, 116, 131)


@pytest.mark.parametrize("collection", [MNIST, WRITERS, FASHION], ids=["mnist", "writers", "fashion"])
def test_downloads_are_the_published_files(collection: Collection) -> None:
    """Files whose MD5 is the published one have the SHA-256 that downloads are compared with."""
    paths = [collection.matches(source, data_dir(None)) for source in collection.files]
    if not all(paths):
        pytest.skip("needs the published files: set FEDGE_DATA")
    for source, (path, *_) in zip(collection.files, paths, strict=True):
        assert source.download is not None
        read_checked(path, checksums(source, path))
        with path.open("rb") as file:
            assert check_content(file, path.name, source.download.sha256) is None


def test_server_needs_only_the_test_files(tmp_path: Path, contents: dict[str, bytes]) -> None:
    put(tmp_path, contents)
    simulated = Mnist(dir=str(tmp_path), clients=4).build(1)
    for name in FILES[:2]:
        (tmp_path / f"{name}.gz").unlink()
    part = Mnist(dir=str(tmp_path), clients=4).server_part(1)
    assert (part.shape, part.num_outputs, part.num_clients) == ((1, 28, 28), 10, 4)
    assert part.test is not None
    assert all(torch.equal(a, b) for a, b in zip(part.test, simulated.pooled_test(), strict=True))
    with pytest.raises(DataError, match="train-images"):
        Mnist(dir=str(tmp_path), normalise=True).server_part(1)
