import importlib
import os

import pytest
import torch

if os.environ.get("FEDGE_TEST_EVERYTHING"):  # what is missing is a failure then, not a reason to skip
    pytest.importorskip = lambda name, **_: importlib.import_module(name)

torch.set_num_threads(1)  # as in every engine; two threads on two busy cores wait for each other
