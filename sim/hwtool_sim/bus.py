"""The simulated bus: chips by address, faults, and a log of every transfer; the daemon's `kind = "sim"`.

Proof table: `address-nack`, for an address where no chip answers; `arbitration-lost`, where another master won at the
address; `bus-stuck`, for what is asked while SDA is held low: no START can be sent; `no-register`, for an offset where
the chip has nothing (it is looked up whole before the chip acts); `not-sent`, for what this bus cannot carry, and for a
request that the device has no function for; `port-not-opened`, while it is unplugged; the table of Modbus for planned
exceptions.
Everything else is Ambiguous.

`take` is where chips and faults meet, whatever carries the transfer: `perform` makes a bus's answer of what it says,
a serial line (hwtool_sim.line) makes bytes of it.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import msgspec

from hwtool_contracts.library import find_contract
from hwtool_contracts.model import Contract, Space
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
from hwtool_registers.buses.modbus_pdu import exception_answer
from hwtool_sim.chip import Chip, NotThere
from hwtool_sim.faults import EVENTS, NOT_REACHED, WAITS, Access, Fault, FaultKind, Struck, strike
from hwtool_sim.input_buffer import InputBuffer
from hwtool_sim.offsets import increments, marked_as_read, whole_offset
from hwtool_sim.spaces import block, line, merged, message, read_bits, write_bits, written_and_read

LOG_LENGTH: Final = 10_000
NOTHING: Final = Struck((), (), None)


def behind(mux: int, channel: int, address: int) -> int:
    """The number of a chip behind a multiplexer among the chips of its bus, where several may have one address.

    Bits 16 and up are the multiplexer's address, bits 15 to 8 the channel plus 1, bits 7 to 0 the chip's address:
    0x700348 is 0x48 on channel 2 of 0x70.
    """
    return mux << 16 | (channel + 1) << 8 | address


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a transfer at the chip.

    Attributes:
        said: what the chip said; None: there is none, or it was not reached, or it did not get so far.
        loss: the fault that decides what is answered.
    """

    said: Confirmed | NotThere | None
    loss: Fault | None


class SimBus:
    """Chips on one bus of this process.

    Attributes:
        chips: by address, those behind a multiplexer by `behind`.
        log: the newest transfers asked for, in order, those of no effect included.
        transfers: how many were asked for.
        faults: planned faults; every event that matches strikes, and the first loss.
        clock: monotonic seconds, for replies that come late.
        plugged: whether the bus is there at all.
        seed: of the faults that strike by chance.

    Args:
        make: a chip of a contract as it is at power-on, where one is swapped in.
    """

    def __init__(
        self,
        chips: dict[int, Chip],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        *,
        make: Callable[[Contract], Chip] = Chip,
        seed: int = 0,
    ) -> None:
        self.chips = chips
        self.log: deque[Transfer] = deque(maxlen=LOG_LENGTH)
        self.transfers = 0
        self.faults: list[Fault] = []
        self.clock = clock
        self.plugged = True
        self._sleep = sleep
        self._input: InputBuffer[tuple[Transfer, Answer]] = InputBuffer()
        self._unpowered = False
        self._ends_s: float | None = None  # when an unplugged or stuck bus is itself again
        self._stuck = self._recovers = False
        self._make = make
        self.begin(seed)

    def begin(self, seed: int, name: str = "") -> None:
        """Begin to draw chances anew; `name` tells several buses of one seed apart."""
        self.seed = seed
        self._draw = Random(f"{seed}:{name}" if name else seed)

    @property
    def inline(self) -> bool:
        """Whether `perform` returns at once, so that it may run in the event loop."""
        return not any(f.kind in WAITS and f.times for f in self.faults)

    def open(self) -> None:
        """Nothing to be opened.

        Raises:
            OSError: the bus is unplugged.
        """
        if not self.is_there():
            raise OSError(errno.ENODEV, "the simulated bus is unplugged")

    def is_there(self) -> bool:
        """Whether it is plugged: one that was away, or stuck, for a time is itself again when that is over."""
        if self._ends_s is not None and self.clock() >= self._ends_s:
            self.plug()
        return self.plugged

    def boot_evidence(self, address: int) -> str | None:
        """The chip's nonce; None where no chip can be asked, or where its contract says what it shows by itself."""
        chip = self.chips.get(address)
        if not self.is_there() or chip is None or chip.contract.restart is not None:
            return None
        return chip.nonce

    def plan(self, fault: Fault) -> None:
        """Plan a fault for a chip that can have it; its times count from now.

        Raises:
            ValueError: the chip at its address cannot.
            Faults: the contract of the chip to be swapped in cannot be had.
        """
        chip = self.chips.get(fault.address)
        if chip is None and (fault.kind in EVENTS or fault.at is not None):
            raise ValueError(f"{fault.kind}: no chip at {fault.address:#04x}")
        if fault.kind is FaultKind.EXCEPTION and (chip is None or chip.contract.access.modbus is None):
            raise ValueError(f"exception: at {fault.address:#04x} is no Modbus device")
        if chip is not None and fault.register is not None:
            chip.check(fault.register, fault.value if fault.kind is FaultKind.FOREIGN else fault.bits)
        if fault.contract is not None:
            find_contract(fault.contract)
        offset = fault.offset
        if chip is not None and fault.at is not None:
            chip.check(fault.at, 0)
            offset = chip.contract.registers[fault.at].offset
        now_s, until_s = self.clock(), fault.until_s
        self.faults.append(
            msgspec.structs.replace(
                fault,
                offset=offset,
                at=None,
                after_s=now_s + fault.after_s if fault.after_s or until_s is not None else 0.0,
                until_s=None if until_s is None else now_s + until_s,
            )
        )

    def unplug(self, *, power: bool = False) -> None:
        """The bus vanishes, and what is under way with it; with `power` the chips lose theirs."""
        self.plugged = False
        self._ends_s = None
        self._unpowered = self._unpowered or power
        self._input.clear()

    def plug(self) -> None:
        """The bus is back, and nobody holds its lines; chips that had lost their power restart."""
        self._stuck, self._ends_s = False, None
        if self._unpowered:
            for chip in self.chips.values():
                chip.reset()
        self.plugged, self._unpowered = True, False

    def perform(self, transfer: Transfer) -> Answer:
        """Take one transfer to its chip; see the bus contract."""
        answer, lasts_s = self.carry(transfer)
        self.wait(lasts_s)
        return answer

    def wait(self, lasts_s: float | None) -> None:
        """Let the time pass that an answer takes."""
        if lasts_s is not None:
            self._sleep(lasts_s)

    def carry(self, transfer: Transfer) -> tuple[Answer, float | None]:
        """The answer of a transfer, and how long it takes to come (None: no time); waits for nothing."""
        if not self.is_there():
            self._note(transfer)
            return Rejected("the simulated bus is unplugged", "port-not-opened"), None
        if self._stuck:
            self._note(transfer)
            return Rejected("the bus is stuck: SDA is held low", "bus-stuck"), None
        if self._busy(transfer):
            self._note(transfer)
            return Rejected("no acknowledge: the device is writing", "address-nack"), None
        self._input.arrived(self.clock())  # emptied before the request: what came by now is nobody's
        taken = self.take(transfer)
        hangs = taken.loss is not None and taken.loss.kind in WAITS and taken.said is not None
        return self._answer(transfer, taken), taken.loss.hang_s if hangs and taken.loss is not None else None

    def _address(self, transfer: Transfer) -> int:
        """The address of the chip that a transfer is for; some chips answer at several, a line has the only chip."""
        if isinstance(transfer, Line):
            return next(iter(self.chips), 0)
        return next(self._all_at(transfer.address), transfer.address)

    def _all_at(self, address: int) -> Iterator[int]:
        """Every chip that an address reaches: more than one where two channels are on."""
        for place, chip in self.chips.items():
            i2c = chip.contract.access.i2c
            bits = 0 if i2c is None else i2c.offset_bits_in_address
            if place & 0xFF == address >> bits << bits and self._is_on(place):
                yield place

    def _is_on(self, place: int) -> bool:
        """Whether a chip can be reached as its multiplexer stands."""
        mux = self.chips.get(place >> 16)
        if place <= 0xFF or mux is None:
            return place <= 0xFF
        facts = mux.contract.mux
        if facts is None:
            return False
        held, wanted = mux.values[facts.register], facts.channels[(place >> 8 & 0xFF) - 1]
        single = all(value & (value - 1) == 0 for value in facts.channels)  # a bit for each: several may be on
        return bool(held & wanted) if single else held == wanted

    def _busy(self, transfer: Transfer) -> bool:
        chip = self.chips.get(self._address(transfer))
        return chip is not None and chip.busy_place is None and chip.busy_until_s > self.clock()

    def take(self, transfer: Transfer) -> Taken:
        """Take a transfer to its chip through the planned faults."""
        self._note(transfer)
        address, space = self._address(transfer), _space_of(transfer)
        struck = NOTHING
        if self.faults:
            access = Access(address, _access_of(transfer), _offset_of(transfer), self.clock())
            struck = strike(self.faults, access, self._draw)
        loss = struck.loss
        said: Confirmed | NotThere | None = None
        if address in self.chips:
            for event in struck.before:
                self._happen(address, event, space)
            chip = self.chips[address]
            chip.catch_up(self.clock())
            said = _act(chip, transfer, loss)
            if chip.cycle_ms:
                chip.busy_until_s, chip.cycle_ms = self.clock() + chip.cycle_ms / 1000, 0
            for event in struck.after:
                self._happen(address, event, space)
        others = [] if isinstance(transfer, Line) else [p for p in self._all_at(transfer.address) if p != address]
        for other in others:  # they hear it too, and what they say is mixed with what the first one says
            self.chips[other].catch_up(self.clock())
            _act(self.chips[other], transfer, None)
            loss = loss or Fault(FaultKind.CORRUPTED, address)
        if loss is not None and loss.kind in (FaultKind.UNPLUG, FaultKind.STUCK_BUS):
            if loss.kind is FaultKind.UNPLUG:
                self.unplug(power=loss.power)
            else:
                self._stuck, self._recovers = True, loss.recovers
            self._ends_s = self.clock() + loss.lasts_s if loss.lasts_s else None
        return Taken(said, loss)

    def _happen(self, address: int, event: Fault, space: Space) -> None:
        """An event at a place; what the chip there has not at this moment, another master cannot write."""
        chip = self.chips[address]
        if event.kind is FaultKind.SWAP:
            contract = chip.contract if event.contract is None else find_contract(event.contract)
            self.chips[address] = self._make(contract)
            return
        if event.register is not None and event.register not in chip.contract.registers:
            return  # another chip may have taken the place since it was planned
        _happen(chip, event, space)

    def _note(self, transfer: Transfer) -> None:
        self.log.append(transfer)
        self.transfers += 1

    def _answer(self, transfer: Transfer, taken: Taken) -> Answer:
        """What the bus sees of it."""
        kind = None if taken.loss is None else taken.loss.kind
        if kind is FaultKind.NACK:
            return Rejected("no acknowledge at the address (planned fault)", "address-nack")
        if kind is FaultKind.UNPLUG:
            return Ambiguous(Sent.DATA, "the bus vanished (planned fault: unplug)")
        if kind is FaultKind.ARBITRATION_LOST:
            return Rejected("arbitration lost at the address (planned fault)", "arbitration-lost")
        if kind is FaultKind.STUCK_BUS:
            return Ambiguous(Sent.DATA, "SDA is held low in the middle of the transfer (planned fault)")
        if kind is FaultKind.FALSE_ACK:
            return Confirmed(_nobody(transfer))
        address = self._address(transfer)
        if address not in self.chips and kind is not FaultKind.REQUEST_LOST:
            return Rejected(f"no acknowledge at {address:#04x}", "address-nack")
        if kind is FaultKind.DATA_NACK and taken.loss is not None:
            taken_bytes = f"after {taken.loss.after_bytes} data byte(s)"
            return Ambiguous(Sent.DATA, f"no acknowledge {taken_bytes} (planned fault)")
        # what the line owes for an earlier request comes first; what is sent for this one, right behind it
        came = self._input.first() if self._input else None
        late_s = taken.loss.late_s if taken.loss is not None and kind is FaultKind.LATE_REPLY else 0.0
        for reply in _replies(transfer, taken):
            self._input.put(self.clock() + late_s, (transfer, reply))
        if came is None and not late_s and self._input:
            came = self._input.first()
        if came is None:
            return Ambiguous(Sent.REPLY, f"no reply (planned fault: {str(kind).replace('_', ' ')})")
        request, answer = came
        if not _fits(transfer, request):
            return Ambiguous(Sent.REPLY, f"the reply to another request came: {request}")
        return answer

    def quiesce(self, until_s: float) -> None:
        """Wait as the contract asks, then drop what has come in.

        Raises:
            OSError: the bus is unplugged.
        """
        rest_s = until_s - self.clock()
        if rest_s > 0:
            self._sleep(rest_s)
        self.open()
        if self._stuck and self._recovers:
            self._stuck = False  # nine clocks and a STOP
        self._input.arrived(max(until_s, self.clock()))


def _space_of(transfer: Transfer) -> Space:
    match transfer:
        case RegisterRead() | RegisterWrite():
            return transfer.space
        case Message():
            return Space.COMMAND
        case Line():
            return Space.LINE


def _access_of(transfer: Transfer) -> str:
    match transfer:
        case RegisterRead() | Line(expects_reply=True):
            return "read"
        case Message(read_bytes=int(size)) if size:
            return "read"
        case _:
            return "write"


def _offset_of(transfer: Transfer) -> int:
    """Where a transfer goes, for faults that are meant for one place: an offset, an opcode; 0 for a line."""
    match transfer:
        case RegisterRead() | RegisterWrite():
            return transfer.offset
        case Message(write=write):
            return int.from_bytes(write[:4], "big")
        case Line():
            return 0


def _happen(chip: Chip, event: Fault, space: Space) -> None:
    """An event at a chip that has what it is about."""
    if event.kind is FaultKind.RESET:
        chip.reset()
    elif event.register is not None and event.kind is FaultKind.FLIP:
        chip.values[event.register] ^= event.bits or 0
    elif event.register is not None and event.kind is FaultKind.STUCK_BITS:
        chip.stick(event.register, event.bits or 0, event.value or 0)
    elif event.register is not None and event.value is not None:
        chip.write_by_another(event.register, event.value)
    elif event.data is not None and event.offset_written is not None:
        written_to = Space.HOLDING if space is Space.INPUT else space
        try:
            chip.write(written_to, event.offset_written, bytes.fromhex(event.data), foreign=True)
        except NotThere:
            return


def _act(chip: Chip, transfer: Transfer, loss: Fault | None) -> Confirmed | NotThere | None:
    """Let the chip act as far as the loss lets it."""
    if loss is not None:
        if loss.kind in NOT_REACHED or (loss.kind is FaultKind.EXCEPTION and not loss.acts):
            return None
        if loss.kind is FaultKind.STUCK_BUS and _access_of(transfer) == "write":
            return None  # it has not come to its end
        if loss.slip and isinstance(transfer, RegisterWrite):
            transfer = replace(transfer, data=_slipped(transfer.data))
        if loss.slip and isinstance(transfer, Message):
            transfer = replace(transfer, write=_slipped(transfer.write))
        if (
            loss.kind is FaultKind.DATA_NACK
            and isinstance(transfer, Message)
            and loss.after_bytes < len(transfer.write)
        ):
            return None  # a command that has not come to its end
        if loss.kind is FaultKind.DATA_NACK and isinstance(transfer, RegisterWrite):
            transfer = replace(transfer, data=transfer.data[: loss.after_bytes])
            if not transfer.data:
                return None
    try:
        return apply_to(chip, transfer)
    except NotThere as refusal:
        return refusal


def _slipped(data: bytes) -> bytes:
    """Bytes that arrive one bit later."""
    return (int.from_bytes(data, "big") >> 1).to_bytes(len(data), "big")


def _nobody(transfer: Transfer) -> bytes:
    """What is read where nobody drives the line."""
    match transfer:
        case RegisterRead():
            return b"\xff" * transfer.size_bytes
        case Message():
            return b"\xff" * transfer.read_bytes
        case _:
            return b""


def apply_to(chip: Chip, transfer: Transfer) -> Confirmed:
    """Let a chip take a transfer of any kind, whole and at once.

    Raises:
        NotThere: the chip does not answer it.
    """
    i2c = chip.contract.access.i2c
    if not isinstance(transfer, Line) and transfer.pec is not (i2c is not None and i2c.pec):
        told = "without its packet error code" if not transfer.pec else "with a packet error code, which it has not"
        raise NotThere(f"{chip.contract.part}: a transfer {told}")
    if isinstance(transfer, Message):
        return Confirmed(message(chip, transfer.write, transfer.read_bytes))
    if isinstance(transfer, Line):
        return Confirmed(line(chip, transfer.text, transfer.expects_reply))
    modbus = chip.contract.access.modbus
    functions = modbus.functions if modbus is not None else frozenset()
    if functions and transfer.function is not None and transfer.function not in functions:
        raise NotThere(f"{chip.contract.part} has no function {transfer.function}", 0x01)
    if transfer.offset_bytes != chip.contract.access.offset_bytes:
        raise NotThere(f"{chip.contract.part} takes {chip.contract.access.offset_bytes} byte(s) of offset")
    size_bytes = transfer.size_bytes if isinstance(transfer, RegisterRead) else len(transfer.data)
    if transfer.function == 22:
        size_bytes = 2  # two masks of one register
    counted = transfer.space.of_words or transfer.space.of_bits
    if modbus is not None and counted and size_bytes > 2 * modbus.max_registers:
        limit = f"takes {modbus.max_registers} registers a request"
        raise NotThere(f"{chip.contract.part} {limit}, not {size_bytes // 2}", 0x03)
    if transfer.space.of_bits:
        return _apply_bits(chip, transfer)
    if transfer.space is Space.BLOCK:
        return Confirmed(block(chip, transfer))
    offset = _whole_offset(chip, transfer)
    if isinstance(transfer, RegisterRead) and transfer.first is not None:
        return Confirmed(written_and_read(chip, transfer, *transfer.first))
    if isinstance(transfer, RegisterRead):
        return Confirmed(chip.read(transfer.space, offset, transfer.size_bytes))
    chip.write(transfer.space, offset, merged(chip, transfer) if transfer.function == 22 else transfer.data)
    return Confirmed()


def _apply_bits(chip: Chip, transfer: RegisterRead | RegisterWrite) -> Confirmed:
    bits = transfer.bits or 1
    if isinstance(transfer, RegisterRead):
        return Confirmed(read_bits(chip, transfer.space, transfer.offset, bits))
    write_bits(chip, transfer.space, transfer.offset, bits, transfer.data)
    return Confirmed()


def _whole_offset(chip: Chip, transfer: RegisterRead | RegisterWrite) -> int:
    """The offset as the contract has it; the chip is told whether its pointer moves.

    Raises:
        NotThere: the offset is marked as one of the other kind of transfer.
    """
    reads = isinstance(transfer, RegisterRead)
    if marked_as_read(chip.contract, transfer.offset) not in (None, reads):
        told = "a read without the mark of one" if reads else "a write with the mark of a read"
        raise NotThere(f"{chip.contract.part}: {told} at {transfer.offset:#04x}")
    chip.moves = increments(chip.contract, transfer.offset)
    return whole_offset(chip.contract, transfer.address, transfer.offset)


def _replies(transfer: Transfer, taken: Taken) -> list[Answer]:
    """What comes back for a transfer, late or not."""
    said: Answer = taken.said if isinstance(taken.said, Confirmed) else Rejected(str(taken.said), "no-register")
    match taken.loss:
        case Fault(kind=FaultKind.REQUEST_LOST | FaultKind.REPLY_LOST):
            return []
        case Fault(kind=FaultKind.DUPLICATED):
            return [said, said]
        case Fault(kind=FaultKind.TRUNCATED):
            return [Ambiguous(Sent.REPLY, "a fragment of the reply came (planned fault)")]
        case Fault(kind=FaultKind.CORRUPTED):
            return [Ambiguous(Sent.REPLY, "CRC error in the reply (planned fault)")]
        case Fault(kind=FaultKind.EXCEPTION, code=int(code)) if isinstance(transfer, RegisterRead | RegisterWrite):
            return [exception_answer(transfer, code)]
        case _:
            return [said]


def _fits(transfer: Transfer, request: Transfer) -> bool:
    """Whether the reply to a request would pass for the reply to a transfer, by what a frame of Modbus RTU holds."""
    if isinstance(transfer, Message | Line) or isinstance(request, Message | Line):
        return transfer == request
    if (transfer.address, transfer.function) != (request.address, request.function):
        return False
    match transfer, request:
        case RegisterRead(), RegisterRead():
            return transfer.size_bytes == request.size_bytes
        case RegisterWrite(), RegisterWrite():
            one = len(transfer.data) == len(request.data) <= 2
            echo = transfer.data == request.data if one else len(transfer.data) == len(request.data)
            return transfer.offset == request.offset and echo
        case _:
            return False
