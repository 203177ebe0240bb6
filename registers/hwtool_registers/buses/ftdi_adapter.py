"""An interface of an FTDI adapter as an MPSSE engine: opened by one of pyftdi's controllers, closed when in doubt.

Opening sets the engine up and its pins to idle: no START, no chip select, no clock. Answers over USB are awaited for
`response_ms`. The adapter itself waits for its latency timer before it sends what does not fill a packet: a shorter
time-out would end every wait, and is refused.

Source: pyftdi, pyftdi/ftdi.py (open_mpsse_from_device, read_data_bytes); FTDI AN_108, 3 and 4.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pyftdi.ftdi import Ftdi

from hwtool_registers.bus import Ambiguous, Sent
from hwtool_registers.buses.ftdi_claim import NODES, Claim, claimed
from hwtool_registers.buses.ftdi_url import DEFAULT_LATENCY_MS, FtdiUrl
from hwtool_registers.buses.usb_nodes import SYSFS


class Controller(Protocol):
    """What pyftdi's controllers have in common."""

    @property
    def ftdi(self) -> Any:
        """The port below."""
        ...


C = TypeVar("C", bound=Controller)


@dataclass(frozen=True, slots=True)
class FtdiSettings:
    """One interface.

    Attributes:
        response_ms: how long an answer over USB is awaited; not below `latency_ms`.
        latency_ms: the adapter's latency timer, 1 to 255.
        notes: where notes of detached kernel drivers go (ftdi_claim).
    """

    url: FtdiUrl
    response_ms: int = 200
    latency_ms: int = DEFAULT_LATENCY_MS
    notes: Path | None = None


class Adapter(Generic[C]):
    """One interface, open or not.

    Args:
        make: makes a controller that is not open yet.
        configure: opens it on a claimed interface: the controller, PyUSB's device, the interface (from 1 on), the
            latency timer in ms.
    """

    def __init__(
        self,
        settings: FtdiSettings,
        make: Callable[[], C],
        configure: Callable[[C, Any, int, int], None],
        sysfs: Path = SYSFS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._make, self._configure = make, configure
        self._sysfs = sysfs
        self._clock, self._sleep = clock, sleep
        self._claim: Claim | None = None
        self._controller: C | None = None
        self._node = NODES

    @property
    def node(self) -> Path:
        """The adapter's node, as long as it is open; it has another one each time it is plugged in."""
        return self._node

    def open(self) -> C:
        """Claim the interface and set the engine up; nothing happens on the wires but that they are idle.

        Raises:
            OSError: absent, not permitted, in use (ftdi_claim), or no engine that can be set up like this.
        """
        if self._controller is not None:
            return self._controller
        settings = self._settings
        if settings.response_ms < settings.latency_ms:
            told = f"response_ms {settings.response_ms} is below the adapter's latency of {settings.latency_ms} ms"
            raise OSError(errno.EINVAL, told)
        claim = claimed(settings.url, settings.notes, self._sysfs)
        controller = self._make()
        controller.ftdi.timeouts = (settings.response_ms, settings.response_ms)
        try:
            self._configure(controller, claim.device, settings.url.interface, settings.latency_ms)
        except (
            OSError,
            ValueError,
        ) as error:  # pyftdi's and PyUSB's errors are OSErrors, what they refuse a ValueError
            claim.give_back()
            number = getattr(error, "errno", None) or errno.EIO
            raise OSError(number, f"{settings.url} cannot be set up: {error}") from error
        self._claim, self._controller, self._node = claim, controller, claim.node
        return controller

    def close(self) -> None:
        """Leave the engine, and give the interface back."""
        claim, self._claim = self._claim, None
        controller, self._controller = self._controller, None
        if claim is None or controller is None:
            return
        with contextlib.suppress(OSError):  # it may be gone
            controller.ftdi.set_bitmode(0, Ftdi.BitMode.RESET)
            controller.ftdi.set_latency_timer(DEFAULT_LATENCY_MS)
        claim.give_back()

    def failed(self, error: OSError) -> Ambiguous:
        """What an error of USB in a transfer comes to: how far it got is not known, and the engine is set up anew."""
        self.close()
        return Ambiguous(Sent.DATA, f"{self._settings.url}: {error}")

    def quiesce(self, until_s: float) -> None:
        """Wait, then empty what the adapter still holds; it is opened where it was closed in doubt.

        Raises:
            OSError: it cannot be opened or emptied.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        if self._controller is None:
            self.open()
            return
        try:
            self._controller.ftdi.purge_buffers()
        except OSError as error:
            self.close()
            raise OSError(errno.ENODEV, f"{self._settings.url}: {error}") from error
