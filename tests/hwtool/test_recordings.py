"""A run through the daemon, recorded and asked for again: the same results, or the line of the recording that differs.

Chips of several kinds on three buses, one of them a real Modbus RTU master on a pty: writes with read-back, a field
update, a FIFO, a banked access, pages of an EEPROM, lines of text.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwtool.checks.simulated import simulated
from hwtool.config import parse_board
from hwtool.engine import Engine
from hwtool.simulator import served
from hwtool_contracts.library import bundled
from hwtool_contracts.messages import Result
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import RegisterWrite
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.line import RtuLine
from hwtool_sim.replay import Diverged, Divergence, Replay
from tests.hwtool.conftest import FakeClock, Lab, Play
from tests.hwtool.test_approvals import approved
from tests.hwtool.test_permission import board, rule
from tests.hwtool.test_planted_secrets import BYTES, PARTS, planted
from tests.sim.test_recorded_secrets import spellings
from tests.sim.test_recording import entries

BUSES = {
    "i2c0": "kind = 'sim'",
    "scpi": "kind = 'sim'",
    "line0": "kind = 'modbus-rtu'\npath = '{path}'\nbaud = 115200\ngap_ms = 1\nresponse_ms = 5000",
}
DEVICES = """
[devices.gpio]
contract = "mcp23017"
bus = "i2c0"
address = 0x20
[devices.uart]
contract = "sc16is750"
bus = "i2c0"
address = 0x4d
[devices.rom]
contract = "at24c32"
bus = "i2c0"
address = 0x50
[devices.supply]
contract = "tdk_genesys_gh"
bus = "scpi"
[devices.meter]
contract = "sdm120"
bus = "line0"
address = 1
identity = "32"
"""
Request = tuple[str, dict[str, Any]]
RULES_RAN = "the rules have run"  # no method: waits for the end of a quarantine


def keyed(number: int, **params: Any) -> dict[str, Any]:
    return {"key": f"key-run-{number:04}", **params}


REQUESTS: list[Request] = [
    ("reg.read", {"registers": ["gpio.IODIRA", "gpio.IPOLA"]}),
    ("reg.write", keyed(1, register="gpio.OLATA", value=0x2A)),
    ("reg.update", keyed(2, register="gpio.OLATA", fields={"P0": 1})),
    ("reg.read_effectful", keyed(3, register="uart.RHR")),
    ("reg.read_effectful", keyed(4, register="uart.RHR", count=2)),
    ("reg.write", keyed(5, register="uart.DLL", value=0x12)),
    ("reg.read", {"registers": ["uart.DLL"]}),
    ("reg.write", keyed(6, register="rom.DATA[30:4]", value="0xdeadbeef")),
    ("reg.read", {"registers": ["rom.DATA[28:8]"]}),
    ("reg.read", {"registers": ["supply.IDN"]}),
    ("reg.read_effectful", keyed(7, register="supply.ESR")),
    ("reg.write", keyed(8, register="supply.CLS", value=0)),
    ("reg.read", {"registers": ["meter.VOLTAGE"]}),
    ("reg.write", keyed(9, register="meter.RELAY_PULSE_WIDTH", value={"scaled": "200", "unit": "ms"})),
    ("device.dump", {"device": "gpio"}),
    ("reg.write", keyed(1, register="gpio.OLATA", value=0x2A)),
]


DONE, APPLIED, WAITS = ("done", None), ("done", "applied"), ("pending_approval", None)
WANTED = [
    *[DONE, APPLIED, APPLIED, APPLIED, APPLIED, APPLIED, DONE, WAITS, APPLIED, DONE],
    *[DONE, APPLIED, APPLIED, DONE, WAITS, APPLIED, DONE, APPLIED],
]


def text_of(folder: Path, keys: Callable[[str], str]) -> str:
    buses = "".join(f"[buses.{name}]\nsole_master = true\n{keys(name)}\n" for name in BUSES)
    head = "name = 'several'\napproval_mode = 'self'\nself_approval_on_hardware = true\n"
    return head + buses.replace("{path}", str(folder / "line0")) + DEVICES


def recording_board(folder: Path) -> str:
    """The board with its own buses, each recorded."""
    return text_of(folder, lambda name: f"{BUSES[name]}\nrecord = '{name}.jsonl'")


def replaying_board(folder: Path) -> str:
    """The same board, its buses answered from the recordings."""
    return text_of(folder, lambda name: f"kind = 'sim'\nreplay = '{name}-1.jsonl'")


def said(result: Any) -> dict[str, Any]:
    """A result without times, the store's own marks, and whether a real bus was behind it."""
    told: dict[str, Any] = {name: getattr(result, name) for name in result.__struct_fields__}
    for name in ("at", "store", "simulated"):
        told.pop(name)
    return told


async def life(
    text: str, folder: Path, store: str, requests: list[Request], *faults: Fault
) -> tuple[list[Result], list[Replay]]:
    """One life of a daemon in which these are asked for, one after the other; the results, and what replayed.

    What waits for a person is approved and asked for again.
    """
    clock = FakeClock()

    def chips(contracts: Any) -> SimBus:
        bus = bus_of(contracts, clock.advance, clock.monotonic_s)
        bus.faults += faults
        return bus

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwtool.buses.bus_of", chips)
        engine = await Engine.start(parse_board(text, "board.toml", folder), folder / store, clock, allow_unsafe=True)
    lab = Lab(engine, clock, folder / store)
    replays = [w.bus for w in engine.daemon.workers.values() if isinstance(w.bus, Replay)]
    results = []
    try:
        for method, params in requests:
            if method == RULES_RAN:
                await lab.rules_ran(params["device"])
                continue
            results.append(await lab.ask(method, **params))
            if results[-1].status == "pending_approval" and not any(r.divergence for r in replays):
                assert (await approved(lab, results[-1].id)).ok
                results.append(await lab.ask(method, **params))
    finally:
        await engine.close()
        engine.daemon.store.close()
    return results, replays


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """A recorded run, and its results; the line is gone when it is over."""
    folder = tmp_path_factory.mktemp("run")
    line = RtuLine(bus_of({1: bundled("sdm120")}), str(folder / "line0"), threading.Lock())
    line.open()
    try:
        results, _ = asyncio.run(life(recording_board(folder), folder, "store", REQUESTS))
    finally:
        line.close()
    yield folder, [said(result) for result in results]


def test_run_when_recorded_and_asked_for_again_then_the_same_results_without_a_chip(
    run: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, results = run
    assert [(r["status"], r["verdict"]) for r in results] == WANTED
    again, replays = asyncio.run(life(replaying_board(folder), folder, "again", REQUESTS))
    assert [said(result) for result in again] == results
    assert len(replays) == len(BUSES)
    for replay in replays:
        replay.finish()
    assert {len(entries(folder / f"{name}-1.jsonl")) > 4 for name in BUSES} == {True}


def changed(number: int, **params: Any) -> list[Request]:
    """The requests, one of them with other parameters."""
    method, before = REQUESTS[number]
    return [*REQUESTS[:number], (method, before | params), *REQUESTS[number + 1 :]]


def line_of(folder: Path, bus: str, wanted: Callable[[dict[str, Any]], bool]) -> int:
    """The first line of a recording with a transfer of this kind."""
    found = [
        n for n, e in enumerate(entries(folder / f"{bus}-1.jsonl"), 1) if "transfer" in e and wanted(e["transfer"])
    ]
    return found[0]


def sent_to(do: str, offset: int) -> Callable[[dict[str, Any]], bool]:
    return lambda t: (t["do"], t["address"], t["offset"]) == (do, "0x20", f"{offset:#04x}")


DIFFERENT: dict[str, tuple[list[Request], str, Callable[[dict[str, Any]], bool]]] = {
    "another value": (changed(1, value=0x2B), "i2c0", sent_to("write", 0x14)),
    "another order": ([REQUESTS[0], REQUESTS[3], REQUESTS[1], *REQUESTS[4:]], "i2c0", sent_to("read", 0x14)),
    "a pop left out": ([*REQUESTS[:3], *REQUESTS[5:]], "i2c0", lambda t: t["do"] == "read" and t["address"] == "0x4d"),
    "another line": (
        [*REQUESTS[:11], ("reg.read_effectful", keyed(8, register="supply.ERROR")), *REQUESTS[12:]],
        "scpi",
        lambda t: t.get("text") == "*CLS",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("requests", "bus", "wanted"), DIFFERENT.values(), ids=list(DIFFERENT))
def test_run_when_a_request_differs_then_told_with_the_line_where_it_does(
    run: tuple[Path, list[dict[str, Any]]],
    tmp_path: Path,
    requests: list[Request],
    bus: str,
    wanted: Callable[[dict[str, Any]], bool],
) -> None:
    folder, _ = run
    _, replays = asyncio.run(life(replaying_board(folder), folder, tmp_path.name, requests))
    replay = replays[list(BUSES).index(bus)]
    with pytest.raises(Diverged, match=rf"{bus}-1\.jsonl, line {line_of(folder, bus, wanted)}: "):
        replay.finish()


MORE: Request = ("reg.write", keyed(99, register="gpio.OLATA", value=0x2B))


@pytest.mark.parametrize("requests", [[*REQUESTS, MORE], REQUESTS[:5]], ids=["an effect more", "the rest left out"])
def test_run_when_it_is_longer_or_shorter_then_told(
    run: tuple[Path, list[dict[str, Any]]], tmp_path: Path, requests: list[Request]
) -> None:
    folder, _ = run
    results, replays = asyncio.run(life(replaying_board(folder), folder, tmp_path.name, requests))
    with pytest.raises(Diverged, match=r"i2c0-1\.jsonl, line \d+: recorded was"):
        replays[0].finish()
    if requests[-1] is MORE:
        assert (results[-1].status, results[-1].effects) == ("failed", "none")
        assert (replays[0].divergence or Divergence(0, {}, {})).recorded is None


def one_bus(keys: str) -> str:
    return f"name = 'x'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\n{keys}\n" + GPIO


GPIO = "[devices.gpio]\ncontract = 'mcp23017'\nbus = 'b'\naddress = 0x20\n"
READ: Request = ("reg.read", {"registers": ["gpio.IODIRA"]})


def test_daemon_when_started_again_then_each_start_has_a_recording_of_its_own(tmp_path: Path) -> None:
    for store in ("one", "two"):
        asyncio.run(life(one_bus("record = 'run.jsonl'"), tmp_path, store, [READ]))
    one, two = (entries(tmp_path / f"run-{n}.jsonl") for n in (1, 2))
    assert [e["transfer"] for e in one if "transfer" in e] == [e["transfer"] for e in two if "transfer" in e]
    assert (one[0]["board"], one[0]["bus"], one[0]["kind"]) == ("x", "b", "sim")
    assert one[0]["contracts"] == {"0x20": bundled("mcp23017").digest}
    assert not (tmp_path / "run.jsonl").exists()


def test_manual_when_its_test_is_run_then_it_passes_and_fails_where_the_run_was_another(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"## Recordings.*?```python\n(.*?)```", manual, re.S)
    (keys,) = re.findall(r'## Recordings.*?```toml\n.*?(replay = "run-1.jsonl")', manual, re.S)
    bus = one_bus("record = 'run.jsonl'").replace("buses.b", "buses.i2c0").replace("'b'", "'i2c0'")
    (tmp_path / "board.toml").write_text(bus.replace("record = 'run.jsonl'", keys))
    write: Request = ("reg.write", keyed(1, register="gpio.OLATA", value=42))
    asyncio.run(life(bus, tmp_path, "store", [write]))
    names: dict[str, Any] = {"BOARD": tmp_path / "board.toml"}
    exec(block, names)
    (name,) = [name for name in names if name.startswith("test_")]
    (tmp_path / "again").mkdir()
    names[name](tmp_path / "again")
    exec(block.replace('"value": 42', '"value": 43').replace("assert (told.verdict, told.effects) ==", "told ="), names)
    (tmp_path / "other").mkdir()
    with pytest.raises(Diverged, match=r"run-1\.jsonl, line \d+: "):
        names[name](tmp_path / "other")


def test_run_when_an_outcome_was_unknown_then_it_is_settled_as_it_was(tmp_path: Path) -> None:
    write: Request = ("reg.write", keyed(1, register="gpio.OLATA", value=42))
    lost = Fault(FaultKind.REPLY_LOST, 0x20, access="write")
    asked = [write, (RULES_RAN, {"device": "gpio"}), ("op.get", {"id": 1}), READ]
    board_of_chips = one_bus("sole_master = true\nrecord = 'run.jsonl'")
    results, _ = asyncio.run(life(board_of_chips, tmp_path, "store", asked, lost))
    again, (replay,) = asyncio.run(
        life(one_bus("sole_master = true\nreplay = 'run-1.jsonl'"), tmp_path, "again", asked)
    )
    assert (results[0].effects, results[1].verdict) == ("unknown", "applied")
    assert [said(result) for result in again] == [said(result) for result in results]
    replay.finish()
    assert "quiesce" in [entry.get("call") for entry in entries(tmp_path / "run-1.jsonl")]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("replay = 'damaged'", "damaged, line 1: not JSON"),
        ("replay = 'none'", "cannot be read"),
        ("record = 'no/such/folder'", "No such file or directory: .*no/such/folder-1"),
    ],
)
def test_daemon_when_a_recording_cannot_be_had_then_it_does_not_start(tmp_path: Path, keys: str, told: str) -> None:
    (tmp_path / "damaged").write_text("garbage\n")
    with pytest.raises(OSError, match=told):
        asyncio.run(life(one_bus(keys), tmp_path, "store", []))


@pytest.mark.parametrize("more", ["process = true", "socket = '/tmp/s'"])
def test_board_when_a_replay_has_a_simulator_too_then_refused(tmp_path: Path, more: str) -> None:
    with pytest.raises(Faults, match=r"buses\.b\.replay: a recording answers, no simulator"):
        parse_board(one_bus(f"replay = 'r'\n{more}"), "board.toml", tmp_path)


def test_board_when_a_real_bus_has_a_replay_then_refused(tmp_path: Path) -> None:
    text = one_bus("replay = 'r'").replace("'sim'", "'i2c'\nadapter = 'x'").replace("'self'", "'sudo'")
    with pytest.raises(Faults, match=r"buses\.b\.replay: only for kind = sim"):
        parse_board(text, "board.toml", tmp_path)


def test_board_when_recorded_or_replayed_then_paths_stand_beside_it_and_checks_ignore_both(tmp_path: Path) -> None:
    recorded = parse_board(one_bus("record = 'a/run.jsonl'"), "board.toml", tmp_path)
    replayed = parse_board(one_bus("replay = 'run.jsonl'"), "board.toml", tmp_path)
    assert (recorded.buses["b"].record, replayed.buses["b"].replay) == (
        tmp_path / "a/run.jsonl",
        tmp_path / "run.jsonl",
    )
    assert replayed.simulated
    for loaded in (recorded, replayed):
        spec = simulated(loaded).buses["b"]
        assert (spec.record, spec.replay) == (None, None)


def test_simulator_when_a_bus_is_replayed_then_refused_and_when_recorded_then_served(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"bus b: a recording answers there \(replay\), and no chips that could be served"
    ):
        served(parse_board(one_bus("replay = 'r'"), "board.toml", tmp_path), "/tmp/s")
    found = served(parse_board(one_bus("record = 'r'"), "board.toml", tmp_path), "/tmp/s")
    assert list(found.buses["b"]) == [0x20]
    assert list(tmp_path.iterdir()) == []


def test_secrets_when_everything_is_asked_for_then_in_no_line_of_the_recording(
    play: Play, tmp_path: Path, buses_are: Callable[[type[SimBus]], None]
) -> None:
    made: list[SimBus] = []

    class Kept(SimBus):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    class Inside(Lab):
        def bus(self, name: str = "toy") -> SimBus:
            return made[0]

    buses_are(Kept)

    async def scenario(lab: Lab) -> None:
        await planted(Inside(lab.engine, lab.clock, lab.directory))

    toys = board(tmp_path, rule(register="'RULED'", limits="{ max = 16 }") + rule(write="'yes'"), *PARTS)
    buses = {name: replace(spec, record=tmp_path / "run.jsonl") for name, spec in toys.buses.items()}
    play(scenario, replace(toys, buses=buses))
    text = (tmp_path / "run-1.jsonl").read_text()
    assert (spellings(text), text.count('"redacted"') > 40) == ([], True)
    assert any(isinstance(t, RegisterWrite) and t.data == BYTES for t in made[0].log), "planted nowhere"
