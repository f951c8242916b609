"""The algorithm contract: a client half and a server half, both independent of how they run.

The client half is a set of `Work`: pure functions on vectors. The server half is a generator that yields an `Exchange`
and receives a `Reply`. An engine connects the two (`core/drive.py`).

Every function works both on one client (`[P]`) and on a block of clients as rows (`[C, P]`): it is elementwise in its
vectors, reduces over the last dimension only, never mutates an input and never branches on a tensor's value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from torch import Tensor
from torch import add as torch_add

from fedge.core.codecs.codec import Codec
from fedge.core.layout import Layout, Tree
from fedge.core.reduce import Mean, Reducer
from fedge.core.slots import Slot


class _All:
    def __reduce__(self) -> str:
        return "ALL"  # compared by identity, so unpickling must return this process's own instance

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = _All()
"""Used in place of a batch: all samples of the client, in stored order. BatchNorm statistics are not updated."""

Batch = Any
"""A batch, opaque to algorithms: they only pass it on to `grad_at`."""


class Context(NamedTuple):
    """The information available to a client's work. Tensors are `[1]`, or `[C, 1]` in a block."""

    client: Tensor
    round: int
    rate: float
    num_clients: int
    step: int
    num_samples: Tensor
    num_steps: Tensor  # steps taken, counted by the engine; valid in `final`
    layout: Layout
    grad_at: Callable[[Tensor, Batch], Tensor]
    mean_loss: Callable[[], Tensor]  # over the steps taken, each on its first batch before the step; valid in `final`


Affine = tuple[float | Tensor, Tensor | None, float | Tensor]
"""(decay, drift, scale) of the step y = decay*y + drift - scale*gradient; a drift of None is zero."""

Penalty = Callable[[Tensor], Tensor]
"""Maps the inputs of the last layer, `[..., n]`, to the term added to each sample's loss, `[...]`."""


class Work(NamedTuple):
    """The client half for one kind of exchange. With neither `affine` nor `step` it trains nothing."""

    init: Callable[[Tree, Tree, Context], Tree]  # (down, kept) -> local, with `y` and `stats` if it trains
    final: Callable[[Tree, Tree, Tree, Context], tuple[Tree, Tree]]  # (down, local, kept) -> (upload, kept)
    affine: Callable[[Tree, Context], Affine] | None = None  # from local without `y`
    step: Callable[[Tree, Tensor, Context], Tree] | None = None  # `raw` in local is the gradient before wrappers
    gradient: Callable[[Tree, Sequence[Batch], Context], Tensor] | None = None  # default: of one batch at y
    batches_per_step: int = 1
    penalty: Penalty | None = None
    num_steps: int | None = None  # overrides the round's number of steps
    look: Callable[[Tensor], Tree] | None = None  # all training inputs `[n, ...]` -> entries added to those of `init`
    flops_per_param: int = 2  # of one step, in addition to the gradient
    codec: Codec | None = None
    down_codec: Codec | None = None

    @property
    def trains(self) -> bool:
        return self.affine is not None or self.step is not None


class Info(NamedTuple):
    """The server's settings for a round; all except the cohort travel with every request."""

    round: int
    rate: float
    num_steps: int | None  # exactly one of num_steps and num_epochs is given
    num_epochs: int | None
    num_clients: int
    seed: int
    cohort: tuple[int, ...] = ()
    server_rate: float = 1.0

    def told(self) -> dict[str, Any]:
        """Return the fields that travel, by name."""
        return {name: value for name, value in self._asdict().items() if name != "cohort"}


class Phases(NamedTuple):
    """Seconds spent in each phase of one exchange, one value per client."""

    down: np.ndarray
    compute: np.ndarray
    up: np.ndarray  # on air: an upload may be interrupted
    finish: np.ndarray  # client completion time: from the start of the exchange until the upload has arrived


class Costs(NamedTuple):
    """Costs of an exchange, one value per client of `Reply.ids`, `Late.ids` or `Rejected.ids`.

    Every message has a header, so zero bytes mean that the client is not charged for the exchange.
    """

    bytes_down: np.ndarray
    bytes_up: np.ndarray
    steps: np.ndarray
    batches: np.ndarray  # minibatch gradients; a gradient over all samples counts as its number of minibatches
    flops: np.ndarray
    samples: np.ndarray  # samples passed through a gradient, counted each time
    measured: Phases | None = None  # real seconds; None in simulation, where a clock computes them

    @staticmethod
    def free(num_clients: int) -> Costs:
        """Return the costs of clients that did nothing."""
        none = np.zeros(num_clients, np.int64)
        return Costs(none, none, none, none, none, none)

    @property
    def num_messages(self) -> int:
        """Number of requests and answers; a client with zero bytes is charged for neither (`Slot.speaks`)."""
        return 2 * int(np.count_nonzero(self.bytes_down + self.bytes_up))


Admit = Callable[[tuple[int, ...], Costs], np.ndarray]
"""(ids in client order, costs of their answers) -> boolean array: which of them are in time.

An engine calls it once per exchange, with every client whose answer arrived, including rejected ones.
"""


class Exchange(NamedTuple):
    """One request of the server to a cohort."""

    work: str
    down: Tree
    cohort: Sequence[int]
    reduce: Callable[[Mapping[str, Slot]], Reducer] = Mean
    admit: Admit | None = None  # set only by `drive`; None: all are in time
    optional: bool = False  # if no client answers, the round continues and the reply has no value


class Late(NamedTuple):
    """Clients whose answers came too late: the answers are not reduced, but the work is charged."""

    ids: tuple[int, ...]
    costs: Costs


class Rejected(NamedTuple):
    """Clients whose answers were rejected, with one reason each: like late ones, they are charged but not used."""

    ids: tuple[int, ...]
    costs: Costs
    reasons: tuple[str, ...]


class Reply(NamedTuple):
    """The reduced answer of a cohort; per-client values are in client order."""

    value: Tree
    ids: tuple[int, ...]
    samples: np.ndarray
    missing: tuple[int, ...]  # the rest of the cohort: silent, late or rejected
    costs: Costs
    losses: np.ndarray  # of each client's first step; NaN where nothing was trained
    communicated: bool  # the uploads carried model-sized vectors
    cosine_distance: float | None = None  # between the clients' updates, mean over pairs; None: not measured
    late: Late | None = None
    rejected: Rejected | None = None
    declined: tuple[int, ...] = ()  # the clients in `missing` that declined the work


def unchanged(state: Tree, num_before: int, num_after: int) -> Tree:
    """`grow` for a server state that does not depend on the number of clients."""
    return state


def asks_selected(state: Tree, round: int) -> bool:
    """`asks_all` for an algorithm whose rounds never require all clients."""
    return False


class Algorithm(NamedTuple):
    """An algorithm as a value made of pure functions; a wrapper takes one and returns another."""

    slots: Mapping[str, Slot]
    init: Callable[[Tree], Tree]  # variables -> server state
    keep: Callable[[Tree], Tree]  # variables -> what each client keeps, private and persistent
    works: Mapping[str, Work]
    round: Callable[[Tree, Info], Generator[Exchange, Reply, Tree]]
    model: Callable[[Tree, Tree], Tree]  # (state, variables) -> variables that CA evaluates
    personal: Callable[[Tree, Tree], Tree] | None = None  # (variables, kept) -> variables that UA evaluates
    adapt: Work | None = None  # adaptation of those variables before UA; both down and upload are variables
    travels: Layout | None = None  # the layout of what travels, if not the model's
    notes: Callable[[Tree], Tree] | None = None  # state -> values per client (NaN: unknown), or one for all at first
    asks_all: Callable[[Tree, int], bool] = asks_selected  # (state, round): the cohort must be all available clients
    grow: Callable[[Tree, int, int], Tree] = unchanged  # (state, N, N') -> state when N clients have become N' >= N


Build = Callable[[Layout], Algorithm]


class Kept(Protocol):
    """Storage for the private state of clients between rounds."""

    def read(self, client: int) -> Tree: ...
    def write(self, client: int, tree: Tree) -> None: ...


def next_move(work: Work, local: Tree, ctx: Context) -> Affine:
    """Return the affine coefficients of the next step. They must not depend on y, which an engine may not have."""
    assert work.affine is not None
    return work.affine({name: value for name, value in local.items() if name != "y"}, ctx)


def moved(y: Tensor, gradient: Tensor, affine: Affine) -> Tensor:
    """Return y after one affine step; with decay 1 and no drift, bit-equal to torch.optim.SGD."""
    decay, drift, scale = affine
    if isinstance(decay, Tensor) or decay != 1.0:
        y = y * decay
    if drift is not None:
        y = y + drift
    return y - scale * gradient if isinstance(scale, Tensor) else torch_add(y, gradient, alpha=-scale)


def check_stats(tree: Tree, layout: Layout, where: str) -> None:
    """Raise TypeError if work drops BatchNorm statistics: it would silently continue with stale ones."""
    if layout.num_stats and not any(name.rpartition(".")[2] == "stats" for name in tree):
        raise TypeError(f"{where} must pass on 'stats': the model has BatchNorm statistics")
