"""A bus that acknowledges nothing: what nothing shows is in doubt, unless the board takes "sent" for done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hwtool_registers.bus import Answer, Capabilities, RegisterWrite, Transfer
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, Lab, Play, code_of, effect, error_of, reg, toy_board

PARTS = (
    reg("A", 0),
    reg("BLIND", 1, "write = { effect = 'store', provenance = 'generated', verify = 'none' }", "wo"),
)
SAFE = "safe_state = [{ register = 'BLIND', value = 0 }]"
ACCEPTED = "accept_unacknowledged = true"


class Mute(SimBus):
    capabilities = Capabilities(acknowledges=False)


@pytest.fixture(autouse=True)
def mute(buses_are: Callable[[type[SimBus]], None]) -> None:
    buses_are(Mute)


def test_write_when_it_is_read_back_then_shown_as_on_any_bus(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        assert (told.ok, told.verdict, told.effects) == (True, "applied", "applied")
        lab.chip().values["A"] = 1
        again = await lab.ask("reg.write", register="toy.A", value=1, key=f"{KEY}.2")
        assert (again.verdict, again.effects) == ("satisfied", "none")

    play(life, toy_board(tmp_path, *PARTS))


@pytest.mark.parametrize("method", ["reg.write", "device.safe_state"])
def test_write_when_nothing_shows_it_then_in_doubt_and_the_device_is_held(
    play: Play, tmp_path: Path, method: str
) -> None:
    params = {"register": "toy.BLIND", "value": 0} if method == "reg.write" else {"device": "toy"}

    async def life(lab: Lab) -> None:
        told = await lab.ask(method, **params, key=KEY)
        assert (code_of(told), told.effects, error_of(told)["stage"]) == ("outcome_unknown", "unknown", "reply")
        assert (told.evidence or {})["how"] == "sent"
        assert "acknowledges nothing" in error_of(told)["message"]
        assert code_of(await lab.ask("reg.write", register="toy.A", value=1, key=f"{KEY}.2")) == "held"
        assert lab.writes("BLIND") == 1

    play(life, toy_board(tmp_path, *PARTS, device=SAFE))


@pytest.mark.parametrize("method", ["reg.write", "device.safe_state"])
def test_write_when_the_board_accepts_that_then_applied_and_how_is_sent(
    play: Play, tmp_path: Path, method: str
) -> None:
    params = {"register": "toy.BLIND", "value": 0} if method == "reg.write" else {"device": "toy"}

    async def life(lab: Lab) -> None:
        told = await lab.ask(method, **params, key=KEY)
        assert (told.ok, told.verdict, told.effects) == (True, "applied", "unknown")
        assert ((told.evidence or {})["how"], told.warnings) == ("sent", ["unverified: sent"])
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=f"{KEY}.2")).ok

    play(life, toy_board(tmp_path, *PARTS, device=SAFE, bus=ACCEPTED))


def test_write_when_the_state_stays_as_it_was_then_not_applied_as_on_any_bus(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        bus, take = lab.bus(), lab.bus().perform

        def perform(transfer: Transfer) -> Answer:
            answer = take(transfer)
            lab.chip().values["A"] = 0  # it takes the write and keeps nothing
            return answer

        monkeypatch.setattr(bus, "perform", perform)
        told = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        assert (code_of(told), told.verdict) == ("not_applied", "not_applied")
        assert "sent, but the state did not change" in told.summary

    play(life, toy_board(tmp_path, *PARTS))


BLIND = "write = { effect = 'store', provenance = 'generated', verify = 'none' }"
SEVERAL = (
    *PARTS,
    reg("MORE", 2, BLIND, "wo"),
    reg("WIDE", 4, "width_bits = 16\naccess_bits = 8\n" + BLIND, "wo"),
)
BOTH = "safe_state = [{ register = 'BLIND', value = 0 }, { register = 'MORE', value = 0 }]"


@pytest.mark.parametrize("accepted", [False, True])
def test_safe_state_when_one_entry_is_refused_then_the_others_are_in_doubt_all_the_same(
    play: Play, tmp_path: Path, accepted: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, offset=2)
        told = await lab.ask("device.safe_state", device="toy", key=KEY)
        after = await lab.ask("reg.write", register="toy.A", value=1, key=f"{KEY}.2")
        if accepted:
            assert (code_of(told), told.verdict, after.ok) == ("not_applied", "partial", True)
        else:
            assert (code_of(told), told.effects, code_of(after)) == ("outcome_unknown", "unknown", "held")

    play(life, toy_board(tmp_path, *SEVERAL, device=BOTH, bus=ACCEPTED if accepted else ""))


@pytest.mark.parametrize("accepted", [False, True])
def test_write_of_several_transfers_when_the_second_is_refused_then_the_first_is_in_doubt(
    play: Play, tmp_path: Path, accepted: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.NACK, offset=5)
        told = await lab.ask("reg.write", register="toy.WIDE", value=0x1234, key=KEY)
        wanted = ("not_applied", "applied") if accepted else ("outcome_unknown", "unknown")
        assert (code_of(told), told.effects) == wanted

    play(life, toy_board(tmp_path, *SEVERAL, bus=ACCEPTED if accepted else ""))


def test_write_when_a_consuming_read_shows_it_then_done_and_what_was_consumed_is_answered(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = reg("EVENT", 1, effect("clear"), "ro")
    verified = "write = { effect = 'store', provenance = 'generated', verify = { by = 'read_back', register = 'EVENT', "

    async def life(lab: Lab) -> None:
        bus, take = lab.bus(), lab.bus().perform

        def perform(transfer: Transfer) -> Answer:
            answer = take(transfer)
            if isinstance(transfer, RegisterWrite):
                lab.chip().values["EVENT"] = 0x41
            return answer

        monkeypatch.setattr(bus, "perform", perform)
        told = await lab.ask("reg.write", register="toy.GO", value=0x41, key=KEY)
        assert (told.ok, told.verdict) == (True, "applied")
        assert [v["raw"] for v in told.values or []] == ["0x41", "0x41"]

    play(life, toy_board(tmp_path, event, reg("GO", 2, verified + "consumes = true } }", "wo")))
