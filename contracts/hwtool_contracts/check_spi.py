"""What `[access.spi]` asks of a contract: no two registers that a transfer cannot tell apart, and whole words."""

from __future__ import annotations

from collections.abc import Callable

from hwtool_contracts.model import Contract, Register, Space, SpiAccess


def check_spi(contract: Contract, fault: Callable[[str, str, str, object, str], None]) -> None:
    """Check all registers of a contract that may sit on SPI."""
    spi = contract.access.spi
    if spi is None:
        return
    if spi.marks and not contract.access.offset_bytes:
        fault("access.spi", "read_mask", "no offset is sent that could be marked", hex(spi.marks), "offset_bytes")
    if spi.word_bits > 8:
        for memory in contract.memories:
            fault(f"memories.{memory}", "size_bytes", "any part of it may be asked for", spi.word_bits, "word_bits = 8")
        for group in (g for g in contract.groups.values() if g.transfer == "one"):
            members = [contract.registers[m] for m in group.members if m in contract.registers]
            _whole(
                f"groups.{group.name}", contract.access.offset_bytes + sum(m.size_bytes for m in members), spi, fault
            )
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
    size = register.size_bytes
    size = max(head, size) if opcode is not None and opcode.duplex else head + size
    _whole(f"registers.{register.name}", size, spi, fault)


def _whole(table: str, size: int, spi: SpiAccess, fault: Callable[[str, str, str, object, str], None]) -> None:
    if 8 * size % spi.word_bits:
        rule = f"a transfer of it is no whole words of {spi.word_bits} bits"
        fault(table, "", rule, f"{size} bytes", "word_bits = 8, or another width")
