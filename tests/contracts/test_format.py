"""Every key of the native format: loaded, refused where it is wrong, checked, written back and kept when compiled."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from hwtool_contracts.effects import ReadEffect, When, WriteEffect
from hwtool_contracts.judge import ReadJudgement, Refused, judge_read, may_merge, may_poll
from hwtool_contracts.judge_write import UpdateJudgement, WriteJudgement, judge_update, judge_write
from hwtool_contracts.library import bundled, bundled_names
from hwtool_contracts.model import (
    Alias,
    BusyRetry,
    Contract,
    Crc,
    Encoding,
    Memory,
    Opcode,
    Owner,
    Phrase,
    Register,
    Space,
)
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.notice import Imported
from hwtool_contracts.params import read_params, with_params
from hwtool_contracts.toml_reader import Fault, Faults, Table
from hwtool_contracts.wire import decode, encode

HEAD = 'schema = 1\npart = "toy"\nvendor = "nobody"\ntitle = "a toy"\nsource = "the test"\n'
DEFAULTS = """
[defaults]
read = { effects = ["none"], provenance = "generated", source = "rtl" }
write = { effect = "store", provenance = "generated", source = "rtl" }
"""
I2C = "[access]\noffset_bytes = 1\nbyte_order = 'big'\n[access.i2c]\naddresses = [0x20]\nauto_increment = 'both'\n"
MODBUS = "[access]\noffset_bytes = 2\nbyte_order = 'big'\n[access.modbus]\nbase = 0\n"
LINE = "[access]\n[access.line]\n"
SPI = "[access]\noffset_bytes = 3\nbyte_order = 'big'\n[access.spi]\n"


def parse(*parts: str, access: str = I2C) -> Contract:
    return parse_contract(HEAD + access + DEFAULTS + "\n".join(parts), "toy.toml")


def reg(name: str, offset: int, rest: str = "", access: str = "rw") -> str:
    return f"[registers.{name}]\noffset = {offset}\naccess = '{access}'\n{rest}\n"


def reading(effect: str, rest: str = "") -> str:
    return f"read = {{ effects = ['{effect}'], provenance = 'generated'{rest} }}"


def writing(effect: str, rest: str = "") -> str:
    return f"write = {{ effect = '{effect}', provenance = 'generated'{rest} }}"


def faults_of(*parts: str, access: str = I2C) -> list[str]:
    with pytest.raises(Faults) as caught:
        parse(*parts, access=access)
    return [str(f) for f in caught.value.faults]


def compiled(contract: Contract) -> Contract:
    return decode(encode(Imported(contract, ()))).contract


def same(one: Contract, two: Contract) -> None:
    """Equal but for the digest, the registers one by one."""
    assert list(two.registers) == list(one.registers)
    for name, register in one.registers.items():
        assert two.registers[name] == register, name
    for member in ("access", "banks", "groups", "assumes", "identity", "memories", "params", "sequences", "verified"):
        assert getattr(two, member) == getattr(one, member), member


# --- whole contracts that use everything ------------------------------------------------------------------------

EVERYTHING = (
    reg(
        "CLAIM",
        0,
        reading("claim", ", state = 'ST.TAKEN', affects = ['ACKED']")
        + "\nmay_block = true\nerratum = 'rev. A'\nverified = 'a real part'",
        "ro",
    ),
    reg("ST", 1, "volatile = 'unknown'\n[registers.ST.fields]\nTAKEN = { bits = 0 }\nN = { bits = '7:4' }", "ro"),
    reg("ACKED", 2, reading("none", ", ack_by = ['CLAIM', 'PORT'], gate = 'ST.N = 3'"), "ro"),
    reg("PORT", 3, reading("advance", ", reseek = 'SEEK', affects = ['ACKED']")),
    reg("SEEK", 4, writing("store", ", commit_by = 'GO', delay_after_ms = 20, max_rate_per_min = 6")),
    reg("GO", 5, writing("command", ", absolute = true, triggers = ['ST', 'PORT'], verify = 'none'"), "wo"),
    reg("RST", 6, writing("command", ", resets = 'device', irreversible = true, verify = 'none'"), "wo"),
    reg("ADDR", 7, writing("store", ", readdresses = true, busy_retry = { attempts = 5, interval_ms = 3 }")),
    reg("TOL", 8, writing("store", ", verify = { by = 'read_back', register = 'ST', mask = 0xf0, tolerance = 2 }")),
    reg(
        "ALIASED",
        0x10,
        "also_at = [0x20, 0x21]\nset_at = 0x22\nclear_at = { at = 0x23, shift = 4 }\ntoggle_at = 0x24\n"
        "reset = 0x5a\nreset_mask = 0x7f\ndescription = 'a port'",
    ),
    reg("HALVES", 0x30, "width_bits = 16\nwrite_mask_bits = '15:8'"),
    reg(
        "F",
        0x32,
        "[registers.F.fields]\n"
        "SPREAD = { parts = ['7:6', '1:0'], description = 'in two', volatile = 'unknown' }\n"
        "HOST = { bits = '5:4', alternate = true }\nDEVICE = { bits = 4, alternate = true }\n",
    ),
    reg("FIFO", 0x40, reading("pop", ", element_bytes = 4, max_burst = 8, when_empty = 'last', level = 'ST.N'"), "ro"),
    reg("L11", 0x42, "width_bits = 16\nencoding = 'linear11'\nunit = 'V'"),
    reg("L16", 0x44, "width_bits = 16\nencoding = 'linear16'\nexponent_from = 'ST.N'\nunit = 'V'"),
    reg("SCALED", 0x46, "signed = true\nscale_from = 'ST.N'\nscales = { 0 = '0.5', 0x1 = 2 }\nunit = 'g'"),
    reg("WIRED", 0x47, "scale = '0.1'\nscale_param = 'shunt'\nunit = 'A'"),
    reg("PIECES", 0x60, "width_bits = 32\naccess_bits = 16"),
    reg("NARROW", 0x65, "access_bits = 32", "ro"),
    reg("SHOWN", 0x68, writing("store", ", verify = { by = 'read_back', register = 'EV', consumes = true }")),
    reg("EV", 0x69, reading("relatch"), "ro"),
    reg("SECRET", 0x6A, "confidential = true"),
    reg("PARTLY", 0x6B, "fields.PIN = { bits = '3:0', confidential = true }"),
    reg("TEXT", 0x50, "width_bits = 64\nencoding = 'text'", "ro"),
    "[params.shunt]\ndefault = '0.01'\nmin = '0.001'\nmax = 1\nunit = 'ohm'\n[params.free]\n",
    "[commands.C]\ncode = 0x123\ncode_bytes = 2\ndummy_bytes = 1\nread_bytes = 4\nread = { effects = ['unknown'] }\n"
    "fields.T = { bits = '31:16', unit = 'degC' }\n",
    "[commands.W]\ncode = 0x55\noffset_bytes = 3\nwrite_bytes = 2\nwrite = { effect = 'command', verify = 'none' }\n",
    "[commands.NOTHING]\ncode = 0x56\n",
    "[memories.MEM]\noffset = 0x80\nsize_bytes = 64\npage_bytes = 8\nwrite_cycle_ms = 5\nbusy = 'nack'\n",
    "[identity]\nregister = 'ST'\nequals = [1, 2]\nmask = 0x0f\nserial = 'TEXT'\n",
    "[sequences.S]\nparams = ['x']\nresult = 'ST'\n"
    "steps = [{ do = 'write', register = 'SEEK', value = '$x' }, { do = 'read', register = 'ST' }]\n",
)
MODBUS_MAP = (
    "[registers.C]\nspace = 'coil'\noffset = 3\nwidth_bits = 9\naccess = 'rw'\n",
    "[registers.D]\nspace = 'discrete'\noffset = 3\naccess = 'ro'\ncount = 2\nstride_bytes = 1\n",
    "[registers.H]\nspace = 'holding'\noffset = 3\nwidth_bits = 32\naccess = 'rw'\nencoding = 'float32'\n"
    + writing("store", ", limits = { min = '-1.5', max = 2 }")
    + "\n",
)
LINES = (
    "[registers.V]\nquery = 'V?'\nset = 'V {value}'\naccess = 'rw'\nencoding = 'decimal'\nscale = '0.001'\n",
    "[registers.T]\nquery = 'T?'\naccess = 'ro'\nencoding = 'text'\nwidth_bits = 1024\n",
    "[registers.CLS]\nset = '*CLS'\naccess = 'wo'\n",
    "[identity]\nregister = 'T'\nequals = 'ACME'\n",
)
CRC_BUS = (
    I2C + "increment_mask = 0x80\noffset_bits_in_address = 2\ncrc = { poly = 0x31, init = 0xff, word_bytes = 2 }\n"
)
WHOLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "i2c": (I2C, EVERYTHING),
    "spi": (
        SPI + "read_mask = 0x800000\nincrement_mask = 0x400000\nmode = 3\nmax_hz = 1000000\n",
        (*EVERYTHING, "[commands.ADC]\ncode = 0x0180\ncode_bytes = 2\nread_bytes = 2\nduplex = true\n"),
    ),
    "spi of words": (
        SPI.replace("offset_bytes = 3", "offset_bytes = 2") + "word_bits = 16\n",
        (reg("R", 5, "width_bits = 16"),),
    ),
    "modbus": (MODBUS + "functions = [1, 2, 3, 5, 15, 16]\natomic_multi = true\n", MODBUS_MAP),
    "modbus from one": (MODBUS.replace("base = 0", "base = 1"), MODBUS_MAP),
    "line": (LINE + 'terminator = "\\r\\n"\n', LINES),
    "mdio": ("[access]\n[access.mdio]\naddresses = [0, 31]\n", (reg("R", 5, "width_bits = 16"),)),
    "crc": (CRC_BUS, (reg("R", 5, "width_bits = 16"), "[commands.C]\ncode = 1\nread_bytes = 4\n")),
    "pec": (I2C + "pec = true\n", (reg("R", 5, "width_bits = 16"),)),
    "no offset": (I2C.replace("offset_bytes = 1", "offset_bytes = 0"), (reg("R", 0),)),
    "flash": (
        SPI,
        (
            "[memories.M]\nsize_bytes = 0x1000000\naccess = 'ro'\nread_code = 0x03\n",
            "[commands.ID]\ncode = 0x9f\ncode_bytes = 1\nread_bytes = 3\nread = { effects = ['none'] }\n",
            "[identity]\ncommand = 'ID'\nequals = 0xef4018\n",
        ),
    ),
    "banks and clusters": (
        I2C,
        (
            reg("PAGE", 0),
            "[banks.P]\nselect = [{ register = 'PAGE', value = '@index' }]\nrestore = 'none'\n",
            "[clusters.CH]\noffset = 8\ncount = 2\nstride_bytes = 0\nbank = 'P'\n",
            "[clusters.CH.registers.A]\noffset = 1\naccess = 'rw'\nset_at = 2\nclear_at = 3\n",
            "[clusters.N]\noffset = 0x40\n[clusters.N.clusters.M]\noffset = 4\n",
            "[clusters.N.clusters.M.registers.B]\noffset = 1\naccess = 'rw'\n",
            "[clusters.D]\noffset = 0x60\nderived_from = 'N'\n",
        ),
    ),
}


@pytest.mark.parametrize(("access", "parts"), WHOLE.values(), ids=list(WHOLE))
def test_contract_when_written_back_then_it_loads_to_the_same(access: str, parts: tuple[str, ...]) -> None:
    contract = parse(*parts, access=access)
    same(contract, parse_contract(write_contract(contract), "toy.toml"))


@pytest.mark.parametrize(("access", "parts"), WHOLE.values(), ids=list(WHOLE))
def test_contract_when_compiled_then_nothing_is_lost(access: str, parts: tuple[str, ...]) -> None:
    contract = parse(*parts, access=access)
    same(contract, compiled(contract))
    assert encode(Imported(contract, ())) == encode(Imported(contract, ()))
    for name in contract.memories:
        assert compiled(contract).registers[f"{name}[0:4]"] == contract.registers[f"{name}[0:4]"]


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_chip_when_written_back_and_compiled_then_the_same(name: str) -> None:
    contract = bundled(name)
    same(contract, parse_contract(write_contract(contract), "toy.toml"))
    same(contract, compiled(contract))


def test_command_when_it_is_not_volatile_then_written_back_so() -> None:
    contract = parse("[commands.C]\ncode = 1\nread_bytes = 1\nvolatile = false\n")
    assert contract.registers["C"].volatile is False
    same(contract, parse_contract(write_contract(contract), "toy.toml"))


def test_everything_when_loaded_then_what_the_file_says_is_what_the_model_holds() -> None:
    contract = parse(*EVERYTHING)
    r = contract.registers
    assert (r["CLAIM"].read.state, r["CLAIM"].may_block, r["CLAIM"].erratum) == ("ST.TAKEN", True, "rev. A")
    assert r["CLAIM"].verified == "a real part"
    assert (r["ST"].volatile, r["ST"].volatile_unsaid, r["ST"].fields["N"].volatile_unsaid) == (True, True, True)
    assert (r["ACKED"].read.ack_by, r["ACKED"].read.gate) == (("CLAIM", "PORT"), "ST.N = 3")
    assert r["PORT"].read.reseek == "SEEK"
    seek, go, rst, addr = (r[n].write for n in ("SEEK", "GO", "RST", "ADDR"))
    assert (seek.commit_by, seek.delay_after_ms, seek.max_rate_per_min) == ("GO", 20, 6)
    assert (go.absolute, go.triggers) == (True, ("ST", "PORT"))
    assert (rst.resets, rst.irreversible, addr.readdresses) == ("device", True, True)
    assert addr.busy_retry == BusyRetry(5, 3)
    verify = r["TOL"].write.verify
    assert verify is not None
    assert (verify.register, verify.mask, verify.tolerance) == ("ST", 0xF0, 2)
    aliased = r["ALIASED"]
    assert (aliased.also_at, aliased.set_at, aliased.toggle_at) == ((0x20, 0x21), Alias(0x22), Alias(0x24))
    assert (aliased.clear_at, aliased.reset_mask, aliased.description) == (Alias(0x23, 4), 0x7F, "a port")
    assert r["HALVES"].write_mask == 0xFF00
    spread = r["F"].fields["SPREAD"]
    assert (spread.parts, spread.msb, spread.lsb, spread.mask, spread.width_bits) == (((7, 6), (1, 0)), 7, 0, 0xC3, 4)
    assert (spread.description, spread.volatile_unsaid, r["F"].fields["HOST"].alternate) == ("in two", True, True)
    assert (r["FIFO"].read.element_bytes, r["FIFO"].read.max_burst) == (4, 8)
    assert r["L16"].quantity.exponent_from == "ST.N"
    assert r["SCALED"].quantity.scales == {0: Decimal("0.5"), 1: Decimal(2)}
    assert r["TEXT"].quantity.encoding is Encoding.TEXT
    assert (r["C"].space, r["C"].offset, r["C"].opcode) == (Space.COMMAND, 0x123, Opcode(2, 1))
    assert (r["C"].width_bits, r["C"].access.value, r["C"].fields["T"].quantity.unit) == (32, "ro", "degC")
    assert (r["W"].width_bits, r["W"].access.value, r["NOTHING"].width_bits) == (40, "wo", 0)
    assert (r["NOTHING"].write.effect, r["NOTHING"].volatile) == (WriteEffect.UNKNOWN, True)  # no default of registers
    memory = contract.memories["MEM"]
    assert isinstance(memory, Memory)
    assert (memory.page_bytes, memory.write_cycle_ms, memory.persistence.value) == (8, 5, "nonvolatile")
    assert contract.params["shunt"].default == Decimal("0.01")
    assert contract.params["free"].default is None
    pieces, narrow = r["PIECES"], r["NARROW"]
    assert (pieces.access_bits, pieces.piece_bytes, pieces.shared_bytes) == (16, 2, None)
    assert (narrow.access_bits, narrow.piece_bytes, narrow.shared_bytes) == (32, None, 4)
    shown = r["SHOWN"].write.verify
    assert shown is not None
    assert (shown.register, shown.consumes) == ("EV", True)
    assert [(r[n].is_confidential, r[n].sensitive) for n in ("SECRET", "PARTLY", "EV")] == [
        (True, True),
        (True, True),
        (False, False),
    ]
    pec = parse(reg("R", 0), access=I2C + "pec = true\n").access.i2c
    assert pec is not None
    assert pec.pec
    lines = parse(*LINES, access=LINE).registers
    assert (lines["V"].phrase, lines["CLS"].phrase) == (Phrase("V?", "V {value}"), Phrase(None, "*CLS"))
    assert (lines["V"].width_bits, lines["T"].width_bits, lines["V"].space) == (32, 1024, Space.LINE)
    assert parse(reg("R", 0, "width_bits = 16"), access=CRC_BUS).registers["R"].crc == Crc(0x31, 0xFF, 2)


@pytest.mark.parametrize("word", ["sensitive", "confidential"])
def test_register_when_it_reaches_a_secret_under_another_name_then_it_is_sensitive_too(word: str) -> None:
    secret = reg("S", 4, f"width_bits = 32\n{word} = true")
    registers = parse(secret, reg("LOW", 7), reg("NEXT", 8), reg("WHOLE", 0, "width_bits = 64")).registers
    assert {name for name, register in registers.items() if register.sensitive} == {"S", "LOW", "WHOLE"}
    memory = "[memories.M]\noffset = 0\nsize_bytes = 16\nread = { effects = ['none'], provenance = 'generated' }\n"
    (told,) = faults_of(secret, memory)
    assert f"memories.M: holds a {word} register; found S" in told


# --- wrong values -----------------------------------------------------------------------------------------------

ST = reg("ST", 9, "[registers.ST.fields]\nN = { bits = '3:0' }", "ro")
POP = reg("POP", 8, reading("pop"), "ro")
WRONG: dict[str, tuple[str, str, str, str]] = {
    # text, place, rule, cure
    "state elsewhere": (reg("R", 0, reading("none", ", state = 'ST'")), "read.state", "effect claim", "claim"),
    "state unknown": (
        reg("R", 0, reading("claim", ", state = 'SX'")),
        "read.state",
        "no such register",
        "a declared name",
    ),
    "state effectful": (reg("R", 0, reading("claim", ", state = 'POP'")), "read.state", "side effects", "none"),
    "reseek elsewhere": (reg("R", 0, reading("pop", ", reseek = 'R'")), "read.reseek", "effect advance", "advance"),
    "reseek unwritable": (reg("R", 0, reading("advance", ", reseek = 'ST'")), "read.reseek", "be written", "writable"),
    "ack_by unknown": (reg("R", 0, reading("none", ", ack_by = ['NO']")), "read.ack_by", "no such register", ""),
    "ack_by says nothing of it": (
        reg("R", 0, reading("none", ", ack_by = ['ST']")),
        "read.ack_by",
        "does not say that it affects this register",
        "affects with R",
    ),
    "element of no fifo": (
        reg("R", 0, reading("clear", ", element_bytes = 2")),
        "element_bytes",
        "effect pop",
        "left out",
    ),
    "element of half a read": (
        reg("R", 0, "width_bits = 16\n" + reading("pop", ", element_bytes = 3"), "ro"),
        "element_bytes",
        "no whole number of reads",
        "a multiple of 2",
    ),
    "element of more than a burst": (
        reg("R", 0, reading("pop", ", element_bytes = 6, max_burst = 4"), "ro"),
        "element_bytes",
        "does not fit max_burst",
        "takes one element",
    ),
    "element of nothing": (reg("R", 0, reading("pop", ", element_bytes = 0")), "element_bytes", "", "1"),
    "gate does not fit": (reg("R", 0, reading("none", ", gate = 'ST.N = 16'")), "read.gate", "does not fit", "a value"),
    "gate of nothing": (reg("R", 0, reading("none", ", gate = 'ST.N = x'")), "read.gate", "no such register", ""),
    "gate effectful": (reg("R", 0, writing("store", ", gate = 'POP = 1'")), "write.gate", "side effects", "none"),
    "triggers unknown": (reg("R", 0, writing("store", ", triggers = ['NO']")), "write.triggers", "no such", ""),
    "commit_by unwritable": (
        reg("R", 0, writing("store", ", commit_by = 'ST'")),
        "commit_by",
        "be written",
        "writable",
    ),
    "resets what": (reg("R", 0, writing("store", ", resets = 'bus'")), "resets", "vocabulary", "device"),
    "absolute store": (reg("R", 0, writing("store", ", absolute = true")), "absolute", "only a command", "command"),
    "busy without interval": (
        reg("R", 0, writing("store", ", busy_retry = { attempts = 2 }")),
        "interval_ms",
        "missing",
        "",
    ),
    "busy once": (
        reg("R", 0, writing("store", ", busy_retry = { attempts = 1, interval_ms = 1 }")),
        "attempts",
        "",
        "2",
    ),
    "delay of nothing": (reg("R", 0, writing("store", ", delay_after_ms = 0")), "delay_after_ms", "", "1"),
    "rate of nothing": (reg("R", 0, writing("store", ", max_rate_per_min = 0")), "max_rate_per_min", "", "1"),
    "tolerance of a signal": (
        reg("R", 0, writing("store", ", verify = { by = 'signal', tolerance = 1 }, signals = ['ST']")),
        "tolerance",
        "only a read-back",
        "read_back",
    ),
    "verify by what": (reg("R", 0, writing("store", ", verify = 'echo'")), "verify", "vocabulary", "read_back"),
    "set_at no place": (reg("R", 0, "set_at = 'X'"), "set_at", "no such place", "an offset"),
    "set_at a flag": (reg("R", 0, "set_at = true"), "set_at", "no such place", "an offset"),
    "set_at too far": (reg("R", 0, "set_at = 256\nclear_at = 3"), "also_at", "does not fit offset_bytes", "0xff"),
    "set_at not stored": (reg("R", 0, f"set_at = 2\n{writing('pulse')}"), "set_at", "bits that are stored", "store"),
    "shift too far": (reg("R", 0, "set_at = { at = 2, shift = 64 }"), "shift", "", "63"),
    "mask half of a pulse": (
        reg("R", 0, f"width_bits = 16\nwrite_mask_bits = '15:8'\n{writing('pulse')}"),
        "write_mask_bits",
        "bits that are stored",
        "store",
    ),
    "mask no half": (
        reg("R", 0, "width_bits = 16\nwrite_mask_bits = '15:9'"),
        "write_mask_bits",
        "a bit for each",
        "15:8",
    ),
    "parts and bits": (reg("R", 0, "fields.F = { bits = 0, parts = ['1:0'] }"), "bits", "exclude each other", "one of"),
    "parts overlap": (reg("R", 0, "fields.F = { parts = ['3:0', '4:2'] }"), "parts", "overlap", "no other part"),
    "parts no list": (reg("R", 0, "fields.F = { parts = 3 }"), "parts[0]", "not a bit range", "0 to 7"),
    "parts too far": (reg("R", 0, "fields.F = { parts = ['8:7'] }"), "parts[0]", "not a bit range", "0 to 7"),
    "fields share": (
        reg(
            "R",
            0,
            "fields.A = { bits = '3:0' }\nfields.B = { bits = '3:2', alternate = true }\nfields.C = { bits = 0 }",
        ),
        "fields.C",
        "overlaps",
        "alternate",
    ),
    "volatile what": (reg("R", 0, "volatile = 'maybe'"), "volatile", "", ""),
    "linear16 alone": (
        reg("R", 0, "width_bits = 16\nencoding = 'linear16'"),
        "exponent_from",
        "linear16",
        "nothing else",
    ),
    "exponent of nothing": (reg("R", 0, "exponent_from = 'ST'"), "exponent_from", "linear16", "nothing else"),
    "exponent unknown": (
        reg("R", 0, "width_bits = 16\nencoding = 'linear16'\nexponent_from = 'SX'"),
        "exponent_from",
        "no such register",
        "a declared name",
    ),
    "linear11 of a byte": (reg("R", 0, "encoding = 'linear11'"), "encoding", "16 bits", "16"),
    "bytes": (reg("R", 0, "encoding = 'bytes'"), "encoding", "what a memory holds", "memories"),
    "signed float": (
        reg("R", 0, "width_bits = 32\nencoding = 'float32'\nsigned = true"),
        "signed",
        "does not go",
        "left out",
    ),
    "scales alone": (reg("R", 0, "scales = { 0 = 1 }"), "scale_from", "a scale for each value", "neither"),
    "scale_from alone": (reg("R", 0, "scale_from = 'ST'"), "scale_from", "a scale for each value", "neither"),
    "two scales": (reg("R", 0, "scale = 2\nscale_from = 'ST'\nscales = { 0 = 1 }"), "scale", "two scales", "scale"),
    "scales of what": (reg("R", 0, "scale_from = 'ST'\nscales = { low = 1, 1 = 1 }"), "low", "not a raw value", "0x03"),
    "scale of zero": (reg("R", 0, "scale = 0"), "scale", "loses the value", "another"),
    "param unknown": (reg("R", 0, "scale_param = 'x'"), "scale_param", "no such parameter", "params"),
    "set without line": ("[registers.V]\nquery = 'V?'\naccess = 'ro'\n", "query", "no lines", "access.line"),
    "space named": (reg("R", 0, "space = 'command'"), "space", "not a space that is named", "commands"),
    "line named": (reg("R", 0, "space = 'line'"), "space", "not a space that is named", "query"),
    "command both": (
        "[commands.C]\ncode = 1\nread_bytes = 1\nwrite_bytes = 1\n",
        "read_bytes",
        "has one value",
        "memories",
    ),
    "command too long": ("[commands.C]\ncode = 1\nwrite_bytes = 8\noffset_bytes = 1\n", "write_bytes", "too long", "8"),
    "command code": ("[commands.C]\ncode = 256\ncode_bytes = 1\n", "code", "", "255"),
    "command without code": ("[commands.C]\ncode_bytes = 1\n", "code", "missing", ""),
    "memory page": ("[memories.M]\nsize_bytes = 10\npage_bytes = 4\n", "page_bytes", "does not divide", "10"),
    "memory busy": ("[memories.M]\nsize_bytes = 8\nbusy = 'NO'\n", "busy", "no such register", ""),
    "memory too large": ("[memories.M]\nsize_bytes = 257\n", "size_bytes", "does not fit", "256"),
    "memory code": ("[memories.M]\nsize_bytes = 8\nread_code = 3\n", "access", "is only read", "ro"),
    "memory name": ("[memories.'M[0]']\nsize_bytes = 8\n", "M[0]", "not a name", "brackets"),
    "memory no read": (
        f"[memories.M]\nsize_bytes = 8\naccess = 'wo'\n{reading('none')}\n",
        "read",
        "no read",
        "read table",
    ),
    "memory register": ("[memories.R]\nsize_bytes = 8\n" + reg("R", 0), "memories.R", "has this name", "its own"),
    "memory bank": ("[memories.M]\nsize_bytes = 8\nbank = 'B'\n", "bank", "not supported", ""),
    "group name": (reg("R", 0) + reg("S", 1) + "[groups.R]\nmembers = ['R', 'S']\n", "groups.R", "has this name", ""),
    "unlock": (reg("R", 0, writing("store", ", unlock = 'X'")), "unlock", "no such sequence", ""),
    "consumes": (
        reg("R", 0, writing("store", ", verify = { by = 'none', consumes = true }")),
        "consumes",
        "speaks of the register",
        "by = read_back",
    ),
    "consumes what is clean": (
        reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'ST', consumes = true }")),
        "write.verify",
        "consumes nothing",
        "left out",
    ),
    "consumes what triggers": (
        reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'T', consumes = true }"))
        + reg("T", 1, "read = { effects = ['pop', 'trigger'] }", "ro"),
        "write.verify",
        "not only to consume",
        "pop",
    ),
    "consumes nobody": (
        reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'NO', consumes = true }")),
        "write.verify",
        "no such register",
        "declared",
    ),
    "consumes a field": (
        reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'T.F', consumes = true }"))
        + reg("T", 1, reading("clear") + "\nfields.F = { bits = 0 }", "ro"),
        "write.verify",
        "takes the whole register",
        "with mask",
    ),
    "consumes what cannot be read": (
        reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'T', consumes = true }"))
        + reg("T", 1, "", "wo"),
        "write.verify",
        "cannot be read",
        "readable",
    ),
    "consumes in another bank": (
        reg("R", 0, writing("store", ", verify = { by = 'read_back', register = 'T', consumes = true }"))
        + reg("T", 1, reading("clear") + "\nbank = 'B'", "ro")
        + reg("P", 2)
        + "[banks.B]\nselect = [{ register = 'P', value = 1 }]\n",
        "write.verify",
        "another bank",
        "beside it",
    ),
    "access of 12 bits": (reg("R", 0, "access_bits = 12"), "access_bits", "not a width", "8, 16, 32, 64"),
    "pieces of a part": (reg("R", 0, "width_bits = 24\naccess_bits = 16"), "width_bits", "no whole accesses", "16"),
    "pieces of 12 bits": (reg("R", 0, "width_bits = 12\naccess_bits = 16", "ro"), "access_bits", "whole bytes", "8"),
    "pieces that pop": (
        reg("R", 0, "width_bits = 16\naccess_bits = 8\n" + reading("pop"), "ro"),
        "access_bits",
        "which of its accesses",
        "latch",
    ),
    "pieces that push": (
        reg("R", 0, "width_bits = 16\naccess_bits = 8\n" + writing("push")),
        "access_bits",
        "which of its accesses",
        "bits",
    ),
    "pieces that trigger": (
        reg("R", 0, "width_bits = 16\naccess_bits = 8\n" + writing("store", ", triggers = ['ST']")),
        "access_bits",
        "which of its accesses",
        "bits",
    ),
    "pieces of a selector": (
        reg("R", 0, "width_bits = 16\naccess_bits = 8") + "[banks.B]\nselect = [{ register = 'R', value = 1 }]\n",
        "access_bits",
        "one access",
        "16",
    ),
    "pieces of an alias": (
        reg("R", 0, "width_bits = 16\naccess_bits = 8\nalso_at = [4]"),
        "access_bits",
        "not beside",
        "left out",
    ),
    "wide and written": (reg("R", 0, "access_bits = 32"), "access_bits", "take its neighbours along", "as a field"),
    "wide and across": (
        reg("R", 1, "width_bits = 16\naccess_bits = 32", "ro").replace("offset = 1", "offset = 3"),
        "access_bits",
        "no one access reaches",
        "inside one access",
    ),
    "confidential gate": (
        reg("R", 0, reading("none", ", gate = 'S.F = 1'"))
        + reg("S", 1, "fields.F = { bits = 0 }\nconfidential = true"),
        "read.gate",
        "would show a confidential value",
        "everybody",
    ),
    "confidential signal": (
        reg("R", 0, writing("store", ", signals = ['S']")) + reg("S", 1, "confidential = true"),
        "write.signals",
        "would show a confidential value",
        "everybody",
    ),
    "confidential selector": (
        reg("S", 1, "confidential = true") + "[banks.B]\nselect = [{ register = 'S', value = 1 }]\n",
        "select",
        "would show a confidential value",
        "",
    ),
    "confidential identity": (
        reg("S", 1, "confidential = true") + "[identity]\nregister = 'S'\nequals = 1\n",
        "identity",
        "would show a confidential value",
        "",
    ),
    "confidential assumption": (
        reg("S", 1, "confidential = true\nfields.F = { bits = 0 }")
        + "[[assume]]\nregister = 'S'\nfield = 'F'\nvalue = 0\nfor = 'offsets'\n",
        "assume",
        "would show a confidential value",
        "",
    ),
    "bank restore": (
        reg("R", 0) + "[banks.B]\nrestore = 'now'\nselect = [{ register = 'R', value = 1 }]\n",
        "restore",
        "not in the vocabulary",
        "prior",
    ),
    "bank value": (
        reg("R", 0) + "[banks.B]\nselect = [{ register = 'R', value = 3, mask = 1 }]\n",
        "value",
        "outside the mask",
        "0x1",
    ),
}


@pytest.mark.parametrize(("text", "place", "rule", "cure"), WRONG.values(), ids=list(WRONG))
def test_key_when_its_value_is_wrong_then_a_fault_names_place_rule_and_cure(
    text: str, place: str, rule: str, cure: str
) -> None:
    said = faults_of(text, ST, POP)
    assert any(place in line and rule in line and cure in line for line in said), said
    assert all("wanted" in line for line in said)


BUSES: dict[str, tuple[str, str]] = {
    "no bus": ("[access]\n", "no bus"),
    "mapped and i2c": ("[access]\n[access.mapped]\n[access.i2c]\n", "on a bus with addresses"),
    "crc of 16 bits": (I2C + "crc = { width_bits = 16, poly = 1, word_bytes = 2 }\n", "not supported"),
    "crc without a polynomial": (I2C + "crc = { word_bytes = 2 }\n", "missing"),
    "crooked address": (I2C.replace("0x20", "0x21") + "offset_bits_in_address = 1\n", "bits of the offset"),
    "spi mode": (SPI + "mode = 4\n", "mode"),
    "spi word": (SPI + "word_bits = 12\n", "not a word of SPI here"),
    "spi marks": (SPI + "read_mask = 0xc0\nincrement_mask = 0x40\n", "a bit of read_mask too"),
    "spi mark beyond the offset": (SPI + "read_mask = 0x1000000\n", "read_mask"),
    "mdio address": ("[access]\n[access.mdio]\naddresses = [32]\n", "addresses"),
    "long terminator": (LINE + "terminator = '\\r\\n\\n'\n", "not what ends a line"),
    "no terminator": (LINE + "terminator = 3\n", "not what ends a line"),
    "function": (MODBUS + "functions = [7]\n", "function not supported"),
    "increment": (I2C.replace("'both'", "'some'"), "not in the vocabulary"),
    "framing": (I2C + "read = 'again'\n", "not in the vocabulary"),
    "pec": (I2C + "pec = 1\n", "wrong type"),
    "pieces where the pointer stays": (I2C.replace("'both'", "'none'"), "only where every byte has an offset"),
}


@pytest.mark.parametrize(("access", "rule"), BUSES.values(), ids=list(BUSES))
def test_access_when_it_is_wrong_then_a_fault_says_it(access: str, rule: str) -> None:
    said = faults_of(reg("R", 0, "width_bits = 16\naccess_bits = 8"), access=access)
    assert any(rule in line for line in said), said


PLACES: dict[str, tuple[str, str, str]] = {
    "coil without modbus": (I2C, "[registers.C]\nspace = 'coil'\noffset = 0\naccess = 'rw'\n", "needs [access.modbus]"),
    "input written": (MODBUS, "[registers.C]\nspace = 'discrete'\noffset = 0\naccess = 'rw'\n", "cannot be written"),
    "no function to read": (
        MODBUS + "functions = [5]\n",
        "[registers.C]\nspace = 'coil'\noffset = 0\naccess = 'rw'\n",
        "no function to read",
    ),
    "no function to write": (
        MODBUS + "functions = [1]\n",
        "[registers.C]\nspace = 'coil'\noffset = 0\naccess = 'rw'\n",
        "no function to write",
    ),
    "past the end": (MODBUS, "[registers.C]\nspace = 'coil'\noffset = 65530\nwidth_bits = 8\naccess = 'rw'\n", "65535"),
    "alias of a coil": (
        MODBUS,
        "[registers.C]\nspace = 'coil'\noffset = 0\naccess = 'rw'\nalso_at = [3]\n",
        "are bytes",
    ),
    "command on modbus": (MODBUS, "[commands.C]\ncode = 1\n", "no commands"),
    "memory on modbus": (MODBUS, "[memories.M]\nsize_bytes = 8\n", "no memory"),
    "line cannot be asked": (LINE, "[registers.V]\nset = 'V {value}'\naccess = 'rw'\n", "query do not fit"),
    "line asked and write-only": (LINE, "[registers.V]\nquery = 'V?'\naccess = 'wo'\n", "do not fit"),
    "line with two values": (LINE, "[registers.V]\nset = 'V {value} {value}'\naccess = 'wo'\n", "stands once"),
    "line with a line end": (LINE, '[registers.V]\nset = "V\\n"\naccess = "wo"\n', "not a line of text"),
    "lines of an array": (
        LINE,
        "[registers.V]\nquery = 'V?'\naccess = 'ro'\ncount = 2\nstride_bytes = 1\n",
        "no offset to count",
    ),
    "memory on a line": (LINE, reg("R", 0), "no memory space"),
    "crc of half a word": (CRC_BUS, "[commands.C]\ncode = 1\nread_bytes = 3\n", "CRCs are not counted"),
    "nothing at all": (I2C, "", "no register"),
}


@pytest.mark.parametrize(("access", "text", "rule"), PLACES.values(), ids=list(PLACES))
def test_register_when_its_bus_cannot_have_it_then_a_fault_says_it(access: str, text: str, rule: str) -> None:
    said = faults_of(text, access=access)
    assert any(rule in line for line in said), said


def test_register_with_crc_when_it_is_no_whole_word_then_refused() -> None:
    faults_of(reg("R", 0), access=CRC_BUS)


def test_gate_when_its_value_is_below_zero_then_refused() -> None:
    faults_of(reg("R", 0, reading("none", ", gate = 'ST.N = -1'")), ST)


# --- judged -----------------------------------------------------------------------------------------------------


def write_of(contract: Contract, name: str, value: int, named: frozenset[str] | None = None) -> WriteJudgement:
    judged = judge_write(contract, contract.registers[name], value, named)
    assert isinstance(judged, WriteJudgement), judged
    return judged


JUDGED: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (writing("store"), {"repeat": When.YES, "approval": ()}),
    "triggers": (writing("store", ", triggers = ['R']"), {"repeat": When.NO, "approval": ()}),
    "resets": (writing("store", ", resets = 'device'"), {"repeat": When.NO, "resets": True}),
    "readdresses": (
        writing("store", ", readdresses = true"),
        {"repeat": When.NO, "readdresses": True, "approval": ("the device answers elsewhere afterwards",)},
    ),
    "irreversible": (
        writing("store", ", irreversible = true"),
        {"repeat": When.NO, "approval": ("the write cannot be undone",)},
    ),
    "command": (writing("command"), {"repeat": When.NO}),
    "absolute": (writing("command", ", absolute = true"), {"repeat": When.YES}),
    "absolute, triggers": (writing("command", ", absolute = true, triggers = ['R']"), {"repeat": When.NO}),
    "commit": (writing("store", ", commit_by = 'R'"), {"not_before": ("R",)}),
    "busy": (
        writing("store", ", busy_retry = { attempts = 9, interval_ms = 2 }"),
        {"busy_retry": BusyRetry(9, 2)},
    ),
    "delay and rate": (
        writing("store", ", delay_after_ms = 7, max_rate_per_min = 3"),
        {"delay_after_ms": 7, "max_rate_per_min": 3},
    ),
    "gate": (writing("store", ", gate = 'R = 1'"), {"gates": ("R = 1",)}),
}


@pytest.mark.parametrize(("rest", "wanted"), JUDGED.values(), ids=list(JUDGED))
def test_write_when_judged_then_the_key_is_in_the_judgement(rest: str, wanted: dict[str, Any]) -> None:
    judged = write_of(parse(reg("R", 0, rest)), "R", 1)
    assert {name: getattr(judged, name) for name in wanted} == wanted


def test_write_when_several_fields_are_touched_then_the_strictest_counts() -> None:
    slow = writing("store", ", busy_retry = { attempts = 2, interval_ms = 9 }, delay_after_ms = 5")
    rare = writing("store", ", busy_retry = { attempts = 4, interval_ms = 1 }, max_rate_per_min = 2")
    fields = f"[registers.R.fields]\nA = {{ bits = '3:0', {slow} }}\nB = {{ bits = '7:4', {rare} }}\n"
    contract = parse(reg("R", 0, fields))
    both = write_of(contract, "R", 0x11)
    assert (both.busy_retry, both.delay_after_ms, both.max_rate_per_min) == (BusyRetry(4, 1), 5, 2)
    only = write_of(contract, "R", 0x01, frozenset({"A"}))
    assert (only.busy_retry, only.delay_after_ms, only.max_rate_per_min) == (BusyRetry(2, 9), 5, None)


def test_read_when_it_may_block_then_never_merged_and_never_polled() -> None:
    contract = parse(reg("R", 0, "may_block = true"), reg("S", 1))
    blocking, plain = (judge_read(contract, (contract.registers[n],)) for n in "RS")
    assert isinstance(blocking, ReadJudgement)
    assert isinstance(plain, ReadJudgement)
    assert (blocking.clean, may_merge(blocking), may_poll(blocking, Owner.EXCLUSIVE)) == (True, False, False)
    assert (may_merge(plain), may_poll(plain, Owner.EXCLUSIVE)) == (True, True)


def test_read_when_another_stands_at_an_alias_then_its_effects_count() -> None:
    contract = parse(reg("R", 0, "also_at = [4]"), reg("POP", 4, reading("pop"), "ro"))
    for name in ("R", "POP"):
        judged = judge_read(contract, (contract.registers[name],))
        assert isinstance(judged, ReadJudgement)
        assert judged.effects == {ReadEffect.POP}


HALVES = "[registers.R.fields]\nHIGH = { bits = '7:4'%s }\nLOW = { bits = '3:0' }\n"
UPDATES: dict[str, tuple[str, str, str, UpdateJudgement | str]] = {
    "plain": ("", "", "rw", UpdateJudgement(True, 0, 0xF0)),
    "write-only": ("", "", "wo", UpdateJudgement(True, 0, 0xF0, shadow=True)),
    "set and clear": ("set_at = 4\nclear_at = 5\n", "", "rw", UpdateJudgement(False, 0, 0, "alias")),
    "toggle": ("toggle_at = 4\n", "", "rw", UpdateJudgement(True, 0, 0, "alias")),
    "toggle, shared": ("toggle_at = 4\nowner = 'shared'\n", "", "rw", "another master"),
    "triggers": ("", ", " + writing("store", ", triggers = ['R']"), "rw", "sets off R"),
    "volatile unsaid": ("", ", volatile = 'unknown'", "rw", "nobody has said"),
    "set and clear of a neighbour that triggers": (
        "set_at = 4\nclear_at = 5\n",
        ", " + writing("store", ", triggers = ['R']"),
        "rw",
        UpdateJudgement(False, 0, 0, "alias"),
    ),
}


@pytest.mark.parametrize(("rest", "high", "access", "wanted"), UPDATES.values(), ids=list(UPDATES))
def test_update_when_judged_then_how_its_value_is_put_together_or_why_not(
    rest: str, high: str, access: str, wanted: UpdateJudgement | str
) -> None:
    contract = parse(reg("R", 0, rest + HALVES % high, access))
    judged = judge_update(contract, contract.registers["R"], frozenset({"LOW"}))
    if isinstance(wanted, str):
        assert isinstance(judged, Refused)
        assert wanted in judged.message
    else:
        assert judged == wanted


def test_update_when_a_neighbour_with_a_constant_neutral_value_triggers_then_refused() -> None:
    contract = parse(reg("R", 0, HALVES % (", " + writing("one_to_clear", ", triggers = ['R']"))))
    assert isinstance(judge_update(contract, contract.registers["R"], frozenset({"LOW"})), Refused)


@pytest.mark.parametrize("toggling", [reading("pop"), "read = { effects = ['unknown'] }"], ids=["pop", "unknown"])
def test_update_by_toggling_when_the_read_is_not_clean_then_refused(toggling: str) -> None:
    contract = parse(reg("R", 0, f"toggle_at = 4\n{toggling}\n" + HALVES % ""))
    assert isinstance(judge_update(contract, contract.registers["R"], frozenset({"LOW"})), Refused)


# --- parameters of a board --------------------------------------------------------------------------------------

SHUNT = (
    reg("WIRED", 1, "scale = '0.1'\nscale_param = 'shunt'\nunit = 'A'\nfields.F = { bits = 0, scale_param = 'shunt' }"),
    reg("PLAIN", 2),
    "[params.shunt]\nmin = '0.001'\nmax = 1\nunit = 'ohm'\n",
    "[memories.M]\noffset = 0x80\nsize_bytes = 8\n",
)
GIVEN: dict[str, tuple[dict[str, Any], str | None]] = {
    "a value": ({"shunt": "0.02"}, None),
    "missing": ({}, "needs it"),
    "too small": ({"shunt": "0.0001"}, "out of range"),
    "too large": ({"shunt": 2}, "out of range"),
    "unknown": ({"shunt": "0.02", "other": 1}, "unknown key"),
}


@pytest.mark.parametrize(("given", "rule"), GIVEN.values(), ids=list(GIVEN))
def test_params_when_the_board_gives_them_then_in_range_or_a_fault(given: dict[str, Any], rule: str | None) -> None:
    faults: list[Fault] = []
    values = read_params(parse(*SHUNT), Table(given, "devices.toy.params", "board.toml", faults))
    if rule is None:
        assert (values, faults) == ({"shunt": Decimal("0.02")}, [])
    else:
        assert any(rule in str(f) for f in faults)


def test_params_when_put_in_then_the_scales_have_them_and_nothing_else_changes() -> None:
    contract = parse(*SHUNT)
    wired = with_params(contract, {"shunt": Decimal("0.02")})
    assert wired.registers["WIRED"].quantity.scale == Decimal("0.002")
    assert wired.registers["WIRED"].fields["F"].quantity.scale == Decimal("0.02")
    assert wired.registers["WIRED"].quantity.scale_param is None
    assert wired.registers["PLAIN"] == contract.registers["PLAIN"]
    assert "M[0:4]" in wired.registers
    assert with_params(contract, {}).registers["WIRED"] == contract.registers["WIRED"]
    assert with_params(parse(reg("R", 0)), {}).params == {}
    assert read_params(contract, None) == {}
    assert read_params(parse("[params.p]\ndefault = 3\n", reg("R", 0)), None) == {"p": Decimal(3)}


# --- the compiled form ------------------------------------------------------------------------------------------


def test_compiled_when_of_another_version_or_no_contract_then_an_error() -> None:
    whole = msgspec.msgpack.decode(encode(Imported(parse(reg("R", 0)), ())))
    whole[0] = 99
    with pytest.raises(ValueError, match="version 99"):
        decode(msgspec.msgpack.encode(whole))
    with pytest.raises(ValueError, match="not a compiled contract"):
        decode(b"nothing")


def test_compiled_when_a_register_has_rare_members_then_only_they_take_room() -> None:
    plain, rare = parse(reg("R", 0)), parse(reg("R", 0, "may_block = true"))
    assert len(encode(Imported(plain, ()))) < len(encode(Imported(rare, ())))
    register: Register = compiled(rare).registers["R"]
    assert register == replace(plain.registers["R"], may_block=True)


LEFT: dict[str, tuple[str, str]] = {
    "bank without a selector": (reg("R", 0) + "[banks.B]\n", "no selector"),
    "assume that does not fit": (
        ST + "[[assume]]\nregister = 'ST'\nfield = 'N'\nvalue = 16\nfor = 'all'\n",
        "does not fit the field",
    ),
    "level that cannot be read": (
        reg("R", 0, reading("pop", ", level = 'W'")) + reg("W", 1, "", "wo"),
        "cannot be read",
    ),
    "verify by a signal that is not there": (reg("R", 0, writing("store", ", verify = 'signal'")), "needs signals"),
}


@pytest.mark.parametrize(("text", "rule"), LEFT.values(), ids=list(LEFT))
def test_reference_when_it_cannot_do_what_is_asked_of_it_then_refused(text: str, rule: str) -> None:
    said = faults_of(text)
    assert any(rule in line for line in said), said
