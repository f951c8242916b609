"""A model as functions of flat vectors: gradients and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.nn.modules.batchnorm import _NormBase

from fedge.client.constants import Constants
from fedge.core.algorithm import Penalty
from fedge.core.errors import FedgeError, ModelError
from fedge.core.keys import seeded, torch_seed
from fedge.core.layout import Layout, Tree
from fedge.core.registered import Task
from fedge.data.clients import Samples

Loss = Callable[[Tensor, Tensor], Tensor]
_EVALUATION_BATCH = 2048
_LARGE = 1 << 22  # parameters


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Half the squared distance, mean over the batch: its gradient is output - target."""
    return 0.5 * ((output - target) ** 2).sum(-1).mean()


def label_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """The sum over labels of each one's cross-entropy, mean over the batch."""
    return binary_cross_entropy_with_logits(output, target, reduction="none").sum(-1).mean()


LOSSES: dict[Task, Loss] = {"classes": cross_entropy, "labels": label_cross_entropy, "values": squared_error}


class Network:
    """A stateless wrapper of an ordinary module: every call passes in weights and statistics.

    The module's parameters become views of the given vector. Nothing is copied, and the vector is never written to.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        seed: int,
        task: Task,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        with seeded(torch_seed(seed, "model"), device):
            self.module = make().to(device, dtype)
        self.layout = Layout.of(self.module)
        self.constants = Constants(self.module, self.layout)
        self.dtype, self.device = dtype, device
        self.task = task
        self.loss = LOSSES[task]
        self._norms = [
            part for part in self.module.modules() if isinstance(part, _NormBase) and part.track_running_stats
        ]
        named = dict(self.module.named_parameters())
        self._params = [named[entry.name] for entry in self.layout.params]
        self._buffers = [self.module.get_buffer(entry.name) for entry in self.layout.stats]
        self.variables: Tree = {"x": self.layout.flat(p.detach().cpu() for p in self._params)}
        stats = [buffer.cpu() for buffer in self._buffers]
        self.variables["stats"] = self.layout.flat(stats) if stats else torch.zeros(0, dtype=dtype)
        self._share()

    @property
    def has_norm(self) -> bool:
        return bool(self._norms)

    def digest(self) -> str:
        """Return the hex SHA-256 of everything that two copies of the model must share.

        It covers names and shapes of trained tensors, and names and values of frozen weights and buffers.
        """
        trained = [f"{e.name} {self.dtype} {list(e.shape)}" for e in (*self.layout.params, *self.layout.stats)]
        constant = [f"{name} {digest}" for name, digest in self.constants.digests.items()]
        return sha256("\n".join([*trained, *constant]).encode()).hexdigest()

    def adopt(self, variables: Tree, constants: Tree) -> None:
        """Adopt another copy's initial variables and constants. Raises ModelError if they do not fit this model."""
        for name, own in self.variables.items():
            found = variables.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                got = "nothing" if found is None else f"{found.dtype} of shape {list(found.shape)}"
                raise ModelError(f"model: expected {name!r} as {own.dtype} of shape {list(own.shape)}, got {got}")
        self.variables = {name: variables[name] for name in self.variables}
        self._share()
        self.constants.load(constants)

    def _share(self) -> None:
        """Make the module's weights views of the variables, so that a large model is not in memory twice."""
        if self.device == "cpu":
            self._load(self.variables["x"], self.variables["stats"])

    def try_out(self, samples: Samples) -> None:
        """Raise a ModelError if a training step on a few samples fails, or changes the model's constants."""
        start = self.place(self.variables)
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), self.constants.kept(thorough=True):
            try:
                self.gradient(start["x"], start["stats"], samples)
            except FedgeError:
                raise
            except Exception as error:  # the module's code may raise anything
                raise ModelError(self._explain(error, samples)) from error

    def cast(self, samples: Samples) -> Samples:
        """Return samples in the network's dtype on its device. Integer inputs, such as characters, stay integers."""
        x = samples.x.to(self.device, self.dtype if samples.x.is_floating_point() else None)
        return Samples(x, samples.y.to(self.device, None if self.task == "classes" else self.dtype))

    def place(self, tree: Tree) -> Tree:
        """Return a tree with its tensors moved to the device."""
        return tree if self.device == "cpu" else {name: value.to(self.device) for name, value in tree.items()}

    def fetch(self, tree: Tree) -> Tree:
        """Return a tree with its tensors moved to main memory, where all stored and sent tensors are."""
        return tree if self.device == "cpu" else {name: value.cpu() for name, value in tree.items()}

    @cached_property
    def last_layer(self) -> nn.Module:
        """The layer whose inputs are the model's features."""
        layers = [part for part in self.module.modules() if not list(part.children()) and list(part.parameters())]
        if len(layers) < 2:
            raise ModelError("a penalty on features needs a hidden layer, but the model is linear; choose another one")
        return layers[-1]

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Samples, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (loss, gradient, updated statistics) of a batch.

        A batch of one sample is normalised by the running statistics.
        """
        stats = stats.clone()
        self._load(x, stats)
        self.module.train()
        if len(batch) == 1:
            for norm in self._norms:
                norm.eval()
        with self.constants.kept():
            if penalty is None:
                loss = self.loss(self.module(batch.x), batch.y)
            else:
                outputs, features = self._outputs_and_features(batch.x)
                loss = self.loss(outputs, batch.y) + penalty(features).mean()
        gradients = list(torch.autograd.grad(loss, self._params, allow_unused=True))
        if any(gradient is None for gradient in gradients):
            raise ModelError(self._name_unused(gradients))
        return loss.detach(), self._flatten(gradients), stats

    def _flatten(self, gradients: list[Tensor]) -> Tensor:
        """Return gradients as one vector. Those of a large model are freed one by one if not held elsewhere.

        Gradients of linear layers are transposed, and `flat` would copy them twice.
        """
        if self.layout.num_params < _LARGE:
            return self.layout.flat(gradients)
        vector = torch.empty(self.layout.num_params, dtype=self.dtype, device=self.device)
        gradients.reverse()
        for part in self.layout.views(vector).values():
            part.copy_(gradients.pop())
        return vector

    @torch.no_grad()
    def outputs(self, variables: Tree, x: Tensor) -> Tensor:
        """Return the model's outputs for inputs, in evaluation mode."""
        variables = self.place(variables)
        self._load(variables["x"], variables["stats"])
        self.module.eval()
        return torch.cat([self.module(part) for part in torch.split(x, _EVALUATION_BATCH)])

    def trained(self, variables: Tree) -> nn.Module:
        """Return the module with a copy of these weights and statistics, for use outside."""
        self.module.cpu()
        self._load(variables["x"].clone(), variables["stats"].clone())
        return self.module.eval()

    def _outputs_and_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Tensor] = []
        hook = self.last_layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            return self.module(x), seen[-1]
        finally:
            hook.remove()

    def _name_unused(self, gradients: Sequence[Tensor | None]) -> str:
        entries = zip(self.layout.params, gradients, strict=True)
        names = ", ".join(entry.name for entry, gradient in entries if gradient is None)
        return (
            f"model: expected every parameter to affect the output, but {names} does not; remove the layer, or freeze "
            "it with requires_grad_(False)"
        )

    def _explain(self, error: Exception, samples: Samples) -> str:
        """Return why a training step failed; often inputs are tokens and the model expects numbers, or vice versa."""
        embeds = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in self.module.modules())
        if samples.x.is_floating_point() and embeds:
            hint = "its embedding expects token indices, but the inputs are real numbers; choose a model without one"
        elif not samples.x.is_floating_point() and not embeds:
            hint = (
                "the inputs are indices of words or characters, which need an embedding; choose a model with one, "
                "such as shakespeare_gru"
            )
        else:
            inputs = f"inputs of shape {tuple(samples.x.shape[1:])}"
            return f"model: a training step on {len(samples)} samples failed for {inputs}: {_kind(error)}"
        return f"model.name: {hint} (a training step failed: {_kind(error)})"

    def _load(self, x: Tensor, stats: Tensor) -> None:
        for parameter, view in zip(self._params, self.layout.views(x).values(), strict=True):
            parameter.data = view
        for buffer, view in zip(self._buffers, self.layout.views(stats, "stats").values(), strict=True):
            buffer.data = view


def _kind(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
