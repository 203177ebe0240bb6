"""Controls of a simulator that serves several buses: faults, counts, chips that move, are swapped, vanish."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, RegisterWrite, as_object
from hwtool_sim.answers import answer_object
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.control import NAMES, Bench
from hwtool_sim.faults import EVENTS, FaultKind
from hwtool_sim.process import SimServer
from tests.sim.test_bus import NEEDED, SPOILT

READ = as_object(RegisterRead(0x20, Space.MEMORY, 0x14, 1))
WRITE = as_object(RegisterWrite(0x20, Space.MEMORY, 0x14, b"\x5a"))


class Two:
    """A simulator of two buses, each with an expander at 0x20; `left` has a UART at 0x48 too."""

    def __init__(self, path: str) -> None:
        self.slept: list[float] = []
        self.now_s = 0.0
        left = bus_of({0x20: bundled("mcp23017"), 0x48: bundled("sc16is750")})
        self.left = SimBus(left.chips, sleep=self.slept.append, clock=lambda: self.now_s)
        self.right = bus_of({0x20: bundled("mcp23017")})
        self.server = SimServer(path, Bench({"left": self.left, "right": self.right}))

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.server.answer(json.dumps(request).encode())

    def do(self, control: str, **parts: Any) -> None:
        assert self.ask(control=control, **parts) == {"done": True}


@pytest.fixture
def two() -> Iterator[Two]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        it = Two(f"{folder}/s")
        yield it
        it.server.server_close()


def test_transfer_when_there_are_several_buses_then_one_must_be_named_and_no_other_sees_it(two: Two) -> None:
    assert two.ask(bus="right", transfer=WRITE) == {"answer": "confirmed", "data": ""}
    assert two.ask(bus="left", transfer=READ) == {"answer": "confirmed", "data": "00"}
    assert two.ask(transfer=READ) == {"error": "transfer: bus: which one? there are left, right"}
    assert two.ask(join=True, bus="left") == {"joined": "left", "plugged": True}
    assert two.ask(bus="left", boot_evidence=0x20) != two.ask(bus="right", boot_evidence=0x20)


def test_counts_when_there_are_several_buses_then_grouped_and_flat_for_the_one_named(two: Two) -> None:
    two.ask(bus="right", transfer=WRITE)
    left: dict[str, dict[str, int]] = {"0x20": {}, "0x48": {}}
    right = {"0x20": {"OLATA.write": 1}}
    assert two.ask(control="counts") == {"counts": {"left": left, "right": right}, "transfers": 1}
    assert two.ask(control="counts", bus="left") == {"counts": left, "transfers": 0}
    assert two.ask(control="counts", bus="right") == {"counts": right, "transfers": 1}


def test_values_when_asked_then_everything_a_chip_holds_and_no_effect(two: Two) -> None:
    two.ask(bus="left", transfer=as_object(RegisterWrite(0x48, Space.MEMORY, 0x00, b"ab")))
    two.do("fault", bus="left", fault={"kind": "foreign", "address": 0x20, "register": "OLATA", "value": 7})
    two.ask(bus="left", transfer=READ)
    shown = two.ask(control="values")["values"]
    assert list(shown) == ["left", "right"]
    uart, expander = shown["left"]["0x48"], shown["left"]["0x20"]
    assert (uart["part"], uart["fifos"], uart["sent"]) == ("sc16is750", {"RHR": list(b"hello")}, {"THR": list(b"ab")})
    assert (expander["values"]["OLATA"], expander["foreign"]) == (7, {"OLATA.write": 1})
    assert expander["nonce"] == two.left.chips[0x20].nonce
    assert two.ask(control="values", bus="right")["values"]["0x20"]["values"]["IODIRA"] == 0xFF
    assert two.ask(control="counts", bus="left")["counts"] == {
        "0x20": {"OLATA.read": 1},
        "0x48": {"THR.write": 2, "THR.pulse": 2},
    }


# an exception needs a Modbus device: below
@pytest.mark.parametrize("kind", [k for k in FaultKind if k is not FaultKind.EXCEPTION], ids=lambda k: k.value)
def test_fault_when_planned_over_the_process_then_answer_and_execution_are_those_of_its_kind(
    two: Two, kind: FaultKind
) -> None:
    wanted, executed, held, waits = SPOILT[kind]
    two.do("fault", bus="left", fault={"kind": kind.value, "address": 0x20, **NEEDED.get(kind, {})})
    shown = two.ask(bus="left", transfer=WRITE)
    assert shown == answer_object(wanted)
    counts = two.ask(control="counts", bus="left")["counts"]["0x20"]
    assert (counts.get("OLATA.write", 0), two.left.chips[0x20].values["OLATA"], two.slept) == (executed, held, waits)


def test_exception_when_planned_for_a_modbus_device_then_its_table_decides(two: Two) -> None:
    two.do("swap", bus="left", address=0x48, contract="sdm120")
    two.do("fault", bus="left", fault={"kind": "exception", "address": 0x48, "code": 2})
    read = as_object(RegisterRead(0x48, Space.INPUT, 0, 4, 1, 4))
    shown = two.ask(bus="left", transfer=read)
    assert (shown["answer"], shown["proof"]) == ("rejected", "modbus-exception-02")
    assert two.ask(control="counts", bus="left")["counts"]["0x48"] == {}


def test_faults_when_cleared_then_nothing_strikes_any_more(two: Two) -> None:
    lost = {"kind": "reply_lost", "address": 0x20}
    for bus in ("left", "right"):
        two.do("fault", bus=bus, fault=lost)
    two.do("clear_faults", bus="left")
    assert two.ask(bus="left", transfer=READ)["answer"] == "confirmed"
    two.do("clear_faults")
    assert two.ask(bus="right", transfer=READ)["answer"] == "confirmed"


def test_chance_when_its_seed_is_set_then_the_same_accesses_are_struck(two: Two) -> None:
    fault = {"kind": "nack", "address": 0x20, "times": "always", "probability": 0.5}
    two.do("fault", bus="left", fault=fault)
    struck = []
    for seed in (7, 7, 8):
        two.do("seed", seed=seed)
        struck.append([two.ask(bus="left", transfer=READ)["answer"] for _ in range(32)])
    assert struck[0] == struck[1] != struck[2]


def test_bus_when_unplugged_then_absent_alone_until_plugged(two: Two) -> None:
    evidence = two.ask(bus="left", boot_evidence=0x20)
    two.do("unplug", bus="left", power=True)
    assert two.ask(bus="left", transfer=READ)["proof"] == "port-not-opened"
    assert two.ask(bus="left", boot_evidence=0x20) == {"nonce": None}
    assert two.ask(bus="left", quiesce=True) == {"quiet": False}
    assert two.ask(bus="right", transfer=READ)["answer"] == "confirmed"
    two.do("plug", bus="left")
    assert two.ask(bus="left", quiesce=True) == {"quiet": True}
    assert two.ask(bus="left", transfer=READ)["answer"] == "confirmed"
    assert two.ask(bus="left", boot_evidence=0x20) != evidence
    assert two.ask(control="unplug") == {"error": "control: bus: which one? there are left, right"}


def test_traffic_when_asked_for_then_the_newest_of_one_bus_in_order(two: Two) -> None:
    two.ask(bus="right", transfer=WRITE)
    two.ask(bus="right", transfer=READ)
    two.ask(bus="left", transfer=READ)
    assert two.ask(control="traffic", bus="right") == {"traffic": [WRITE, READ]}
    assert two.ask(control="traffic", bus="right", newest=1) == {"traffic": [READ]}
    assert two.ask(control="traffic", bus="right", newest=0) == {"traffic": []}
    assert "which one?" in two.ask(control="traffic")["error"]


def test_chip_when_moved_then_it_keeps_its_state_and_its_counts_and_leaves_nothing_behind(two: Two) -> None:
    two.ask(bus="left", transfer=WRITE)
    chip = two.left.chips[0x20]
    two.do("move", bus="left", address=0x20, to=0x21)
    assert two.ask(bus="left", transfer=READ)["proof"] == "address-nack"
    assert two.ask(bus="left", transfer=READ | {"address": "0x21"})["data"] == "5a"
    two.do("move", bus="left", address=0x21, to=0x22, to_bus="right")
    assert two.right.chips[0x22] is chip
    assert sorted(two.left.chips) == [0x48]
    occupied = two.ask(control="move", bus="right", address=0x22, to=0x20)
    assert occupied == {"error": "control: to: 0x20 of bus right is occupied"}
    assert sorted(two.right.chips) == [0x20, 0x22]


@pytest.mark.parametrize(("parts", "part"), [({"contract": "tmp102"}, "tmp102"), ({"same": True}, "mcp23017")])
def test_chip_when_swapped_then_another_one_stands_there_as_at_power_on(
    two: Two, parts: dict[str, Any], part: str
) -> None:
    two.ask(bus="left", transfer=WRITE)
    old = two.left.chips[0x20]
    two.do("swap", bus="left", address=0x20, **parts)
    fresh = two.left.chips[0x20]
    assert fresh.contract.part == part
    assert fresh.nonce != old.nonce
    assert (fresh.executed, fresh.values.get("OLATA", 0)) == ({}, 0)


def test_stop_when_one_bus_is_named_then_it_is_the_end_of_all(two: Two) -> None:
    two.do("stop", bus="left")
    assert two.server.bench.stopping


def test_hang_when_one_bus_hangs_then_the_others_and_the_controls_go_on(two: Two) -> None:
    seen: list[dict[str, Any]] = []

    def meanwhile(seconds: float) -> None:
        seen.append({"slept": seconds})
        seen.append(two.ask(bus="right", transfer=READ))
        seen.append(two.ask(control="counts", bus="left"))

    two.server.bench.buses["left"] = hanging = SimBus(two.left.chips, sleep=meanwhile)
    two.do("fault", bus="left", fault={"kind": "hang", "address": 0x20, "hang_s": 3.0})
    assert not hanging.inline
    assert two.ask(bus="left", transfer=WRITE)["answer"] == "confirmed"
    counts = {"counts": {"0x20": {"OLATA.write": 1}, "0x48": {}}, "transfers": 1}
    assert seen == [{"slept": 3.0}, {"answer": "confirmed", "data": "00"}, counts]


def test_manual_when_read_then_it_has_every_control_and_every_fault_and_no_other() -> None:
    manual = (Path(__file__).parent.parent.parent / "docs" / "simulator.md").read_text(encoding="utf-8")
    controls, faults = manual.split("## Faults\n")
    faults, _ = faults.split("## Fault scripts")
    assert re.findall(r"^\| `(\w+)`", controls, re.MULTILINE) == NAMES
    kinds = re.findall(r"^\| `(\w+)`( \(event\))?", faults, re.MULTILINE)
    assert [FaultKind(name) for name, _ in kinds] == list(FaultKind)
    assert {FaultKind(name) for name, event in kinds if event} == EVENTS
