"""`bus.probe`: whether anybody answers at one address where the board has no device. There is no scan.

A probe reads: one byte of an I2C address, holding register 0 of a Modbus unit. Nobody has declared what that does to
whatever sits there, so it is an operator's, is on record before it is sent and after it, is sent once, and says
`unknown` of its effects where something answered, or may have.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from hwtool.breaker import NOT_OPEN
from hwtool.policy import Caller
from hwtool.results import Effects
from hwtool.state import Daemon
from hwtool.worker import ABSENT_RETRY_MS, UNSENT, BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import ProbeParams, Result
from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, Message, RegisterRead, Rejected
from hwtool_store import operations

I2C_ADDRESSES: Final = range(0x08, 0x78)  # the others are reserved
MODBUS_UNITS: Final = range(1, 248)
FROZEN_RETRY_MS: Final = 60_000
Found = Literal["somebody", "nobody", "unclear", "not asked"]
SAID: Final[dict[Found, str]] = {
    "somebody": "somebody answered",
    "nobody": "nobody is there",
    "unclear": "no answer that tells",
    "not asked": "not asked",
}


async def probe(daemon: Daemon, caller: Caller, params: ProbeParams) -> Result:
    """Ask one address of one bus, once, to its end whoever stops waiting for it.

    Raises:
        DomainError: not_found, invalid_args, refused (`on_the_board`, `bus_repeats`, `not_sendable`), denied,
            unavailable, store_failed.
    """
    worker = daemon.workers.get(params.bus)
    if worker is None:
        message = f"no bus {params.bus} on the board; it has {', '.join(daemon.workers)}"
        raise DomainError(Code.NOT_FOUND, message, searched=params.bus, suggestions=sorted(daemon.workers))
    question = _question(daemon, worker, params.address)
    _check(daemon, worker, params)
    return await asyncio.shield(daemon.keep(_asked(daemon, caller, worker, params, question)))


async def _asked(
    daemon: Daemon, caller: Caller, worker: BusWorker, params: ProbeParams, question: Message | RegisterRead
) -> Result:
    place = {"bus": params.bus, "address": f"{params.address:#04x}"}
    async with worker.lock:
        worker.check()
        _check(daemon, worker, params)  # it may have waited: for a freeze, a reload, the daemon's end
        begun = daemon.body("probe", caller, None, **place)
        await daemon.ask(lambda conn: operations.note(conn, begun))
        try:
            answer = await worker.ask_stranger(question)
        except DomainError as error:  # the bus was shut or left meanwhile: it was not sent
            answer = Rejected(error.message, "port-not-opened")
    unsent = _unsent(answer, f"{place['address']} of bus {params.bus}")
    found, effects, evidence = _meant(answer)
    told = f": {evidence['fault']}" if "fault" in evidence else ""
    summary = f"{place['address']} of bus {params.bus}: {SAID[found]}{told}"
    ended = daemon.body("probed", caller, None, **place, found=found, effects=effects, summary=summary)
    await daemon.ask(lambda conn: operations.note(conn, ended))
    if unsent is not None:
        raise unsent
    evidence |= {"transfers": 1, "found": found}
    return daemon.dressed(Result(status="done", ok=True, effects=effects, summary=summary, evidence=evidence))


def _meant(answer: Answer) -> tuple[Found, Effects, dict[str, Any]]:
    """What an answer says of who is there, and of what the question did."""
    match answer:
        case Confirmed(data):
            return "somebody", "unknown", {"data": data.hex()}
        case Rejected(fault, "address-nack"):
            return "nobody", "none", {"fault": fault, "proof": "address-nack"}
        case Rejected(fault, proof) if proof in UNSENT:
            return "not asked", "none", {"fault": fault, "proof": proof}
        case Rejected(fault, proof):  # a refusal is an answer
            return "somebody", "none", {"fault": fault, "proof": proof}
        case Ambiguous(stage, fault):
            refused = fault.startswith("Modbus exception")
            return "somebody" if refused else "unclear", "unknown", {"fault": fault, "stage": stage.value}


def _unsent(answer: Answer, place: str) -> DomainError | None:
    """The error where nothing has left this host: unavailable, or refused (`not_sendable`)."""
    if not isinstance(answer, Rejected) or answer.proof not in UNSENT:
        return None
    message = f"{place} was not asked: {answer.fault}"
    if answer.proof in NOT_OPEN:
        return DomainError(Code.UNAVAILABLE, message, reason="absent", retry_after_ms=ABSENT_RETRY_MS)
    hint = "have the kernel's driver give it up, or ask on an adapter that can carry it"
    return DomainError(Code.REFUSED, message, hint=hint, rule="not_sendable", register=None, field=None)


def _question(daemon: Daemon, worker: BusWorker, address: int) -> Message | RegisterRead:
    """What is sent: one byte is read, or holding register 0.

    Raises:
        DomainError: invalid_args.
    """
    devices = [d for d in daemon.devices.values() if d.spec.bus == worker.spec.name]
    modbus = worker.spec.kind.startswith("modbus") or any(d.contract.access.modbus is not None for d in devices)
    if address not in (MODBUS_UNITS if modbus else I2C_ADDRESSES):
        wanted = "a unit of 1 to 247; 0 is a broadcast, which nobody answers" if modbus else "7 bits, 0x08 to 0x77"
        if not modbus and 0x77 < address <= 0xFF:
            wanted += f", probably {address >> 1:#04x}"
        message = f"address {address:#04x} of bus {worker.spec.name}: out of range"
        raise DomainError(Code.INVALID_ARGS, message, path="$.address", expected=wanted, got=hex(address))
    return RegisterRead(address, Space.HOLDING, 0, 2, 1, 3) if modbus else Message(address, b"", 1)


def _check(daemon: Daemon, worker: BusWorker, params: ProbeParams) -> None:
    """Whether it may be sent; asked again once the bus is free.

    Raises:
        DomainError: refused, denied, unavailable.
    """
    place = f"{params.address:#04x} of bus {params.bus}"
    path = worker.spec.stable_path
    for device in daemon.devices.values():
        if daemon.workers[device.spec.bus].spec.stable_path == path and params.address in device.spec.addresses:
            message = f"{place} is {device.name}: what may be read of it, its contract says"
            hint = f"hwtool show {device.name}"
            raise DomainError(Code.REFUSED, message, hint=hint, rule="on_the_board", register=device.name, field=None)
    if worker.may_repeat:
        message = f"{place}: bus {params.bus} may send a request again by itself, and nobody knows what a probe does"
        hint = f"have what is behind {params.bus} send each request once, then take may_repeat out of the board"
        raise DomainError(Code.REFUSED, message, hint=hint, rule="bus_repeats", register=None, field=None)
    if daemon.read_only or daemon.rehearsing:
        reason = f"the daemon was started {'read-only' if daemon.read_only else 'to rehearse'}"
        message = f"{reason}: a probe may have an effect"
        raise DomainError(Code.DENIED, message, reason=reason, required="a daemon that is started for real")
    if daemon.stopping:
        raise DomainError(Code.UNAVAILABLE, "the daemon is stopping", reason="stopping", retry_after_ms=1000)
    if daemon.frozen:
        message = "the daemon is frozen by an operator: a probe may have an effect"
        raise DomainError(Code.UNAVAILABLE, message, reason="frozen", retry_after_ms=FROZEN_RETRY_MS)
