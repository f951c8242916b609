"""Policies: the user's conditions for taking part, evaluated at every offer of work.

    always              accept every offer
    hours=22-6          from 22:00 to 6:00 local time; also hours=22:30-6
    load=0.5            while the one-minute load average is at most 0.5 per core
    ac                  while the device does not run on battery (Linux)
    unmetered           while NetworkManager reports, or guesses, an unmetered network (Linux)
    my.py:decide        a user-defined function

A condition that cannot be determined counts as not met: declining is always safe.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, time
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedge.core.errors import ConfigError, nearest
from fedge.core.machine import num_processors
from fedge.core.printable import printable
from fedge.core.userfile import describe, load_function

MAX_REASON = 300  # characters of a reason sent to the server
_QUERY_S = 5.0
_METERED = {1: "is metered", 3: "is probably metered"}
_UNMETERED = (2, 4)  # no, and probably not
_NM = "org.freedesktop.NetworkManager"
_ASK_NM = ("busctl", "--system", "get-property", _NM, "/org/freedesktop/NetworkManager", _NM, "Metered")
_FORMS = ("always", "hours=22-6", "load=0.5", "ac", "unmetered", "my.py:decide")


class OfferFacts(NamedTuple):
    """What a client knows about offered work before it accepts."""

    kind: Literal["work", "question"]  # training, or an evaluation
    round: int
    exchange: int
    num_bytes: int  # to download
    deadline_s: float  # from now


Rule = Callable[[OfferFacts], str | None]
"""Returns the reason to decline an offer, or None to accept it. Never raises."""


class Policy(NamedTuple):
    """Accepts work if all its rules accept it."""

    rules: Sequence[Rule]

    def decide(self, offer: OfferFacts) -> str | None:
        """Return the reason to decline, or None to accept. Never raises."""
        reasons = (rule(offer) for rule in self.rules)
        return next((printable(reason)[:MAX_REASON] for reason in reasons if reason is not None), None)


class Machine(NamedTuple):
    """The device's properties that policies read."""

    now: Callable[[], datetime] = datetime.now
    load: Callable[[], float] = lambda: os.getloadavg()[0] / num_processors()
    power: Path = Path("/sys/class/power_supply")
    path: str | None = None  # search path of programs; None: PATH of the environment
    platform: str = sys.platform


def read_policies(texts: Sequence[str], machine: Machine = Machine()) -> Policy:  # noqa: B008 - it is immutable
    """Return a policy that accepts work if all of these do; raise a ConfigError for one that is invalid here."""
    return Policy([rule for text in texts for rule in _read(text.strip(), machine)])


def _hours(start: time, end: time, clock: Callable[[], datetime], offer: OfferFacts) -> str | None:
    """Accept work that is offered between two times of day, however long it takes."""
    now = clock().time()
    inside = start <= now < end if start < end else now >= start or now < end
    return None if inside else f"it is {now:%H:%M}, outside {start:%H:%M} to {end:%H:%M}"


def _load(limit: float, measure: Callable[[], float], offer: OfferFacts) -> str | None:
    """Accept work while the device's load is low. Fedge's own training counts too, for about a minute afterwards."""
    try:
        load = measure()
    except OSError as error:
        return f"the load is unknown ({error})"
    return None if load <= limit else f"the load is {load:.2f} per core, above {limit:g}"


def _power(folder: Path, offer: OfferFacts) -> str | None:
    """Accept work while the device does not run on battery; always on a device without one."""
    try:
        supplies = [_Supply.read(each) for each in sorted(folder.iterdir())]
    except FileNotFoundError:  # no power supplies, so no battery
        return None
    except OSError as error:
        return f"the power supply is unknown ({error})"
    own = [supply for supply in supplies if supply.scope != "Device"]  # skips batteries of mice and keyboards
    batteries = [supply for supply in own if supply.type == "Battery"]
    if not batteries or any(supply.online == "1" for supply in own):
        return None
    states = [battery.status or "Unknown" for battery in batteries]
    if any(state in ("Charging", "Full") for state in states) and "Discharging" not in states:
        return None
    return f"the device is not on AC power (battery: {', '.join(states).lower()})"


class _Supply(NamedTuple):
    """One entry of /sys/class/power_supply: a battery has a status, a mains supply is online or not."""

    type: str
    scope: str
    online: str
    status: str

    @staticmethod
    def read(folder: Path) -> _Supply:
        return _Supply(*(_text(folder / name) for name in _Supply._fields))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # a supply has only some of these files, and drivers may fail
        return ""


def _find_busctl(path: str | None) -> str:
    program = shutil.which(_ASK_NM[0], path=path)
    if program is None:
        raise ConfigError(
            "--policy unmetered: needs the program busctl (of systemd) to query NetworkManager, and it is not "
            "installed; drop this policy, or use a function: --policy my.py:decide"
        )
    return program


def _network(program: str, offer: OfferFacts) -> str | None:
    """Accept work while NetworkManager reports, or guesses, that the network is not metered."""
    command = (program, *_ASK_NM[1:])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_S, check=False)
        answer = int(done.stdout.split()[-1])  # "u 4"
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return "NetworkManager does not report whether the network is metered"
    if answer in _UNMETERED:
        return None
    return f"the network {_METERED.get(answer, 'may be metered: NetworkManager does not know')}"


def _own(function: Callable[..., Any], reference: str, offer: OfferFacts) -> str | None:
    """Call a user-defined function with `OfferFacts`.

    The function returns None or True to accept, and False or a reason to decline. If it raises, work is declined.
    """
    try:
        answer = function(offer)
    except Exception as error:
        # Without the source line, since this text goes to the server.
        return f"the client's policy failed: {describe(error, reference, source=False)}"
    if answer is None or answer is True:
        return None
    if answer is False:
        return "the client's policy declines"
    if isinstance(answer, str):
        return answer or "the client's policy declines"
    return f"the client's policy failed: expected None, a bool or a reason, got {type(answer).__name__}"


def _read(text: str, machine: Machine) -> list[Rule]:
    name, equals, value = text.partition("=")
    if ".py:" in text:
        return [partial(_own, load_function(text, "--policy"), text)]
    if text == "always":
        return []
    if name == "hours" and equals:
        return [partial(_hours, *_read_hours(text, value), machine.now)]
    if name == "load" and equals:
        return [partial(_load, _read_limit(text, value), machine.load)]
    if text in ("ac", "unmetered"):
        if machine.platform != "linux":
            raise ConfigError(f"--policy {text}: works on Linux only; use a function instead: --policy my.py:decide")
        return [partial(_power, machine.power) if text == "ac" else partial(_network, _find_busctl(machine.path))]
    near = nearest(name, [form.partition("=")[0] for form in _FORMS])
    raise ConfigError(f"--policy {text}: unknown{near}; expected one of {', '.join(_FORMS)}")


def _read_hours(text: str, value: str) -> tuple[time, time]:
    start, _, end = value.partition("-")
    try:
        times = _clock(start), _clock(end)
    except ValueError:
        raise ConfigError(f"--policy {text}: expected two times of day, such as hours=22-6 or hours=22:30-6") from None
    if times[0] == times[1]:
        raise ConfigError(f"--policy {text}: both times are the same; for the whole day drop this policy")
    return times


def _clock(text: str) -> time:
    hours, _, minutes = text.strip().partition(":")
    if not (hours.isdecimal() and (minutes or "0").isdecimal()):
        raise ValueError(text)
    minute = int(minutes or 0)
    return time(0 if int(hours) == 24 and not minute else int(hours), minute)  # 24 is midnight at the end of a day


def _read_limit(text: str, value: str) -> float:
    try:
        limit = float(value)
    except ValueError:
        limit = -1.0
    if not 0 < limit < float("inf"):
        raise ConfigError(f"--policy {text}: expected a positive load per core, such as load=0.5")
    return limit
