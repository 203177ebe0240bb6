"""Slaves behind the emulated wires: cells of bytes, and chips made from contracts.

A chip of the simulator is told whole transfers, and a wire brings bytes. What a slave must send next is found on a copy
of the chip, which is asked for one byte more each time; the chip itself takes the access once, when it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hwtool_contracts.model import Contract, Space
from hwtool_registers.bus import Message, RegisterRead, RegisterWrite, Transfer
from hwtool_sim.bus import apply_to
from hwtool_sim.chip import Chip, NotThere


@dataclass
class I2cCells:
    """Bytes behind a pointer of one byte.

    Attributes:
        nacks_at: which byte behind the address is not acknowledged, once; 0 is the offset.
        deaf_to_reads: the next address of a read is not acknowledged.
        at_byte: called at each byte that comes, before it is taken.
    """

    memory: bytearray = field(default_factory=lambda: bytearray(range(256)))
    nacks_at: int | None = None
    deaf_to_reads: bool = False
    at_byte: Callable[[int], None] = lambda byte: None
    _pointer: int = 0
    _count: int = 0

    def begins(self, reads: bool) -> bool:
        self._count = 0
        if reads and self.deaf_to_reads:
            self.deaf_to_reads = False
            return False
        return True

    def takes(self, byte: int) -> bool:
        self.at_byte(byte)
        count, self._count = self._count, self._count + 1
        if self.nacks_at == count:
            self.nacks_at = None
            return False
        if count == 0:
            self._pointer = byte
        else:
            self.memory[self._pointer % 256] = byte
            self._pointer += 1
        return True

    def gives(self) -> int:
        byte = self.memory[self._pointer % 256]
        self._pointer += 1
        return byte

    def ends(self) -> None:
        return


@dataclass
class SpiCells:
    """Bytes behind an offset of one byte, whose bit 7 marks a read."""

    mode: int = 0
    memory: bytearray = field(default_factory=lambda: bytearray(range(256)))
    at_byte: Callable[[int], None] = lambda byte: None
    _pointer: int | None = None
    _reads: bool = False

    def begins(self) -> None:
        self._pointer = None

    def gives(self) -> int:
        if self._pointer is None or not self._reads:
            return 0
        return self.memory[self._pointer % 128]

    def takes(self, byte: int) -> None:
        self.at_byte(byte)
        if self._pointer is None:
            self._pointer, self._reads = byte & 0x7F, bool(byte & 0x80)
            return
        if not self._reads:
            self.memory[self._pointer % 128] = byte
        self._pointer += 1

    def ends(self) -> None:
        return


class I2cChip:
    """A chip of a contract at an address of I2C."""

    def __init__(self, chip: Chip, address: int) -> None:
        self.chip, self.address = chip, address
        self._out, self._given, self._reads = bytearray(), 0, False

    def begins(self, reads: bool) -> bool:
        self._reads, self._given = reads, 0
        return True

    def takes(self, byte: int) -> bool:
        self._out.append(byte)
        return True

    def gives(self) -> int:
        self._given += 1
        try:
            return apply_to(self.chip.copied(), self._transfer(self._given)).data[-1]
        except NotThere:
            return 0xFF

    def ends(self) -> None:
        """Behind a written message another may follow that reads: only then is it a write."""
        if not self._reads and self._is_pointer():
            return
        size = self._given if self._reads else 0
        transfer = self._transfer(size)
        self._out.clear()
        try:
            apply_to(self.chip, transfer)
        except NotThere:
            return

    def _is_pointer(self) -> bool:
        commands = any(r.opcode is not None for r in self.chip.contract.registers.values())
        return not commands and len(self._out) == self.chip.contract.access.offset_bytes

    def _transfer(self, size: int) -> Transfer:
        contract, out = self.chip.contract, bytes(self._out)
        if any(r.opcode is not None for r in contract.registers.values()):
            return Message(self.address, out, size)
        head = contract.access.offset_bytes
        offset = int.from_bytes(out[:head], "big")
        if size:
            return RegisterRead(self.address, Space.MEMORY, offset, size, head)
        return RegisterWrite(self.address, Space.MEMORY, offset, out[head:], head)


class SpiChipOf:
    """A chip of a contract at a chip select: registers by offsets, and commands by opcodes."""

    def __init__(self, chip: Chip, chip_select: int) -> None:
        self.chip, self.chip_select = chip, chip_select
        spi = chip.contract.access.spi
        if spi is None:
            raise ValueError(f"{chip.contract.part} has no SPI")
        self._marks = spi
        self.mode = spi.mode
        self._sent = bytearray()

    def begins(self) -> None:
        self._sent.clear()

    def takes(self, byte: int) -> None:
        self._sent.append(byte)

    def gives(self) -> int:
        """The byte that comes with the next one that is sent."""
        transfer = self._transfer(bytes(self._sent), 1)
        if transfer is None or not _brings(transfer):
            return 0
        head = len(transfer.write) if isinstance(transfer, Message) else self.chip.contract.access.offset_bytes
        try:
            return apply_to(self.chip.copied(), transfer).data[len(self._sent) - head]
        except (NotThere, IndexError):
            return 0xFF

    def ends(self) -> None:
        transfer = self._transfer(bytes(self._sent), 0)
        if transfer is None:
            return
        try:
            apply_to(self.chip, transfer)
        except NotThere:
            return

    def _transfer(self, sent: bytes, ahead: int) -> Transfer | None:
        """What was sent so far, with so many bytes more to come; None: it is nothing yet."""
        contract = self.chip.contract
        told = _command_of(contract, sent, ahead, self.chip_select)
        if told is not None:
            return told
        head = contract.access.offset_bytes
        if not head or len(sent) < head or all(r.space is not Space.MEMORY for r in contract.registers.values()):
            return None
        offset, rest = int.from_bytes(sent[:head], "big"), sent[head:]
        if self._marks.read_mask and offset & self._marks.read_mask == self._marks.read_mask:
            size = len(rest) + ahead
            return RegisterRead(self.chip_select, Space.MEMORY, offset, size, head) if size else None
        return None if ahead or not rest else RegisterWrite(self.chip_select, Space.MEMORY, offset, rest, head)


def _brings(transfer: Transfer) -> bool:
    return isinstance(transfer, RegisterRead) or (isinstance(transfer, Message) and transfer.read_bytes > 0)


def _command_of(contract: Contract, sent: bytes, ahead: int, chip_select: int) -> Message | None:
    """The command that the bytes are, in a contract that has commands: by its code, and what follows it."""
    for memory in contract.memories.values():
        head = 1 + contract.access.offset_bytes
        if memory.read_code is not None and sent[:1] == bytes([memory.read_code]) and len(sent) >= head:
            size = len(sent) - head + ahead
            return Message(chip_select, sent[:head], size) if size else None
    for register in contract.registers.values():
        opcode = register.opcode
        if opcode is None:
            continue
        code = register.offset.to_bytes(opcode.code_bytes, "big")
        head = len(code) + opcode.dummy_bytes
        if sent[: len(code)] != code or len(sent) < head:
            continue
        if not register.access.readable:
            return None if ahead else Message(chip_select, sent, 0)
        return Message(chip_select, sent[:head], register.size_bytes) if len(sent) + ahead > head else None
    return None
