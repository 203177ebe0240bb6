"""What `[access.spi]` asks of a contract: no two registers that a transfer cannot tell apart, and whole words."""

from __future__ import annotations

from collections.abc import Callable

from hwtool_contracts.model import Contract, Register, Space


def check_spi(contract: Contract, fault: Callable[[str, str, str, object, str], None]) -> None:
    """Check all registers of a contract that may sit on SPI."""
    spi = contract.access.spi
    if spi is None:
        return
    bare: dict[tuple[int, str | None], Register] = {}
    for register in contract.registers.values():
        _whole_words(contract, register, fault)
        if register.space is not Space.MEMORY:
            continue
        first = bare.setdefault((register.offset & ~spi.marks, register.bank), register)
        if first.offset != register.offset:
            rule = "differs from another by bits that mark a transfer (read_mask, increment_mask)"
            found = f"{register.offset:#04x}, and {first.name} at {first.offset:#04x}"
            fault(f"registers.{register.name}", "offset", rule, found, "other marks, or one register")


def _whole_words(contract: Contract, register: Register, fault: Callable[[str, str, str, object, str], None]) -> None:
    spi = contract.access.spi
    if spi is None or spi.word_bits == 8:
        return
    opcode = register.opcode
    head = contract.access.offset_bytes if opcode is None else opcode.code_bytes + opcode.dummy_bytes
    size = head if opcode is not None and opcode.duplex else head + register.size_bytes
    if 8 * size % spi.word_bits:
        rule = f"a transfer of it is no whole words of {spi.word_bits} bits"
        fault(f"registers.{register.name}", "width_bits", rule, f"{size} bytes", "word_bits = 8, or another width")
