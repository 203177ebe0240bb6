"""How a board names an interface of an FTDI adapter: pyftdi's URL with a serial number, and nothing that may change.

    ftdi://ftdi:232h:FT4ABC12/1      vendor : product : serial number / interface, from 1 on

Pure. Source: pyftdi, docs/urlscheme.rst (an index, or a bus and an address, in place of the serial number are refused
here: the next start may give them to another adapter) and pyftdi/ftdi.py (PRODUCT_IDS, MPSSE interfaces).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

VENDOR_ID: Final = 0x0403
PRODUCTS: Final = {"232h": 0x6014, "2232h": 0x6010, "4232h": 0x6011}  # with the engine that I2C and SPI take
INTERFACES: Final = {"232h": 1, "2232h": 2, "4232h": 2}  # that have one, from the first on
FORM: Final = re.compile(r"ftdi://ftdi:(?P<product>[^:/]+):(?P<serial>[^:/]+)/(?P<interface>[0-9]+)")
SERIAL: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
DEFAULT_LATENCY_MS: Final = 16  # pyftdi: "do not use shorter values than the default, as it triggers data loss"
MOST_INDEX: Final = 255  # what pyftdi takes for an index and not for a serial number
EXAMPLE: Final = "ftdi://ftdi:232h:SERIAL/1"


@dataclass(frozen=True, slots=True)
class FtdiUrl:
    """One interface of one adapter.

    Attributes:
        product: as pyftdi calls it.
        serial: the adapter's serial number.
        interface: from 1 on.
    """

    product: str
    serial: str
    interface: int

    @property
    def product_id(self) -> int:
        """USB's number of the product."""
        return PRODUCTS[self.product]

    def __str__(self) -> str:
        return f"ftdi://ftdi:{self.product}:{self.serial}/{self.interface}"


def parse_url(text: str) -> FtdiUrl:
    """The interface that a URL names.

    Raises:
        ValueError: it names none, or by something that may change; the message says what is wanted.
    """
    found = FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{EXAMPLE}: an adapter is named by its serial number")
    product, serial, interface = found["product"], found["serial"], int(found["interface"])
    if product not in PRODUCTS:
        raise ValueError(f"product {product!r} has no engine for I2C and SPI: one of {', '.join(PRODUCTS)}")
    if not SERIAL.fullmatch(serial):
        raise ValueError(f"a serial number of letters, digits and _ . -, not {serial!r}")
    if _is_index(serial):
        raise ValueError(
            f"{serial!r} is no serial number but an index, which the next start may give to another adapter"
        )
    if not 1 <= interface <= INTERFACES[product]:
        raise ValueError(f"interface {interface} of a {product} has no engine: 1 to {INTERFACES[product]}")
    return FtdiUrl(product, serial, interface)


def _is_index(text: str) -> bool:
    """Whether pyftdi would take it for a number, and so for an index."""
    try:
        return int(text, 0) <= MOST_INDEX
    except ValueError:
        return False
