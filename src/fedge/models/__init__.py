"""Networks to train."""

from typing import get_args

from fedge.core.schema import Options
from fedge.models.convolutional import MtflCnn
from fedge.models.dense import Linear, Logistic, Mnist2nn, Mtfl2nn, Nn
from fedge.models.usermodel import UserModel

ModelOptions = Logistic | Nn | Mnist2nn | Mtfl2nn | MtflCnn | Linear | UserModel
MODELS: tuple[type[Options], ...] = get_args(ModelOptions)
"""The kinds of model; a user's own is chosen by the path of its function."""

__all__ = ["MODELS", "ModelOptions"]
