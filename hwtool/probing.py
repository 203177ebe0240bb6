"""`bus.probe`: whether anybody answers at one address where the board has no device. There is no scan.

A probe reads: one byte of an I2C address, holding register 0 of a Modbus unit. Nobody has declared what that does to
whatever sits there, so it is an operator's, is on record before it is sent, is sent once, and says `unknown` of its
effects where something answered.
"""

from __future__ import annotations

from typing import Any, Final

from hwtool.breaker import NOT_OPEN
from hwtool.policy import Caller
from hwtool.results import Effects, failed
from hwtool.state import Daemon
from hwtool.worker import BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import ProbeParams, Result
from hwtool_contracts.model import Space
from hwtool_registers.bus import Ambiguous, Confirmed, Message, RegisterRead, Rejected
from hwtool_store import operations

I2C_ADDRESSES: Final = range(0x08, 0x78)  # the others are reserved
MODBUS_UNITS: Final = range(1, 248)
FROZEN_RETRY_MS: Final = 60_000


async def probe(daemon: Daemon, caller: Caller, params: ProbeParams) -> Result:
    """Ask one address of one bus, once.

    Raises:
        DomainError: not_found, invalid_args, refused (`on_the_board`), denied, unavailable, store_failed.
    """
    worker = daemon.workers.get(params.bus)
    if worker is None:
        message = f"no bus {params.bus} on the board; it has {', '.join(daemon.workers)}"
        raise DomainError(Code.NOT_FOUND, message, searched=params.bus, suggestions=sorted(daemon.workers))
    transfer = _question(worker, params.address)
    place = f"{params.address:#04x} of bus {params.bus}"
    _check_nobody_known(daemon, params, place)
    _check_allowed(daemon)
    body = daemon.body("probe", caller, None, bus=params.bus, address=f"{params.address:#04x}")
    await daemon.ask(lambda conn: operations.note(conn, body))
    worker.admit()
    async with worker.lock:
        answer = await worker.read_clean(transfer)
    evidence: dict[str, Any] = {"transfers": 1}
    match answer:
        case Confirmed(data):
            return _told(daemon, f"{place}: somebody answered", "unknown", evidence | {"data": data.hex()})
        case Rejected(fault, proof) if proof in NOT_OPEN or proof == "not-sent":
            message = f"{place} was not asked: {fault}"
            raise DomainError(Code.UNAVAILABLE, message, reason=proof, retry_after_ms=0)
        case Rejected(fault, proof):
            nobody = proof == "address-nack"
            said = f"{place}: nobody is there ({fault})" if nobody else f"{place}: somebody answered, with {fault}"
            return _told(daemon, said, "none", evidence | {"fault": fault, "proof": proof})
        case Ambiguous(stage, fault):
            evidence |= {"fault": fault, "stage": stage.value}
            message = f"{place}: it cannot be told whether anybody is there: {fault}"
            error = DomainError(Code.BUS_FAULT, message, fault=fault, stage=stage.value)
            return daemon.dressed(failed(error, "unknown", evidence=evidence))


def _question(worker: BusWorker, address: int) -> Message | RegisterRead:
    """What is sent: one byte is read, or holding register 0.

    Raises:
        DomainError: invalid_args, refused.
    """
    kind = worker.spec.kind
    if kind.startswith("modbus"):
        allowed, question = MODBUS_UNITS, RegisterRead(address, Space.HOLDING, 0, 2, 1, 3)
        hint = "a unit of 1 to 247; 0 is a broadcast, which nobody answers"
        asks: Message | RegisterRead = question
    else:
        allowed, asks = I2C_ADDRESSES, Message(address, b"", 1)
        hint = "a 7-bit address of 0x08 to 0x77"
        if 0x77 < address <= 0xFF:
            hint += f", probably {address >> 1:#04x}"
    if address not in allowed:
        message = f"address {address:#04x} of bus {worker.spec.name}: out of range"
        raise DomainError(Code.INVALID_ARGS, message, path="$.address", expected=hint, got=hex(address))
    return asks


def _check_nobody_known(daemon: Daemon, params: ProbeParams, place: str) -> None:
    known = [d.name for d in daemon.devices.values() if (d.spec.bus, d.spec.address) == (params.bus, params.address)]
    if known:
        message = f"{place} is {known[0]}: what may be read of it, its contract says"
        hint = f"hwtool show {known[0]}"
        raise DomainError(Code.REFUSED, message, hint=hint, rule="on_the_board", register=known[0], field=None)


def _check_allowed(daemon: Daemon) -> None:
    if daemon.read_only:
        reason = "the daemon was started read-only"
        message = f"{reason}: a probe may have an effect"
        raise DomainError(Code.DENIED, message, reason=reason, required="a daemon that is started without --read-only")
    if daemon.frozen:
        message = "the daemon is frozen by an operator: a probe may have an effect"
        raise DomainError(Code.UNAVAILABLE, message, reason="frozen", retry_after_ms=FROZEN_RETRY_MS)


def _told(daemon: Daemon, summary: str, effects: Effects, evidence: dict[str, Any]) -> Result:
    return daemon.dressed(Result(status="done", ok=True, effects=effects, summary=summary, evidence=evidence))
