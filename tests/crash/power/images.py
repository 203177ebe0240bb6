"""What a power cut may leave of a directory: disk images built from one record of everything that reached its files.

At each moment a file holds what was synced, and any part of what was written since: none, all, all but one, one alone,
a random choice, the last one torn at a sector. A name holds what its directory's last sync left, or what was done
since. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SECTOR_BYTES: Final = 512
LOOKED_BACK: Final = 6  # of many unsynced writes, the newest are left out one at a time


@dataclass(frozen=True)
class Event:
    """One thing that happened: W write, T length, S sync, C created, R renamed, U removed, M a mark."""

    kind: str
    name: str
    offset: int = 0
    data: bytes = b""
    other: str = ""


def parsed(record: bytes, directory: str) -> list[Event]:
    """The events of a record, names relative to the directory (which is ``)."""
    events, at = [], 0

    def relative(path: str) -> str:
        return path[len(directory) + 1 :]

    while at < len(record):
        end = record.index(b"\n", at)
        line = record[at:end].decode()
        at = end + 1
        kind, rest = line[0], line[2:]
        match kind:
            case "W":
                path, offset, size = rest.rsplit(" ", 2)
                events.append(Event("W", relative(path), int(offset), record[at : at + int(size)]))
                at += int(size)
            case "T":
                path, size = rest.rsplit(" ", 1)
                events.append(Event("T", relative(path), int(size)))
            case "R":
                old, new = rest.split("\t")
                events.append(Event("R", relative(old), other=relative(new)))
            case "M":
                events.append(Event("M", rest))
            case _:
                events.append(Event(kind, relative(rest)))
    return events


def applied(content: bytes, event: Event) -> bytes:
    """A file's bytes after a write or a change of length."""
    if event.kind == "T":
        return content[: event.offset] + bytes(max(0, event.offset - len(content)))
    whole = bytearray(content)
    if len(whole) < event.offset:
        whole += bytes(event.offset - len(whole))
    whole[event.offset : event.offset + len(event.data)] = event.data
    return bytes(whole)


@dataclass
class Inode:
    """A file: what is synced of it, and what was done since."""

    durable: bytes = b""
    pending: list[Event] = field(default_factory=list)

    def with_(self, kept: list[Event]) -> bytes:
        """Its bytes, if of what is pending this was kept."""
        content = self.durable
        for event in kept:
            content = applied(content, event)
        return content

    def variants(self, chance: random.Random) -> Iterator[list[Event]]:
        """What may have been kept of what is pending."""
        pending = self.pending
        yield []
        if not pending:
            return
        yield pending
        last = pending[-1]
        if len(pending) > 1:
            yield pending[:-1]
            yield [last]
            for left_out in range(max(0, len(pending) - LOOKED_BACK), len(pending) - 1):
                yield pending[:left_out] + pending[left_out + 1 :]
            for _ in range(2):
                yield [event for event in pending if chance.random() < 0.5]
        if last.kind == "W" and len(last.data) > SECTOR_BYTES:
            for kept in (SECTOR_BYTES, len(last.data) // (2 * SECTOR_BYTES) * SECTOR_BYTES):
                yield [*pending[:-1], Event("W", last.name, last.offset, last.data[:kept])]


class Disk:
    """The directory at one moment: names that are synced, names as they are, and the files behind them."""

    def __init__(self) -> None:
        self.synced: dict[str, Inode] = {}
        self.names: dict[str, Inode] = {}

    def happen(self, event: Event) -> None:
        """Let something happen."""
        match event.kind:
            case "C":
                self.names[event.name] = Inode()
            case "W" | "T":
                self.names.setdefault(event.name, Inode()).pending.append(event)
            case "S" if event.name == "":
                self.synced = dict(self.names)
            case "S":
                inode = self.names.setdefault(event.name, Inode())
                inode.durable, inode.pending = inode.with_(inode.pending), []
            case "R":
                self.names[event.other] = self.names.pop(event.name)
            case "U":
                self.names.pop(event.name, None)
            case _:
                pass

    def images(self, chance: random.Random) -> Iterator[dict[str, bytes]]:
        """Directories that a power cut may leave now, each a file's bytes by name."""
        for names in (self.synced, self.names) if self.synced != self.names else (self.names,):
            varied: list[str | None] = [name for name, inode in names.items() if inode.pending] or [None]
            for chosen in varied:
                inode = Inode() if chosen is None else names[chosen]
                for kept in inode.variants(chance):
                    for others in (False, True) if len(varied) > 1 else (False,):
                        yield {
                            name: i.with_(kept if name == chosen else i.pending if others else [])
                            for name, i in names.items()
                        }
