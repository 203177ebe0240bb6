"""A chip made from its contract: storage, the semantics of every effect, and counters of what was executed.

The chip is independent of the judge and the planner on purpose: it reads effects from the contract and applies them to
bits, so that a mistake in what is sent shows in what the chip holds. What a contract does not say (how fast a pin
moves, what an undeclared read changes) is made visible instead of invented: an undeclared access adds one to the
stored value, so that a repeat is noticed.

Counters: one execution is one register access that the chip took part in, whatever became of the reply.
"""

from __future__ import annotations

import difflib
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable

from hwtool_contracts.cross_check import find_place
from hwtool_contracts.effects import ACTS_ON_ONES, ACTS_ON_ZEROS, ReadEffect, WriteEffect
from hwtool_contracts.judge import cells
from hwtool_contracts.model import Contract, Register, Space, WriteSpec
from hwtool_registers.bits import from_bytes, to_bytes

UNDECLARED = frozenset(
    {ReadEffect.UNKNOWN, ReadEffect.MODIFY, ReadEffect.MODIFY_EXTERNAL, ReadEffect.TRIGGER, ReadEffect.CLAIM}
)


def _stays(register: Register) -> bool:
    """Whether a burst stays at the address: a FIFO that declares one, also where other addresses move on."""
    return ReadEffect.POP in register.read.effects and register.read.max_burst is not None


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
        values: what each register holds, by name.
        fifos: elements waiting behind registers whose read pops, newest last.
        sent: what was pushed into registers whose write pushes, oldest first.
        executed: executions by (register, "read" | "write").
        foreign: register writes by another master, likewise; these are not in `executed`.
        pulses: how often a pulse, command or self-clearing bit fired, by register.
        nonce: changes with every reset; the evidence of a restart.
    """

    def __init__(self, contract: Contract, at_power_on: Callable[[Chip], None] = lambda _: None) -> None:
        self.contract = contract
        self._at_power_on = at_power_on
        self.executed: Counter[tuple[str, str]] = Counter()
        self.foreign: Counter[tuple[str, str]] = Counter()
        self.pulses: Counter[str] = Counter()
        self._levels: dict[str, list[tuple[int, str]]] = {}
        for register in contract.registers.values():
            place = None if register.read.level is None else find_place(contract, register.read.level, register)
            if place is not None:
                level, part = place
                mask = level.mask if part is None else part.mask
                self._levels.setdefault(level.name, []).append((mask, register.name))
        self._at: dict[tuple[Space, int], list[Register]] = {}
        for register in contract.registers.values():
            for cell in cells(contract, register):
                self._at.setdefault((register.space, cell), []).append(register)
        self.reset()

    def reset(self) -> None:
        """Power-on: reset values where the contract states them, else zero, then what the maker fills in.

        FIFOs are empty but for that; the counters stay.
        """
        self.nonce = secrets.token_hex(8)
        self.values: dict[str, int] = {}
        for register in self.contract.registers.values():
            raw = register.reset or 0
            for field in register.fields.values():
                if field.reset is not None:
                    raw = (raw & ~field.mask) | (field.reset << field.lsb)
            self.values[register.name] = raw
        self.fifos: dict[str, deque[int]] = {
            r.name: deque() for r in self.contract.registers.values() if ReadEffect.POP in r.read.effects
        }
        self.sent: dict[str, list[int]] = {}
        self.present: dict[str, int] = {}
        self._written_once: dict[str, int] = {}
        self._last_popped: dict[str, int] = {}
        self._at_power_on(self)

    def read(self, space: Space, offset: int, size_bytes: int) -> bytes:
        """Answer a read of `size_bytes` at an offset, with the effects of every register reached.

        Raises:
            NotThere: no readable register at one of the offsets reached.
        """
        if size_bytes < 1:
            raise NotThere(f"{self.contract.part}: a read of {size_bytes} bytes", 0x03)
        reached: list[tuple[Register, int, int]] = []
        at, rest = offset, size_bytes
        while rest > 0:
            register, inside = self._find(space, at, readable=True)
            take = min(register.size_bytes - inside, rest)
            reached.append((register, inside, take))
            rest -= take
            if self._moves_on_read(space) and not _stays(register):
                at += take if space is Space.MEMORY else take // 2
        # everything was found: only now does anything happen
        data = b""
        for register, inside, take in reached:
            data += to_bytes(register, self._read_register(register))[inside : inside + take]
        return data

    def write(self, space: Space, offset: int, data: bytes, *, foreign: bool = False) -> None:
        """Take a write at an offset, with the effects of every register reached.

        Args:
            foreign: another master writes: the same effects, counted in `foreign`.

        Raises:
            NotThere: no writable register at one of the offsets reached.
        """
        reached: list[tuple[Register, int, bytes]] = []
        at, rest = offset, data
        while rest or not reached:
            register, inside = self._find(space, at, readable=False)
            take = min(register.size_bytes - inside, len(rest))
            part, rest = rest[:take], rest[take:]
            reached.append((register, inside, part))
            if space is not Space.MEMORY:
                at += take // 2
            elif self._moves_on_write():
                at += take
        # everything was found: only now does anything happen
        for register, inside, part in reached:
            whole, touched = bytearray(register.size_bytes), bytearray(register.size_bytes)
            whole[inside : inside + len(part)] = part
            touched[inside : inside + len(part)] = b"\xff" * len(part)
            raw, mask = from_bytes(register, bytes(whole)), from_bytes(register, bytes(touched))
            self._write_register(register, raw, mask, self.foreign if foreign else self.executed)

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

    def push(self, register: str, elements: Iterable[int]) -> None:
        """The outside world puts elements into the FIFO behind a register."""
        self.fifos[register].extend(elements)

    def _moves_on_read(self, space: Space) -> bool:
        i2c = self.contract.access.i2c
        return space is not Space.MEMORY or i2c is None or i2c.auto_increment in ("read", "both")

    def _moves_on_write(self) -> bool:
        i2c = self.contract.access.i2c
        return i2c is None or i2c.auto_increment in ("write", "both")

    def _find(self, space: Space, at: int, readable: bool) -> tuple[Register, int]:
        """The register that answers at a place, and the byte inside it, given what the selectors hold.

        Where several registers share a place, the first declared answers: storage of its own for each, since a
        contract does not say which bits they share.
        """
        for register in self._at.get((space, at), []):
            if not (register.access.readable if readable else register.access.writable):
                continue
            if register.bank is not None and not self._selected(register.bank):
                continue
            step = at - register.offset
            return register, step if space is Space.MEMORY else 2 * step
        raise NotThere(f"{self.contract.part}: nothing {'to read' if readable else 'to write'} at {at:#x}")

    def _selected(self, bank: str) -> bool:
        return all(self.values[s.register] & s.mask == s.value for s in self.contract.banks[bank].select)

    def _open(self, gate: str | None, beside: Register) -> bool:
        return gate is None or self._look(gate, beside) != 0

    def _look(self, name: str, beside: Register) -> int:
        """The value of REG or REG.FIELD, without any effect."""
        place = find_place(self.contract, name, beside)
        if place is None:
            raise NotThere(name)
        register, field = place
        raw = self._held(register)
        return raw if field is None else (raw & field.mask) >> field.lsb

    def _held(self, register: Register) -> int:
        raw = self.values[register.name]
        for mask, behind in self._levels.get(register.name, []):
            if behind in self.fifos:
                lsb = (mask & -mask).bit_length() - 1
                raw = (raw & ~mask) | (min(len(self.fifos[behind]), mask >> lsb) << lsb)
        return raw

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

    def _pop(self, register: Register) -> int:
        fifo = self.fifos[register.name]
        if fifo:
            self._last_popped[register.name] = fifo.popleft()
            return self._last_popped[register.name]
        return self._last_popped.get(register.name, 0) if register.read.when_empty == "last" else 0

    def _write_register(self, register: Register, raw: int, touched: int, counted: Counter[tuple[str, str]]) -> None:
        counted[register.name, "write"] += 1
        if not self._open(register.write.gate, register):
            return
        covered = 0
        for field in register.fields.values():
            covered |= field.mask
            if field.access.writable and field.reserved is None and self._open(field.write.gate, register):
                self._write_bits(register, field.write, raw, field.mask & touched, field.lsb)
        loose = register.mask & ~covered & touched
        if loose:
            self._write_bits(register, register.write, raw, loose, 0)

    def _write_bits(self, register: Register, spec: WriteSpec, raw: int, mask: int, lsb: int) -> None:
        name = register.name
        if spec.mask is not None:
            mask &= spec.mask << lsb
        if not mask:
            return
        held = self.values[name]
        acting = mask & (
            raw if spec.effect in ACTS_ON_ONES else ~raw if spec.effect in ACTS_ON_ZEROS else register.mask
        )
        match spec.effect:
            case WriteEffect.STORE | WriteEffect.STAGED | WriteEffect.UNLOCK:
                held = (held & ~mask) | (raw & mask)
                self._mirror(register, spec, raw & mask, mask)
            case WriteEffect.ONE_TO_CLEAR | WriteEffect.ZERO_TO_CLEAR | WriteEffect.CLEAR:
                held &= ~acting
            case WriteEffect.ONE_TO_SET | WriteEffect.ZERO_TO_SET | WriteEffect.SET:
                held |= acting
            case WriteEffect.LOCK:
                held |= raw & mask
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

    def _mirror(self, register: Register, spec: WriteSpec, part: int, mask: int) -> None:
        """A store that is proved at another register is kept there too (a port and its latch)."""
        if spec.verify is not None and spec.verify.register is not None:
            place = find_place(self.contract, spec.verify.register, register)
            if place is not None:
                target = place[0]
                self.values[target.name] = (self.values[target.name] & ~mask) | part

    def _fire(self, register: Register, spec: WriteSpec) -> None:
        """A pulse or command: count it, empty the FIFOs it affects, move its declared signals."""
        self.pulses[register.name] += 1
        for target in spec.affects if spec.effect is not WriteEffect.PUSH else ():
            affected = find_place(self.contract, target, register)
            if affected is not None and affected[0].name in self.fifos:
                self.fifos[affected[0].name].clear()
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
