"""Modbus function 22: the device is told which bits to change and merges them itself, so nobody can come in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.model import Contract, Register
from hwtool_registers.bus import RegisterWrite, Transfer
from hwtool_sim.bus import Taken
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, MODBUS, Lab, Play, error_of, reg, toy_board
from tests.hwtool.test_parts import contract_of

HEAD = MODBUS.replace("[3, 6]", "[3, 6, 22]")
FIELDS = """[registers.MODE.fields]
LOW = { bits = '3:0' }
HIGH = { bits = '7:4' }
FLAG = { bits = 8, write = { effect = 'one_to_clear', provenance = 'generated' } }
BUSY = { bits = 9, volatile = true }
ZERO = { bits = '11:10', reserved = 'zero' }
KEPT = { bits = '15:12', reserved = 'keep' }
"""
MODE = reg("MODE", 4, "space = 'holding'\n" + FIELDS)
UPDATE: dict[str, Any] = {"register": "toy.MODE", "fields": {"LOW": 5}}


def mode(head: str, *more: str) -> tuple[Contract, Register]:
    contract = contract_of(MODE, *more, head=head)
    return contract, contract.registers["MODE"]


def test_update_when_the_device_merges_then_what_it_keeps_need_not_be_known() -> None:
    contract, register = mode(HEAD)
    kept = 0xF000 | 0x0200 | 0x00F0  # KEPT, the bit that hardware moves, HIGH; FLAG and ZERO have constants
    assert judge_update(contract, register, frozenset({"LOW"})) == UpdateJudgement(False, 0, kept, "device")


def test_update_when_the_device_has_no_such_function_then_the_moving_bit_forbids_it() -> None:
    contract, register = mode(MODBUS)
    judged = judge_update(contract, register, frozenset({"LOW"}))
    assert isinstance(judged, Refused)
    assert (judged.rule, judged.field) == ("unsafe_update", "BUSY")


OTHERS = {
    "names of whole values": reg(
        "R",
        8,
        "space = 'holding'\nfields.A = { bits = 0 }\nfields.B = { bits = 1 }\n"
        "write = { effect = 'store', provenance = 'generated', values = { off = 0, on = 3 } }",
    ),
    "bits that must not be written": reg(
        "R",
        8,
        "space = 'holding'\nfields.A = { bits = 0 }\nfields.B = { bits = 1 }\n"
        "write = { effect = 'store', provenance = 'generated', mask = 3 }",
    ),
    "two words": reg("R", 8, "space = 'holding'\nwidth_bits = 32\nfields.A = { bits = 0 }\nfields.B = { bits = 1 }"),
    "limits of the whole value": reg(
        "R",
        8,
        "space = 'holding'\nfields.A = { bits = 0 }\nfields.B = { bits = 1 }\n"
        "write = { effect = 'store', provenance = 'generated', limits = { min = 0, max = 3 } }",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_update_when_function_22_does_not_fit_then_read_and_written_back(what: str) -> None:
    contract, _ = mode(HEAD, OTHERS[what])
    judged = judge_update(contract, contract.registers["R"], frozenset({"A"}))
    assert isinstance(judged, UpdateJudgement)
    assert (judged.by, judged.needs_current) == ("value", True)


def test_request_when_an_update_is_merged_then_one_frame_with_both_masks_and_the_rest_stays(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MODE"] = 0x92A3
        planned = await lab.ask("reg.plan", method="reg.update", params=UPDATE)
        assert [(t["function"], t["data"]) for t in planned.transfers or []] == [(22, "f2f00005")]
        done = await lab.ask("reg.update", **UPDATE, key=KEY)
        assert (done.verdict, done.effects, lab.chip().values["MODE"]) == ("applied", "applied", 0x92A5)
        assert [t["function"] for t in lab.sent() if t["do"] == "write"] == [22]
        again = await lab.ask("reg.update", **UPDATE, key=KEY)
        assert (again.replayed, lab.writes("MODE")) == (True, 1)

    play(life, toy_board(tmp_path, MODE, head=HEAD))


def test_request_when_hardware_moves_a_neighbour_in_between_then_it_stays_moved(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        chip, bus = lab.chip(), lab.bus()
        take = bus.take

        def moved(transfer: Transfer) -> Taken:
            if isinstance(transfer, RegisterWrite):
                chip.values["MODE"] |= 0x0200  # after whatever the daemon has read
            return take(transfer)

        monkeypatch.setattr(bus, "take", moved)
        done = await lab.ask("reg.update", **UPDATE, key=KEY)
        assert (done.verdict, chip.values["MODE"]) == ("applied", 0x0205)

    play(life, toy_board(tmp_path, MODE, head=HEAD))


def test_request_when_the_reply_is_lost_then_settled_by_the_bits_that_were_meant(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, offset=4, access="write")
        told = await lab.ask("reg.update", **UPDATE, key=KEY)
        assert (told.effects, error_of(told)["code"]) == ("unknown", "outcome_unknown")
        lab.chip().values["MODE"] |= 0x00F0  # a neighbour says nothing of it
        await lab.rules_ran()
        found = await lab.ask("op.get", key=KEY, verify=True)
        assert (found.verdict, lab.writes("MODE")) == ("applied", 1)

    play(life, toy_board(tmp_path, MODE, head=HEAD))


@pytest.mark.parametrize("effects", ["clear", "unknown"])
def test_update_when_reading_the_register_does_something_then_the_device_is_not_asked_to_merge(effects: str) -> None:
    fields = "fields.A = { bits = 0 }\nfields.B = { bits = 1 }"
    read = f"read = {{ effects = ['{effects}'], provenance = 'generated' }}"
    contract, _ = mode(HEAD, reg("R", 8, f"space = 'holding'\n{fields}\n{read}"))
    judged = judge_update(contract, contract.registers["R"], frozenset({"A"}))
    assert isinstance(judged, Refused)
    assert judged.rule == "unsafe_update"


def test_update_when_the_register_cannot_be_read_then_its_shadow_is_wanted() -> None:
    fields = "fields.A = { bits = 0 }\nfields.B = { bits = 1 }"
    contract, _ = mode(HEAD, reg("R", 8, f"space = 'holding'\n{fields}", "wo"))
    judged = judge_update(contract, contract.registers["R"], frozenset({"A"}))
    assert isinstance(judged, UpdateJudgement)
    assert (judged.by, judged.shadow) == ("value", True)


def test_record_when_an_update_is_merged_then_it_shows_what_the_device_keeps(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MODE"] = 0x92A3
        done = await lab.ask("reg.update", **UPDATE, key=KEY)
        assert "0x92a3 -> 0x92a5" in done.summary
        assert (await lab.row()).request["values"] == {"MODE": "0x92a5"}

    play(life, toy_board(tmp_path, MODE, head=HEAD))


SCALED = reg(
    "S",
    8,
    "space = 'holding'\nwrite = { effect = 'store', provenance = 'generated', verify = 'none' }\n[registers.S.fields]\n"
    "V = { bits = '7:0', unit = 'V', scale_from = 'S.R', scales = { 0 = 0.1, 1 = 10 } }\nR = { bits = 8 }",
)
LIMITED = """
[[policy]]
who = "*"
register = "S"
limits = { min = 0, max = 5, unit = "V" }
"""


@pytest.mark.parametrize("head", [MODBUS, HEAD], ids=["read and written back", "merged"])
@pytest.mark.parametrize(("scale", "refused"), [(0, False), (1, True)])
def test_limit_when_the_scale_stands_in_bits_that_the_device_keeps_then_by_what_is_there(
    play: Play, tmp_path: Path, head: str, scale: int, refused: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["S"] = scale << 8
        told = await lab.ask("reg.update", register="toy.S", fields={"V": 20}, key=KEY)
        assert (told.error is not None, lab.writes("S")) == (refused, 0 if refused else 1)

    play(life, toy_board(tmp_path, SCALED, head=head, device=LIMITED))


def test_update_when_the_bits_are_coils_then_no_word_is_merged() -> None:
    head = HEAD.replace("[3, 6, 22]", "[1, 3, 6, 15, 22]")
    contract, _ = mode(
        head, reg("R", 8, "space = 'coil'\nwidth_bits = 16\nfields.A = { bits = 0 }\nfields.B = { bits = 1 }")
    )
    judged = judge_update(contract, contract.registers["R"], frozenset({"A"}))
    assert isinstance(judged, UpdateJudgement)
    assert judged.by == "value"
