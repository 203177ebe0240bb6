"""Which /dev/spidevB.C a chip select of a controller is today, as sysfs tells. Touches no wire.

The number of a controller depends on the order in which drivers were loaded, unless the device tree gives one; the name
of the device that it is does not.

Source: Linux Documentation/spi/spi-summary.rst (/sys/class/spi_master, /sys/bus/spi/devices) and spidev.rst.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from hwtool_registers.buses.names import called

SYSFS: Final = Path("/sys")
DEV: Final = Path("/dev")
DRIVER: Final = "spidev"


def controllers(sysfs: Path = SYSFS) -> dict[str, str]:
    """The name of the device behind each controller by the controller's own, spiN."""
    found = {}
    for entry in sorted((sysfs / "class/spi_master").glob("spi*"), key=lambda p: (len(p.name), p.name)):
        try:
            found[entry.name] = (entry / "device").resolve(strict=True).name
        except OSError:
            continue  # it is going just now
    return found


def controller_of(name: str, sysfs: Path = SYSFS) -> str:
    """The controller, spiN, of the device of this name.

    Raises:
        OSError: ENODEV, there is none; ENOTUNIQ, it has several.
    """
    return called(name, controllers(sysfs), "SPI controller")


def node_of(controller: str, chip_select: int, sysfs: Path = SYSFS, dev: Path = DEV) -> Path:
    """The node of a chip select of a controller.

    Raises:
        OSError: ENODEV, it has none; EBUSY, another kernel driver has the chip.
    """
    number = controller.removeprefix("spi")
    node = dev / f"spidev{number}.{chip_select}"
    if node.exists():
        return node
    chip = sysfs / "bus/spi/devices" / f"{controller}.{chip_select}"
    try:
        driver = (chip / "driver").resolve(strict=True).name
    except OSError:
        told = "no driver is bound to it: bind spidev" if chip.exists() else "no such chip select is described to Linux"
        raise OSError(errno.ENODEV, f"{node}: {told} ({chip})") from None
    told = f"chip select {chip_select} of {controller} is owned by the kernel driver {driver}: unbind it first"
    raise OSError(errno.EBUSY, told)
