"""A chip made from its contract: storage, what answers at a place, and counters of what was executed.

What an access does is in hwtool_sim.reading and hwtool_sim.writing, the ways to a register in hwtool_sim.doors.

The chip is independent of the judge and the planner on purpose: it reads effects from the contract and applies them to
bits, so that a mistake in what is sent shows in what the chip holds. What a contract does not say (how fast a pin
moves, what an undeclared read changes) is made visible instead of invented: an undeclared access adds one to the
stored value, so that a repeat is noticed.

Counters: one execution is one register access that the chip took part in, whatever became of the reply.
"""

from __future__ import annotations

import copy
import difflib
import secrets
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from hwtool_contracts.effects import ReadEffect
from hwtool_contracts.model import Contract, Field, Persistence, Register, Space
from hwtool_contracts.places import cells, find_place, gate_of
from hwtool_registers.bits import from_bytes, to_bytes
from hwtool_sim import reading, writing
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.coming import Coming
from hwtool_sim.doors import Door, doors_of
from hwtool_sim.memory import SimMemory


def _stays(register: Register) -> bool:
    """Whether a burst stays at the address: a FIFO that declares one, also where other addresses move on."""
    return ReadEffect.POP in register.read.effects and register.read.max_burst is not None


def _checked(register: Register, data: bytes) -> int:
    """The value of a whole write with CRCs; what comes with a wrong one is not taken."""
    try:
        return from_bytes(register, data)
    except ValueError as error:
        raise NotThere(f"{register.name}: {error}") from error


def _apart(value: Any) -> Any:
    """A container of its own with the same in it; anything else as it is. The values of a dict are of one kind."""
    match value:
        case dict():
            twin = value.copy()
            if isinstance(next(iter(value.values()), None), dict | deque | list | SimMemory):
                twin |= {key: _apart(inner) for key, inner in value.items()}
            return twin
        case deque() | list():
            return value.copy()
        case SimMemory():
            return value.copied()
        case Behaviour():
            return copy.deepcopy(value)
        case _:
            return value


class NotThere(Exception):
    """No register answers at this place in the state the chip is in.

    Attributes:
        exception: the Modbus exception that says so: 1 no such function, 2 no such place, 3 no such quantity.
    """

    def __init__(self, fault: str, exception: int = 0x02) -> None:
        super().__init__(fault)
        self.exception = exception


class Chip:
    """One simulated chip.

    Attributes:
        behaviour: what it does that its contract cannot say.
        values: what each register holds, by name.
        fifos: elements waiting behind registers whose read pops, newest last.
        sent: what was pushed into registers whose write pushes, oldest first.
        executed: executions by (register, "read" | "write").
        foreign: register writes by another master, likewise; these are not in `executed`.
        stuck: by register, bits (a mask) that stay at a value whatever is written.
        pulses: how often a pulse, command or self-clearing bit fired, by register.
        nonce: changes with every reset; the evidence of a restart.
        memories: by name; they outlast a reset.
        cycle_ms: how long the write just taken keeps the chip busy; `busy_until_s`, until when it is;
            `busy_place`, the register or field that shows it meanwhile, None: it does not acknowledge.
        now_s: when the transfer at work came, by the bus's clock; `started_s`, when it started.
        levels: by register, the bits of it that count the elements of a FIFO, and which.
        last_popped: by FIFO, what was taken last; `written_once`, the bits that take no other value any more.
        restarts: whether the access at work restarts the chip when it is over.
        coming: what time will bring, in order.
        moves: whether the transfer at work moves the pointer, where a bit of the offset says so.
    """

    def __init__(self, contract: Contract, behaviour: Behaviour | None = None) -> None:
        self.contract = contract
        self.behaviour = behaviour or Behaviour()
        self.memories = {name: SimMemory(memory) for name, memory in contract.memories.items()}
        self.cycle_ms = 0
        self.busy_until_s = float("-inf")
        self.busy_place: str | None = None
        self.moves = True
        self.now_s = self.started_s = 0.0
        self._knows_the_time = False
        self.coming: list[Coming] = []
        self.executed: Counter[tuple[str, str]] = Counter()
        self.foreign: Counter[tuple[str, str]] = Counter()
        self.pulses: Counter[str] = Counter()
        self.stuck: dict[str, tuple[int, int]] = {}
        self.levels: dict[str, list[tuple[int, str]]] = {}
        for register in contract.registers.values():
            place = None if register.read.level is None else find_place(contract, register.read.level, register)
            if place is not None:
                level, part = place
                mask = level.mask if part is None else part.mask
                self.levels.setdefault(level.name, []).append((mask, register.name))
        self._at: dict[tuple[Space, int], list[Door]] = {}
        for register in contract.registers.values():
            for door in doors_of(register):
                for cell in range(door.first, door.first + len(cells(contract, register))):
                    self._at.setdefault((register.space, cell), []).append(door)
        self.reset()

    def copied(self) -> Chip:
        """Another one in the same state; what never changes is shared."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if name not in ("contract", "levels", "_at"):
                setattr(twin, name, _apart(value))
        return twin

    def reset(self) -> None:
        """Power-on: reset values where the contract states them, else zero, then what its behaviour puts in.

        FIFOs are empty but for that; nonvolatile registers and the counters stay.
        """
        self.nonce = secrets.token_hex(8)
        held: dict[str, int] = getattr(self, "values", {})
        burnt: dict[str, int] = getattr(self, "written_once", {})
        place = None if self.contract.restart is None else find_place(self.contract, self.contract.restart.place)
        outlasts = {n for n in held if self.contract.registers[n].persistence is Persistence.NONVOLATILE}
        self.values: dict[str, int] = {}
        for register in self.contract.registers.values():
            raw = register.reset or 0
            for field in register.fields.values():
                if field.reset is not None:
                    raw = (raw & ~field.mask) | field.placed(field.reset)
            self.values[register.name] = held[register.name] if register.name in outlasts else raw
        self._show_identity()
        self.started_s = self.now_s
        self.coming = [c for c in self.coming if c.what == "element"]  # the outside world goes on
        if self.contract.restart is not None and place is not None:
            self._show_restart(self.contract.restart.by, *place, held)
        self.fifos: dict[str, deque[int]] = {
            r.name: deque() for r in self.contract.registers.values() if ReadEffect.POP in r.read.effects
        }
        self.sent: dict[str, list[int]] = {}
        self.present: dict[str, int] = {}
        self.written_once: dict[str, int] = {name: bits for name, bits in burnt.items() if name in outlasts}
        self.restarts = False
        self.last_popped: dict[str, int] = {}
        self.behaviour.power_on(self)

    def _show_restart(self, by: str, register: Register, field: Field | None, held: dict[str, int]) -> None:
        """A count of restarts goes on, and a cause stands; an uptime is told when it is read."""
        mask = register.mask if field is None else field.mask
        bit = mask & -mask
        if by == "counter":
            count = (held.get(register.name, 0) & mask) + bit
            self.values[register.name] = (self.values[register.name] & ~mask) | (count & mask)
        elif by == "cause":
            self.values[register.name] |= bit

    def _show_identity(self) -> None:
        """What every chip of the kind has in its identity register, where no reset value says so."""
        identity = self.contract.identity
        place = None if identity is None else find_place(self.contract, identity.register)
        if identity is None or place is None or place[0].reset is not None:
            return
        register, field = place
        if identity.text is not None:
            raw = int.from_bytes(identity.text.encode("ascii", "replace"), "big")
        elif identity.equals:
            raw = identity.equals[0] if field is None else field.placed(identity.equals[0])
        else:
            return
        self.values[register.name] |= raw & register.mask

    def read(self, space: Space, offset: int, size_bytes: int) -> bytes:
        """Answer a read of `size_bytes` at an offset, with the effects of every register reached.

        Raises:
            NotThere: no readable register at one of the offsets reached.
        """
        if size_bytes < 1:
            raise NotThere(f"{self.contract.part}: a read of {size_bytes} bytes", 0x03)
        memory = self._memory(space, offset)
        if memory is not None:
            self.executed[memory.memory.name, "read"] += 1
            return memory.read(offset, size_bytes)
        reached: list[tuple[Register | None, int, int]] = []
        wide = self._check_width(space, offset, size_bytes)
        at, rest = offset, size_bytes
        while rest > 0:
            try:
                door, inside = self._find(space, at, readable=True)
            except NotThere:
                if not wide:
                    raise
                reached.append((None, 0, 1))  # beside a register that is narrower than the access: nothing, zeros
                at, rest = at + 1, rest - 1
                continue
            register = door.register
            take = min(register.size_bytes - inside, rest)
            reached.append((register, inside, take))
            rest -= take
            if self._moves_on_read(space) and not _stays(register):
                at += take if space is Space.MEMORY else take // 2
        # everything was found: only now does anything happen
        data = b""
        for found, inside, take in reached:
            data += bytes(take) if found is None else self._bytes_of(found)[inside : inside + take]
        return data

    def _bytes_of(self, register: Register) -> bytes:
        return to_bytes(register, self.read_register(register))

    def _check_width(self, space: Space, offset: int, size_bytes: int) -> bool:
        """Whether the access is wider than a register that it reaches.

        Raises:
            NotThere: a register reached takes accesses of another width.
        """
        span = range(offset, offset + size_bytes) if space is Space.MEMORY else range(0)
        doors = [door for cell in span for door in self._at.get((space, cell), [])]
        for register in {door.register.name: door.register for door in doors}.values():
            bits = register.access_bits
            if bits is not None and (8 * size_bytes != bits or 8 * offset % bits):
                told = f"takes accesses of {bits} bits alone, not {8 * size_bytes} at {offset:#x}"
                raise NotThere(f"{self.contract.part}: {register.name} {told}")
        return any(door.register.shared_bytes is not None for door in doors)

    def write(self, space: Space, offset: int, data: bytes, *, foreign: bool = False) -> None:
        """Take a write at an offset, with the effects of every register reached.

        Args:
            foreign: another master writes: the same effects, counted in `foreign`.

        Raises:
            NotThere: no writable register at one of the offsets reached.
        """
        memory = self._memory(space, offset)
        if memory is not None:
            (self.foreign if foreign else self.executed)[memory.memory.name, "write"] += 1
            if self.busy_place is not None:
                return  # it is busy, and ignores it
            memory.write(offset, data)
            self.cycle_ms = memory.memory.write_cycle_ms
            self.show_busy(memory.memory.busy, True)
            return
        reached: list[tuple[Door, int, bytes]] = []
        self._check_width(space, offset, len(data))
        at, rest = offset, data
        while rest or not reached:
            door, inside = self._find(space, at, readable=False)
            take = min(door.register.size_bytes - inside, len(rest))
            part, rest = rest[:take], rest[take:]
            reached.append((door, inside, part))
            if space is not Space.MEMORY:
                at += take // 2
            elif self._moves_on_write():
                at += take
        # everything was found: only now does anything happen
        for door, inside, part in reached:
            register = door.register
            if register.crc is not None:
                self.write_register(register, _checked(register, part), foreign=foreign)
                continue
            whole, touched = bytearray(register.size_bytes), bytearray(register.size_bytes)
            whole[inside : inside + len(part)] = part
            touched[inside : inside + len(part)] = b"\xff" * len(part)
            raw, mask = from_bytes(register, bytes(whole)), from_bytes(register, bytes(touched))
            raw, mask = self._through(door, space, raw, mask)
            self.write_register(register, raw, mask, foreign=foreign)

    def _through(self, door: Door, space: Space, raw: int, mask: int) -> tuple[int, int]:
        """The value and the bits of a register that a write at a place comes to.

        Where one place has a half that clears and one that sets, each acts with the bits below the next; what is set
        and cleared at once is set.
        """
        register, held = door.register, self.values[door.register.name]
        doors = [d for d in self._at.get((space, door.first), []) if d.register is register and d.acts is not None]
        if door.acts is None or len(doors) < 2:
            return door.through(raw, mask, held)
        value = changed = 0
        for one in sorted(doors, key=lambda d: d.acts == "set"):
            bits = min((d.shift - one.shift for d in doors if d.shift > one.shift), default=register.width_bits)
            window = ((1 << bits) - 1) << one.shift
            part, touched = one.through(raw & window, mask & window, held)
            value, changed = (value & ~touched) | (part & touched), changed | touched
        return value, changed

    def show_busy(self, place: str | None, busy: bool) -> None:
        """Set or clear what shows that a write cycle runs; None: it shows by not acknowledging."""
        self.busy_place = place if busy else None
        found = None if place is None else find_place(self.contract, place)
        if found is not None:
            register, field = found
            bits = register.mask if field is None else field.mask
            self.values[register.name] = self.values[register.name] & ~bits | (bits & -bits if busy else 0)

    def _memory(self, space: Space, offset: int) -> SimMemory | None:
        if space is not Space.MEMORY:
            return None
        return next((m for m in self.memories.values() if m.holds(offset)), None)

    def read_register(self, register: Register) -> int:
        """One read of a register, with its effects: every one comes through here, whatever reached it."""
        return reading.read_register(self, register)

    def write_register(self, register: Register, raw: int, mask: int | None = None, *, foreign: bool = False) -> None:
        """One write of a register, with its effects: every one comes through here, whatever reached it."""
        counted = self.foreign if foreign else self.executed
        writing.write_register(self, register, raw, register.mask if mask is None else mask, counted)

    def find_bit(self, space: Space, at: int, readable: bool) -> tuple[Register, int]:
        """The register that a coil or discrete input belongs to, and which of its bits it is.

        Raises:
            NotThere: there is none.
        """
        door, _ = self._find(space, at, readable)
        return door.register, at - door.first

    def write_by_another(self, register: str, value: int) -> None:
        """Another master writes the whole of a register, whatever bank it is in."""
        target = self.contract.registers[register]
        self.write_register(target, value, foreign=True)

    def check(self, register: str, value: object) -> None:
        """Whether a register can hold a value.

        Raises:
            ValueError: there is no such register, or the value does not fit.
        """
        target = self.contract.registers.get(register)
        if target is None:
            near = difflib.get_close_matches(register, self.contract.registers, 3) or sorted(self.contract.registers)
            raise ValueError(f"{self.contract.part} has no register {register}; one of " + ", ".join(near))
        if not isinstance(value, int) or not 0 <= value <= target.mask:
            raise ValueError(f"{register} has {target.width_bits} bits; {value!r} does not fit")

    def catch_up(self, now_s: float) -> None:
        """It is so late by the clock of its bus: what time does to the chip has been done."""
        if not self._knows_the_time:  # it was made before anybody told it
            self._knows_the_time, self.started_s = True, now_s
        self.now_s = now_s
        if self.busy_place is not None and self.busy_until_s <= now_s:
            self.show_busy(self.busy_place, False)
        for coming in [c for c in self.coming if c.due_s <= now_s]:
            self.coming.remove(coming)
            self._come(coming)
        self.behaviour.passes(self)

    def _come(self, coming: Coming) -> None:
        """What was to come has come."""
        if coming.what == "element":
            self.push(coming.register, [coming.value])
        else:
            self.values[coming.register] &= ~coming.value

    def stick(self, register: str, bits: int, value: int) -> None:
        """Bits of a register stay at a value from here on."""
        self.stuck[register] = (bits, value & bits)
        self.values[register] = self.values[register] & ~bits | value & bits

    def push(self, register: str, elements: Iterable[int]) -> None:
        """The outside world puts elements into the FIFO behind a register."""
        self.fifos[register].extend(elements)

    def _moves_on_read(self, space: Space) -> bool:
        i2c = self.contract.access.i2c
        return space is not Space.MEMORY or (self.moves and (i2c is None or i2c.auto_increment in ("read", "both")))

    def _moves_on_write(self) -> bool:
        i2c = self.contract.access.i2c
        return self.moves and (i2c is None or i2c.auto_increment in ("write", "both"))

    def _find(self, space: Space, at: int, readable: bool) -> tuple[Door, int]:
        """The way to the register that answers at a place, and the byte inside it, given what the selectors hold.

        Where several registers share a place, the first declared answers: storage of its own for each, since a
        contract does not say which bits they share.
        """
        for door in self._at.get((space, at), []):
            register = door.register
            if readable and door.acts is not None:
                continue
            if not (register.access.readable if readable else register.access.writable):
                continue
            if register.bank is not None and not self._selected(register.bank):
                continue
            step = at - door.first
            return door, 2 * step if space.of_words else step
        raise NotThere(f"{self.contract.part}: nothing {'to read' if readable else 'to write'} at {at:#x}")

    def taker(self, register: Register) -> str:
        """The register that takes a write where this one stands: itself, or one that has an acting address there."""
        for door in self._at.get((register.space, register.offset), []):
            if door.register.access.writable and door.register.bank in (None, register.bank):
                return register.name if door.acts is None else door.register.name
        return register.name

    def _selected(self, bank: str) -> bool:
        return all(self.values[s.register] & s.mask == s.value for s in self.contract.banks[bank].select)

    def gate_open(self, gate: str | None, beside: Register) -> bool:
        """Whether what a gate names holds what it must."""
        if gate is None:
            return True
        name, value = gate_of(gate)
        held = self._look(name, beside)
        return held != 0 if value is None else held == value

    def _look(self, name: str, beside: Register) -> int:
        """The value of REG or REG.FIELD, without any effect."""
        place = find_place(self.contract, name, beside)
        if place is None:
            raise NotThere(name)
        register, field = place
        raw = self.held(register)
        return raw if field is None else field.taken(raw)

    def held(self, register: Register) -> int:
        """What a register shows without any effect: levels count their FIFOs, an uptime the time."""
        raw = self._uptime(register, self.values[register.name])
        for mask, behind in self.levels.get(register.name, []):
            if behind in self.fifos:
                lsb = (mask & -mask).bit_length() - 1
                raw = (raw & ~mask) | (min(len(self.fifos[behind]), mask >> lsb) << lsb)
        return raw

    def _uptime(self, register: Register, raw: int) -> int:
        restart = self.contract.restart
        place = None if restart is None or restart.by != "uptime" else find_place(self.contract, restart.place)
        if restart is None or place is None or place[0].name != register.name:
            return raw
        mask = register.mask if place[1] is None else place[1].mask
        count = int(1000 * (self.now_s - self.started_s) / restart.unit_ms)
        return (raw & ~mask) | (count * (mask & -mask) & mask)
