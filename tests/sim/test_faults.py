"""Planned faults on the simulated bus: events, replies that come late or twice or broken, a bus that vanishes."""

from __future__ import annotations

from typing import Any

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_contracts.native import parse_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, Message, RegisterRead, RegisterWrite, Rejected, Sent
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.bus import SimBus, behind
from hwtool_sim.chip import Chip
from hwtool_sim.faults import KINDS_OF, Fault, FaultKind

MEMORY, HOLDING, INPUT = Space.MEMORY, Space.HOLDING, Space.INPUT
LATCH_A, LATCH_B = 0x14, 0x15
READ = RegisterRead(0x20, MEMORY, LATCH_A, 1)
READ_B = RegisterRead(0x20, MEMORY, LATCH_B, 1)
WRITE = RegisterWrite(0x20, MEMORY, LATCH_A, b"\x5a")
WIDE = RegisterWrite(1, HOLDING, 0x0014, b"\x41\x00\x00\x00", function=16)  # the sdm120's demand period
LATE = Ambiguous(Sent.REPLY, "no reply (planned fault: late reply)")


class Bench:
    """An expander at 0x20 and a meter at 1 on one bus, and a clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []
        chips = {0x20: chip_at_power_on(bundled("mcp23017")), 1: chip_at_power_on(bundled("sdm120"))}
        self.bus = SimBus(chips, sleep=self.slept.append, clock=lambda: self.now_s)

    @property
    def expander(self) -> Chip:
        return self.bus.chips[0x20]

    def fault(self, kind: FaultKind, address: int = 0x20, **parts: Any) -> None:
        self.bus.plan(Fault(kind, address, **parts))

    def ask(self, *transfers: RegisterRead | RegisterWrite) -> list[Answer]:
        return [self.bus.perform(t) for t in transfers]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(("when", "held"), [("before", 0x5A), ("after", 0x00)])
def test_reset_when_planned_around_a_write_then_the_state_tells_which_came_first(
    bench: Bench, when: str, held: int
) -> None:
    nonce = bench.expander.nonce
    bench.fault(FaultKind.RESET, when=when)
    assert bench.ask(WRITE) == [Confirmed()]
    assert bench.expander.nonce != nonce
    assert bench.expander.values["OLATA"] == held
    assert bench.expander.executed == {("OLATA", "write"): 1}


@pytest.mark.parametrize(("when", "held"), [("before", 0x5A), ("after", 0x77)])
@pytest.mark.parametrize(
    "what", [{"register": "OLATA", "value": 0x77}, {"offset_written": LATCH_A, "data": "77"}], ids=["register", "place"]
)
def test_foreign_when_another_master_writes_then_it_is_counted_apart(
    bench: Bench, when: str, held: int, what: dict[str, Any]
) -> None:
    bench.fault(FaultKind.FOREIGN, when=when, **what)
    assert bench.ask(WRITE, WRITE) == [Confirmed(), Confirmed()]
    assert bench.expander.executed == {("OLATA", "write"): 2}
    assert bench.expander.foreign == {("OLATA", "write"): 1}
    bench.fault(FaultKind.FOREIGN, when=when, **what)
    bench.ask(WRITE)
    assert bench.expander.values["OLATA"] == held


def test_foreign_when_it_writes_where_nothing_is_then_nothing_is_written(bench: Bench) -> None:
    bench.fault(FaultKind.FOREIGN, offset_written=0x16, data="77")
    assert bench.ask(WRITE, READ) == [Confirmed(), Confirmed(b"\x5a")]
    assert bench.expander.foreign == {}


def test_foreign_when_it_comes_with_an_input_read_then_it_writes_holding_registers(bench: Bench) -> None:
    bench.fault(FaultKind.FOREIGN, 1, offset_written=0x0014, data="41000000")
    bench.ask(RegisterRead(1, INPUT, 0, 4, function=4))
    (written,) = bench.bus.chips[1].foreign
    assert bench.bus.chips[1].values[written[0]] == 0x41000000


def test_events_when_several_match_then_all_fire_and_the_first_loss_decides(bench: Bench) -> None:
    nonce = bench.expander.nonce
    bench.fault(FaultKind.RESET)
    bench.fault(FaultKind.REPLY_LOST)
    bench.fault(FaultKind.FOREIGN, register="OLATB", value=1)
    bench.fault(FaultKind.NACK)
    bench.fault(FaultKind.FOREIGN, register="OLATB", value=2, when="after")
    assert bench.ask(WRITE) == [Ambiguous(Sent.REPLY, "no reply (planned fault: reply lost)")]
    assert (bench.expander.values["OLATA"], bench.expander.values["OLATB"]) == (0x5A, 2)
    assert bench.expander.nonce != nonce
    assert bench.expander.foreign == {("OLATB", "write"): 2}
    assert [f.times for f in bench.bus.faults] == [0, 0, 0, 1, 0]  # the second loss waits its turn
    assert isinstance(bench.ask(WRITE)[0], Rejected)
    assert bench.expander.executed == {("OLATA", "write"): 1}


def test_events_when_the_chip_is_not_reached_then_they_happen_all_the_same(bench: Bench) -> None:
    bench.fault(FaultKind.REQUEST_LOST)
    bench.fault(FaultKind.FOREIGN, register="OLATA", value=3)
    bench.ask(WRITE)
    assert (bench.expander.executed, bench.expander.values["OLATA"]) == ({}, 3)


def late_read(bench: Bench) -> None:
    """Latch A holds 5A, latch B C3, and the reply of a read of A is due in half a second."""
    bench.expander.values |= {"OLATA": 0x5A, "OLATB": 0xC3}
    bench.fault(FaultKind.LATE_REPLY, access="read", late_s=0.5)
    assert bench.ask(READ) == [LATE]
    assert bench.expander.executed == {("OLATA", "read"): 1}


def test_late_reply_when_the_next_read_goes_out_before_it_came_then_it_is_taken_for_its_answer(bench: Bench) -> None:
    late_read(bench)
    assert bench.ask(READ_B) == [Confirmed(b"\x5a")]  # the wrong value: that is the fault
    assert bench.ask(READ_B) == [Confirmed(b"\xc3")]  # its own answer was emptied from the buffer, this one is new
    assert bench.expander.executed == {("OLATA", "read"): 1, ("OLATB", "read"): 2}


def test_late_reply_when_it_came_before_the_next_read_then_the_buffer_was_emptied(bench: Bench) -> None:
    late_read(bench)
    bench.now_s += 0.5
    assert bench.ask(READ_B) == [Confirmed(b"\xc3")]


def test_late_reply_when_drained_after_it_came_then_it_is_gone_and_drained_before_it_is_not(bench: Bench) -> None:
    late_read(bench)
    bench.bus.quiesce(100.4)
    assert bench.slept == [pytest.approx(0.4)]
    assert bench.ask(READ_B) == [Confirmed(b"\x5a")]
    bench.fault(FaultKind.LATE_REPLY, late_s=0.5)
    assert bench.ask(READ) == [LATE]
    bench.bus.quiesce(100.5)
    assert bench.ask(READ_B) == [Confirmed(b"\xc3")]


UNLIKE = [
    ("a write", WRITE),
    ("a longer read", RegisterRead(0x20, MEMORY, LATCH_A, 2)),
    ("another device", RegisterRead(1, INPUT, 0, 4, function=4)),
]


@pytest.mark.parametrize(("_what", "following"), UNLIKE, ids=[u[0] for u in UNLIKE])
def test_late_reply_when_the_next_access_is_of_another_form_then_it_is_ambiguous_and_the_chip_acts(
    bench: Bench, _what: str, following: RegisterRead | RegisterWrite
) -> None:
    late_read(bench)
    (answer,) = bench.ask(following)
    assert isinstance(answer, Ambiguous)
    assert answer.stage is Sent.REPLY
    assert answer.fault.startswith("the reply to another request came")
    assert sum(sum(c.executed.values()) for c in bench.bus.chips.values()) >= 2
    assert isinstance(bench.ask(following)[0], Confirmed)


WRITES = [
    ("the same write", WRITE, True),
    ("another value", RegisterWrite(0x20, MEMORY, LATCH_A, b"\x5b"), False),
    ("another place", RegisterWrite(0x20, MEMORY, LATCH_B, b"\x5a"), False),
    ("a longer write", RegisterWrite(0x20, MEMORY, LATCH_A, b"\x5a\x5b"), False),
]


@pytest.mark.parametrize(("_what", "following", "passes"), WRITES, ids=[w[0] for w in WRITES])
def test_late_echo_when_the_next_write_goes_out_then_it_passes_only_for_the_same_write(
    bench: Bench, _what: str, following: RegisterWrite, passes: bool
) -> None:
    bench.fault(FaultKind.LATE_REPLY, late_s=0.5)
    assert bench.ask(WRITE) == [LATE]
    (answer,) = bench.ask(following)
    assert (answer == Confirmed()) is passes
    assert sum(bench.expander.executed.values()) >= 2


def test_late_reply_when_the_next_request_is_lost_then_it_still_comes(bench: Bench) -> None:
    late_read(bench)
    bench.fault(FaultKind.REQUEST_LOST)
    assert bench.ask(READ_B, READ_B) == [Confirmed(b"\x5a"), Confirmed(b"\xc3")]
    assert bench.expander.executed == {("OLATA", "read"): 1, ("OLATB", "read"): 1}


def test_late_replies_when_there_are_two_then_they_come_in_order(bench: Bench) -> None:
    late_read(bench)
    bench.fault(FaultKind.LATE_REPLY, late_s=0.1)
    assert bench.ask(READ_B) == [Confirmed(b"\x5a")]
    assert bench.ask(READ) == [Confirmed(b"\xc3")]  # it would be due sooner, and waits for the one before it
    assert bench.ask(READ) == [Confirmed(b"\x5a")]


def test_duplicated_reply_when_the_next_request_goes_out_then_the_copy_was_emptied(bench: Bench) -> None:
    bench.expander.values |= {"OLATA": 0x5A, "OLATB": 0xC3}
    bench.fault(FaultKind.DUPLICATED)
    assert bench.ask(READ, READ_B) == [Confirmed(b"\x5a"), Confirmed(b"\xc3")]
    assert bench.expander.executed == {("OLATA", "read"): 1, ("OLATB", "read"): 1}


NACKS = [(0, {}, {"IODIRA": 0xFF, "IODIRB": 0xFF}), (1, {"IODIRA": 1}, {"IODIRA": 0x12, "IODIRB": 0xFF})]


@pytest.mark.parametrize(("after_bytes", "executed", "held"), NACKS, ids=["at-once", "after-one"])
def test_data_nack_when_it_strikes_a_burst_then_the_chip_has_what_came_before_it(
    bench: Bench, after_bytes: int, executed: dict[str, int], held: dict[str, int]
) -> None:
    bench.fault(FaultKind.DATA_NACK, after_bytes=after_bytes)
    burst = RegisterWrite(0x20, MEMORY, 0x00, b"\x12\x34")
    wanted = Ambiguous(Sent.DATA, f"no acknowledge after {after_bytes} data byte(s) (planned fault)")
    assert bench.ask(RegisterRead(0x20, MEMORY, 0x00, 1), burst) == [Confirmed(b"\xff"), wanted]  # a read is not struck
    written = {name: n for (name, access), n in bench.expander.executed.items() if access == "write"}
    assert written == executed
    assert {name: bench.expander.values[name] for name in held} == held


EXCEPTIONS: list[tuple[int, bool, type]] = [
    (0x02, True, Rejected),
    (0x04, True, Ambiguous),
    (0x06, False, Rejected),
    (0x02, False, Ambiguous),
]


@pytest.mark.parametrize(("code", "atomic", "kind"), EXCEPTIONS)
@pytest.mark.parametrize("acts", [False, True])
def test_exception_when_a_modbus_device_answers_with_it_then_the_proof_table_of_modbus_decides(
    bench: Bench, code: int, atomic: bool, kind: type, acts: bool
) -> None:
    bench.fault(FaultKind.EXCEPTION, 1, code=code, acts=acts)
    write = RegisterWrite(1, HOLDING, 0x0014, b"\x41\x00\x00\x00", function=16, atomic=atomic)
    (answer,) = bench.ask(write)
    assert type(answer) is kind
    if isinstance(answer, Rejected):
        assert answer.proof == f"modbus-exception-{code:02X}"
    assert sum(bench.bus.chips[1].executed.values()) == acts


@pytest.mark.parametrize("power", [False, True])
def test_unplug_when_the_bus_vanishes_at_an_access_then_it_is_proved_absent_until_it_is_plugged(
    bench: Bench, power: bool
) -> None:
    bench.ask(WRITE)
    nonce = bench.expander.nonce
    bench.fault(FaultKind.UNPLUG, power=power)
    absent = Rejected("the simulated bus is unplugged", "port-not-opened")
    gone = Ambiguous(Sent.DATA, "the bus vanished (planned fault: unplug)")
    assert bench.ask(READ, READ, WIDE) == [gone, absent, absent]
    assert bench.bus.boot_evidence(0x20) is None
    with pytest.raises(OSError, match="the simulated bus is unplugged"):
        bench.bus.quiesce(0.0)
    assert bench.expander.nonce == nonce
    bench.bus.plug()
    assert bench.ask(READ) == [Confirmed(b"\x00" if power else b"\x5a")]
    assert (bench.bus.boot_evidence(0x20) == nonce) is not power
    assert bench.expander.executed == {("OLATA", "write"): 1, ("OLATA", "read"): 1}
    assert bench.bus.transfers == 5


def test_unplug_when_a_reply_is_under_way_then_it_never_arrives(bench: Bench) -> None:
    late_read(bench)
    bench.bus.unplug()
    bench.bus.plug()
    assert bench.ask(READ_B) == [Confirmed(b"\xc3")]


def test_inline_when_nothing_sleeps_then_the_bus_may_run_in_the_event_loop(bench: Bench) -> None:
    bench.fault(FaultKind.LATE_REPLY, late_s=5.0)
    bench.fault(FaultKind.UNPLUG)
    assert bench.bus.inline
    bench.ask(READ, READ)
    assert bench.slept == []


def test_absent_chip_when_a_loss_needs_one_then_its_address_is_not_acknowledged(bench: Bench) -> None:
    absent = RegisterWrite(0x33, MEMORY, 0, b"\x00")
    needed: dict[FaultKind, dict[str, Any]] = {FaultKind.LATE_REPLY: {"late_s": 1.0}, FaultKind.EXCEPTION: {"code": 4}}
    for kind in (FaultKind.LATE_REPLY, FaultKind.DATA_NACK, FaultKind.EXCEPTION, FaultKind.HANG, FaultKind.RESET):
        bench.bus.faults = [Fault(kind, 0x33, **needed.get(kind, {}))]
        assert bench.ask(absent) == [Rejected("no acknowledge at 0x33", "address-nack")]
    assert bench.slept == []


UNFIT: list[tuple[FaultKind, dict[str, Any], str]] = [
    (FaultKind.LATE_REPLY, {}, "late_reply needs late_s above 0"),
    (FaultKind.EXCEPTION, {}, "exception needs code"),
    (FaultKind.EXCEPTION, {"code": 4}, "exception: at 0x20 is no Modbus device"),
    (FaultKind.EXCEPTION, {"code": 4, "address": 9}, "exception: at 0x09 is no Modbus device"),
    (FaultKind.DATA_NACK, {"access": "read"}, "data_nack strikes writes"),
    (FaultKind.HANG, {"hang_s": float("nan")}, "finite seconds"),
    (FaultKind.FOREIGN, {}, "foreign needs data and offset_written, or register and value"),
    (FaultKind.FOREIGN, {"register": "OLATA"}, "foreign needs"),
    (FaultKind.FOREIGN, {"register": "OLATA", "value": 1, "data": "00"}, "foreign needs"),
    (FaultKind.FOREIGN, {"register": "OLATA", "value": 1, "data": "00", "offset_written": 1}, "foreign needs"),
    (FaultKind.FOREIGN, {"data": "", "offset_written": 1}, "at least one byte"),
    (FaultKind.FOREIGN, {"data": "xx", "offset_written": 1}, "non-hexadecimal"),
    (FaultKind.FOREIGN, {"register": "OLATC", "value": 1}, "mcp23017 has no register OLATC; one of OLATB, OLATA"),
    (FaultKind.FOREIGN, {"register": "OLATA", "value": 0x100}, "OLATA has 8 bits; 256 does not fit"),
    (FaultKind.FOREIGN, {"address": 9, "register": "OLATA", "value": 1}, "no chip at 0x09"),
    (FaultKind.NACK, {"slip": True}, "slip belongs to clock_stretch, not to nack"),
    (FaultKind.NACK, {"lasts_s": 1.0}, "lasts_s belongs to stuck_bus and unplug, not to nack"),
    (FaultKind.UNPLUG, {"recovers": True}, "recovers belongs to stuck_bus, not to unplug"),
    (FaultKind.NACK, {"bits": 1}, "bits belongs to stuck_bits and flip, not to nack"),
    (FaultKind.SWAP, {}, "swap needs contract, or same = true"),
    (FaultKind.SWAP, {"contract": "tmp102", "same": True}, "swap needs contract, or same = true"),
    (FaultKind.STUCK_BITS, {"register": "OLATA"}, "stuck_bits needs register, bits"),
    (FaultKind.FLIP, {"register": "OLATA"}, "flip needs register and bits"),
    (FaultKind.FLIP, {"register": "OLATA", "bits": 0x100}, "OLATA has 8 bits; 256 does not fit"),
    (FaultKind.FLIP, {"address": 0x33, "register": "OLATA", "bits": 1}, "flip: no chip at 0x33"),
    (FaultKind.NACK, {"offset": 1, "at": "OLATA"}, "one of the two"),
    (FaultKind.NACK, {"at": "OLATQ"}, "mcp23017 has no register OLATQ; one of OLATB, OLATA"),
    (FaultKind.NACK, {"after_s": 2.0, "until_s": 2.0}, "until_s is after after_s"),
]


@pytest.mark.parametrize(("kind", "parts", "words"), UNFIT)
def test_fault_when_it_cannot_be_had_then_it_is_refused_and_says_why(
    bench: Bench, kind: FaultKind, parts: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        bench.fault(kind, **{"address": 0x20, **parts})
    assert bench.bus.faults == []


def test_swap_when_there_is_no_such_contract_then_refused_when_it_is_planned(bench: Bench) -> None:
    with pytest.raises(Faults, match="no_such_chip"):
        bench.fault(FaultKind.SWAP, contract="no_such_chip")
    assert bench.bus.faults == []


SET: dict[str, Any] = {
    "hang_s": 1.0, "when": "after", "data": "00", "offset_written": 1, "register": "OLATA", "value": 1, "late_s": 1.0,
    "after_bytes": 1, "code": 4, "acts": True, "power": True, "bits": 1, "contract": "tmp102", "same": True,
    "slip": True, "lasts_s": 1.0, "recovers": True,
}  # fmt: skip


@pytest.mark.parametrize("part", KINDS_OF)
def test_part_of_a_fault_when_its_kind_has_no_use_for_it_then_refused(part: str) -> None:
    with pytest.raises(ValueError, match=f"{part} belongs to .*, not to request_lost"):
        Fault(FaultKind.REQUEST_LOST, 0x20, **{part: SET[part]})


def test_time_of_a_fault_when_the_clock_is_below_zero_then_it_counts_all_the_same(bench: Bench) -> None:
    bench.now_s = -1e9
    bench.fault(FaultKind.NACK, until_s=3.0, times="always")
    struck = []
    for _ in range(3):
        struck.append(isinstance(bench.ask(READ)[0], Rejected))
        bench.now_s += 2.0
    assert struck == [True, True, False]


def test_chip_when_it_hears_what_another_one_is_asked_then_its_time_has_passed_too() -> None:
    now = [0.0]
    chips = {0x70: chip_at_power_on(bundled("pca9546"))}
    chips |= {behind(0x70, channel, 0x68): chip_at_power_on(bundled("ds3231")) for channel in (0, 1)}
    bus = SimBus(chips, sleep=lambda _: None, clock=lambda: now[0])
    mux = chips[0x70].contract.mux
    assert mux is not None
    chips[0x70].values[mux.register] = mux.channels[0] | mux.channels[1]
    for _ in range(2):
        bus.perform(RegisterRead(0x68, MEMORY, 0, 1))
        now[0] += 3.0
    bus.perform(RegisterRead(0x68, MEMORY, 0, 1))
    assert {chip.values["SECONDS"] for chip in chips.values() if chip.contract.part == "ds3231"} == {0x36}


def test_request_when_it_spans_more_than_the_device_takes_then_refused_and_nothing_is_read(bench: Bench) -> None:
    answer = bench.ask(RegisterRead(1, INPUT, 0, 162, function=4))
    assert answer == [Rejected("sdm120 takes 80 registers a request, not 81", "no-register")]
    assert bench.bus.chips[1].executed == {}


STUCK = Rejected("the bus is stuck: SDA is held low", "bus-stuck")


def test_swap_when_it_happens_before_a_write_then_another_chip_takes_it(bench: Bench) -> None:
    old = bench.expander
    bench.fault(FaultKind.SWAP, same=True)
    assert bench.ask(WRITE) == [Confirmed()]
    assert (old.executed, bench.expander.executed) == ({}, {("OLATA", "write"): 1})
    assert bench.expander.nonce != old.nonce


def test_swap_when_another_part_comes_then_it_answers_by_its_own_contract(bench: Bench) -> None:
    bench.fault(FaultKind.SWAP, contract="tmp102", when="after")
    bench.fault(FaultKind.FOREIGN, register="OLATB", value=1, when="after", skip=1)  # it has no such register any more
    bench.ask(WRITE)
    assert isinstance(bench.ask(READ)[0], Rejected)
    assert bench.expander.contract.part == "tmp102"
    assert bench.expander.foreign == {}


def test_stuck_bits_when_they_are_written_then_they_stay(bench: Bench) -> None:
    bench.fault(FaultKind.STUCK_BITS, register="OLATA", bits=0x0F, value=0x05, when="after")
    bench.ask(READ)
    assert bench.expander.values["OLATA"] == 0x05
    assert bench.ask(WRITE, READ) == [Confirmed(), Confirmed(b"\x55")]


def test_flip_when_it_happens_then_the_bits_have_changed_and_nobody_wrote(bench: Bench) -> None:
    bench.fault(FaultKind.FLIP, register="OLATA", bits=0x81, times=2)
    assert bench.ask(READ, READ, READ) == [Confirmed(b"\x81"), Confirmed(b"\x00"), Confirmed(b"\x00")]
    assert bench.expander.foreign == {}


def test_clock_stretch_when_a_clock_slips_then_acknowledged_and_shifted(bench: Bench) -> None:
    bench.fault(FaultKind.CLOCK_STRETCH, hang_s=0.2, slip=True)
    assert bench.ask(RegisterWrite(0x20, MEMORY, LATCH_A, b"\x16"), READ) == [Confirmed(), Confirmed(b"\x0b")]
    assert bench.slept == [0.2]


def test_stuck_bus_when_it_strikes_then_nothing_goes_out_until_it_is_plugged(bench: Bench) -> None:
    bench.fault(FaultKind.STUCK_BUS)
    held = Ambiguous(Sent.DATA, "SDA is held low in the middle of the transfer (planned fault)")
    assert bench.ask(WRITE, WRITE, READ) == [held, STUCK, STUCK]
    assert bench.expander.executed == {}
    bench.bus.quiesce(0.0)
    assert bench.ask(WRITE) == [STUCK]
    bench.bus.plug()
    assert bench.ask(WRITE) == [Confirmed()]


def test_stuck_bus_when_a_read_is_cut_off_then_the_chip_has_acted(bench: Bench) -> None:
    bench.fault(FaultKind.STUCK_BUS)
    bench.ask(READ)
    assert bench.expander.executed == {("OLATA", "read"): 1}


def test_stuck_bus_when_the_adapter_can_recover_then_it_is_free_once_it_was_quiet(bench: Bench) -> None:
    bench.fault(FaultKind.STUCK_BUS, recovers=True)
    assert bench.ask(WRITE, WRITE)[1] == STUCK
    bench.bus.quiesce(0.0)
    assert bench.ask(WRITE) == [Confirmed()]


@pytest.mark.parametrize("kind", [FaultKind.STUCK_BUS, FaultKind.UNPLUG])
def test_bus_when_it_is_away_for_a_time_then_it_is_back_by_itself(bench: Bench, kind: FaultKind) -> None:
    bench.fault(kind, lasts_s=2.0)
    bench.ask(WRITE)
    bench.now_s += 1.9
    assert isinstance(bench.ask(WRITE)[0], Rejected)
    bench.now_s += 0.2
    assert bench.ask(WRITE) == [Confirmed()]
    assert bench.expander.executed == {("OLATA", "write"): 1}


def test_bus_when_it_was_away_and_plugged_early_then_it_does_not_come_back_a_second_time(bench: Bench) -> None:
    bench.fault(FaultKind.UNPLUG, lasts_s=2.0)
    bench.ask(WRITE)
    bench.bus.unplug()  # for good
    bench.now_s += 5.0
    assert isinstance(bench.ask(WRITE)[0], Rejected)
    bench.bus.plug()
    bench.bus.unplug()
    bench.now_s += 5.0
    assert isinstance(bench.ask(WRITE)[0], Rejected)


def test_false_ack_when_the_chip_is_absent_then_the_adapter_confirms_all_the_same(bench: Bench) -> None:
    bench.fault(FaultKind.FALSE_ACK, 0x33, times=2)
    absent = RegisterRead(0x33, MEMORY, 0, 2)
    assert bench.ask(RegisterWrite(0x33, MEMORY, 0, b"\x01"), absent) == [Confirmed(), Confirmed(b"\xff\xff")]


@pytest.mark.parametrize("kind", [FaultKind.STUCK_BUS, FaultKind.UNPLUG])
def test_bus_when_it_was_away_for_a_time_then_it_can_be_opened_asked_and_drained_again(
    bench: Bench, kind: FaultKind
) -> None:
    bench.fault(kind, lasts_s=2.0)
    bench.ask(WRITE)
    bench.now_s += 2.1
    bench.bus.open()
    assert bench.bus.boot_evidence(0x20) is not None
    bench.bus.quiesce(0.0)
    assert bench.bus.plugged


def test_command_when_it_is_not_acknowledged_in_the_middle_then_it_is_not_executed() -> None:
    chip = chip_at_power_on(bundled("sht3x"))
    bus = SimBus({0x44: chip}, sleep=lambda _: None, clock=lambda: 0.0)
    measure = next(r for r in chip.contract.registers.values() if r.name == "MEASURE_HIGH")
    code = measure.offset.to_bytes(2, "big")
    for taken, executed in ((0, 0), (1, 0), (2, 1)):
        bus.plan(Fault(FaultKind.DATA_NACK, 0x44, after_bytes=taken))
        assert isinstance(bus.perform(Message(0x44, code, 0)), Ambiguous)
        assert chip.executed["MEASURE_HIGH", "write"] == executed


def test_command_when_a_clock_slips_then_another_one_arrives() -> None:
    chip = chip_at_power_on(bundled("sht3x"))
    bus = SimBus({0x44: chip}, sleep=lambda _: None, clock=lambda: 0.0)
    bus.plan(Fault(FaultKind.CLOCK_STRETCH, 0x44, slip=True))
    bus.perform(Message(0x44, chip.contract.registers["MEASURE_HIGH"].offset.to_bytes(2, "big"), 0))
    assert chip.executed["MEASURE_HIGH", "write"] == 0


def test_chance_when_there_are_several_buses_then_each_has_its_own() -> None:
    struck = []
    for name in ("left", "right", "left"):
        bus = SimBus({0x20: chip_at_power_on(bundled("mcp23017"))}, sleep=lambda _: None, clock=lambda: 0.0)
        bus.begin(7, name)
        bus.plan(Fault(FaultKind.NACK, 0x20, times="always", probability=0.5))
        struck.append([isinstance(bus.perform(READ), Rejected) for _ in range(64)])
    assert struck[0] == struck[2] != struck[1]


def test_uptime_when_the_clock_does_not_begin_at_zero_then_it_counts_from_the_first_look() -> None:
    text = """
[restart]
uptime = "UP"
unit_ms = 1000
[registers.UP]
offset = 0
access = "ro"
width_bits = 32
read = { effects = ["none"], provenance = "generated" }
"""
    head = 'schema = 1\npart = "t"\nvendor = "v"\ntitle = "t"\nsource = "s"\n'
    head += '[access]\noffset_bytes = 1\nbyte_order = "big"\n'
    contract = parse_contract(f'{head}[access.i2c]\naddresses = [0x20]\nauto_increment = "both"\n{text}', "t.toml")
    now = [-1e9]
    bus = SimBus({0x20: Chip(contract)}, sleep=lambda _: None, clock=lambda: now[0])
    read = RegisterRead(0x20, MEMORY, 0, 4)
    assert bus.perform(read) == Confirmed(bytes(4))
    now[0] += 3
    assert bus.perform(read) == Confirmed(b"\0\0\0\x03")
