"""Devices behind a multiplexer: its channel is switched on before each access, under one lock; the plan shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.generation import parts_of_chip
from hwtool.relocking import _hindered as hindered
from hwtool.simulator import served
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import RegisterWrite, Transfer
from hwtool_sim.bus import Taken
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import DEFAULTS, I2C, KEY, OPERATOR, Lab, Play, code_of, effect, error_of, reg, toy_board

BURST = effect("pop", ", max_burst = 2, level = 'LEVEL'")
PARTS = (
    reg("A", 0, "fields.F = { bits = 0 }"),
    reg("FIFO", 1, BURST, "ro"),
    reg("LEVEL", 2, "volatile = true", "ro"),
    reg("SEL", 0x10),
    reg("X", 0x11, "bank = 'B'"),
    "[banks.B]\nselect = [{ register = 'SEL', value = 5 }]\nrestore = 'prior'\n",
)
MUX = """
[devices.mux]
contract = "pca9546"
bus = "b"
address = 0x70
"""
SAFE = "safe_state = [{ register = 'A', value = 0 }]"


def on(channel: int, name: str = "far", address: int = 0x21, more: str = "", mux: str = "mux") -> str:
    place = f"bus = 'b'\naddress = {address}\nmux = '{mux}'\nchannel = {channel}\n"
    return f"[devices.{name}]\ncontract = './toy.toml'\n{place}{more}\n"


def board(directory: Path, *more: str, mux: str = MUX) -> Board:
    """A toy at 0x20, and what sits behind the mux beside it."""
    return toy_board(directory, *PARTS, device=mux + "\n".join(more))


def both(directory: Path) -> Board:
    """Two toys with one address, on two channels."""
    return board(directory, on(0, "left", more=SAFE), on(2, "right", more=SAFE))


def wire(lab: Lab) -> list[tuple[str, str, str]]:
    return [(t["do"], t["address"], t.get("data", t["offset"])) for t in lab.sent()]


def test_read_when_two_have_one_address_then_each_on_its_channel(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip("left").values["A"], lab.chip("right").values["A"], lab.chip().values["A"] = 1, 2, 3
        found = [
            (await lab.ask("reg.read", registers=[f"{name}.A"])).values for name in ("left", "right", "left", "toy")
        ]
        assert [v[0]["raw"] for v in found if v] == ["0x01", "0x02", "0x01", "0x03"]
        left, right, read = ("write", "0x70", "01"), ("write", "0x70", "04"), ("read", "0x21", "0x00")
        assert wire(lab) == [left, read, right, read, left, read, ("read", "0x20", "0x00")]

    play(life, both(tmp_path))


def test_write_when_planned_then_the_plan_shows_the_channel_and_it_is_what_is_sent(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        request = {"register": "right.A", "value": 7}
        planned = (await lab.ask("reg.plan", method="reg.write", params=request)).transfers or []
        assert [(t["role"], t["register"], t["address"]) for t in planned] == [
            ("select", "mux.CONTROL", "0x70"),
            ("access", "A", "0x21"),
        ]
        before = len(wire(lab))
        done = await lab.ask("reg.write", **request, key=KEY)
        assert (done.verdict, lab.writes("A", "right"), lab.writes("A", "left")) == ("applied", 1, 0)
        sent = wire(lab)[before:]
        at = sent.index(("write", "0x21", "07"))
        assert sent[at - 1] == ("write", "0x70", "04")
        assert (await lab.ask("reg.write", **request, key=KEY)).replayed

    play(life, both(tmp_path))


LOST = {FaultKind.NACK: "no acknowledge", FaultKind.REPLY_LOST: "no reply"}


@pytest.mark.parametrize("kind", LOST)
def test_write_when_the_channel_cannot_be_switched_on_then_the_device_was_not_reached(
    play: Play, tmp_path: Path, kind: FaultKind
) -> None:
    async def life(lab: Lab) -> None:
        lab.engine.daemon.devices["right"].identified = True
        reads = sum(t["do"] == "read" for t in lab.sent())
        assert (await lab.ask("reg.read", registers=["right.A"])).ok
        # the second of the two selects of a write: the first one reads what was there before
        lab.fault(kind, "mux", skip=1)
        told = await lab.ask("reg.write", register="right.A", value=7, key=KEY)
        assert (told.effects, told.verdict, lab.writes("A", "right")) == ("none", "not_applied", 0)
        assert "the channel to it" in error_of(told)["message"]
        assert LOST[kind] in error_of(told)["message"]
        assert sum(t["do"] == "read" for t in lab.sent()) > reads

    play(life, both(tmp_path))


def test_read_when_the_channel_cannot_be_switched_on_then_nobody_else_is_read(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["left.A"])).ok
        lab.fault(FaultKind.NACK, "mux")
        told = await lab.ask("reg.read", registers=["right.A"])
        assert (code_of(told), told.values) == ("bus_fault", None)
        assert "mux.CONTROL" in error_of(told)["message"]
        assert lab.reads("A", "left") == 1

    play(life, both(tmp_path))


def test_bank_when_the_channel_cannot_be_switched_on_then_no_selector_is_set_back_at_somebody_elses(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each select of a write is refused in turn, and somebody has the left one's on by then; until one goes through."""

    async def life(lab: Lab) -> None:
        bus, left = lab.bus("mux"), 1
        take, selects = bus.take, [0, 0]  # how many there were, and which is refused

        def refusing(transfer: Transfer) -> Taken:
            if isinstance(transfer, RegisterWrite) and transfer.address == 0x70:
                selects[0] += 1
                if selects[0] == selects[1]:
                    lab.chip("mux").values["CONTROL"] = left
                    lab.fault(FaultKind.NACK, "mux")
            return take(transfer)

        monkeypatch.setattr(bus, "take", refusing)
        for number in range(1, 40):
            selects[:] = 0, number
            told = await lab.ask("reg.write", register="right.X", value=number, key=f"key-in-bank-{number:02}")
            assert (lab.writes("SEL", "left"), lab.writes("X", "left")) == (0, 0)
            if told.id is not None and told.verdict is None:
                await lab.operator("op.settle", id=told.id, verdict="abandoned", reason="the watch could not look")
            if told.ok and selects[0] < number:
                assert number > 4
                return
        pytest.fail("no write went through")

    play(life, both(tmp_path))


def test_burst_when_in_chunks_then_each_has_the_channel_before_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip("right").push("FIFO", b"abc")
        lab.chip("right").values["LEVEL"] = 3
        done = await lab.ask("reg.read_effectful", register="right.FIFO", count=3, key=KEY)
        assert [v["raw"] for v in done.values or []] == ["0x61", "0x62", "0x63"]
        pops = [i for i, t in enumerate(wire(lab)) if t == ("read", "0x21", "0x01")]
        assert [wire(lab)[i - 1] for i in pops] == [("write", "0x70", "04")] * 2

    play(life, both(tmp_path))


def test_device_when_somebody_else_moved_the_multiplexer_then_the_right_one_is_reached(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["right.A"])).ok
        lab.chip("mux").write_by_another("CONTROL", 1)
        assert (await lab.ask("reg.write", register="right.A", value=7, key=KEY)).ok
        lab.chip("mux").reset()  # all channels are off
        assert (await lab.ask("reg.read", registers=["right.A"])).ok
        assert (lab.writes("A", "right"), lab.writes("A", "left")) == (1, 0)

    play(life, both(tmp_path))


def test_unknown_when_the_rules_look_then_through_the_channel(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "right")
        told = await lab.ask("reg.write", register="right.A", value=7, key=KEY)
        assert code_of(told) == "outcome_unknown"
        lab.chip("mux").write_by_another("CONTROL", 1)
        await lab.rules_ran("right")
        found = await lab.ask("op.get", key=KEY, verify=True)
        assert (found.verdict, lab.reads("A", "left")) == ("applied", 0)

    play(life, both(tmp_path))


def test_safe_state_when_it_sits_behind_then_the_channel_is_switched_on(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip("right").values["A"] = 9
        done = await lab.ask("device.safe_state", device="right", key=KEY)
        assert (done.verdict, lab.chip("right").values["A"], lab.writes("A", "left")) == ("applied", 0, 0)

    play(life, both(tmp_path))


@pytest.mark.parametrize("method", ["reg.write", "sequence.run"])
def test_switch_when_devices_sit_behind_it_then_nobody_writes_it(play: Play, tmp_path: Path, method: str) -> None:
    async def life(lab: Lab) -> None:
        write: dict[str, Any] = {"register": "mux.CONTROL", "value": 2}
        params = write if method == "reg.write" else {"steps": [{"do": "write", **write}]}
        told = await lab.ask(method, **params, key=KEY)
        assert (code_of(told), error_of(told)["rule"], lab.writes("CONTROL", "mux")) == ("refused", "switches", 0)
        assert (await lab.ask("reg.read", registers=["mux.CONTROL"])).ok

    play(life, both(tmp_path))


def test_switch_when_nothing_sits_behind_it_then_a_register_as_any_other(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="mux.CONTROL", value=2, key=KEY)).verdict == "applied"

    play(life, board(tmp_path))


def test_hold_when_the_multiplexer_is_held_then_those_behind_it_are(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("device.hold", OPERATOR, device="mux", reason="look")
        told = await lab.ask("reg.write", register="right.A", value=1, key=KEY)
        assert (code_of(told), error_of(told)["device"], lab.sent()) == ("held", "mux", [])

    play(life, both(tmp_path))


def test_read_when_the_multiplexer_is_held_then_it_is_not_written_for_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.operator("device.hold", device="mux", reason="look")
        told = await lab.ask("reg.read", registers=["right.A"])
        assert (code_of(told), error_of(told)["device"], lab.sent()) == ("held", "mux", [])
        assert (await lab.ask("reg.read", registers=["mux.CONTROL"])).ok
        assert (await lab.ask("device.safe_state", device="right", key=KEY)).ok  # that is never kept

    play(life, both(tmp_path))


def test_rules_when_the_multiplexer_is_held_then_they_do_not_look(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "right")
        assert code_of(await lab.ask("reg.write", register="right.A", value=7, key=KEY)) == "outcome_unknown"
        await lab.operator("device.hold", device="mux", reason="look")
        before = lab.chip("mux").executed["CONTROL", "write"]
        await lab.rules_ran("right")
        found: Any = (await lab.ask("op.get", key=KEY, verify=True)).op
        assert "mux is held" in found["needs_person"]
        assert lab.chip("mux").executed["CONTROL", "write"] == before

    play(life, both(tmp_path))


def test_restart_when_two_have_one_address_then_of_the_one_that_restarted(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for number, name in enumerate(("left", "right")):
            assert (await lab.ask("reg.write", register=f"{name}.A", value=1, key=f"key-before-{number}")).ok
        lab.chip("right").reset()
        assert (await lab.ask("reg.write", register="right.A", value=2, key="key-after-it")).ok
        assert [lab.device(name).generation for name in ("left", "right")] == [1, 2]
        assert parts_of_chip(lab.daemon, lab.device("right")) == [lab.device("right")]

    play(life, both(tmp_path))


def test_simulator_when_it_serves_the_board_then_each_chip_on_its_channel(tmp_path: Path) -> None:
    chips = served(both(tmp_path), "/run/sim").buses["b"]
    assert sorted(chips) == [0x20, 0x70, 0x700121, 0x700321]


def test_devices_when_listed_then_where_they_sit_and_each_has_a_locus_of_its_own(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        listed: Any = (await lab.ask("device.list")).devices
        told = {d["name"]: (d["address"], d["mux"], d["channel"]) for d in listed}
        assert told == {
            "toy": ("0x20", None, None),
            "mux": ("0x70", None, None),
            "left": ("0x21", "mux", 0),
            "right": ("0x21", "mux", 2),
        }
        loci = {name: device.locus for name, device in lab.daemon.devices.items()}
        assert (loci["left"], loci["right"]) == ("sim:b:0x70.0:0x21", "sim:b:0x70.2:0x21")

    play(life, both(tmp_path))


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no channel": ((on(0).replace("channel = 0\n", ""),), "go together"),
    "no mux": ((on(0).replace("mux = 'mux'\n", ""),), "go together"),
    "no such device": ((on(0, mux="nobody"),), "no multiplexer of this board"),
    "no multiplexer": ((on(0, mux="toy"),), "no multiplexer of this board"),
    "no such channel": ((on(4),), "none of this number"),
    "the address of one on the bus": ((on(0, address=0x20),), "may answer there too"),
    "the address of the mux": (
        (on(0, address=0x21), MUX.replace("mux]", "two]").replace("0x70", "0x71"), on(0, "far2", mux="two")),
        "may answer there too",
    ),
    "twice at one place": ((on(1), on(1, "again")), "the same place"),
    "one behind another": (
        (MUX.replace("mux]", "two]").replace("0x70", "0x71") + "mux = 'mux'\nchannel = 0\n", on(0, mux="two")),
        "cannot sit behind it",
    ),
    "no I2C": ((on(0).replace("./toy.toml", "sdm120").replace("33", "3"),), "cannot sit behind it"),
    "another bus": (("[buses.c]\nkind = 'sim'\n", on(0).replace("bus = 'b'", "bus = 'c'")), "cannot sit behind it"),
}


@pytest.mark.parametrize("what", WRONG)
def test_board_when_a_device_cannot_sit_there_then_a_fault(tmp_path: Path, what: str) -> None:
    more, told = WRONG[what]
    with pytest.raises(Faults, match=told):
        board(tmp_path, *more)


RIGHT: dict[str, tuple[str, ...]] = {
    "the address of one on another bus": (on(0, address=0x21), "[buses.c]\nkind = 'sim'\n"
        "[devices.there]\ncontract = './toy.toml'\nbus = 'c'\naddress = 0x21\n"),
    "between the addresses of one on another channel": (
        on(0, "rom", 0x50).replace("./toy.toml", "at24c16"), on(1, "clock", 0x51).replace("./toy.toml", "at24c32")),
}  # fmt: skip


@pytest.mark.parametrize("what", RIGHT)
def test_board_when_nobody_else_can_answer_there_then_it_loads(tmp_path: Path, what: str) -> None:
    assert board(tmp_path, *RIGHT[what])


def test_sequence_when_it_reads_the_switch_then_it_may(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        steps = [{"do": "read", "register": "mux.CONTROL"}, {"do": "write", "register": "toy.A", "value": 1}]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY)).ok

    play(life, both(tmp_path))


def test_safe_state_when_another_multiplexer_sits_there_after_a_lost_select_then_nothing_more_is_sent(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["left.A"])).ok
        bus, take, selects = lab.bus("mux"), lab.bus("mux").take, [0]

        def swapping(transfer: Transfer) -> Taken:
            if isinstance(transfer, RegisterWrite) and transfer.address == 0x70:
                selects[0] += 1
                if selects[0] == 2:  # that of the dispatch
                    lab.chip("mux").values["ID"] = 0x77
                    lab.fault(FaultKind.REPLY_LOST, "mux")
            return take(transfer)

        monkeypatch.setattr(bus, "take", swapping)
        done = await lab.ask("device.safe_state", device="left", key=KEY)
        assert (done.ok, lab.writes("A", "left"), selects[0]) == (False, 0, 2)

    play(life, named(tmp_path))


def test_board_when_the_safe_state_of_the_mux_switches_it_then_a_fault(tmp_path: Path) -> None:
    safe = MUX + "safe_state = [{ register = 'CONTROL', value = 0 }]\n"
    assert board(tmp_path, mux=safe)
    with pytest.raises(Faults, match="before each access"):
        board(tmp_path, on(0), mux=safe)


CANNOT: dict[str, tuple[str, str]] = {
    "no such register": ("[mux]\nregister = 'NO'\nchannels = [1]\n", "no such register"),
    "too wide": ("[mux]\nregister = 'A'\nchannels = [256]\n", "cannot be written"),
    "outside its mask": ("[mux]\nregister = 'M'\nchannels = [0x10]\n", "cannot be written"),
    "in several pieces": ("[mux]\nregister = 'WIDE'\nchannels = [1]\n", "a plain store in one write"),
    "not at once": ("[mux]\nregister = 'SLOW'\nchannels = [1]\n", "a plain store in one write"),
    "nonvolatile": ("[mux]\nregister = 'KEPT'\nchannels = [1]\n", "a plain store in one write"),
    "when busy": ("[mux]\nregister = 'BUSY'\nchannels = [1]\n", "a plain store in one write"),
    "taken later": ("[mux]\nregister = 'STAGED'\nchannels = [1]\n", "a plain store in one write"),
    "sets something off": ("[mux]\nregister = 'GO'\nchannels = [1]\n", "a plain store in one write"),
    "sets alone": ("[mux]\nregister = 'SET'\nchannels = [1]\n", "a plain store in one write"),
    "for operators": ("[mux]\nregister = 'HIDDEN'\nchannels = [1]\n", "a plain store in one write"),
    "a selector": ("[mux]\nregister = 'SEL'\nchannels = [1]\n", "a plain store in one write"),
    "in a bank": ("[mux]\nregister = 'BANKED'\nchannels = [1]\n", "a plain store in one write"),
    "a restart": ("[mux]\nregister = 'BOOT'\nchannels = [1]\n", "a plain store in one write"),
    "seldom": ("[mux]\nregister = 'RARE'\nchannels = [1]\n", "a plain store in one write"),
    "gated": ("[mux]\nregister = 'GATED'\nchannels = [1]\n", "a plain store in one write"),
    "nobody's to see": ("[mux]\nregister = 'SECRET'\nchannels = [1]\n", "a plain store in one write"),
    "not written": ("[mux]\nregister = 'SEEN'\nchannels = [1]\n", "a plain store in one write"),
    "another's": ("[mux]\nregister = 'OURS'\nchannels = [1]\n", "a plain store in one write"),
    "no channel": ("[mux]\nregister = 'A'\nchannels = []\n", "no channel"),
    "the same twice": ("[mux]\nregister = 'A'\nchannels = [1, 1]\n", "two that are the same"),
    "no store": ("[mux]\nregister = 'W'\nchannels = [1]\n", "a plain store in one write"),
    "needs approval": ("[mux]\nregister = 'P'\nchannels = [1]\n", "a plain store in one write"),
}
STORE = "effect = 'store', provenance = 'generated'"
MORE = (
    reg("A", 0)
    + reg("W", 1, "write = { effect = 'one_to_clear', provenance = 'generated' }")
    + reg("P", 2, "write = { effect = 'store', provenance = 'generated', approval = 'required' }")
    + reg("M", 3, "write = { effect = 'store', provenance = 'generated', mask = 0x0F }")
    + reg("WIDE", 4, "width_bits = 16\naccess_bits = 8")
    + reg("SLOW", 6, "write = { effect = 'store', provenance = 'generated', delay_after_ms = 5 }")
    + reg("KEPT", 7, "persistence = 'nonvolatile'")
    + reg("OURS", 8, "owner = 'shared'")
    + reg("SEL", 9)
    + reg("BANKED", 10, "bank = 'B'")
    + reg("BOOT", 11, "write = { effect = 'store', provenance = 'generated', resets = 'device' }")
    + reg("RARE", 12, "write = { effect = 'store', provenance = 'generated', max_rate_per_min = 9 }")
    + reg("GATED", 13, "write = { effect = 'store', provenance = 'generated', gate = 'A' }")
    + reg("SECRET", 14, "sensitive = true")
    + reg("SEEN", 15, access="ro")
    + reg("BUSY", 16, f"write = {{ {STORE}, busy_retry = {{ attempts = 2, interval_ms = 1 }} }}")
    + reg("STAGED", 17, f"write = {{ {STORE}, commit_by = 'A' }}")
    + reg("GO", 18, f"write = {{ {STORE}, triggers = ['A'] }}")
    + reg("SET", 19, "write = { effect = 'one_to_set', provenance = 'generated' }")
    + reg("HIDDEN", 20, "confidential = true")
    + "[banks.B]\nselect = [{ register = 'SEL', value = 5 }]\nrestore = 'prior'\n"
)


@pytest.mark.parametrize("what", CANNOT)
def test_contract_when_it_cannot_switch_like_this_then_a_fault(what: str) -> None:
    text, told = CANNOT[what]
    with pytest.raises(Faults, match=told):
        parse_contract(I2C + text + DEFAULTS + MORE, "toy.toml")


def test_board_when_another_program_writes_the_multiplexer_then_a_fault(tmp_path: Path) -> None:
    shared = MUX + "owner = 'shared'\n"
    assert board(tmp_path, mux=shared)
    with pytest.raises(Faults, match="nobody else writes it"):
        board(tmp_path, on(0), mux=shared)


NAMED = """
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x70]
auto_increment = "both"
[identity]
register = "ID"
equals = 0x55
[mux]
register = "SWITCH"
channels = [1, 2, 4]
"""


def named(directory: Path, device: str = "", parts: tuple[str, ...] = PARTS) -> Board:
    """A multiplexer that says what it is."""
    head = I2C[: I2C.index("[access]")]
    registers = reg("SWITCH", 0) + reg("ID", 1, access="ro")
    (directory / "named.toml").write_text(head + NAMED + DEFAULTS + registers)
    mux = MUX.replace("pca9546", "./named.toml") + device
    return toy_board(directory, *parts, device=mux + on(0, "left", more=SAFE))


@pytest.mark.parametrize("method", ["reg.read", "reg.write", "device.safe_state"])
def test_multiplexer_when_it_is_another_chip_then_it_is_not_written(play: Play, tmp_path: Path, method: str) -> None:
    params: dict[str, dict[str, Any]] = {
        "reg.read": {"registers": ["left.A"]},
        "reg.write": {"register": "left.A", "value": 1, "key": KEY},
        "device.safe_state": {"device": "left", "key": KEY},
    }

    async def life(lab: Lab) -> None:
        lab.chip("mux").values["ID"] = 0x77
        told = await lab.ask(method, **params[method])
        assert (code_of(told), error_of(told)["what"], lab.writes("SWITCH", "mux")) == ("stale", "identity", 0)
        lab.chip("mux").values["ID"] = 0x55
        assert (await lab.ask(method, **params[method])).ok

    play(life, named(tmp_path))


def test_multiplexer_when_it_is_another_chip_then_no_assumption_about_what_is_behind_is_looked_at(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip("mux").values["ID"] = 0x77
        told = await lab.ask("reg.read", registers=["left.A"])
        assert (code_of(told), lab.writes("SWITCH", "mux")) == ("stale", 0)

    assumed = "[[assume]]\nregister = 'A'\nfield = 'F'\nvalue = 0\nfor = 'reads'\n"
    play(life, named(tmp_path, parts=(*PARTS, assumed)))


def test_effect_when_the_multiplexers_contract_was_checked_on_no_part_then_refused_as_the_board_demands(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", register="left.A", value=1, key=KEY)
        assert (code_of(told), error_of(told)["rule"]) == ("refused", "unverified")

    play(life, named(tmp_path, 'unverified = "refuse"\n'))


def test_read_when_the_bus_is_back_then_it_is_opened_though_a_channel_comes_first(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.bus("right").unplug()
        assert code_of(await lab.ask("reg.read", registers=["right.A"])) == "unavailable"
        lab.bus("right").plug()
        lab.clock.advance(5)
        assert (await lab.ask("reg.read", registers=["right.A"])).ok

    play(life, both(tmp_path))


def test_read_when_the_reply_of_the_channel_is_lost_then_a_timeout(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "mux")
        assert code_of(await lab.ask("reg.read", registers=["right.A"])) == "timeout"

    play(life, both(tmp_path))


def test_safe_state_when_its_channel_is_not_switched_on_at_first_then_once_more(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever select is lost, the entry is written, and once."""

    async def life(lab: Lab) -> None:
        bus, take, selects = lab.bus("mux"), lab.bus("mux").take, [0, 0]

        def losing(transfer: Transfer) -> Taken:
            if isinstance(transfer, RegisterWrite) and transfer.address == 0x70:
                selects[0] += 1
                if selects[0] == selects[1]:
                    lab.fault(FaultKind.REPLY_LOST, "mux")
            return take(transfer)

        monkeypatch.setattr(bus, "take", losing)
        for number in range(1, 30):
            lab.chip("right").values["A"] = 9
            before = lab.writes("A", "right")
            selects[:] = 0, number
            done = await lab.ask("device.safe_state", device="right", key=f"key-safe-{number:03}")
            assert (lab.chip("right").values["A"], lab.writes("A", "right") - before) == (0, 1), (number, done.error)
            if done.id is not None and done.verdict is None:
                await lab.operator("op.settle", id=done.id, verdict="abandoned", reason="the watch could not look")
            if selects[0] < number:
                assert number > 2
                return
        pytest.fail("no safe state went through")

    play(life, both(tmp_path))


def test_release_when_only_the_multiplexer_is_held_then_said(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.operator("device.hold", device="mux", reason="look")
        told = await lab.operator("device.release", device="right", reason="done")
        assert told.ok
        assert "right was not held; mux is held" in told.summary

    play(life, both(tmp_path))


def test_relock_when_the_multiplexer_is_held_then_it_is_hindered(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert hindered(lab.daemon, lab.device("right")) is None
        await lab.operator("device.hold", device="mux", reason="look")
        assert "mux is held" in str(hindered(lab.daemon, lab.device("right")))

    play(life, both(tmp_path))


def test_rules_when_a_person_holds_the_multiplexer_then_nothing_is_sent_for_them(play: Play, tmp_path: Path) -> None:
    counted = (*PARTS, reg("STARTS", 9, access="ro"), "[restart]\ncounter = 'STARTS'\n")

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["left.A"])).ok
        lab.fault(FaultKind.REPLY_LOST, "left", offset=0)
        assert code_of(await lab.ask("reg.write", register="left.A", value=1, key=KEY)) == "outcome_unknown"
        await lab.operator("device.hold", device="mux", reason="look")
        before = len(lab.sent("mux"))
        await lab.rules_ran("left")
        told: Any = (await lab.ask("op.get", key=KEY, verify=True)).op
        assert (told["state"], "mux would be written" in told["needs_person"]) == ("UNKNOWN", True)
        assert lab.sent("mux")[before:] == []
        await lab.operator("device.release", device="mux", reason="looked")
        assert (await lab.ask("op.get", key=KEY, verify=True)).verdict == "applied"

    play(life, toy_board(tmp_path, *counted, device=MUX + on(0, "left")))


@pytest.mark.usefixtures("kept_buses")
def test_unknown_of_the_switch_when_devices_sit_behind_it_now_then_what_it_holds_tells_nothing(
    play: Play, tmp_path: Path
) -> None:
    async def first(lab: Lab) -> None:
        lab.fault(FaultKind.REQUEST_LOST, "mux")
        told = await lab.ask("reg.write", register="mux.CONTROL", value=4, key=KEY)
        assert code_of(told) == "outcome_unknown"
        lab.fault(FaultKind.NACK, "mux", access="read", times=99)  # no rule can look in this life

    async def then(lab: Lab) -> None:
        lab.bus("mux").faults.clear()
        await lab.rules_ran("mux")
        found: Any = (await lab.ask("op.get", key=KEY, verify=True)).op
        assert (found["state"], "written before each access" in str(found["needs_person"])) == ("UNKNOWN", True)

    play(first, board(tmp_path))
    play(then, both(tmp_path))


def test_contract_when_written_out_then_it_switches_as_before() -> None:
    contract = parse_contract(I2C + "[mux]\nregister = 'A'\nchannels = [1, 2]\n" + DEFAULTS + MORE, "toy.toml")
    assert parse_contract(write_contract(contract), "toy.toml").mux == contract.mux
