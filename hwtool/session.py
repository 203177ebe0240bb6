"""The protocol without sockets: JSON-RPC 2.0, one object a line, for the client's side. Plain dicts, standard library.

Requests get numbers; replies come in any order and are matched by them; notifications (`event`) have none. A line that
is no reply is an error of the connection, not of a request.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, Literal

MAX_LINE_BYTES: Final = 1 << 20
SYSTEM_DIRECTORY: Final = Path("/run/hwtool")
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
        self.replies: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []

    def request(self, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
        """The number of a request and its line.

        Raises:
            ProtocolError: the line is longer than the protocol allows.
        """
        number = self._next_id
        self._next_id += 1
        envelope = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        line = json.dumps(envelope, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ProtocolError(f"the request has {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
        return number, line

    def feed(self, data: bytes) -> None:
        """Take bytes that came; whole lines become replies and events.

        Raises:
            ProtocolError: a line is not of the protocol.
        """
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            envelope = json.loads(line)
        except ValueError as error:
            raise ProtocolError(f"not JSON: {line[:80]!r}") from error
        if not isinstance(envelope, dict):
            raise ProtocolError(f"not an object: {line[:80]!r}")
        if envelope.get("method") == "event":
            self.events.append(envelope.get("params") or {})
            return
        number = envelope.get("id")
        if isinstance(number, int):
            self.replies[number] = envelope
        elif "error" in envelope:
            refused = envelope["error"]
            raise ProtocolError(str(refused.get("message")), refused.get("code"))

    def result(self, number: int) -> dict[str, Any] | None:
        """The result of a request, None if it has not come.

        Raises:
            ProtocolError: the envelope was refused.
        """
        envelope = self.replies.pop(number, None)
        if envelope is None:
            return None
        if "error" in envelope:
            refused = envelope["error"]
            raise ProtocolError(str(refused.get("message")), refused.get("code"))
        result: dict[str, Any] = envelope["result"]
        return result


def socket_directory(option: str | None) -> Path:
    """Where the sockets are: the option, HWTOOL_SOCKET, the runtime directory, the system's directory."""
    if option:
        return Path(option)
    if os.environ.get("HWTOOL_SOCKET"):
        return Path(os.environ["HWTOOL_SOCKET"])
    if os.environ.get("XDG_RUNTIME_DIR"):
        return Path(os.environ["XDG_RUNTIME_DIR"]) / "hwtool"
    return SYSTEM_DIRECTORY


def socket_path(directory: Path, role: Role) -> Path:
    """The socket of a role in a directory."""
    return directory / f"{role}.sock"
