"""A secret is planted in every transfer that can carry it, in each kind of space; no line of the recording shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.model import Contract, Space
from hwtool_registers.bits import to_bytes
from hwtool_registers.bus import Ambiguous, Confirmed, RegisterRead, RegisterWrite, Transfer
from hwtool_registers.plan import plan_alias_write, read_transfers, write_transfers
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault, FaultKind
from hwtool_sim.reached import Reached
from hwtool_sim.recording import Recorder, recorder
from tests.contracts.test_judge import reg
from tests.hwtool.test_planted_secrets import BYTES, SECRET, hidden_in
from tests.sim.test_new_spaces import contract_of
from tests.sim.test_reached import I2C, MODBUS
from tests.sim.test_recording import AT, Calls, entries

HIDDEN = "sensitive = true\nwidth_bits = 32"
BYTEWISE = contract_of(
    I2C,
    reg("BEFORE", 2, "width_bits = 16"),
    reg("S", 4, f"{HIDDEN}\nalso_at = [0x40]\nset_at = 0x50\nclear_at = 0x60"),
    reg("T", 8, "width_bits = 32\nfields.PIN = { bits = '31:0', confidential = true }"),
    reg("N", 12, "width_bits = 32"),
    reg("TEXT", 0x30, "space = 'block'\nwidth_bits = 64\nencoding = 'text'\nsensitive = true"),
    "[commands.PUT]\ncode = 0x61\nwrite_bytes = 4\nsensitive = true",
    "[commands.GET]\ncode = 0x62\nread_bytes = 4\nsensitive = true\nread = { effects = ['none'] }",
)
LINES = contract_of(
    "[access]\n[access.line]\nterminator = '\\n'\n",
    "[registers.KEY]\nquery = 'KEY?'\nset = 'KEY {value}'\naccess = 'rw'\nencoding = 'decimal'\nwidth_bits = 64\n"
    "sensitive = true",
    "[registers.WORD]\nquery = 'WORD?'\nset = 'WORD {value};'\naccess = 'rw'\nencoding = 'text'\nwidth_bits = 64\n"
    "sensitive = true",
)
UNITS = contract_of(
    MODBUS,
    reg("H", 4, f"space = 'holding'\n{HIDDEN}"),
    reg("C", 0, f"space = 'coil'\n{HIDDEN}"),
)
SPELT = "c0ffee42"


def sent_for(contract: Contract) -> list[Transfer]:
    """Everything that puts the secret into a register, by whatever name, and gets it back."""
    transfers: list[Transfer] = []
    for register in contract.registers.values():
        if register.name in ("BEFORE", "N"):
            continue
        data = SPELT.encode() if register.width_bits == 64 else to_bytes(register, SECRET)
        data = str(SECRET).encode() if register.name == "KEY" else data
        if register.access.writable:
            transfers += write_transfers(contract, AT, register, data)
        if register.access.readable:
            transfers += read_transfers(contract, AT, register)[0]
    if contract is BYTEWISE:
        s = contract.registers["S"]
        transfers += [step.transfer for step in plan_alias_write(contract, AT, s, SECRET, 0xFFFFFFFF, {}).steps]
        transfers += [RegisterWrite(AT, Space.MEMORY, 0x40, BYTES), RegisterRead(AT, Space.MEMORY, 0x40, 4)]
        transfers += [RegisterRead(AT, Space.MEMORY, 4, 12), RegisterWrite(AT, Space.MEMORY, 2, b"\0\0" + BYTES)]
    if contract is UNITS:
        transfers += [RegisterWrite(AT, Space.HOLDING, 4, BYTES, 1, 22)]
        transfers += [RegisterRead(AT, Space.HOLDING, 4, 4, 1, 23, first=(4, BYTES))]
    return transfers


def spellings(text: str) -> list[str]:
    """How the secret stands in a text, in any of many ways."""
    forms = [SPELT.encode().hex(), str(SECRET).encode().hex(), BYTES.hex(), BYTES[::-1].hex(), SPELT.upper()]
    return [*hidden_in(text), *(form for form in forms if form in text), *(["upper"] if SPELT.upper() in text else [])]


@pytest.mark.parametrize("contract", [BYTEWISE, LINES, UNITS], ids=["bytes", "lines", "units"])
def test_secret_when_planted_in_every_transfer_then_in_no_line_of_the_file(tmp_path: Path, contract: Contract) -> None:
    chip = Chip(contract)
    if "GET" in chip.values:
        chip.values["GET"] = SECRET
    open_one = Chip(contract_of(I2C, reg("N", 12, "width_bits = 32")))
    bus = SimBus({AT: chip} if contract is LINES else {AT: chip, AT + 1: open_one}, sleep=lambda _: None)
    made = recorder(bus, tmp_path / "r", {}, Reached([(at, chip.contract) for at, chip in bus.chips.items()]))
    carried = []
    for transfer in sent_for(contract):
        carried += [repr(transfer), repr(made.perform(transfer))]
    words = " ".join(carried)
    assert sum(form in words for form in (repr(BYTES)[2:-1], str(SECRET), SPELT)) >= 1, (
        "planted nowhere: proves nothing"
    )
    assert [word for word in zip(carried[::2], carried[1::2], strict=True) if "Rejected" in word[1]] == []
    made.close()
    text = (tmp_path / "r").read_text()
    assert spellings(text) == []
    assert text.count('"redacted"') >= len(carried) // 4


def test_words_of_the_bus_when_they_quote_an_earlier_secret_then_they_are_left_out(tmp_path: Path) -> None:
    contracts = {AT: BYTEWISE, AT + 1: contract_of(I2C, reg("N", 12, "width_bits = 32"))}
    bus = bus_of(contracts, lambda _: None, lambda: 0.0)
    made = recorder(bus, tmp_path / "r", {}, Reached(contracts.items()))
    bus.faults.append(Fault(FaultKind.LATE_REPLY, AT, access="write", late_s=1.0))
    made.perform(RegisterWrite(AT, Space.MEMORY, 4, BYTES))
    answer = made.perform(RegisterRead(AT + 1, Space.MEMORY, 12, 4))
    assert isinstance(answer, Ambiguous)
    assert repr(BYTES)[2:-1] in answer.fault
    made.close()
    assert spellings((tmp_path / "r").read_text()) == []
    assert "xc0" not in (tmp_path / "r").read_text()


def test_open_values_when_recorded_beside_secrets_then_they_stand_there(tmp_path: Path) -> None:
    made: Recorder = recorder(bus_of({AT: BYTEWISE}), tmp_path / "r", {}, Reached([(AT, BYTEWISE)]))
    made.perform(RegisterWrite(AT, Space.MEMORY, 12, b"\x12\x34\x56\x78"))
    made.perform(RegisterRead(AT, Space.MEMORY, 12, 4))
    _, wrote, read = entries(tmp_path / "r")
    assert (wrote["transfer"]["data"], read["answer"]["data"]) == ("12345678", "12345678")
    assert ("clean" in wrote, read["clean"]) == (False, True)


def test_write_when_the_bus_brings_back_what_it_sent_then_that_is_left_out_too(tmp_path: Path) -> None:
    made = recorder(Calls([Confirmed(BYTES), Confirmed()]), tmp_path / "r", {}, Reached([(AT, BYTEWISE)]))
    for _ in range(2):
        made.perform(RegisterWrite(AT, Space.MEMORY, 4, BYTES))
    assert [entry["answer"]["data"] for entry in entries(tmp_path / "r")[1:]] == [{"shown": "", "redacted": 4}, ""]


def test_device_with_a_secret_when_it_answers_at_several_addresses_then_all_of_them_are_its_own(tmp_path: Path) -> None:
    wide = contract_of(I2C + "offset_bits_in_address = 1\n", reg("KEY", 4, "width_bits = 32\nsensitive = true"))
    made = recorder(bus_of({AT: wide}), tmp_path / "r", {}, Reached([(AT, wide)]))
    made.perform(RegisterWrite(AT + 1, Space.MEMORY, 4, BYTES))  # a place that its contract does not know
    made.close()
    assert spellings((tmp_path / "r").read_text()) == []


def test_error_of_a_bus_when_it_quotes_a_secret_then_its_words_are_left_out(tmp_path: Path) -> None:
    class Talking(SimBus):
        def open(self) -> None:
            raise OSError(19, f"gone with {SPELT}")

    made = recorder(Talking({AT: Chip(BYTEWISE)}), tmp_path / "r", {}, Reached([(AT, BYTEWISE)]))
    opens: Any = made
    with pytest.raises(OSError, match=SPELT):
        opens.open()
    made.close()
    assert spellings((tmp_path / "r").read_text()) == []
    assert entries(tmp_path / "r")[1]["error"]["errno"] == 19
