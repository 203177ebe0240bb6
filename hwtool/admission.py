"""A keyed request on its way in: understood or not, and what is checked of a fresh key before it waits for anything.

Nothing here is said before the key has been looked up; a refusal leaves the key unused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from hwtool import permission
from hwtool.config import Board
from hwtool.devices import Device, stale
from hwtool.digest import digest_input, digest_of
from hwtool.leases import check_lease
from hwtool.policy import Caller
from hwtool.resolve import Resolved, resolve_read, resolve_safe_state, resolve_update, resolve_write
from hwtool.runs import Runs
from hwtool.state import Daemon
from hwtool.steps import ResolvedSequence, resolve_sequence, sequence_content
from hwtool_contracts.effects import When
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import ReadEffectfulParams, SafeStateParams, SequenceParams, UpdateParams, WriteParams
from hwtool_store import operations

KeyedParams = ReadEffectfulParams | WriteParams | UpdateParams | SafeStateParams | SequenceParams
FROZEN_RETRY_MS: Final = 60_000
DISK_RETRY_MS: Final = 10_000


@dataclass(eq=False)
class Arrival:
    """When a request came that may have to wait for another one of its connection.

    Attributes:
        place: principal and key, where it will act under one.
        alarms: safe states that had been asked for when it came, by device.
        behind: what came behind it, a safe state: it follows on it, and is not overtaken by it.
    """

    place: tuple[str, str] | None
    alarms: dict[str, int]
    behind: list[Arrival] = field(default_factory=list)
    passed: bool = False

    def passes(self, alarms: dict[str, int]) -> None:
        """Its alarm has been raised, or it has been answered: what came behind it counts from here."""
        for one in [] if self.passed else self.behind:
            one.alarms = alarms
        self.behind.clear()
        self.passed = True


@dataclass(frozen=True)
class Request:
    """One keyed request on its way.

    Attributes:
        resolved: None where `error` says why it could not be understood or is not allowed.
        content: what the digest covers; None with `resolved`.
        expires_boottime_ns: deadline of `not_after` on CLOCK_BOOTTIME.
        watched: devices whose safe states overtake it: its own, or all of its sequence.
        alarms: safe states they had been asked for when it came.
        approval: why a person must agree, by contract, budget and policy; empty if nobody need.
        arrived: when it came, if it may have waited since.
    """

    caller: Caller
    params: KeyedParams
    resolved: Resolved | ResolvedSequence | None
    error: DomainError | None
    content: dict[str, Any] | None
    digest: bytes
    expires_boottime_ns: int | None
    watched: tuple[Device, ...]
    alarms: int
    board: Board
    approval: tuple[str, ...] = ()
    arrived: Arrival | None = None

    @property
    def device(self) -> Device | None:
        """The device it is about, where it was understood and is one."""
        return self.resolved.device if isinstance(self.resolved, Resolved) else None

    @property
    def safe(self) -> bool:
        """Whether it passes what stops others."""
        return isinstance(self.params, SafeStateParams)

    @property
    def queue_ms(self) -> int | None:
        """How long it will wait for its turn, None: as long as it takes."""
        return None if isinstance(self.params, SafeStateParams) else self.params.queue_ms

    @property
    def run(self) -> int | None:
        """The run it belongs to."""
        return None if isinstance(self.params, SafeStateParams) else self.params.run

    def overtaken(self) -> bool:
        """Whether a safe state has been asked for since it came, on a device that matters to it."""
        return alarms_of(self.watched) != self.alarms


def alarms_of(devices: tuple[Device, ...]) -> int:
    """How many safe states have been asked for on these devices so far."""
    return sum(d.lock.alarms for d in devices)


def resolve(daemon: Daemon, params: KeyedParams) -> Resolved | ResolvedSequence:
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
        case SafeStateParams():
            return resolve_safe_state(daemon.devices, params)
        case SequenceParams():
            return resolve_sequence(daemon.devices, params)


def content_of(resolved: Resolved | ResolvedSequence) -> dict[str, Any]:
    """What the digest of a request covers."""
    return sequence_content(resolved) if isinstance(resolved, ResolvedSequence) else digest_input(resolved)


def request_of(daemon: Daemon, caller: Caller, params: KeyedParams, arrived: Arrival | None = None) -> Request:
    """A request as everything after it needs it; what is wrong with it is kept for after the key.

    Args:
        arrived: when it came, if that was earlier.
    """
    resolved: Resolved | ResolvedSequence | None = None
    error: DomainError | None = None
    try:
        resolved = resolve(daemon, params)
    except DomainError as found:
        error = found
    content = None if resolved is None else content_of(resolved)
    secret = daemon.store.secret if resolved is not None and resolved.sensitive else None
    digest = b"" if content is None else digest_of(content, secret)
    expires = None
    if params.not_after is not None:
        rest_ns = params.not_after * 1_000_000 - daemon.clock.wall_ns()
        expires = daemon.clock.boottime_ns() + rest_ns
    watched = () if resolved is None else resolved.devices
    before = {} if arrived is None else arrived.alarms
    alarms = sum(before.get(d.name, d.lock.alarms) for d in watched)
    made = Request(caller, params, resolved, error, content, digest, expires, watched, alarms, daemon.board)
    return replace(made, arrived=arrived)


def part_of(daemon: Daemon, request: Request, step: Resolved, params: KeyedParams, content: dict[str, Any]) -> Request:
    """The request of one step of a sequence: its own key and digest; caller, deadline and alarms of the whole."""
    digest = digest_of(content, daemon.store.secret if step.sensitive else None)
    return replace(request, params=params, resolved=step, content=content, digest=digest)


async def admit(daemon: Daemon, request: Request, devices: tuple[Device, ...]) -> None:
    """What is checked of a fresh key before it waits for anything.

    Raises:
        DomainError: the key stays unused.
    """
    if request.caller.keyless:
        reason = "the connection's user is not known to this host"
        raise DomainError(Code.DENIED, f"no keyed method for it: {reason}", reason=reason, required="a known user")
    if daemon.stopping:
        raise DomainError(Code.UNAVAILABLE, "the daemon is stopping", reason="stopping", retry_after_ms=1000)
    check_read_only(daemon, request)
    check_verified(request, devices)
    check_repeating(request)
    check_switching(request)
    check_policy(daemon, request)
    await Runs(daemon).check(request.caller, request.run, effectful=True)
    await _check_seen_store(daemon, request, devices)
    check_seen(request)
    check_time(daemon, request, after_intent=False)
    check_stopped(daemon, request, devices)


def check_read_only(daemon: Daemon, request: Request) -> None:
    """Refuse effects of a daemon that was started read-only; a rehearsal has none.

    Raises:
        DomainError: denied.
    """
    rehearsed = request.params.dry_run or daemon.rehearsing
    if daemon.read_only and not request.safe and not rehearsed:
        reason = "the daemon was started read-only"
        message = f"{reason}: no effectful request but device.safe_state"
        raise DomainError(Code.DENIED, message, reason=reason, required="a daemon that is started without --read-only")


def check_verified(request: Request, devices: tuple[Device, ...]) -> None:
    """Refuse effects where the board demands a contract that was checked on a real part.

    Raises:
        DomainError: refused (`unverified`).
    """
    muxes = [device.mux for device in devices if device.mux is not None]
    for device in (*devices, *muxes) if not request.safe else ():
        if device.spec.refuse_unverified and not device.contract.on_a_part:
            message = (
                f"{device.name}: contract {device.contract.part} was checked on no real part, and the board demands it"
            )
            hint = 'verify it on the bench and say so in `verified`, or have the board say unverified = "allow"'
            raise DomainError(Code.REFUSED, message, hint=hint, rule="unverified", register=device.name, field=None)


def check_repeating(request: Request) -> None:
    """Refuse what must happen once where something below the daemon may send it again by itself.

    Raises:
        DomainError: refused (`bus_repeats`).
    """
    for touch in () if request.safe else permission.touched(understood(request)):
        worker, change = touch.device.worker, touch.change
        harmless = change is not None and change.judged.repeat is When.YES
        if not worker.may_repeat or touch.use == "read" or harmless:
            continue
        name = f"{touch.device.name}.{touch.register.name}"
        does = "reading it" if change is None else change.judged.effect.value
        bus = worker.spec.name
        message = f"{name}: bus {bus} may send a request again by itself, and {does} a second time is not harmless"
        hint = f"have what is behind {bus} send each request once, then take may_repeat out of the board"
        raise DomainError(Code.REFUSED, message, hint=hint, rule="bus_repeats", register=name, field=None)


def check_switching(request: Request) -> None:
    """Refuse writes of what is written before each access to the devices behind a multiplexer: none would last.

    Raises:
        DomainError: refused (`switches`).
    """
    for touch in () if request.safe else permission.touched(understood(request)):
        facts = touch.device.contract.mux
        if touch.change is None or facts is None or not touch.device.switches:
            continue
        if facts.register in {r.name for r in touch.device.reached(touch.register)}:
            name = f"{touch.device.name}.{touch.register.name}"
            message = f"{name} is written before each access to a device behind {touch.device.name}: no value lasts"
            hint = "access the devices behind it: their channel is switched on for them"
            raise DomainError(Code.REFUSED, message, hint=hint, rule="switches", register=name, field=None)


def check_policy(daemon: Daemon, request: Request) -> None:
    """Refuse what the board's policy does not let this caller do.

    Raises:
        DomainError: denied, refused (`policy_limits`) or rate_limited; the key stays unused.
    """
    rules, resolved = daemon.board.policy, understood(request)
    permission.check(rules, request.caller, resolved)
    permission.check_rate(daemon.rates, rules, request.caller, resolved, daemon.clock.monotonic_s())


def overtaken_by_safe_state() -> DomainError:
    """The error of a request that was made before a safe state."""
    message = "a safe state of the device was asked for since this request came: it does not run after it"
    return DomainError(Code.BUSY, message, by="safe_state", holder=None, retry_after_ms=1000)


def check_seen(request: Request) -> None:
    """Refuse a caller who looked at another generation or contract; asked again at the head of the queue.

    Raises:
        DomainError: stale.
    """
    params = request.params
    if request.device is not None and isinstance(params, ReadEffectfulParams | WriteParams | UpdateParams):
        request.device.check_seen(params.generation, params.contract_digest)


def check_stopped(daemon: Daemon, request: Request, devices: tuple[Device, ...]) -> None:
    """Whether something stops effectful requests: a hold, a lease, a freeze, a safe state, a full disk, the end.

    Asked on the way in and again at the head of the queue; a safe state passes all of it.

    Raises:
        DomainError: held, unavailable or busy; the key stays unused.
    """
    if request.safe:
        return
    if daemon.stopping:
        raise DomainError(Code.UNAVAILABLE, "the daemon is stopping", reason="stopping", retry_after_ms=1000)
    for device in devices:
        held = device.held()
        if held is not None:
            raise held
    check_lease(daemon, request.caller, devices)
    if daemon.frozen:
        message = "the daemon is frozen by an operator: no effectful request but device.safe_state"
        raise DomainError(Code.UNAVAILABLE, message, reason="frozen", retry_after_ms=FROZEN_RETRY_MS)
    if request.overtaken():
        raise overtaken_by_safe_state()
    low = daemon.store.low_space()
    if low is not None:
        raise DomainError(Code.UNAVAILABLE, low, reason="disk_low", retry_after_ms=DISK_RETRY_MS)


async def _check_seen_store(daemon: Daemon, request: Request, devices: tuple[Device, ...]) -> None:
    """A caller that saw more than this store has recorded: the store was set back. Its devices are held."""
    seen = None if isinstance(request.params, SafeStateParams) else request.params.store
    if seen is None:
        return
    store = daemon.store
    if seen.id != str(store.store_id):
        raise stale("store", seen.id, str(store.store_id))
    if seen.seq > store.seq:
        why = f"a caller saw record {seen.seq}, the store has {store.seq}: it was set back"
        rehearsed = request.params.dry_run or daemon.rehearsing  # a rehearsal says it, and changes nothing
        for device in () if rehearsed else devices:
            await _hold(daemon, request, device, why)
        raise stale("store", seen.seq, store.seq)


async def _hold(daemon: Daemon, request: Request, device: Device, why: str) -> None:
    now_ns = daemon.clock.wall_ns()
    body = daemon.body("hold", request.caller, None, device=device.name, summary=why)
    device.put_hold("hwtool", why, now_ns)
    await daemon.ask(lambda conn: operations.put_hold(conn, device.locus, "hwtool", why, now_ns, body))


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


def understood(request: Request) -> Resolved | ResolvedSequence:
    """The resolution of a request that has no error.

    Raises:
        DomainError: internal; its error should have been said before.
    """
    if request.resolved is None:
        raise DomainError(Code.INTERNAL, "a request without resolution got past its error")
    return request.resolved
