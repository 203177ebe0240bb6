"""What a register in one of Modbus's spaces may be: functions to reach it, what can be written, objects and queues."""

from __future__ import annotations

from typing import Final

from hwtool_contracts.model import READ_FUNCTIONS, Access, Encoding, ModbusAccess, Register, Space
from hwtool_contracts.reach import AddFault

MOST_OBJECT: Final = 0xFF  # of device identification
MOST_QUEUE_BITS: Final = 16 * 32  # the number of words, and 31 of them


def check_modbus(modbus: ModbusAccess | None, table: str, register: Register, fault: AddFault) -> None:
    """Record what is wrong with a register of a Modbus space; `modbus` None: its contract has no such access."""
    if modbus is not None and modbus.functions:
        _functions(modbus.functions, table, register, fault)
    read_only = register.space.whole or register.space in (Space.INPUT, Space.DISCRETE)
    if read_only and register.access is not Access.RO:
        fault(table, "access", f"{register.space} registers cannot be written", register.access, "ro")
    if register.space is Space.OBJECT:
        _object(table, register, fault)
    if register.space is Space.QUEUE and (register.width_bits % 16 or not 32 <= register.width_bits <= MOST_QUEUE_BITS):
        wanted = f"16 for the number of words and 16 for each, at most {MOST_QUEUE_BITS}"
        fault(table, "width_bits", "not what a queue shows", register.width_bits, wanted)


def _functions(functions: frozenset[int], table: str, register: Register, fault: AddFault) -> None:
    reads = READ_FUNCTIONS[register.space]
    if register.access.readable and reads not in functions:
        wanted = f"functions with {reads}"
        fault(table, "space", "the device has no function to read it", register.space, wanted)
    writes = {5, 15} if register.space.of_bits else {6, 16}
    if register.access.writable and not writes & functions:
        wanted = " or ".join(map(str, sorted(writes)))
        fault(table, "access", "the device has no function to write it", register.access, wanted)


def _object(table: str, register: Register, fault: AddFault) -> None:
    if register.offset > MOST_OBJECT:
        fault(table, "offset", "no number of an object", register.offset, f"0 to {MOST_OBJECT}")
    if register.quantity.encoding is not Encoding.TEXT or register.width_bits % 8:
        told = f"{register.width_bits} bits of {register.quantity.encoding}"
        fault(table, "encoding", "an object is a text", told, "text, of 8 bits for each character at most")
