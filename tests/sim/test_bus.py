"""The simulated bus: what each transfer is answered, what the chip counted, and every planned fault."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_contracts.native import parse_contract
from hwtool_registers import bus as bus_contract  # `Testifies` by name would look like a test
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Confirmed,
    Line,
    Message,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Transfer,
)
from hwtool_sim.board import bus_of, chip_at_power_on
from hwtool_sim.bus import SimBus, behind
from hwtool_sim.faults import NOT_REACHED, Fault, FaultKind
from tests.hwtool.conftest import DEFAULTS, I2C, reg

MEMORY = Space.MEMORY
READ = RegisterRead(0x20, MEMORY, 0x14, 1)
WRITE = RegisterWrite(0x20, MEMORY, 0x14, b"\x5a")


def bench() -> SimBus:
    return bus_of({0x20: bundled("mcp23017"), 0x21: bundled("mcp23017")})


def counted(bus: SimBus, address: int = 0x20) -> int:
    return sum(bus.chips[address].executed.values())


def test_transfer_when_a_register_answers_then_confirmed_and_counted() -> None:
    bus = bench()
    assert bus.perform(WRITE) == Confirmed()
    assert bus.perform(READ) == Confirmed(b"\x5a")
    assert bus.chips[0x20].executed == {("OLATA", "write"): 1, ("OLATA", "read"): 1}
    assert counted(bus, 0x21) == 0


def test_chip_when_behind_a_multiplexer_then_reached_on_its_channel_alone() -> None:
    near, far = behind(0x70, 0, 0x48), behind(0x70, 3, 0x48)
    bus = bus_of({0x70: bundled("pca9546"), near: bundled("tmp102"), far: bundled("tmp102")})
    assert (near, far) == (0x700148, 0x700448)
    bus.chips[near].values["TLOW"], bus.chips[far].values["TLOW"] = 0x1110, 0x2220
    read = RegisterRead(0x48, MEMORY, 2, 2)

    def on(channels: int) -> Answer:
        assert bus.perform(RegisterWrite(0x70, MEMORY, 0, bytes([channels]), 0)) == Confirmed()
        return bus.perform(read)

    nobody = Rejected("no acknowledge at 0x48", "address-nack")
    assert [on(0), on(1), on(6), on(8)] == [nobody, Confirmed(b"\x11\x10"), nobody, Confirmed(b"\x22\x20")]
    bus.chips[0x70].reset()
    assert bus.perform(read) == nobody
    assert isinstance(on(9), Ambiguous)  # both speak at once
    assert bus.perform(RegisterWrite(0x48, MEMORY, 2, b"\x33\x30")) != Confirmed()
    assert (bus.chips[near].values["TLOW"], bus.chips[far].values["TLOW"]) == (0x3330, 0x3330)
    assert (bus.chips[near].executed["TLOW", "read"], bus.chips[far].executed["TLOW", "read"]) == (2, 2)


def test_chip_when_its_multiplexer_takes_a_number_then_that_channel_alone_is_on() -> None:
    contract = parse_contract(
        I2C + "[mux]\nregister = 'SEL'\nchannels = [4, 5]\n" + DEFAULTS + reg("SEL", 0), "mux.toml"
    )
    bus = bus_of({0x20: contract, behind(0x20, 0, 0x48): bundled("tmp102"), behind(0x20, 1, 0x49): bundled("tmp102")})
    found = []
    for value in (0, 4, 5):
        bus.chips[0x20].values["SEL"] = value
        answers = [bus.perform(RegisterRead(at, MEMORY, 2, 2)) for at in (0x48, 0x49)]
        found.append([isinstance(answer, Confirmed) for answer in answers])
    assert found == [[False, False], [True, False], [False, True]]


REJECTED: list[tuple[str, Transfer, str, str]] = [
    ("read-no-chip", RegisterRead(0x33, MEMORY, 0, 1), "no acknowledge at 0x33", "address-nack"),
    ("write-no-chip", RegisterWrite(0x33, MEMORY, 0, b"\x00"), "no acknowledge at 0x33", "address-nack"),
    ("read-no-register", RegisterRead(0x20, MEMORY, 0x16, 1), "mcp23017: nothing to read at 0x16", "no-register"),
    (
        "write-no-register",
        RegisterWrite(0x20, MEMORY, 0x0E, b"\x00"),
        "mcp23017: nothing to write at 0xe",
        "no-register",
    ),
    ("wrong-space", RegisterRead(0x20, Space.HOLDING, 0, 2), "mcp23017: nothing to read at 0x0", "no-register"),
    ("read-into-a-hole", RegisterRead(0x20, MEMORY, 0x14, 3), "mcp23017: nothing to read at 0x16", "no-register"),
    (
        "write-into-a-hole",
        RegisterWrite(0x20, MEMORY, 0x14, b"\x01\x02\x03"),
        "mcp23017: nothing to write at 0x16",
        "no-register",
    ),
    ("read-nothing", RegisterRead(0x20, MEMORY, 0x16, 0), "mcp23017: a read of 0 bytes", "no-register"),
    ("write-nothing", RegisterWrite(0x20, MEMORY, 0x16, b""), "mcp23017: nothing to write at 0x16", "no-register"),
    (
        "read-long-offset",
        RegisterRead(0x20, MEMORY, 0x14, 1, offset_bytes=2),
        "mcp23017 takes 1 byte(s) of offset",
        "no-register",
    ),
    (
        "write-long-offset",
        RegisterWrite(0x20, MEMORY, 0x14, b"\x5a", offset_bytes=2),
        "mcp23017 takes 1 byte(s) of offset",
        "no-register",
    ),
    ("message", Message(0x20, b"\x00", 1), "mcp23017 has no command 00", "no-register"),
    ("line", Line("*IDN?", True), "mcp23017 does not know '*IDN?'", "no-register"),
]


@pytest.mark.parametrize(("_what", "transfer", "fault", "proof"), REJECTED, ids=[r[0] for r in REJECTED])
def test_transfer_when_nothing_can_take_it_then_rejected_with_its_proof_and_not_counted(
    _what: str, transfer: Transfer, fault: str, proof: str
) -> None:
    bus = bench()
    assert bus.perform(transfer) == Rejected(fault, proof)
    assert (counted(bus), counted(bus, 0x21)) == (0, 0)
    assert list(bus.log) == [transfer]


def test_log_when_transfers_fail_or_are_spoilt_then_it_has_every_one_in_order() -> None:
    bus = bench()
    bus.faults = [Fault(FaultKind.REQUEST_LOST, 0x20), Fault(FaultKind.NACK, 0x20)]
    transfers: list[Transfer] = [READ, WRITE, Message(0x20, b"", 1), RegisterRead(0x33, MEMORY, 0, 1), READ]
    for transfer in transfers:
        bus.perform(transfer)
    assert list(bus.log) == transfers
    assert bus.transfers == len(transfers)


NO_REPLY = "no reply (planned fault: {})"
NEEDED: dict[FaultKind, dict[str, Any]] = {
    # what a kind needs beside its place
    FaultKind.HANG: {"hang_s": 30.0},
    FaultKind.LATE_REPLY: {"late_s": 1.0},
    FaultKind.EXCEPTION: {"code": 4},
    FaultKind.FOREIGN: {"register": "OLATA", "value": 0x77},
    FaultKind.SWAP: {"same": True},
    FaultKind.STUCK_BITS: {"register": "OLATB", "bits": 0x80, "value": 0x80},
    FaultKind.FLIP: {"register": "OLATB", "bits": 0x03},
    FaultKind.CLOCK_STRETCH: {"hang_s": 0.5},
}
SPOILT: dict[FaultKind, tuple[Answer, int, int, list[float]]] = {
    # the answer to a write of 0x5A, then executions, what the latch holds, and waits
    FaultKind.RESET: (Confirmed(), 1, 0x5A, []),
    FaultKind.FOREIGN: (Confirmed(), 1, 0x5A, []),
    FaultKind.REQUEST_LOST: (Ambiguous(Sent.REPLY, NO_REPLY.format("request lost")), 0, 0x00, []),
    FaultKind.REPLY_LOST: (Ambiguous(Sent.REPLY, NO_REPLY.format("reply lost")), 1, 0x5A, []),
    FaultKind.LATE_REPLY: (Ambiguous(Sent.REPLY, NO_REPLY.format("late reply")), 1, 0x5A, []),
    FaultKind.DUPLICATED: (Confirmed(), 1, 0x5A, []),
    FaultKind.TRUNCATED: (Ambiguous(Sent.REPLY, "a fragment of the reply came (planned fault)"), 1, 0x5A, []),
    FaultKind.CORRUPTED: (Ambiguous(Sent.REPLY, "CRC error in the reply (planned fault)"), 1, 0x5A, []),
    FaultKind.NACK: (Rejected("no acknowledge at the address (planned fault)", "address-nack"), 0, 0x00, []),
    FaultKind.DATA_NACK: (Ambiguous(Sent.DATA, "no acknowledge after 0 data byte(s) (planned fault)"), 0, 0x00, []),
    FaultKind.EXCEPTION: (Ambiguous(Sent.REPLY, "Modbus exception 04 (device failure)"), 0, 0x00, []),
    FaultKind.HANG: (Confirmed(), 1, 0x5A, [30.0]),
    FaultKind.UNPLUG: (Ambiguous(Sent.DATA, "the bus vanished (planned fault: unplug)"), 0, 0x00, []),
    FaultKind.SWAP: (Confirmed(), 1, 0x5A, []),
    FaultKind.STUCK_BITS: (Confirmed(), 1, 0x5A, []),
    FaultKind.FLIP: (Confirmed(), 1, 0x5A, []),
    FaultKind.ARBITRATION_LOST: (
        Rejected("arbitration lost at the address (planned fault)", "arbitration-lost"),
        0,
        0x00,
        [],
    ),
    FaultKind.CLOCK_STRETCH: (Confirmed(), 1, 0x5A, [0.5]),
    FaultKind.STUCK_BUS: (
        Ambiguous(Sent.DATA, "SDA is held low in the middle of the transfer (planned fault)"),
        0,
        0x00,
        [],
    ),
    FaultKind.FALSE_ACK: (Confirmed(), 0, 0x00, []),
}
KINDS = [k.value for k in SPOILT]


def test_fault_table_when_a_kind_is_added_then_a_line_is_missing_here() -> None:
    assert set(SPOILT) == set(FaultKind)


@pytest.mark.parametrize(
    ("kind", "wanted", "executed", "held", "waits"), [(kind, *rest) for kind, rest in SPOILT.items()], ids=KINDS
)
def test_fault_when_it_strikes_a_write_then_answer_and_execution_are_those_of_its_kind(
    kind: FaultKind, wanted: Answer, executed: int, held: int, waits: list[float]
) -> None:
    slept: list[float] = []
    moments = [0.0]
    bus = SimBus({0x20: chip_at_power_on(bundled("mcp23017"))}, sleep=slept.append, clock=lambda: moments[-1])
    bus.faults.append(Fault(kind, 0x20, **NEEDED.get(kind, {})))
    assert bus.perform(WRITE) == wanted
    assert (counted(bus), bus.chips[0x20].values["OLATA"], slept) == (executed, held, waits)
    moments.append(10.0)  # whatever was late has come, and is thrown away
    bus.plug()
    assert bus.perform(WRITE) == Confirmed()  # once, and then it is over
    assert (counted(bus), slept) == (executed + 1, waits)


SPARED = {FaultKind.EXCEPTION, *NOT_REACHED}  # these keep it from acting
ELSEWHERE = {FaultKind.FOREIGN, FaultKind.STUCK_BITS, FaultKind.FLIP, FaultKind.SWAP}  # of another register, or chip


@pytest.mark.parametrize("kind", [k for k in FaultKind if k not in ELSEWHERE], ids=lambda k: k.value)
def test_fault_when_it_strikes_a_pop_then_the_element_is_gone_only_if_the_chip_acted(kind: FaultKind) -> None:
    bus = SimBus({0x48: chip_at_power_on(bundled("sc16is750"))}, sleep=lambda _: None, clock=lambda: 0.0)
    bus.faults.append(Fault(kind, 0x48, **NEEDED.get(kind, {})))
    bus.perform(RegisterRead(0x48, MEMORY, 0x00, 1))
    left = b"hello" if kind in SPARED else b"ello"
    assert bytes(bus.chips[0x48].fifos["RHR"]) == left
    bus.plug()
    bus.quiesce(1.0)
    assert bus.perform(RegisterRead(0x48, MEMORY, 0x00, len(left))) == Confirmed(left)


# a fault, then which of six transfers it spoils: read 14, write 14, read 15, read 14, write 14, read 14 at 0x20
SEED = 7
BY_CHANCE, ONCE_BY_CHANCE = "xx.x.x", "x....."  # of this seed
SELECTIONS = [
    ("any", Fault(FaultKind.NACK, 0x20), "x....."),
    ("reads", Fault(FaultKind.NACK, 0x20, access="read", times=9), "x.xx.x"),
    ("writes", Fault(FaultKind.NACK, 0x20, access="write", times=9), ".x..x."),
    ("offset", Fault(FaultKind.NACK, 0x20, offset=0x15, times=9), "..x..."),
    ("skip", Fault(FaultKind.NACK, 0x20, skip=2), "..x..."),
    ("skip-and-times", Fault(FaultKind.NACK, 0x20, skip=1, times=3), ".xxx.."),
    ("reads-at-offset-second-on", Fault(FaultKind.NACK, 0x20, "read", 0x14, skip=1, times=2), "...x.x"),
    ("never", Fault(FaultKind.NACK, 0x20, times=0), "......"),
    ("another-chip", Fault(FaultKind.NACK, 0x21, times=9), "......"),
    ("always", Fault(FaultKind.NACK, 0x20, times="always"), "xxxxxx"),
    ("register", Fault(FaultKind.NACK, 0x20, at="OLATB", times=9), "..x..."),
    ("from-then-on", Fault(FaultKind.NACK, 0x20, times=9, after_s=3.0), "...xxx"),
    ("until-then", Fault(FaultKind.NACK, 0x20, times=9, after_s=1.0, until_s=3.0), ".xx..."),
    ("by-chance", Fault(FaultKind.NACK, 0x20, times="always", probability=0.5), BY_CHANCE),
    ("by-chance-once", Fault(FaultKind.NACK, 0x20, probability=0.5), ONCE_BY_CHANCE),
]


@pytest.mark.parametrize(("_what", "fault", "pattern"), SELECTIONS, ids=[s[0] for s in SELECTIONS])
def test_fault_when_it_selects_accesses_then_only_these_are_spoilt(_what: str, fault: Fault, pattern: str) -> None:
    bus = bench()
    moments = iter(range(100, 200))
    bus.begin(SEED)
    bus.clock = lambda: 100.0
    if fault.address == 0x20:
        bus.plan(fault)  # a copy: a fault counts down, and the table keeps its own
    second = RegisterRead(0x20, MEMORY, 0x15, 1)
    seen = []
    for transfer in (READ, WRITE, second, READ, WRITE, READ):
        now = float(next(moments))
        bus.clock = lambda now=now: now  # type: ignore[misc]
        seen.append(bus.perform(transfer))
    assert "".join("x" if isinstance(a, Rejected) else "." for a in seen) == pattern
    assert counted(bus) == pattern.count(".")


def test_chance_when_the_seed_is_the_same_then_so_are_the_faults() -> None:
    struck = []
    for seed in (1, 1, 2):
        bus = bench()
        bus.begin(seed)
        bus.plan(Fault(FaultKind.NACK, 0x20, times="always", probability=0.5))
        struck.append([isinstance(bus.perform(READ), Rejected) for _ in range(64)])
    assert struck[0] == struck[1] != struck[2]
    assert 16 < sum(struck[0]) < 48


def test_fault_when_several_match_then_the_first_strikes_and_the_next_waits_its_turn() -> None:
    bus = bench()
    bus.faults = [Fault(FaultKind.REQUEST_LOST, 0x20), Fault(FaultKind.NACK, 0x20), Fault(FaultKind.REPLY_LOST, 0x20)]
    answers = [type(bus.perform(WRITE)) for _ in range(4)]
    assert answers == [Ambiguous, Rejected, Ambiguous, Confirmed]
    assert counted(bus) == 2


def test_fault_when_no_chip_is_there_then_a_lost_request_is_still_no_proof() -> None:
    bus = bench()
    bus.faults.append(Fault(FaultKind.REQUEST_LOST, 0x33))
    transfer = RegisterRead(0x33, MEMORY, 0, 1)
    assert isinstance(bus.perform(transfer), Ambiguous)
    assert isinstance(bus.perform(transfer), Rejected)


def test_inline_when_a_hang_is_planned_then_not_until_it_is_over() -> None:
    slept: list[float] = []
    bus = SimBus({0x20: chip_at_power_on(bundled("mcp23017"))}, sleep=slept.append)
    seen = [bus.inline]
    bus.faults.append(Fault(FaultKind.REPLY_LOST, 0x20, times=1, access="write"))
    seen.append(bus.inline)
    bus.faults.append(Fault(FaultKind.HANG, 0x20, skip=1, hang_s=5.0))
    seen.append(bus.inline)
    bus.perform(READ)
    seen.append(bus.inline)
    bus.perform(READ)
    seen.append(bus.inline)
    assert seen == [True, True, False, False, True]
    assert slept == [5.0]


def test_boot_evidence_when_a_chip_restarts_then_its_word_changes_and_the_others_stay() -> None:
    bus = bench()
    assert isinstance(bus, bus_contract.Testifies)
    before = (bus.boot_evidence(0x20), bus.boot_evidence(0x21))
    bus.perform(WRITE)
    assert (bus.boot_evidence(0x20), bus.boot_evidence(0x21)) == before
    assert before[0] != before[1]
    bus.chips[0x20].reset()
    assert bus.boot_evidence(0x20) != before[0]
    assert bus.boot_evidence(0x21) == before[1]
    assert bus.boot_evidence(0x33) is None


def test_quiesce_when_the_moment_is_past_then_it_returns_and_else_waits_the_rest() -> None:
    slept: list[float] = []
    bus = SimBus({}, sleep=slept.append)
    bus.quiesce(time.monotonic() - 1)
    assert slept == []
    bus.quiesce(time.monotonic() + 1000)
    assert len(slept) == 1
    assert 0 < slept[0] <= 1000


HOLDING, INPUT = Space.HOLDING, Space.INPUT
FUNCTIONS: list[tuple[RegisterRead | RegisterWrite, bool]] = [
    (RegisterRead(1, HOLDING, 0xFC02, 2, function=3), True),
    (RegisterRead(1, INPUT, 0x0000, 4, function=4), True),
    (RegisterWrite(1, HOLDING, 0x0014, b"\0\0\0\0", function=16), True),
    (RegisterRead(1, HOLDING, 0xFC02, 2), True),
    (RegisterRead(1, HOLDING, 0xFC02, 2, function=23), False),
    (RegisterWrite(1, HOLDING, 0x0014, b"\0\0\0\0", function=6), False),
]


@pytest.mark.parametrize(("transfer", "has"), FUNCTIONS, ids=[f"{type(t).__name__}-{t.function}" for t, _ in FUNCTIONS])
def test_transfer_when_the_device_lacks_the_function_then_rejected_and_else_taken(
    transfer: RegisterRead | RegisterWrite, has: bool
) -> None:
    bus = bus_of({1: bundled("sdm120")})
    answer = bus.perform(transfer)
    if has:
        assert isinstance(answer, Confirmed)
    else:
        assert answer == Rejected(f"sdm120 has no function {transfer.function}", "no-register")
    assert counted(bus, 1) == has


def test_transfer_when_the_chip_is_no_modbus_device_then_a_function_is_not_looked_at() -> None:
    assert bench().perform(RegisterRead(0x20, MEMORY, 0x14, 1, function=3)) == Confirmed(b"\x00")


NOWHERE: list[tuple[str, Transfer]] = [
    ("read", RegisterRead(0x20, MEMORY, 0x16, 1)),
    ("write", RegisterWrite(0x20, MEMORY, 0x16, b"\x01")),
    ("burst", RegisterWrite(0x20, MEMORY, 0x14, b"\x01\x02\x03")),
    ("long-offset", RegisterRead(0x20, MEMORY, 0x14, 1, offset_bytes=2)),
]


@pytest.mark.parametrize(("_what", "transfer"), NOWHERE, ids=[n[0] for n in NOWHERE])
def test_fault_when_the_reply_of_a_refusal_is_lost_then_the_refusal_is_no_proof(_what: str, transfer: Transfer) -> None:
    bus = bench()
    bus.faults.append(Fault(FaultKind.REPLY_LOST, 0x20))
    assert bus.perform(transfer) == Ambiguous(Sent.REPLY, NO_REPLY.format("reply lost"))
    answer = bus.perform(transfer)
    assert isinstance(answer, Rejected)
    assert answer.proof == "no-register"
    assert counted(bus) == 0
