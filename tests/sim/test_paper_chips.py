"""The bundled chips that were written from paper, on the simulator: each as its document says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board, parse_board
from hwtool_contracts.judge import ReadJudgement, Refused, judge_read
from hwtool_contracts.judge_write import judge_update, judge_write
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_registers.bus import Confirmed, Line, Message, RegisterRead, RegisterWrite, Rejected
from hwtool_sim.board import bus_of
from hwtool_sim.chip import Chip
from tests.hwtool.conftest import KEY, KEY2, KEY3, Lab, Play, code_of, error_of, raws
from tests.sim.judging import asks_a_person, rule_against

MEMORY = Space.MEMORY

CLEAN: dict[str, tuple[list[str], list[str]]] = {
    # clean reads, reads that need a key
    "at24c32": (["DATA[0:32]"], []),
    "at24c16": (["DATA[0:16]"], []),
    "bme280": (["ID", "STATUS", "CTRL_MEAS", "PRESS", "TEMP", "HUM", "DIG_T1", "DIG_H4_H5"], []),
    "mpu6050": (["WHO_AM_I", "ACCEL_X", "TEMP", "GYRO_Z", "FIFO_COUNT"], ["FIFO_R_W", "INT_STATUS", "I2C_MST_STATUS"]),
    "sht3x": (["READ_ALERT_HIGH_SET"], ["READ_RESULT", "FETCH_DATA", "MEASURE_HIGH_STRETCHED", "STATUS"]),
    "pcf8574": ([], ["PINS"]),
    "pca9546": (["CONTROL"], []),
    "ltc3880": (["PAGE", "READ_VIN", "OUT[0].READ_VOUT", "OUT[1].STATUS_WORD"], ["OUT[0].OPERATION"]),
    "w25q128": (["JEDEC_ID", "STATUS_1", "STATUS_2", "STATUS_3", "FLASH[0:256]"], []),
    "ethernet_phy_c22": (["BMCR"], ["BMSR", "PHYSID1", "LPA", "MMD_DATA", "MMD_CTRL"]),
    "tdk_genesys_gh": (["IDN", "OPC"], ["ESR", "ERROR", "VOLT"]),
    "waveshare_relay_8ch": (["RELAY[0]", "RELAY[7]", "DEVICE_ADDRESS"], ["SOFTWARE_VERSION"]),
}


@pytest.mark.parametrize("name", CLEAN)
def test_chip_when_its_registers_are_read_then_these_are_clean_and_those_are_not(name: str) -> None:
    contract = bundled(name)
    for clean, names in ((True, CLEAN[name][0]), (False, CLEAN[name][1])):
        for register in names:
            judged = judge_read(contract, (contract.registers[register],))
            assert isinstance(judged, ReadJudgement), register
            assert judged.clean is clean, register


APPROVED: dict[str, tuple[str, int, bool]] = {
    "at24c32": ("DATA[0:1]", 0, True),
    "bme280 reset": ("RESET", 0xB6, True),
    "bme280": ("CTRL_HUM", 1, False),
    "mpu6050 reset": ("PWR_MGMT_1", 0x80, True),
    "mpu6050": ("SMPLRT_DIV", 7, False),
    "sht3x reset": ("SOFT_RESET", 0, True),
    "sht3x": ("HEATER_ON", 0, False),
    "pcf8574": ("LATCH", 0xF0, False),
    "ltc3880": ("OUT[0].OPERATION", 0x80, True),
    "w25q128": ("SECTOR_ERASE", 0, True),
    "w25q128 enable": ("WRITE_ENABLE", 0, False),
    "ethernet_phy_c22": ("BMCR", 0x8000, True),
    "tdk_genesys_gh": ("OUTP", 1, True),
    "waveshare_relay_8ch": ("RELAY[0]", 1, True),
    "waveshare_relay_8ch address": ("DEVICE_ADDRESS", 7, True),
}


@pytest.mark.parametrize("key", APPROVED)
def test_chip_when_it_is_written_then_a_person_is_asked_where_it_matters(key: str) -> None:
    register, value, asked = APPROVED[key]
    assert asks_a_person(key.partition(" ")[0], register, value) is asked


REFUSED: dict[str, tuple[str, str, int, str]] = {
    "another word than B6": ("bme280", "RESET", 0xB5, "out_of_limits"),
    "the unused half of a mux": ("pca9546", "CONTROL", 0x10, "outside_mask"),
    "a page that is not there": ("ltc3880", "PAGE", 2, "out_of_limits"),
    "SPI on an MPU-6050": ("mpu6050", "USER_CTRL", 0x10, "out_of_limits"),
    "another interrupt mode": ("mpu6050", "INT_PIN_CFG", 0x10, "breaks_assumption"),
    "broadcast as an address": ("waveshare_relay_8ch", "DEVICE_ADDRESS", 0, "out_of_limits"),
    "a clean register": ("bme280", "ID", 1, "read_only"),
}


@pytest.mark.parametrize(("chip", "register", "value", "rule"), REFUSED.values(), ids=list(REFUSED))
def test_chip_when_a_value_is_against_its_sheet_then_refused(chip: str, register: str, value: int, rule: str) -> None:
    assert rule_against(chip, register, value) == rule


UPDATES: dict[str, tuple[str, str, str]] = {
    "a forced measurement would start again": ("bme280", "CTRL_MEAS", "OSRS_T"),
    "what a PHY does with it was not seen": ("ethernet_phy_c22", "BMCR", "ANRESTART"),
}


@pytest.mark.parametrize(("chip", "register", "field"), UPDATES.values(), ids=list(UPDATES))
def test_chip_when_a_field_cannot_be_updated_safely_then_refused(chip: str, register: str, field: str) -> None:
    contract = bundled(chip)
    judged = judge_update(contract, contract.registers[register], frozenset({field}))
    assert isinstance(judged, Refused)


# --- each on the bus --------------------------------------------------------------------------------------------


def board_of(directory: Path, contract: str, address: int, device: str = "") -> Board:
    return parse_board(
        "name = 'paper'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\nsole_master = true\n"
        f"[devices.toy]\ncontract = '{contract}'\nbus = 'b'\naddress = {address}\n{device}\n",
        "paper.toml",
        directory,
    )


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """One life of a daemon, its store below tmp_path."""
    return Play(tmp_path)


@pytest.fixture
def play_opcodes(play: Play, monkeypatch: pytest.MonkeyPatch) -> Play:
    """As `play`, without the comparison of what chips counted: tests/agreement.py does not know messages and lines."""
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)
    return play


def values_of(result: Any) -> dict[str, Any]:
    assert result.ok, result
    return {v["register"].removeprefix("toy."): v for v in result.values or []}


def test_bme280_when_measured_in_one_transfer_then_three_values_of_one_moment(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"PRESS": 0x655AC0, "TEMP": 0x7EED00, "HUM": 0x8000, "DIG_H4_H5": 0x142E03}
        shown = values_of(await lab.ask("reg.read", registers=["toy.MEASUREMENT"]))
        assert {n: v["raw"] for n, v in shown.items()} == {"PRESS": "0x655ac0", "TEMP": "0x7eed00", "HUM": "0x8000"}
        assert shown["TEMP"]["fields"]["UT"]["value"] == 0x7EED0
        assert [(t["offset"], t["size_bytes"]) for t in lab.sent()] == [("0xf7", 8)]
        calibration = values_of(await lab.ask("reg.read", registers=["toy.DIG_H4_H5"]))["DIG_H4_H5"]["fields"]
        assert (calibration["H4"]["value"], calibration["H5"]["value"]) == (0x14E, 0x032)

    play(life, board_of(tmp_path, "bme280", 0x76))


def test_bme280_when_humidity_is_set_then_it_waits_for_ctrl_meas_and_config_for_sleep(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.write", register="toy.CTRL_HUM", value=1, key=KEY)
        assert done.warnings == ["not_in_effect_yet: CTRL_HUM takes effect when toy.CTRL_MEAS is written"]
        lab.chip().values["CTRL_MEAS"] = 0x03
        refused = await lab.ask("reg.write", register="toy.CONFIG", value=0x10, key=KEY2)
        assert error_of(refused)["rule"] == "gate_closed"
        lab.chip().values["CTRL_MEAS"] = 0x00
        assert (await lab.ask("reg.write", register="toy.CONFIG", value=0x10, key=KEY2)).verdict == "applied"

    play(life, board_of(tmp_path, "bme280", 0x76))


def test_bme280_when_reset_then_a_new_generation(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["CTRL_HUM"] = 5
        done = await lab.operator("reg.write", register="toy.RESET", value="soft_reset", key=KEY)
        assert (done.verdict, lab.device().generation, lab.chip().values["CTRL_HUM"]) == ("applied", 2, 0)
        assert [(t["offset"], t["data"]) for t in lab.sent() if t["do"] == "write"] == [("0xe0", "b6")]

    play(life, board_of(tmp_path, "bme280", 0x76))


def test_bme280_when_another_chip_answers_then_stale(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ID"] = 0x58  # a BMP280
        refused = await lab.ask("reg.write", register="toy.CTRL_HUM", value=1, key=KEY)
        assert (code_of(refused), error_of(refused)["found"]) == ("stale", "0x58")

    play(life, board_of(tmp_path, "bme280", 0x76))


@pytest.mark.parametrize(("scale", "value"), [(0, 1.0), (1, 2.0), (3, 8.0)])
def test_mpu6050_when_the_range_is_chosen_then_the_value_follows_it(
    play: Play, tmp_path: Path, scale: int, value: float
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"ACCEL_X": 0x4000, "ACCEL_CONFIG": scale << 3}
        shown = values_of(await lab.ask("reg.read", registers=["toy.ACCEL_X"]))["ACCEL_X"]
        assert (shown["value"], shown["unit"]) == (value, "g")
        motion = values_of(await lab.ask("reg.read", registers=["toy.MOTION"]))
        assert motion["ACCEL_X"]["value"] == value
        assert motion["TEMP"]["value"] == pytest.approx(36.53)
        assert ("0x3b", 14) in [(t["offset"], t["size_bytes"]) for t in lab.sent()]

    play(life, board_of(tmp_path, "mpu6050", 0x68))


def test_mpu6050_when_the_fifo_is_empty_then_refused_and_the_chip_would_say_the_last_byte(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        shut = await lab.ask("reg.read_effectful", register="toy.FIFO_R_W", key=KEY)
        assert error_of(shut)["rule"] == "gate_closed"
        lab.chip().values["USER_CTRL"] = 0x40
        lab.chip().push("FIFO_R_W", [1, 2, 3])
        three = await lab.ask("reg.read_effectful", register="toy.FIFO_R_W", count=3, key=KEY)
        assert raws(three) == ["0x01", "0x02", "0x03"]
        empty = await lab.ask("reg.read_effectful", register="toy.FIFO_R_W", key=KEY2)
        assert (code_of(empty), lab.reads("FIFO_R_W")) == ("precondition_failed", 3)
        assert lab.chip().read(MEMORY, 0x74, 2) == b"\x03\x03"  # register map 4.31
        lab.chip().executed["FIFO_R_W", "read"] -= 2

    play(life, board_of(tmp_path, "mpu6050", 0x68))


def test_mpu6050_when_its_interrupt_mode_is_another_then_nothing_is_taken_for_clean(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["INT_PIN_CFG"] = 0x10
        refused = await lab.ask("reg.read", registers=["toy.ACCEL_X"])
        assert error_of(refused)["rule"] == "assumption_broken"
        assert lab.reads("ACCEL_X") == 0

    play(life, board_of(tmp_path, "mpu6050", 0x68))


def test_mpu6050_when_it_is_reset_then_asleep_and_a_new_generation(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"PWR_MGMT_1": 0, "SMPLRT_DIV": 9}
        done = await lab.operator("reg.write", register="toy.PWR_MGMT_1", value=0x80, key=KEY)
        assert (done.verdict, lab.device().generation) == ("applied", 2)
        assert (lab.chip().values["PWR_MGMT_1"], lab.chip().values["SMPLRT_DIV"]) == (0x40, 0)

    play(life, board_of(tmp_path, "mpu6050", 0x68))


def test_mpu6050_when_its_fifo_is_reset_then_empty_and_the_bit_falls_back() -> None:
    chip = Chip(bundled("mpu6050"))
    chip.push("FIFO_R_W", [1, 2])
    chip.write(MEMORY, 0x6A, b"\x04")
    assert len(chip.fifos["FIFO_R_W"]) == 0
    assert chip.values["USER_CTRL"] == 0


SELECTED = {"OUT[0]": ("00", 1.2001953125), "OUT[1]": ("01", 3.2998046875)}


@pytest.mark.parametrize(("out", "page", "volts"), [(n, p, v) for n, (p, v) in SELECTED.items()], ids=list(SELECTED))
def test_ltc3880_when_a_page_is_read_then_selected_first_and_decoded_by_its_exponent(
    play: Play, tmp_path: Path, out: str, page: str, volts: float
) -> None:
    async def life(lab: Lab) -> None:
        values = {"PAGE": 1 - int(page), "OUT[0].READ_VOUT": 4916, "OUT[1].READ_VOUT": 13516}
        lab.chip().values |= values | {"OUT[0].VOUT_MODE": 0x14, "OUT[1].VOUT_MODE": 0x14, "READ_VIN": 0xD2F0}
        shown = values_of(await lab.ask("reg.read", registers=[f"toy.{out}.READ_VOUT"]))[f"{out}.READ_VOUT"]
        assert (shown["value"], shown["unit"]) == (volts, "V")
        sent = [(t["do"], t["offset"], t.get("data")) for t in lab.sent()]
        assert ("write", "0x00", page) in sent
        assert sent.index(("write", "0x00", page)) < sent.index(("read", "0x8b", None))
        assert sent.count(("read", "0x8b", None)) == 1
        vin = values_of(await lab.ask("reg.read", registers=["toy.READ_VIN"]))["READ_VIN"]
        assert (vin["value"], vin["unit"]) == (11.75, "V")

    play(life, board_of(tmp_path, "ltc3880", 0x4F))


def test_ltc3880_when_both_pages_stand_at_one_place_then_each_has_its_own_value() -> None:
    chip = Chip(bundled("ltc3880"))
    chip.values |= {"OUT[0].STATUS_WORD": 0x1111, "OUT[1].STATUS_WORD": 0x2222}
    for page, word in ((0, b"\x11\x11"), (1, b"\x22\x22")):
        chip.write(MEMORY, 0, bytes([page]))
        assert chip.read(MEMORY, 0x79, 2) == word


def test_ltc3880_when_a_voltage_is_read_in_a_sequence_then_in_its_unit_too(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"OUT[0].READ_VOUT": 4916, "OUT[0].VOUT_MODE": 0x14}
        steps: list[dict[str, Any]] = [
            {"do": "write", "register": "toy.PAGE", "value": 0},
            {"do": "read", "register": "toy.OUT[0].READ_VOUT"},
        ]
        done = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert done.ok, done
        assert (done.values or [])[-1]["value"] == 1.2001953125

    play(life, board_of(tmp_path, "ltc3880", 0x4F))


def test_sht3x_when_a_periodic_result_is_fetched_then_gone_and_a_plain_one_needs_a_key(
    play_opcodes: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().push("FETCH_DATA", [0x6666_8000])
        first = await lab.ask("reg.read_effectful", register="toy.FETCH_DATA", key=KEY)
        assert raws(first) == ["0x66668000"]
        assert len(lab.chip().fifos["FETCH_DATA"]) == 0
        lab.chip().values["READ_RESULT"] = 0x6666_8000
        done = await lab.ask("sequence.run", sequence="toy.SINGLE_SHOT_HIGH", params={}, key=KEY2)
        assert done.ok, done
        (shown,) = done.values or []
        assert shown["fields"]["T"]["value"] == pytest.approx(25.0, abs=0.01)
        assert [t["data"] for t in lab.sent() if t["do"] == "message"] == ["e000", "2400", ""]

    play_opcodes(life, board_of(tmp_path, "sht3x", 0x44))


def test_sht3x_when_a_measurement_was_started_then_it_is_left_alone_until_it_is_over(
    play_opcodes: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        before_s = lab.clock.mono
        assert (await lab.ask("sequence.run", sequence="toy.SINGLE_SHOT_HIGH", params={}, key=KEY)).ok
        assert lab.clock.mono - before_s == pytest.approx(0.016)

    play_opcodes(life, board_of(tmp_path, "sht3x", 0x44))


def test_pcf8574_when_written_and_read_then_latch_and_pins_are_two_things() -> None:
    bus = bus_of({0x20: bundled("pcf8574")})
    chip = bus.chips[0x20]
    assert chip.values["LATCH"] == 0xFF
    chip.values["PINS"] = 0x0F
    assert bus.perform(RegisterWrite(0x20, MEMORY, 0, b"\xf0", 0)) == Confirmed()
    assert bus.perform(RegisterRead(0x20, MEMORY, 0, 1, 0)) == Confirmed(b"\x0f")
    assert bus.perform(RegisterRead(0x20, MEMORY, 0, 3, 0)) == Confirmed(b"\x0f\x0f\x0f")
    assert (chip.values["LATCH"], chip.values["PINS"]) == (0xF0, 0x0F)


def test_pca9546_when_several_bytes_are_written_then_the_last_is_kept() -> None:
    bus = bus_of({0x70: bundled("pca9546")})
    assert bus.perform(RegisterWrite(0x70, MEMORY, 0, b"\x01\x02\x04", 0)) == Confirmed()
    assert bus.perform(RegisterRead(0x70, MEMORY, 0, 1, 0)) == Confirmed(b"\x04")
    assert bus.perform(RegisterWrite(0x70, MEMORY, 0, b"\xf3", 0)) == Confirmed()
    assert bus.perform(RegisterRead(0x70, MEMORY, 0, 1, 0)) == Confirmed(b"\x03")  # the unused half stays 0


def test_w25q128_when_asked_who_it_is_then_winbond_and_a_newer_one_is_taken_too(
    play_opcodes: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        assert values_of(await lab.ask("reg.read", registers=["toy.JEDEC_ID"]))["JEDEC_ID"]["raw"] == "0xef4018"
        for held, fits in ((0xEF7018, True), (0xC22018, False)):
            lab.chip().values |= {"JEDEC_ID": held, "STATUS_1": 0}
            lab.device().identified = False
            done = await lab.ask("reg.write", register="toy.WRITE_ENABLE", value=0, key=KEY if fits else KEY2)
            assert (code_of(done) == "stale") is not fits
        lab.chip().values["JEDEC_ID"] = 0xEF4018

    play_opcodes(life, board_of(tmp_path, "w25q128", 0))


def test_ethernet_phy_when_the_link_dropped_and_came_back_then_low_once(play: Play, tmp_path: Path) -> None:
    chip = Chip(bundled("ethernet_phy_c22"))
    chip.values["BMSR"], chip.present["BMSR"] = 0x0000, 0x0004
    assert [chip.read(MEMORY, 1, 2) for _ in range(3)] == [b"\x00\x00", b"\x00\x04", b"\x00\x04"]

    async def life(lab: Lab) -> None:
        done = await lab.operator("reg.write", register="toy.BMCR", value=0x8000, key=KEY)
        assert done.effects in ("applied", "unknown")
        assert lab.device().generation == 2
        moved = await lab.ask("reg.write", register="toy.MMD_CTRL", value=0x4003, key=KEY3)
        assert moved.warnings[-1] == "not_in_effect_yet: MMD_CTRL takes effect when toy.MMD_DATA is written"

    play(life, board_of(tmp_path, "ethernet_phy_c22", 3))


def test_genesys_when_its_event_register_is_read_then_cleared_and_errors_come_one_by_one() -> None:
    bus = bus_of({0: bundled("tdk_genesys_gh")})
    chip = bus.chips[0]
    chip.values["ESR"] = 129
    assert [bus.perform(Line("*ESR?", True)) for _ in range(2)] == [Confirmed(b"129"), Confirmed(b"0")]
    chip.push("ERROR", [int.from_bytes(b'-222,"Data out of range"', "big")])
    assert bus.perform(Line("SYST:ERR?", True)) == Confirmed(b'-222,"Data out of range"')
    assert chip.fifos["ERROR"] == type(chip.fifos["ERROR"])()
    assert isinstance(bus.perform(Line("NONSENSE?", True)), Rejected)


def test_genesys_when_there_is_no_error_then_it_says_so() -> None:
    bus = bus_of({0: bundled("tdk_genesys_gh")})
    assert bus.perform(Line("SYST:ERR?", True)) == Confirmed(b'0,"No error"')


def test_genesys_when_its_status_is_cleared_then_events_and_errors_are_gone() -> None:
    bus = bus_of({0: bundled("tdk_genesys_gh")})
    chip = bus.chips[0]
    chip.values["ESR"] = 129
    chip.push("ERROR", [1])
    assert bus.perform(Line("*CLS", False)) == Confirmed()
    assert (chip.values["ESR"], len(chip.fifos["ERROR"])) == (0, 0)


def test_relays_when_switched_then_each_by_its_coil_and_the_address_holds_the_device(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.operator("reg.write", register="toy.RELAY[2]", value=1, key=KEY)
        assert (done.verdict, lab.chip().values["RELAY[2]"]) in (("applied", 1), ("satisfied", 1))
        writes = [(t["function"], t["offset"], t["data"]) for t in lab.sent() if t["do"] == "write"]
        assert writes == [(5, "0x02", "01")]
        moved = await lab.operator("reg.write", register="toy.DEVICE_ADDRESS", value=7, key=KEY2)
        assert moved.verdict == "applied"
        assert [(t["function"], t["data"]) for t in lab.sent() if t["do"] == "write"][-1] == (6, "0007")
        held = await lab.operator("reg.write", register="toy.RELAY[2]", value=0, key=KEY3)
        assert (code_of(held), lab.chip().values["RELAY[2]"]) == ("held", 1)

    play(life, board_of(tmp_path, "waveshare_relay_8ch", 1))


def test_relays_when_none_of_them_would_be_flipped_then_refused_as_for_a_field() -> None:
    contract = bundled("waveshare_relay_8ch")
    judged = judge_write(contract, contract.registers["TOGGLE_ALL"], 0)
    assert isinstance(judged, Refused)
    assert judged.rule == "changes_nothing"


def test_mux_message_when_a_bus_of_registers_gets_one_then_rejected() -> None:
    bus = bus_of({0x70: bundled("pca9546")})
    assert isinstance(bus.perform(Message(0x70, b"\x01", 0)), Rejected)
