"""A keyed request on its way in: understood or not, and what is checked of a fresh key before it waits for anything.

Nothing here is said before the key has been looked up; a refusal leaves the key unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwtool.devices import Device, stale
from hwtool.digest import digest_input, digest_of
from hwtool.policy import Caller
from hwtool.resolve import Resolved, resolve_read, resolve_update, resolve_write
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import ReadEffectfulParams, UpdateParams, WriteParams
from hwtool_store import operations

KeyedParams = ReadEffectfulParams | WriteParams | UpdateParams


@dataclass(frozen=True)
class Request:
    """One keyed request on its way.

    Attributes:
        resolved: None where `error` says why it could not be understood or is not allowed.
        content: what the digest covers; None with `resolved`.
        expires_boottime_ns: deadline of `not_after` on CLOCK_BOOTTIME.
    """

    caller: Caller
    params: KeyedParams
    resolved: Resolved | None
    error: DomainError | None
    content: dict[str, Any] | None
    digest: bytes
    expires_boottime_ns: int | None

    @property
    def device(self) -> Device | None:
        """The device it is about, where it was understood."""
        return None if self.resolved is None else self.resolved.device


def resolve(daemon: Daemon, params: KeyedParams) -> Resolved:
    """Understand and judge a keyed request.

    Raises:
        DomainError: not_found, invalid_args or refused.
    """
    match params:
        case ReadEffectfulParams():
            return resolve_read(daemon.devices, params)
        case WriteParams():
            return resolve_write(daemon.devices, params)
        case UpdateParams():
            return resolve_update(daemon.devices, params)


def request_of(daemon: Daemon, caller: Caller, params: KeyedParams) -> Request:
    """A request as everything after it needs it; what is wrong with it is kept for after the key."""
    resolved: Resolved | None = None
    error: DomainError | None = None
    try:
        resolved = resolve(daemon, params)
    except DomainError as found:
        error = found
    content = None if resolved is None else digest_input(resolved)
    secret = daemon.store.secret if resolved is not None and resolved.sensitive else None
    digest = b"" if content is None else digest_of(content, secret)
    expires = None
    if params.not_after is not None:
        rest_ns = params.not_after * 1_000_000 - daemon.clock.wall_ns()
        expires = daemon.clock.boottime_ns() + rest_ns
    return Request(caller, params, resolved, error, content, digest, expires)


async def admit(daemon: Daemon, request: Request, device: Device) -> None:
    """What is checked of a fresh key before it waits for anything.

    Raises:
        DomainError: the key stays unused.
    """
    params = request.params
    if request.caller.keyless:
        reason = "the connection's user is not known to this host"
        raise DomainError(Code.DENIED, f"no keyed method for it: {reason}", reason=reason, required="a known user")
    if daemon.stopping:
        raise DomainError(Code.UNAVAILABLE, "the daemon is stopping", reason="stopping", retry_after_ms=1000)
    await _check_seen_store(daemon, request, device)
    device.check_seen(params.generation, params.contract_digest)
    check_time(daemon, request, after_intent=False)
    held = device.held()
    if held is not None:
        raise held


async def _check_seen_store(daemon: Daemon, request: Request, device: Device) -> None:
    """A caller that saw more than this store has recorded: the store was set back. The device is held."""
    seen = request.params.store
    if seen is None:
        return
    store = daemon.store
    if seen.id != str(store.store_id):
        raise stale("store", seen.id, str(store.store_id))
    if seen.seq > store.seq:
        why = f"a caller saw record {seen.seq}, the store has {store.seq}: it was set back"
        now_ns = daemon.clock.wall_ns()
        if not request.params.dry_run:  # a rehearsal says it, and changes nothing
            body = daemon.body("hold", request.caller, None, device=device.name, summary=why)
            device.put_hold("hwtool", why, now_ns)
            await daemon.ask(lambda conn: operations.put_hold(conn, device.locus, "hwtool", why, now_ns, body))
        raise stale("store", seen.seq, store.seq)


def check_time(daemon: Daemon, request: Request, *, after_intent: bool) -> None:
    """Refuse what comes after its not_after.

    Raises:
        DomainError: expired.
    """
    expires = request.expires_boottime_ns
    now = daemon.clock.boottime_ns()
    if expires is not None and now > expires:
        raise DomainError(
            Code.EXPIRED,
            f"not_after has passed by {(now - expires) // 1_000_000} ms; nothing was dispatched",
            after_intent=after_intent,
            not_after=request.params.not_after,
            now=daemon.clock.wall_ns() // 1_000_000,
        )


def understood(request: Request) -> Resolved:
    """The resolution of a request that has no error.

    Raises:
        DomainError: internal; its error should have been said before.
    """
    if request.resolved is None:
        raise DomainError(Code.INTERNAL, "a request without resolution got past its error")
    return request.resolved
