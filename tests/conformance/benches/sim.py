"""The simulated bus in this process, its faults planned; the requests are counted where they reach the chips."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, RegisterWrite, Sent, Transfer
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.bus import SimBus, Taken
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault, FaultKind
from tests.conformance.bench import Access, Bench, Expectation, Resident, Room, Trouble, both, confirmed, doubt, proved

EXPANDER, METER = 0x20, 1
READ: Final = RegisterRead(EXPANDER, Space.MEMORY, 0x14, 1)
WRITE: Final = RegisterWrite(EXPANDER, Space.MEMORY, 0x15, b"\x33")
RIGHT, LIE = b"\x5a", b"\xde"
NO_REGISTER: Final[dict[Access, RegisterRead | RegisterWrite]] = {
    Access.READ: RegisterRead(EXPANDER, Space.MEMORY, 0x16, 1),
    Access.WRITE: RegisterWrite(EXPANDER, Space.MEMORY, 0x16, b"\x33"),
}
METERED: Final[dict[Access, RegisterRead | RegisterWrite]] = {
    Access.READ: RegisterRead(METER, Space.HOLDING, 0xFC02, 2, function=3),
    Access.WRITE: RegisterWrite(METER, Space.HOLDING, 0x0014, bytes(4), function=16),
}
CONTRACT: Final = """
schema = 1
part = "expander"
vendor = "nobody"
title = "two registers of an MCP23017, the conformance suite's"
source = "tests/conformance/benches/sim.py"
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x20]
[defaults]
read = { effects = ["none"], provenance = "generated", source = "sim.py" }
write = { effect = "store", provenance = "generated", source = "sim.py" }
[registers.OLATA]
offset = 0x14
access = "ro"
[registers.OLATB]
offset = 0x15
access = "rw"
"""
RESIDENT: Final = Resident("sim", CONTRACT, "OLATB", "OLATA", RIGHT[0], LIE[0])
FAULTS: Final[dict[Trouble, dict[str, Any]]] = {
    Trouble.SILENT: {"kind": FaultKind.REPLY_LOST, "address": EXPANDER},
    Trouble.LATE: {"kind": FaultKind.LATE_REPLY, "address": EXPANDER, "late_s": 0.08},
    Trouble.TWICE: {"kind": FaultKind.DUPLICATED, "address": EXPANDER},
    Trouble.FRAGMENT: {"kind": FaultKind.TRUNCATED, "address": EXPANDER},
    Trouble.CORRUPTED: {"kind": FaultKind.CORRUPTED, "address": EXPANDER},
    Trouble.REFUSED_UNPROVED: {"kind": FaultKind.EXCEPTION, "address": METER, "code": 4},
}
TAKEN: Final[dict[Trouble, Expectation]] = {
    Trouble.ABSENT: both(proved("address-nack", 1)),
    Trouble.SILENT: both(doubt(Sent.REPLY)),
    Trouble.LATE: both(doubt(Sent.REPLY)),
    Trouble.TWICE: both(confirmed()),
    Trouble.FRAGMENT: both(doubt(Sent.REPLY)),
    Trouble.CORRUPTED: both(doubt(Sent.REPLY)),
    Trouble.REFUSED_PROVED: both(proved("no-register", 1)),
    Trouble.REFUSED_UNPROVED: both(doubt(Sent.REPLY)),
}
EVERY_KIND: Final = "the simulated bus carries every kind of transfer, and makes no frames of them"
ITS_OWN: Final = "a chip gives its own answer to what it was asked, or none"
NOT_HERE: Final = {
    Trouble.OVERDUE: "a limit that it has with RTU: a reply after the quarantine passes for the next",
    Trouble.FOREIGN: ITS_OWN,
    Trouble.UNASKED: ITS_OWN,
    Trouble.MISFIT: ITS_OWN,
    Trouble.UNCARRIED: EVERY_KIND,
    Trouble.UNSAYABLE: EVERY_KIND,
    Trouble.TOO_LONG: EVERY_KIND,
}


def never(_: float) -> None:
    """How a bus waits that must not."""
    raise AssertionError("it waits")


def asked(trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
    """What has no register for a refusal that proves something, a Modbus device for one that does not."""
    match trouble:
        case Trouble.REFUSED_PROVED:
            return NO_REGISTER[access]
        case Trouble.REFUSED_UNPROVED:
            return METERED[access]
        case _:
            return READ if access is Access.READ else WRITE


class Heard(SimBus):
    """A simulated bus that notes what reaches its chips."""

    def __init__(self, chips: dict[int, Chip], now: list[float]) -> None:
        super().__init__(chips, never, lambda: now[-1])
        self.heard: list[Transfer] = []

    def take(self, transfer: Transfer) -> Taken:
        """One request on the wire."""
        self.heard.append(transfer)
        return super().take(transfer)


class SimBench(Bench):
    """An expander, and a meter for what only Modbus devices say."""

    name = "sim"
    can: ClassVar[Mapping[Trouble, Expectation]] = {
        **TAKEN,
        Trouble.VANISHED_BEFORE: both(proved("port-not-opened", 0)),
        Trouble.VANISHED_DURING: both(doubt(Sent.DATA)),
    }
    cannot: ClassVar[Mapping[Trouble, str]] = {
        **NOT_HERE,
        Trouble.RETURNED: "there is no connection that would break: whoever is back is told by its nonce",
    }
    read, write, right, lie = READ, WRITE, RIGHT, LIE
    resident = RESIDENT
    behind = False

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.now = [0.0]
        self.expander = chip_at_power_on(bundled("mcp23017"))
        chips = {EXPANDER: self.expander, METER: chip_at_power_on(bundled("sdm120"))}
        self._sim = Heard(chips, self.now)
        self.bus = self._sim
        self.mend()

    def asked(self, trouble: Trouble, access: Access) -> RegisterRead | RegisterWrite:
        """See `asked` of this module."""
        return asked(trouble, access)

    def seen(self) -> list[Hashable]:
        """Transfers that reached the chips."""
        return list(self._sim.heard)

    def arrange(self, trouble: Trouble, access: Access) -> None:
        """As a planned fault, or by a chip or the bus being gone."""
        del access
        self.expander.values["OLATA"] = LIE[0]
        match trouble:
            case Trouble.ABSENT:
                del self._sim.chips[EXPANDER]
            case Trouble.VANISHED_BEFORE:
                self._sim.unplug()
            case Trouble.VANISHED_DURING:
                self._sim.plan(Fault(FaultKind.UNPLUG, EXPANDER))
            case _ if trouble in FAULTS:
                self._sim.plan(Fault(**FAULTS[trouble]))

    def over_s(self) -> float:
        """The moment that it is by the bus's clock."""
        return self.now[-1]

    def let_out(self) -> None:
        """The time passes that the reply takes."""
        self.now.append(self.now[-1] + 60.0)

    def mend(self) -> None:
        """The expander holds what is right, and the bus is there."""
        self._sim.chips[EXPANDER] = self.expander
        self._sim.faults.clear()
        self.expander.values["OLATA"] = RIGHT[0]
        self._sim.plug()

    def stands(self, who: int) -> None:
        """See Bench; another chip has another nonce, and so has one that restarted."""
        self.expander.reset()
        self.expander.values["OLATA"] = who

    def effects(self) -> int:
        """Writes of OLATB that reached the chip."""
        return sum(isinstance(t, RegisterWrite) and t.offset == WRITE.offset for t in self._sim.heard)

    def board(self) -> dict[str, Any]:
        """See Bench."""
        self.room.patch.setattr("hwtool.engine.make_bus", lambda *_: self.bus)
        return {"kind": "sim"}

    def unplug(self) -> None:
        """See Bench."""
        self._sim.unplug()

    def plug(self) -> None:
        """See Bench."""
        self._sim.plug()

    def unread(self) -> bool:
        """Whether a reply has arrived that is nobody's."""
        due_s = self._sim._input.next_s
        return due_s is not None and due_s <= self.now[-1]

    def holds(self) -> int:
        """Nothing of the host's."""
        return 0

    def close(self) -> None:
        """Nothing to be given back."""


BENCHES: Final = (SimBench,)
