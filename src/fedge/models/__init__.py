"""Networks to train."""

from fedge.models.convolutional import MtflCnn
from fedge.models.dense import Linear, Logistic, Mnist2nn, Mtfl2nn, Nn
from fedge.models.usermodel import UserModel

MODELS = (Logistic, Nn, Mnist2nn, Mtfl2nn, MtflCnn, Linear, UserModel)
"""The kinds of model; a user's own is chosen by the path of its function."""

__all__ = ["MODELS"]
