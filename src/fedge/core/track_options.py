"""The settings of live tracking: which tool shows a run while it trains."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fedge.core.schema import Options


class TrackOptions(Options):
    """Live tracking. Whatever happens to the tracker, the run continues with the same results."""

    wait_s: Annotated[
        float, Meta(ge=0, le=3600, description="seconds that the end of a run waits for what is not written yet")
    ] = 10.0


class TrackTensorBoard(TrackOptions, tag="tensorboard"):
    """Event files for TensorBoard: `tensorboard --logdir runs`."""

    folder: Annotated[
        str | None, Meta(description="gets a folder of event files for each run (track/ in the run's own directory)")
    ] = None


class TrackMlflow(TrackOptions, tag="mlflow"):
    """A run of MLflow, in a database or at a server."""

    uri: Annotated[
        str | None, Meta(description="tracking URI (MLFLOW_TRACKING_URI, or sqlite:///mlflow.db where the run starts)")
    ] = None
    experiment: Annotated[str, Meta(min_length=1, max_length=120, description="experiment that the run goes to")] = (
        "fedge"
    )


class TrackWandb(TrackOptions, tag="wandb"):
    """A run of Weights & Biases, which sends nothing anywhere unless its mode is online."""

    project: Annotated[str, Meta(min_length=1, max_length=120, description="project that the run goes to")] = "fedge"
    folder: Annotated[
        str | None, Meta(description="gets the folder wandb with the runs (track/ in the run's own directory)")
    ] = None
    mode: Annotated[
        Literal["offline", "online"], Meta(description="offline runs are uploaded by `wandb sync`, if at all")
    ] = "offline"


Tracking = TrackTensorBoard | TrackMlflow | TrackWandb
