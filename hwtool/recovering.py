"""What a client does for one call, and when the connection breaks under it: decisions without sockets.

Rules
- A call is sent once. It is sent again only if it merely looks (`Call.repeatable`).
- After a loss a keyed call is not repeated: the daemon is asked what its key is bound to, with the request itself, so
  that the record of another request under the same key is a `KeyConflict` and never mistaken for this one's.
- The record answers as the call would have. No record: `NeverSent`; whoever made the call decides.
- A key is never made here.

`conversation` yields what must be done and is told what came of it; the blocking and the asyncio client do the same.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from hwtool.attempts import check_key
from hwtool.calls import Call
from hwtool.failures import CallFailed, failure
from hwtool.losses import Closed, ConnectionLost, NeverSent, NoDaemon, NoReply
from hwtool.replies import Result
from hwtool.session import ProtocolError

T = TypeVar("T")
WAIT_MS: Final = 25_000
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # a supervisor starts the daemon again within seconds
KEY_BYTES: Final = 16


class Connect(NamedTuple):
    """Have a connection that the daemon has not hung up; a new one if need be. Answer: None."""


class Ask(NamedTuple):
    """Send a request and wait for its result. Answer: the result as it came."""

    method: str
    params: dict[str, Any]


class Pause(NamedTuple):
    """Wait so long: the daemon may be starting again. Answer: None."""

    seconds: float


Step = Connect | Ask | Pause
Conversation = Generator[Step, dict[str, Any] | None, T]


def new_key(prefix: str = "py-") -> str:
    """A key that nobody has used: random, 128 bits.

    Keep it where it outlives the program, if the program itself can die: the same key asks again, a new one acts again.
    """
    return prefix + os.urandom(KEY_BYTES).hex()


def conversation(call: Call[T], run: int | None = None) -> Conversation[T]:
    """One call to its end.

    Args:
        run: the run that is open around it.

    Raises:
        CallFailed: the daemon says so; the subclass says which error.
        NoDaemon, ConnectionLost, NeverSent, NoReply: as hwtool.losses tells.
        ProtocolError: the envelope was refused, or the answer has not the shape of a result.
        FreshKeyInRetry: a retry policy would have done an effect twice.
    """
    params = dict(call.params)
    if call.in_run and run is not None:
        params.setdefault("run", run)
    effect = check_key(call)
    try:
        yield Connect()
        made = _made(call, (yield from _told(call, params)))
    except (NoDaemon, NeverSent, Closed):
        effect.never_was()
        raise
    except CallFailed as error:
        effect.ended(error.effects)
        raise
    if isinstance(made, Result):
        effect.ended(made.effects)
    return made


def _told(call: Call[Any], params: dict[str, Any]) -> Conversation[dict[str, Any] | None]:
    """What the daemon says of a call, or of its key."""
    try:
        told = yield Ask(call.method, params)
    except NoReply:
        raise
    except ConnectionLost as lost:
        return (yield from _after_loss(call, params, lost))
    answered = None if told is None else told.get("key")
    if call.key is not None and answered not in (None, call.key):
        other = ConnectionLost(f"{call.method} under key {call.key} was answered with key {answered}")
        return (yield from _after_loss(call, params, other))
    return told


def _made(call: Call[T], told: dict[str, Any] | None) -> T:
    try:
        result = Result(told or {})
        if result.status == "failed":
            raise failure(result)
        return call.make(result)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"{call.method}: the answer has not the shape of a result: {error!r}") from error


def _after_loss(call: Call[Any], params: dict[str, Any], lost: ConnectionLost) -> Conversation[dict[str, Any] | None]:
    """The reply did not come: what is known of the call."""
    if call.repeatable:
        return (yield from _looked(Ask(call.method, params), lost, ""))
    if call.key is None:
        raise lost
    key = call.key
    inner = {name: value for name, value in params.items() if name != "key"}
    record = Ask("op.get", {"key": key, "request": {"method": call.method, "params": inner}})
    advice = f"; when it is back, ask op_get(key={key!r}) before anything else"
    while True:
        recorded = yield from _looked(record, lost, advice)
        if recorded is None or recorded.get("status") != "in_progress":
            break
        yield from _looked(Ask("op.wait", {"key": key, "wait_ms": WAIT_MS}), lost, advice)
    error = None if recorded is None else recorded.get("error")
    if isinstance(error, dict) and error.get("code") == "not_found":
        raise NeverSent(
            f"{lost}; the daemon has no record of key {key}: nothing was sent to the device under it, and the same "
            "call may be made again with it"
        ) from lost
    return recorded


def _looked(ask: Ask, lost: ConnectionLost, advice: str) -> Conversation[dict[str, Any] | None]:
    """Ask what only looks, over a new connection, until the daemon answers or has been away for too long.

    Raises:
        ConnectionLost: it stays away.
    """
    for pause_s in (*PAUSES_S, None):
        try:
            yield Connect()
            return (yield ask)
        except NoReply:
            raise
        except Closed as gone:
            raise ConnectionLost(f"{lost}; the client was closed{advice}") from gone
        except (NoDaemon, ConnectionLost) as gone:
            if pause_s is None:
                raise ConnectionLost(f"{lost}; the daemon is gone{advice}") from gone
            yield Pause(pause_s)
    return None
