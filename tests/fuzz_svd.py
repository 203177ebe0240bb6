"""`python -m tests.fuzz_svd [--rounds N] [--seed S]`: mutated SVD files; each becomes a contract or faults, and soon.

Seeds are the files of the corpus (parts of the large ones) and small devices. Prints the rounds, how many were imported
and refused, and the slowest; what came to anything else is written to a file, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

from hwtool_contracts import wire
from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.importers import svd
from hwtool_contracts.importers.svd import parse_svd
from hwtool_contracts.model import Field, Register
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from tests.corpus import svd_files
from tests.svd_text import cluster, device, field, peripheral, register, tags

SLOW_S: Final = 10
PART_BYTES: Final = 60_000
TAG: Final = re.compile(rb"<(/?)([A-Za-z]+)([^<>]*)>([^<]*)")
SMALL: Final = [
    device(
        peripheral(
            "A",
            register("R", 0, tags(size=16, access="read-write", resetValue=3), [field("F", "[3:0]")]),
            cluster("K", register("T%s", 0, tags(dim=2, dimIncrement=4)), offset=0x40),
            register("X", 0x80, derived="R"),
        ),
        peripheral("B", register("Y", 4, derived="A.R"), base=0x1000, derived="A"),
        peripheral("C[%s]", register("Z"), base=0x2000, more=tags(dim=2, dimIncrement=64)),
    ),
]
WORDS: Final = [
    b"0", b"1", b"64", b"65", b"65536", b"0x", b"#1x", b"-1", b"99999999999999999999", b"0xFFFFFFFFFFFFFFFF", b"%s",
    b"[%s]", b"A,B", b"0-3", b"A-D", b"read-only", b"writeOnce", b"oneToClear", b"modify", b"clear", b"", b" ", b"1T",
    b"[7:0]", b"true", b"big", b"\xc3\xa9", b"\xff", b"&amp;", b"&#0;", b"]]>",
]  # fmt: skip


class TooSlow(Exception):
    """One file took longer than any may."""


def alarm(_: int, __: FrameType | None) -> None:
    """End what takes too long.

    Raises:
        TooSlow: always.
    """
    raise TooSlow


def seeds() -> list[bytes]:
    """What is mutated: small devices, and files of the corpus cut down to some of their peripherals."""
    found = [text.encode() for text in SMALL]
    for path in svd_files():
        data = path.read_bytes()
        head, _, rest = data.partition(b"<peripherals>")
        body, _, tail = rest.rpartition(b"</peripherals>")
        if len(data) <= PART_BYTES:
            found.append(data)
            continue
        parts = re.findall(rb"<peripheral[ >].*?</peripheral>", body, re.DOTALL)
        small = [part for part in parts if len(part) <= PART_BYTES]
        for at in range(0, len(small), 3):
            chosen = b"".join(small[at : at + 3])[: 3 * PART_BYTES]
            found.append(head + b"<peripherals>" + chosen + b"</peripherals>" + tail)
    return found


def mutated(source: bytes, chance: random.Random) -> bytes:
    """The file with one to four things changed: bytes, texts, elements."""
    data = source
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice([0, 1, 4, 40, 400]))
        match chance.randrange(8):
            case 0:
                data = data[:at] + data[end:]
            case 1:
                data = data[:end] + data[at:]
            case 2:
                data = data[:at] + bytes(chance.randrange(256) for _ in range(end - at)) + data[end:]
            case 3:
                data = data[:at] if chance.random() < 0.1 else data
            case _:
                data = elements(data, at, chance)
    return data


def elements(data: bytes, at: int, chance: random.Random) -> bytes:
    """The file with a text exchanged, an element renamed, doubled, moved or derived from somewhere."""
    found = TAG.search(data, at)
    if found is None:
        return data
    start, end = found.span()
    other = TAG.search(data, chance.randrange(len(data))) or found
    match chance.randrange(6):
        case 0:
            return data[: found.start(4)] + chance.choice(WORDS) + data[found.end(4) :]
        case 1:
            return data[: found.start(4)] + other[4] + data[found.end(4) :]
        case 2:
            return data[: found.start(2)] + other[2] + data[found.end(2) :]
        case 3:
            closing = data.find(b"</" + found[2] + b">", end)
            stop = end if closing < 0 else closing + len(found[2]) + 3
            return data[:stop] + data[start:stop] + data[stop:]
        case 4:
            name = other[4].strip() or b"A"
            return data[: found.end(2)] + b' derivedFrom="' + name.replace(b'"', b"") + b'"' + data[found.end(2) :]
        case _:
            closing = data.find(b"</" + found[2] + b">", end)
            stop = end if closing < 0 else closing + len(found[2]) + 3
            return data[:start] + data[stop:]


def outcome(data: bytes, thorough: bool) -> str:
    """What a file becomes; what is promised of a contract is looked at.

    Raises:
        AssertionError: something was promised that nobody said.
    """
    try:
        found = parse_svd(data, "fuzz.svd")
    except Faults as error:
        if not error.faults:
            raise AssertionError("faults without a fault") from error
        return "refused"
    for one in found.contract.registers.values():
        places: list[Register | Field] = [one, *one.fields.values()]
        for place in places:
            if place.read.effects == {ReadEffect.NONE} or place.write.effect is WriteEffect.STORE:
                raise AssertionError(f"{one.name} is harmless, and nobody said so")
    if thorough:
        if wire.decode(wire.encode(found)) != found:
            raise AssertionError("not the same after encoding and decoding")
        try:
            again = parse_contract(write_contract(found.contract), "fuzz.toml")
        except Faults as error:
            if any("empty string" not in str(fault) for fault in error.faults):  # the known one: a blank description
                raise AssertionError(f"what was written does not load: {error.faults[0]}") from error
            return "imported"
        if dict(again.registers) != dict(found.contract.registers):
            raise AssertionError("not the same after writing and reading")
    return "imported"


def main() -> int:
    """Mutate, import, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--registers", type=int, default=5000, help="the limit that maps are held to")
    given = parser.parse_args()
    svd.MAX_REGISTERS = given.registers  # type: ignore[misc]
    chance = random.Random(given.seed)
    sources = seeds()
    counts: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    slowest, slowest_round = 0.0, -1
    signal.signal(signal.SIGALRM, alarm)
    for number in range(given.rounds):
        data = mutated(chance.choice(sources), chance)
        thorough = number % 10 == 0
        start = time.process_time()
        signal.alarm(SLOW_S)
        try:
            counts[outcome(data, thorough)] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            kind = f"{type(error).__name__}: {str(error)[:80]}"
            bad[kind] += 1
            if bad[kind] == 1:
                kept = Path(tempfile.gettempdir()) / f"fuzz-svd-{given.seed}-{number}.svd"
                kept.write_bytes(data)
                print(f"round {number}: {kind}; kept as {kept}", file=sys.stderr)
        finally:
            signal.alarm(0)
        took = time.process_time() - start
        if took > slowest and not thorough:
            slowest, slowest_round = took, number
    print(
        f"seed {given.seed}: {given.rounds} rounds of {len(sources)} sources: {counts['imported']} imported, "
        f"{counts['refused']} refused, {bad.total()} anything else; slowest {slowest:.2f} s of CPU "
        f"(round {slowest_round})"
    )
    for kind, count in bad.most_common():
        print(f"  {count} x {kind}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
