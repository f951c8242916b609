"""The data sets that one machine can read: all except `remote`, whose data only the clients have."""

from fedge.data.cifar import Cifar10, Cifar100
from fedge.data.digits import Digits
from fedge.data.femnist import Femnist
from fedge.data.huggingface import HuggingFace
from fedge.data.images import Images
from fedge.data.mnist import FashionMnist, Mnist
from fedge.data.sent140 import Sent140
from fedge.data.shakespeare import Shakespeare
from fedge.data.stackoverflow import StackOverflow
from fedge.data.synthetic import Synthetic
from fedge.data.table import Table
from fedge.data.userdata import UserData

KnownData = (
    Digits
    | Mnist
    | FashionMnist
    | Cifar10
    | Cifar100
    | Femnist
    | Shakespeare
    | Sent140
    | StackOverflow
    | Synthetic
    | Table
    | Images
    | HuggingFace
    | UserData
)
