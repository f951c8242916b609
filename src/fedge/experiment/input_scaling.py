"""Input normalisation of a networked run from the clients' sums: computed once, and stored on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from fedge.core.layout import Tree
from fedge.core.storage import write_atomic
from fedge.data.clients import Samples, ServerPart
from fedge.data.normalise import Scaling, combine, normaliser_of, problem_of_moments
from fedge.net.protocol import Facts, InputMoments, Scaled
from fedge.runs import files

FILE = "checkpoint/scaled.json"


class InputScaling:
    """Mean and deviation of all clients' inputs, from the sums of the clients connected when a round begins."""

    def __init__(self, run: Path, part: ServerPart) -> None:
        """Read the scaling computed by an earlier server, if any. Raises RunError if the file is damaged."""
        self._file, self._part = run / FILE, part
        remedy = "put back a copy of it, since another scaling would change results"
        self.found = files.read_struct(self._file, Scaled, remedy)

    def is_due(self, enough: bool) -> bool:
        """Return whether to compute the scaling now; `enough`: the round has the clients that it needs."""
        return self._part.plan.sums and self.found is None and enough

    def find(self, moments: Mapping[int, InputMoments]) -> Scaled:
        """Compute the scaling from clients' sums and store it durably: a restarted server must use the same."""
        every = combine(_tree(each) for _, each in sorted(moments.items()))
        scaling = normaliser_of(every, self._part.shape).scaling()
        assert isinstance(scaling.mean, list)
        assert isinstance(scaling.std, list)
        scaled = Scaled(scaling.mean, scaling.std)
        write_atomic(self._file, files.encode_pretty(scaled), "start the server again")
        self.found = scaled
        return scaled

    def apply(self, samples: Samples) -> Samples:
        """Return normalised samples; unchanged if there is no scaling."""
        if self.found is None:
            return samples
        normalise = Scaling(mean=self.found.mean, std=self.found.std).normaliser(self._part.shape)
        return Samples(normalise(samples.x), samples.y)

    def problem(self, moments: InputMoments | None, facts: Facts) -> str | None:
        """Return why the sums that a client registers are invalid; None if they are valid."""
        if not self._part.plan.sums:
            return None
        if moments is None:
            return "there are none"
        return problem_of_moments(_tree(moments), self._part.shape, facts.size)


def _tree(moments: InputMoments) -> Tree:
    values = {"count": moments.count, "sum": moments.sum, "square": moments.square}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
