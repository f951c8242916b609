"""The number of model-sized vectors in an upload, counted in bytes."""

import pytest
import torch
from torch import nn

from federation import BUILDS, Federation, mixed
from fedge.client.client_side import ClientSide
from fedge.client.serve import Served
from fedge.engines import wire

NUM_PARAMS = 303  # 100*3 + 3


def wide() -> nn.Module:
    """Return a model that is large compared with the headers of its messages."""
    return nn.Linear(100, 3)


@pytest.mark.parametrize(
    ("name", "vectors"),
    [
        ("fedavg", 1),
        ("fedsgd", 1),
        ("fedprox", 1),
        ("fedopt", 1),
        ("fedopt(sgdm)", 1),
        ("fedadam", 1),
        ("fedgbo", 1),
        ("fedgbo(sgdm)", 1),
        ("fedgbo(rmsprop)", 1),
        ("per_fedavg", 1),
        ("pfedme", 1),
        ("mfl", 3),
        ("fedavg_adam", 3),
        ("mfl(sgdm)", 2),
        ("mfl(rmsprop)", 2),
        ("mimelite", 2),
        ("mimelite(sgdm)", 2),
        ("mimexlite", 2),
        ("scaffold", 2),
        ("scaffold(I)", 2),
        ("independent", 0),
    ],
)
def test_vectors_in_an_upload(name: str, vectors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads: list[bytes] = []
    serve = wire.serve

    def note(side: ClientSide, client: int, request: bytes) -> Served:
        served = serve(side, client, request)
        uploads.append(served.data)
        return served

    monkeypatch.setattr(wire, "serve", note)
    federation = Federation(BUILDS[name], mixed((5, 6), features=100), "wire", make=wide, dtype=torch.float32)
    (reply,) = federation.round().replies
    assert reply.costs.bytes_up.tolist() == [len(upload) for upload in uploads]
    assert len(uploads) == 2
    for upload in uploads:
        payload, header = divmod(len(upload), 4 * NUM_PARAMS)
        assert payload == vectors
        assert header < 300


def test_fedgbo_uploads_as_much_as_fedavg() -> None:
    sizes = {}
    for name in ("fedavg", "fedgbo"):
        federation = Federation(BUILDS[name], mixed((5, 6), features=100), make=wide, dtype=torch.float32)
        (reply,) = federation.round().replies
        sizes[name] = int(reply.costs.bytes_up[0])
    # The number of steps takes 64 bytes of the buffer, and its name at most 64 bytes of the header.
    assert sizes["fedgbo"] - sizes["fedavg"] in (64, 128)
