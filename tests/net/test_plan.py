"""Digests with which a server and a client compare their builds."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.experiments import SMALL, changed
from fedge.algorithms.compose import WRAPPER_VERSIONS
from fedge.config import parse
from fedge.experiment.setup import Setup
from fedge.net.plan import digests, first_difference, plan_of


@pytest.mark.parametrize(
    ("wrapper", "settings"),
    [
        ("momentum", {"algorithm": {"momentum": 0.9}}),
        ("prox", {"algorithm": {"prox": 0.1}}),
        ("weight_decay", {"algorithm": {"weight_decay": 0.1}}),
        ("maxent", {"algorithm": {"maxent": 0.1}, "model": {"name": "mtfl_2nn"}}),
        ("personal", {"personal": {"private": "bn"}, "model": {"name": "mtfl_2nn"}}),
        ("codec", {"codec": {"up": ["fp16"]}}),
        ("cluster", {"cluster": {"count": 2, "round": 1}}),
        ("fine_tune_steps", {"evaluate": {"fine_tune_steps": 1, "user_accuracy": True}}),
    ],
)
def test_wrapper_version_changes_the_digest(
    wrapper: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if the run has this wrapper."""
    with_it, without = (_digests_of(**each) for each in (settings, {}))
    monkeypatch.setitem(WRAPPER_VERSIONS, wrapper, WRAPPER_VERSIONS[wrapper] + 1)
    assert first_difference(with_it, _digests_of(**settings)) == "versions of the wrappers"
    assert first_difference(without, _digests_of()) is None


def _digests_of(**settings: Any) -> dict[str, str]:
    config = parse(changed(SMALL, **settings))
    setup = Setup.of(config, 1)
    return digests(plan_of(config, config.data.server_part(1).plan, {}), setup.network, setup.algorithm)
