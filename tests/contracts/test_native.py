"""The loader: what a file says is what the model holds, and every fault is named, all at once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.library import bundled, bundled_names, find_contract
from hwtool_contracts.model import Encoding, ReadSpec, Space, WriteSpec
from hwtool_contracts.native import load_contract, parse_contract
from hwtool_contracts.toml_reader import Faults

HEAD = """
schema = 1
part = "toy"
vendor = "nobody"
title = "a toy"
source = "the test"
[access]
offset_bytes = 1
byte_order = "big"
[access.i2c]
addresses = [0x20]
auto_increment = "both"
[defaults]
read = { effects = ["none"], provenance = "reviewed", seen = "page", source = "p. 1" }
write = { effect = "store", provenance = "reviewed", seen = "page", source = "p. 1" }
"""
MODBUS = HEAD.replace('[access.i2c]\naddresses = [0x20]\nauto_increment = "both"', "[access.modbus]\nbase = 1")
REG = "[registers.R]\noffset = 0\naccess = 'rw'\n"


def faults_of(text: str) -> list[str]:
    with pytest.raises(Faults) as caught:
        parse_contract(text, "toy.toml")
    return [str(f) for f in caught.value.faults]


def test_bundled_chips_when_loaded_then_each_is_there_and_checked_on_no_part() -> None:
    assert bundled_names() == [
        "adm1272",
        "ads1115",
        "at24c16",
        "at24c32",
        "bme280",
        "ds1338",
        "ds3231",
        "emc1413",
        "ethernet_phy_c22",
        "ltc3880",
        "max7310",
        "mcp23017",
        "mpu6050",
        "pca9546",
        "pcf8574",
        "sc16is750",
        "sdm120",
        "sht3x",
        "tdk_genesys_gh",
        "tmp102",
        "tmp105",
        "tmp421",
        "w25q128",
        "waveshare_relay_8ch",
    ]
    for name in bundled_names():
        contract = bundled(name)
        assert contract.part == name
        assert not contract.on_a_part  # at best a model was looked at
        assert contract.digest.startswith("sha256:")


def test_bundled_chips_when_an_effect_is_reviewed_then_it_names_what_was_seen() -> None:
    for name in bundled_names():
        for register in bundled(name).registers.values():
            specs: list[ReadSpec | WriteSpec] = [register.read, register.write]
            specs += [s for f in register.fields.values() for s in (f.read, f.write)]
            for spec in specs:
                if spec.provenance.basis is Basis.REVIEWED:
                    assert spec.provenance.seen in ("page", "driver")
                    assert spec.provenance.source


def test_bundled_when_asked_for_a_near_miss_then_the_name_is_suggested() -> None:
    with pytest.raises(Faults, match="mcp23017"):
        bundled("mcp23018")


def test_contract_when_asked_for_by_name_or_path_then_found(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(HEAD + REG)
    assert find_contract("mine.toml", tmp_path).part == "toy"
    assert find_contract("tmp102").part == "tmp102"


def test_load_when_the_file_is_missing_or_not_text_then_one_fault(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="cannot be read"):
        load_contract(tmp_path / "none.toml")
    (tmp_path / "junk.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Faults, match="cannot be read"):
        load_contract(tmp_path / "junk.toml")


def test_parse_when_not_toml_then_the_line_is_named() -> None:
    assert "line 2" in faults_of("schema = 1\npart = ?")[0]


def test_digest_when_only_comments_change_then_it_stays() -> None:
    first = parse_contract(HEAD + REG, "a.toml").digest
    assert parse_contract("# a remark\n" + HEAD + REG, "b.toml").digest == first
    assert parse_contract(HEAD + REG.replace("rw", "ro"), "c.toml").digest != first


def test_register_when_nothing_is_said_then_reads_and_writes_are_unknown() -> None:
    bare = HEAD[: HEAD.index("[defaults]")]
    register = parse_contract(bare + REG, "t").registers["R"]
    assert register.read.effects == {ReadEffect.UNKNOWN}
    assert register.read.provenance.basis is Basis.SILENT
    assert register.write.effect is WriteEffect.UNKNOWN


def test_effect_when_stated_without_provenance_then_it_is_asserted() -> None:
    register = parse_contract(HEAD + REG + "read = { effects = ['pop'] }", "t").registers["R"]
    assert register.read.provenance.basis is Basis.ASSERTED


def test_effect_when_sources_conflict_then_it_is_unknown() -> None:
    text = HEAD + REG + "read = { effects = ['none'], provenance = 'conflicting' }\n"
    text += "write = { effect = 'store', provenance = 'conflicting' }"
    register = parse_contract(text, "t").registers["R"]
    assert register.read.effects == {ReadEffect.UNKNOWN}
    assert register.write.effect is WriteEffect.UNKNOWN


def test_arrays_and_clusters_when_loaded_then_they_are_expanded() -> None:
    text = HEAD + "[registers.A]\noffset = 0x10\naccess = 'rw'\ncount = 3\nstride_bytes = 2\n"
    text += "[clusters.CH]\noffset = 0x40\ncount = 2\nstride_bytes = 0x10\n[clusters.CH.registers.CTRL]\n"
    text += "offset = 4\naccess = 'rw'\nread = { effects = ['none'], provenance='generated', gate = 'EN' }\n"
    text += "[clusters.CH.registers.EN]\noffset = 0\naccess = 'rw'\n[clusters.ONE]\noffset = 0x80\n"
    text += "[clusters.ONE.registers.X]\noffset = 1\naccess = 'rw'\n"
    contract = parse_contract(text, "t")
    assert [(n, r.offset) for n, r in contract.registers.items()] == [
        ("A[0]", 0x10),
        ("A[1]", 0x12),
        ("A[2]", 0x14),
        ("CH[0].CTRL", 0x44),
        ("CH[0].EN", 0x40),
        ("CH[1].CTRL", 0x54),
        ("CH[1].EN", 0x50),
        ("ONE.X", 0x81),
    ]


def test_modbus_register_when_loaded_then_offset_is_the_wire_number_and_width_sixteen() -> None:
    text = MODBUS + "[registers.R]\noffset = 5\nspace = 'holding'\naccess = 'rw'\ncount = 2\nstride_bytes = 4\n"
    registers = parse_contract(text, "t").registers
    assert [(r.offset, r.width_bits, r.space) for r in registers.values()] == [
        (4, 16, Space.HOLDING),
        (6, 16, Space.HOLDING),
    ]


def test_modbus_cluster_when_loaded_then_its_stride_counts_bytes() -> None:
    text = MODBUS + "[clusters.C]\noffset = 0\ncount = 2\nstride_bytes = 8\n"
    text += "[clusters.C.registers.R]\noffset = 1\nspace = 'input'\naccess = 'ro'\n"
    assert [r.offset for r in parse_contract(text, "t").registers.values()] == [0, 4]


def test_field_when_it_inherits_then_limits_of_the_whole_register_do_not_come_along() -> None:
    text = HEAD + REG + "write = { effect = 'store', limits = { min = 0x80 }, mask = 0xF0, values = { a = 0x80 } }\n"
    text += "fields.F = { bits = '5:4' }"
    register = parse_contract(text, "t").registers["R"]
    assert register.write.limits is not None
    assert register.fields["F"].write.limits is None
    assert register.fields["F"].write.mask is None
    assert register.fields["F"].write.values == {}


def test_quantities_when_loaded_then_numbers_stay_exact() -> None:
    text = HEAD + REG + "fields.T = { bits = '7:4', signed = true, scale = 0.0625, add = -1, unit = 'V' }"
    quantity = parse_contract(text, "t").registers["R"].fields["T"].quantity
    assert quantity.encoding is Encoding.TWOS_COMPLEMENT
    assert (quantity.scale, quantity.add, quantity.unit) == (Decimal("0.0625"), Decimal(-1), "V")


def test_float_limits_when_loaded_then_they_are_decimals_in_the_unit() -> None:
    text = MODBUS + "[registers.R]\noffset = 1\nspace='holding'\nwidth_bits = 32\nencoding = 'float32'\n"
    text += "access = 'rw'\nwrite = { effect = 'store', limits = { min = -1.5, max = 2 } }"
    limits = parse_contract(text, "t").registers["R"].write.limits
    assert limits is not None
    assert (limits.minimum, limits.maximum) == (Decimal("-1.5"), Decimal(2))


def test_verify_and_signals_when_loaded_then_every_form_is_understood() -> None:
    text = HEAD + "[registers.S]\noffset = 9\naccess = 'ro'\nfields.B = { bits = 0 }\n" + REG
    text += "write = { effect = 'command', window_ms = 900, approval = 'required', "
    text += "verify = { by = 'read_back', register = 'S', mask = 1 }, "
    text += "signals = ['S', { register = 'S.B', equals = 1 }, { register = 'S', delta = -1 }] }"
    spec = parse_contract(text, "t").registers["R"].write
    assert spec.verify is not None
    assert (spec.verify.by, spec.verify.register, spec.verify.mask) == ("read_back", "S", 1)
    assert [(s.register, s.delta, s.equals) for s in spec.signals] == [
        ("S", None, None),
        ("S.B", None, 1),
        ("S", -1, None),
    ]
    assert (spec.window_ms, spec.approval) == (900, "required")


BROKEN = {
    "schema": (HEAD.replace("schema = 1", "schema = 2") + REG, "unknown schema"),
    "no part": (HEAD.replace('part = "toy"', "") + REG, "part: key is missing"),
    "empty part": (HEAD.replace('"toy"', '" "') + REG, "empty string"),
    "no registers": (HEAD, "no register"),
    "no access": ("schema = 1\npart='p'\nvendor='v'\ntitle='t'\nsource='s'\n" + REG, "table is missing"),
    "no bus": (HEAD.replace("[access.i2c]", "[access.i2d]") + REG, "no bus"),
    "unknown key": (HEAD + REG + "ofset = 1", "unknown key; found ofset; wanted offset?"),
    "unknown word": (HEAD + REG + "read = { effects = ['pops'] }", "did you mean pop?"),
    "empty effects": (HEAD + REG + "read = { effects = [] }", "empty list"),
    "no effects": (HEAD + REG + "read = { level = 'R' }", "effects: key is missing"),
    "none with others": (HEAD + REG + "read = { effects = ['none', 'pop'] }", "stands alone"),
    "none by silence": (HEAD + REG + "read = { effects = ['none'], provenance = 'silent' }", "cannot rest on"),
    "store by heuristic": (HEAD + REG + "write = { effect = 'store', provenance = 'heuristic' }", "cannot rest on"),
    "reviewed unseen": (HEAD + REG + "read = { effects = ['pop'], provenance = 'reviewed' }", "without evidence"),
    "seen how": (HEAD + REG + "read = { effects = ['pop'], seen = 'memory' }", "page or driver"),
    "bad access": (HEAD + REG.replace("rw", "wr"), "one of ro, wo, rw"),
    "address high": (HEAD.replace("0x20", "0x80") + REG, "integers from 0x8 to 0x77"),
    "bad increment": (HEAD.replace('"both"', '"some"') + REG, "read, write, both or none"),
    "bad framing": (HEAD.replace('"both"', '"both"\nread = "x"') + REG, "restart or stop"),
    "bool as integer": (HEAD + REG.replace("= 0", "= true"), "wrong type"),
    "offset too big": (HEAD + REG.replace("= 0", "= 0x100"), "does not fit offset_bytes"),
    "reset too big": (HEAD + REG + "reset = 0x100", "out of range"),
    "bits outside": (HEAD + REG + "fields.F = { bits = 8 }", "not a bit range"),
    "bits backwards": (HEAD + REG + "fields.F = { bits = '0:3' }", "not a bit range"),
    "bits words": (HEAD + REG + "fields.F = { bits = 'x:y' }", "not a bit range"),
    "fields overlap": (HEAD + REG + "fields.F = { bits = '3:0' }\nfields.G = { bits = 3 }", "overlaps another field"),
    "reserved how": (HEAD + REG + "fields.F = { bits = 0, reserved = 'x' }", "keep, zero or one"),
    "values range": (HEAD + REG + "fields.F = { bits = 0, values = { a = 2 } }", "out of range"),
    "array half": (HEAD + REG + "count = 2", "count and stride_bytes"),
    "array huge": (HEAD + REG + "count = 1000000\nstride_bytes = 1", "out of range"),
    "cluster half": (HEAD + REG + "[clusters.C]\noffset = 0\ncount = 2\n", "count and stride_bytes"),
    "same name": (HEAD + REG + "[clusters.C]\noffset=0\n[clusters.C.registers.X]\noffset=1\naccess='rw'\n"
                  "[registers.'C.X']\noffset=3\naccess='rw'", "two registers of one name"),
    "space without modbus": (HEAD + REG + "space = 'holding'", "needs [access.modbus]"),
    "memory without i2c": (MODBUS + REG, "no memory space"),
    "coil that cannot be read": (MODBUS.replace("base = 1", "base = 0\nfunctions = [3]") + REG + "space = 'coil'",
                                 "functions with 1"),
    "discrete input written": (MODBUS.replace("base = 1", "base = 0") + REG + "space = 'discrete'", "wanted ro"),
    "modbus width": (MODBUS + REG.replace("= 0", "= 1") + "space = 'holding'\nwidth_bits = 8", "multiple of 16"),
    "modbus stride": (MODBUS + REG.replace("= 0", "= 1") + "space='holding'\ncount=2\nstride_bytes=3", "even number"),
    "modbus below base": (MODBUS + REG + "space = 'holding'", "below the base"),
    "modbus top": (MODBUS + REG.replace("= 0", "= 0x10001") + "space = 'holding'", "ends above 65535"),
    "modbus no base": (MODBUS.replace("base = 1", "max_registers = 4") + REG + "space='holding'", "key is missing"),
    "modbus function": (MODBUS.replace("base = 1", "base = 0\nfunctions = [7]") + REG + "space='input'", "some of 1"),
    "modbus unreadable": (MODBUS.replace("base = 1", "base = 0\nfunctions = [4, 6]") + REG + "space='holding'",
                          "no function to read"),
    "modbus unwritable": (MODBUS.replace("base = 1", "base = 0\nfunctions = [3]") + REG + "space='holding'",
                          "no function to write"),
    "input rw": (MODBUS + REG.replace("= 0", "= 1") + "space = 'input'", "cannot be written"),
    "float width": (HEAD + REG + "encoding = 'float32'", "has 32 bits"),
    "signed float": (HEAD + REG + "width_bits = 32\nencoding = 'float32'\nsigned = true", "does not go with"),
    "linear11 of 8 bits": (HEAD + REG + "encoding = 'linear11'", "width_bits = 16"),
    "bytes of a register": (HEAD + REG + "encoding = 'bytes'", "a [memories.NAME]"),
    "linear16 without exponent": (HEAD + REG + "width_bits = 16\nencoding = 'linear16'", "exponent_from with linear16"),
    "encoding unheard": (HEAD + REG + "encoding = 'grey'", "not in the vocabulary"),
    "zero scale": (HEAD + REG + "scale = 0", "loses the value"),
    "nan scale": (HEAD + REG + "scale = nan", "finite number"),
    "word scale": (HEAD + REG + "scale = 'abc'", "finite number"),
    "limits order": (HEAD + REG + "write = { effect = 'store', limits = { min = 2, max = 1 } }", "above max"),
    "approval how": (HEAD + REG + "write = { effect = 'store', approval = 'maybe' }", "none or required"),
    "verify how": (HEAD + REG + "write = { effect = 'store', verify = 'hope' }", "read_back, signal or none"),
    "consumes itself": (HEAD + REG + "write = { effect = 'store', verify = { by = 'read_back', consumes = true } }",
                        "speaks of the register that shows it"),
    "verify nothing": (HEAD + REG + "write = { effect = 'store', verify = 'signal' }", "needs signals"),
    "verify write-only": (HEAD + REG.replace("rw", "wo") + "write = { effect = 'store', verify = 'read_back' }",
                          "cannot be read back"),
    "verify consuming": (HEAD + REG + "read = { effects = ['clear'] }\nwrite = { effect = 'store', verify='read_back' }",
                         "would have side effects; found clear"),
    "write of ro": (HEAD + REG.replace("rw", "ro") + "write = { effect = 'store' }", "access ro has no write"),
    "read of wo": (HEAD + REG.replace("rw", "wo") + "read = { effects = ['pop'] }", "access wo has no read"),
    "write of ro field": (HEAD + REG + "fields.F = { bits = 0, access = 'ro', write = { effect = 'store' } }",
                          "access ro has no write"),
    "signals type": (HEAD + REG + "write = { effect = 'store', signals = 1 }", "a list of names"),
    "signals member": (HEAD + REG + "write = { effect = 'store', signals = [1] }", "a name or a table"),
    "signals both": (HEAD + REG + "write = { effect = 'store', signals = [{ register = 'R', delta = 1, equals = 1 }] }",
                     "exclude each other"),
    "default unsourced": (HEAD.replace(', seen = "page", source = "p. 1" }', " }").replace("reviewed", "generated") + REG,
                          "is silence"),
    "affects nobody": (HEAD + REG + "read = { effects = ['pop'], affects = ['RR'] }", "no such register or field"),
    "level unclean": (HEAD + REG + "read = { effects = ['pop'], level = 'R' }", "its read has side effects"),
    "peek unreadable": (HEAD + REG + "read = { effects = ['pop'], peek = 'W' }\n[registers.W]\noffset=1\naccess='wo'",
                        "cannot be read"),
    "no bank": (HEAD + REG + "bank = 'B'", "no such bank"),
    "empty bank": (HEAD + REG + "[banks.B]\nselect = []", "no selector"),
    "bank restore": (HEAD + REG + "[banks.B]\nselect=[{register='R', value=1}]\nrestore=[1]", "wrong type"),
    "bank restore word": (HEAD + REG + "[banks.B]\nselect=[{register='R', value=1}]\nrestore='x'", "not in the vocabulary"),
    "bank mask": (HEAD + REG + "[banks.B]\nselect=[{register='R', value=2, mask=1}]", "bits outside the mask"),
    "bank wide": (HEAD + REG + "[banks.B]\nselect=[{register='R', value=2, mask=0x1FF}]", "wider than the register"),
    "bank nobody": (HEAD + REG + "[banks.B]\nselect=[{register='Q', value=2}]", "no such register"),
    "bank unfit": (HEAD + REG + "volatile = true\n[banks.B]\nselect=[{register='R', value=1}]", "cannot select a bank"),
    "group alone": (HEAD + REG + "[groups.G]\nmembers = ['R']", "at least two"),
    "group name": (HEAD + REG + "[groups.R]\nmembers = ['R', 'R']", "a register has this name"),
    "group how": (HEAD + REG + "[groups.G]\nmembers = ['R', 'R']\ntransfer = 'all'", "one or each"),
    "group nobody": (HEAD + REG + "[groups.G]\nmembers = ['R', 'Q']", "no such register"),
    "group gap": (HEAD + REG + "[registers.Q]\noffset=2\naccess='rw'\n[groups.G]\nmembers=['R','Q']\ntransfer='one'",
                  "not contiguous"),
    "group stuck": (HEAD.replace('"both"', '"none"') + REG + "[registers.Q]\noffset=1\naccess='rw'\n[groups.G]\n"
                    "members=['R','Q']\ntransfer='one'", "does not move its pointer"),
    "group banks": (HEAD + REG + "[registers.Q]\noffset=1\naccess='rw'\nbank='B'\n[banks.B]\n"
                    "select=[{register='R', value=1}]\n[groups.G]\nmembers=['R','Q']", "spaces or banks differ"),
    "assume nobody": (HEAD + REG + "[[assume]]\nregister='R'\nfield='F'\nvalue=0\nfor='x'", "no such register"),
    "assume wide": (HEAD + REG + "fields.F={bits=0}\n[[assume]]\nregister='R'\nfield='F'\nvalue=2\nfor='x'",
                    "does not fit the field"),
    "identity nobody": (HEAD + REG + "[identity]\nregister = 'ID'", "no such register"),
    "table as word": (HEAD.replace("[access.i2c]", "i2c = 3").replace('addresses = [0x20]\nauto_increment = "both"', ""), "a table"),
    "register as word": ("registers.R = 3\n" + HEAD, "a table"),
    "assume as word": ("assume = [1]\n" + HEAD + REG, "a table"),
    "strings": (HEAD + REG + "read = { effects = ['pop'], affects = [1] }", "a list of strings"),
}  # fmt: skip


def test_register_when_nobody_says_its_byte_order_then_a_fault_hc031() -> None:
    silent, wide = HEAD.replace('byte_order = "big"\n', ""), REG + "width_bits = 16\n"
    (told,) = faults_of(silent + wide)
    assert "registers.R.byte_order: nobody says in which order its 2 bytes come" in told
    assert parse_contract(silent + REG, "toy.toml").registers["R"].width_bits == 8  # one byte has no order
    assert parse_contract(silent + wide + "byte_order = 'little'\n", "toy.toml").registers["R"].byte_order == "little"


@pytest.mark.parametrize("case", list(BROKEN))
def test_file_when_it_breaks_a_rule_then_the_fault_names_it(case: str) -> None:
    text, wanted = BROKEN[case]
    found = faults_of(text)
    assert any(wanted in f for f in found), found


def test_file_when_it_breaks_many_rules_then_all_are_listed_with_their_places() -> None:
    text = HEAD + "[registers.A]\noffset = -1\naccess = 'xx'\nwidth = 8\n[registers.B]\naccess = 'rw'\nreset = 999\n"
    found = faults_of(text)
    for place in (
        "registers.A.offset",
        "registers.A.access",
        "registers.A.width",
        "registers.B.offset",
        "registers.B.reset",
    ):
        assert any(f"toy.toml: {place}:" in f for f in found), (place, found)
