"""SPI, whatever carries it: what one transfer clocks while its chip select is active. Pure.

Rules
- One transfer is one stretch of chip select: the offset or the command goes out, then the data goes out or comes in.
  What comes in is clocked out of the chip by zeros.
- A duplex message is answered from its first bit on, while it goes out.
- SPI acknowledges nothing: an absent chip takes every write and answers zeros or ones. What shows a write is its
  verification, what shows the chip is its identity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import Capabilities, Line, Message, RegisterRead, RegisterWrite, Transfer, Unsayable

DEFAULT_MAX_HZ: Final = 1_000_000
LONGEST_READ_BYTES: Final = 512
CAPABILITIES: Final = Capabilities(
    frozenset({Space.MEMORY}), lines=False, longest_read_bytes=LONGEST_READ_BYTES, acknowledges=False
)


@dataclass(frozen=True, slots=True)
class SpiChip:
    """What a chip select is set to.

    Attributes:
        mode: clock polarity (bit 1) and phase (bit 0).
        max_hz: highest clock.
        word_bits: of a word of the controller.
    """

    mode: int = 0
    max_hz: int = DEFAULT_MAX_HZ
    word_bits: int = 8


@dataclass(frozen=True, slots=True)
class Exchange:
    """One stretch of chip select.

    Attributes:
        out: what goes out first.
        read_bytes: how many bytes the transfer brings.
        duplex: they begin with the first byte that goes out, not behind the last.
    """

    out: bytes
    read_bytes: int
    duplex: bool = False

    @property
    def clocked_bytes(self) -> int:
        """Bytes that are clocked in all."""
        return max(len(self.out), self.read_bytes) if self.duplex else len(self.out) + self.read_bytes

    @property
    def padded(self) -> bytes:
        """What goes out in all: zeros where something only comes in."""
        return self.out.ljust(self.clocked_bytes, b"\0")

    def brought(self, came: bytes) -> bytes:
        """What the transfer brings, of all that came in."""
        return came[: self.read_bytes] if self.duplex else came[len(self.out) :]


def exchange_of(transfer: Transfer, longest_bytes: int, chip: SpiChip) -> Exchange:
    """What a transfer clocks.

    Raises:
        Unsayable: it cannot be said, or is longer than `longest_bytes`.
    """
    if isinstance(transfer, Line) or not CAPABILITIES.carries(transfer):
        raise Unsayable(f"SPI cannot carry {type(transfer).__name__}")
    if transfer.pec or (isinstance(transfer, RegisterRead) and transfer.stop):
        raise Unsayable("SPI has neither packet error codes nor stops")
    try:
        match transfer:
            case RegisterRead(offset=offset, offset_bytes=size):
                made = Exchange(offset.to_bytes(size, "big"), transfer.size_bytes)
            case RegisterWrite(offset=offset, offset_bytes=size):
                made = Exchange(offset.to_bytes(size, "big") + transfer.data, 0)
            case Message(write=write, read_bytes=read_bytes):
                made = Exchange(write, read_bytes, transfer.duplex)
    except OverflowError as error:
        raise Unsayable(f"an offset that {transfer} has no room for") from error
    if not 0 < made.clocked_bytes <= longest_bytes:
        raise Unsayable(f"{made.clocked_bytes} bytes in one transfer: 1 to {longest_bytes} here")
    if 8 * made.clocked_bytes % chip.word_bits:
        raise Unsayable(f"{made.clocked_bytes} bytes are no whole words of {chip.word_bits} bits")
    return made


def addressed(transfer: Transfer, chips: Mapping[int, SpiChip], longest_bytes: int) -> tuple[int, SpiChip, Exchange]:
    """The chip select of a transfer, what it is set to, and what is clocked.

    Raises:
        Unsayable: it cannot be said, or the board has nothing there.
    """
    address = 0 if isinstance(transfer, Line) else transfer.address
    chip = chips.get(address)
    exchange = exchange_of(transfer, longest_bytes, chip or SpiChip())
    if chip is None:
        raise Unsayable(f"the board has nothing at chip select {address}")
    return address, chip, exchange


def in_words(data: bytes, word_bits: int, byte_order: str) -> bytes:
    """Bytes in the order of the wire as a controller takes its words from memory, and back.

    Source: Linux include/linux/spi/spi.h, struct spi_transfer: words are in the byte order of the host.
    """
    size = math.ceil(word_bits / 8)
    if size == 1 or byte_order == "big":
        return data
    return b"".join(data[at : at + size][::-1] for at in range(0, len(data), size))
