"""Networks to train."""

from typing import get_args

from fedge.core.schema import Options
from fedge.models.convolutional import Cifar100Cnn, CifarCnn, DynavgCnn, FemnistCnn, HflCnn, MnistCnn, MtflCnn
from fedge.models.dense import BagOfWords, FemnistDnn, Linear, Logistic, Mnist2nn, Mtfl2nn, Nn
from fedge.models.mobilenet import MobilenetV2
from fedge.models.python_model import PythonModel
from fedge.models.recurrent import ShakespeareGru
from fedge.models.usermodel import UserModel

ModelOptions = (
    Logistic
    | Nn
    | Mnist2nn
    | MnistCnn
    | CifarCnn
    | Mtfl2nn
    | MtflCnn
    | FemnistDnn
    | FemnistCnn
    | Cifar100Cnn
    | ShakespeareGru
    | BagOfWords
    | DynavgCnn
    | HflCnn
    | MobilenetV2
    | Linear
    | UserModel
    | PythonModel
)
MODELS: tuple[type[Options], ...] = tuple(kind for kind in get_args(ModelOptions) if kind is not PythonModel)
"""The kinds of model that a file can name; a user-defined one is chosen by the path of its function."""

__all__ = ["MODELS", "ModelOptions"]
