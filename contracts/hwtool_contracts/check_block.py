"""What a register of SMBus's blocks may be: a command code, a number of bytes, and the bytes."""

from __future__ import annotations

from typing import Final

from hwtool_contracts.model import ByteOrder, Contract, Encoding, Register, Space
from hwtool_contracts.reach import AddFault

MOST_BYTES: Final = 32  # of a block: I2C_SMBUS_BLOCK_MAX, what smbus2 and the kernel carry


def check_block(contract: Contract, table: str, register: Register, fault: AddFault) -> None:
    """Record what keeps a register from being a block."""
    access = contract.access
    if access.i2c is None:
        fault(table, "space", "no blocks without [access.i2c]", register.space, "an [access.i2c] table")
    elif access.i2c.read == "stop":
        fault(table, "space", "a block is read behind a repeated start", access.i2c.read, 'read = "restart"')
    if access.offset_bytes != 1 or register.offset > 0xFF:
        fault(table, "offset", "no command code of a byte", hex(register.offset), "offset_bytes = 1, at most 0xff")
    if register.width_bits % 8 or register.width_bits > 8 * MOST_BYTES:
        wanted = f"whole bytes, at most {8 * MOST_BYTES}"
        fault(table, "width_bits", "not what a block holds", register.width_bits, wanted)
    if register.quantity.encoding is Encoding.TEXT and register.byte_order is ByteOrder.LITTLE:
        fault(table, "byte_order", "a text is read from its first character on", "little", "the key left out")
    if register.access_bits is not None:
        fault(table, "access_bits", "a block is one access", register.access_bits, "the key left out")
    for other in contract.registers.values():
        if (other.space, other.offset, other.bank) == (Space.MEMORY, register.offset, register.bank):
            rule = f"{other.name} has it too, without a number of bytes"
            fault(table, "offset", rule, hex(other.offset), "one of them")
