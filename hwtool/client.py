"""The synchronous client: a connection, the methods with names and types, one exception for each error code.

It never repeats an effect and never mints a key of its own: after a lost connection it says so, and the caller asks
`op_get` with the key before anything else. Light: standard library and the error catalogue only.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hwtool.session import Role, Session, socket_directory, socket_path
from hwtool_contracts.errors import Code, explain, parse


class NoDaemon(Exception):
    """Nobody listens on the socket; the request was not sent."""


class ConnectionLost(Exception):
    """The connection broke after the request was sent: ask op_get with the key before anything else."""


class CallFailed(Exception):
    """A result with status `failed`.

    Attributes:
        code: of the catalogue.
        result: the whole result.
        effects: what was observed of the device: applied, none or unknown.
    """

    code: Code

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result
        self.effects: str = result["effects"]
        super().__init__(explain(result["error"], self.effects))


class InvalidArgs(CallFailed):
    """See the catalogue: invalid_args."""

    code = Code.INVALID_ARGS


class NotFound(CallFailed):
    """See the catalogue: not_found."""

    code = Code.NOT_FOUND


class Denied(CallFailed):
    """See the catalogue: denied."""

    code = Code.DENIED


class Refused(CallFailed):
    """See the catalogue: refused."""

    code = Code.REFUSED


class Stale(CallFailed):
    """See the catalogue: stale."""

    code = Code.STALE


class PreconditionFailed(CallFailed):
    """See the catalogue: precondition_failed."""

    code = Code.PRECONDITION_FAILED


class Expired(CallFailed):
    """See the catalogue: expired."""

    code = Code.EXPIRED


class KeyConflict(CallFailed):
    """See the catalogue: key_conflict."""

    code = Code.KEY_CONFLICT


class KeyExpired(CallFailed):
    """See the catalogue: key_expired."""

    code = Code.KEY_EXPIRED


class RateLimited(CallFailed):
    """See the catalogue: rate_limited."""

    code = Code.RATE_LIMITED


class Busy(CallFailed):
    """See the catalogue: busy."""

    code = Code.BUSY


class Unavailable(CallFailed):
    """See the catalogue: unavailable."""

    code = Code.UNAVAILABLE


class BusFault(CallFailed):
    """See the catalogue: bus_fault."""

    code = Code.BUS_FAULT


class Timeout(CallFailed):
    """See the catalogue: timeout."""

    code = Code.TIMEOUT


class OutcomeUnknown(CallFailed):
    """See the catalogue: outcome_unknown."""

    code = Code.OUTCOME_UNKNOWN


class ValueLost(CallFailed):
    """See the catalogue: value_lost."""

    code = Code.VALUE_LOST


class NotApplied(CallFailed):
    """See the catalogue: not_applied."""

    code = Code.NOT_APPLIED


class Held(CallFailed):
    """See the catalogue: held."""

    code = Code.HELD


class RunHalted(CallFailed):
    """See the catalogue: run_halted."""

    code = Code.RUN_HALTED


class ApprovalDenied(CallFailed):
    """See the catalogue: approval_denied."""

    code = Code.APPROVAL_DENIED


class ApprovalExpired(CallFailed):
    """See the catalogue: approval_expired."""

    code = Code.APPROVAL_EXPIRED


class StoreFailed(CallFailed):
    """See the catalogue: store_failed."""

    code = Code.STORE_FAILED


class Internal(CallFailed):
    """See the catalogue: internal."""

    code = Code.INTERNAL


ALL_FAILURES: tuple[type[CallFailed], ...] = (
    InvalidArgs, NotFound, Denied, Refused, Stale, PreconditionFailed, Expired, KeyConflict, KeyExpired, RateLimited,
    Busy, Unavailable, BusFault, Timeout, OutcomeUnknown, ValueLost, NotApplied, Held, RunHalted, ApprovalDenied,
    ApprovalExpired, StoreFailed, Internal,
)  # fmt: skip
FAILURES: dict[Code, type[CallFailed]] = {kind.code: kind for kind in ALL_FAILURES}


class Client:
    """One connection to the daemon.

    Args:
        directory: where the sockets are; None: found as the command line finds it.
        role: which of the two sockets.
        timeout_s: how long to wait for any one reply; None: for ever.
    """

    def __init__(
        self, directory: str | Path | None = None, role: Role = "agent", timeout_s: float | None = None
    ) -> None:
        path = socket_path(socket_directory(None if directory is None else str(directory)), role)
        self._session = Session()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))  # blocking: with a time-out a full backlog would be an error (EAGAIN)
        except OSError as error:
            self._socket.close()
            raise NoDaemon(f"no daemon on {path}: {error.strerror or error}; start one with hwtool serve") from error
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def post(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request without waiting for its reply; answers its number.

        Raises:
            ConnectionLost: it could not be sent whole.
        """
        number, line = self._session.request(method, dict(params or {}))
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise ConnectionLost(f"{method}: {error}") from error
        return number

    def events(self, deadline_s: float | None = None) -> Iterator[dict[str, Any]]:
        """Events of this connection's subscriptions as they come, until a time of the monotonic clock.

        Raises:
            TimeoutError: the deadline has passed.
            ConnectionLost: the daemon went away.
        """
        while True:
            while self._session.events:
                yield self._session.events.pop(0)
            rest_s = None if deadline_s is None else deadline_s - time.monotonic()
            if rest_s is not None and rest_s <= 0:
                raise TimeoutError
            self._socket.settimeout(rest_s)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectionLost(f"events: {error}") from error
            if not data:
                raise ConnectionLost("the daemon hung up")
            self._session.feed(data)

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request and its result, whatever it is.

        Raises:
            ConnectionLost: the daemon went away after the request was sent.
            ProtocolError: the envelope was refused.
        """
        number = self.post(method, params)
        try:
            while (result := self._session.result(number)) is None:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise ConnectionLost(f"the daemon hung up during {method}")
                self._session.feed(data)
        except OSError as error:
            raise ConnectionLost(f"{method}: {error}") from error
        return result

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One request; members that are None are left out.

        Raises:
            CallFailed: the result's status is failed; the subclass says which error.
            ConnectionLost: the daemon went away after the request was sent.
        """
        return self._checked(self.ask(method, {name: value for name, value in params.items() if value is not None}))

    @staticmethod
    def _checked(result: dict[str, Any]) -> dict[str, Any]:
        if result["status"] == "failed":
            error = parse(result["error"])
            raise FAILURES[Code(error["code"])](result) if error is not None else CallFailed(result)
        return result

    def describe(self, topic: str | None = None) -> dict[str, Any]:
        """Who the daemon is, and what this connection may do."""
        return self.call("describe", topic=topic)

    def devices(self) -> list[dict[str, Any]]:
        """Every device of the board."""
        found: list[dict[str, Any]] = self.call("device.list")["devices"]
        return found

    def find(self, query: str = "", device: str | None = None) -> list[dict[str, Any]]:
        """Registers that match."""
        found: list[dict[str, Any]] = self.call("reg.find", query=query, device=device)["matches"]
        return found

    def read(self, *registers: str) -> list[dict[str, Any]]:
        """Clean reads of one device; may be repeated."""
        values: list[dict[str, Any]] = self.call("reg.read", registers=list(registers))["values"]
        return values

    def read_effectful(self, register: str, *, key: str, count: int | None = None, **more: Any) -> dict[str, Any]:
        """A read that changes the device, once under this key."""
        return self.call("reg.read_effectful", register=register, key=key, count=count, **more)

    def write(self, register: str, value: int | str | dict[str, str], *, key: str, **more: Any) -> dict[str, Any]:
        """Write a whole register, once under this key."""
        return self.call("reg.write", register=register, value=value, key=key, **more)

    def update(self, register: str, fields: Mapping[str, Any], *, key: str, **more: Any) -> dict[str, Any]:
        """Change fields of a register, once under this key."""
        return self.call("reg.update", register=register, fields=dict(fields), key=key, **more)

    def sequence(self, steps: Sequence[Mapping[str, Any]], *, key: str, **more: Any) -> dict[str, Any]:
        """Steps on one bus under one key, until the first that is not proven."""
        return self.call("sequence.run", steps=[dict(step) for step in steps], key=key, **more)

    def named_sequence(self, name: str, *, key: str, **more: Any) -> dict[str, Any]:
        """A sequence of a device's contract, `DEVICE.SEQUENCE`; `params` are the values it asks for."""
        return self.call("sequence.run", sequence=name, key=key, **more)

    def safe_state(self, device: str, *, key: str, **more: Any) -> dict[str, Any]:
        """Write what the board lists as safe for a device, at once and past whatever holds it."""
        return self.call("device.safe_state", device=device, key=key, **more)

    def plan(self, planned: str, **params: Any) -> list[dict[str, Any]]:
        """The exact transfers that a keyed request (`planned`: its method) would send."""
        result = self.ask("reg.plan", {"method": planned, "params": params})
        transfers: list[dict[str, Any]] = self._checked(result)["transfers"]
        return transfers

    def op_get(self, *, id: int | None = None, key: str | None = None, verify: bool | None = None) -> dict[str, Any]:
        """What became of an operation; raises as its own request would."""
        return self.call("op.get", id=id, key=key, verify=verify)
