"""`bus.probe`: one named address, once, on record first; nothing that the board knows, and never a second address."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board, parse_board
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, Message, RegisterRead, Rejected, Sent, Transfer
from hwtool_sim.bus import SimBus
from tests.hwtool.conftest import MODBUS, Lab, Play, code_of, effect, error_of, evidence_of, reg, toy_board

PARTS = (reg("A", 0), reg("FIFO", 1, effect("pop"), "ro"))


class Scripted:
    """A bus that answers everything with the same word."""

    inline = True

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.sent: list[Transfer] = []

    def perform(self, transfer: Transfer) -> Answer:
        self.sent.append(transfer)
        return self.answer

    def quiesce(self, until_s: float) -> None:
        """Nothing comes late."""


CASES: dict[str, tuple[Answer, str | None, str, str]] = {
    # the bus's answer, code of the error, effects, what the summary says
    "somebody": (Confirmed(b"\x5a"), None, "unknown", "somebody answered"),
    "nobody": (Rejected("no acknowledge", "address-nack"), None, "none", "nobody is there"),
    "an exception": (Rejected("exception 02", "modbus-exception-02"), None, "none", "somebody answered: exception 02"),
    "a doubt": (Ambiguous(Sent.REPLY, "Modbus exception 04 (device failure)"), None, "unknown", "somebody answered"),
    "silence": (Ambiguous(Sent.REPLY, "no reply"), None, "unknown", "no answer that tells: no reply"),
    "not asked": (Rejected("0x33 is owned by the driver x", "not-sent"), "refused", "none", "was not asked"),
    "not open": (Rejected("gone", "port-not-opened"), "unavailable", "none", "was not asked"),
}


@pytest.mark.parametrize("name", CASES)
def test_probe_when_answered_then_says_so_and_was_sent_once_and_on_record_before(
    play: Play, tmp_path: Path, name: str
) -> None:
    answer, code, effects, said = CASES[name]

    async def life(lab: Lab) -> None:
        bus = Scripted(answer)
        lab.device().worker.use(bus)
        told = await lab.operator("bus.probe", bus="b", address=0x33)
        assert (code_of(told), told.effects) == (code, effects)
        assert said in (told.summary if code is None else error_of(told)["message"])
        assert bus.sent == [Message(0x33, b"", 1)]
        begun, ended = (await lab.audit())[-2:]
        assert (begun["what"], begun["bus"], begun["address"], begun["principal"]) == ("probe", "b", "0x33", "uid:0")
        assert (ended["what"], ended["address"], ended["effects"]) == ("probed", "0x33", effects)
        assert ended["found"] == ("not asked" if code is not None else evidence_of(told)["found"])
        if name == "somebody":
            assert evidence_of(told)["data"] == "5a"
        if name == "not open":
            assert error_of(told)["retry_after_ms"] > 0

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_the_record_fails_then_nothing_is_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        bus = Scripted(Confirmed(b"\0"))
        lab.device().worker.use(bus)

        def failing(*_: Any) -> None:
            raise ValueError("a record that cannot be made")

        with monkeypatch.context() as patch:
            patch.setattr("hwtool_store.operations.note", failing)
            assert not (await lab.operator("bus.probe", bus="b", address=0x33)).ok
        assert bus.sent == []

    play(life, toy_board(tmp_path, *PARTS))


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a device of the board": ({"bus": "b", "address": 0x20}, "refused", "is toy"),
    "no such bus": ({"bus": "nope", "address": 0x33}, "not_found", "it has b"),
    "a reserved address": ({"bus": "b", "address": 0x03}, "invalid_args", "out of range"),
    "eight bits": ({"bus": "b", "address": 0x90}, "invalid_args", "out of range"),
    "no address": ({"bus": "b", "address": -1}, "invalid_args", "address"),
    "two addresses": ({"bus": "b", "address": [0x33, 0x34]}, "invalid_args", "address"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_probe_when_it_may_not_be_then_nothing_is_sent(play: Play, tmp_path: Path, name: str) -> None:
    params, code, said = REFUSED[name]

    async def life(lab: Lab) -> None:
        told = await lab.operator("bus.probe", **params)
        assert (code_of(told), said in error_of(told)["message"]) == (code, True), told.error
        assert (lab.bus().transfers, "probe" in [row["what"] for row in await lab.audit()]) == (0, False)
        if name == "eight bits":
            assert "0x48" in error_of(told)["expected"]

    play(life, toy_board(tmp_path, *PARTS))


STOPPED = {"frozen": "unavailable", "stopping": "unavailable", "read_only": "denied", "rehearsing": "denied"}


@pytest.mark.parametrize("while_it_waits", [False, True], ids=["before", "while it waits for the bus"])
@pytest.mark.parametrize("stopped", STOPPED)
def test_probe_when_the_daemon_may_have_no_effect_then_nothing_is_sent(
    play: Play, tmp_path: Path, stopped: str, while_it_waits: bool
) -> None:
    async def life(lab: Lab) -> None:
        worker = lab.device().worker
        async with worker.lock if while_it_waits else contextlib.nullcontext():
            if not while_it_waits:
                setattr(lab.daemon, stopped, True)
            asked = asyncio.create_task(lab.operator("bus.probe", bus="b", address=0x33))
            for _ in range(20):
                await asyncio.sleep(0)
            setattr(lab.daemon, stopped, True)
        assert code_of(await asked) == STOPPED[stopped]
        assert lab.bus().transfers == 0
        assert "probe" not in [row["what"] for row in await lab.audit()]
        setattr(lab.daemon, stopped, False)

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_the_bus_may_repeat_by_itself_then_refused(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.operator("bus.probe", bus="b", address=0x33)
        assert (code_of(told), error_of(told)["rule"], lab.bus().transfers) == ("refused", "bus_repeats", 0)

    play(life, toy_board(tmp_path, *PARTS, bus="may_repeat = true"))


def test_probe_when_a_device_answers_at_several_addresses_then_none_of_them_is_a_strangers(
    play: Play, tmp_path: Path
) -> None:
    text = (
        "name = 'roms'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\n"
        "[devices.rom]\ncontract = 'at24c16'\nbus = 'b'\naddress = 0x50\n"
    )

    async def life(lab: Lab) -> None:
        for address in (0x50, 0x51, 0x57):
            told = await lab.operator("bus.probe", bus="b", address=address)
            assert (code_of(told), error_of(told)["rule"]) == ("refused", "on_the_board")
        assert lab.bus("rom").transfers == 0
        assert (await lab.operator("bus.probe", bus="b", address=0x58)).ok

    play(life, parse_board(text, "roms.toml", tmp_path))


def test_probe_when_nobody_answers_many_times_then_the_bus_is_not_taken_for_failing(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        worker, real = lab.device().worker, lab.bus()
        worker.use(Scripted(Ambiguous(Sent.REPLY, "no reply")))
        for _ in range(8):
            assert "no answer" in (await lab.operator("bus.probe", bus="b", address=0x33)).summary
            await worker.settled(1.0)
        worker.use(real)
        assert (worker.breaker.open, worker.breaker.failures) == (False, 0)
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_the_simulated_bus_has_modbus_devices_then_they_are_units(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.operator("bus.probe", bus="b", address=200)).ok
        assert code_of(await lab.operator("bus.probe", bus="b", address=0)) == "invalid_args"

    play(life, toy_board(tmp_path, reg("A", 0, "space = 'holding'"), head=MODBUS))


def test_probe_when_an_agent_asks_then_denied(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert code_of(await lab.ask("bus.probe", bus="b", address=0x33)) == "denied"
        assert lab.bus().transfers == 0

    play(life, toy_board(tmp_path, *PARTS))


def line_board(directory: Path) -> Board:
    toy_board(directory, *PARTS)
    text = (
        "name = 'line'\napproval_mode = 'self'\nself_approval_on_hardware = true\n"
        "[buses.l]\nkind = 'modbus-rtu'\npath = '/dev/serial/by-id/none'\n"
        "[devices.m]\ncontract = 'sdm120'\nbus = 'l'\naddress = 1\n"
    )
    return parse_board(text, "line.toml", directory)


def test_probe_when_it_is_a_modbus_line_then_holding_register_0_is_read_and_units_are_1_to_247(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        worker = lab.daemon.workers["l"]
        bus = Scripted(Confirmed(b"\0\1"))
        worker.use(bus)
        worker._absent = None
        assert (await lab.operator("bus.probe", bus="l", address=17)).ok
        assert [(t.function, t.address, t.offset) for t in bus.sent if isinstance(t, RegisterRead)] == [(3, 17, 0)]
        assert code_of(await lab.operator("bus.probe", bus="l", address=0)) == "invalid_args"
        assert code_of(await lab.operator("bus.probe", bus="l", address=248)) == "invalid_args"
        assert len(bus.sent) == 1

    play(life, line_board(tmp_path))


def test_probe_when_a_simulated_chip_is_there_then_it_answers(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        bus = lab.bus()
        assert isinstance(bus, SimBus)
        bus.chips[0x33] = bus.chips[0x20]
        assert "somebody" in (await lab.operator("bus.probe", bus="b", address=0x33)).summary
        assert "nobody" in (await lab.operator("bus.probe", bus="b", address=0x34)).summary
        assert bus.transfers == 2

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_its_caller_leaves_then_it_goes_on_to_its_end_and_that_is_on_record(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        async with lab.device().worker.lock:
            asked = asyncio.create_task(lab.operator("bus.probe", bus="b", address=0x33))
            for _ in range(20):
                await asyncio.sleep(0)
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked
        await lab.daemon.kept_done()
        assert [row["what"] for row in await lab.audit()][-2:] == ["probe", "probed"]
        assert lab.bus().transfers == 1

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_a_defect_comes_after_it_was_sent_then_its_effects_are_unknown(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        monkeypatch.setattr("hwtool.probing._meant", lambda _: 1 / 0)
        told = await lab.operator("bus.probe", bus="b", address=0x33)
        assert (code_of(told), told.effects, lab.bus().transfers) == ("internal", "unknown", 1)

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_the_bus_is_shut_as_it_is_to_be_sent_then_its_record_says_so(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        worker = lab.device().worker
        worker._absent, worker._opens = "unplugged", Shut()  # type: ignore[assignment]
        assert code_of(await lab.operator("bus.probe", bus="b", address=0x33)) == "unavailable"
        assert [row.get("found") for row in await lab.audit() if row["what"].startswith("prob")] == [None, "not asked"]
        worker._absent, worker._opens = None, None

    play(life, toy_board(tmp_path, *PARTS))


class Shut:
    """A bus that cannot be opened."""

    def open(self) -> None:
        raise FileNotFoundError(2, "no such device")


def test_probe_when_a_second_bus_leads_to_the_same_server_then_its_units_are_known_there_too(
    play: Play, tmp_path: Path
) -> None:
    text = "name = 'twice'\napproval_mode = 'self'\nself_approval_on_hardware = true\n"
    text += "".join(f"[buses.{name}]\nkind = 'modbus-tcp'\nhost = '127.0.0.1'\nport = 9\n" for name in "pq")
    text += "[devices.m]\ncontract = 'sdm120'\nbus = 'p'\naddress = 1\n"

    async def life(lab: Lab) -> None:
        told = await lab.operator("bus.probe", bus="q", address=1)
        assert (code_of(told), error_of(told)["rule"]) == ("refused", "on_the_board")

    play(life, parse_board(text, "twice.toml", tmp_path))


def test_probe_when_the_bus_is_quarantined_then_unavailable_and_no_probe_is_on_record(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.clock.held = True
        lab.device().worker.quarantine()
        told = await lab.operator("bus.probe", bus="b", address=0x33)
        assert (code_of(told), lab.bus().transfers) == ("unavailable", 0)
        assert "probe" not in [row["what"] for row in await lab.audit()]

    play(life, toy_board(tmp_path, *PARTS))


def test_probe_when_the_daemon_is_read_only_then_it_is_not_offered(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for read_only in (False, True):
            lab.daemon.read_only = read_only
            told: Any = (await lab.operator("describe")).describe
            assert ("bus.probe" in told["methods"]) is not read_only
        lab.daemon.read_only = False

    play(life, toy_board(tmp_path, *PARTS))
