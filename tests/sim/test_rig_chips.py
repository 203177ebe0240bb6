"""The bundled chips that the rigs have as models, on the simulator: what is peculiar to each, as its document says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board, parse_board
from hwtool_contracts.judge import ReadJudgement, Refused, judge_read
from hwtool_contracts.judge_write import judge_update
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Space
from hwtool_sim.chip import Chip
from tests.hwtool.conftest import KEY, KEY2, KEY3, Lab, Play, code_of, error_of, raws
from tests.sim.judging import asks_a_person, rule_against

MEMORY = Space.MEMORY

CLEAN: dict[str, tuple[list[str], list[str]]] = {
    # clean reads, reads that need a key
    "adm1272": (
        ["MFR_ID", "MFR_MODEL", "READ_EIN", "READ_VIN", "STATUS_WORD", "PEAK_VIN", "PMON_CONFIG"],
        ["OPERATION"],
    ),
    "ds1338": (["SECONDS", "HOURS", "CONTROL", "RAM[0:56]"], []),
    "emc1413": (
        ["INTERNAL_FRACTION", "EXTERNAL_1_HIGH_LIMIT", "MANUFACTURER_ID"],
        ["INTERNAL", "STATUS", "DIODE_FAULT", "HIGH_STATUS", "LOW_STATUS", "THERM_STATUS"],
    ),
    "max7310": (["INPUT", "OUTPUT", "POLARITY", "CONFIGURATION", "TIMEOUT"], []),
    "tmp105": (["TEMPERATURE", "CONFIGURATION", "TLOW", "THIGH"], []),
    "tmp421": (["LOCAL", "REMOTE_1", "STATUS", "CONFIGURATION_1", "DEVICE_ID"], []),
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
    "adm1272 operation": ("OPERATION", 0x80, True),
    "adm1272 monitor": ("PMON_CONFIG", 0x3F35, True),
    "adm1272 peak": ("PEAK_VIN", 0, False),
    "adm1272 faults": ("CLEAR_FAULTS", 0, False),
    "ds1338": ("CONTROL", 0x10, False),
    "ds1338 battery": ("RAM[0:1]", 1, True),
    "emc1413": ("INTERNAL_HIGH_LIMIT", 80, False),
    "emc1413 therm": ("INTERNAL_THERM_LIMIT", 100, True),
    "max7310": ("OUTPUT", 0xA5, False),
    "tmp105": ("THIGH", 0x5000, False),
    "tmp421": ("CONVERSION_RATE", 5, False),
    "tmp421 reset": ("SOFTWARE_RESET", 0, True),
}


@pytest.mark.parametrize("key", APPROVED)
def test_chip_when_it_is_written_then_a_person_is_asked_where_it_matters(key: str) -> None:
    register, value, asked = APPROVED[key]
    assert asks_a_person(key.partition(" ")[0], register, value) is asked


REFUSED: dict[str, tuple[str, str, int, str]] = {
    "neither on nor off": ("adm1272", "OPERATION", 0x40, "not_a_value"),
    "a peak that is set": ("adm1272", "PEAK_IOUT", 1, "out_of_limits"),
    "a limit that two readings of the byte tell apart": ("emc1413", "INTERNAL_HIGH_LIMIT", 128, "out_of_limits"),
    "bits that nobody has seen": ("emc1413", "CONFIGURATION", 0x80, "outside_mask"),
    "interrupt mode": ("tmp105", "CONFIGURATION", 0x02, "breaks_assumption"),
    "the extended range": ("tmp421", "CONFIGURATION_1", 0x04, "breaks_assumption"),
}


@pytest.mark.parametrize(("chip", "register", "value", "rule"), REFUSED.values(), ids=list(REFUSED))
def test_chip_when_a_value_is_against_its_sheet_then_refused(chip: str, register: str, value: int, rule: str) -> None:
    assert rule_against(chip, register, value) == rule


def test_ds1338_when_one_field_of_the_hour_is_asked_for_then_refused() -> None:
    contract = bundled("ds1338")
    for field in ("HOURS", "PM", "HOURS_12", "MODE_12"):
        assert isinstance(judge_update(contract, contract.registers["HOURS"], frozenset({field})), Refused), field


# --- each on the bus --------------------------------------------------------------------------------------------


def board_of(directory: Path, contract: str, address: int) -> Board:
    return parse_board(
        "name = 'rig'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\nsole_master = true\n"
        f"[devices.toy]\ncontract = '{contract}'\nbus = 'b'\naddress = {address}\n",
        "rig.toml",
        directory,
    )


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """One life of a daemon, its store below tmp_path."""
    return Play(tmp_path)


def values_of(result: Any) -> dict[str, Any]:
    assert result.ok, result
    return {v["register"].removeprefix("toy."): v for v in result.values or []}


def text(characters: str) -> int:
    return int.from_bytes(characters.encode(), "big")


TIME = {"SECONDS": 0x59, "MINUTES": 0x34, "HOURS": 0x23, "DAY": 3, "DATE": 0x29, "MONTH": 0x11, "YEAR": 0x28}


def test_ds1338_when_its_time_is_read_then_one_transfer_and_decimal_digits(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= TIME
        shown = values_of(await lab.ask("reg.read", registers=["toy.TIME"]))
        assert [(t["offset"], t["size_bytes"]) for t in lab.sent()] == [("0x00", 7)]
        told = [next(f["value"] for n, f in v["fields"].items() if n not in ("CH", "MODE_12")) for v in shown.values()]
        assert told == [59, 34, 23, 3, 29, 11, 28]
        assert shown["SECONDS"]["fields"]["CH"]["name"] == "running"

    play(life, board_of(tmp_path, "ds1338", 0x68))


def test_ds1338_when_it_counts_twelve_hours_then_the_hour_and_its_half_of_the_day(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["HOURS"] = 0x71  # 11 pm
        fields = values_of(await lab.ask("reg.read", registers=["toy.HOURS"]))["HOURS"]["fields"]
        assert [fields[name]["name"] for name in ("MODE_12", "PM")] == ["hours_12", "pm"]
        assert fields["HOURS_12"]["value"] == 11

    play(life, board_of(tmp_path, "ds1338", 0x68))


def test_ds1338_when_the_stop_flag_is_written_then_a_zero_clears_it_and_a_one_does_not_set_it() -> None:
    chip = Chip(bundled("ds1338"))
    chip.values["CONTROL"] = 0x20
    chip.write(MEMORY, 7, b"\x30")
    assert chip.values["CONTROL"] == 0x30
    chip.write(MEMORY, 7, b"\x10")
    assert chip.values["CONTROL"] == 0x10
    chip.write(MEMORY, 7, b"\x30")
    assert chip.values["CONTROL"] == 0x10


def test_ds1338_when_the_square_wave_is_switched_then_the_stop_flag_stays(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["CONTROL"] = 0x20
        done = await lab.ask("reg.update", register="toy.CONTROL", fields={"SQWE": "on"}, key=KEY)
        assert (done.verdict, lab.chip().values["CONTROL"]) == ("applied", 0x30)

    play(life, board_of(tmp_path, "ds1338", 0x68))


def test_emc1413_when_a_temperature_is_read_then_whole_degrees_first_and_not_alone(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"INTERNAL": 0xFE, "INTERNAL_FRACTION": 0xA0}
        shown = values_of(await lab.ask("reg.read", registers=["toy.INTERNAL_TEMPERATURE"]))
        assert (shown["INTERNAL"]["value"], shown["INTERNAL"]["unit"]) == (-2, "°C")
        assert shown["INTERNAL_FRACTION"]["fields"]["F"]["value"] == 0.625
        assert [t["offset"] for t in lab.sent()] == ["0x00", "0x29"]
        alone = await lab.ask("reg.read", registers=["toy.INTERNAL"])
        assert error_of(alone)["rule"] == "read_has_side_effects"

    play(life, board_of(tmp_path, "emc1413", 0x18))


def test_emc1413_when_a_limit_was_passed_then_it_is_told_once_and_only_with_a_key(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["HIGH_STATUS"] = 0x02
        refused = await lab.ask("reg.read", registers=["toy.HIGH_STATUS"])
        assert (error_of(refused)["rule"], lab.reads("HIGH_STATUS")) == ("read_has_side_effects", 0)
        once = await lab.ask("reg.read_effectful", register="toy.HIGH_STATUS", key=KEY)
        assert (raws(once), lab.chip().values["HIGH_STATUS"]) == (["0x02"], 0)
        again = await lab.ask("reg.read_effectful", register="toy.HIGH_STATUS", key=KEY)
        assert (raws(again), lab.reads("HIGH_STATUS")) == (["0x02"], 1)  # what is on record

    play(life, board_of(tmp_path, "emc1413", 0x18))


def test_emc1413_when_its_status_is_read_then_refused_as_nobody_said_what_that_does(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.read", registers=["toy.STATUS"])
        assert (error_of(refused)["rule"], lab.reads("STATUS")) == ("read_has_side_effects", 0)
        assert "nobody has said" in error_of(refused)["message"]

    play(life, board_of(tmp_path, "emc1413", 0x18))


def test_emc1413_when_another_maker_answers_then_stale(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["MANUFACTURER_ID"] = 0x55
        refused = await lab.ask("reg.write", register="toy.INTERNAL_HIGH_LIMIT", value=80, key=KEY)
        assert (code_of(refused), error_of(refused)["found"]) == ("stale", "0x55")

    play(life, board_of(tmp_path, "emc1413", 0x18))


def test_max7310_when_one_pin_is_set_then_the_others_stay(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        assert [lab.chip().values[n] for n in ("POLARITY", "CONFIGURATION", "TIMEOUT")] == [0xF0, 0xFF, 0x01]
        lab.chip().values["OUTPUT"] = 0x81
        done = await lab.ask("reg.update", register="toy.OUTPUT", fields={"P3": "high"}, key=KEY)
        assert (done.verdict, lab.chip().values["OUTPUT"]) == ("applied", 0x89)

    play(life, board_of(tmp_path, "max7310", 0x21))


def test_tmp105_when_one_conversion_is_asked_for_then_the_bit_reads_zero_and_the_rest_is_kept(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"CONFIGURATION": 0x61, "TEMPERATURE": 0xE7C0}
        done = await lab.ask("reg.update", register="toy.CONFIGURATION", fields={"OS": 1}, key=KEY)
        assert (done.ok, lab.chip().values["CONFIGURATION"]) == (True, 0x61)
        assert [t["data"] for t in lab.sent() if t["do"] == "write"] == ["e1"]
        shown = values_of(await lab.ask("reg.read", registers=["toy.TEMPERATURE"]))["TEMPERATURE"]["fields"]["T"]
        assert (shown["value"], shown["unit"]) == (-24.25, "°C")

    play(life, board_of(tmp_path, "tmp105", 0x48))


def test_tmp105_when_it_is_in_interrupt_mode_then_nothing_is_taken_for_clean(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["CONFIGURATION"] = 0x02
        refused = await lab.ask("reg.read", registers=["toy.TEMPERATURE"])
        assert (error_of(refused)["rule"], lab.reads("TEMPERATURE")) == ("assumption_broken", 0)

    play(life, board_of(tmp_path, "tmp105", 0x48))


def test_tmp421_when_a_temperature_is_read_then_two_bytes_at_once_with_its_faults(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["REMOTE_1"] = 0xFCC1  # -3.25 °C, open
        shown = values_of(await lab.ask("reg.read", registers=["toy.REMOTE_1"]))["REMOTE_1"]["fields"]
        assert (shown["T"]["value"], shown["OPEN"]["name"], shown["PVLD"]["name"]) == (-3.25, "open", "valid")
        assert [(t["offset"], t["size_bytes"]) for t in lab.sent()][-1] == ("0x01", 2)

    play(life, board_of(tmp_path, "tmp421", 0x4C))


def test_tmp421_when_it_converts_by_itself_then_no_single_conversion_and_a_reset_is_a_new_generation(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.write", register="toy.ONE_SHOT", value=0, key=KEY)
        assert (error_of(refused)["rule"], lab.writes("ONE_SHOT")) == ("gate_closed", 0)
        lab.chip().values["CONFIGURATION_1"] = 0x40
        assert (await lab.ask("reg.write", register="toy.ONE_SHOT", value=0, key=KEY2)).ok
        assert lab.writes("ONE_SHOT") == 1
        done = await lab.operator("reg.write", register="toy.SOFTWARE_RESET", value=0, key=KEY3)
        assert (done.verdict, lab.device().generation) == ("applied", 2)
        assert lab.chip().values["CONFIGURATION_1"] == 0

    play(life, board_of(tmp_path, "tmp421", 0x4C))


@pytest.mark.parametrize(("config", "volts"), [(0x3F35, 11.989), (0x3F15, 7.193)])
def test_adm1272_when_its_range_is_chosen_then_the_voltage_follows_it(
    play: Play, tmp_path: Path, config: int, volts: float
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"PMON_CONFIG": config, "READ_VIN": 487, "READ_TEMPERATURE_1": 3292}
        lab.chip().values |= {"MFR_MODEL": text("ADM1272-A1"), "MFR_ID": text("ADI")}
        lab.chip().values["READ_EIN"] = 0x000102_03_0405
        names = ["toy.READ_VIN", "toy.READ_TEMPERATURE_1", "toy.MFR_ID", "toy.MFR_MODEL", "toy.READ_EIN"]
        shown = values_of(await lab.ask("reg.read", registers=names))
        assert shown["READ_VIN"]["value"] == pytest.approx(volts, abs=0.001)
        assert shown["READ_TEMPERATURE_1"]["value"] == pytest.approx(24.976, abs=0.001)
        assert (shown["MFR_ID"]["text"], shown["MFR_MODEL"]["text"]) == ("ADI", "ADM1272-A1")
        counters = {name: field["value"] for name, field in shown["READ_EIN"]["fields"].items()}
        assert counters == {"SAMPLES": 0x102, "ROLLOVERS": 3, "ENERGY": 0x405}

    play(life, board_of(tmp_path, "adm1272", 0x11))


@pytest.mark.parametrize(("model", "fits"), [("ADM1272-1", True), ("ADM1278-1", False)])
def test_adm1272_when_its_model_is_another_then_stale_before_a_peak_is_cleared(
    play: Play, tmp_path: Path, model: str, fits: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"MFR_MODEL": text(model), "PEAK_VIN": 500}
        done = await lab.ask("reg.write", register="toy.PEAK_VIN", value=0, key=KEY)
        assert (code_of(done) == "stale") is not fits
        assert lab.chip().values["PEAK_VIN"] == (0 if fits else 500)

    play(life, board_of(tmp_path, "adm1272", 0x11))
