"""What a service manager and the daemon say to each other: sockets passed, readiness, signs of life, the end.

systemd's protocol, as its manual tells it; without a service manager nothing of it happens.

Source: systemd, sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3), systemd.service(5) (Type=notify, WatchdogSec=).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from hwtool.policy import Role

FIRST_PASSED: Final = 3  # sd_listen_fds(3): SD_LISTEN_FDS_START
SOCKETS_HINT: Final = "agent.sock and operator.sock, or FileDescriptorName=agent and operator"
SIGNS_A_PERIOD: Final = 3  # sd_watchdog_enabled(3) recommends twice as often as is wanted, at least


class ServeError(Exception):
    """The daemon cannot serve; one sentence that says why."""


def activated(system_install: bool) -> dict[Role, socket.socket]:
    """The sockets that a service manager has passed (LISTEN_FDS), by role; their file belongs to it.

    Which is which is told by its name (LISTEN_FDNAMES), else by the file it is bound to.

    Raises:
        ServeError: one of them is none that this daemon listens on.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    count = _count(os.environ.pop("LISTEN_FDS", "0"))
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    del os.environ["LISTEN_PID"]
    found: dict[Role, socket.socket] = {}
    for index in range(count):
        try:
            passed = socket.socket(fileno=FIRST_PASSED + index)
        except OSError as error:
            raise ServeError(
                f"descriptor {FIRST_PASSED + index} of LISTEN_FDS is no socket: {error.strerror}"
            ) from error
        passed.set_inheritable(False)
        passed.setblocking(False)
        _check_passed(passed, system_install)
        name = names[index] if index < len(names) else ""
        bound = str(passed.getsockname()) if passed.family == socket.AF_UNIX else ""
        for role in ("agent", "operator"):
            if name in (role, f"{role}.sock") or Path(bound).name == f"{role}.sock":
                if role in found:
                    raise ServeError(f"the service manager passed two sockets for {role}s: one, please")
                found[role] = passed
                break
        else:
            raise ServeError(f"the service manager passed a socket that is nobody's ({name or bound}): {SOCKETS_HINT}")
    return found


def _check_passed(passed: socket.socket, system_install: bool) -> None:
    """A passed socket must be one that this daemon would make: local, of lines, and shut to strangers.

    Raises:
        ServeError: it is not.
    """
    listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM or not listening:
        raise ServeError("the service manager passed a socket that is no listening local stream: ListenStream=/a/path")
    path = Path(str(passed.getsockname()))
    if not system_install and path.exists() and path.stat().st_mode & 0o002:  # nobody's groups are asked for there
        raise ServeError(f"{path}: everybody may write to it, and anybody would be served: SocketMode=0660 or less")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ServeError(f"LISTEN_FDS is {text!r}: the number of sockets passed, please (sd_listen_fds(3))")
    return int(text)


def notify(*words: str) -> None:
    """Tell the service manager, if there is one; one that does not listen is not waited for."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        try:
            manager.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            manager.sendall("\n".join(words).encode())
        except OSError as error:
            print(f"hwtool: the service manager cannot be told: {error.strerror}", file=sys.stderr, flush=True)


def notify_ready(status: str) -> None:
    """Say once that requests are taken: on stderr, and to the service manager where there is one."""
    print("hwtool: ready", file=sys.stderr, flush=True)
    notify("READY=1", f"STATUS={status}")


def watchdog_s() -> float | None:
    """How often the service manager wants a sign of life, in seconds; None: never, or of another process."""
    period = os.environ.get("WATCHDOG_USEC", "")
    wanted_of = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not period.isdecimal() or not int(period) or wanted_of != str(os.getpid()):
        return None
    return int(period) / 1e6


async def signs_of_life(period_s: float, alive: Callable[[], Awaitable[object]]) -> None:
    """Give signs of life for as long as `alive` answers: a loop that hangs gives none, and neither does a store.

    A bus that is wedged is no reason: the others serve on, and a restart would leave what it was asked unknown.
    """
    while True:
        await alive()
        notify("WATCHDOG=1")
        await asyncio.sleep(period_s / SIGNS_A_PERIOD)
