from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from fedge.core.errors import ConfigError, nearest
from fedge.core.schema import Options, choose, read, structs, tag

Positive = Annotated[float, Meta(gt=0)]


class Round(Options, tag="round"):
    radius: Annotated[float, Meta(gt=0)] = 1.0


class Square(Options, tag="square"):
    side: Annotated[int, Meta(ge=1, le=9)]
    corners: list[Positive] = []  # noqa: RUF012 - a struct copies its defaults

    def __post_init__(self) -> None:
        if len(self.corners) > self.side:
            raise ValueError(f"corners must be at most side ({self.side}), got {len(self.corners)}")


class Own(Options, tag=False):
    name: str
    options: dict[str, object] = {}  # noqa: RUF012


class Pencil(Options, tag_field="tool"):
    """Options shared by all pencils; users choose one by its `tool`."""

    colour: str = "black"


class Thin(Pencil, tag="thin"):
    width: Positive = 0.5


class Broad(Pencil, tag="broad"):
    width: Positive = 5.0


class Board(Options, tag=False):
    shape: Annotated[Round | Square, Meta(description="what is drawn")]
    colour: Literal["red", "blue"] = "red"
    filled: bool = False
    only: Round = Round()
    perhaps: Own | None = None
    quantity: Positive | list[Positive] | Round = 1.0
    first: Round | Square = Round(radius=2.0)
    pencil: Thin | Broad = Broad()


def board(**fields: object) -> Board:
    return read({"shape": "round", **fields}, Board)


def problems(raw: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(raw, Board)
    return list(caught.value.problems)


# ---------------------------------------------------------------- accepted input


def test_a_name_alone_is_a_table_with_that_name() -> None:
    assert board() == read({"shape": {"name": "round"}}, Board) == Board(shape=Round())


def test_a_name_chooses_the_kind() -> None:
    assert board(shape={"name": "square", "side": 3, "corners": [1, 2.5]}).shape == Square(side=3, corners=[1.0, 2.5])


def test_the_only_kind_needs_no_name() -> None:
    assert board(only={"radius": 2}).only == board(only={"name": "round", "radius": 2}).only == Round(radius=2.0)


def test_a_table_without_a_name_is_of_the_kind_that_is_the_default() -> None:
    """It has that kind, and the kind's defaults for keys that the table omits."""
    assert board(first={}).first == Round(radius=1.0)
    assert board(first={"radius": 3}).first == Round(radius=3.0)
    assert board(first={"name": "square", "side": 2}).first == Square(side=2)
    assert board().first == Round(radius=2.0)


def test_the_tag_field_may_have_another_name() -> None:
    assert board(pencil="thin").pencil == board(pencil={"tool": "thin"}).pencil == Thin()
    assert board(pencil={"tool": "thin", "width": 1, "colour": "blue"}).pencil == Thin(width=1.0, colour="blue")
    assert board(pencil={"width": 3}).pencil == Broad(width=3.0)


def test_null_is_accepted_if_the_type_allows_it() -> None:
    assert board(perhaps=None).perhaps is None
    assert board(perhaps={"name": "x"}).perhaps == Own(name="x")


def test_a_number_a_list_or_a_table() -> None:
    assert board(quantity=3).quantity == 3.0
    assert board(quantity=[1, 2]).quantity == [1.0, 2.0]
    assert board(quantity={"name": "round", "radius": 5}).quantity == Round(radius=5.0)


# ---------------------------------------------------------------- rejected input


def test_an_unknown_key_names_the_nearest() -> None:
    assert problems({"shape": "round", "color": "red"}) == [
        "color: unknown key, did you mean 'colour'?; valid here: "
        "shape, colour, filled, only, perhaps, quantity, first, pencil"
    ]
    (problem,) = problems({"shape": {"name": "round", "zzz": 1}})
    assert problem == "shape.zzz: unknown key; valid here: radius"


def test_an_unknown_name_names_the_nearest_and_all_others() -> None:
    (problem,) = problems({"shape": "sqare"})
    assert problem == "shape.name: unknown name 'sqare', did you mean 'square'?; known: round, square"


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        {"shape": {"name": "square", "side": 0, "colour": 1}, "colour": "green", "filled": "yes", "only": 3, "x": 1}
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "shape.side",
        "shape.colour",
        "colour",
        "filled",
        "only",
        "x",
    ]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"shape": {"name": "square", "side": 10}}, "shape.side: expected int <= 9, got 10"),
        ({"shape": {"name": "square", "side": 1.5}}, "shape.side: expected int, got 1.5; write a whole number"),
        ({"shape": {"name": "square", "side": True}}, "shape.side: expected int, got True"),
        ({"shape": {"name": "square", "side": "3"}}, "shape.side: expected int, got '3'"),
        ({"shape": {"name": "square"}}, "shape.side: is required"),
        ({"shape": {"name": "round", "radius": 0}}, "shape.radius: expected float > 0.0, got 0"),
        ({"shape": {"name": "round", "radius": float("nan")}}, "shape.radius: expected a finite number, got nan"),
        ({"shape": "round", "quantity": [1, -1]}, "quantity: expected float > 0.0, got [1, -1]"),
        ({"shape": 3}, "shape: expected a table with a name, one of round, square; got 3"),
        ({"shape": {"side": 3}}, "shape: expected a table with a name, one of round, square; got {'side': 3}"),
        ({}, "shape: is required"),
        ({"shape": "round", "first": {"side": 3}}, 'first.side: needs name = "square" in the same table'),
        (
            {"shape": "round", "pencil": "thick"},
            "pencil.tool: unknown name 'thick', did you mean 'thin'?; known: broad, thin",
        ),
        ({"shape": "round", "pencil": {"name": "thin"}}, "pencil.name: unknown key; valid here: colour, width"),
        ({"shape": "round", "pencil": 7}, "pencil: expected a table with a tool, one of broad, thin; got 7"),
    ],
)
def test_a_problem_states_the_path_the_expectation_and_the_value(raw: object, problem: str) -> None:
    assert problems(raw) == [problem]


def test_an_invalid_word_lists_the_valid_ones() -> None:
    (problem,) = problems({"shape": "round", "colour": "green"})
    assert "colour: expected " in problem
    assert "red" in problem
    assert "blue" in problem


def test_an_optional_table_is_still_a_table() -> None:
    (problem,) = problems({"shape": "round", "perhaps": 3})
    assert problem.startswith("perhaps: expected a table, got 3; set perhaps.")


def test_errors_of_a_components_own_check_have_a_path() -> None:
    raw = {"shape": {"name": "square", "side": 1, "corners": [1, 2]}}
    assert problems(raw) == ["shape: corners must be at most side (1), got 2"]


def test_reading_at_a_path() -> None:
    with pytest.raises(ConfigError, match=r"^data\.split\.radius: expected float"):
        read({"radius": "x"}, Round, "data.split")


# ---------------------------------------------------------------- parts


def test_structs_of_a_field() -> None:
    assert structs(Annotated[Round | Square | None, Meta(description="x")]) == [Round, Square]
    assert structs(Round) == [Round]
    assert structs(list[float]) == []


def test_tags() -> None:
    assert [tag(kind) for kind in (Round, Square, Own)] == ["round", "square", None]


def test_a_path_is_an_unknown_name_where_users_have_no_parts_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"shape\.name: unknown name 'mine\.py:f'"):
        choose("mine.py:f", [Round, Square], "shape.name")


def test_nearest_is_empty_without_a_similar_word() -> None:
    assert nearest("learing_rate", ["learning_rate", "rounds"]) == ", did you mean 'learning_rate'?"
    assert nearest("xyz", ["learning_rate"]) == ""


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Round(radius=-3), ["radius: expected float > 0.0, got -3"]),
        (lambda: Round(radius="5"), ["radius: expected float, got '5'"]),
        (lambda: Round(radius=float("nan")), ["radius: expected a finite number, got nan"]),
        (lambda: Square(side=2**64), ["side: expected a whole number of at most 64 bits, got 18446744073709551616"]),
        (lambda: Square(side=10, corners=[0.0]), ["side: expected int <= 9, got 10", "corners: expected float > 0.0"]),
        (lambda: Square(side=1, corners=[1.0, 2.0]), ["corners must be at most side (1), got 2"]),
        (lambda: Own(name="a\0b"), ["name: expected text in UTF-8 without NUL"]),
        (lambda: Own(name="\ud800"), ["name: expected text in UTF-8 without NUL"]),
        (lambda: Board(shape=Broad()), ["shape: expected Round, Square, got Broad("]),
        (lambda: Board(shape="round"), ["shape: expected Round, Square, got 'round'"]),
        (lambda: Board(shape=Round(), colour="green"), ["colour: expected one of 'red', 'blue', got 'green'"]),
        (lambda: Board(shape=Round(), quantity=[1.0, -1.0]), ["quantity: expected float > 0.0"]),
        (lambda: Board(shape=Round(), perhaps=Round()), ["perhaps: expected Own, got Round("]),
    ],
)
def test_construction_is_checked_like_a_file(make: Callable[[], Options], expected: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert len(caught.value.problems) == len(expected)
    for problem, start in zip(caught.value.problems, expected, strict=True):
        assert problem.startswith(start)


def test_construction_accepts_everything_a_file_may_contain() -> None:
    made = Board(shape=Round(), quantity=[1, 2.5], perhaps=Own(name="g"), first=Square(side=2), pencil=Thin())
    read_back = read(msgspec.to_builtins(made), Board)
    assert read_back == made


def test_replacement_is_checked() -> None:
    with pytest.raises(ConfigError, match="side: expected int <= 9, got 12"):
        msgspec.structs.replace(Square(side=3), side=12)


def test_inherited_check_follows_the_fields() -> None:
    class Brick(Square, tag="brick"):
        pass

    with pytest.raises(ConfigError, match="corners must be at most side"):
        Brick(side=1, corners=[1.0, 1.0])
    with pytest.raises(ConfigError, match="side: expected int >= 1"):
        Brick(side=0)


def test_messages_shorten_long_values() -> None:
    (deep,) = problems({"shape": "round", "filled": nested(50)})
    assert deep.startswith("filled: expected bool, got [[[[...]]]]; ")
    (problem,) = problems({"shape": "round", "filled": "x" * 10_000})
    assert len(problem) < 200


def test_nested_too_deep() -> None:
    assert problems({"shape": "round", "filled": nested(5_000)}) == [
        "configuration: its tables or lists are nested too deep"
    ]


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_numbers_that_no_option_can_hold() -> None:
    assert problems({"shape": "round", "quantity": 10**400})[0].startswith(
        "quantity: expected a whole number of at most 64 bits, got 1000"
    )
    assert problems({"shape": "round", "quantity": [1.0, float("inf")]}) == [
        "quantity: expected a finite number, got [1.0, inf]"
    ]
