"""Fault scripts: planned faults in a TOML file, by access, time or chance, for the buses of a simulator.

    seed = 7                    # of those that strike by chance; without one it is drawn, and told

    [[faults]]
    bus = "i2c0"                # may be left out where there is one bus, or a device is named
    device = "gpio"             # of the board; or address = 0x20
    kind = "reply_lost"
    access = "write"
    at = "OLATA"
    probability = 0.05
    times = "always"

The keys of a fault are those of hwtool_sim.faults.Fault. Everything wrong with a file is told at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from hwtool_contracts.toml_reader import Fault as Wrong
from hwtool_contracts.toml_reader import Faults, parse_toml
from hwtool_sim.control import Bench, plan_fault
from hwtool_sim.faults import Fault

Places = Mapping[str, tuple[str, int]]
KEYS: Final = "seed and [[faults]]"


@dataclass(frozen=True, slots=True)
class Script:
    """What is to go wrong, in the order of the file.

    Attributes:
        seed: of chance; None: the file names none.
        faults: each with the name of its bus, None where it need not be named.
    """

    seed: int | None
    faults: tuple[tuple[str | None, Fault], ...]


def load_script(path: Path, devices: Places | None = None) -> Script:
    """Read a fault script.

    Args:
        devices: bus and place of each device that may be named.

    Raises:
        Faults: it cannot be read, or something in it is no fault that could be planned; all of it is told.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([Wrong(str(path), "", "", "cannot be read", str(error), "a readable fault script")]) from error
    return script_of(parse_toml(text, path.name), path.name, devices or {})


def script_of(data: Mapping[str, Any], file: str, devices: Places) -> Script:
    """Make a script of a parsed file.

    Raises:
        Faults: as `load_script`.
    """
    wrong = [Wrong(file, "", key, "unknown key", None or "", KEYS) for key in data if key not in ("seed", "faults")]
    seed = data.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
        wrong.append(Wrong(file, "", "seed", "wrong type", repr(seed), "a number from 0"))
    entries = data.get("faults", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise Faults([*wrong, Wrong(file, "", "faults", "wrong type", "", "[[faults]] tables")])
    found = []
    for number, entry in enumerate(entries):
        try:
            found.append(planned(entry, devices))
        except ValueError as error:
            wrong.append(Wrong(file, f"faults[{number}]", "", str(error), "", "a fault as docs/simulator.md tells"))
    if wrong:
        raise Faults(wrong)
    return Script(seed, tuple(found))


def planned(entry: Mapping[str, Any], devices: Places) -> tuple[str | None, Fault]:
    """One fault of a script, with the bus that it is for.

    Raises:
        ValueError: it is none.
    """
    parts = dict(entry)
    bus, device = parts.pop("bus", None), parts.pop("device", None)
    if device is not None:
        if not isinstance(device, str) or device not in devices:
            raise ValueError(f"device: there is no {device!r}; there are " + (", ".join(devices) or "none to be named"))
        if "address" in parts:
            raise ValueError("a fault has a device or an address, not both")
        its_bus, parts["address"] = devices[device]
        if bus not in (None, its_bus):
            raise ValueError(f"bus: {device} sits on {its_bus}, not on {bus!r}")
        bus = its_bus
    plain = {key: float(value) if isinstance(value, Decimal) else value for key, value in parts.items()}
    try:
        return bus, msgspec.convert(plain, Fault)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def plan(script: Script, bench: Bench) -> None:
    """Plan every fault of a script on its bus.

    Raises:
        Faults: a bus or chip is not there, or cannot have it; all of it is told, and nothing is planned.
    """
    wrong = []
    before = {name: list(bus.faults) for name, bus in bench.buses.items()}
    for number, (name, fault) in enumerate(script.faults):
        try:
            plan_fault(bench, bench.name_of(name), fault)
        except ValueError as error:
            wrong.append(Wrong("fault script", f"faults[{number}]", "", str(error), "", "a fault that can be had here"))
    if wrong:
        for name, bus in bench.buses.items():
            bus.faults[:] = before[name]
        raise Faults(wrong)
