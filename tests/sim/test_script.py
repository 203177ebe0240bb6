"""Fault scripts: TOML becomes planned faults, by access, time or chance, and everything wrong is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Ambiguous, RegisterWrite, Rejected
from hwtool_sim.board import bus_of
from hwtool_sim.control import Bench
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.process import bench_of
from hwtool_sim.script import Script, load_script, plan

DEVICES = {"gpio": ("i2c0", 0x20), "meter": ("line0", 1)}
WRITE = RegisterWrite(0x20, Space.MEMORY, 0x14, b"\x5a")
GOOD = """
seed = 7
[[faults]]
device = "gpio"
kind = "reply_lost"
access = "write"
at = "OLATA"
probability = 0.25
times = "always"
[[faults]]
bus = "i2c0"
address = 0x20
kind = "unplug"
after_s = 60
lasts_s = 2.5
"""


def read(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "faults.toml"
    path.write_text(text, encoding="utf-8")
    return load_script(path, DEVICES)


def test_script_when_read_then_its_faults_are_those_of_the_file(tmp_path: Path) -> None:
    lost = Fault(FaultKind.REPLY_LOST, 0x20, "write", at="OLATA", probability=0.25, times="always")
    assert read(tmp_path, GOOD) == Script(
        7, (("i2c0", lost), ("i2c0", Fault(FaultKind.UNPLUG, 0x20, after_s=60, lasts_s=2.5)))
    )


def test_script_when_it_is_empty_then_nothing_goes_wrong(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Script(None, ())


def test_script_when_planned_then_it_strikes_what_it_names(tmp_path: Path) -> None:
    bus = bus_of({0x20: bundled("mcp23017")})
    now = [100.0]
    bus.clock = lambda: now[0]
    plan(read(tmp_path, GOOD.replace("probability = 0.25", "")), Bench({"i2c0": bus}))
    assert isinstance(bus.perform(RegisterWrite(0x20, Space.MEMORY, 0x15, b"\x01")), Ambiguous) is False
    assert isinstance(bus.perform(WRITE), Ambiguous)
    bus.faults.pop(0)
    now[0] += 61
    assert [type(bus.perform(WRITE)) for _ in range(2)] == [Ambiguous, Rejected]
    now[0] += 3
    assert not isinstance(bus.perform(WRITE), Ambiguous | Rejected)


WRONG = [
    ("not TOML", "seed =", "not valid TOML"),
    ("key", "seeds = 7", "seeds: unknown key"),
    ("seed", "seed = 'x'", "seed: wrong type"),
    ("no tables", "faults = 3", "faults: wrong type"),
    ("kind", "[[faults]]\naddress = 1\nkind = 'reply_list'", "reply_list"),
    ("part", "[[faults]]\naddress = 1\nkind = 'nack'\nadress = 2", "adress"),
    ("no place", "[[faults]]\nkind = 'nack'", "address"),
    ("device", "[[faults]]\ndevice = 'gpo'\nkind = 'nack'", "there is no 'gpo'; there are gpio, meter"),
    ("both", "[[faults]]\ndevice = 'gpio'\naddress = 1\nkind = 'nack'", "a device or an address, not both"),
    ("bus", "[[faults]]\ndevice = 'gpio'\nbus = 'line0'\nkind = 'nack'", "gpio sits on i2c0, not on 'line0'"),
    ("chance", "[[faults]]\naddress = 1\nkind = 'nack'\nprobability = 1.5", "<= 1"),
    ("text", "[[faults]]\naddress = '1'\nkind = 'nack'", "Expected `int`"),
]


@pytest.mark.parametrize(("text", "told"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_script_when_something_is_wrong_then_it_is_told_where(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Faults) as caught:
        read(tmp_path, text)
    (fault,) = caught.value.faults
    assert told in str(fault)
    assert str(fault).startswith("faults.toml")


def test_script_when_several_things_are_wrong_then_all_are_told(tmp_path: Path) -> None:
    with pytest.raises(Faults) as caught:
        read(tmp_path, "seed = -1\n" + "[[faults]]\nkind = 'nack'\n" * 2)
    assert len(caught.value.faults) == 3


def test_script_when_a_bus_cannot_have_a_fault_then_nothing_is_planned(tmp_path: Path) -> None:
    bench = bench_of(
        {"i2c0": {0x20: bundled("mcp23017")}, "line0": {1: bundled("sdm120")}}, {"line0": str(tmp_path / "line")}
    )
    text = GOOD + "[[faults]]\ndevice = 'meter'\nkind = 'stuck_bus'\n[[faults]]\naddress = 1\nkind = 'nack'\n"
    with pytest.raises(Faults) as caught:
        plan(read(tmp_path, text), bench)
    assert [str(f).partition(": ")[2][:9] for f in caught.value.faults] == ["faults[2]", "faults[3]"]
    assert "bus line0 is a line of Modbus" in str(caught.value)
    assert "bus: which one? there are i2c0, line0" in str(caught.value)
    assert [bus.faults for bus in bench.buses.values()] == [[], []]


def test_script_when_it_is_not_there_then_told(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="cannot be read"):
        load_script(tmp_path / "none.toml")
