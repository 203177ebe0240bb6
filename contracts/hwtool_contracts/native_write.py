"""The writer of the native format: a contract as TOML that loads to the same contract.

Written by hand and not by a library, since the format is meant to be read: offsets in hex padded to the width of the
offset, fields and effects on one line each, what registers have in common not repeated in derived clusters.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from hwtool_contracts.model import (
    UNKNOWN_READ,
    UNKNOWN_WRITE,
    BusyRetry,
    ByteOrder,
    Contract,
    Field,
    Opcode,
    Owner,
    Persistence,
    Quantity,
    ReadSpec,
    Register,
    Space,
    WriteSpec,
)
from hwtool_contracts.native_registers import moved, part_of_whole

BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Hex(int):
    """An integer that is written in hex, with as many digits as its width asks for."""

    digits: int

    def __new__(cls, value: int, width_bits: int = 8) -> Hex:
        made = super().__new__(cls, value)
        made.digits = (width_bits + 3) // 4
        return made


def key_of(name: str) -> str:
    """A key, quoted where it must be."""
    return name if BARE.fullmatch(name) else text_of(name)


def text_of(text: str) -> str:
    """A basic string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def value_of(value: Any) -> str:
    """A value of TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Hex):
        return f"0x{value:0{value.digits}x}"
    if isinstance(value, Enum):
        return text_of(str(value.value))
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Decimal):
        return text_of(str(value))
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key_of(k)} = {value_of(v)}" for k, v in value.items()) + " }" if value else "{}"
    return "[" + ", ".join(value_of(v) for v in value) + "]"


def write_contract(contract: Contract) -> str:
    """The text of a native contract; `parse_contract` makes an equal contract of it, but for the digest."""
    writer = _Writer(contract)
    return "\n".join([*writer.head(), *writer.registers(), *writer.others()]) + "\n"


def read_table(spec: ReadSpec) -> dict[str, Any]:
    """The `read` table that says what a spec says."""
    return {"effects": sorted(e.value for e in spec.effects), **_rest(spec, "effects")}


def write_table(spec: WriteSpec) -> dict[str, Any]:
    """The `write` table that says what a spec says."""
    table: dict[str, Any] = {"effect": spec.effect.value, **_rest(spec, "effect")}
    if spec.mask is not None:
        table["mask"] = Hex(spec.mask)
    if spec.limits is not None:
        limits = {"min": spec.limits.minimum, "max": spec.limits.maximum}
        table["limits"] = {k: v for k, v in limits.items() if v is not None}
    if spec.verify is not None:
        told = {k: v for k, v in dataclasses.asdict(spec.verify).items() if v not in (None, 0)}
        table["verify"] = spec.verify.by if len(told) == 1 else told
    if spec.signals:
        table["signals"] = [
            s.register if s.delta is None and s.equals is None else {k: v for k, v in _items(s) if v is not None}
            for s in spec.signals
        ]
    if spec.approval == "none":
        table.pop("approval", None)
    return table


def _items(data: Any) -> Iterator[tuple[str, Any]]:
    for one in dataclasses.fields(data):
        yield one.name, getattr(data, one.name)


def _rest(spec: ReadSpec | WriteSpec, first: str) -> dict[str, Any]:
    """The members of a spec that say something, its provenance in their place."""
    told: dict[str, Any] = {}
    for name, value in _items(spec):
        if isinstance(value, BusyRetry):
            told[name] = dict(_items(value))
        elif name == "provenance":
            told["provenance"] = value.basis.value
            told |= {k: v for k, v in (("seen", value.seen), ("source", value.source)) if v is not None}
        elif name != first and value not in (None, (), {}, False):
            told[name] = value
    return told


def quantity_keys(quantity: Quantity) -> dict[str, Any]:
    """The keys that say how bits are understood."""
    plain = Quantity()
    told = {name: value for name, value in _items(quantity) if value != getattr(plain, name)}
    if quantity.scales:
        told["scales"] = {str(raw): scale for raw, scale in quantity.scales.items()}
    return told


def volatile_word(place: Register | Field) -> bool | str:
    """How `volatile` is stated: `"unknown"` where nobody has said."""
    return "unknown" if place.volatile_unsaid else place.volatile


class _Writer:
    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.offset_bits = 8 * contract.access.offset_bytes

    def head(self) -> list[str]:
        """Everything before the registers."""
        c = self.contract
        lines = ["schema = 1"]
        lines += [f"{k} = {text_of(getattr(c, k))}" for k in ("part", "vendor", "title", "source")]
        if c.verified is not None:
            lines.append(f"verified = {text_of(c.verified)}")
        lines += ["", "[access]", f"offset_bytes = {c.access.offset_bytes}"]
        lines.append(f"byte_order = {value_of(self._byte_order())}")
        if c.access.mapped is not None:
            lines.append("[access.mapped]")
        if c.access.i2c is not None:
            i2c = c.access.i2c
            lines.append("[access.i2c]")
            if i2c.addresses:
                lines.append(f"addresses = {value_of([Hex(a) for a in i2c.addresses])}")
            lines += [f"auto_increment = {text_of(i2c.auto_increment)}", f"read = {text_of(i2c.read)}"]
            if i2c.increment_mask:
                lines.append(f"increment_mask = {value_of(Hex(i2c.increment_mask))}")
            if i2c.offset_bits_in_address:
                lines.append(f"offset_bits_in_address = {i2c.offset_bits_in_address}")
            if i2c.pec:
                lines.append("pec = true")
            if i2c.crc is not None:
                crc = {"poly": Hex(i2c.crc.poly), "init": Hex(i2c.crc.init), "word_bytes": i2c.crc.word_bytes}
                lines.append(f"crc = {value_of(crc)}")
        if c.access.spi is not None:
            spi = c.access.spi
            lines += ["[access.spi]", f"read_mask = {value_of(Hex(spi.read_mask))}"]
            lines += [f"increment_mask = {value_of(Hex(spi.increment_mask))}", f"mode = {spi.mode}"]
            lines += [] if spi.max_hz is None else [f"max_hz = {spi.max_hz}"]
            lines += [] if spi.word_bits == 8 else [f"word_bits = {spi.word_bits}"]
        if c.access.mdio is not None:
            lines += ["[access.mdio]", f"addresses = {value_of(c.access.mdio.addresses)}"]
        if c.access.line is not None:
            lines += ["[access.line]", f"terminator = {text_of(c.access.line.terminator)}"]
        if c.access.modbus is not None:
            modbus = c.access.modbus
            lines += ["[access.modbus]", f"base = {modbus.base}"]
            if modbus.functions:
                lines.append(f"functions = {sorted(modbus.functions)}")
            lines += [f"max_registers = {modbus.max_registers}", f"atomic_multi = {value_of(modbus.atomic_multi)}"]
            lines.append(f"word_order = {value_of(self._word_order())}")
        return [*lines, ""]

    def _word_order(self) -> ByteOrder:
        """The order of words that registers have where they do not say otherwise."""
        if self.contract.access.modbus is None:
            return ByteOrder.BIG
        orders = [r.word_order for r in self.contract.registers.values()]
        return max(sorted(set(orders)), key=orders.count) if orders else ByteOrder.BIG

    def _byte_order(self) -> ByteOrder:
        if self.contract.access.mapped is not None:
            return self.contract.access.mapped.byte_order
        plain = [r.byte_order for r in self.contract.registers.values() if not r.space.own_order]
        return max(set(plain), key=plain.count) if plain else ByteOrder.BIG

    def registers(self) -> list[str]:
        """Registers, in clusters where a name has one."""
        loose: list[Register] = []
        clusters: dict[str, list[Register]] = {}
        for register in self.contract.registers.values():
            cluster, dot, _ = register.name.partition(".")
            if dot and cluster:
                clusters.setdefault(cluster, []).append(register)
            else:
                loose.append(register)
        lines = []
        for register in loose:
            table = "commands" if register.opcode is not None else "registers"
            lines += self.register(f"{table}.{key_of(register.name)}", register, 0)
        for name, members in clusters.items():
            lines += self._cluster(name, members, clusters)
        return lines

    def _cluster(self, name: str, members: list[Register], clusters: Mapping[str, list[Register]]) -> list[str]:
        at = min(r.offset for r in members)
        lines = [f"[clusters.{key_of(name)}]", f"offset = {value_of(Hex(at, self.offset_bits))}"]
        base = self.contract.derived_from.get(name)
        known: dict[str, Register] = {}
        if base is not None and base in clusters and base != name:
            below = min(r.offset for r in clusters[base])
            known = {r.name.partition(".")[2]: moved(r, -below) for r in clusters[base]}
            if known.keys() <= {r.name.partition(".")[2] for r in members}:
                lines.append(f"derived_from = {text_of(base)}")
            else:
                known = {}
        if any(r.space is not Space.MEMORY for r in members):
            at -= self.contract.access.modbus.base if self.contract.access.modbus is not None else 0
        lines.append("")
        for register in members:
            inner = register.name.partition(".")[2]
            same = known.get(inner)
            if same is not None and moved(replace(same, name=register.name), at) == register:
                continue
            lines += self.register(f"clusters.{key_of(name)}.registers.{key_of(inner)}", register, at)
        return lines

    def register(self, table: str, r: Register, at: int) -> list[str]:
        """One register, at an offset counted from `at`."""
        offset = r.offset - at
        default_width = 8
        if r.space is not Space.MEMORY:
            default_width = {Space.LINE: 32, Space.BLOCK: 0}.get(r.space, 1 if r.space.of_bits else 16)
            if not at and self.contract.access.modbus is not None and r.space.numbered:
                offset += self.contract.access.modbus.base
        told: dict[str, Any] = {"offset": Hex(offset, self.offset_bits)}
        if r.space.modbus:
            told |= {"offset": offset}
        if r.space.own_order:
            told |= {"space": r.space}
        if r.opcode is not None:
            told = self._opcode(r, r.opcode)
        elif r.phrase is not None:
            told = {k: v for k, v in (("query", r.phrase.query), ("set", r.phrase.set)) if v is not None}
        if r.width_bits != default_width and r.opcode is None:
            told["width_bits"] = r.width_bits
        if r.opcode is None:
            told["access"] = r.access
        if r.description:
            told["description"] = r.description
        for key in ("reset", "reset_mask"):
            if (value := getattr(r, key)) is not None:
                told[key] = Hex(value, r.width_bits)
        if r.opcode is not None and not r.volatile:
            told["volatile"] = False  # a command's value is volatile where nothing is said
        elif r.volatile and r.opcode is None:
            told["volatile"] = volatile_word(r)
        for key, plain in (("persistence", Persistence.UNTIL_RESET), ("owner", Owner.EXCLUSIVE)):
            if getattr(r, key) is not plain:
                told[key] = getattr(r, key)
        for key in ("sensitive", "confidential"):
            if getattr(r, key):
                told[key] = True
        if r.access_bits is not None:
            told["access_bits"] = r.access_bits
        if r.bank is not None:
            told["bank"] = r.bank
        if r.byte_order is not (ByteOrder.BIG if r.space.own_order else self._byte_order()):
            told["byte_order"] = r.byte_order
        if r.also_at:
            told["also_at"] = [Hex(o - at, self.offset_bits) for o in r.also_at]
        for key in ("set_at", "clear_at", "toggle_at"):
            if (alias := getattr(r, key)) is not None:
                place = Hex(alias.at - at, self.offset_bits)
                told[key] = {"at": place, "shift": alias.shift} if alias.shift else place
        if r.write_mask:
            told["write_mask_bits"] = f"{r.width_bits - 1}:{r.width_bits // 2}"
        if r.may_block:
            told["may_block"] = True
        told |= {k: v for k, v in (("erratum", r.erratum), ("verified", r.verified)) if v is not None}
        if r.word_order is not self._word_order():
            told["word_order"] = r.word_order
        told |= quantity_keys(r.quantity)
        if r.access.readable and r.read != UNKNOWN_READ:
            told["read"] = read_table(r.read)
        if r.access.writable and r.write != UNKNOWN_WRITE:
            told["write"] = write_table(r.write)
        lines = [f"[{table}]", *(f"{key} = {value_of(value)}" for key, value in told.items())]
        if r.values:
            lines.append(f"values = {value_of(r.values)}")
        lines += [f"fields.{key_of(f.name)} = {value_of(self.field(f, r))}" for f in r.fields.values()]
        return [*lines, ""]

    def _opcode(self, r: Register, opcode: Opcode) -> dict[str, Any]:
        """The keys that say how a command is sent; CRCs are not counted."""
        told: dict[str, Any] = {"code": Hex(r.offset, 8 * opcode.code_bytes)} if opcode.code_bytes else {}
        told["code_bytes"] = opcode.code_bytes
        if opcode.dummy_bytes:
            told["dummy_bytes"] = opcode.dummy_bytes
        if opcode.duplex:
            told["duplex"] = True
        size = r.width_bits // 8
        return told | ({"read_bytes": size} if r.access.readable else {"write_bytes": size})

    def field(self, f: Field, r: Register) -> dict[str, Any]:
        """The table of one field: what differs from its register."""
        told: dict[str, Any] = {"bits": f.lsb if f.msb == f.lsb else f"{f.msb}:{f.lsb}"}
        if f.parts:
            told = {"parts": [f"{high}:{low}" for high, low in f.parts]}
        if f.access is not r.access:
            told["access"] = f.access
        if f.description:
            told["description"] = f.description
        if f.reset is not None:
            told["reset"] = Hex(f.reset, f.width_bits)
        if (f.volatile, f.volatile_unsaid) != (r.volatile, r.volatile_unsaid):
            told["volatile"] = volatile_word(f)
        if f.reserved is not None:
            told["reserved"] = f.reserved
        if f.alternate:
            told["alternate"] = True
        if f.erratum is not None:
            told["erratum"] = f.erratum
        if f.confidential:
            told["confidential"] = True
        told |= quantity_keys(f.quantity)
        if f.access.readable and f.read != r.read:
            told["read"] = read_table(f.read)
        if f.access.writable and f.write != part_of_whole(r.write):
            told["write"] = write_table(f.write)
        if f.values:
            told["values"] = dict(f.values)
        return told

    def others(self) -> list[str]:
        """Memories, parameters, banks, groups, assumptions, identity."""
        c = self.contract
        lines: list[str] = []
        for memory in c.memories.values():
            told: dict[str, Any] = {"offset": Hex(memory.offset, self.offset_bits), "size_bytes": memory.size_bytes}
            told |= {k: v for k in ("page_bytes", "write_cycle_ms") if (v := getattr(memory, k))}
            told |= {} if memory.read_code is None else {"read_code": Hex(memory.read_code)}
            told |= {} if memory.busy is None else {"busy": memory.busy}
            told |= {} if memory.owner is Owner.EXCLUSIVE else {"owner": memory.owner}
            told |= {"access": memory.access, "persistence": memory.persistence}
            if memory.read != UNKNOWN_READ:
                told["read"] = read_table(memory.read)
            if memory.write != UNKNOWN_WRITE:
                told["write"] = write_table(memory.write)
            lines += [f"[memories.{key_of(memory.name)}]", *(f"{k} = {value_of(v)}" for k, v in told.items()), ""]
        for param in c.params.values():
            said = {"default": param.default, "min": param.minimum, "max": param.maximum, "unit": param.unit}
            lines += [f"[params.{key_of(param.name)}]"]
            lines += [*(f"{k} = {value_of(v)}" for k, v in said.items() if v is not None), ""]
        for bank in c.banks.values():
            select = [{"register": s.register, "value": Hex(s.value), "mask": Hex(s.mask)} for s in bank.select]
            lines += [f"[banks.{key_of(bank.name)}]", f"select = {value_of(select)}"]
            lines += ["at_once = true"] if bank.at_once else []
            if isinstance(bank.restore, str):
                lines += [f"restore = {text_of(bank.restore)}", ""]
                continue
            back = [{"register": s.register, "value": Hex(s.value), "mask": Hex(s.mask)} for s in bank.restore]
            lines += [f"restore = {value_of(back)}", ""]
        for group in c.groups.values():
            lines += [f"[groups.{key_of(group.name)}]", f"members = {value_of(group.members)}"]
            lines += [f"transfer = {text_of(group.transfer)}", ""]
        for assume in c.assumes:
            told = {"register": assume.register, "field": assume.field, "value": assume.value, "for": assume.purpose}
            lines += ["[[assume]]", *(f"{k} = {value_of(v)}" for k, v in told.items()), ""]
        if c.identity is not None:
            lines += ["[identity]", f"register = {text_of(c.identity.register)}"]
            identity = c.identity
            if identity.text is not None or identity.equals:
                several = [Hex(v) for v in identity.equals]
                equals: Any = identity.text if identity.text is not None else several
                lines.append(f"equals = {value_of(several[0] if len(several) == 1 else equals)}")
            lines += [] if identity.mask is None else [f"mask = {value_of(Hex(identity.mask))}"]
            lines += [] if identity.serial is None else [f"serial = {text_of(identity.serial)}"]
        if c.restart is not None:
            lines += ["[restart]", f"{c.restart.by} = {text_of(c.restart.place)}"]
            lines += [f"unit_ms = {c.restart.unit_ms}"] if c.restart.by == "uptime" else []
        if c.mux is not None:
            channels = [Hex(value) for value in c.mux.channels]
            lines += ["[mux]", f"register = {text_of(c.mux.register)}", f"channels = {value_of(channels)}"]
        for sequence in c.sequences.values():
            lines += [f"[sequences.{key_of(sequence.name)}]", f"params = {value_of(sequence.params)}"]
            lines += ["steps = [", *(f"    {value_of(step)}," for step in sequence.steps), "]"]
            lines += [] if sequence.result is None else [f"result = {text_of(sequence.result)}"]
            relock = [{"register": one.register, "value": Hex(one.value)} for one in sequence.relock]
            lines += ["relock = [", *(f"    {value_of(one)}," for one in relock), "]"] if relock else []
            lines.append("")
        return lines
