"""The public API: its names and signatures are a contract, and changes to them go into the changelog."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import fedge
from fedge.algorithms import ALGORITHMS
from fedge.algorithms.reduced import ReduceOptions
from fedge.core.schema import structs, tag
from fedge.core.track_options import Tracking
from fedge.data import DATASETS, PARTITIONS
from fedge.data.drift import DriftOptions
from fedge.edge.selection import SelectionOptions
from fedge.models import MODELS
from fedge.schedules import SCHEDULES

FUNCTIONS = "find_runs load plot resume run sweep"
CLASSES = "Arrays Callback Clients Config Experiment Progress Rounds Run Runs Stop Table"
ERRORS = "ConfigError DataError FedgeError ModelError RunError TrainingError"
SECTIONS = """
    BudgetOptions CellClock CheckpointOptions Cluster CodecOptions EngineOptions EvaluateOptions FixedClock Personal
    SchedulePlan TargetOptions TraceOptions Augment Noise Scaling
"""
KINDS = (*ALGORITHMS, *PARTITIONS, *SCHEDULES, *MODELS, *DATASETS)
KINDS += (*get_args(ReduceOptions), *get_args(DriftOptions), *get_args(SelectionOptions), *get_args(Tracking))

SIGNATURES = {
    "Experiment": (
        "(*, data, model, algorithm, clients=None, partition=None, name=None, seed=None, rounds=None, selection=None, "
        "schedule=None, personal=None, codec=None, cluster=None, reduce=None, edge=None, evaluate=None, target=None, "
        "budget=None, trace=None, track=None, checkpoint=None, engine=None, **unknown)"
    ),
    "Experiment.from_file": "(path, **changes)",
    "Experiment.run": (
        "(self, rounds=None, *, seed=None, seeds=None, name=None, runs='runs', resume=False, progress=True, "
        "callbacks=())"
    ),
    "Experiment.rounds": (
        "(self, rounds=None, *, seed=None, name=None, runs='runs', resume=False, progress=False, callbacks=())"
    ),
    "Rounds.close": "(self)",
    "Rounds.stop": "(self)",
    "Callback.on_round": "(self, record)",
    "Callback.on_evaluate": "(self, record)",
    "Run": "(path, _lent=None)",
    "Run.cost_to": "(self, **goal)",
    "Run.load_into": "(self, module)",
    "Run.plot": "(self, y='accuracy', x='round', *, save=None, **layout)",
    "Run.to_frame": "(self)",
    "Runs.cost_to": "(self, **goal)",
    "Runs.plot": "(self, y=None, x=None, *, by=(), kind='curves', save=None, **layout)",
    "Runs.to_frame": "(self, what='rounds')",
    "Arrays": "(x, y, x_test=None, y_test=None, *, test_fraction=0.2, columns=None, words=False, **settings)",
    "Table": "(frame, target, *, test=None, task=None, ignore=(), test_fraction=0.2, **settings)",
    "Clients": "(clients, *, words=False, **settings)",
    "find_runs": "(source='runs')",
    "load": "(runs='runs', what='rounds')",
    "plot": "(runs, y=None, x=None, *, by=(), kind='curves', save=None, **layout)",
    "resume": "(path, *, progress=True, accept_code=False, **changes)",
    "run": "(source, *, runs='runs', progress=True, **changes)",
    "sweep": "(source, *, runs='runs', progress=True, **changes)",
}


def at(path: str) -> Any:
    found: Any = fedge
    for name in path.split("."):
        found = getattr(found, name)
    return found


def without_types(signature: inspect.Signature) -> str:
    empty = inspect.Parameter.empty
    parameters = [parameter.replace(annotation=empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def test_names() -> None:
    kinds = [kind.__name__ for kind in KINDS if tag(kind) not in (None, "table", "remote")]  # `Table` also reads frames
    expected = {*" ".join((FUNCTIONS, CLASSES, ERRORS, SECTIONS)).split(), *kinds}
    assert set(fedge.__all__) == expected
    assert set(dir(fedge)) == {*expected, "__version__"}
    assert all(at(name) is not None for name in fedge.__all__)


@pytest.mark.parametrize("path", SIGNATURES)
def test_signature(path: str) -> None:
    assert without_types(inspect.signature(at(path))) == SIGNATURES[path]


def test_every_section_of_an_experiment_file_is_a_keyword() -> None:
    sections = {field.name for field in inspect.signature(fedge.Config).parameters.values()}
    keywords = {*inspect.signature(fedge.Experiment).parameters} - {"clients", "partition", "unknown"}
    assert sections - keywords == {"seeds", "net"}  # an argument of `run`; for real clients
    assert not keywords - sections
    offered = {kind.__name__ for part in fedge.Config.__annotations__ for kind in structs(part)}
    assert offered <= set(fedge.__all__)


def test_type_checkers_see_the_public_names() -> None:
    """The imports for type checkers and the lazily imported names are the same."""
    tree = ast.parse(Path(fedge.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen: dict[str, tuple[str, str]] = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            seen |= {alias.asname: (str(node.module), alias.name) for alias in node.names if alias.asname}
    renamed = {"Clients", "Table"}
    assert set(seen) == set(fedge.__all__) - renamed
    for name, (module, own) in seen.items():
        assert (at(name).__module__, at(name).__name__) == (module, own) or name == "Progress"
    assert (fedge.Clients.__name__, fedge.Table.__name__) == ("ClientSets", "FrameTable")


def test_unknown_names_raise_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fedge' has no attribute 'Nothing'"):
        fedge.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_completion_imports_nothing() -> None:
    code = "import sys, fedge; dir(fedge); print('torch' in sys.modules, 'FedAvg' in dir(fedge))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
