"""SPI through the MPSSE engine of an FTDI adapter, by pyftdi: one transfer is one stretch of chip select.

Chip select, the bits and chip select go out together; the clock waits where they take more than one packet. What comes
back has as many bytes as were clocked, or the outcome is unknown.

| mode | how |
|---|---|
| 0, 2 | in both directions at once |
| 1, 3 | out, then in. Duplex messages are refused |

In modes 1 and 3 the chip changes its bit at the leading edge, and there pyftdi 0.57 samples it where both directions go
at once.

Nothing on SPI proves that a chip did not act: what was refused before it was sent is all.

Source: pyftdi, pyftdi/spi.py (SpiController._exchange_full_duplex, _exchange_half_duplex); FTDI AN_108, 3.3 to 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyftdi.spi import SpiController

from hwtool_registers.bus import Answer, Capabilities, Confirmed, Sent, Transfer, Unsayable
from hwtool_registers.buses.ftdi_adapter import Broken, no_faster
from hwtool_registers.buses.spi_exchange import CAPABILITIES, DEFAULT_MAX_HZ, Exchange, SpiChip, addressed

MOST_BYTES: Final = (
    960  # in one piece: what comes in must find room in the adapter while it is sent to; 1 KiB in an FT232H
)
PHASES: Final = 1.5  # the engine's clock against that of SPI, in three phases: modes 1 and 3


@dataclass(frozen=True, slots=True)
class SpiMaster:
    """A master of SPI.

    Attributes:
        chips: by chip select, 0 on AD3 to 4 on AD7. Those up to the highest one are outputs, and no other pin is.
    """

    chips: Mapping[int, SpiChip] = field(default_factory=dict)

    @property
    def capabilities(self) -> Capabilities:
        """Memory-like chips and opcodes; nothing is acknowledged."""
        return CAPABILITIES

    def controller(self) -> Any:
        """See Master."""
        return SpiController()

    def configure(self, controller: Any, device: Any, interface: int, latency_ms: int) -> None:
        """See Master."""
        controller.configure(
            device,
            interface=interface,
            cs_count=max(self.chips, default=0) + 1,
            frequency=no_faster(max((chip.max_hz for chip in self.chips.values()), default=DEFAULT_MAX_HZ)),
            latency=latency_ms,
        )

    def wanted(self, transfer: Transfer) -> Callable[[Any], Answer]:
        """See Master."""
        address, chip, exchange = addressed(transfer, self.chips, MOST_BYTES)
        if exchange.duplex and chip.mode & 1:
            raise Unsayable(f"mode {chip.mode} takes no duplex message: pyftdi samples at the wrong edge")
        return partial(_clocked, address, chip, exchange)

    def held(self, pins: int) -> str:
        """See Master; nobody but the master drives anything that it needs."""
        del pins
        return ""


def _clocked(chip_select: int, chip: SpiChip, exchange: Exchange, controller: Any) -> Answer:
    """One stretch of chip select.

    Raises:
        OSError: of USB.
    """
    phases = PHASES if chip.mode & 1 else 1.0
    hz = no_faster(phases * chip.max_hz) / phases
    port = controller.get_port(chip_select, freq=hz, mode=chip.mode)
    if not chip.mode & 1:
        came = bytes(port.exchange(exchange.padded, duplex=True))
        if len(came) != exchange.clocked_bytes:
            told = f"{len(came)} of {exchange.clocked_bytes} bytes were clocked, as far as the adapter answers"
            raise Broken(told, Sent.DATA)
        return Confirmed(exchange.brought(came))
    came = bytes(port.exchange(exchange.out, exchange.read_bytes))
    if len(came) != exchange.read_bytes:
        raise Broken(f"{len(came)} bytes came, {exchange.read_bytes} were asked for", Sent.REPLY)
    return Confirmed(came)
