"""A transfer as a line for people: in the timelines of scenarios and of tests, and in what they expect."""

from __future__ import annotations

from collections.abc import Mapping

from hwtool_registers.bus import Line, Message, RegisterRead, RegisterWrite, Transfer


def named(places: Mapping[str, tuple[str, int]], bus: str, transfer: Transfer) -> str:
    """A transfer with the device that it is for; `places` are the bus and place of each device."""
    if isinstance(transfer, Line):
        return f"{next((n for n, (b, _) in places.items() if b == bus), bus)} line {transfer.text!r}"
    there = (name for name, place in places.items() if place == (bus, transfer.address))
    return f"{next(there, f'{bus}:{transfer.address:#04x}')} {shown(transfer)}"


def shown(transfer: RegisterRead | RegisterWrite | Message) -> str:
    """A transfer in a line: `read 0x14 1`, `write 0x14 5a`; `message 2c06 6`: what is written (or -), bytes to read."""
    match transfer:
        case RegisterRead():
            return f"read {transfer.offset:#04x} {transfer.size_bytes}"
        case RegisterWrite():
            return f"write {transfer.offset:#04x} {transfer.data.hex()}"
        case Message():
            return f"message {transfer.write.hex() or '-'} {transfer.read_bytes}"
