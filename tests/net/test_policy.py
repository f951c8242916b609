"""Policies: when a client takes part."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError
from fedge.net.policy import MAX_REASON, Machine, OfferFacts, read_policies

OFFER = OfferFacts("work", 3, 0, 1_000_000, 60.0)


def at(clock: str, load: float = 0.0) -> Machine:
    hour, minute = map(int, clock.split(":"))
    return Machine(now=lambda: datetime(2026, 1, 2, hour, minute, 59), load=lambda: load)


@pytest.mark.parametrize("texts", [[], ["always"], ["always", "always"]])
def test_without_a_condition_all_work_is_accepted(texts: list[str]) -> None:
    assert read_policies(texts).decide(OFFER) is None


@pytest.mark.parametrize(
    ("policy", "clock", "accepts"),
    [
        ("hours=22-6", "22:00", True),
        ("hours=22-6", "23:59", True),
        ("hours=22-6", "00:00", True),
        ("hours=22-6", "05:59", True),
        ("hours=22-6", "06:00", False),
        ("hours=22-6", "21:59", False),
        ("hours=9-17", "08:59", False),
        ("hours=9-17", "09:00", True),
        ("hours=9-17", "16:59", True),
        ("hours=9-17", "17:00", False),
        ("hours=22:30-6:15", "22:29", False),
        ("hours=22:30-6:15", "22:30", True),
        ("hours=22:30-6:15", "06:14", True),
        ("hours=22:30-6:15", "06:15", False),
        ("hours=18-24", "23:59", True),
        ("hours=18-24", "00:00", False),
        ("hours=0-6", "00:00", True),
    ],
)
def test_hours(policy: str, clock: str, accepts: bool) -> None:
    reason = read_policies([policy], at(clock)).decide(OFFER)
    assert (reason is None) == accepts
    assert accepts or str(reason).startswith(f"it is {clock}, outside ")


@pytest.mark.parametrize(("load", "accepts"), [(0.0, True), (0.5, True), (0.51, False), (16.0, False)])
def test_load(load: float, accepts: bool) -> None:
    reason = read_policies(["load=0.5"], at("12:00", load)).decide(OFFER)
    assert (reason is None) == accepts
    assert accepts or reason == f"the load is {load:.2f} per core, above 0.5"


def test_an_unknown_load_declines() -> None:
    def fail() -> float:
        raise OSError("not here")

    assert read_policies(["load=0.5"], Machine(load=fail)).decide(OFFER) == "the load is unknown (not here)"


def test_this_machine_has_a_load() -> None:
    assert read_policies(["load=1000"]).decide(OFFER) is None


def test_several_policies_must_all_agree() -> None:
    policies = ["hours=22-6", "load=0.5"]
    assert read_policies(policies, at("23:00", 0.1)).decide(OFFER) is None
    assert "outside" in str(read_policies(policies, at("12:00", 0.1)).decide(OFFER))
    assert "load" in str(read_policies(policies, at("23:00", 0.9)).decide(OFFER))


MAINS_ON, MAINS_OFF = {"type": "Mains", "online": "1"}, {"type": "Mains", "online": "0"}
USB_ON = {"type": "USB", "online": "1"}
MOUSE = {"type": "Battery", "scope": "Device", "status": "Discharging"}


def battery(status: str) -> dict[str, str]:
    return {"type": "Battery", "status": status}


@pytest.mark.parametrize(
    ("supplies", "accepts"),
    [
        ({}, True),  # a server or a Raspberry Pi
        ({"AC": MAINS_ON, "BAT0": battery("Charging")}, True),
        ({"AC": MAINS_ON, "BAT0": battery("Not charging")}, True),  # held at a charge limit
        ({"AC": MAINS_OFF, "BAT0": battery("Discharging")}, False),
        ({"AC": MAINS_OFF, "BAT0": battery("Unknown")}, False),
        ({"ucsi": USB_ON, "AC": MAINS_OFF, "BAT0": battery("Charging")}, True),
        ({"BAT0": battery("Full")}, True),
        ({"BAT0": battery("Discharging")}, False),
        ({"BAT0": {"type": "Battery"}}, False),
        ({"BAT0": battery("Full"), "BAT1": battery("Discharging")}, False),
        ({"hid-mouse": MOUSE}, True),
        ({"hid-mouse": MOUSE, "AC": MAINS_OFF, "BAT0": battery("Discharging")}, False),
        ({"AC": MAINS_OFF}, True),  # no battery, so it must have power
    ],
)
def test_ac(tmp_path: Path, supplies: Mapping[str, Mapping[str, str]], accepts: bool) -> None:
    for name, files in supplies.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(f"{text}\n")
    reason = read_policies(["ac"], Machine(power=tmp_path, platform="linux")).decide(OFFER)
    assert (reason is None) == accepts
    assert accepts or str(reason).startswith("the device is not on AC power (battery: ")


def test_a_system_without_power_supplies_has_no_battery(tmp_path: Path) -> None:
    assert read_policies(["ac"], Machine(power=tmp_path / "none", platform="linux")).decide(OFFER) is None


def networked(folder: Path, script: str) -> Machine:
    """Return a machine on which `busctl` is this shell script."""
    program = folder / "busctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Machine(path=str(folder), platform="linux")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo u 4", None),
        ("echo u 2", None),
        ("echo u 1", "the network is metered"),
        ("echo u 3", "the network is probably metered"),
        ("echo u 0", "the network may be metered: NetworkManager does not know"),
        ("echo u 9", "the network may be metered: NetworkManager does not know"),
        ("echo no such service >&2; exit 1", "NetworkManager does not report whether the network is metered"),
        ("echo u four", "NetworkManager does not report whether the network is metered"),
    ],
)
def test_unmetered(tmp_path: Path, script: str, reason: str | None) -> None:
    assert read_policies(["unmetered"], networked(tmp_path, script)).decide(OFFER) == reason


def test_unmetered_asks_network_manager_for_its_property(tmp_path: Path) -> None:
    script = f'echo "$@" > {tmp_path}/asked; echo u 4'
    assert read_policies(["unmetered"], networked(tmp_path, script)).decide(OFFER) is None
    name = "org.freedesktop.NetworkManager"
    asked = f"--system get-property {name} /org/freedesktop/NetworkManager {name} Metered\n"
    assert (tmp_path / "asked").read_text() == asked


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return None", None),
        ("return True", None),
        ("return False", "the client's policy declines"),
        ("return ''", "the client's policy declines"),
        ("return 'on holiday'", "on holiday"),
        ("return f'{offer.kind} {offer.round} {offer.num_bytes} {offer.deadline_s}'", "work 3 1000000 60.0"),
        ("return 1", "the client's policy failed: expected None, a bool or a reason, got int"),
        ("return 'a\\n\\x1b[31mb'", "a\\u000a\\u001b[31mb"),
    ],
)
def test_user_defined_policy(tmp_path: Path, body: str, reason: str | None) -> None:
    file = tmp_path / "my.py"
    file.write_text(f"def decide(offer):\n    {body}\n")
    assert read_policies([f"{file}:decide"]).decide(OFFER) == reason


def test_a_function_that_fails_declines_and_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    file.write_text("def decide(offer):\n    return 1 / 0\n")
    reason = read_policies([f"{file}:decide"]).decide(OFFER)
    assert reason == f"the client's policy failed: ZeroDivisionError: division by zero (line 2 of {file})"


def test_reason_is_truncated(tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    file.write_text("def decide(offer):\n    return 'x' * 10_000\n")
    assert read_policies([f"{file}:decide"]).decide(OFFER) == "x" * MAX_REASON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hour=22-6", "--policy hour=22-6: unknown, did you mean 'hours'"),
        ("", "--policy : unknown; expected one of always, hours=22-6"),
        ("hours", "unknown"),
        ("hours=22", "expected two times of day"),
        ("hours=22-25", "expected two times of day"),
        ("hours=24:30-6", "expected two times of day"),
        ("hours=a-b", "expected two times of day"),
        ("hours=-1-6", "expected two times of day"),
        ("hours=6-6", "both times are the same"),
        ("hours=0-24", "both times are the same"),
        ("load=0", "expected a positive load"),
        ("load=nan", "expected a positive load"),
        ("load=inf", "expected a positive load"),
        ("load=much", "expected a positive load"),
        ("nowhere.py:decide", r"--policy: there is no file .*nowhere\.py"),
    ],
)
def test_invalid_policy_is_an_error_at_startup(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_policies([text])


@pytest.mark.parametrize("text", ["ac", "unmetered"])
def test_linux_only_policies_are_refused_elsewhere(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--policy {text}: works on Linux only"):
        read_policies([text], Machine(platform="darwin"))


def test_unmetered_without_the_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--policy unmetered: .*busctl.* not installed"):
        read_policies(["unmetered"], Machine(path=str(tmp_path), platform="linux"))
