"""What an offset on the wire means to a chip: its bits in the address put back, and the marks of a transfer taken out.

The inverse of what the planner does (hwtool_registers.plan), written anew from the contract: a chip takes a read on SPI
for one by its mark alone, so that a plan without it shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from hwtool_contracts.model import Contract, Space
from hwtool_contracts.places import places_of


def whole_offset(contract: Contract, address: int, offset: int) -> int:
    """The offset that a register has in the contract, of one on the wire to this address."""
    i2c, spi = contract.access.i2c, contract.access.spi
    if i2c is None and spi is not None:
        found = (at for at in _printed(offset & ~spi.marks, spi.marks) if _stands_at(contract, at))
        return next(found, offset & ~spi.marks)
    if i2c is None:
        return offset
    high = address & ((1 << i2c.offset_bits_in_address) - 1)
    return (offset | high << 8 * contract.access.offset_bytes) & ~i2c.increment_mask


def increments(contract: Contract, offset: int) -> bool:
    """Whether a transfer with this offset on the wire moves the pointer, as far as a bit of it says so."""
    i2c, spi = contract.access.i2c, contract.access.spi
    mask = i2c.increment_mask if i2c is not None else spi.increment_mask if spi is not None else 0
    return not mask or bool(offset & mask)


def marked_as_read(contract: Contract, offset: int) -> bool | None:
    """Whether an offset on SPI is marked as one of a read; None: reads have no mark here."""
    spi = contract.access.spi
    if contract.access.i2c is not None or spi is None or not spi.read_mask:
        return None
    return offset & spi.read_mask == spi.read_mask


def _printed(bare: int, marks: int) -> Iterator[int]:
    """What a datasheet may print of an offset: some with the bits that mark its reads, as 0xF7 of a BME280."""
    part = marks
    while True:
        yield bare | part
        if not part:
            return
        part = (part - 1) & marks


def _stands_at(contract: Contract, offset: int) -> bool:
    return bool(places_of(contract).names(Space.MEMORY, offset, offset + 1))
