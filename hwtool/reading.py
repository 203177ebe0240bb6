"""Clean reads: the fast path. No key, no disk, no journal; may be repeated, merged with neighbours, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hwtool.devices import Device
from hwtool.journal import REDACTED
from hwtool.permission import Touch, check_use
from hwtool.policy import Caller
from hwtool.prepare import check_assumptions, check_identity, check_read_gates, looked_up
from hwtool.resolve import clean_read
from hwtool.results import brief, errata, shown_value
from hwtool.state import Daemon
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.messages import ReadParams, Result
from hwtool_contracts.model import Group, Register


async def read(daemon: Daemon, caller: Caller, params: ReadParams) -> Result:
    """Read clean registers and groups of one device.

    Raises:
        DomainError: not_found, refused, denied, stale, unavailable, bus_fault or timeout; effects none.
    """
    device, registers, groups = clean_read(daemon.devices, params.registers)
    wanted = [*registers, *(device.contract.registers[n] for g in groups for n in g.members)]
    for register in wanted:
        check_use(daemon.board.policy, caller, Touch(device, register, "read"))
    if daemon.stopping:
        raise DomainError(Code.UNAVAILABLE, "the daemon is stopping", reason="stopping", retry_after_ms=1000)
    device.check_seen(params.generation, params.contract_digest)
    if params.deadline_ms is None:
        values, transfers, known = await understood(device, registers, groups, _stop(daemon, device, None))
    else:
        # the deadline ends the waiting, never a transfer: a read that is given up half way would leave its reply on the
        # line for the next one, and its bank selected
        until_s = daemon.clock.monotonic_s() + params.deadline_ms / 1000
        task = daemon.keep(understood(device, registers, groups, _stop(daemon, device, until_s)))
        done, _ = await asyncio.wait({task}, timeout=params.deadline_ms / 1000)
        if not done:
            message = f"{device.name} was not read within {params.deadline_ms} ms"
            raise DomainError(Code.TIMEOUT, message, after_ms=params.deadline_ms, stage="queue")
        values, transfers, known = task.result()
    return daemon.dressed(_result(device, wanted, values, transfers, known), device)


def _stop(daemon: Daemon, device: Device, until_s: float | None) -> Callable[[], bool]:
    """Whether a read must not be tried again: its caller has gone, a safe state wants the bus, the daemon stops."""
    alarms = device.lock.alarms

    def stop() -> bool:
        late = until_s is not None and daemon.clock.monotonic_s() >= until_s
        return late or daemon.stopping or device.lock.alarms != alarms

    return stop


async def understood(
    device: Device, registers: list[Register], groups: list[Group], stop: Callable[[], bool] | None = None
) -> tuple[dict[str, int], int, dict[str, int]]:
    """As `values_of`, with what other registers say of how the values are to be understood.

    Raises:
        DomainError: as `values_of`.
    """
    values, transfers = await values_of(device, registers, groups, stop)
    wanted = [*registers, *(device.contract.registers[n] for g in groups for n in g.members)]
    before = device.worker.sent
    known = await looked_up(device, wanted)
    return values, transfers + device.worker.sent - before, known


async def values_of(
    device: Device, registers: list[Register], groups: list[Group], stop: Callable[[], bool] | None = None
) -> tuple[dict[str, int], int]:
    """The values of clean registers and groups, and the transfers they took.

    `stop`: given, a read whose answer is lost is sent again as the board says, unless it must not be; None: never.

    Raises:
        DomainError: refused (a gate, an assumption), unavailable, bus_fault or timeout; held or stale, its multiplexer.
    """
    device.worker.check()
    device.worker.admit()
    if device.mux is not None:  # it is written for this
        if (held := device.mux.held()) is not None:
            raise held
        await check_identity(device.mux)
        await check_assumptions(device.mux)
    await check_assumptions(device)
    wanted = [*registers, *(device.contract.registers[n] for g in groups for n in g.members)]
    await check_read_gates(device, wanted)

    async def once() -> tuple[dict[str, int], int]:
        values, transfers = await device.read_many(registers) if registers else ({}, 0)
        for group in groups:
            found, more = await device.read_group(group)
            values |= found
            transfers += more
        return values, transfers

    return await once() if stop is None else await device.again(once, stop)


def _result(
    device: Device, registers: list[Register], values: dict[str, int], transfers: int, known: dict[str, int]
) -> Result:
    shown = []
    for register in registers:
        judged = device.judge((register,))
        shown.append(
            shown_value(
                device.name,
                register,
                values[register.name],
                judged if isinstance(judged, ReadJudgement) else None,
                known,
            )
        )
    told = [REDACTED if r.sensitive else brief(r, values[r.name]) for r in registers]
    summary = ", ".join(f"{device.name}.{r.name} = {text}" for r, text in zip(registers, told, strict=True))
    return Result(
        status="done",
        ok=True,
        effects="none",
        summary=summary,
        values=shown,
        evidence={"how": "read", "transfers": transfers},
        warnings=errata(registers),
    )
