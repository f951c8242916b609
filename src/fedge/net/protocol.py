"""The control messages of a session, as tagged msgpack. Vectors are sent in separate streams, as `core/message.py`.

A session: the client sends `Hello`, the server answers `Welcome` or `Refused`. The client fetches the payload
"initial", builds model and algorithm, and sends `Ready`; the server answers `Joined` or `Refused`. Then it sends
offers, until `Done`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from fedge.core.errors import StreamError
from fedge.core.registered import Task as Prediction
from fedge.core.state_version import Version

PROTOCOL = 1
"""The version of this protocol, which must be the same at server and clients."""
CHUNK_BYTES = 1 << 20  # largest piece of a payload in one message of a stream
MAX_CONTROL_BYTES = 1 << 20
INITIAL = "initial"
"""The payload with the model's initial variables and constants; the payload of a task has the task's token."""
FINAL = "final"
"""The payload with the trained model, offered by `Done`."""

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
Text = Annotated[str, Meta(max_length=1000)]
MAX_TOKEN = 100  # characters
TOKEN_PATTERN = r"^[A-Za-z0-9.-]*\Z"
Token = Annotated[str, Meta(max_length=MAX_TOKEN, pattern=TOKEN_PATTERN)]
Size = Annotated[int, Meta(ge=0, lt=1 << 53)]
Number = Annotated[int, Meta(ge=0, lt=1 << 32)]
Kind = Literal["work", "question"]
Activity = Literal["idle", "fetching", "working", "waiting", "uploading"]
M = TypeVar("M")


class Facts(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client registers about its data; it contains no sample."""

    shape: Annotated[tuple[Size, ...], Meta(max_length=8)]
    num_outputs: Size
    task: Prediction
    size: Size  # training samples; the maximum over all rounds
    test_size: Size = 0
    validation_size: Size = 0
    noisy: bool = False


Numbers = Annotated[list[float], Meta(max_length=1 << 15)]


class InputMoments(Struct, frozen=True, forbid_unknown_fields=True):
    """Count, sum and sum of squares of a client's training inputs, by channel or feature."""

    count: float
    sum: Numbers
    square: Numbers


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag=str.lower):
    """A control message, tagged with the name of its class in lower case."""


class Hello(_Message, frozen=True):
    """The first message of a session."""

    protocol: int
    name: Name
    run: Annotated[str, Meta(max_length=64)] | None = None  # the run whose private state the client has
    number: Number | None = None  # if the client's data names one
    software: Annotated[dict[Name, Text], Meta(max_length=8)] = {}  # logged, not compared


class Ready(_Message, frozen=True):
    """Digests of the client's build, by section, and the facts that it registers."""

    digests: Annotated[dict[Text, Text], Meta(max_length=64)]
    facts: Facts
    moments: InputMoments | None = None  # if the plan asks for them


class Accept(_Message, frozen=True):
    task: Token


class Decline(_Message, frozen=True):
    task: Token
    reason: Text


class Beat(_Message, frozen=True):
    """A client's heartbeat; with a task, it renews the lease."""

    task: Token | None = None
    activity: Activity = "idle"


class Finished(_Message, frozen=True):
    """The work is done: a request for a grant to upload `size` bytes."""

    task: Token
    size: Size
    changed: bool = False  # private state of the offered version was written


class Failed(_Message, frozen=True):
    """The client cannot do the task."""

    task: Token
    reason: Text


class Goodbye(_Message, frozen=True):
    """The client leaves on purpose."""

    reason: Text


class Refused(_Message, frozen=True):
    """The server refuses this client. After a final refusal, retrying is useless until a person fixes the cause."""

    reason: Text
    final: bool = True


class Welcome(_Message, frozen=True):
    """What the client needs to build its side."""

    run: Text
    number: Number  # permanent once the client has joined
    plan: Raw  # see plan.py
    initial_bytes: Size
    beat_s: float  # heartbeat interval of an idle client; a working one sends three per interval


class Joined(_Message, frozen=True):
    """The client is registered and will be offered work."""


class Offer(_Message, frozen=True):
    """Work or an evaluation. The client keeps versions `durable` and `base` of its private state, and uses `base`."""

    task: Token
    kind: Kind
    round: Size
    exchange: Size
    attempt: Size
    num_bytes: Size  # of the payload
    checksum: int  # CRC32 of the payload
    deadline_s: float  # from now
    durable: Version | None  # None: the run's first state
    base: Version | None

    @property
    def version(self) -> Version:
        """The version under which this work stores private state."""
        return Version(self.round, self.exchange, self.attempt)


class Withdraw(_Message, frozen=True):
    """The task no longer counts: stop working on it."""

    task: Token
    reason: Text


class Grant(_Message, frozen=True):
    """The client may upload now."""

    task: Token


class Hold(_Message, frozen=True):
    """The grant is withdrawn: stop uploading and wait for the next one."""

    task: Token


class Settled(_Message, frozen=True):
    """The verdict on an upload."""

    task: Token
    verdict: Literal["received", "late", "rejected", "again"]
    reason: Text = ""


class Done(_Message, frozen=True):
    """The run is complete. `final_bytes` is the size of the payload with the trained model."""

    durable: Version | None
    final_bytes: Size


class Scaled(_Message, frozen=True):
    """How inputs are normalised in this run, computed from the clients' moments. Sent before any offer."""

    mean: Numbers
    std: Numbers


class Pulse(_Message, frozen=True):
    """The server's heartbeat."""


FromClient = Hello | Ready | Accept | Decline | Beat | Finished | Failed | Goodbye
FromServer = Refused | Welcome | Joined | Offer | Withdraw | Grant | Hold | Settled | Done | Scaled | Pulse

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def encode(message: FromClient | FromServer) -> bytes:
    """Return the bytes of a control message."""
    return _encoder.encode(message)


def read_client(data: bytes) -> FromClient:
    """Decode a client's message; raise a StreamError if it is malformed."""
    return _read(data, _from_client)


def read_server(data: bytes) -> FromServer:
    """Decode a server's message; raise a StreamError if it is malformed."""
    return _read(data, _from_server)


def _read(data: bytes, decoder: msgspec.msgpack.Decoder[M]) -> M:
    if len(data) > MAX_CONTROL_BYTES:
        raise StreamError(f"expected a control message of at most {MAX_CONTROL_BYTES} bytes, got {len(data)}")
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:  # msgspec's own errors and UnicodeDecodeError are ValueErrors
        raise StreamError(f"control message: {str(error)[:200]}") from None
