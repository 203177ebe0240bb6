"""Boards by chance: one or two chips on a bus, each with a contract of its own, as TOML and as what the oracle knows.

Every word of both vocabularies is drawn, with whatever may be declared beside it. Everything drawn loads: what another
register must give (a level, a counter, something to peek at) is put there with it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from hwtool.config import Board, parse_board
from hwtool_contracts.effects import ReadEffect, WriteEffect
from tests.hwtool.conftest import I2C

CLEAN: Final = frozenset({"none", "latch", "arm"})  # of these an exclusive device may be read without a key
ADDRESSES: Final = {"one": 0x20, "two": 0x21}
BUS: Final = "line"
COMPANIONS: Final = ("COUNT", "LEVEL", "SHOWN")  # what a register's tables may name, each its own: R0_COUNT
COUNTED: Final = frozenset({"push", "self_clearing", "pulse", "command", "staged", "unlock"})
SEEN_BACK: Final = frozenset(
    {"store", "one_to_clear", "zero_to_clear", "one_to_set", "zero_to_set", "one_to_toggle", "zero_to_toggle"}
    | {"clear", "set", "write_once", "lock"}
)
SAFE: Final = 0x5A
MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None

# made once: to make a strategy costs more than to draw from it
EITHER: Final = st.booleans()
SELDOM: Final = st.sampled_from((False, False, False, True))
BYTES: Final = st.integers(0, 255)
NUMBER: Final = st.integers(1, 6)
GAPS: Final = st.sampled_from((0, 0, 1, 2))
SOLE: Final = st.sampled_from((True, True, False))
ATTEMPTS: Final = st.sampled_from((1, 3))
INCREMENTS: Final = st.sampled_from(("both", "both", "read", "write", "none"))
WIDTHS: Final = st.sampled_from([(b, a) for b in (8, 8, 16, 32) for a in ("rw", "rw", "rw", "ro", "wo")])
WORDS: Final = [e.value for e in ReadEffect]
READS: Final = st.sampled_from(
    [frozenset({"none"})] * len(WORDS)
    + [frozenset({w}) for w in WORDS]
    + [frozenset(two) for two in combinations(WORDS[1:], 2)][::5]
)
WRITES: Final = st.sampled_from(["store"] * len(WriteEffect) + [e.value for e in WriteEffect])
WAYS: Final = st.sampled_from(
    (
        "",
        "",
        ", verify = 'none'",
        ", verify = 'read_back'",
        ", verify = 'signal', signals = [{ register = '@_COUNT', delta = 1 }]",
    )
)
MORE_OF_POP: Final = st.sampled_from(
    ("", ", max_burst = 2", ", level = '@_LEVEL'", ", level = '@_LEVEL', max_burst = 3")
)
MORE_OF_REGISTER: Final = st.sampled_from(
    ("",) * 6 + ("volatile = true",) * 2 + ("persistence = 'nonvolatile'", "owner = 'shared'")
)
MORE_OF_DEVICE: Final = st.sampled_from(("", "", "on_loss = 'report'\n", "owner = 'shared'\n"))


@dataclass(frozen=True)
class Part:
    """A field: its bits as a mask, what writing it does, whether a person must agree."""

    name: str
    mask: int
    lsb: int
    write: str
    asks: bool


@dataclass(frozen=True)
class Place:
    """One register, as its contract has been drawn.

    Attributes:
        asks: whatever is written to it, a person must agree.
    """

    device: str
    name: str
    offset: int
    bits: int
    access: str
    reads: frozenset[str]
    write: str
    asks: bool
    parts: tuple[Part, ...]
    text: str

    @property
    def at(self) -> tuple[str, str]:
        """Its device and its name."""
        return self.device, self.name

    @property
    def clean(self) -> bool:
        """Nothing that it does when it is read needs a key."""
        return self.reads <= CLEAN

    @property
    def readable(self) -> bool:
        """Whether it can be read at all."""
        return self.access != "wo"

    @property
    def writable(self) -> bool:
        """Whether it can be written at all."""
        return self.access != "ro"

    def shown(self, raw: int) -> str:
        """A value as answers have it, without what says that it is hex."""
        return f"{raw:0{self.bits // 4}x}"


@dataclass(frozen=True, repr=False)
class Drawn:
    """A board that was drawn.

    Attributes:
        silent: devices that do not show their restarts.
        safe: the register that each device's safe state writes, where it has one.
        text: its files, one after the other.
    """

    board: Board
    places: tuple[Place, ...]
    sole_master: bool
    silent: frozenset[str]
    safe: dict[str, str]
    text: str

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As files, where hypothesis tells how to come to a fault."""
        printer.text(f"drawn(\n{self.text}# silent: {sorted(self.silent)}\n)")

    def of(self, device: str) -> tuple[Place, ...]:
        """The registers of a device."""
        return tuple(p for p in self.places if p.device == device)


@st.composite
def boards(draw: st.DrawFn) -> Drawn:
    """A board with one or two devices."""
    devices = ("one", "two") if draw(EITHER) else ("one",)
    sole_master = draw(SOLE)
    places: list[Place] = []
    safe: dict[str, str] = {}
    silent = frozenset(d for d in devices if draw(SELDOM))
    texts = {}
    told = ""
    for device in devices:
        own = _places(draw, device)
        increments = draw(INCREMENTS)
        texts[device] = I2C.replace('"both"', f'"{increments}"') + "".join(p.text for p in own)
        places += own
        more = draw(MORE_OF_DEVICE)
        plain = [p for p in own if p.write == "store" and p.writable and not p.asks and not p.parts]
        if draw(EITHER) and plain:
            safe[device] = plain[0].name
            more += f"safe_state = [{{ register = '{plain[0].name}', value = {SAFE} }}]\n"
        told += f"[devices.{device}]\ncontract = './{device}.toml'\nbus = '{BUS}'\n"
        told += f"address = {ADDRESSES[device]}\n{more}"
    head = f"name = 'drawn'\napproval_mode = 'self'\n[buses.{BUS}]\nkind = 'sim'\nreply_lifetime_ms = 100\n"
    head += f"sole_master = {str(sole_master).lower()}\nread_attempts = {draw(ATTEMPTS)}\n"
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        for device, text in texts.items():
            (Path(directory) / f"{device}.toml").write_text(text)
        board = parse_board(head + told, "drawn.toml", Path(directory))
    files = "".join(f"# {device}.toml\n{text}" for device, text in texts.items())
    return Drawn(board, tuple(places), sole_master, silent, safe, f"# the board\n{head}{told}{files}")


def _places(draw: st.DrawFn, device: str) -> list[Place]:
    """The registers of one chip, in the order of their offsets, and those that they name."""
    names = [f"R{n}" for n in range(draw(NUMBER))]
    places = []
    offset = 0
    for name in names:
        offset += draw(GAPS)
        place = _place(draw, device, name, offset, names)
        places.append(place)
        offset += place.bits // 8
    for place, word in [(p, w) for p in places for w in COMPANIONS if f"{p.name}_{w}" in p.text]:
        name, bits = f"{place.name}_{word}", place.bits if word == "SHOWN" else 8
        text = f"[registers.{name}]\noffset = {offset}\naccess = 'ro'\nwidth_bits = {bits}\nreset = 0\n"
        text += "read = { effects = ['none'], provenance = 'generated' }\n"
        places.append(Place(device, name, offset, bits, "ro", frozenset({"none"}), "store", False, (), text))
        offset += bits // 8
    return places


def _place(draw: st.DrawFn, device: str, name: str, offset: int, names: list[str]) -> Place:
    """One register: half of its reads are clean, since a read-back and a rule need that."""
    bits, access = draw(WIDTHS)
    plain = fielded = draw(SELDOM)
    if fielded:  # it has fields, and mostly nothing in the way of updating one of them
        access, plain = "rw", not draw(SELDOM)
    reads = draw(READS) if access != "wo" and not plain else frozenset({"none"})
    write = draw(WRITES) if not plain else "store"
    lines = [f"[registers.{name}]", f"offset = {offset}", f"access = '{access}'", f"width_bits = {bits}"]
    more = draw(MORE_OF_REGISTER) if not plain else ""
    lasting = "nonvolatile" in more
    if more and (access != "ro" or not lasting):
        lines.append(more)
    if draw(EITHER):
        lines.append(f"reset = {draw(BYTES) << bits // 2 >> 4}")
    asks = lasting
    if access != "wo":
        lines.append(_read(draw, reads, names))
    seen_back = access == "rw" and reads == {"none"}
    if access != "ro":
        text, approval = _write(draw, write, seen_back)
        lines.append(text)
        asks = asks or approval
    parts: list[Part] = []
    if fielded:
        parts, told = _parts(draw, bits, seen_back)
        lines += told
    text = "\n".join(lines).replace("@", name) + "\n"
    return Place(device, name, offset, bits, access, reads, write, asks, tuple(parts), text)


def _read(draw: st.DrawFn, reads: frozenset[str], names: list[str]) -> str:
    """The `read` table: an effect that reaches elsewhere names where."""
    words = ", ".join(f"'{word}'" for word in sorted(reads))
    rest = "provenance = 'generated'"
    if reads & {"ack", "arm", "latch"}:
        rest += f", affects = ['{names[draw(BYTES) % len(names)]}']"
    if "pop" in reads:
        rest += draw(MORE_OF_POP)
    elif reads == {"clear"} and draw(EITHER):
        rest += ", affects = ['@', '@_SHOWN'], peek = '@_SHOWN'"
    return f"read = {{ effects = [{words}], {rest} }}"


def _write(draw: st.DrawFn, effect: str, seen_back: bool, part: bool = False) -> tuple[str, bool]:
    """The `write` table, and whether it wants a person to agree."""
    way = draw(WAYS)
    if "read_back" in way and not (seen_back and effect in SEEN_BACK):
        way = ""
    if "signal" in way and (part or effect not in COUNTED):
        way = ""
    asks = draw(SELDOM)
    rest = f"provenance = 'asserted'{way}" + (", approval = 'required'" if asks else "")
    return f"write = {{ effect = '{effect}', {rest} }}", asks


def _parts(draw: st.DrawFn, bits: int, seen_back: bool) -> tuple[list[Part], list[str]]:
    """Two or three fields side by side; bits may be left that belong to none."""
    parts, lines, lsb = [], [], 0
    for n in range(2 + draw(EITHER)):
        width = 1 + draw(BYTES) % (bits // 4)
        effect = draw(WRITES) if draw(SELDOM) else "store"  # beside others a field can seldom be updated alone
        text, asks = _write(draw, effect, seen_back, part=True)
        volatile = ", volatile = true" if draw(BYTES) % 8 == 7 else ""
        lines.append(f"fields.F{n} = {{ bits = '{lsb + width - 1}:{lsb}', {text}{volatile} }}")
        parts.append(Part(f"F{n}", ((1 << width) - 1) << lsb, lsb, effect, asks or effect == "lock"))
        lsb += width
    return parts, lines
