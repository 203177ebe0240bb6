"""What a transfer reaches: for each register of each bundled chip, and of toys with what no bundled chip has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.library import bundled, bundled_names
from hwtool_contracts.model import Contract, Register, Space
from hwtool_registers.bits import to_bytes
from hwtool_registers.bus import Line, Message, RegisterRead, RegisterWrite, Transfer
from hwtool_registers.plan import plan_alias_write, read_transfers, write_transfers
from hwtool_sim.reached import Known, Reached
from tests.contracts.test_judge import reg
from tests.sim.test_new_spaces import contract_of

AT = 0x20
I2C = "[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.i2c]\nauto_increment = 'both'\n"
MODBUS = "[access]\nbyte_order = 'big'\n[access.modbus]\nbase = 0\n"
SECRET = "sensitive = true"


def reads_of(contract: Contract, register: Register) -> list[Transfer]:
    """What reads a register, as the planner has it."""
    if not register.access.readable or (register.phrase is not None and register.phrase.query is None):
        return []
    return [*read_transfers(contract, AT, register)[0]]


def writes_of(contract: Contract, register: Register) -> list[Transfer]:
    """What writes it."""
    if not register.access.writable or (register.phrase is not None and register.phrase.set is None):
        return []
    return [*write_transfers(contract, AT, register, to_bytes(register, 0))]


def with_secret(contract: Contract, name: str) -> Contract:
    """A contract with one more sensitive register."""
    registers = dict(contract.registers.items())
    registers[name] = replace(registers[name], sensitive=True)
    return replace(contract, registers=registers)


@pytest.mark.parametrize("name", bundled_names())
def test_register_when_it_is_secret_then_whatever_the_planner_sends_for_it_is(name: str) -> None:
    contract = bundled(name)
    plain = Reached([(AT, contract)])
    assert not plain.has_secrets
    for register in contract.registers.values():
        hidden = with_secret(contract, register.name)
        reached = Reached([(AT, hidden)])
        for transfer in reads_of(hidden, register):
            assert reached.known(transfer).brought, (register.name, transfer)
            assert not plain.known(transfer).brought
        for transfer in writes_of(hidden, register):
            assert reached.known(transfer).sent, (register.name, transfer)
            assert not plain.known(transfer).sent


@pytest.mark.parametrize("name", bundled_names())
def test_read_when_it_is_called_clean_then_the_judge_says_so_of_each_register_that_it_reads(name: str) -> None:
    contract = bundled(name)
    reached = Reached([(AT, contract)])
    for register in contract.registers.values():
        judged = judge_read(contract, (register,))
        for transfer in reads_of(contract, register):
            clean = isinstance(judged, ReadJudgement) and judged.clean
            known = reached.known(transfer).clean
            assert known <= clean, (register.name, transfer)
            assert known == clean or contract.banks, (register.name, transfer)  # all banks count: careful
        assert not any(reached.known(t).clean for t in writes_of(contract, register))


TOY = contract_of(
    I2C,
    reg("S", 4, f"{SECRET}\nwidth_bits = 32\nalso_at = [0x40]\nset_at = 0x50\nclear_at = 0x60"),
    reg("N", 8),
    reg("M", 0x70, "also_at = [4]"),
)
LINE = contract_of(
    "[access]\n[access.line]\nterminator = '\\n'\n",
    f"[registers.KEY]\nquery = 'KEY?'\nset = 'KEY {{value}}'\naccess = 'rw'\nencoding = 'decimal'\n{SECRET}",
    "[registers.VOLT]\nquery = 'VOLT?'\nset = 'VOLT {value}'\naccess = 'rw'\nencoding = 'decimal'",
)
WORDS = contract_of(
    MODBUS,
    reg("H", 4, f"space = 'holding'\nwidth_bits = 32\n{SECRET}"),
    reg("N", 8, "space = 'holding'\nwidth_bits = 16"),
    "[registers.C]\noffset = 4\nspace = 'coil'\naccess = 'rw'\nwidth_bits = 1",
)
COMMANDS = contract_of(
    I2C,
    f"[commands.PUT]\ncode = 0x61\nwrite_bytes = 2\n{SECRET}",
    f"[commands.GET]\ncode = 0x62\nread_bytes = 2\n{SECRET}\nread = {{ effects = ['none'] }}",
    "[commands.GO]\ncode = 0x63\nwrite_bytes = 2",
)
CASES: list[tuple[str, Contract, Transfer, tuple[bool, bool, int]]] = [
    ("its last byte alone", TOY, RegisterRead(AT, Space.MEMORY, 7, 1), (False, True, 0)),
    ("beside it", TOY, RegisterRead(AT, Space.MEMORY, 8, 1), (False, False, 0)),
    ("a block that begins before it", TOY, RegisterRead(AT, Space.MEMORY, 4, 5), (False, True, 0)),
    ("a block that ends in it", TOY, RegisterWrite(AT, Space.MEMORY, 2, b"abc"), (True, True, 0)),
    ("another offset of it", TOY, RegisterRead(AT, Space.MEMORY, 0x41, 1), (False, True, 0)),
    ("where ones set its bits", TOY, RegisterWrite(AT, Space.MEMORY, 0x50, b"abcd"), (True, True, 0)),
    ("a register that answers where it stands, too", TOY, RegisterRead(AT, Space.MEMORY, 0x70, 1), (False, True, 0)),
    ("where nothing is declared", TOY, RegisterWrite(AT, Space.MEMORY, 0x90, b"abcd"), (True, True, 0)),
    ("another device", TOY, RegisterWrite(AT + 1, Space.MEMORY, 4, b"abcd"), (False, False, 0)),
    ("a query", LINE, Line("KEY?", True), (True, True, 4)),
    ("a line that sets it", LINE, Line("KEY 3.5", False), (True, True, 4)),
    ("a line about another", LINE, Line("VOLT 3.5", False), (False, False, 0)),
    ("a line that nobody knows", LINE, Line("KEYS 3.5", False), (True, True, 0)),
    ("its second word", WORDS, RegisterRead(AT, Space.HOLDING, 5, 2, 1, 3), (False, True, 0)),
    ("a coil of its number", WORDS, RegisterRead(AT, Space.COIL, 4, 1, 1, 1, 1), (False, False, 0)),
    ("two masks", WORDS, RegisterWrite(AT, Space.HOLDING, 5, b"abcd", 1, 22), (True, True, 0)),
    ("masks just before it", WORDS, RegisterWrite(AT, Space.HOLDING, 8, b"abcd", 1, 22), (False, False, 0)),
    ("written before a read", WORDS, RegisterRead(AT, Space.HOLDING, 8, 2, 1, 23, first=(4, b"ab")), (True, False, 0)),
    ("read behind a write", WORDS, RegisterRead(AT, Space.HOLDING, 4, 4, 1, 23, first=(8, b"ab")), (True, True, 0)),
    ("a command with data", COMMANDS, Message(AT, b"\x61ab", 0), (True, True, 1)),
    ("a command that answers", COMMANDS, Message(AT, b"\x62", 2), (True, True, 1)),
    ("another command", COMMANDS, Message(AT, b"\x63ab", 0), (False, False, 0)),
    ("an unknown command", COMMANDS, Message(AT, b"\x77ab", 0), (True, True, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("contract", "transfer", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_transfer_when_a_secret_may_be_in_it_then_it_is_secret(
    contract: Contract, transfer: Transfer, wanted: tuple[bool, bool, int]
) -> None:
    known = Reached([(AT, contract)]).known(transfer)
    assert (known.sent, known.brought, known.open_bytes) == wanted


def test_aliases_when_bits_are_set_by_them_then_each_write_is_secret() -> None:
    plan = plan_alias_write(TOY, AT, TOY.registers["S"], 0xC0FFEE42, 0xFFFFFFFF, {})
    reached = Reached([(AT, TOY)])
    assert [reached.known(step.transfer).sent for step in plan.steps] == [True, True]


def test_address_when_several_chips_may_answer_there_then_the_careful_answer_of_all_counts() -> None:
    clean = contract_of(I2C, reg("R", 4))
    pops = contract_of(
        I2C, "[registers.R]\noffset = 4\naccess = 'ro'\nread = { effects = ['pop'], provenance = 'generated' }"
    )
    read = RegisterRead(AT, Space.MEMORY, 4, 1)
    behind = 0x700100 | AT
    assert Reached([(AT, clean)]).known(read) == Known(clean=True)
    assert Reached([(AT, clean), (behind, pops)]).known(read) == Known()
    assert Reached([(AT, clean), (behind, TOY)]).known(read).brought


def test_register_when_another_one_shows_its_bits_then_that_one_is_secret_too() -> None:
    contract = contract_of(
        I2C,
        "[registers.P]\noffset = 1\naccess = 'ro'",
        f"[registers.F]\noffset = 2\naccess = 'ro'\n{SECRET}\nread = {{ effects = ['pop'], peek = 'P' }}",
        f"[registers.W]\noffset = 3\naccess = 'wo'\n{SECRET}\n"
        "write = { effect = 'store', verify = { by = 'read_back', register = 'V' } }",
        "[registers.V]\noffset = 5\naccess = 'ro'",
        "[registers.N]\noffset = 6\naccess = 'ro'",
    )
    reached = Reached([(AT, contract)])
    brought = [reached.known(RegisterRead(AT, Space.MEMORY, at, 1)).brought for at in (1, 2, 3, 5, 6)]
    assert brought == [True, True, True, True, False]


def test_confidential_field_when_its_register_is_accessed_then_it_is_secret() -> None:
    contract = contract_of(I2C, reg("S", 1, "fields.PIN = { bits = '3:0', confidential = true }"), reg("N", 2))
    reached = Reached([(AT, contract)])
    assert [reached.known(RegisterRead(AT, Space.MEMORY, at, 1)).brought for at in (1, 2)] == [True, False]
