"""The daemon's store and its sockets: where they are, who may use them, and what that makes of the approval mode."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hwtool.buses import taken_and_left
from hwtool.config import ApprovalMode, Board
from hwtool.connection import Connection
from hwtool.doctor.finding import Finding, Status
from hwtool.doctor.host import Daemon, Host, user_name
from hwtool.losses import ConnectionLost, NoDaemon, NoReply
from hwtool.policy import AGENT_GROUP, OPERATOR_GROUP
from hwtool.session import ProtocolError, Role, socket_path
from hwtool_store.fitness import fitness_of

SLOW_SYNC_MS: Final = 20.0
PATIENCE_S: Final = 5.0
LOCK: Final = "lock"  # of a store: hwtool_store.place
ROLES: Final[tuple[Role, ...]] = ("agent", "operator")
OF_GROUP: Final = {"agent": AGENT_GROUP, "operator": OPERATOR_GROUP}


def daemon_of(store: Path, host: Host) -> Daemon:
    """The daemon that has this store, by the kernel's list of locks; nothing is locked, and nobody is asked.

    Source: Linux Documentation/filesystems/proc.rst, /proc/locks.
    """
    try:
        inode = (store / LOCK).stat().st_ino
        locks = (host.proc / "locks").read_text(encoding="ascii")
    except FileNotFoundError:
        return Daemon(False)
    except OSError:
        return Daemon(None)
    found = re.search(rf"FLOCK +ADVISORY +WRITE (\d+) [0-9a-f]+:[0-9a-f]+:{inode} ", locks)
    if found is None:
        return Daemon(False)
    try:
        name = (host.proc / found[1] / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        name = "hwtool"
    return Daemon(True, (f"{name} (pid {found[1]})",))


def store_examined(directory: Path, host: Host, daemon: Daemon) -> Iterator[Finding]:
    """The store's directory, and what daemons left there that died."""
    about = str(directory)
    if host.system and os.getuid() != 0 and host.user != user_name(os.getuid()):
        told = f"it is {host.user}'s alone: run this as root"
        yield Finding("store.not_writable", Status.SKIPPED, about, told)
        return
    try:
        seen = fitness_of(directory)
    except OSError as error:
        cure = f"say --store DIR, or let {host.user} in"
        yield Finding("store.not_writable", Status.PROBLEM, about, error.strerror or str(error), cure)
        return
    if seen.refusal is not None:
        cure = f"chown {host.user} {seen.directory}"
        yield Finding("store.not_writable", Status.PROBLEM, about, f"{seen.directory}: {seen.refusal}", cure)
    elif host.system and seen.exists and not host.lets(directory):
        cure = f"chown -R {host.user}: {directory}"
        told = f"it is {host.owner(directory)}'s: {host.user} may not write to it"
        yield Finding("store.not_writable", Status.PROBLEM, about, told, cure)
    else:
        told = "it can be written" if seen.exists else f"it will be made in {seen.directory}"
        yield Finding("store.not_writable", Status.OK, about, told)
    if seen.unsafe:
        cure = "--store in another directory; --allow-unsafe-store where nothing in it matters"
        told = f"{seen.directory} is on {seen.file_system}, which may lose what was synced"
        yield Finding("store.file_system", Status.PROBLEM, about, told, cure)
    else:
        yield Finding("store.file_system", Status.OK, about, seen.file_system)
    if seen.low is not None:
        make_room = f"make room on {seen.directory}; hwtool store prune"
        yield Finding("store.room", Status.PROBLEM, about, seen.low, make_room)
    if seen.sync_ms is not None:
        slow = seen.sync_ms > SLOW_SYNC_MS
        slower = "another disk: every operation with an effect waits for two of these" if slow else None
        told = f"{seen.sync_ms:.2f} ms for 4 KiB, the median of some"
        yield Finding("store.sync", Status.WARNING if slow else Status.OK, about, told, slower)
    yield Finding("store.sqlite", Status.OK, about, f"{seen.sqlite}: one connection, so no version is too old")
    for url in taken_and_left(directory) if daemon.runs is False else []:
        told = f"{url} was taken from its kernel driver by a daemon that died"
        yield Finding("usb.left_taken", Status.WARNING, str(url), told, f"hwtool give-back --store {directory}")


def sockets_examined(directory: str, host: Host, daemon: Daemon) -> Iterator[Finding]:
    """Both sockets, and the role that this user has on each, where a daemon runs that can be asked."""
    for role in ROLES:
        path = Path(socket_path(directory, role))
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            cure = "systemctl start hwtoold.socket hwtoold-operator.socket" if host.system else "hwtool serve"
            yield Finding("socket.missing", Status.WARNING, str(path), "it is not there: no daemon listens", cure)
            continue
        except OSError as error:
            cure = "run this as root"
            yield Finding("socket.missing", Status.SKIPPED, str(path), error.strerror or str(error), cure)
            continue
        shown = f"{host.owner(path)}:{host.group(path)} {mode & 0o777:04o}"
        if mode & 0o002:
            cure = f"SocketMode=0660 in the unit, or: chmod o= {path}"
            yield Finding("socket.open_to_all", Status.PROBLEM, str(path), f"{shown}: everybody may connect", cure)
        elif host.system and host.group(path) != OF_GROUP[role]:
            cure = f"SocketGroup={OF_GROUP[role]} in the unit"
            told = f"{shown}: it is not of the group {OF_GROUP[role]}"
            yield Finding("socket.open_to_all", Status.PROBLEM, str(path), told, cure)
        else:
            yield Finding("socket.open_to_all", Status.OK, str(path), shown)
        if daemon.runs is True:
            yield role_told(directory, role)
        else:
            told = "no daemon runs that could be asked: a question would start one that waits"
            yield Finding("socket.role", Status.SKIPPED, str(path), told)


def role_told(directory: str, role: Role) -> Finding:
    """What the daemon makes of this user on a socket, in its own words."""
    about = socket_path(directory, role)
    try:
        with Connection(directory, role, PATIENCE_S) as line:
            told = line.ask("describe")
    except NoDaemon as error:
        return Finding("socket.role", Status.SKIPPED, about, str(error))
    except NoReply:
        cure = "look at its log, and at the state of its buses: hwtool metrics"
        return Finding("socket.role", Status.PROBLEM, about, f"the daemon says nothing within {PATIENCE_S:g} s", cure)
    except (ConnectionLost, ProtocolError) as error:
        return Finding("socket.role", Status.SKIPPED, about, f"refused: {error}")
    return Finding("socket.role", Status.OK, about, str(told.get("summary", "")))


def approval_examined(board: Board, directory: str, host: Host) -> Iterator[Finding]:
    """Whether the board's approval mode holds here: who can be both the one who asks and the one who approves."""
    mode = board.approval_mode
    about = f"approval_mode {mode.value}"

    def not_true(evidence: str, cure: str) -> Finding:
        return Finding("approval.not_true", Status.PROBLEM, about, evidence, cure)

    operators, agents = host.members(OPERATOR_GROUP) or set(), host.members(AGENT_GROUP) or set()
    found = []
    if mode is ApprovalMode.SELF:
        if not board.simulated:
            told = "whoever asks may approve, on real hardware: the board says so"
            found.append(Finding("approval.not_true", Status.WARNING, about, told, 'approval_mode = "separate-user"'))
    elif not host.system:
        told = f"the sockets are in {directory}: every process of {host.user} can open both, so it approves for itself"
        cure = "the system install (hwtool units), or agents under a user of their own"
        found.append(not_true(told, cure))
    else:
        both = sorted((operators & agents) - {"root"})
        if both:
            told = (
                f"{', '.join(both)}: in the groups {AGENT_GROUP} and {OPERATOR_GROUP}, so each is an operator to itself"
            )
            found.append(not_true(told, f"gpasswd -d NAME {OPERATOR_GROUP}"))
        if mode is ApprovalMode.TWO_PERSON and len(operators - {"root"}) < 2:
            told = f"{len(operators - {'root'})} user(s) in {OPERATOR_GROUP}: nobody else can approve what one asks for"
            found.append(not_true(told, f"gpasswd -a NAME {OPERATOR_GROUP}"))
        if mode is ApprovalMode.SEPARATE_USER and not operators - {"root"}:
            told = f"nobody but root is in {OPERATOR_GROUP}"
            cure = f"gpasswd -a NAME {OPERATOR_GROUP}"
            found.append(Finding("approval.not_true", Status.WARNING, about, told, cure))
    yield from found or [Finding("approval.not_true", Status.OK, about, "it holds here")]
