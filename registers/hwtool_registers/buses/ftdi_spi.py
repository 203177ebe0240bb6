"""SPI through the MPSSE engine of an FTDI adapter, by pyftdi: one transfer is one stretch of chip select.

Everything goes out in one piece: chip select, the bits, chip select. What comes back has as many bytes as were clocked,
or the outcome is unknown: a write is clocked in both directions too, so that its end is seen.

| mode | how |
|---|---|
| 0, 2 | in both directions at once |
| 1, 3 | out, then in; behind a write the pins are read, to see its end. Duplex messages are refused |

In modes 1 and 3 the chip changes its bit at the leading edge, and there pyftdi 0.57 samples it where both directions go
at once.

Nothing on SPI proves that a chip did not act: what was refused before it was sent is all.

Source: pyftdi, pyftdi/spi.py (SpiController._exchange_full_duplex, _exchange_half_duplex); FTDI AN_108, 3.3 to 3.5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyftdi.spi import SpiController

from hwtool_registers.bus import Ambiguous, Answer, Capabilities, Confirmed, Line, Rejected, Sent, Transfer
from hwtool_registers.buses.ftdi_adapter import Adapter, FtdiSettings
from hwtool_registers.buses.i2c_proof import NOT_SENT
from hwtool_registers.buses.spi_exchange import CAPABILITIES, Exchange, SpiChip, Unsayable, exchange_of
from hwtool_registers.buses.usb_nodes import SYSFS

MOST_BYTES: Final = (
    960  # in one piece: what comes in must find room in the adapter while it is sent to; 1 KiB in an FT232H
)
MOST_CHIP_SELECTS: Final = 5  # AD3 to AD7


@dataclass(frozen=True, slots=True)
class FtdiSpiSettings:
    """One interface as a master of SPI.

    Attributes:
        chips: by chip select, 0 on AD3 to 4 on AD7. Those up to the highest one are outputs, and no other pin is.
    """

    adapter: FtdiSettings
    chips: Mapping[int, SpiChip] = field(default_factory=dict)


class FtdiSpi:
    """One interface; opened at the first transfer."""

    def __init__(
        self,
        settings: FtdiSpiSettings,
        sysfs: Path = SYSFS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._adapter = Adapter[Any](
            settings.adapter, SpiController, self._configure, sysfs, clock, lambda s: self._sleep(s)
        )

    @property
    def capabilities(self) -> Capabilities:
        """Memory-like chips and opcodes; nothing is acknowledged."""
        return CAPABILITIES

    @property
    def node(self) -> Path:
        """See HasNode."""
        return self._adapter.node

    def open(self) -> None:
        """See Opens.

        Raises:
            OSError: absent, not permitted, or in use, and by whom.
        """
        self._adapter.open()

    def _configure(self, controller: Any, device: Any, interface: int, latency_ms: int) -> None:
        chips = self._settings.chips
        controller.configure(
            device,
            interface=interface,
            cs_count=max(chips, default=0) + 1,
            frequency=float(max((chip.max_hz for chip in chips.values()), default=SpiChip().max_hz)),
            latency=latency_ms,
        )

    def close(self) -> None:
        """Give the interface back to its kernel driver; nothing is sent."""
        self._adapter.close()

    def quiesce(self, until_s: float) -> None:
        """See the bus contract; SPI has no late answers, USB may.

        Raises:
            OSError: the adapter is absent.
        """
        self._adapter.quiesce(until_s)

    def perform(self, transfer: Transfer) -> Answer:
        """Send one transfer, once; see the bus contract."""
        address = 0 if isinstance(transfer, Line) else transfer.address
        chip = self._settings.chips.get(address)
        try:
            exchange = exchange_of(transfer, MOST_BYTES, chip or SpiChip())
        except Unsayable as error:
            return Rejected(str(error), NOT_SENT)
        if chip is None:
            return Rejected(f"the board has nothing at chip select {address}", NOT_SENT)
        if exchange.duplex and chip.mode & 1:
            return Rejected(f"mode {chip.mode} takes no duplex message: pyftdi samples at the wrong edge", NOT_SENT)
        try:
            controller = self._adapter.open()
        except OSError as error:
            return Rejected(f"cannot open {self._settings.adapter.url}: {error}", "port-not-opened")
        try:
            return _clocked(controller, address, chip, exchange)
        except OSError as error:
            return self._adapter.failed(error)

    @property
    def url(self) -> str:
        """How the adapter is named."""
        return str(self._settings.adapter.url)


def _clocked(controller: Any, chip_select: int, chip: SpiChip, exchange: Exchange) -> Answer:
    """One stretch of chip select.

    Raises:
        OSError: of USB.
    """
    port = controller.get_port(chip_select, freq=float(chip.max_hz), mode=chip.mode)
    if not chip.mode & 1:
        came = bytes(port.exchange(exchange.padded, duplex=True))
        if len(came) != exchange.clocked_bytes:
            raise OSError(f"{len(came)} of {exchange.clocked_bytes} bytes were clocked, as far as the adapter answers")
        return Confirmed(exchange.brought(came))
    came = bytes(port.exchange(exchange.out, exchange.read_bytes))
    if len(came) != exchange.read_bytes:
        return Ambiguous(Sent.REPLY, f"{len(came)} bytes came, {exchange.read_bytes} were asked for")
    if not exchange.read_bytes:
        controller.read_gpio()  # it is answered when everything before it is done; it fails where it is not
    return Confirmed(came)
