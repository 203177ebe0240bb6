"""The board file: what good ones become, and the words in which each fault of a broken one is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hwtool.bench import bench
from hwtool.board_buses import KINDS_NOT_YET, BusSpec
from hwtool.config import DEVICE_NOT_YET, ApprovalMode, Board, load_board, parse_board
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Owner
from hwtool_contracts.toml_reader import Faults
from tests.contracts.test_judge import TOY, reg

I2CBUS = "[buses.b]\nkind = 'i2c'\n"
SPIBUS = "[buses.b]\nkind = 'spi'\n"
FTDI = '[buses.b]\nkind = "ftdi-i2c"\nurl = "ftdi://ftdi:232h:FT1/1"\n'
FLASH = '[devices.rom]\ncontract = "w25q128"\nbus = "b"\naddress = {}\n'
SIM = '[buses.b]\nkind = "sim"\n'
RTU = '[buses.b]\nkind = "modbus-rtu"\npath = "/dev/serial/by-id/usb-x"\n'
GPIO = '[devices.gpio]\ncontract = "mcp23017"\nbus = "b"\naddress = 0x20\n'
METER = '[devices.meter]\ncontract = "sdm120"\nbus = "b"\naddress = 1\n'
NAME = 'name = "bench"\n'


def board(*parts: str, beside: Path = Path()) -> Board:
    return parse_board("\n".join(parts), "board.toml", beside)


def faults_of(*parts: str, beside: Path = Path()) -> list[str]:
    """Every fault of a board in its own words."""
    with pytest.raises(Faults) as caught:
        board(*parts, beside=beside)
    return [str(f) for f in caught.value.faults]


def test_board_when_it_says_little_then_defaults() -> None:
    made = board(NAME, SIM, GPIO)
    assert (made.name, made.approval_mode, made.self_approval_on_hardware) == (
        "bench",
        ApprovalMode.SEPARATE_USER,
        False,
    )
    assert made.simulated
    assert made.buses == {
        "b": BusSpec(
            name="b",
            kind="sim",
            path=None,
            baud=19200,
            parity="none",
            stop_bits=1,
            process=False,
            socket=None,
            sole_master=False,
            response_ms=200,
            reply_lifetime_ms=600,
            gap_ms=None,
            transfer_limit_ms=2000,
        )
    }
    gpio = made.devices["gpio"]
    assert (gpio.name, gpio.contract_name, gpio.bus, gpio.address, gpio.identity) == (
        "gpio",
        "mcp23017",
        "b",
        0x20,
        None,
    )
    assert gpio.contract == bundled("mcp23017")
    assert gpio.locus(made.buses["b"]) == "sim:b:0x20"


def test_board_when_every_key_of_a_serial_bus_is_given_then_all_are_kept() -> None:
    keys = "baud = 9600\nparity = 'even'\nstop_bits = 2\nsole_master = true\nresponse_ms = 50\ngap_ms = 0\n"
    keys += "reply_lifetime_ms = 70\ntransfer_limit_ms = 50\n"
    head = "approval_mode = 'self'\nself_approval_on_hardware = true\n"
    made = board(NAME, head, RTU, keys, METER, "identity = '32'\nowner = 'shared'")
    assert made.buses["b"] == BusSpec(
        name="b",
        kind="modbus-rtu",
        path="/dev/serial/by-id/usb-x",
        baud=9600,
        parity="even",
        stop_bits=2,
        process=False,
        socket=None,
        sole_master=True,
        response_ms=50,
        reply_lifetime_ms=70,
        gap_ms=0,
        transfer_limit_ms=50,
    )
    assert (made.approval_mode, made.self_approval_on_hardware, made.simulated) == (ApprovalMode.SELF, True, False)
    meter = made.devices["meter"]
    assert meter.identity == "32"
    assert meter.locus(made.buses["b"]) == "modbus-rtu:/dev/serial/by-id/usb-x:0x01"


@pytest.mark.parametrize(
    ("keys", "process", "socket", "stable_path"),
    [
        ("process = true", True, None, "sim:b"),
        ("process = false", False, None, "sim:b"),
        ("socket = '/run/sim.sock'", False, "/run/sim.sock", "sim:/run/sim.sock#b"),
    ],
)
def test_simulated_bus_when_in_a_process_then_as_the_board_says(
    keys: str, process: bool, socket: str | None, stable_path: str
) -> None:
    bus = board(NAME, SIM, keys, GPIO).buses["b"]
    assert (bus.process, bus.socket, bus.stable_path, bus.simulated) == (process, socket, stable_path, True)


@pytest.mark.parametrize("mode", list(ApprovalMode))
def test_approval_mode_when_the_board_is_simulated_then_each_is_allowed(mode: ApprovalMode) -> None:
    assert board(NAME, f"approval_mode = '{mode}'", SIM, GPIO).approval_mode is mode


def test_board_when_one_bus_is_real_then_it_is_not_simulated() -> None:
    assert not board(NAME, SIM, RTU.replace("buses.b", "buses.line"), GPIO).simulated


def test_board_when_it_has_no_device_then_it_still_loads() -> None:
    assert board(NAME, SIM).devices == {}


def test_owner_when_the_board_says_shared_then_every_register_is() -> None:
    made = board(NAME, SIM, GPIO, "owner = 'shared'").devices["gpio"].contract
    plain = bundled("mcp23017")
    assert {r.owner for r in made.registers.values()} == {Owner.SHARED}
    assert replace(made, registers=plain.registers) == plain


def test_owner_when_the_board_says_exclusive_then_a_shared_contract_becomes_so(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(TOY + reg("R", 0, "owner = 'shared'"), encoding="utf-8")
    text = GPIO.replace("mcp23017", "toy.toml")
    assert board(NAME, SIM, text, beside=tmp_path).devices["gpio"].contract.registers["R"].owner is Owner.SHARED
    made = board(NAME, SIM, text, "owner = 'exclusive'", beside=tmp_path)
    assert made.devices["gpio"].contract.registers["R"].owner is Owner.EXCLUSIVE


def test_contract_when_it_is_a_path_then_relative_to_the_board(tmp_path: Path) -> None:
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "toy.toml").write_text(TOY + reg("R", 0), encoding="utf-8")
    file = tmp_path / "site.toml"
    file.write_text(NAME + SIM + GPIO.replace("mcp23017", "chips/toy.toml"), encoding="utf-8")
    device = load_board(file).devices["gpio"]
    assert device.contract.part == "toy"
    assert device.contract_name == str((tmp_path / "chips" / "toy.toml").resolve())


def test_board_when_it_cannot_be_read_then_one_fault_says_why(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="cannot be read"):
        load_board(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(Faults, match="cannot be read"):
        load_board(tmp_path / "latin.toml")


def test_board_when_it_is_not_toml_then_line_and_column_are_said() -> None:
    (fault,) = faults_of('name = "bench"\nname = \n')
    assert fault.startswith("board.toml: file: not valid TOML")
    assert "line 2" in fault


# what is broken, the board, and the words of the one fault
POLICY = NAME + SIM + GPIO + '[[policy]]\nwho = "*"\n'
BROKEN: list[tuple[str, str, str]] = [
    ("no name", SIM + GPIO, "name: key is missing"),
    ("empty name", 'name = " "\n' + SIM, "name: empty string"),
    ("unknown key", NAME + 'aproval_mode = "self"\n' + SIM, "aproval_mode: unknown key.*wanted approval_mode[?]"),
    (
        "unknown mode",
        NAME + 'approval_mode = "slef"\n' + SIM,
        "approval_mode: not in the vocabulary.*did you mean self[?]",
    ),
    ("self on hardware", NAME + 'approval_mode = "self"\n' + RTU, "approval_mode: self on real hardware"),
    ("flag of a wrong type", NAME + "self_approval_on_hardware = 1\n" + SIM, "self_approval_on_hardware: wrong type"),
    ("no bus", NAME, "buses: no bus; wanted at least one"),
    ("a bus is no table", NAME + "[buses]\nb = 3\n[buses.c]\nkind = 'sim'", "buses.b: wrong type"),
    ("bus without kind", NAME + "[buses.b]\n", "buses.b.kind: key is missing"),
    ("unknown kind", NAME + '[buses.b]\nkind = "modbus"\n', "buses.b.kind: unknown bus kind; found modbus"),
    ("bus name", NAME + SIM.replace("buses.b", 'buses."B 1"'), "buses.B 1: not a name; found B 1"),
    ("long bus name", NAME + SIM.replace("buses.b", "buses." + "b" * 64), "not a name"),
    (
        "unknown kind with a device on it",
        NAME + '[buses.b]\nkind = "modbus"\n[devices.d]\ncontract = "sdm120"\nbus = "b"\naddress = 1\n',
        "buses.b.kind: unknown bus kind; found modbus",
    ),
    (
        "kind of a later version with a device on it",
        NAME + '[buses.b]\nkind = "mmap"\n[devices.d]\ncontract = "sdm120"\nbus = \'b\'\naddress = 1\n',
        "buses.b.kind: bus kind not supported by this version",
    ),
    ("no path", NAME + '[buses.b]\nkind = "modbus-rtu"\n', "buses.b.path: key is missing.*by-id"),
    ("parity", NAME + RTU + 'parity = "mark"\n', "buses.b.parity: not in the vocabulary; found 'mark'"),
    ("baud", NAME + RTU + "baud = 299\n", "buses.b.baud: out of range.*300 to 4000000"),
    ("stop bits", NAME + RTU + "stop_bits = 3\n", "buses.b.stop_bits: out of range"),
    ("gap", NAME + RTU + "gap_ms = -1\n", "buses.b.gap_ms: out of range"),
    ("response", NAME + SIM + "response_ms = 0\n", "buses.b.response_ms: out of range"),
    ("response, a flag", NAME + SIM + "response_ms = true\n", "buses.b.response_ms: wrong type"),
    ("lifetime", NAME + SIM + "reply_lifetime_ms = 600001\n", "buses.b.reply_lifetime_ms: out of range"),
    ("limit", NAME + SIM + "transfer_limit_ms = 0\n", "buses.b.transfer_limit_ms: out of range"),
    (
        "limit below response",
        NAME + SIM + "transfer_limit_ms = 199\n",
        "transfer_limit_ms: below response_ms.*at least 200",
    ),
    ("path of a simulated bus", NAME + SIM + 'path = "/dev/x"\n', "buses.b.path: not a key of a simulated bus"),
    ("baud of a simulated bus", NAME + SIM + "baud = 9600\n", "buses.b.baud: not a key of a simulated bus"),
    ("i2c without a name", NAME + I2CBUS, "buses.b.adapter: one of adapter and path"),
    ("i2c with two", NAME + I2CBUS + 'adapter = "a"\npath = "/dev/x"\n', "buses.b.adapter: one of adapter and path"),
    ("i2c by number", NAME + I2CBUS + 'path = "/dev/i2c-1"\n', "path: a number that the next start may.*adapter ="),
    (
        "serial by number",
        NAME + RTU.replace("/dev/serial/by-id/usb-x", "/dev/ttyUSB0"),
        "path: a number that the next start may",
    ),
    ("spi without a name", NAME + SPIBUS, "buses.b.adapter: one of adapter and path.*spi_master"),
    ("spi by number", NAME + SPIBUS + 'path = "/dev/spidev0"\n', "path: a number that the next start may.*adapter ="),
    ("spi mode", NAME + SPIBUS + 'adapter = "a"\nmode = 4\n', "buses.b.mode: out of range.*0 to 3"),
    ("mode of an i2c bus", NAME + I2CBUS + 'adapter = "a"\nmode = 1\n', "buses.b.mode: not a key of a bus of kind"),
    ("ftdi without a url", NAME + '[buses.b]\nkind = "ftdi-i2c"\n', "buses.b.url: key is missing.*serial number"),
    (
        "ftdi by index",
        NAME + FTDI.replace("FT1", "1"),
        "buses.b.url: names no interface.*is no serial number but an index",
    ),
    (
        "ftdi by bus and number",
        NAME + FTDI.replace("FT1", "3:7"),
        "buses.b.url: names no interface.*by its serial number",
    ),
    ("ftdi by nothing", NAME + FTDI.replace(":FT1", ""), "buses.b.url: names no interface.*by its serial number"),
    ("ftdi without an engine", NAME + FTDI.replace("232h", "232r"), "buses.b.url: .*232r' has no engine"),
    ("ftdi interface without an engine", NAME + FTDI.replace("FT1/1", "FT1/2"), "url: .*interface 2 of a 232h has no"),
    ("ftdi faster than its engine", NAME + FTDI + "max_hz = 1000001\n", "buses.b.max_hz: out of range.*1000000"),
    (
        "ftdi with a time-out below its latency",
        NAME + FTDI + "response_ms = 20\nlatency_ms = 21\n",
        "buses.b.response_ms: below the adapter's latency timer of 21 ms.*at least 21",
    ),
    (
        "ftdi with an interface on two buses",
        NAME + FTDI + FTDI.replace("buses.b", "buses.c").replace("ftdi-i2c", "ftdi-spi"),
        "buses.c.url: the same interface as buses.b",
    ),
    (
        "chip select beyond the pins",
        NAME + FTDI.replace("ftdi-i2c", "ftdi-spi") + FLASH.format(5),
        "devices.rom.address: no such chip select; found 5; wanted 0 to 4",
    ),
    (
        "chip select beyond Linux's",
        NAME + SPIBUS + 'adapter = "a"\n' + FLASH.format(32),
        "devices.rom.address: no such chip select; found 32; wanted 0 to 31",
    ),
    ("flash on i2c", NAME + FTDI + FLASH.format(0), "devices.rom.bus: contract w25q128 has no .access.i2c."),
    ("baud of an i2c bus", NAME + I2CBUS + 'adapter = "a"\nbaud = 9600\n', "buses.b.baud: not a key of a bus of kind"),
    (
        "usb of a simulated bus",
        NAME + SIM + GPIO + 'restarts = "with_usb"\n',
        "devices.gpio.restarts: bus b has no node of a USB device",
    ),
    ("tcp without a host", NAME + "[buses.b]\nkind = 'modbus-tcp'\n", "buses.b.host: key is missing"),
    ("port of a line", NAME + RTU + "port = 5020\n", "buses.b.port: not a key of a bus of kind modbus-rtu"),
    ("adapter of a line", NAME + RTU + 'adapter = "a"\n', "buses.b.adapter: not a key of a bus of kind"),
    ("process of a real bus", NAME + RTU + "process = true\n", "buses.b.process: only for kind = sim"),
    ("socket of a real bus", NAME + RTU + 'socket = "/x"\n', "buses.b.socket: only for kind = sim"),
    (
        "process and socket",
        NAME + SIM + 'process = true\nsocket = "/x"\n',
        "buses.b.process: process and socket exclude",
    ),
    ("unknown bus key", NAME + SIM + "sole_mastr = true\n", "buses.b.sole_mastr: unknown key.*wanted sole_master[?]"),
    ("sole master, a word", NAME + SIM + 'sole_master = "yes"\n', "buses.b.sole_master: wrong type"),
    ("device name", NAME + SIM + GPIO.replace("devices.gpio", "devices.GPIO"), "devices.GPIO: not a name"),
    ("no contract", NAME + SIM + GPIO.replace('contract = "mcp23017"', ""), "devices.gpio.contract: key is missing"),
    ("no bus named", NAME + SIM + GPIO.replace('bus = "b"', ""), "devices.gpio.bus: key is missing"),
    ("no address", NAME + SIM + GPIO.replace("address = 0x20", ""), "devices.gpio.address: key is missing"),
    ("negative address", NAME + SIM + GPIO.replace("0x20", "-1"), "devices.gpio.address: out of range"),
    (
        "no such bus",
        NAME + SIM + GPIO.replace('bus = "b"', 'bus = "c"'),
        "devices.gpio.bus: no such bus; found c; wanted one of b",
    ),
    (
        "no such contract",
        NAME + SIM + GPIO.replace("mcp23017", "mcp23018"),
        "devices.gpio.contract: .*no such bundled contract.*mcp23017",
    ),
    (
        "no such contract file",
        NAME + SIM + GPIO.replace("mcp23017", "./no.toml"),
        "devices.gpio.contract: no.toml: .*cannot be read",
    ),
    (
        "8-bit address",
        NAME + SIM + GPIO.replace("0x20", "0x9a"),
        "devices.gpio.address: above 0x77; found 0x9a.*probably 0x4d",
    ),
    (
        "not the chip's address",
        NAME + SIM + GPIO.replace("0x20", "0x30"),
        "mcp23017 has no such address; found 0x30; wanted 0x20, ",
    ),
    (
        "broadcast",
        NAME + RTU + METER.replace("address = 1", "address = 0"),
        "devices.meter.address: not a Modbus unit address",
    ),
    ("unit 248", NAME + SIM + METER.replace("address = 1", "address = 248"), "not a Modbus unit address.*1 to 247"),
    ("a chip on a line", NAME + RTU + GPIO, r"devices.gpio.bus: contract mcp23017 has no \[access.modbus\]"),
    (
        "identity nobody can read",
        NAME + SIM + GPIO + 'identity = "x"\n',
        r"devices.gpio.identity: contract mcp23017 has no \[identity\]",
    ),
    ("owner", NAME + SIM + GPIO + 'owner = "mine"\n', "devices.gpio.owner: not in the vocabulary"),
    ("unknown device key", NAME + SIM + GPIO + "adress = 1\n", "devices.gpio.adress: unknown key.*wanted address[?]"),
    (
        "two at one place",
        NAME + SIM + GPIO + GPIO.replace("devices.gpio", "devices.io"),
        "devices.io.address: the same place as devices.gpio",
    ),
    ("one node, two buses", NAME + RTU + RTU.replace("buses.b", "buses.c"), "buses.c.path: the same node as buses.b"),
    ("policy that says nothing", POLICY, r"policy\[0\]: says nothing.*confidential"),
    ("policy for nobody", POLICY.replace('who = "*"', 'read = "no"'), r"policy\[0\].who: key is missing"),
    ("policy for a name", POLICY.replace("*", "tom") + 'read = "no"\n', "who: not a caller.*group:NAME"),
    (
        "policy for a strange group",
        POLICY.replace("*", "group:no-such") + 'read = "no"\n',
        "who: no such group on this",
    ),
    ("policy word", POLICY + 'read = "approval"\nwrite = "no"\n', "read: not in the vocabulary.*yes, no"),
    ("policy of no device", POLICY + 'device = "gp"\nread = "no"\n', "device: no device.*gpio"),
    ("policy of no register", POLICY + 'register = "OUT"\nread = "no"\n', "register: no register"),
    ("policy limits nothing", POLICY + "limits = {}\n", "limits: limits nothing"),
    ("policy limits order", POLICY + "limits = { min = 2, max = 1 }\n", "limits.min: min is above max"),
    ("policy unit", POLICY + 'limits = { max = 1, unit = "V" }\n', "limits.unit: no register or field.*raw values"),
    ("policy rate", POLICY + 'rate_per_min = 0\nread = "no"\n', "rate_per_min: .*1"),
    ("policy key", POLICY + 'reed = "no"\nwrite = "no"\n', "reed: unknown key.*read[?]"),
    ("budget of nothing", NAME + SIM + GPIO + "writes_per_day = { OUT = 1 }\n", "mcp23017 has no such register"),
    ("budget of a latch", NAME + SIM + GPIO + "writes_per_day = { OLATA = 1 }\n", "writes_per_day: not nonvolatile"),
]


@pytest.mark.parametrize(("text", "words"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_board_when_one_thing_is_broken_then_one_fault_names_it(text: str, words: str) -> None:
    (fault,) = faults_of(text)
    assert fault.startswith("board.toml: ")
    assert re.search(words, fault), fault


@pytest.mark.parametrize("kind", sorted(KINDS_NOT_YET))
def test_bus_when_its_kind_is_of_a_later_version_then_it_is_said(kind: str) -> None:
    (fault,) = faults_of(NAME, SIM.replace("sim", kind))
    assert "buses.b.kind: bus kind not supported by this version" in fault


@pytest.mark.parametrize("key", sorted(DEVICE_NOT_YET))
def test_device_when_a_key_is_of_a_later_version_then_it_is_refused_by_name(key: str) -> None:
    (fault,) = faults_of(NAME, SIM, GPIO, f"{key} = 1\n")
    assert f"devices.gpio.{key}: in the format, but not supported by this version" in fault


def test_board_when_many_things_are_broken_then_all_are_said_at_once() -> None:
    text = SIM + "baud = 1\nfast = true\n" + GPIO.replace("0x20", "0x99") + 'part = "A"\n[extra]\n'
    found = "\n".join(faults_of('approval_mode = "none"\n', text))
    for words in (
        "name: key is missing",
        "approval_mode: not in the vocabulary",
        "buses.b.baud: not a key of a simulated bus",
        "buses.b.baud: out of range",
        "buses.b.fast: unknown key",
        "devices.gpio.address: above 0x77",
        "mcp23017 has no such cluster",
        "extra: unknown key",
    ):
        assert words in found


def test_buses_when_they_are_no_table_then_it_is_said_beside_there_being_none() -> None:
    found = faults_of(NAME, "buses = 3")
    assert ["wrong type" in f or "no bus" in f for f in found] == [True, True]


def test_contract_of_a_device_when_it_has_faults_then_all_of_them_are_the_boards(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(TOY + reg("R", 0, "reset = 256\nspeed = 1"), encoding="utf-8")
    found = faults_of(NAME, SIM, GPIO.replace("mcp23017", "bad.toml"), beside=tmp_path)
    assert len(found) == 2
    assert all(f.startswith("board.toml: devices.gpio.contract: bad.toml: registers.R") for f in found)


def test_buses_when_two_paths_lead_to_one_node_then_the_second_is_refused(tmp_path: Path) -> None:
    node, link = tmp_path / "ttyUSB0", tmp_path / "by-id"
    node.touch()
    link.symlink_to(node)
    first = RTU.replace("/dev/serial/by-id/usb-x", str(node))
    second = RTU.replace("/dev/serial/by-id/usb-x", str(link)).replace("buses.b", "buses.c")
    (fault,) = faults_of(NAME, first, second)
    assert "buses.c.path: the same node as buses.b" in fault


def test_devices_when_at_the_same_address_of_different_buses_then_allowed() -> None:
    other = SIM.replace("buses.b", "buses.c")
    made = board(NAME, SIM, other, GPIO, GPIO.replace("gpio", "io").replace('"b"', '"c"'))
    assert len({d.locus(made.buses[d.bus]) for d in made.devices.values()}) == 2


@pytest.mark.parametrize("address", [1, 247])
def test_meter_when_its_unit_address_is_at_an_end_then_allowed(address: int) -> None:
    made = board(NAME, RTU, METER.replace("address = 1", f"address = {address}"))
    assert made.devices["meter"].address == address


def test_chip_when_its_contract_lists_no_address_then_any_seven_bits_are_allowed(tmp_path: Path) -> None:
    text = (TOY + reg("R", 0)).replace("addresses = [0x20]\n", "")
    (tmp_path / "toy.toml").write_text(text, encoding="utf-8")
    anywhere = GPIO.replace("mcp23017", "toy.toml").replace("0x20", "0x77")
    assert board(NAME, SIM, anywhere, beside=tmp_path).devices["gpio"].address == 0x77
    (fault,) = faults_of(NAME, SIM, anywhere.replace("0x77", "0x78"), beside=tmp_path)
    assert "above 0x77" in fault


@pytest.fixture
def both_ways(tmp_path: Path) -> Path:
    """A directory with the contract toy.toml of a chip that sits on I2C or on a Modbus line."""
    text = TOY + "[registers.R]\nspace = 'holding'\noffset = 0\nwidth_bits = 16\naccess = 'rw'\n"
    (tmp_path / "toy.toml").write_text(
        text.replace("[defaults]", "[access.modbus]\nbase = 0\n[defaults]"), encoding="utf-8"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("bus", "address", "words"),
    [
        (RTU, 0x20, None),
        (RTU, 1, None),
        (RTU, 247, None),
        (RTU, 0, "not a Modbus unit address"),
        (RTU, 248, "not a Modbus unit address"),
        (SIM, 0x20, None),
        (SIM, 0x21, "toy has no such address"),
        (SIM, 247, "above 0x77"),
    ],
)
def test_address_when_a_chip_sits_on_either_bus_then_the_rule_of_its_bus(
    both_ways: Path, bus: str, address: int, words: str | None
) -> None:
    text = GPIO.replace("mcp23017", "toy.toml").replace("0x20", str(address))
    if words is None:
        assert board(NAME, bus, text, beside=both_ways).devices["gpio"].address == address
    else:
        (fault,) = faults_of(NAME, bus, text, beside=both_ways)
        assert words in fault


def test_buses_when_they_join_one_socket_then_each_keeps_its_own_places() -> None:
    joined = "socket = '/run/sim.sock'\n"
    other = (
        GPIO.replace("devices.gpio", "devices.other")
        .replace("bus = 'b'", "bus = 'c'")
        .replace('bus = "b"', 'bus = "c"')
    )
    made = board(NAME, SIM + joined, SIM.replace("buses.b", "buses.c") + joined, GPIO, other)
    loci = [d.locus(made.buses[d.bus]) for d in made.devices.values()]
    assert loci == ["sim:/run/sim.sock#b:0x20", "sim:/run/sim.sock#c:0x20"]


def test_buses_when_each_has_its_own_socket_or_none_then_allowed() -> None:
    other = [SIM.replace("buses.b", f"buses.{n}") for n in "cde"]
    made = board(NAME, SIM + "socket = '/run/a'\n", other[0] + "socket = '/run/b'\n", *other[1:])
    assert len({b.stable_path for b in made.buses.values()}) == 4


@pytest.mark.parametrize("process", [False, True])
def test_bench_when_made_then_simulated_and_self_approving(process: bool) -> None:
    made = bench(process=process)
    assert made.simulated
    assert made.approval_mode is ApprovalMode.SELF
    assert sorted(made.devices) == ["adc", "gpio", "meter", "rtc", "temp", "uart"]
    assert all(b.process is process and b.sole_master for b in made.buses.values())
