"""The rules of a contract that need the whole map: references, banks, groups, overlaps, what may verify what."""

from __future__ import annotations

import difflib
from functools import partial
from itertools import pairwise

from hwtool_contracts.check_block import check_block
from hwtool_contracts.check_modbus import check_modbus
from hwtool_contracts.check_mux import check_mux
from hwtool_contracts.check_spi import check_spi
from hwtool_contracts.effects import ReadEffect, When, WriteEffect
from hwtool_contracts.glob import is_pattern, matches
from hwtool_contracts.judge import Refused
from hwtool_contracts.judge_write import judge_write
from hwtool_contracts.model import (
    Access,
    Contract,
    Field,
    NamedSequence,
    Owner,
    ReadSpec,
    Register,
    Relock,
    Space,
)
from hwtool_contracts.named_steps import check_steps
from hwtool_contracts.places import cells, find_place, find_register, gate_of
from hwtool_contracts.reach import check_reach
from hwtool_contracts.toml_reader import Fault


def check_references(contract: Contract, file: str, faults: list[Fault]) -> None:
    """Append a fault for every reference that leads nowhere or to a register that cannot do what is asked of it."""
    check = _Check(contract, file, faults)
    for register in contract.registers.values():
        check.register(register)
    check.banks()
    check.groups()
    check.assumes()
    check.identity()
    check_reach(contract, check.fault)
    check_mux(contract, check.fault)
    check_spi(contract, check.fault)


def _own_effects(register: Register) -> set[ReadEffect]:
    """What a read of a register does to its own bits, those of no field included."""
    covered = 0
    effects: set[ReadEffect] = set()
    for field in register.fields.values():
        covered |= field.mask
        effects |= field.read.effects if field.access.readable else set()
    if covered != register.mask:
        effects |= register.read.effects
    if len(effects) > 1:
        effects.discard(ReadEffect.NONE)
    return effects


class _Check:
    def __init__(self, contract: Contract, file: str, faults: list[Fault]) -> None:
        self.contract = contract
        self.file = file
        self.faults = faults

    def fault(self, table: str, key: str, rule: str, found: object, wanted: str) -> None:
        self.faults.append(Fault(self.file, table, key, rule, str(found), wanted))

    def known(self, table: str, key: str, name: str, beside: Register | None = None) -> Register | None:
        if is_pattern(name) and any(matches(name, n) for n in self.contract.registers):
            return None
        if name in self.contract.memories:
            return None
        found = find_register(self.contract, name, beside)
        if found is None:
            near = difflib.get_close_matches(name, list(self.contract.registers), 1)
            self.fault(table, key, "no such register or field", name, f"{near[0]}?" if near else "a declared name")
        return found

    def clean(self, table: str, key: str, name: str | None, beside: Register | None = None) -> None:
        if name is None:
            return
        target = self.known(table, key, name, beside)
        if target is None:
            return
        if not target.access.readable:
            self.fault(table, key, "cannot be read", name, "a readable register")
        elif (effects := _own_effects(target)) != {ReadEffect.NONE}:
            words = ", ".join(sorted(effects))
            self.fault(table, key, "its read has side effects", f"{name} ({words})", "a register whose read is none")

    def register(self, register: Register) -> None:
        table = f"registers.{register.name}"
        limit = (1 << (8 * self.contract.access.offset_bytes)) - 1
        if register.space is Space.COMMAND:
            if self.contract.access.i2c is None and self.contract.access.spi is None:
                self.fault(table, "", "no commands without [access.i2c] or [access.spi]", register.name, "one of them")
        elif register.space is Space.LINE:
            self.line(table, register)
        elif register.space is Space.MEMORY:
            access = self.contract.access
            if access.i2c is None and access.mapped is None and access.spi is None and access.mdio is None:
                self.fault(table, "space", "no memory space without [access.i2c]", "memory", "holding or input")
            if register.offset > limit:
                self.fault(table, "offset", "does not fit offset_bytes", hex(register.offset), f"at most {limit:#x}")
            if register.aliases or register.write_mask:
                self.aliases(table, register, limit)
        elif register.space is Space.BLOCK:
            check_block(self.contract, table, register, self.fault)
        elif self.contract.access.modbus is None:
            self.fault(table, "space", "needs [access.modbus]", register.space, "an [access.modbus] table")
        elif register.offset + len(cells(self.contract, register)) > 0x10000:
            self.fault(table, "offset", "ends above 65535", register.offset, "a 16-bit register number")
        if register.space.modbus:
            check_modbus(self.contract.access.modbus, table, register, self.fault)
        if register.crc is not None and register.width_bits % (8 * register.crc.word_bytes):
            wanted = f"a multiple of {8 * register.crc.word_bytes}: each word has its CRC"
            self.fault(table, "width_bits", "no whole word", register.width_bits, wanted)
        places: list[Register | Field] = [register, *register.fields.values()]
        for place in places:
            self.quantity(table, register, place)
        if register.bank is not None and register.bank not in self.contract.banks:
            self.fault(table, "bank", "no such bank", register.bank, "one of " + ", ".join(self.contract.banks))
        for name, read, write in [("", register.read, register.write)] + [
            (f"fields.{f.name}.", f.read, f.write) for f in register.fields.values()
        ]:
            for target in read.affects:
                self.known(table, name + "read.affects", target, register)
            for target in write.affects:
                self.known(table, name + "write.affects", target, register)
            self.clean(table, name + "read.level", read.level, register)
            self.clean(table, name + "read.peek", read.peek, register)
            self.gate(table, name + "read.gate", read.gate, register)
            self.gate(table, name + "write.gate", write.gate, register)
            self.gate(table, name + "read.state", read.state, register)
            for target in read.ack_by:
                self.acknowledges(table, name + "read.ack_by", target, register)
            self.elements(table, name + "read.element_bytes", register, read)
            for target in write.triggers:
                self.known(table, name + "write.triggers", target, register)
            self.writable(table, name + "read.reseek", read.reseek, register)
            self.writable(table, name + "write.commit_by", write.commit_by, register)
            self.unlocked_in(table, name + "write.unlock", write.unlock, register)
            self.only_with(table, name + "read.state", read.state, ReadEffect.CLAIM, read, ReadEffect.TRIGGER)
            self.only_with(table, name + "read.reseek", read.reseek, ReadEffect.ADVANCE, read)
            if write.absolute and write.effect is not WriteEffect.COMMAND:
                self.fault(table, name + "write.absolute", "only a command is absolute", write.effect, "effect command")
            for signal in write.signals:
                self.clean(table, name + "write.signals", signal.register, register)
            if write.verify is not None and write.verify.register is not None and not write.verify.consumes:
                self.clean(table, name + "write.verify", write.verify.register, register)
            if write.verify is not None and write.verify.by == "read_back" and write.verify.register is None:
                self.readable_back(table, name + "write.verify", register)
            if write.verify is not None and write.verify.by == "signal" and not write.signals:
                self.fault(table, name + "write.verify", "verify by signal needs signals", "signal", "signals = [...]")

    def gate(self, table: str, key: str, text: str | None, beside: Register) -> None:
        """A gate is read cleanly, and opens at a value that it can have."""
        if text is None:
            return
        name, value = gate_of(text)
        self.clean(table, key, name, beside)
        place = find_place(self.contract, name, beside)
        if place is not None and value is not None:
            holder, part = place
            if value >> (holder.width_bits if part is None else part.width_bits):
                self.fault(table, key, "opens at a value that does not fit", text, "REG.FIELD = a value of the field")

    def unlocked_in(self, table: str, key: str, name: str | None, register: Register) -> None:
        """The sequence that unlocks is there, and writes the register."""
        if name is None:
            return
        sequence = self.contract.sequences.get(name)
        if sequence is None:
            known = ", ".join(self.contract.sequences) or "a [sequences.NAME] table"
            self.fault(table, key, "no such sequence", name, known)
        elif not any(s.get("register") == register.name and s.get("do") in ("write", "update") for s in sequence.steps):
            self.fault(table, key, "the sequence does not write it", name, f"a step that writes {register.name}")

    def relock(self, sequence: str, table: str, relock: Relock) -> None:
        """It may be sent by itself, at any time and again: a plain store that needs nobody and wears nothing out."""
        register = self.contract.registers.get(relock.register)
        if register is None:
            self.known(table, "register", relock.register)
            return
        judged = judge_write(self.contract, register, relock.value)
        wanted = "a plain store of a volatile register that needs no bank, no gate and nobody's approval"
        if isinstance(judged, Refused):
            self.fault(table, "value", f"refused by rule {judged.rule}", hex(relock.value), wanted)
            return
        needs = [*judged.approval, *(f"gate {gate}" for gate in judged.gates), *judged.not_before]
        needs += [f"sequence {name}" for name in judged.unlock if name != sequence]
        needs += ["a bank"] if register.bank is not None else []
        needs += ["what it restarts or moves"] if judged.resets or judged.readdresses else []
        if judged.repeat is not When.YES:
            self.fault(table, "register", f"{judged.effect}: sending it again is not harmless", register.name, wanted)
        elif needs:
            self.fault(table, "register", "it cannot be sent by itself", ", ".join(needs), wanted)

    def writable(self, table: str, key: str, name: str | None, beside: Register) -> None:
        if name is None:
            return
        target = self.known(table, key, name, beside)
        if target is not None and not target.access.writable:
            self.fault(table, key, "cannot be written", name, "a writable register")

    def acknowledges(self, table: str, key: str, name: str, register: Register) -> None:
        """What is said to acknowledge a register says so itself: its own tables are what is judged."""
        target = self.known(table, key, name, register)
        if target is None:
            return
        specs = [target.read, target.write, *(s for f in target.fields.values() for s in (f.read, f.write))]
        if not any(find_register(self.contract, a, target) is register for spec in specs for a in spec.affects):
            self.fault(table, key, "does not say that it affects this register", name, f"affects with {register.name}")

    def elements(self, table: str, key: str, register: Register, read: ReadSpec) -> None:
        """An element of a FIFO is as long as one read, or as several."""
        size = read.element_bytes
        if size is None:
            return
        if ReadEffect.POP not in read.effects:
            self.fault(table, key, "speaks of effect pop", ", ".join(sorted(read.effects)), "the key left out")
            return
        read_bytes = (register.width_bits + 7) // 8
        if size % read_bytes:
            wanted = f"a multiple of {read_bytes}, the bytes of one read"
            self.fault(table, key, "no whole number of reads", size, wanted)
        elif size > (read.max_burst or 1) * read_bytes:
            self.fault(table, key, "does not fit max_burst", size, "a burst that takes one element")

    def only_with(
        self, table: str, key: str, value: str | None, effect: ReadEffect, read: ReadSpec, *or_effects: ReadEffect
    ) -> None:
        if value is not None and not read.effects & {effect, *or_effects}:
            words = ", ".join(sorted(read.effects))
            named = " or ".join((effect, *or_effects))
            self.fault(table, key, f"speaks of effect {named}", words, f"effects = [{effect}], or the key left out")

    def line(self, table: str, register: Register) -> None:
        """A value of a line protocol can be asked for if it is read, and set if it is written."""
        if self.contract.access.line is None:
            self.fault(table, "query", "no lines without [access.line]", register.name, "an [access.line] table")
        phrase = register.phrase
        if phrase is None:
            return
        for key, text, possible in (
            ("query", phrase.query, register.access.readable),
            ("set", phrase.set, register.access.writable),
        ):
            if possible is not (text is not None):
                wanted = f"{key} with an access that needs it, and only then"
                self.fault(table, key, f"access {register.access} and {key} do not fit", text, wanted)

    def quantity(self, table: str, register: Register, place: Register | Field) -> None:
        """What another register says of a value can be read cleanly."""
        self.clean(table, "exponent_from", place.quantity.exponent_from, register)
        self.clean(table, "scale_from", place.quantity.scale_from, register)
        param = place.quantity.scale_param
        if param is not None and param not in self.contract.params:
            self.fault(table, "scale_param", "no such parameter", param, "a [params.NAME] table")

    def aliases(self, table: str, register: Register, limit: int) -> None:
        """Aliases fit, and act on what a read shows."""
        for at in register.aliases:
            if at > limit:
                self.fault(table, "also_at", "does not fit offset_bytes", hex(at), f"at most {limit:#x}")
        acting = register.set_at or register.clear_at or register.toggle_at
        stored = [f.mask for f in register.fields.values() if f.access.writable and f.reserved is None] or [1]
        for key in ("set_at", "clear_at", "toggle_at"):
            alias = getattr(register, key)
            if alias is not None and any(mask << alias.shift > register.mask for mask in stored):
                self.fault(table, key, "shifts bits out of the register", alias.shift, "a smaller shift")
        effects = {f.write.effect for f in register.fields.values() if f.access.writable} or {register.write.effect}
        if acting is not None and effects - {WriteEffect.STORE}:
            words = ", ".join(sorted(effects))
            self.fault(table, "set_at", "acts on bits that are stored", words, "write effect store")
        if register.write_mask and effects - {WriteEffect.STORE}:
            self.fault(table, "write_mask_bits", "acts on bits that are stored", ", ".join(effects), "effect store")

    def readable_back(self, table: str, key: str, register: Register) -> None:
        """A verification that can never happen would be a promise that is not kept."""
        if not register.access.writable:
            return
        reads = [register.read, *(f.read for f in register.fields.values())]
        if not register.access.readable:
            self.fault(table, key, "cannot be read back", "read_back", 'verify = "none", a signal, or another register')
        elif any(spec.effects != {ReadEffect.NONE} and ReadEffect.UNKNOWN not in spec.effects for spec in reads):
            words = ", ".join(sorted({e for spec in reads for e in spec.effects} - {ReadEffect.NONE}))
            wanted = 'verify = "none", a signal, or another register'
            self.fault(table, key, "its read-back would have side effects", words, wanted)

    def banks(self) -> None:
        for bank in self.contract.banks.values():
            table = f"banks.{bank.name}"
            restored = () if isinstance(bank.restore, str) else bank.restore
            modbus = self.contract.access.modbus
            if bank.at_once and (modbus is None or 23 not in modbus.functions):
                self.fault(table, "at_once", "the device has no function for it", "true", "functions with 23")
            for selector in (*bank.select, *restored):
                target = self.known(table, "select", selector.register)
                if target is None:
                    continue
                plain = (
                    target.access is Access.RW
                    and target.bank is None
                    and target.owner is Owner.EXCLUSIVE
                    and target.write.effect is WriteEffect.STORE
                    and target.read.effects == {ReadEffect.NONE}
                    and not target.volatile
                )
                if not plain:
                    wanted = "a readable store register of an exclusive device, outside every bank, not volatile"
                    self.fault(table, "select", "cannot select a bank", selector.register, wanted)
                if selector.mask > target.mask:
                    self.fault(table, "select", "mask is wider than the register", hex(selector.mask), hex(target.mask))

    def groups(self) -> None:
        for group in self.contract.groups.values():
            table = f"groups.{group.name}"
            if group.name in self.contract.registers:
                self.fault(table, "", "a register has this name", group.name, "a name of its own")
            members = [self.known(table, "members", name) for name in group.members]
            found = [m for m in members if m is not None]
            if len(found) != len(members):
                continue
            if len(found) < 2:
                self.fault(table, "members", "a group has several members", len(found), "at least two")
                continue
            if len({(m.space, m.bank) for m in found}) > 1:
                self.fault(table, "members", "spaces or banks differ", ", ".join(group.members), "one space, one bank")
            if group.transfer == "one":
                self._contiguous(table, found)

    def _contiguous(self, table: str, members: list[Register]) -> None:
        if members[0].space.whole:
            self.fault(table, "transfer", f"each {members[0].space} is read by itself", "one", "each")
        i2c = self.contract.access.i2c
        if members[0].space is Space.MEMORY and i2c is not None and i2c.auto_increment not in ("read", "both"):
            self.fault(table, "transfer", "the chip does not move its pointer", "one", "each")
        for before, after in pairwise(members):
            step = len(cells(self.contract, before)) if before.space.modbus else before.size_bytes
            if after.offset != before.offset + step:
                wanted = f"{before.offset + step:#04x} after {before.name}"
                self.fault(table, "members", "not contiguous", f"{after.name} at {after.offset:#04x}", wanted)

    def assumes(self) -> None:
        for index, assume in enumerate(self.contract.assumes):
            table = f"assume[{index}]"
            self.clean(table, "register", f"{assume.register}.{assume.field}")
            register = self.contract.registers.get(assume.register)
            field = register.fields.get(assume.field) if register else None
            if field is not None and assume.value >> field.width_bits:
                self.fault(table, "value", "does not fit the field", assume.value, f"{field.width_bits} bits")

    def identity(self) -> None:
        for memory in self.contract.memories.values():
            self.clean(f"memories.{memory.name}", "busy", memory.busy)
            if self.contract.access.i2c is None and self.contract.access.spi is None:
                self.fault(f"memories.{memory.name}", "", "no memory without [access.i2c] or [access.spi]", "", "one")
        if self.contract.identity is not None:
            self.clean("identity", "register", self.contract.identity.register)
            self.clean("identity", "serial", self.contract.identity.serial)
            place = find_place(self.contract, self.contract.identity.register)
            bits = 0 if place is None else (place[0] if place[1] is None else place[1]).width_bits
            for value in self.contract.identity.equals if place is not None else ():
                if value >> bits:
                    self.fault("identity", "equals", "does not fit", hex(value), f"at most {bits} bits")
        restart = self.contract.restart
        if restart is not None:
            self.clean("restart", restart.by, restart.place)
            place = find_place(self.contract, restart.place)
            if place is not None and (place[0].bank is not None or place[0].read.gate is not None):
                self.fault("restart", restart.by, "must be read at any time", restart.place, "no bank and no gate")
            if place is not None and restart.by != "cause" and (place[1] or place[0]).access.writable:
                self.fault("restart", restart.by, "a write would look like a restart", restart.place, 'access = "ro"')
        for sequence in self.contract.sequences.values():
            self.sequence(sequence)

    def sequence(self, sequence: NamedSequence) -> None:
        """Every step names a register and says what to do there; every parameter is used, and none is made up."""
        table = f"sequences.{sequence.name}"
        for index, step in enumerate(sequence.steps):
            name = step.get("register")
            if not isinstance(name, str) or (name not in self.contract.registers and name not in self.contract.groups):
                self.known(f"{table}.steps[{index}]", "register", str(name))
        used = check_steps(self.contract, sequence, lambda index: partial(self.fault, f"{table}.steps[{index}]"))
        for name in sorted(used ^ set(sequence.params)):
            rule = "a parameter that no step uses" if name not in used else "a value that is no parameter"
            self.fault(table, "params", rule, name, "params = the names that steps have as $name")
        for index, relock in enumerate(sequence.relock):
            self.relock(sequence.name, f"{table}.relock[{index}]", relock)
        if sequence.result is not None and not any(
            s.get("register") == sequence.result and str(s.get("do")).startswith("read") for s in sequence.steps
        ):
            self.fault(table, "result", "no step reads it", sequence.result, "a register that a step reads")
