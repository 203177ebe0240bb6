"""What a doctor finds: a name out of a closed table, what it rests on, and the command that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: its name, one of `CHECKS`.
        about: a bus, device, file or socket.
        evidence: what was seen.
        cure: the command, or the step, that mends it; None where nothing is to be mended.
    """

    check: str
    status: Status
    about: str
    evidence: str
    cure: str | None = None

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ValueError(f"no check is called {self.check!r}")

    def as_object(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "check": self.check,
            "status": self.status.value,
            "about": self.about,
            "evidence": self.evidence,
            "cure": self.cure,
        }


# name: what it is about; the manual (docs/doctor.md) prints this table
CHECKS: Final[dict[str, str]] = {
    "board.lint": "what loads and may still not be meant, in the board and the contracts of its devices",
    "identity.twice": "two devices that the board takes for the same one",
    "adapter.twice": "two adapters of this host that a name of the board fits",
    "library.missing": "a library that a bus of the board needs is not installed",
    "node.absent": "a bus of the board has no node here",
    "node.shut": "the daemon's user may not open a node",
    "node.open_to_all": "everybody may open a node, past every contract",
    "node.open_to_others": "users beside the daemon's may open a node, by its owner or its group",
    "node.acl": "an access list lets users or groups open a node (as `uaccess` makes them)",
    "node.in_use": "another program has a node open",
    "driver.in_the_way": "a kernel driver has what a bus of the board wants, or a program through one",
    "usb.left_taken": "a daemon that died had taken an interface from its kernel driver",
    "rules.missing": "a file of udev's rules is not installed",
    "rules.outdated": "a file of udev's rules is not what this board and this version make",
    "unit.missing": "the service is not installed",
    "unit.outdated": "the service may not reach what this board needs, or may reach more",
    "store.not_writable": "nothing can be written where the store is, or would be",
    "store.file_system": "the store's file system may lose what was synced",
    "store.room": "there is little room where the store is",
    "store.sync": "how long it takes until a write is on the disk: each operation waits for two",
    "store.sqlite": "the version of SQLite",
    "socket.missing": "a socket of the daemon's is not there",
    "socket.open_to_all": "everybody may connect to a socket",
    "socket.role": "which role this user has on a socket, by the daemon's own word",
    "approval.not_true": "the board's approval mode does not hold on this host",
    "group.missing": "a group that the sockets or the nodes are for is not there",
}
