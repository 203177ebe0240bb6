"""DS3231: the clock ticks, with carries from seconds to the century, on the bus's clock.

Source: DS3231 data sheet, Clock and Calendar (values in BCD, 12 and 24 hours, day of the week from 1 to 7, the century
bit toggles when the years overflow from 99 to 00, leap years), Control Register (EOSC stops the oscillator on the
battery alone: with power it runs). Not modelled: alarms that fire, conversions of the temperature, the countdown chain
(a write of SECONDS does not begin a new second).
"""

from __future__ import annotations

from hwtool_sim.behaviour import Behaviour
from hwtool_sim.chip import Chip

DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _binary(bcd: int) -> int:
    return 10 * (bcd >> 4) + (bcd & 0xF)


def _bcd(binary: int) -> int:
    return binary // 10 << 4 | binary % 10


class Ds3231(Behaviour):
    """A clock of which the oscillator stopped once, and alarm 1 has fired."""

    registers = ("SECONDS", "MINUTES", "HOURS", "DAY", "DATE", "MONTH", "YEAR", "STATUS", "TEMP")

    def __init__(self) -> None:
        self._ticked_s: float | None = None

    def power_on(self, chip: Chip) -> None:
        """A time near the end of a month, the flags, and 25.25 degrees."""
        time = {"SECONDS": 0x30, "MINUTES": 0x59, "HOURS": 0x23, "DAY": 1, "DATE": 0x30, "MONTH": 0x11, "YEAR": 0x26}
        chip.values |= time | {"STATUS": 0x89, "TEMP": 0x1940}

    def passes(self, chip: Chip) -> None:
        """Tick once for each whole second since the last access."""
        if self._ticked_s is None:
            self._ticked_s = chip.now_s
        whole = int(chip.now_s - self._ticked_s)
        self._ticked_s += whole
        for _ in range(min(whole, 7 * 86_400)):  # who has been away for a week finds a clock that is late
            self._tick(chip)

    def _tick(self, chip: Chip) -> None:
        for name in ("SECONDS", "MINUTES"):
            now = _binary(chip.values[name] & 0x7F) + 1
            chip.values[name] = _bcd(now % 60)
            if now < 60:
                return
        if not self._next_hour(chip):
            return
        chip.values["DAY"] = chip.values["DAY"] % 7 + 1
        year, month = _binary(chip.values["YEAR"]), _binary(chip.values["MONTH"] & 0x1F)
        date = _binary(chip.values["DATE"] & 0x3F) + 1
        if date <= DAYS[(month - 1) % 12] + (month == 2 and year % 4 == 0):
            chip.values["DATE"] = _bcd(date)
            return
        chip.values["DATE"] = 1
        century = chip.values["MONTH"] & 0x80
        if month < 12:
            chip.values["MONTH"] = century | _bcd(month + 1)
            return
        chip.values["YEAR"] = _bcd((year + 1) % 100)
        chip.values["MONTH"] = (century ^ 0x80 if year == 99 else century) | 1

    def _next_hour(self, chip: Chip) -> bool:
        """One hour on; whether a day has ended."""
        held = chip.values["HOURS"]
        if held & 0x40:  # 12 hours: 11 is followed by 12 of the other half, 12 by 1
            hour, afternoon = _binary(held & 0x1F), held & 0x20
            ended = hour == 11 and bool(afternoon)
            afternoon = afternoon ^ 0x20 if hour == 11 else afternoon
            chip.values["HOURS"] = 0x40 | afternoon | _bcd(hour % 12 + 1)
            return ended
        hour = _binary(held & 0x3F) + 1
        chip.values["HOURS"] = _bcd(hour % 24)
        return hour >= 24
