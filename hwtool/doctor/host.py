"""The host as a doctor sees it: where things are, who is in which group, who may open a file. Reads, and no more."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ACL: Final = "system.posix_acl_access"
NAMED_USER, NAMED_GROUP, MASK = 0x02, 0x08, 0x10  # Linux include/uapi/linux/posix_acl.h
READ_OR_WRITE: Final = 0o6
SYSTEM_USER: Final = "hwtoold"


def acl_of(path: Path) -> list[str]:
    """The users and groups that an access list lets open a file, as `user NAME` and `group NAME`.

    Source: Linux include/uapi/linux/posix_acl_xattr.h: a version of 32 bits, then tag, permissions and number each.
    """
    try:
        packed = os.getxattr(path, ACL)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP, errno.EACCES):
            return []
        raise
    entries = list(struct.iter_unpack("<HHI", packed[4:]))
    mask = next((allowed for tag, allowed, _ in entries if tag == MASK), 0o7)
    named = {NAMED_USER: ("user", user_name), NAMED_GROUP: ("group", group_name)}
    return [
        f"{named[tag][0]} {named[tag][1](number)}"
        for tag, allowed, number in entries
        if tag in named and allowed & mask & READ_OR_WRITE
    ]  # one that lets somebody only read is told too: reading may have an effect


def user_name(uid: int) -> str:
    """The name of a user, else its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """The name of a group, else its number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def members_of(group: str) -> set[str] | None:
    """The users in a group, those included whose first group it is; None: there is no such group."""
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return None
    return set(found.gr_mem) | {user.pw_name for user in pwd.getpwall() if user.pw_gid == found.gr_gid}


@dataclass(frozen=True, slots=True)
class Daemon:
    """The daemon of a store, as far as it can be seen without asking it: a question would start one that waits.

    Attributes:
        runs: whether one has the store's lock; None: that cannot be seen by this user.
        processes: the one that has the lock, as `NAME (pid N)`.
    """

    runs: bool | None
    processes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """Where a doctor looks; other places, groups and lists for tests.

    Attributes:
        system: whether this is the system install: a service of its own user, sockets in /run/hwtool.
        user: that the daemon runs as.
        members: who is in a group, None if there is none of this name.
        acl: whom an access list lets open a file.
        uid_of: owner of a file.
    """

    system: bool
    user: str
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    rules: Path = Path("/etc/udev/rules.d")
    units: Path = Path("/etc/systemd/system")
    members: Callable[[str], set[str] | None] = members_of
    acl: Callable[[Path], list[str]] = acl_of
    names: dict[int, str] = field(default_factory=dict)

    def owner(self, path: Path) -> str:
        """Who owns a file."""
        return user_name(path.stat().st_uid)

    def group(self, path: Path) -> str:
        """The group of a file."""
        gid = path.stat().st_gid
        return self.names.get(gid, group_name(gid))

    def others(self, path: Path) -> Iterator[str]:
        """Who beside root and the daemon's user may open a file, by its owner or its group, and why."""
        mode = path.stat().st_mode
        allowed = {"root", self.user}
        if mode >> 6 & READ_OR_WRITE and self.owner(path) not in allowed:
            yield f"{self.owner(path)} (its owner)"
        if mode >> 3 & READ_OR_WRITE:
            group = self.group(path)
            for name in sorted((self.members(group) or set()) - allowed):
                yield f"{name} (in the group {group})"

    def lets(self, path: Path) -> bool:
        """Whether the daemon's user may read and write a file, by its owner, group, mode or access list."""
        if self.user == "root":
            return True
        mode = path.stat().st_mode
        if self.owner(path) == self.user:
            return mode >> 6 & READ_OR_WRITE == READ_OR_WRITE
        listed = self.acl(path)
        groups = {who.removeprefix("group ") for who in listed if who.startswith("group ")}
        if mode >> 3 & READ_OR_WRITE == READ_OR_WRITE:
            groups.add(self.group(path))
        in_one = any(self.user in (self.members(group) or set()) for group in groups)
        return in_one or f"user {self.user}" in listed or mode & READ_OR_WRITE == READ_OR_WRITE


def this_host(socket_directory: str, system_directory: str) -> Host:
    """The host that this runs on, for a daemon with sockets in that directory."""
    system = socket_directory == system_directory
    return Host(system=system, user=SYSTEM_USER if system else user_name(os.getuid()))
