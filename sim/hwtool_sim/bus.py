"""The simulated bus: chips by address, faults, and a log of every transfer; the daemon's `kind = "sim"`.

Proof table: `address-nack`, for an address where no chip answers; `no-register`, for an offset where the chip has
nothing (it is looked up whole before the chip acts); `not-sent`, for what this bus cannot carry, and for a request that
the device has no function for. Everything else is Ambiguous.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Confirmed,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Transfer,
)
from hwtool_sim.chip import Chip, NotThere
from hwtool_sim.faults import Fault, FaultKind

LOG_LENGTH: Final = 10_000


class SimBus:
    """Chips on one bus of this process.

    Attributes:
        chips: by address.
        log: the newest transfers asked for, in order, those of no effect included.
        transfers: how many were asked for.
        faults: planned faults; the first that matches strikes.
    """

    def __init__(self, chips: dict[int, Chip], sleep: Callable[[float], None] = time.sleep) -> None:
        self.chips = chips
        self.log: deque[Transfer] = deque(maxlen=LOG_LENGTH)
        self.transfers = 0
        self.faults: list[Fault] = []
        self._sleep = sleep

    @property
    def inline(self) -> bool:
        """Whether `perform` returns at once, so that it may run in the event loop."""
        return not any(f.kind is FaultKind.HANG and f.times for f in self.faults)

    def boot_evidence(self, address: int) -> str | None:
        """The chip's nonce."""
        chip = self.chips.get(address)
        return None if chip is None else chip.nonce

    def perform(self, transfer: Transfer) -> Answer:
        """Take one transfer to its chip; see the bus contract."""
        self.log.append(transfer)
        self.transfers += 1
        if isinstance(transfer, Message | Line):
            return Rejected(f"the simulated bus does not carry {type(transfer).__name__}", "not-sent")
        access = "read" if isinstance(transfer, RegisterRead) else "write"
        fault = next((f for f in self.faults if f.strikes(transfer.address, access, transfer.offset)), None)
        if fault is not None and fault.kind is FaultKind.NACK:
            return Rejected("no acknowledge at the address (planned fault)", "address-nack")
        if fault is not None and fault.kind is FaultKind.REQUEST_LOST:
            return Ambiguous(Sent.REPLY, "no reply (planned fault: request lost)")
        chip = self.chips.get(transfer.address)
        if chip is None:
            return Rejected(f"no acknowledge at {transfer.address:#04x}", "address-nack")
        try:
            answer = _apply(chip, transfer)
        except NotThere as error:
            if fault is not None and fault.kind is FaultKind.REPLY_LOST:
                return Ambiguous(Sent.REPLY, "no reply (planned fault: reply lost)")
            return Rejected(str(error), "no-register")
        if fault is not None and fault.kind is FaultKind.HANG:
            self._sleep(fault.hang_s)
        if fault is not None and fault.kind is FaultKind.REPLY_LOST:
            return Ambiguous(Sent.REPLY, "no reply (planned fault: reply lost)")
        return answer

    def quiesce(self, until_s: float) -> None:
        """Nothing lingers on this bus; wait as the contract asks."""
        rest_s = until_s - time.monotonic()
        if rest_s > 0:
            self._sleep(rest_s)


def _apply(chip: Chip, transfer: RegisterRead | RegisterWrite) -> Confirmed:
    modbus = chip.contract.access.modbus
    functions = modbus.functions if modbus is not None else frozenset()
    if functions and transfer.function is not None and transfer.function not in functions:
        raise NotThere(f"{chip.contract.part} has no function {transfer.function}")
    if transfer.offset_bytes != chip.contract.access.offset_bytes:
        raise NotThere(f"{chip.contract.part} takes {chip.contract.access.offset_bytes} byte(s) of offset")
    if isinstance(transfer, RegisterRead):
        return Confirmed(chip.read(transfer.space, transfer.offset, transfer.size_bytes))
    chip.write(transfer.space, transfer.offset, transfer.data)
    return Confirmed()
