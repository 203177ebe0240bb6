"""A bus below which something may send a request again by itself: only what may be repeated goes there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwtool_registers.bus import Answer, Capabilities, Confirmed, RegisterWrite, Rejected, Transfer
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, Lab, Play, code_of, effect, error_of, reg, toy_board


def acts(name: str, offset: int, kind: str, more: str = "") -> str:
    return reg(name, offset, f"write = {{ effect = '{kind}', provenance = 'generated'{more} }}")


PARTS = (
    reg("A", 0, "fields.F = { bits = 0 }"),
    acts("W1C", 1, "one_to_clear"),
    acts("TOGGLE", 2, "one_to_toggle"),
    acts("PUSH", 3, "push", ", verify = 'none'"),
    acts("STEP", 4, "command", ", verify = 'none'"),
    acts("GO", 5, "store", ", triggers = ['A'], verify = 'none'"),
    reg("FIFO", 6, effect("pop"), "ro"),
)
WRITES = {"A": True, "W1C": False, "TOGGLE": False, "PUSH": False, "STEP": False, "GO": False}
REPEATS = "may_repeat = true"


@pytest.mark.parametrize("repeats", [True, False], ids=["repeats", "once"])
@pytest.mark.parametrize("name", WRITES)
def test_write_when_the_bus_may_repeat_it_then_refused_unless_a_second_one_is_harmless(
    play: Play, tmp_path: Path, name: str, repeats: bool
) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", register=f"toy.{name}", value=1, key=KEY)
        if WRITES[name] or not repeats:
            assert code_of(told) in (None, "not_applied")
            assert lab.writes(name) == 1
            return
        assert (code_of(told), error_of(told)["rule"], told.effects) == ("refused", "bus_repeats", "none")
        assert f"toy.{name}" in error_of(told)["message"]
        assert (lab.writes(name), await lab.rows()) == (0, [])

    play(life, toy_board(tmp_path, *PARTS, bus=REPEATS if repeats else ""))


OTHERS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "clean read": ("reg.read", {"registers": ["toy.A"]}, True),
    "update": ("reg.update", {"register": "toy.A", "fields": {"F": 1}}, True),
    "pop": ("reg.read_effectful", {"register": "toy.FIFO"}, False),
    "stores in a sequence": ("sequence.run", {"steps": [{"do": "write", "register": "toy.A", "value": 1}]}, True),
    "a pop in a sequence": (
        "sequence.run",
        {
            "steps": [
                {"do": "write", "register": "toy.A", "value": 1},
                {"do": "read_effectful", "register": "toy.FIFO"},
            ]
        },
        False,
    ),
    "clean reads in a sequence": (
        "sequence.run",
        {"steps": [{"do": "read", "register": "toy.A"}, {"do": "write", "register": "toy.A", "value": 1}]},
        True,
    ),
    "something expected": ("reg.write", {"register": "toy.A", "value": 1, "expect": {"toy.A": 0}}, True),
    "safe state": ("device.safe_state", {"device": "toy"}, True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_request_when_the_bus_may_repeat_it_then_only_what_may_be_repeated_is_done(
    play: Play, tmp_path: Path, name: str
) -> None:
    method, params, passes = OTHERS[name]

    async def life(lab: Lab) -> None:
        lab.chip().push("FIFO", b"a")
        told = await lab.ask(method, **params, **({} if method == "reg.read" else {"key": KEY}))
        assert told.ok is passes, told.summary
        if not passes:
            assert (error_of(told)["rule"], lab.sent()) == ("bus_repeats", [])
            assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY)).ok  # the key was not used

    board = toy_board(tmp_path, *PARTS, bus=REPEATS, device="safe_state = [{ register = 'A', value = 0 }]")
    play(life, board)


def test_sequence_when_it_unlocks_then_refused_by_a_bus_that_may_repeat(play: Play, tmp_path: Path) -> None:
    locked = (
        acts("KEYR", 0, "unlock", ", affects = ['CR'], verify = 'none'"),
        reg("CR", 1, "write = { effect = 'store', unlock = 'SET_CR', provenance = 'generated' }"),
        "[sequences.SET_CR]\nparams = ['value']\nsteps = [{ do = 'write', register = 'KEYR', value = 0x55 }, "
        "{ do = 'write', register = 'CR', value = '$value' }]\n",
    )

    async def life(lab: Lab) -> None:
        told = await lab.ask("sequence.run", sequence="toy.SET_CR", params={"value": 3}, key=KEY)
        assert (code_of(told), error_of(told)["rule"]) == ("refused", "bus_repeats")
        assert (lab.sent(), await lab.rows()) == ([], [])

    play(life, toy_board(tmp_path, *locked, bus=REPEATS))


@pytest.mark.parametrize(
    ("proof", "code"),
    [("modbus-exception-06", "outcome_unknown"), ("address-nack", "outcome_unknown"), ("not-sent", "bus_fault")],
)
def test_write_when_the_last_copy_is_refused_then_the_one_before_it_may_have_been_carried_out(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: str, code: str
) -> None:
    async def life(lab: Lab) -> None:
        bus = lab.bus()
        real = bus.perform

        def perform(transfer: Transfer) -> Answer:
            if not isinstance(transfer, RegisterWrite):
                return real(transfer)
            if proof != "not-sent":
                assert isinstance(real(transfer), Confirmed)  # whose reply is lost on the gateway's other side
            return Rejected("busy", proof)

        monkeypatch.setattr(bus, "perform", perform)
        told = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        assert (code_of(told), told.effects) == (code, "none" if proof == "not-sent" else "unknown")

    play(life, toy_board(tmp_path, *PARTS, bus=REPEATS))


def test_clean_read_when_it_is_refused_on_such_a_bus_then_told_as_anywhere(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, access="read", offset=0)
        assert code_of(await lab.ask("reg.read", registers=["toy.A"])) == "bus_fault"
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok  # nothing is in doubt

    play(life, toy_board(tmp_path, *PARTS, bus=REPEATS))


@pytest.mark.parametrize("repeats", [True, False])
def test_bus_when_it_says_itself_that_it_may_repeat_then_as_if_the_board_had_said_so(
    play: Play, tmp_path: Path, buses_are: Callable[[type[SimBus]], None], repeats: bool
) -> None:
    class Stuttering(SimBus):
        capabilities = Capabilities(may_repeat=repeats)

    buses_are(Stuttering)

    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", register="toy.STEP", value=1, key=KEY)
        assert (told.ok, lab.writes("STEP")) == (not repeats, 0 if repeats else 1)

    play(life, toy_board(tmp_path, *PARTS))
