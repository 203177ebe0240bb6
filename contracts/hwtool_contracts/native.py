"""The loader of the native format: one TOML file becomes one `Contract`, or all of its faults at once.

The file is read top-down with `Table`; clusters and arrays are expanded; then the references between registers are
checked. A key of the format that this version does not support is refused by name: a contract that is half
understood is worse than none.

Source: docs/contracts.md, the table of keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hwtool_contracts.cross_check import check_references
from hwtool_contracts.memories import with_memories
from hwtool_contracts.model import Contract, Register
from hwtool_contracts.native_access import access_facts
from hwtool_contracts.native_commands import commands, memories
from hwtool_contracts.native_registers import (
    MAX_REGISTERS,
    RegisterReader,
    array_of,
    cluster_aliases,
    read_defaults,
    stride_cells,
    with_aliases,
)
from hwtool_contracts.native_tables import (
    assumes,
    banks,
    groups,
    identity,
    indexed_banks,
    mux,
    params,
    restart,
    sequences,
    verified_by,
)
from hwtool_contracts.reach import with_secrecy
from hwtool_contracts.toml_reader import Fault, Faults, Table, parse_toml

MAX_CLUSTER_DEPTH: Final = 16


def load_contract(path: Path) -> Contract:
    """Load one contract file.

    Raises:
        Faults: the file cannot be read or breaks rules; all of them are listed.
    """
    return parse_contract(read_text(path), path.name)


def read_text(path: Path) -> str:
    """The text of a contract or overlay file.

    Raises:
        Faults: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([Fault(path.name, "", "", "cannot be read", str(error), "a readable UTF-8 file")]) from error


def parse_contract(text: str, file: str) -> Contract:
    """Make a contract of the text of a file called `file`.

    Raises:
        Faults: as `load_contract`.
    """
    return contract_of(parse_toml(text, file), file)


def contract_of(data: Mapping[str, Any], file: str, where: str = "") -> Contract:
    """Make a contract of a parsed file, or of the table `where` of one.

    Raises:
        Faults: as `load_contract`.
    """
    faults: list[Fault] = []
    top = Table(data, where, file, faults)
    for key in ("base", "base_sha256", "review"):
        if key in data:
            top.fault(key, "an overlay is no contract of its own", top.raw(key) and None, "a base beside it: overlays")
    contract = _contract(top, digest_of(data))
    if not faults:
        check_references(contract, file, faults)
    if faults:
        raise Faults(faults)
    return with_secrecy(contract)


def digest_of(data: Mapping[str, Any]) -> str:
    """The digest of what a parsed file means; comments and layout do not count."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _contract(top: Table, digest: str) -> Contract:
    if top.integer("schema", required=True) not in (1, None):
        top.fault("schema", "unknown schema", top.data["schema"], "1")
    head = {key: top.text(key, required=True) or "" for key in ("part", "vendor", "title", "source")}
    verified = verified_by(top)
    facts = access_facts(top)
    map_ = RegisterMap(RegisterReader(facts, read_defaults(top)), indexed_banks(top))
    map_.read(top, 0, "")
    for command in commands(top, map_.reader):
        map_.add(command, top)
    ranges = memories(top, facts, map_.reader)
    if not map_.registers and not ranges:
        top.fault("registers", "no register", None, "at least one [registers.NAME]")
    for name in sorted(set(ranges) & set(map_.registers)):
        top.fault(f"memories.{name}", "a register has this name", name, "a name of its own")
    groups_of = groups(top)
    for name in sorted(groups_of.keys() & map_.reader.blocks.keys()):
        top.fault(f"groups.{name}", "an array that is a block is the group of its name", name, "a name of its own")
    contract = Contract(
        part=head["part"],
        vendor=head["vendor"],
        title=head["title"],
        source=head["source"],
        digest=digest,
        access=facts.access,
        registers=with_memories(map_.registers, ranges, facts.access),
        banks=banks(top, map_.registers),
        groups=groups_of | map_.reader.blocks,
        assumes=assumes(top),
        identity=identity(top),
        restart=restart(top),
        mux=mux(top),
        verified=verified,
        derived_from=map_.derived_from,
        memories=ranges,
        params=params(top),
        sequences=sequences(top),
    )
    top.done()
    return contract


class RegisterMap:
    """The map while it is being built: clusters and arrays expanded.

    Attributes:
        derived_from: cluster → the cluster whose registers it has.
    """

    def __init__(self, reader: RegisterReader, indexed: frozenset[str] = frozenset()) -> None:
        """`indexed`: names of banks that an element of a cluster selects by its number."""
        self.reader = reader
        self.indexed = indexed
        self.bank: str | None = None
        self.registers: dict[str, Register] = {}
        self.derived_from: dict[str, str] = {}

    def read(self, around: Table, at: int, prefix: str, depth: int = 0) -> None:
        """Read `registers` and `clusters` of a file or of a cluster."""
        for name, table in around.tables("registers"):
            for register in self.reader.read(name, table, at, prefix):
                if self.bank is not None and register.bank is None:
                    register = replace(register, bank=self.bank)
                self.add(register, table)
        if depth > MAX_CLUSTER_DEPTH:
            around.fault("clusters", "nested too deeply", depth, f"at most {MAX_CLUSTER_DEPTH} levels")
            return
        siblings = around.data.get("clusters")
        for name, table in around.tables("clusters"):
            self._cluster(name, table, siblings if isinstance(siblings, dict) else {}, at, prefix, depth)

    def _cluster(self, name: str, table: Table, siblings: Mapping[str, Any], at: int, prefix: str, depth: int) -> None:
        offset = table.integer("offset", low=0, required=True) or 0
        count, stride = array_of(table)
        base, bank = table.text("derived_from"), table.text("bank")
        whole = table if base is None else self._derived(name, base, table, siblings)
        if base is not None and not prefix:
            for one in [name] if count is None else [f"{name}[{i}]" for i in range(count)]:
                self.derived_from[one] = base
        modbus = any("space" in t.data for _, t in Table(whole.data, "", "", []).tables("registers"))
        step = stride_cells(stride, modbus, table)
        by_index = bank is not None and bank in self.indexed
        aliases, around = cluster_aliases(table), self.bank
        for index in range(count or 1):
            self.bank = around if bank is None else f"{bank}[{index}]" if by_index else bank
            inner = f"{prefix}{name}[{index}]." if count is not None else f"{prefix}{name}."
            faults_before = len(table.faults)
            self.read(whole, at + offset + index * step, inner, depth + 1)
            self.bank = around
            if aliases is not None:
                self.registers |= {
                    n: with_aliases(r, aliases) for n, r in self.registers.items() if n.startswith(inner)
                }
            if len(table.faults) > faults_before:
                break  # the same faults would come again for each element
        table.raw("registers"), table.raw("clusters")
        table.done()

    def _derived(self, name: str, base: str, table: Table, siblings: Mapping[str, Any]) -> Table:
        """The cluster with the registers and clusters of its base; its own come in their place."""
        chain, merged = [name], dict(table.data)
        while True:
            found = siblings.get(base)
            if not isinstance(found, dict):
                table.fault("derived_from", "no such cluster beside it", base, "one of " + ", ".join(siblings))
                return table
            if base in chain:
                table.fault("derived_from", "goes in a circle", " → ".join([*chain, base]), "a base of its own")
                return table
            for key in ("registers", "clusters"):
                if isinstance(found.get(key), dict):
                    merged[key] = found[key] | merged.get(key, {})
            chain.append(base)
            if "derived_from" not in found:
                return Table(merged, table.where, table.file, table.faults)
            base = str(found["derived_from"])

    def add(self, register: Register, table: Table) -> None:
        """Take a register into the map; two of one name are a fault."""
        if not register.name or not register.name.isprintable():
            table.fault("", "not a name", repr(register.name), "printable characters, at least one")
        if register.name in self.registers:
            table.fault("", "two registers of one name", register.name, "a name of its own")
        if len(self.registers) >= MAX_REGISTERS:
            table.fault("count", "too many registers", len(self.registers), f"at most {MAX_REGISTERS}")
            return
        self.registers[register.name] = register
