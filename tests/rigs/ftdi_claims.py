"""Runs inside the guest: an FTDI adapter as QEMU has one, on Linux's USB with libusb: who has it, and when it goes.

QEMU's usb-serial is an FT232BM, which has no engine for I2C and SPI, and it does not know the request that would switch
one on. So it is named as if it were an FT232H, and what is tried is what stands before the engine: finding, claiming,
three refusals, giving back, a crash, an unplugging. `python -m tests.rigs.ftdi_claims` prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyftdi.ftdi import Ftdi

from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, Rejected
from hwtool_registers.buses import ftdi_adapter, ftdi_i2c, ftdi_url
from hwtool_registers.buses.ftdi_adapter import FtdiBus, FtdiSettings
from hwtool_registers.buses.ftdi_claim import claimed, give_back_left
from hwtool_registers.buses.ftdi_i2c import I2cMaster
from hwtool_registers.buses.ftdi_url import FtdiUrl

OUT, NOTES = Path("/run/out"), Path("/run/notes")
URL: Final = FtdiUrl("232h", "RIG1", 1)
PORT: Final = Path("/dev/ttyUSB0")
LOOK: Final = ftdi_adapter.look
READ: Final = RegisterRead(0x20, Space.MEMORY, 0x10, 1)
LIMIT_S: Final = 90.0
NOBODY: Final = 65534


def say(what: str, *told: object) -> None:
    """A line for the host."""
    print(json.dumps([what, *told]), flush=True)


def await_(holds: Callable[[], bool]) -> bool:
    """Wait until something holds, for the kernel and the host do it in their own time."""
    until_s = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def refused(url: FtdiUrl = URL) -> tuple[int | None, str]:
    """What a claim is refused with."""
    try:
        claim = claimed(url, NOTES)
    except OSError as error:
        return error.errno, error.strerror or str(error)
    claim.give_back()
    return None, "it was had"


def in_child(act: Callable[[], object]) -> int:
    """Another process, which does something and then waits to be ended."""
    ready, done = os.pipe()
    child = os.fork()
    if not child:
        os.close(ready)
        try:
            os.write(done, json.dumps(act()).encode())
        finally:
            os.close(done)
            signal.pause()
    os.close(done)
    told = b""
    while piece := os.read(ready, 4096):
        told += piece
    os.close(ready)
    CHILD_SAID.append(json.loads(told) if told else None)
    return child


CHILD_SAID: list[Any] = []


def end(child: int) -> None:
    """Kill it, with no chance to give anything back."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def hold() -> str:
    """Claim it, and keep it."""
    KEPT.append(claimed(URL, NOTES))
    return "held"


KEPT: list[Any] = []


def as_nobody() -> tuple[int | None, str]:
    """A claim by a user who may not."""
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    return refused()


def engine_forced_on() -> None:
    """From here on pyftdi takes the adapter for one with an engine, which does not answer: USB goes on behind it."""
    Ftdi.set_bitmode = lambda self, bitmask, mode: None
    Ftdi.validate_mpsse = lambda self: None
    Ftdi.is_mpsse_interface = lambda self, interface: True
    for what in ("is_mpsse", "is_H_series", "has_drivezero"):
        setattr(Ftdi, what, property(lambda self: True))
    vars(ftdi_i2c)["_freed"] = lambda ftdi, half_s: None
    vars(ftdi_adapter)["look"] = lambda ftdi: 0xFF


def sent(bus: FtdiBus) -> bool:
    """Begin a transfer as it is: whether USB fails."""
    try:
        bus._master.wanted(READ)(bus._controller)
    except OSError:
        return True
    return False


def main() -> None:
    """The whole story."""
    ftdi_url.PRODUCTS["232h"] = 0x6001
    say("bound at first", await_(PORT.exists))
    say("another serial number", *refused(FtdiUrl("232h", "RIG2", 1)))
    claim = claimed(URL, NOTES)
    say("claimed", PORT.exists(), sorted(note.name for note in NOTES.iterdir()))
    claim.give_back()
    say("given back", await_(PORT.exists), sorted(note.name for note in NOTES.iterdir()))
    holder = in_child(hold)
    say("held by another", *refused(), holder)
    end(holder)
    say("its holder died", PORT.exists(), sorted(note.name for note in NOTES.iterdir()))
    say("left over", give_back_left(NOTES), await_(PORT.exists), sorted(note.name for note in NOTES.iterdir()))
    end(in_child(as_nobody))
    say("forbidden", *CHILD_SAID[-1])
    bus = FtdiBus(FtdiSettings(URL, notes=NOTES), I2cMaster())
    answer = bus.perform(READ)
    say("no engine", isinstance(answer, Rejected), getattr(answer, "fault", ""), await_(PORT.exists))
    engine_forced_on()
    bus.open()
    say("open", bus.node.is_char_device(), PORT.exists())
    (OUT / "ready").touch()
    await_((OUT / "gone").exists)
    await_(lambda: not bus.node.exists())
    say("pulled out behind the look", sent(bus))
    vars(ftdi_adapter)["look"] = LOOK
    answer = bus.perform(READ)
    say("pulled out", getattr(answer, "proof", ""), "vanished" in getattr(answer, "fault", ""))
    answer = bus.perform(READ)
    say("away", getattr(answer, "proof", ""), getattr(answer, "fault", ""))
    (OUT / "away").touch()
    await_((OUT / "back").exists)
    say("back", await_(PORT.exists), await_(lambda: refused()[0] is None), await_(PORT.exists))


if __name__ == "__main__":
    main()
