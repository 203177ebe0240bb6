"""The rules of a contract that need the whole map: references, banks, groups, overlaps, what may verify what."""

from __future__ import annotations

import difflib
from itertools import pairwise

from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.model import Access, Contract, Field, Owner, Register, Space
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


def find_place(contract: Contract, name: str, beside: Register | None = None) -> tuple[Register, Field | None] | None:
    """The register called `name`, or the field of a `REG.FIELD`; siblings of `beside` in its cluster come first."""
    candidates = [name]
    if beside is not None and "." in beside.name:
        candidates.insert(0, beside.name.rpartition(".")[0] + "." + name)
    for candidate in candidates:
        if candidate in contract.registers:
            return contract.registers[candidate], None
        owner, _, field = candidate.rpartition(".")
        if owner in contract.registers and field in contract.registers[owner].fields:
            return contract.registers[owner], contract.registers[owner].fields[field]
    return None


def find_register(contract: Contract, name: str, beside: Register | None = None) -> Register | None:
    """The register of `find_place`."""
    place = find_place(contract, name, beside)
    return None if place is None else place[0]


class _Check:
    def __init__(self, contract: Contract, file: str, faults: list[Fault]) -> None:
        self.contract = contract
        self.file = file
        self.faults = faults

    def fault(self, table: str, key: str, rule: str, found: object, wanted: str) -> None:
        self.faults.append(Fault(self.file, table, key, rule, str(found), wanted))

    def known(self, table: str, key: str, name: str, beside: Register | None = None) -> Register | None:
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
        elif target.read.effects != {ReadEffect.NONE}:
            words = ", ".join(sorted(target.read.effects))
            self.fault(table, key, "its read has side effects", f"{name} ({words})", "a register whose read is none")

    def register(self, register: Register) -> None:
        table = f"registers.{register.name}"
        limit = (1 << (8 * self.contract.access.offset_bytes)) - 1
        if register.space is Space.MEMORY:
            if self.contract.access.i2c is None:
                self.fault(table, "space", "no memory space without [access.i2c]", "memory", "holding or input")
            if register.offset > limit:
                self.fault(table, "offset", "does not fit offset_bytes", hex(register.offset), f"at most {limit:#x}")
        elif self.contract.access.modbus is None:
            self.fault(table, "space", "needs [access.modbus]", register.space, "an [access.modbus] table")
        elif register.offset + register.width_bits // 16 > 0x10000:
            self.fault(table, "offset", "ends above 65535", register.offset, "a 16-bit register number")
        modbus = self.contract.access.modbus
        if modbus is not None and modbus.functions and register.space is not Space.MEMORY:
            reads = {3} if register.space is Space.HOLDING else {4}
            if register.access.readable and not reads & modbus.functions:
                wanted = f"functions with {reads.pop()}"
                self.fault(table, "space", "the device has no function to read it", register.space, wanted)
            if register.access.writable and not {6, 16} & modbus.functions:
                self.fault(table, "access", "the device has no function to write it", register.access, "6 or 16")
        if register.space is Space.INPUT and register.access is not Access.RO:
            self.fault(table, "access", "input registers cannot be written", register.access, "ro")
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
            self.clean(table, name + "read.gate", read.gate, register)
            self.clean(table, name + "write.gate", write.gate, register)
            for signal in write.signals:
                self.clean(table, name + "write.signals", signal.register, register)
            if write.verify is not None and write.verify.register is not None:
                self.clean(table, name + "write.verify", write.verify.register, register)
            if write.verify is not None and write.verify.by == "read_back" and write.verify.register is None:
                self.readable_back(table, name + "write.verify", register)
            if write.verify is not None and write.verify.by == "signal" and not write.signals:
                self.fault(table, name + "write.verify", "verify by signal needs signals", "signal", "signals = [...]")

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
            for selector in bank.select:
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
        i2c = self.contract.access.i2c
        if members[0].space is Space.MEMORY and i2c is not None and i2c.auto_increment not in ("read", "both"):
            self.fault(table, "transfer", "the chip does not move its pointer", "one", "each")
        for before, after in pairwise(members):
            step = before.width_bits // 16 if before.space is not Space.MEMORY else before.size_bytes
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
        if self.contract.identity is not None:
            self.clean("identity", "register", self.contract.identity.register)
