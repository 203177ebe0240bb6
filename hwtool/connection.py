"""One blocking connection to the daemon: requests out, results and events in, as plain dicts. Standard library only.

It knows nothing of keys and repeats nothing: hwtool.recovering decides what follows when it breaks.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from hwtool.losses import ConnectionLost, NoReply, unreached
from hwtool.session import ProtocolError, Role, Session, socket_directory, socket_path

CHUNK = 1 << 16


class Connection:
    """One connection to the daemon.

    Args:
        directory: where the sockets are; None: found as the command line finds it.
        role: which of the two sockets.
        timeout_s: how long to wait for any one reply; None: for ever.

    Raises:
        NoDaemon: nobody listens.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, role: Role = "agent", timeout_s: float | None = None
    ) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: more than 0, or None for ever")
        path = socket_path(socket_directory(None if directory is None else os.fspath(directory)), role)
        self._session = Session()
        self._process = os.getpid()
        self._timeout_s = timeout_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))  # blocking: with a time-out a full backlog would be an error (EAGAIN)
        except OSError as error:
            self._socket.close()
            raise unreached(path, error) from error

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ended(self) -> bool:
        """Whether it is of no use any more, as far as can be seen without sending anything.

        The daemon has hung up, or this is a fork of the process that made it: replies would go to either.
        """
        if os.getpid() != self._process:
            return True
        try:
            waiting = select.poll()
            waiting.register(self._socket, select.POLLIN)
            return bool(waiting.poll(0)) and not self._socket.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def post(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request without waiting for its reply; answers its number.

        Raises:
            ConnectionLost: it could not be sent whole.
            ValueError: it holds what JSON has no word for; nothing was sent.
        """
        if os.getpid() != self._process:
            raise ConnectionLost("a connection is not shared with a fork of its process; make a new one there")
        number, line = self._session.request(method, dict(params or {}))
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(line)
        except OSError as error:
            raise ConnectionLost(f"{method}: {error}") from error
        return number

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request and its result, whatever it is.

        Raises:
            ConnectionLost: the daemon went away after the request was sent.
            NoReply: none came in time; the connection can go on being used.
            ProtocolError: the envelope was refused.
        """
        number = self.post(method, params)
        until_s = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        try:
            while (result := self._session.result(number)) is None:
                self._take(until_s, method)
        except TimeoutError:
            self._session.forget(number)
            raise NoReply(f"{method}: no reply within {self._timeout_s:g} s; it goes on all the same") from None
        except BaseException:
            self._session.forget(number)
            raise
        return result

    def events(self, deadline_s: float | None = None) -> Iterator[dict[str, Any]]:
        """Events of this connection's subscriptions as they come, until a time of the monotonic clock.

        Raises:
            TimeoutError: the deadline has passed.
            ConnectionLost: the daemon went away.
        """
        while True:
            while self._session.events:
                yield self._session.events.pop(0)
            self._take(deadline_s, "events")

    def _take(self, until_s: float | None, what: str) -> None:
        """Wait for bytes, and take them.

        Raises:
            TimeoutError: none came until then.
        """
        rest_s = None if until_s is None else until_s - time.monotonic()
        if rest_s is not None and rest_s <= 0:
            raise TimeoutError
        try:
            self._socket.settimeout(rest_s)
            data = self._socket.recv(CHUNK)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(f"{what}: {error}") from error
        if not data:
            raise ConnectionLost(f"the daemon hung up during {what}")
        try:
            self._session.feed(data)
        except ProtocolError as error:  # of a line that is no reply: whose request it was cannot be told
            raise ConnectionLost(f"{what}: {error}") from error
