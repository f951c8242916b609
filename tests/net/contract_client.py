"""A process that acts as one client of the contract suite, for one build after another.

It reads lines of JSON from its standard input, with "build", "number", "port", "certificate" and "state". It takes part
in each run, and answers each line with "done" or the error.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from federation import BUILDS, make_sides, mixed
from fedge.client.client_side import ClientSide
from fedge.client.state_directory import StateDirectory
from fedge.core.algorithm import Kept
from fedge.core.layout import Tree
from fedge.net.agent import Agent, Built
from fedge.net.grpc_client import connect
from fedge.net.policy import read_policies
from fedge.net.protocol import Facts
from fedge.net.transport import Credentials

SIZES = (6, 9, 1)
"""Samples of the three clients; one client has a single sample."""


@dataclass
class Handmade:
    """Builds the same client side as `Federation`, from the name of a build."""

    name: str
    number: int

    def __call__(self, plan: object, number: int, initial: Tree, kept: Kept) -> Built:
        assert number == self.number
        side: ClientSide = make_sides(BUILDS[self.name], mixed(SIZES)).clients._replace(kept=kept)
        side.network.adopt(initial, {})
        data = side.data
        return Built(side, {}, Facts(data.shape, data.num_outputs, data.task, SIZES[number], SIZES[number]))

    def name_weights(self, built: Built, variables: Tree) -> Tree:
        return variables


class Quiet:
    """A view that reports nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *told: None


def take_part(wanted: dict[str, str]) -> None:
    number, folder = int(wanted["number"]), Path(wanted["certificate"])
    credentials = Credentials(*((folder / f"{part}.pem").read_bytes() for part in Credentials._fields))

    async def open_session():
        return await connect("localhost", int(wanted["port"]), credentials)

    with StateDirectory(Path(wanted["state"]), f"c{number}") as state:
        builder = Handmade(wanted["build"], number)
        Agent(f"c{number}", number, open_session, state, builder, read_policies(()), Quiet(), {}).run()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print('"ready"', flush=True)
    for line in sys.stdin:
        try:
            take_part(json.loads(line))
            answer = "done"
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)
