"""The table of kinds: what is asked of which chip, and what must have become of it after a crash.

The endings are those of the design's table of reconciliation, for four fates of the device between two lives of the
daemon; they are not what the code happens to answer. Where the two part, `DISAGREEMENTS` says so, and an entry that is
no longer true turns the harness red.

To add a kind: one more `Kind` in `KINDS`. What it needs beside a name is a contract, a request, how the chip is found,
which access is counted, and the endings of `unsent` (the intent was durable, the device had not seen it) and `sent`.

Source: the table of reconciliation, docs/reconciliation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hwtool.policy import Caller
from hwtool_sim.chip import Chip
from tests.hwtool.conftest import AGENT, DEFAULTS, I2C, MODBUS, OPERATOR, effect, reg

KEY: Final = "crash-0001"
FATES: Final = ("kept", "reset", "kept silent", "reset silent")
STAGES: Final = ("none", "unsent", "first", "kept", "open", "sent", "ended", "done")


class Ending(NamedTuple):
    """How an operation is found; verdict None: UNKNOWN, the device is held for a person."""

    verdict: str | None
    by: str | None
    effects: str


PERSON: Final = Ending(None, None, "unknown")
APPLIED: Final = Ending("applied", "rule", "unknown")
SATISFIED: Final = Ending("satisfied", "rule", "unknown")
NOT_APPLIED: Final = Ending("not_applied", "rule", "none")
SUPERSEDED: Final = Ending("superseded", "rule", "unknown")
TAKEN: Final = Ending("lost", "rule", "applied")
PERHAPS_LOST: Final = Ending("lost", "rule", "unknown")
DONE: Final = Ending("applied", "bus", "applied")
SENT: Final = Ending("applied", "bus", "unknown")
WAS_SO: Final = Ending("satisfied", "bus", "none")
EXPIRED: Final = Ending("denied", "rule", "none")
REFUSED: Final = Ending("refused", None, "none")  # the key stays unused

Endings = tuple[tuple[Ending, ...], ...]  # for each fate, those that the design leaves room for


def _each(*endings: Ending | tuple[Ending, ...]) -> Endings:
    return tuple(e if not isinstance(e, Ending) else (e,) for e in endings)


def _person_always() -> Endings:
    return _each(*[PERSON] * 4)


def _as_found(_: Chip) -> None:
    """The chip as it comes up."""


@dataclass(frozen=True)
class Kind:
    """One kind of operation.

    Attributes:
        contract: text of a toy contract, or the name of a bundled one.
        place: the register and access whose executions are counted.
        unsent: endings by fate, where the device has not seen it; `sent`: where it has; `first`: where it has seen
            the first of several transfers (None: there is only one); `kept`: and it is on record; `open`: all of it,
            its bank not set back.
        fresh: what the same request comes to when nothing of the first try was on record, by fate.
        done: what it comes to undisturbed.
        runs: executions counted at the place after `first`, and after `sent`.
        watched: something can show the outcome, so there is a watch to be killed in.
        approved: a person has to approve it first.
        value: what the read takes from the device, as the answer shows it; several with spaces between them.
        other: another effectful request of the device.
        home: a selector and what it must hold again when all is over.
        device: further lines of the board's entry.
        op: number of the operation that is killed; a sequence is killed in a step, and 1 is its header.
        step: the step of a sequence to be killed in, by the number of operations begun; 0: no sequence.
        none: endings where that step was not on record, but earlier ones were; None: then nothing was.
        ended: endings where that step's outcome was on record; None: as undisturbed.
    """

    name: str
    contract: str
    place: tuple[str, str]
    request: Mapping[str, Any]
    unsent: Endings
    sent: Endings
    fresh: tuple[Ending, ...]
    done: Ending
    method: str = "reg.write"
    arrange: Callable[[Chip], None] = _as_found
    first: Endings | None = None
    kept: Endings | None = None
    open: Endings | None = None
    runs: tuple[int, int] = (1, 1)
    watched: bool = True
    sole_master: bool = True
    approved: bool = False
    value: str | None = None
    caller: Caller = AGENT
    address: int = 0x20
    home: tuple[str, str] | None = None
    device: str = ""
    op: int = 1
    step: int = 0
    none: Endings | None = None
    ended: Endings | None = None
    other: Mapping[str, Any] = field(default_factory=lambda: {"register": "chip.OTHER", "value": 0x5A})

    def endings(self, stage: str, fate: str) -> tuple[Ending, ...]:
        """The endings that the design leaves room for."""
        index = FATES.index(fate)
        match stage:
            case "none":
                return (self.fresh[index],) if self.none is None else self.none[index]
            case "unsent":
                return self.unsent[index]
            case "first":
                return (self.first if self.first is not None else self.sent)[index]
            case "kept":
                return (self.kept if self.kept is not None else self.sent)[index]
            case "open":
                return (self.open if self.open is not None else self.sent)[index]
            case "sent":
                return self.sent[index]
            case "ended":
                return (self.ended if self.ended is not None else _each(*[self.done] * 4))[index]
            case _:
                return (self.done,)

    def board(self, socket: str) -> str:
        """The text of its board; a toy contract stands beside it as toy.toml."""
        contract = "./toy.toml" if "\n" in self.contract else self.contract
        return (
            f"name = 'crash'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nsocket = '{socket}'\n"
            f"reply_lifetime_ms = 20\nsole_master = {str(self.sole_master).lower()}\n"
            f"[devices.chip]\ncontract = '{contract}'\nbus = 'b'\naddress = {self.address}\n{self.device}\n"
        )


def _toy(*parts: str, head: str = I2C) -> str:
    return head + DEFAULTS + "\n".join((*parts, reg("OTHER", 40)))


def _holds(**values: int) -> Callable[[Chip], None]:
    return lambda chip: chip.values.update(values)


def _queue(register: str) -> Callable[[Chip], None]:
    return lambda chip: chip.push(register, b"abc")


STORE: Final = _toy(reg("R", 0, "reset = 0x10"))
FIELDS: Final = _toy(reg("R", 0, "reset = 0x10\nfields = { LOW = { bits = '3:0' }, HIGH = { bits = '7:4' } }"))
FLAGS: Final = _toy(reg("R", 0, "reset = 0\nvolatile = true\nwrite = { effect = 'one_to_clear' }"))
GO: Final = _toy(
    reg("R", 0, "write = { effect = 'command', verify = 'signal', signals = [{ register = 'N', delta = 1 }] }", "wo"),
    reg("N", 1, "reset = 0", "ro"),
)
BLIND: Final = _toy(reg("R", 0, "write = { effect = 'pulse', verify = 'none' }", "wo"))
PUSH: Final = _toy(
    reg("R", 0, "write = { effect = 'push', verify = 'signal', signals = [{ register = 'TOTAL', delta = 1 }] }", "wo"),
    reg("TOTAL", 1, "reset = 0", "ro"),
)
FIFO: Final = _toy(reg("R", 0, effect("pop", ", level = 'LEVEL'"), "ro"), reg("LEVEL", 1, "reset = 0", "ro"))
CHUNKS: Final = _toy(
    reg("R", 0, effect("pop", ", level = 'LEVEL', max_burst = 2"), "ro"), reg("LEVEL", 1, "reset = 0", "ro")
)
TOGGLE: Final = _toy(reg("R", 0, "reset = 0\nwrite = { effect = 'one_to_toggle' }"))
SETS: Final = _toy(reg("R", 0, "reset = 0\nwrite = { effect = 'one_to_set' }"))
ECHOED: Final = _toy(
    reg("R", 0, "write = { effect = 'store', verify = { by = 'read_back', register = 'ECHO' } }", "wo"),
    reg("ECHO", 1, "reset = 0x10", "ro"),
)
BURNS: Final = _toy(reg("R", 0, "reset = 0\npersistence = 'nonvolatile'\nwrite = { effect = 'write_once' }"))
MEMORY: Final = _toy(
    "[memories.M]\noffset = 0x80\nsize_bytes = 16\npage_bytes = 8\nwrite_cycle_ms = 5\n"
    "access = 'rw'\npersistence = 'nonvolatile'\n"
)
PHASED: Final = _toy(
    reg("R", 0, "write = { effect = 'staged', verify = 'signal', signals = [{ register = 'N', delta = 1 }] }", "wo"),
    reg("N", 1, "reset = 0", "ro"),
)
LOCKED: Final = _toy(
    reg("R", 0, "write = { effect = 'unlock', verify = 'signal', signals = [{ register = 'N', delta = 1 }] }", "wo"),
    reg("N", 1, "reset = 0", "ro"),
)
STATE: Final = reg("S", 1, "reset = 0\nfields = { BUSY = { bits = 0 } }", "ro")
CLAIM: Final = _toy(reg("R", 0, effect("claim", ", state = 'S.BUSY'"), "ro"), STATE)
TRIGGER: Final = _toy(reg("R", 0, effect("trigger", ", state = 'S.BUSY'"), "ro"), STATE)
ADVANCE: Final = _toy(reg("R", 0, effect("advance", ", reseek = 'AT'"), "ro"), reg("AT", 1))
CLEAR: Final = _toy(reg("R", 0, effect("clear"), "ro"))
PEEK: Final = _toy(
    reg("R", 0, effect("clear", ", affects = ['R', 'P'], peek = 'P'"), "ro"), reg("P", 1, "reset = 0", "ro")
)
ACK: Final = _toy(reg("R", 0, effect("ack", ", affects = ['E']"), "ro"), reg("E", 1, "reset = 0", "ro"))
SILENT_READ: Final = _toy(reg("R", 0, "read = { effects = ['unknown'], provenance = 'silent' }", "ro"))
SILENT_WRITE: Final = _toy(reg("R", 0, "write = { effect = 'unknown', provenance = 'silent' }"))
GATED: Final = _toy(reg("R", 0, "reset = 0x10\nwrite = { effect = 'store', approval = 'required' }"))
WORDS: Final = (
    MODBUS
    + DEFAULTS
    + "[registers.R]\noffset = 0\nspace = 'holding'\nwidth_bits = 32\naccess = 'rw'\nreset = 0x10\n"
    + "[registers.OTHER]\noffset = 40\nspace = 'holding'\nwidth_bits = 16\naccess = 'rw'\n"
)
PUT: Final = {"register": "chip.R", "value": 0x55}
TAKE: Final = {"register": "chip.R"}
READ: Final = "reg.read_effectful"
UART: Final[dict[str, Any]] = {
    "address": 0x4D,
    "other": {"register": "chip.SPR", "value": 0x5A},
    "home": ("chip.LCR", "0x03"),
}
PAIR: Final = _toy(reg("R", 0, "reset = 0x10"), reg("S", 1, "reset = 0x10"))
WROTE: Final = ("R", "write")
TOOK: Final = ("R", "read")

# for each fate: kept, reset, kept silent, reset silent
STORED: Final[dict[str, Any]] = {
    "unsent": _each(NOT_APPLIED, SUPERSEDED, NOT_APPLIED, PERSON),
    "sent": _each(APPLIED, SUPERSEDED, APPLIED, PERSON),
    "fresh": (DONE,) * 4,
    "done": DONE,
}
# a signal of a silent device: the design lets a value that no reset leaves tell; a person is never wrong
SIGNALLED: Final[dict[str, Any]] = {
    "unsent": _each(NOT_APPLIED, PERSON, (NOT_APPLIED, PERSON), PERSON),
    "sent": _each(APPLIED, PERSON, (APPLIED, PERSON), PERSON),
    "fresh": (DONE,) * 4,
    "done": DONE,
}


def _step(register: str, value: int) -> dict[str, Any]:
    return {"do": "write", "register": f"chip.{register}", "value": value}


# what a header comes to by rule when the step that was begun last is settled, or asks for a person
STEPPED: Final[dict[str, Any]] = {
    "method": "sequence.run",
    "request": {"steps": [_step("R", 0x55), _step("S", 0x66)]},
    "arrange": _holds(R=0x33, S=0x44),
    "fresh": (DONE,) * 4,
    "done": DONE,
}
HALF: Final = Ending("partial", "rule", "unknown")
HALF_SEEN: Final = Ending("partial", "rule", "applied")
WHOLE: Final = Ending("applied", "rule", "applied")
NOBODY_CAN_TELL: Final[dict[str, Any]] = {"unsent": _person_always(), "sent": _person_always()}
# what outlasts a restart is judged as if there had been none; a restart makes an approval void
OUTLASTS: Final[dict[str, Any]] = {
    "unsent": _each(*[NOT_APPLIED] * 4),
    "sent": _each(*[APPLIED] * 4),
    "fresh": (DONE, EXPIRED, DONE, DONE),
    "done": DONE,
    "approved": True,
}
# a free state may be what a restart left; a taken one is what the read did
STATED: Final[dict[str, Any]] = {
    "unsent": _each(NOT_APPLIED, PERSON, PERSON, PERSON),
    "sent": _each(APPLIED, PERSON, APPLIED, PERSON),
    "fresh": (DONE,) * 4,
    "done": DONE,
    "method": READ,
    "watched": False,
}
TAKEN_IN_PART: Final = Ending("partial", "rule", "applied")

KINDS: Final = (
    Kind("store", STORE, WROTE, PUT, arrange=_holds(R=0x33), **STORED),
    Kind(
        "masked store",
        FIELDS,
        WROTE,
        {"register": "chip.R", "fields": {"LOW": 5}},
        method="reg.update",
        arrange=_holds(R=0xA3),
        **STORED,
    ),
    Kind(
        "store that was so",
        STORE,
        WROTE,
        PUT,
        unsent=_each(SATISFIED, SUPERSEDED, SATISFIED, PERSON),
        sent=_each(SATISFIED, SUPERSEDED, SATISFIED, PERSON),
        fresh=(WAS_SO, DONE, WAS_SO, DONE),
        done=WAS_SO,
        arrange=_holds(R=0x55),
    ),
    Kind(
        "store among other masters",
        STORE,
        WROTE,
        PUT,
        unsent=_each(PERSON, SUPERSEDED, PERSON, PERSON),
        sent=_each(PERSON, SUPERSEDED, PERSON, PERSON),
        fresh=(DONE,) * 4,
        done=DONE,
        arrange=_holds(R=0x33),
        sole_master=False,
    ),
    Kind(
        "approved store",
        GATED,
        WROTE,
        PUT,
        arrange=_holds(R=0x33),
        approved=True,
        **{
            **STORED,
            "fresh": (DONE, EXPIRED, DONE, DONE),
        },
    ),
    Kind(
        "store of two words",
        WORDS,
        WROTE,
        {"register": "chip.R", "value": 0x01020304},
        arrange=_holds(R=0x00AA00BB),
        first=_each(PERSON, SUPERSEDED, PERSON, PERSON),
        runs=(1, 2),
        **STORED,
    ),
    Kind(
        "store in a bank",
        "sc16is750",
        ("DLL", "write"),
        {"register": "chip.DLL", "value": 0x55},
        # an observable in a bank is read only where the bank is selected already: nothing is written to recover
        unsent=_each(PERSON, SUPERSEDED, PERSON, PERSON),
        first=_each(NOT_APPLIED, SUPERSEDED, PERSON, PERSON),
        open=_each(APPLIED, SUPERSEDED, PERSON, PERSON),
        sent=_each(PERSON, SUPERSEDED, PERSON, PERSON),
        fresh=(DONE,) * 4,
        done=DONE,
        runs=(0, 1),
        arrange=_holds(DLL=0x33),
        **UART,
    ),
    Kind(
        "write-1-to-clear",
        FLAGS,
        WROTE,
        {"register": "chip.R", "value": 1},
        unsent=_each(PERSON, SUPERSEDED, PERSON, PERSON),
        sent=_each(APPLIED, SUPERSEDED, PERSON, PERSON),
        fresh=(DONE, WAS_SO, DONE, WAS_SO),
        done=DONE,
        arrange=_holds(R=1),
    ),
    Kind(
        "write-1-to-set",
        SETS,
        WROTE,
        {"register": "chip.R", "value": 1},
        unsent=_each(NOT_APPLIED, SUPERSEDED, PERSON, PERSON),
        sent=_each(APPLIED, SUPERSEDED, (APPLIED, PERSON), PERSON),
        fresh=(DONE,) * 4,
        done=DONE,
    ),
    Kind(
        "toggle",
        TOGGLE,
        WROTE,
        {"register": "chip.R", "value": 1},
        unsent=_each(NOT_APPLIED, SUPERSEDED, NOT_APPLIED, PERSON),
        sent=_each(APPLIED, SUPERSEDED, PERSON, PERSON),
        fresh=(DONE,) * 4,
        done=DONE,
        arrange=_holds(R=1),
    ),
    Kind(
        "write-only with an echo",
        ECHOED,
        WROTE,
        PUT,
        unsent=_each(NOT_APPLIED, PERSON, NOT_APPLIED, PERSON),
        sent=_each(APPLIED, PERSON, APPLIED, PERSON),
        fresh=(DONE,) * 4,
        done=DONE,
        arrange=_holds(ECHO=0x33),
    ),
    Kind("write-once", BURNS, WROTE, PUT, **OUTLASTS),
    Kind(
        "page of an EEPROM",
        MEMORY,
        ("M", "write"),
        {"register": "chip.M[0:4]", "value": {"hex": "01020304"}},
        **OUTLASTS,
    ),
    Kind(
        "staged write with a phase", PHASED, WROTE, {"register": "chip.R", "value": 1}, arrange=_holds(N=7), **SIGNALLED
    ),
    Kind(
        "unlock with a lock state", LOCKED, WROTE, {"register": "chip.R", "value": 1}, arrange=_holds(N=7), **SIGNALLED
    ),
    Kind("pulse with a counter", GO, WROTE, {"register": "chip.R", "value": 1}, arrange=_holds(N=7), **SIGNALLED),
    Kind(
        "pulse that nothing shows",
        BLIND,
        WROTE,
        {"register": "chip.R", "value": 1},
        fresh=(SENT,) * 4,
        done=SENT,
        watched=False,
        **NOBODY_CAN_TELL,
    ),
    Kind("push with a total", PUSH, WROTE, {"register": "chip.R", "value": 1}, arrange=_holds(TOTAL=7), **SIGNALLED),
    Kind(
        "push with a live consumer",
        "sc16is750",
        ("THR", "write"),
        {"register": "chip.THR", "value": 0x41},
        fresh=(DONE,) * 4,
        done=DONE,
        **NOBODY_CAN_TELL,
        **UART,
    ),
    Kind(
        "pop with a level",
        FIFO,
        TOOK,
        TAKE,
        method=READ,
        arrange=_queue("R"),
        unsent=_each(NOT_APPLIED, PERSON, NOT_APPLIED, PERSON),
        sent=_each(TAKEN, PERSON, TAKEN, PERSON),
        fresh=(DONE, REFUSED, DONE, REFUSED),
        done=DONE,
        watched=False,
        value="0x61",
    ),
    Kind(
        "pop with a live producer",
        "sc16is750",
        ("RHR", "read"),
        {"register": "chip.RHR"},
        method=READ,
        arrange=_queue("RHR"),
        fresh=(DONE, REFUSED, DONE, REFUSED),
        done=DONE,
        watched=False,
        value="0x61",
        **NOBODY_CAN_TELL,
        **UART,
    ),
    Kind(
        "pops in chunks",
        CHUNKS,
        TOOK,
        {"register": "chip.R", "count": 3},
        method=READ,
        arrange=_queue("R"),
        unsent=_each(NOT_APPLIED, PERSON, NOT_APPLIED, PERSON),
        first=_each(TAKEN, PERSON, TAKEN, PERSON),
        kept=_each(TAKEN_IN_PART, PERSON, TAKEN_IN_PART, PERSON),
        # all are taken: that the level is 0 may be a restart's doing
        sent=_each(TAKEN, PERSON, PERSON, PERSON),
        fresh=(DONE, REFUSED, DONE, REFUSED),
        done=DONE,
        runs=(2, 3),
        watched=False,
        value="0x61 0x62 0x63",
    ),
    Kind("claim with a state", CLAIM, TOOK, TAKE, **STATED),
    Kind("trigger with a state", TRIGGER, TOOK, TAKE, **STATED),
    Kind(
        "advance",
        ADVANCE,
        TOOK,
        TAKE,
        method=READ,
        fresh=(DONE,) * 4,
        done=DONE,
        watched=False,
        **NOBODY_CAN_TELL,
    ),
    Kind(
        "clear-on-read",
        CLEAR,
        TOOK,
        TAKE,
        method=READ,
        arrange=_holds(R=5),
        fresh=(DONE,) * 4,
        done=DONE,
        watched=False,
        value="0x05",
        **NOBODY_CAN_TELL,
    ),
    Kind(
        "clear-on-read with a peek",
        PEEK,
        TOOK,
        TAKE,
        method=READ,
        arrange=_holds(R=5, P=5),
        unsent=_each(NOT_APPLIED, PERSON, NOT_APPLIED, PERSON),
        sent=_each(APPLIED, PERSON, PERSON, PERSON),
        fresh=(DONE,) * 4,
        done=DONE,
        watched=False,
        value="0x05",
    ),
    Kind(
        "acknowledge",
        ACK,
        TOOK,
        TAKE,
        method=READ,
        arrange=_holds(R=5, E=4),
        unsent=_each(NOT_APPLIED, PERSON, NOT_APPLIED, PERSON),
        sent=_person_always(),
        fresh=(DONE,) * 4,
        done=DONE,
        watched=False,
        value="0x05",
    ),
    Kind(
        "undeclared read",
        SILENT_READ,
        TOOK,
        TAKE,
        method=READ,
        arrange=_holds(R=5),
        unsent=_each(*[PERHAPS_LOST] * 4),
        sent=_each(*[PERHAPS_LOST] * 4),
        fresh=(SENT,) * 4,
        done=SENT,
        watched=False,
        value="0x05",
    ),
    Kind(
        "undeclared write",
        SILENT_WRITE,
        WROTE,
        PUT,
        fresh=(SENT,) * 4,
        done=SENT,
        watched=False,
        caller=OPERATOR,
        **NOBODY_CAN_TELL,
    ),
    Kind(
        "sequence, in its first step",
        PAIR,
        WROTE,
        # the step is not applied, or superseded; or it is done, and the second is never begun
        unsent=_each(NOT_APPLIED, HALF, NOT_APPLIED, PERSON),
        sent=_each(HALF, HALF, HALF, PERSON),
        ended=_each(*[HALF_SEEN] * 4),
        op=2,
        step=1,
        **STEPPED,
    ),
    Kind(
        "sequence, in its last step",
        PAIR,
        ("S", "write"),
        none=_each(*[HALF_SEEN] * 4),
        unsent=_each(HALF_SEEN, HALF_SEEN, HALF_SEEN, PERSON),
        sent=_each(WHOLE, HALF_SEEN, WHOLE, PERSON),
        op=3,
        step=2,
        **STEPPED,
    ),
    Kind(
        "safe state",
        STORE,
        WROTE,
        {"device": "chip"},
        method="device.safe_state",
        arrange=_holds(R=0x33),
        device="safe_state = [{ register = 'R', value = 0x55 }]",
        **STORED,
    ),
)

# (kind, stage, fate): what the code answers instead, and why it is left so
DISAGREEMENTS: Final[dict[tuple[str, str, str], tuple[Ending, str]]] = {}
