import sys
from pathlib import Path

import pytest
import torch

from fedge.core.errors import DataError, FedgeError
from fedge.data.images import Images

image = pytest.importorskip("PIL.Image")


def put(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new("RGB", size, colour).save(path)


def test_folders_are_classes(tmp_path: Path) -> None:
    put(tmp_path / "train/cat/1.png", (255, 0, 51))
    put(tmp_path / "train/ant/1.png", (0, 255, 0), size=(9, 3))
    put(tmp_path / "test/cat/1.png", (102, 0, 0))
    (tmp_path / "train/cat/notes.txt").write_text("no image")
    clients = Images(folder=str(tmp_path), size=4, clients=1).build(seed=1)
    assert (clients.shape, clients.num_outputs) == ((3, 4, 4), 2)
    x, y = clients.train(0, 1)
    assert y.tolist() == [0, 1]
    assert torch.allclose(x[1, :, 2, 3], torch.tensor([1.0, 0.0, 0.2]))
    assert torch.allclose(clients.pooled_test().x[0, 0], torch.full((4, 4), 0.4))


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path / f"a/{number}.png", (number, number, number))
    clients = Images(folder=str(tmp_path), size=2, colours="grey", clients=1).build(seed=1)
    assert clients.shape == (1, 2, 2)
    # A fifth of the class, the last by name, is for the test.
    assert torch.allclose(clients.train(0, 1).x[:, 0, 0, 0] * 255, torch.arange(4.0))
    assert torch.allclose(clients.pooled_test().x[:, 0, 0, 0] * 255, torch.tensor([4.0]))


def test_errors_name_the_problem(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.folder: expected a folder with one folder per class"):
        Images(folder=str(tmp_path / "none")).build(seed=1)
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="expected image files"):
        Images(folder=str(tmp_path)).build(seed=1)
    (tmp_path / "a/1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a/1\.png cannot be read as an image"):
        Images(folder=str(tmp_path)).build(seed=1)
    put(tmp_path / "b/train/x/1.png", (0, 0, 0))
    put(tmp_path / "b/test/y/1.png", (0, 0, 0))
    with pytest.raises(DataError, match="has a class 'y' that is not in the training set"):
        Images(folder=str(tmp_path / "b")).build(seed=1)


def test_error_without_pillow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a/1.png", (0, 0, 0))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(FedgeError, match=r"pip install 'fedge\[images\]'"):
        Images(folder=str(tmp_path)).build(seed=1)
