"""The protocol without sockets: JSON-RPC 2.0, one object a line, for the client's side. Plain dicts, standard library.

Requests get numbers; replies come in any order and are matched by them; notifications (`event`) have none. A line that
is no reply is an error of the connection, not of a request.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, Literal

MAX_LINE_BYTES: Final = 1 << 20
MAX_REPLY_BYTES: Final = 64 << 20
SYSTEM_DIRECTORY: Final = "/run/hwtool"
Role = Literal["agent", "operator"]


class ProtocolError(Exception):
    """The other end does not speak the protocol, or refused the envelope; carries the JSON-RPC code if there is one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Session:
    """Numbers requests and matches replies; feeds on bytes and gives bytes."""

    def __init__(self) -> None:
        self._next_id = 1
        self._buffer = b""
        self._skipping = False
        self._forgotten: set[int] = set()
        self.replies: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []

    def request(self, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
        """The number of a request and its line.

        Raises:
            ProtocolError: the line is longer than the protocol allows.
            ValueError: it holds what JSON has no word for: NaN, an infinity, half a surrogate pair. Nothing was sent.
        """
        number = self._next_id
        self._next_id += 1
        envelope = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        line = json.dumps(envelope, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ProtocolError(f"the request has {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
        return number, line

    def feed(self, data: bytes) -> None:
        """Take bytes that came; whole lines become replies and events.

        Raises:
            ProtocolError: a line is not of the protocol.
        """
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        too_long = ProtocolError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
        wrong: ProtocolError | None = None
        for line in lines:
            skipped, self._skipping = self._skipping, False
            try:
                if len(line) > MAX_REPLY_BYTES:
                    raise too_long
                if not skipped:
                    self._line(line)
            except ProtocolError as error:
                wrong = wrong or error  # the other lines of this piece still count
        if len(self._buffer) > MAX_REPLY_BYTES:
            self._buffer = b""
            wrong = wrong or (None if self._skipping else too_long)
            self._skipping = True  # up to its end
        if wrong is not None:
            raise wrong

    def _line(self, line: bytes) -> None:
        try:
            envelope = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"not JSON: {line[:80]!r}") from error
        if not isinstance(envelope, dict):
            raise ProtocolError(f"not an object: {line[:80]!r}")
        if envelope.get("method") == "event":
            told = envelope.get("params")
            if not isinstance(told, dict):
                raise ProtocolError(f"an event without members: {line[:80]!r}")
            self.events.append(told)
            return
        number = envelope.get("id")
        if isinstance(number, int) and not isinstance(number, bool):
            if number in self._forgotten:
                self._forgotten.discard(number)
            else:
                self.replies[number] = envelope
        elif "error" in envelope:
            raise _refused(envelope["error"])

    def forget(self, number: int) -> None:
        """Nobody waits for the result of a request any more: it is dropped when it comes."""
        self._forgotten.add(number)

    def result(self, number: int) -> dict[str, Any] | None:
        """The result of a request, None if it has not come.

        Raises:
            ProtocolError: the envelope was refused.
        """
        envelope = self.replies.pop(number, None)
        if envelope is None:
            return None
        if "error" in envelope:
            raise _refused(envelope["error"])
        result = envelope.get("result")
        if not isinstance(result, dict):
            raise ProtocolError("a reply without result")
        return result


def _refused(error: object) -> ProtocolError:
    """What a JSON-RPC error says."""
    if not isinstance(error, dict):
        return ProtocolError(f"an error without members: {str(error)[:80]}")
    code = error.get("code")
    return ProtocolError(str(error.get("message")), code if isinstance(code, int) else None)


def socket_directory(option: str | None, *, serves: bool = False) -> str:
    """Where the sockets are: the option, HWTOOL_SOCKET, the runtime directory, the system's directory.

    Args:
        serves: they are to be made. Whoever looks for them goes on to the system's directory where nobody has made any
            in the runtime directory.
    """
    if option:
        return option
    if os.environ.get("HWTOOL_SOCKET"):
        return os.environ["HWTOOL_SOCKET"]
    if os.environ.get("XDG_RUNTIME_DIR"):
        own = os.path.join(os.environ["XDG_RUNTIME_DIR"], "hwtool")  # noqa: PTH118  # pathlib costs every start
        if serves or os.path.isdir(own) or not os.path.isdir(SYSTEM_DIRECTORY):  # noqa: PTH112
            return own
    return SYSTEM_DIRECTORY


def socket_path(directory: str, role: Role) -> str:
    """The socket of a role in a directory."""
    return os.path.join(directory, f"{role}.sock")  # noqa: PTH118
