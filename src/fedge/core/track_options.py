"""Settings of live tracking: the tool that shows a run while it trains."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fedge.core.schema import Options


class TrackOptions(Options):
    """Live tracking. If the tracker fails, the run continues with the same results."""

    wait_s: Annotated[
        float, Meta(ge=0, le=3600, description="seconds to wait at the end of a run for unwritten data")
    ] = 10.0


class TrackTensorBoard(TrackOptions, tag="tensorboard"):
    """Event files for TensorBoard: `tensorboard --logdir runs`."""

    folder: Annotated[
        str | None,
        Meta(description="folder for event files, one subfolder per run (default: track/ in the run directory)"),
    ] = None


class TrackMlflow(TrackOptions, tag="mlflow"):
    """A run of MLflow, in a database or on a server."""

    uri: Annotated[
        str | None,
        Meta(
            description="tracking URI (default: MLFLOW_TRACKING_URI, or sqlite:///mlflow.db in the current directory)"
        ),
    ] = None
    experiment: Annotated[str, Meta(min_length=1, max_length=120, description="experiment that the run belongs to")] = (
        "fedge"
    )


class TrackWandb(TrackOptions, tag="wandb"):
    """A run of Weights & Biases; it sends nothing over the network unless its mode is online."""

    project: Annotated[str, Meta(min_length=1, max_length=120, description="project that the run belongs to")] = "fedge"
    folder: Annotated[
        str | None, Meta(description="folder for wandb/, which holds the runs (default: track/ in the run directory)")
    ] = None
    mode: Annotated[
        Literal["offline", "online"], Meta(description="offline runs can be uploaded later with `wandb sync`")
    ] = "offline"


Tracking = TrackTensorBoard | TrackMlflow | TrackWandb
