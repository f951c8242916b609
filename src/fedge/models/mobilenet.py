"""MobileNetV2 (Sandler et al., 2018) for small images."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

from msgspec import Meta
from torch import Tensor, nn

from fedge.models.convolutional import check_image
from fedge.models.model import Model

# Expansion, channels, blocks, stride of the first. For images of 224x224, Sandler et al. use a stride of 2 in the
# second line and in the first convolution; with images of 32x32, too little resolution would remain.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_STEM, _TOP, _IMAGENET = 32, 1280, 1000


class MobilenetV2(Model, tag="mobilenet_v2"):
    """MobileNetV2 for images of about 32x32, with ImageNet's 1,000 outputs and one more layer on top.

    Its tensors have torchvision's names, so that `weights` can be a file of weights trained on ImageNet.
    """

    dropout: Annotated[float, Meta(ge=0, lt=1, description="Dropout rate of the last features.")] = 0.2

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        channels, *_ = check_image(shape, 8, "mobilenet_v2")
        blocks: list[nn.Module] = [_convolve(channels, _STEM, 3)]
        before = _STEM
        for expansion, width, repeats, stride in _STAGES:
            for number in range(repeats):
                blocks.append(InvertedResidual(before, width, expansion, 1 if number else stride))
                before = width
        blocks.append(_convolve(before, _TOP, 1))
        return nn.Sequential(
            OrderedDict(
                features=nn.Sequential(*blocks),
                pool=nn.AdaptiveAvgPool2d(1),
                flatten=nn.Flatten(),
                classifier=nn.Sequential(nn.Dropout(self.dropout), nn.Linear(_TOP, _IMAGENET)),
                output=nn.Linear(_IMAGENET, num_outputs),
            )
        )


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection; added to the input if the shapes match."""

    def __init__(self, before: int, after: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = before * expansion
        self.conv = nn.Sequential(
            *([_convolve(before, hidden, 1)] if expansion > 1 else []),
            _convolve(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds else y


def _convolve(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU6(),
    )
