"""The board file: the buses and devices of a host, read strictly, all faults at once.

A key that belongs to the format and is not supported by this version is refused by name. The built-in bench is a board
like any other, written as text in `bench.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from hwtool.board_buses import ON_I2C, ON_SPI, OVER_USB, BusKind, BusSpec, check_id, read_bus
from hwtool.policy_table import Rule, policy_rules
from hwtool.safe_entries import SafeEntry, safe_entries
from hwtool_contracts.library import find_contract, is_path
from hwtool_contracts.memories import with_memories
from hwtool_contracts.model import Contract, Owner, Persistence
from hwtool_contracts.params import read_params, with_params
from hwtool_contracts.parts import part_of
from hwtool_contracts.places import overlapping
from hwtool_contracts.toml_reader import Fault, Faults, Table, parse_toml
from hwtool_sim.bus import behind

MAX_WRITES_PER_DAY: Final = 1_000_000
MAX_CHANNEL: Final = 31
DEVICE_NOT_YET: Final = frozenset({"rtl_source"})


class ApprovalMode(StrEnum):
    """Who may approve whose requests."""

    SEPARATE_USER = "separate-user"
    TWO_PERSON = "two-person"
    SUDO = "sudo"
    SELF = "self"


class Restarts(StrEnum):
    """What a device's restarts go with."""

    WITH_HOST = "with_host"
    WITH_USB = "with_usb"


class Unverified(StrEnum):
    """What becomes of effects on a device whose contract nobody has checked on a real part."""

    ALLOW = "allow"
    REFUSE = "refuse"


class OnLoss(StrEnum):
    """What becomes of a consuming read that no rule can settle."""

    HOLD = "hold"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device of the board.

    Attributes:
        contract_name: how the board names its contract; `overlays`, what is laid over it.
        part: the cluster of a big chip that is this device; `whole` is the contract of that chip.
        restarts_with_host: it restarts exactly when this host does: the host's boot id is its boot evidence.
        restarts_with_usb: it is the USB device that the bus's node belongs to: an enumeration is its restart.
        report_loss: a consuming read that nothing can settle is closed as lost, with its bound, and holds nothing.
        safe_state: what `device.safe_state` writes, in order.
        refuse_unverified: effects are refused while the contract is not verified on a real part.
        mux, channel: the multiplexer that it sits behind, and on which channel; `mux_address` is that one's.
        writes_per_day: nonvolatile registers that need no approval for so many writes a UTC day.
    """

    name: str
    contract_name: str
    contract: Contract
    bus: str
    address: int
    identity: str | None
    restarts_with_host: bool = False
    restarts_with_usb: bool = False
    report_loss: bool = False
    safe_state: tuple[SafeEntry, ...] = ()
    overlays: tuple[str, ...] = ()
    part: str | None = None
    whole: Contract | None = None
    writes_per_day: Mapping[str, int] = field(default_factory=dict)
    refuse_unverified: bool = False
    mux: str | None = None
    channel: int = 0
    mux_address: int = 0

    @property
    def place(self) -> int:
        """Which chip of its bus it is: its address, and of one behind a multiplexer more (hwtool_sim.bus.behind)."""
        return self.address if self.mux is None else behind(self.mux_address, self.channel, self.address)

    @property
    def chip(self) -> Contract:
        """The contract of the chip that this device is, or is a part of."""
        return self.contract if self.whole is None else self.whole

    @property
    def addresses(self) -> range:
        """Where it answers: more than one address where bits of its offsets stand there."""
        i2c = self.contract.access.i2c
        return range(self.address, self.address + (1 << (i2c.offset_bits_in_address if i2c is not None else 0)))

    def locus(self, bus: BusSpec) -> str:
        """Stable bus path and address: what is held."""
        way = "" if self.mux is None else f"{self.mux_address:#04x}.{self.channel}:"
        place = f"{bus.stable_path}:{way}{self.address:#04x}"
        return place if self.part is None else f"{place}/{self.part}"

    @property
    def named(self) -> str | list[str]:
        """How another process finds the contract of the chip: its name, or a list with that of each overlay."""
        return [self.contract_name, *self.overlays] if self.overlays else self.contract_name


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """Where metrics are put: a file for a textfile collector, every so often, and a port of the loopback."""

    textfile: Path | None
    interval_s: int
    port: int | None


@dataclass(frozen=True, slots=True)
class Board:
    """A site file, loaded and checked.

    Attributes:
        policy: the first rule that matches decides; see hwtool.permission.
        metrics: where the metrics are put beside the method of that name.
    """

    name: str
    approval_mode: ApprovalMode
    self_approval_on_hardware: bool
    buses: dict[str, BusSpec]
    devices: dict[str, DeviceSpec]
    policy: tuple[Rule, ...] = ()
    metrics: MetricsSpec | None = None

    @property
    def simulated(self) -> bool:
        """Whether every bus is simulated."""
        return all(b.simulated for b in self.buses.values())


def load_board(path: Path) -> Board:
    """Load a board file; contract paths in it are relative to it.

    Raises:
        Faults: it cannot be read, or breaks rules; all of them are listed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([Fault(str(path), "", "", "cannot be read", str(error), "a readable board file")]) from error
    return parse_board(text, path.name, path.parent)


def parse_board(text: str, file: str, beside: Path) -> Board:
    """Make a board of the text of a file.

    Raises:
        Faults: as `load_board`.
    """
    return board_of(parse_toml(text, file), file, beside)


def board_of(
    data: Mapping[str, Any], file: str, beside: Path, where: str = "", contracts: Mapping[str, Contract] | None = None
) -> Board:
    """Make a board of a parsed file, or of the table `where` of one.

    Args:
        contracts: by name, those that need not be looked for.

    Raises:
        Faults: as `load_board`.
    """
    faults: list[Fault] = []
    top = Table(data, where, file, faults)
    name = top.text("name", required=True) or ""
    mode = top.choice("approval_mode", ApprovalMode) or ApprovalMode.SEPARATE_USER
    self_approval = bool(top.flag("self_approval_on_hardware", False))
    buses = {bus: read_bus(bus, table, beside) for bus, table in top.tables("buses")}
    devices = {}
    named = 0
    for device, table in top.tables("devices", DEVICE_NOT_YET):
        named += 1
        spec = _device(device, table, buses, beside, contracts or {})
        if spec is not None:
            devices[device] = spec
    if not buses:
        top.fault("buses", "no bus", None, "at least one [buses.NAME]")
    devices = {name: _on_its_channel(spec, devices, top) for name, spec in devices.items()}
    used = {name: spec.contract for name, spec in devices.items()}
    policy = policy_rules(top.array("policy"), used if len(used) == named else None)
    metrics = _metrics(top, beside)
    top.done()
    board = Board(name, mode, self_approval, buses, devices, policy, metrics)
    if mode is ApprovalMode.SELF and not board.simulated and not self_approval:
        top.fault("approval_mode", "self on real hardware", "self", "another mode, or self_approval_on_hardware = true")
    _check_loci(board, top)
    _check_muxes(board, top)
    if faults:
        raise Faults(faults)
    return board


def _metrics(top: Table, beside: Path) -> MetricsSpec | None:
    table = top.table("metrics")
    if table is None:
        return None
    textfile = table.text("textfile")
    interval_s = table.integer("interval_s", low=1, high=3600) or 15
    port = table.integer("port", low=1, high=65535)
    table.done()
    if textfile is None and port is None:
        table.fault("", "puts them nowhere", None, "textfile, port or both")
    return MetricsSpec(None if textfile is None else beside / textfile, interval_s, port)


def _device(
    name: str, table: Table, buses: dict[str, BusSpec], beside: Path, known: Mapping[str, Contract]
) -> DeviceSpec | None:
    check_id(name, table)
    contract_name = table.text("contract", required=True)
    bus_name = table.text("bus", required=True)
    overlays = table.strings("overlays") if "overlays" in table else ()
    part = table.text("part")
    params = table.table("params")
    chip = known.get(contract_name or "")
    if chip is not None and overlays:
        table.fault("overlays", f"contract {contract_name} is made where the board is", overlays, "no overlays on it")
    if chip is None and contract_name is not None:
        chip = _contract(contract_name, overlays, table, beside)
    mapped = chip is not None and (chip.access.mapped or chip.access.line) is not None
    address = table.integer("address", low=0, required=not mapped)
    if mapped and address is None:
        address = 0
    identity = table.text("identity")
    owner = table.choice("owner", Owner)
    restarts = table.choice("restarts", Restarts)
    on_loss = table.choice("on_loss", OnLoss)
    safe_tables = list(table.array("safe_state"))
    unverified = table.choice("unverified", Unverified)
    mux, channel = table.text("mux"), table.integer("channel", low=0, high=MAX_CHANNEL)
    budget = table.named_integers("writes_per_day", MAX_WRITES_PER_DAY)
    table.done()
    bus = buses.get(bus_name or "")
    if bus_name is not None and bus is None:
        table.fault("bus", "no such bus", bus_name, "one of " + ", ".join(buses))
    if bus is not None and chip is not None and address is not None:
        _check_address(chip, address, bus.kind, table)
    contract = chip if part is None or chip is None else _part(chip, part, table)
    if bus is None or contract is None or contract_name is None or address is None:
        return None
    _check_bus(contract, bus, table)
    if bus.kind == "ftdi-spi" and contract.access.spi is not None:
        mode = contract.access.spi.mode if bus.mode is None else bus.mode
        duplex = [name for name, r in contract.registers.items() if r.opcode is not None and r.opcode.duplex]
        if duplex and mode & 1:
            rule = f"mode {mode} takes no duplex command ({', '.join(duplex)}): pyftdi samples it at the wrong edge"
            table.fault("bus", rule, bus.name, "a bus of kind spi")
    contract = _on_bus(contract, bus.kind)
    named = bus.path is not None or bus.adapter is not None or bus.url is not None
    if restarts is Restarts.WITH_USB and (bus.kind == "spi" or not named):
        table.fault(
            "restarts", f"bus {bus.name} has no node of a USB device", restarts, "with_host, or the key left out"
        )
    if identity is not None and contract.identity is None:
        table.fault("identity", f"contract {contract.part} has no [identity]", identity, "the key left out")
    if params is not None and not contract.params:
        table.fault("params", f"contract {contract.part} has no parameters", None, "the key left out")
    elif contract.params:
        given = params if params is not None else Table({}, f"{table.where}.params", table.file, table.faults)
        contract = with_params(contract, read_params(contract, given))
    _check_budget(contract, budget, table)
    if owner is not None:
        registers = {n: replace(r, owner=owner) for n, r in contract.registers.items()}
        memories = {n: replace(m, owner=owner) for n, m in contract.memories.items()}
        ranges = with_memories(registers, memories, contract.access)
        contract = replace(contract, registers=ranges, memories=memories)
    if (mux is None) is not (channel is None):
        table.fault("channel", "mux and channel go together", channel, "both, or neither")
        mux = None
    if is_path(contract_name):
        contract_name = str((beside / contract_name).resolve())
    overlays = tuple(str((beside / o).resolve()) if is_path(o) else o for o in overlays)
    return DeviceSpec(
        name=name,
        contract_name=contract_name,
        contract=contract,
        bus=bus.name,
        address=address,
        identity=identity,
        restarts_with_host=restarts is Restarts.WITH_HOST,
        restarts_with_usb=restarts is Restarts.WITH_USB,
        report_loss=on_loss is OnLoss.REPORT,
        safe_state=safe_entries(contract, safe_tables),
        overlays=overlays,
        part=part,
        whole=_on_bus(chip, bus.kind) if part is not None and chip is not None else None,
        writes_per_day=budget,
        refuse_unverified=unverified is Unverified.REFUSE,
        mux=mux,
        channel=channel or 0,
    )


def _check_bus(contract: Contract, bus: BusSpec, table: Table) -> None:
    """A fault where the contract does not say how the chip is reached on a bus of this kind."""
    match bus.kind:
        case "modbus-rtu" | "modbus-tcp":
            named, facts = "modbus", contract.access.modbus is not None
        case "i2c" | "ftdi-i2c":
            named, facts = "i2c", contract.access.i2c is not None
        case "spi" | "ftdi-spi":
            named, facts = "spi", contract.access.spi is not None
        case _:
            return  # everything can be simulated; a kind that is none was told with its bus
    if not facts:
        table.fault("bus", f"contract {contract.part} has no [access.{named}]", bus.name, "a bus the chip can sit on")


def _on_bus(contract: Contract, kind: BusKind) -> Contract:
    """The contract of a chip that has both I2C and SPI, as it is on the bus that it sits on."""
    if kind in ON_SPI and contract.access.i2c is not None:
        return replace(contract, access=replace(contract.access, i2c=None))
    if kind in ON_I2C and contract.access.spi is not None:
        return replace(contract, access=replace(contract.access, spi=None))
    return contract


def _check_budget(contract: Contract, budget: Mapping[str, int], table: Table) -> None:
    """A budget is for what wears out: a nonvolatile register or memory that the contract has."""
    for name in budget:
        place = contract.memories.get(name) or contract.registers.get(name)
        if place is None:
            rule = f"contract {contract.part} has no such register"
            table.fault("writes_per_day", rule, name, "a register or a memory")
        elif place.persistence is not Persistence.NONVOLATILE:
            table.fault("writes_per_day", "not nonvolatile: it needs no budget", name, "the key left out")


def _part(chip: Contract, part: str, table: Table) -> Contract | None:
    try:
        return part_of(chip, part)
    except Faults as found:
        for fault in found.faults:
            table.fault("part", str(fault), None, "a cluster that stands by itself")
        return None


def _contract(name: str, overlays: tuple[str, ...], table: Table, beside: Path) -> Contract | None:
    try:
        return find_contract(name, beside, overlays)
    except Faults as found:
        for fault in found.faults:
            table.fault("contract", str(fault), None, "a contract that loads")
        return None


def _check_address(contract: Contract, address: int, kind: str, table: Table) -> None:
    if contract.access.mapped is not None and kind == "sim":
        if address:
            table.fault("address", "memory-mapped: its registers have addresses", address, "the key left out")
        return
    if contract.access.line is not None and kind == "sim":
        if address:
            table.fault("address", "a line has one device", address, "the key left out")
        return
    if kind in ON_SPI:
        most = 4 if kind in OVER_USB else 31
        if address > most:
            of_adapter = " (0 on AD3 to 4 on AD7)" if kind in OVER_USB else ""
            table.fault("address", "no such chip select", address, f"0 to {most}{of_adapter}")
        return
    if (contract.access.spi or contract.access.mdio) is not None and contract.access.i2c is None and kind == "sim":
        if address > 31:
            table.fault("address", "no such chip select or PHY address", address, "0 to 31")
        return
    if kind in ("modbus-rtu", "modbus-tcp") or (kind == "sim" and contract.access.i2c is None):
        if not 1 <= address <= 247:
            table.fault("address", "not a Modbus unit address", address, "1 to 247 (0 would be a broadcast)")
        return
    i2c = contract.access.i2c
    if address > 0x77:
        table.fault("address", "above 0x77", f"{address:#04x}", f"a 7-bit address, probably {address >> 1:#04x}")
    elif i2c is not None and i2c.addresses and address not in i2c.addresses:
        listed = ", ".join(f"{a:#04x}" for a in i2c.addresses)
        table.fault("address", f"{contract.part} has no such address", f"{address:#04x}", listed)


def _on_its_channel(device: DeviceSpec, devices: Mapping[str, DeviceSpec], top: Table) -> DeviceSpec:
    """The device with the address of the multiplexer that it sits behind, or by itself where that cannot be."""
    if device.mux is None:
        return device
    where, mux = f"devices.{device.name}", devices.get(device.mux)
    alone = replace(device, mux=None, channel=0)
    facts = None if mux is None else mux.contract.mux
    if mux is None or facts is None:
        known = ", ".join(name for name, spec in devices.items() if spec.contract.mux is not None) or "none"
        top.fault(
            f"{where}.mux", "no multiplexer of this board", device.mux, f"a device whose contract has [mux]: {known}"
        )
        return alone
    if mux.mux is not None or mux.bus != device.bus or device.contract.access.i2c is None:
        wanted = f"an I2C device on bus {device.bus}, whose mux sits on the bus itself (one behind another: not yet)"
        top.fault(f"{where}.mux", "cannot sit behind it", device.mux, wanted)
        return alone
    if device.channel >= len(facts.channels):
        last = len(facts.channels) - 1
        top.fault(f"{where}.channel", f"{mux.contract.part} has none of this number", device.channel, f"0 to {last}")
        return alone
    return replace(device, mux_address=mux.address)


def _check_muxes(board: Board, top: Table) -> None:
    """Who is on at the same time must not answer at the same address: a channel stays on after an access."""
    for device in (d for d in board.devices.values() if d.mux is not None):
        for other in board.devices.values():
            beside = other.mux == device.mux and other.channel != device.channel
            if other.bus != device.bus or other.place == device.place or beside:
                continue
            if set(other.addresses) & set(device.addresses):
                rule = f"devices.{other.name} may answer there too while channel {device.channel} of {device.mux} is on"
                top.fault(f"devices.{device.name}.address", rule, hex(device.address), "another address, or channel")
    behind_it = {(d.bus, d.mux) for d in board.devices.values()}
    for device in board.devices.values():
        facts = device.contract.mux
        if facts is None or (device.bus, device.name) not in behind_it:
            continue
        switch = device.contract.registers[facts.register]
        there = {switch.name, *(r.name for r in overlapping(device.contract, switch))}
        rule = "it is written before each access to a device behind it"
        if any(entry.register.name in there for entry in device.safe_state):
            top.fault(f"devices.{device.name}.safe_state", rule, facts.register, "another register")
        if switch.owner is Owner.SHARED:
            top.fault(f"devices.{device.name}.owner", rule, "shared", "the key left out: nobody else writes it")


def _check_loci(board: Board, top: Table) -> None:
    paths: dict[str, str] = {}
    for bus in board.buses.values():
        if bus.path is not None:
            real = str(Path(bus.path).resolve())
            if real in paths:
                top.fault(f"buses.{bus.name}.path", f"the same node as buses.{paths[real]}", bus.path, "one bus a node")
            paths[real] = bus.name
        if bus.adapter is not None:
            named = f"{bus.kind}:{bus.adapter}"
            if named in paths:
                rule = f"the same adapter as buses.{paths[named]}"
                top.fault(f"buses.{bus.name}.adapter", rule, bus.adapter, "one bus an adapter")
            paths[named] = bus.name
        if bus.url is not None:
            place = str(bus.url)
            if place in paths:
                rule = f"the same interface as buses.{paths[place]}"
                top.fault(f"buses.{bus.name}.url", rule, str(bus.url), "one bus an interface")
            paths[place] = bus.name
    loci: dict[str, str] = {}
    chips: dict[tuple[str, int], DeviceSpec] = {}
    for device in board.devices.values():
        first = chips.setdefault((device.bus, device.place), device)
        alone = device.part is None and first.part is None
        if not alone and first is not device and (None in (first.part, device.part) or first.chip != device.chip):
            rule = f"not another part of the same chip as devices.{first.name}, which stands at the same place"
            top.fault(f"devices.{device.name}.part", rule, device.part, "the same contract and overlays, other part")
            continue
        locus = device.locus(board.buses[device.bus])
        for address in device.addresses[1:]:
            at = (device.bus, address)
            other = next((d for d in board.devices.values() if d.mux is None and (d.bus, d.address) == at), None)
            if other is not None:
                rule = f"devices.{device.name} answers there too: bits of its offsets stand in its address"
                top.fault(f"devices.{other.name}.address", rule, hex(other.address), "another address")
        if locus in loci:
            top.fault(f"devices.{device.name}.address", f"the same place as devices.{loci[locus]}", locus, "one each")
        loci[locus] = device.name
