"""What chips do by themselves: clocks that tick and conversions that end, on the clock of the bus."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import Confirmed, RegisterRead, RegisterWrite
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.behaviours.ads1115 import Ads1115
from hwtool_sim.board import BEHAVIOURS, bus_of, chip_at_power_on
from hwtool_sim.bus import SimBus
from hwtool_sim.control import Bench, carry_out
from tests.corpus import TOP
from tests.sim.test_new_spaces import contract_of

MEMORY = Space.MEMORY
CLOCK, CONVERTER = 0x68, 0x48


class Timed:
    """A clock chip and a converter on a bus whose time moves only by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.bus: SimBus = bus_of({CLOCK: bundled("ds3231"), CONVERTER: bundled("ads1115")})
        self.bus.clock = lambda: self.now_s

    def set_clock(self, text: str) -> None:
        self.bus.perform(RegisterWrite(CLOCK, MEMORY, 0, bytes.fromhex(text)))

    def time(self) -> str:
        answer = self.bus.perform(RegisterRead(CLOCK, MEMORY, 0, 7))
        assert isinstance(answer, Confirmed)
        return answer.data.hex()

    def configure(self, config: int) -> None:
        self.bus.perform(RegisterWrite(CONVERTER, MEMORY, 1, config.to_bytes(2, "big")))

    def word(self, offset: int) -> int:
        answer = self.bus.perform(RegisterRead(CONVERTER, MEMORY, offset, 2))
        assert isinstance(answer, Confirmed)
        return int.from_bytes(answer.data, "big")


@pytest.fixture
def timed() -> Timed:
    return Timed()


TICKS = [
    # seconds, minutes, hours, day, date, month, year: before, how long, after
    ("a second", "30590101011126", 1, "31590101011126"),
    ("less than a second", "30590101011126", 0.9, "30590101011126"),
    ("a minute", "59590101011126", 1, "00000201011126"),
    ("midnight, end of a month", "59592301301126", 1, "00000002011226"),
    ("new year", "59592307311226", 1, "00000001010127"),
    ("new century", "59592307311299", 1, "00000001018100"),
    ("leap day", "59592301280224", 1, "00000002290224"),
    ("no leap day", "59592301280225", 1, "00000002010325"),
    ("11 in the morning, of 12", "59595101010126", 1, "00007201010126"),
    ("12 at noon, of 12", "59597201010126", 1, "00006101010126"),
    ("11 at night, of 12", "59597101010126", 1, "00005202020126"),
    ("an hour and a half", "00000001010126", 5400, "00300101010126"),
]


@pytest.mark.parametrize(("before", "seconds", "after"), [t[1:] for t in TICKS], ids=[t[0] for t in TICKS])
def test_clock_when_time_goes_on_then_it_ticks_and_carries(
    timed: Timed, before: str, seconds: float, after: str
) -> None:
    timed.set_clock(before)
    timed.now_s += seconds
    assert timed.time() == after


def test_clock_when_it_is_read_in_between_then_no_part_of_a_second_is_lost(timed: Timed) -> None:
    timed.set_clock("00000001010126")
    for _ in range(10):
        timed.now_s += 0.7
        timed.time()
    assert timed.time() == "07000001010126"


def test_converter_when_started_then_busy_for_its_time_and_then_what_its_input_has_hc049(timed: Timed) -> None:
    chip = timed.bus.chips[CONVERTER]
    assert isinstance(chip.behaviour, Ads1115)
    chip.behaviour.inputs |= {4: 0x1000, 5: 0x2000}
    for config, wanted in ((0xC383, 0x1000), (0xD383, 0x2000), (0xC383, 0x1000)):
        timed.configure(config)
        assert (timed.word(1) & 0x8000, timed.word(0) == wanted) == (0, False)
        timed.now_s += 1 / 128 + 1e-6
        assert (timed.word(1), timed.word(0)) == (config, wanted)


def test_converter_when_a_conversion_runs_then_another_start_is_not_taken(timed: Timed) -> None:
    timed.configure(0xC303)  # 8 a second
    timed.now_s += 0.1
    timed.configure(0xC303)
    timed.now_s += 0.03
    assert timed.word(1) & 0x8000


def test_converter_when_it_goes_on_by_itself_then_each_read_has_the_input_of_now(timed: Timed) -> None:
    chip = timed.bus.chips[CONVERTER]
    assert isinstance(chip.behaviour, Ads1115)
    timed.configure(0x4283)
    chip.behaviour.inputs[4] = 0x0123
    assert timed.word(0) == 0x0123


def test_manual_when_it_lists_what_is_modelled_then_each_behaviour_has_its_line() -> None:
    manual = (TOP / "docs" / "simulator.md").read_text(encoding="utf-8")
    listed = [
        line.split("`")[1] for line in manual.partition("## Behaviours")[2].splitlines() if line.startswith("| `")
    ]
    assert sorted(listed) == sorted(BEHAVIOURS)


def test_chip_when_another_contract_has_the_name_of_a_part_then_it_does_what_that_says_and_no_more() -> None:
    other = replace(bundled("mcp23017"), part="tmp102")
    assert chip_at_power_on(other).values["GPIOA"] == 0
    assert type(chip_at_power_on(other).behaviour) is Behaviour


COMING = """
[registers.LEVEL]
offset = 0
access = "ro"
read = { effects = ["none"], provenance = "generated" }
[registers.FIFO]
offset = 1
access = "ro"
read = { effects = ["pop"], level = "LEVEL", provenance = "generated" }
[registers.GO]
offset = 2
access = "rw"
read = { effects = ["none"], provenance = "generated" }
write = { effect = "self_clearing", verify = "none", delay_after_ms = 50, provenance = "generated" }
"""


class Toy:
    """A FIFO that fills by itself and a bit that clears itself, on a bus whose time moves by hand."""

    def __init__(self) -> None:
        self.now_s = -1e9
        text = "[access]\noffset_bytes = 1\n[access.i2c]\nauto_increment = 'both'\n"
        self.bus = bus_of({CLOCK: contract_of(text, COMING)}, lambda _: None, lambda: self.now_s)

    def read(self, offset: int) -> int:
        answer = self.bus.perform(RegisterRead(CLOCK, MEMORY, offset, 1))
        assert isinstance(answer, Confirmed)
        return answer.data[0]


def test_fifo_when_the_outside_world_fills_it_slowly_then_the_elements_come_one_by_one() -> None:
    toy = Toy()
    push = {"control": "push", "address": CLOCK, "register": "FIFO", "elements": [7, 8, 9], "every_s": 2.0}
    carry_out(Bench({"b": toy.bus}), push)
    seen = []
    for _ in range(4):
        seen.append(toy.read(0))
        toy.now_s += 2.0
    assert (seen, toy.read(1), toy.read(1), toy.read(0)) == ([0, 1, 2, 3], 7, 8, 1)


def test_bit_when_it_clears_itself_then_it_is_up_as_long_as_the_device_is_left_alone() -> None:
    toy = Toy()
    toy.bus.perform(RegisterWrite(CLOCK, MEMORY, 2, b"\x04"))
    seen = [toy.read(2)]
    for _ in range(2):
        toy.now_s += 0.03
        seen.append(toy.read(2))
    assert seen == [4, 4, 0]
    toy.bus.perform(RegisterWrite(CLOCK, MEMORY, 2, b"\x04"))
    toy.bus.chips[CLOCK].reset()
    assert toy.read(2) == 0
    toy.now_s += 0.03
    toy.bus.perform(RegisterWrite(CLOCK, MEMORY, 2, b"\x04"))
    toy.now_s += 0.03  # when the one before the reset would have ended
    assert toy.read(2) == 4
