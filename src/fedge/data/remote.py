"""Data that only the clients have, as described to the server."""

from __future__ import annotations

from typing import Annotated, Literal, NoReturn

from msgspec import Meta, field
from msgspec.structs import replace

from fedge.core.errors import ConfigError, DataError
from fedge.core.schema import Options
from fedge.data.clients import Samples, ServerPart
from fedge.data.data_plan import DataPlan, Outputs, Share, check_shape
from fedge.data.divided_dataset import Divided
from fedge.data.fitting import DataForm, fit
from fedge.data.known import KnownData
from fedge.data.normalise import Scaling
from fedge.data.table import Table
from fedge.data.validation import ValidationShare

Names = list[Annotated[str, Meta(min_length=1, max_length=200)]]


class Remote(Options, tag="remote", kw_only=True):
    """Data that only the clients of `fedge server` have; simulations cannot use it.

    Clients match their classes and columns with the names given here. Without names, classes are matched by index and
    inputs by position.
    """

    shape: Annotated[
        list[Annotated[int, Meta(ge=1)]], Meta(min_length=1, max_length=8, description="Shape of one input.")
    ]
    outputs: Annotated[Outputs, Meta(description="Number of classes, labels, or values to predict.")]
    task: Annotated[
        Literal["classes", "labels", "values"], Meta(description="One class, any number of labels, or numeric values.")
    ] = "classes"
    classes: Annotated[Names, Meta(description="Names of the classes, in the order of the model's outputs.")] = field(
        default_factory=list
    )
    columns: Annotated[Names, Meta(description="Names of a table's input columns, in the model's order.")] = field(
        default_factory=list
    )
    target: Annotated[
        str | None,
        Meta(description="A table's column to predict; optional if it has exactly one column besides the inputs."),
    ] = None
    words: Annotated[bool, Meta(description="Inputs are indexes of words or characters and stay integers.")] = False
    test: Annotated[
        KnownData | None, Meta(description="The server's test set: that of any data set, with its options.")
    ] = None
    normalise: Annotated[
        bool | Scaling, Meta(description="Shift and scale inputs by { mean, std }, or by the clients' sums.")
    ] = False
    test_fraction: Annotated[
        Share, Meta(description="Share of a client's last samples for its test set, if it has none.")
    ] = 0.2
    validation: ValidationShare = None

    def __post_init__(self) -> None:
        check_shape(self.shape)
        if self.classes and self.task == "values":
            raise ValueError("classes: values to predict have no classes; remove this setting")
        for name, names in (("classes", self.classes), ("columns", self.columns)):
            if len(set(names)) != len(names):
                raise ValueError(f"{name}: must be unique, got {names}")
        if self.classes and len(self.classes) != self.outputs:
            raise ValueError(f"classes: expected {self.outputs} names, one for each output, got {len(self.classes)}")
        if self.columns and self.shape != [len(self.columns)]:
            raise ValueError(f"columns: {len(self.columns)} names need shape [{len(self.columns)}], got {self.shape}")
        if self.words and self.normalise:
            raise ValueError("normalise: applies to numbers, but the inputs are words or characters; remove it")
        scaling = getattr(self.test, "normalise", False)
        if scaling and not (scaling is True and isinstance(self.test, Table)):  # true is the default of a table
            raise ValueError(
                "test.normalise: the test set is normalised like the clients' data; remove it and set data.normalise"
            )

    def build(self, seed: int) -> NoReturn:
        raise ConfigError(
            'data.name: with "remote" only clients have the data; start `fedge server`, or name a data set to simulate'
        )

    def server_part(self, seed: int) -> ServerPart:
        """Return the server's part; its test set is not normalised yet if that needs the clients' sums."""
        shape = tuple(self.shape)
        plan = DataPlan(
            shape=shape,
            num_outputs=self.outputs,
            task=self.task,
            seed=seed,
            words=self.words,
            classes=tuple(self.classes),
            columns=tuple(self.columns),
            target=self.target,
            test_fraction=self.test_fraction,
            validation=self.validation,
            sums=self.normalise is True,
        )
        part = ServerPart(plan, self._test(plan), None)
        return part.scaled(self.normalise) if isinstance(self.normalise, Scaling) else part

    def _test(self, plan: DataPlan) -> Samples | None:
        if self.test is None:
            return None
        # Unscaled: data.normalise applies to the clients' data and to this test set.
        unscaled = replace(self.test, normalise=False) if isinstance(self.test, Divided) else self.test
        found = unscaled.server_part(plan.seed)
        if found.test is None:
            raise DataError("data.test: expected a data set with test samples, got one without")
        if found.plan.words != plan.words:
            raise DataError(f"data.test: expected words = {plan.words} as in data.words, got {found.plan.words}")
        form = DataForm(found.shape, found.num_outputs, found.task, found.plan.classes, found.plan.columns)
        return fit(form, plan, "data.test")(found.test)
