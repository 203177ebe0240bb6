"""What proves that nothing happened: each entry of the tables has a row here, and each row is met on the wire."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import pytest

from hwtool_registers.bus import Ambiguous, Answer, Message, RegisterRead, RegisterWrite, Rejected, Sent, Transfer
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.i2c_proof import ADAPTERS
from hwtool_registers.buses.modbus_pdu import EXCEPTIONS, PROVES_ALWAYS, PROVES_IF_ATOMIC
from tests.conformance import words
from tests.conformance.bench import Access, Bench, Trouble
from tests.conformance.benches.i2c import ADDRESS, READ, WRITE, I2cBench
from tests.conformance.benches.modbus_rtu import ModbusRtuBench
from tests.conformance.benches.modbus_tcp import ModbusTcpBench
from tests.conformance.benches.smbus import SmbusBench

Make = Callable[[type[Bench]], Bench]
WHOLE: Final = RegisterWrite(words.UNIT, words.READ.space, 8, bytes(4), 1, 16, atomic=True)
IN_PARTS: Final = RegisterWrite(words.UNIT, words.READ.space, 8, bytes(4), 1, 16, atomic=False)
# exception: whether it proves that a transfer did nothing, and the same of several registers that are not atomic
MODBUS: Final = {
    0x01: (True, False),
    0x02: (True, False),
    0x03: (True, False),
    0x04: (False, False),
    0x05: (False, False),
    0x06: (True, True),
    0x08: (False, False),
    0x0A: (False, False),
    0x0B: (False, False),
    0x7F: (False, False),  # in no standard
}
# a part of an adapter's name, and the errno of its that says "nobody at the address" and nothing else
I2C: Final = {("i2c-gpio", errno.ENXIO), ("SMBus stub driver", errno.ENODEV)}
NAMES: Final = ("i2c-gpio (GPIO 4)", "SMBus stub driver", "SMBus I801 adapter at 0700", "bcm2835 (i2c@7e804000)")
ERRORS: Final = (
    *(errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN, errno.EIO),
    *(errno.EPROTO, errno.EBADMSG, errno.EBUSY, errno.EINVAL, errno.EOPNOTSUPP),
)
OPCODE: Final = Message(ADDRESS, b"\x24\x00", 6)


def test_tables_when_an_entry_is_added_then_a_row_is_missing_here() -> None:
    assert {code for code, proofs in MODBUS.items() if proofs == (True, True)} == PROVES_ALWAYS
    assert {code for code, proofs in MODBUS.items() if proofs == (True, False)} == PROVES_IF_ATOMIC
    assert set(EXCEPTIONS) <= set(MODBUS)
    assert {(adapter.name, number) for adapter in ADAPTERS for number in adapter.absent} == I2C


def met(answer: Answer, proof: str | None) -> None:
    """The answer is the proof, or a doubt."""
    assert not isinstance(answer, Rejected) or answer.proof == proof, answer
    assert isinstance(answer, Ambiguous if proof is None else Rejected), answer


@pytest.mark.parametrize("kind", [ModbusRtuBench, ModbusTcpBench], ids=lambda b: b.name)
@pytest.mark.parametrize("code", MODBUS, ids=lambda code: f"{code:02X}")
def test_exception_when_it_comes_over_the_wire_then_it_proves_what_its_row_says(
    made: Make, monkeypatch: pytest.MonkeyPatch, kind: type[Bench], code: int
) -> None:
    bench = made(kind)
    monkeypatch.setitem(words.EXCEPTION, Trouble.REFUSED_PROVED, code)
    always, in_parts = MODBUS[code]
    rows: list[tuple[RegisterRead | RegisterWrite, bool]] = [
        (words.READ, always),
        (words.WRITE, always),
        (WHOLE, always),
        (IN_PARTS, in_parts),
    ]
    for transfer, proves in rows:
        bench.arrange(Trouble.REFUSED_PROVED, Access.READ)
        met(bench.bus.perform(transfer), f"modbus-exception-{code:02X}" if proves else None)


@pytest.mark.parametrize("kind", [I2cBench, SmbusBench], ids=lambda b: b.name)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", ERRORS, ids=lambda number: errno.errorcode[number])
def test_errno_when_an_adapter_tells_it_then_it_proves_what_its_row_says(
    made: Make, kind: type[I2cBench], name: str, number: int
) -> None:
    bench = made(kind)
    assert isinstance(bench, I2cBench)
    (bench.top / "sys/class/i2c-dev/i2c-3/name").write_text(name)
    bus = I2c(I2cSettings(name, None), bench.top / "sys", bench.top / "dev")
    absent = any(part in name and number == told for part, told in I2C)
    plain = "not-sent" if number == errno.EOPNOTSUPP else "address-nack" if absent else None
    rows: list[tuple[Transfer, str | None]] = [(READ, plain), (WRITE, plain)]
    if kind is I2cBench:  # a command before a repeated start may have been executed, whoever does not answer after it
        rows.append((OPCODE, "not-sent" if number == errno.EOPNOTSUPP else None))
    for transfer, proof in rows:
        bench.kernel.fails = [number]
        answer = bus.perform(transfer)
        met(answer, proof)
        if isinstance(answer, Ambiguous):
            assert answer.stage is Sent.DATA
    assert len(bench.seen()) == len(rows)
    bus.close()
