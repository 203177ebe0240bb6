"""A chip made from its contract: storage, the semantics of every effect, and counters of what was executed.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hwtool_contracts.effects import ACTS_ON_ONES, ACTS_ON_ZEROS, ReadEffect, WriteEffect
from hwtool_contracts.model import Contract, Field, Persistence, Register, Space, WriteSpec
from hwtool_contracts.places import cells, find_place, gate_of
from hwtool_registers.bits import from_bytes, to_bytes
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.memory import SimMemory

UNDECLARED = frozenset({ReadEffect.UNKNOWN, ReadEffect.MODIFY, ReadEffect.MODIFY_EXTERNAL, ReadEffect.TRIGGER})


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


@dataclass(frozen=True, slots=True)
class _Door:
    """A way to a register: its own offset, or an alias where ones set, clear or toggle its bits."""

    register: Register
    first: int
    acts: Literal["set", "clear", "toggle"] | None = None
    shift: int = 0

    def through(self, raw: int, mask: int, held: int) -> tuple[int, int]:
        """The value and the bits that a write through this door comes to."""
        if self.register.write_mask and self.acts is None:
            return raw, mask & (raw & self.register.write_mask) >> (self.register.width_bits // 2)
        ones = (raw & mask) >> self.shift
        match self.acts:
            case None:
                return raw, mask
            case "set":
                return ones, ones
            case "clear":
                return 0, ones
            case "toggle":
                return held ^ ones, ones


def _doors(register: Register) -> Iterator[_Door]:
    yield _Door(register, register.offset)
    for at in register.also_at:
        yield _Door(register, at)
    if register.set_at is not None:
        yield _Door(register, register.set_at.at, "set", register.set_at.shift)
    if register.clear_at is not None:
        yield _Door(register, register.clear_at.at, "clear", register.clear_at.shift)
    if register.toggle_at is not None:
        yield _Door(register, register.toggle_at.at, "toggle", register.toggle_at.shift)


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
        self.executed: Counter[tuple[str, str]] = Counter()
        self.foreign: Counter[tuple[str, str]] = Counter()
        self.pulses: Counter[str] = Counter()
        self.stuck: dict[str, tuple[int, int]] = {}
        self._levels: dict[str, list[tuple[int, str]]] = {}
        for register in contract.registers.values():
            place = None if register.read.level is None else find_place(contract, register.read.level, register)
            if place is not None:
                level, part = place
                mask = level.mask if part is None else part.mask
                self._levels.setdefault(level.name, []).append((mask, register.name))
        self._at: dict[tuple[Space, int], list[_Door]] = {}
        for register in contract.registers.values():
            for door in _doors(register):
                for cell in range(door.first, door.first + len(cells(contract, register))):
                    self._at.setdefault((register.space, cell), []).append(door)
        self.reset()

    def copied(self) -> Chip:
        """Another one in the same state; what never changes is shared."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if name not in ("contract", "_levels", "_at"):
                setattr(twin, name, _apart(value))
        return twin

    def reset(self) -> None:
        """Power-on: reset values where the contract states them, else zero, then what its behaviour puts in.

        FIFOs are empty but for that; nonvolatile registers and the counters stay.
        """
        self.nonce = secrets.token_hex(8)
        held: dict[str, int] = getattr(self, "values", {})
        burnt: dict[str, int] = getattr(self, "_written_once", {})
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
        if self.contract.restart is not None and place is not None:
            self._show_restart(self.contract.restart.by, *place, held)
        self.fifos: dict[str, deque[int]] = {
            r.name: deque() for r in self.contract.registers.values() if ReadEffect.POP in r.read.effects
        }
        self.sent: dict[str, list[int]] = {}
        self.present: dict[str, int] = {}
        self._written_once: dict[str, int] = {name: bits for name, bits in burnt.items() if name in outlasts}
        self._restarts = False
        self._last_popped: dict[str, int] = {}
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
        return to_bytes(register, self._read_register(register))

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
        reached: list[tuple[_Door, int, bytes]] = []
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
                self._write_register(register, _checked(register, part), register.mask, self.executed)
                continue
            whole, touched = bytearray(register.size_bytes), bytearray(register.size_bytes)
            whole[inside : inside + len(part)] = part
            touched[inside : inside + len(part)] = b"\xff" * len(part)
            raw, mask = from_bytes(register, bytes(whole)), from_bytes(register, bytes(touched))
            raw, mask = self._through(door, space, raw, mask)
            self._write_register(register, raw, mask, self.foreign if foreign else self.executed)

    def _through(self, door: _Door, space: Space, raw: int, mask: int) -> tuple[int, int]:
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
        """One read of a register, with its effects."""
        return self._read_register(register)

    def write_register(self, register: Register, raw: int, mask: int | None = None, *, foreign: bool = False) -> None:
        """One write of a register, with its effects."""
        counted = self.foreign if foreign else self.executed
        self._write_register(register, raw, register.mask if mask is None else mask, counted)

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
        self._write_register(target, value, target.mask, self.foreign)

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
        self.now_s = now_s
        if self.busy_place is not None and self.busy_until_s <= now_s:
            self.show_busy(self.busy_place, False)
        self.behaviour.passes(self)

    def stick(self, register: str, bits: int, value: int) -> None:
        """Bits of a register stay at a value from here on."""
        self.stuck[register] = (bits, value & bits)
        self.values[register] = self.values[register] & ~bits | value & bits

    def push(self, register: str, elements: Iterable[int]) -> None:
        """The outside world puts elements into the FIFO behind a register."""
        self.fifos[register].extend(elements)

    def _moves_on_read(self, space: Space) -> bool:
        i2c = self.contract.access.i2c
        return space is not Space.MEMORY or i2c is None or (self.moves and i2c.auto_increment in ("read", "both"))

    def _moves_on_write(self) -> bool:
        i2c = self.contract.access.i2c
        return i2c is None or (self.moves and i2c.auto_increment in ("write", "both"))

    def _find(self, space: Space, at: int, readable: bool) -> tuple[_Door, int]:
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

    def _open(self, gate: str | None, beside: Register) -> bool:
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
        raw = self._held(register)
        return raw if field is None else field.taken(raw)

    def _held(self, register: Register) -> int:
        raw = self._uptime(register, self.values[register.name])
        for mask, behind in self._levels.get(register.name, []):
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

    def _read_register(self, register: Register) -> int:
        name = register.name
        self.executed[name, "read"] += 1
        if not self._open(register.read.gate, register):
            return 0
        shut = 0  # bits behind a closed gate, as the gates were before anything happened
        for field in register.fields.values():
            if not self._open(field.read.gate, register):
                shut |= field.mask
        pops = ReadEffect.POP in register.read.effects
        answer = self._pop(register) if pops else self._held(register)
        if ReadEffect.CLAIM in register.read.effects:
            return self._claim(register)
        effects = [(register.mask, register.read)] if not register.fields else []
        covered = 0
        for field in register.fields.values():
            effects.append((field.mask, field.read))
            covered |= field.mask
        if register.fields and covered != register.mask:
            effects.append((register.mask & ~covered, register.read))
        acted: set[ReadEffect] = set()
        for mask, spec in effects:
            if mask & shut:
                answer &= ~mask
                continue
            for effect in spec.effects:
                self._read_effect(effect, name, mask, spec.affects, register)
                acted.add(effect)
        if ReadEffect.TRIGGER in acted:
            self._show_state(register)
        if acted & UNDECLARED or ReadEffect.ADVANCE in acted:
            self.values[name] = (self.values[name] + 1) & register.mask
        return answer

    def _read_effect(
        self, effect: ReadEffect, name: str, mask: int, affects: tuple[str, ...], register: Register
    ) -> None:
        match effect:
            case ReadEffect.CLEAR if affects:
                self._affect(ReadEffect.ACK, affects, register)
            case ReadEffect.ACK | ReadEffect.LATCH:
                self._affect(effect, affects, register)
            case ReadEffect.CLEAR:
                self.values[name] &= ~mask
            case ReadEffect.SET:
                self.values[name] |= mask
            case ReadEffect.RELATCH:
                self.values[name] = (self.values[name] & ~mask) | (self.present.get(name, 0) & mask)
            case _:
                pass  # none, arm: nothing; the others act once a read, not once a field

    def _affect(self, effect: ReadEffect, affects: Iterable[str], register: Register) -> None:
        for target in affects:
            place = find_place(self.contract, target, register)
            if place is None:
                continue
            other, field = place
            if effect is ReadEffect.ACK:
                self.values[other.name] &= ~(other.mask if field is None else field.mask)
            elif other.name in self.present:
                mask = other.mask if field is None else field.mask
                frozen = self.present[other.name] & mask
                self.values[other.name] = (self.values[other.name] & ~mask) | frozen

    def _claim(self, register: Register) -> int:
        """Test and set: all ones if it was free, 0 if it is taken; a declared state field shows it."""
        free = self.values[register.name] == 0
        self.values[register.name] = register.mask
        self._show_state(register)
        return register.mask if free else 0

    def _show_state(self, register: Register) -> None:
        """The declared state of what a read has claimed or set off."""
        if register.read.state is None:
            return
        name, taken = gate_of(register.read.state)
        place = find_place(self.contract, name, register)
        holder, field = (None, None) if place is None else place
        if holder is not None and field is not None:
            bits = field.mask if taken is None else field.placed(taken)
            self.values[holder.name] = self.values[holder.name] & ~field.mask | bits

    def _pop(self, register: Register) -> int:
        fifo = self.fifos[register.name]
        if fifo:
            self._last_popped[register.name] = fifo.popleft()
            return self._last_popped[register.name]
        told = register.read.when_empty
        if register.phrase is not None and told is not None:
            return int.from_bytes(told.encode("ascii", "replace"), "big")  # a line of text answers with a text
        return self._last_popped.get(register.name, 0) if told == "last" else 0

    def _write_register(self, register: Register, raw: int, touched: int, counted: Counter[tuple[str, str]]) -> None:
        counted[register.name, "write"] += 1
        if not self._open(register.write.gate, register):
            return
        covered = 0
        for field in register.fields.values():
            covered |= field.mask
            if field.access.writable and field.reserved is None and self._open(field.write.gate, register):
                self._write_bits(register, field.write, raw, field.mask & touched, 0, field)
        loose = register.mask & ~covered & touched
        if loose:
            self._write_bits(register, register.write, raw, loose, 0)
        bits, value = self.stuck.get(register.name, (0, 0))
        self.values[register.name] = self.values[register.name] & ~bits | value
        if not register.width_bits:  # a bare opcode: that it came is all there is
            self._set_off(register.write)
            self._fire(register, register.write)
        self.behaviour.written(self, register.name, raw & touched)
        if self._restarts:
            self.reset()

    def _write_bits(
        self, register: Register, spec: WriteSpec, raw: int, mask: int, lsb: int, field: Field | None = None
    ) -> None:
        name = register.name
        if spec.mask is not None:
            mask &= spec.mask << lsb if field is None else field.placed(spec.mask)
        if not mask:
            return
        held = self.values[name]
        acting = mask & (
            raw if spec.effect in ACTS_ON_ONES else ~raw if spec.effect in ACTS_ON_ZEROS else register.mask
        )
        if acting:
            self._set_off(spec)
        match spec.effect:
            case WriteEffect.STORE | WriteEffect.STAGED | WriteEffect.UNLOCK:
                held = (held & ~mask) | (raw & mask)
                self._mirror(register, spec, raw & mask, mask)
                if spec.effect is not WriteEffect.STORE:
                    self._move_signals(register, spec)
            case WriteEffect.ONE_TO_CLEAR | WriteEffect.ZERO_TO_CLEAR | WriteEffect.CLEAR:
                held &= ~acting
                if spec.effect is WriteEffect.CLEAR:
                    self._clear_affected(register, spec)
            case WriteEffect.ONE_TO_SET | WriteEffect.ZERO_TO_SET | WriteEffect.SET:
                held |= acting
            case WriteEffect.LOCK:
                held |= raw & mask
                self._mirror(register, spec, raw & mask, raw & mask)
            case WriteEffect.ONE_TO_TOGGLE | WriteEffect.ZERO_TO_TOGGLE:
                held ^= acting
            case WriteEffect.WRITE_ONCE:
                fresh = mask & ~self._written_once.get(name, 0)
                held = (held & ~fresh) | (raw & fresh)
                self._written_once[name] = self._written_once.get(name, 0) | mask
            case WriteEffect.PUSH:
                self.sent.setdefault(name, []).append(raw & mask)
                self._fire(register, spec)
            case WriteEffect.SELF_CLEARING | WriteEffect.PULSE:
                if acting:
                    self._fire(register, spec)
            case WriteEffect.COMMAND:
                self._fire(register, spec)
            case WriteEffect.ADVANCE | WriteEffect.MODIFY | WriteEffect.UNKNOWN:
                held = (held & ~mask) | (raw & mask)
                self.pulses[name] += 1
        if spec.effect not in (WriteEffect.SELF_CLEARING, WriteEffect.PULSE, WriteEffect.COMMAND, WriteEffect.PUSH):
            self.values[name] = held & register.mask

    def _set_off(self, spec: WriteSpec) -> None:
        """What any write sets off besides its own effect."""
        self._restarts = self._restarts or spec.resets is not None
        for target in spec.triggers:
            self.pulses[target] += 1

    def _clear_affected(self, register: Register, spec: WriteSpec) -> None:
        """What a write that clears clears elsewhere."""
        for target in spec.affects:
            place = find_place(self.contract, target, register)
            if place is not None:
                other, field = place
                self.values[other.name] &= ~(other.mask if field is None else field.mask)
                if other.name in self.fifos:
                    self.fifos[other.name].clear()

    def _mirror(self, register: Register, spec: WriteSpec, part: int, mask: int) -> None:
        """A store that is proved at another register is kept there too (a port and its latch)."""
        if spec.verify is not None and spec.verify.register is not None:
            place = find_place(self.contract, spec.verify.register, register)
            if place is not None:
                target = place[0]
                self.values[target.name] = ((self.values[target.name] & ~mask) | part) & target.mask

    def _fire(self, register: Register, spec: WriteSpec) -> None:
        """A pulse or command: count it, empty the FIFOs it affects, move its declared signals."""
        self.pulses[register.name] += 1
        if spec.effect is WriteEffect.CLEAR:
            self._clear_affected(register, spec)
        for target in spec.affects if spec.effect is not WriteEffect.PUSH else ():
            affected = find_place(self.contract, target, register)
            if affected is not None and affected[0].name in self.fifos:
                self.fifos[affected[0].name].clear()
        self._move_signals(register, spec)

    def _move_signals(self, register: Register, spec: WriteSpec) -> None:
        for signal in spec.signals:
            place = find_place(self.contract, signal.register, register)
            if place is None:
                continue
            other, field = place
            mask, lsb = (other.mask, 0) if field is None else (field.mask, field.lsb)
            if any(mask & counted for counted, _ in self._levels.get(other.name, [])):
                continue  # it counts a FIFO's elements already
            part = (self.values[other.name] & mask) >> lsb
            if signal.equals is not None:
                part = signal.equals
            else:
                part += signal.delta if signal.delta is not None else 1
            self.values[other.name] = (self.values[other.name] & ~mask) | ((part << lsb) & mask)
