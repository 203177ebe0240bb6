"""Bad SVD files: each is refused with faults that name what is wrong, and none makes a smaller map or another error."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from hwtool_contracts.importers import svd, svd_xml
from hwtool_contracts.importers.svd import import_svd, parse_svd
from hwtool_contracts.notice import MAX_FAULTS, Findings, TooMany
from hwtool_contracts.toml_reader import Faults
from tests.svd_text import (
    HEAD,
    cluster,
    contract,
    device,
    faults_of,
    field,
    imported,
    peripheral,
    register,
    tags,
)

UNMEASURED = True

GOOD = device(peripheral("P", register("R", 0, "", [field("F")]), register("S", 4)))
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE device [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
)
BODY = GOOD.partition("?>")[2]

DOCUMENT_TYPES = [
    BOMB + BODY.replace("<name>R", "<name>&c;"),
    '<!DOCTYPE device SYSTEM "file:///etc/passwd">' + BODY,
    '<!DOCTYPE device [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + BODY.replace("a toy", "&x;"),
    '<!DOCTYPE device [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>' + BODY,
    "<!DOCTYPE device>" + BODY,
]


@pytest.mark.parametrize("text", DOCUMENT_TYPES, ids=["bomb", "external dtd", "external entity", "parameter", "bare"])
def test_document_type_when_there_then_refused_before_anything_else(text: str) -> None:
    assert len(found := faults_of(text)) == 1
    assert "a document type is not allowed" in found[0]


def test_document_type_when_in_utf_16_then_refused_too() -> None:
    assert "a document type" in faults_of(DOCUMENT_TYPES[1].encode("utf-16"))[0]


def test_entity_when_never_declared_then_not_well_formed() -> None:
    assert "not well-formed XML" in faults_of(GOOD.replace("<name>R", "<name>&foo;R"))[0]


NO_SVD = [
    ("", "not well-formed XML"),
    ("hello", "not well-formed XML"),
    ("\0\0\0\0", "not well-formed XML"),
    ("<svg/>", "not a CMSIS-SVD file"),
    ("<package><device/></package>", "not a CMSIS-SVD file"),
    ("<device><name>X</name></device>", "no peripherals"),
    ("<device/>", "no peripherals"),
    ("<device><peripherals/></device>", "no register"),
    (device(peripheral("P")), "no register"),
    (device(peripheral("P", "<foo/>")), "no register"),
    (GOOD.replace("<device>", '<device xmlns="urn:x">'), "no register"),
    (GOOD + "<device/>", "not well-formed XML"),
    (GOOD + "rubbish", "not well-formed XML"),
    (GOOD.replace("</peripheral>", "", 1), "not well-formed XML"),
    (GOOD.replace("<name>R", "<name>\x01R"), "not well-formed XML"),
    (GOOD.replace("<name>R</name>", "<name>R</nam>"), "not well-formed XML"),
    ('<?xml version="1.0" encoding="klingon"?>' + BODY, "not well-formed XML"),
    ('<?xml version="1.0" encoding="utf-7"?>' + BODY, "not well-formed XML"),
    ('<?xml version="1.0" encoding="gb2312"?>' + BODY, "not well-formed XML"),
]


@pytest.mark.parametrize(("text", "rule"), NO_SVD, ids=[str(i) for i in range(len(NO_SVD))])
def test_file_when_no_svd_then_one_fault_says_so(text: str, rule: str) -> None:
    found = faults_of(text)
    assert len(found) == 1
    assert rule in found[0]


def test_file_when_it_cannot_be_read_then_a_fault(tmp_path: Path) -> None:
    for path in (tmp_path / "none.svd", tmp_path):
        with pytest.raises(Faults, match="cannot be read"):
            import_svd(path)


def test_file_when_it_can_be_read_then_it_is_named_in_the_contract(tmp_path: Path) -> None:
    (tmp_path / "x.svd").write_text(GOOD)
    assert import_svd(tmp_path / "x.svd").contract.source == "x.svd"


def test_file_when_too_large_then_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd_xml, "MAX_FILE_BYTES", 100)
    assert "too large" in faults_of(GOOD)[0]


# encodings


def test_encoding_when_utf_8_is_declared_and_latin_1_is_there_then_a_fault() -> None:
    text = '<?xml version="1.0" encoding="utf-8"?>' + BODY.replace("a toy", "a töy")
    assert "not well-formed XML" in faults_of(text.encode("latin-1"))[0]
    late = '<?xml version="1.0" encoding="utf-8"?>' + BODY.replace("<name>F", "<description>ö</description><name>F")
    assert "not well-formed XML" in faults_of(late.encode("latin-1"))[0]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii"])
def test_encoding_when_declared_rightly_then_read(encoding: str) -> None:
    word = "toy" if encoding == "ascii" else "töy"
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + BODY.replace("a toy", word)
    assert parse_svd(text.encode(encoding), "x").contract.title == word


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("declared", ['<?xml version="1.0" encoding="utf-16"?>', '<?xml version="1.0"?>', ""])
def test_encoding_when_utf_16_with_a_mark_then_read(encoding: str, declared: str) -> None:
    text = declared + device(peripheral("A", register("Rö")), peripheral("B", base=0, derived="A")).partition("?>")[2]
    mark = b"" if encoding == "utf-16" else "\ufeff".encode(encoding)
    assert list(parse_svd(mark + text.encode(encoding), "x").contract.registers) == ["A.Rö", "B.Rö"]


def test_encoding_when_the_mark_lies_then_a_fault() -> None:
    assert "not UTF-16 as its mark says" in faults_of(b"\xff\xfe" + b"<\0d\0\x00\xd8\x00")[0]
    assert "not well-formed XML" in faults_of(b"\xff\xfe" + GOOD.encode()[:100])[0]


def test_encoding_when_utf_8_with_a_mark_then_read() -> None:
    assert "P.R" in parse_svd(b"\xef\xbb\xbf" + GOOD.encode(), "x").contract.registers


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_derived_name_when_written_otherwise_in_xml_then_found(encoding: str) -> None:
    name, reference = ("A", "&#65;") if encoding == "utf-8" else ("Ä", "Ä")
    text = device(peripheral(name, register("R")), peripheral("B", base=0, derived=reference))
    text = text.replace('version="1.0"', f'version="1.0" encoding="{encoding}"')
    assert "B.R" in parse_svd(text.encode(encoding), "x").contract.registers


# truncation


SMALL = device(
    peripheral("A", register("R", 0, "", [field("F")]), register("S%s", 4, tags(dim=2, dimIncrement=4))),
    peripheral("B", base=0x100, derived="A"),
    peripheral("C", cluster("K", register("T")), base=0x200),
)


def test_file_when_cut_anywhere_then_faults_and_never_a_smaller_map() -> None:
    data = SMALL.rstrip().encode()
    assert len(parse_svd(data, "x").contract.registers) == 7
    for cut in range(len(data)):
        with pytest.raises(Faults):
            parse_svd(data[:cut], "x")


def test_large_file_when_cut_anywhere_then_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd_xml, "CHUNK_BYTES", 64)
    data = SMALL.rstrip().encode()
    for cut in range(0, len(data), 7):
        with pytest.raises(Faults):
            parse_svd(data[:cut], "x")
    assert len(parse_svd(data, "x").contract.registers) == 7


# circles and missing bases


CIRCLES = {
    "peripherals": device(peripheral("A", register("R"), derived="B"), peripheral("B", register("S"), derived="A")),
    "three peripherals": device(
        peripheral("A", register("R"), derived="B"),
        peripheral("B", register("S"), derived="C"),
        peripheral("C", register("T"), derived="A"),
    ),
    "registers": device(peripheral("P", register("A", derived="B"), register("B", derived="A"))),
    "registers of two peripherals": device(
        peripheral("P", register("A", derived="Q.B")), peripheral("Q", register("B", derived="P.A"))
    ),
    "clusters": device(peripheral("P", cluster("A", derived="B"), cluster("B", register("R"), derived="A"))),
    "containment": device(peripheral("P", cluster("A", register("R"), cluster("B", derived="A")))),
    "deep containment": device(peripheral("P", cluster("A", register("R"), cluster("B", cluster("C", derived="P.A"))))),
    "containment through two peripherals": device(
        peripheral("P", cluster("A", register("R"), cluster("D", derived="Q.A"))),
        peripheral("Q", cluster("A", register("R"), cluster("E", derived="P.A")), base=0),
    ),
    "containment in a sibling": device(
        peripheral("P", cluster("A", cluster("X", derived="B")), cluster("B", register("R"), cluster("Y", derived="A")))
    ),
    "fields": device(
        peripheral("P", register("R", 0, "", [field("A", derived="B"), field("B", derived="A")])),
    ),
}


@pytest.mark.parametrize("case", list(CIRCLES))
def test_derivation_when_it_goes_in_a_circle_then_a_fault_with_its_place(case: str) -> None:
    found = faults_of(CIRCLES[case])
    assert found
    assert all("derivedFrom goes in a circle" in fault for fault in found)
    assert all(fault.startswith("toy.svd: ") for fault in found)


OWN_ENUM = '<enumeratedValues derivedFrom="E"><name>E</name></enumeratedValues>'
MISSING = {
    "peripheral": (device(peripheral("A", register("R"), derived="B")), "A: derivedFrom leads nowhere; found B"),
    "itself": (device(peripheral("A", register("R"), derived="A")), "A: derivedFrom leads nowhere"),
    "empty": (device(peripheral("A", register("R"), derived="")), "A: derivedFrom leads nowhere"),
    "register": (device(peripheral("P", register("R", derived="X"))), "P.R: derivedFrom leads nowhere; found X"),
    "register itself": (device(peripheral("P", register("R", derived="R"))), "P.R: derivedFrom leads nowhere"),
    "path": (
        device(peripheral("P", register("R", derived="Q.X")), peripheral("Q", register("S"))),
        "P.R: derivedFrom leads nowhere; found Q.X",
    ),
    "longer path": (
        device(peripheral("P", register("R", derived="P.S.T.U"), register("S"))),
        "P.R: derivedFrom leads nowhere",
    ),
    "another kind": (
        device(peripheral("P", register("R", derived="C"), cluster("C", register("S")))),
        "P.R: derivedFrom leads nowhere; found C",
    ),
    "a peripheral for a register": (device(peripheral("P", register("R", derived="P"))), "P.R: derivedFrom leads"),
    "cluster": (device(peripheral("P", cluster("C", register("R"), derived="D"))), "P.C: derivedFrom leads nowhere"),
    "field": (
        device(peripheral("P", register("R", 0, "", [field("F", derived="G")]))),
        "P.R.F: derivedFrom leads nowhere; found G",
    ),
    "enumeration": (
        device(peripheral("P", register("R", 0, "", [field("F", "[0:0]", '<enumeratedValues derivedFrom="E"/>')]))),
        "P.R.F: derivedFrom leads nowhere; found E",
    ),
    "enumeration of itself": (
        device(
            peripheral(
                "P",
                register("R", 0, "", [field("F", "[0:0]", OWN_ENUM)]),
            )
        ),
        "P.R.F: derivedFrom leads nowhere; found E",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(MISSING))
def test_derivation_when_it_leads_nowhere_then_a_fault_with_its_place(case: str) -> None:
    text, wanted = MISSING[case]
    found = faults_of(text)
    assert any(wanted in fault for fault in found), found


def test_derivation_when_a_chain_is_too_long_then_a_fault() -> None:
    chain = [register(f"R{i}", i, derived=f"R{i + 1}") for i in range(2000)]
    assert "nested too deeply" in faults_of(device(peripheral("P", *chain, register("R2000"))))[0]


# nesting


def test_clusters_when_nested_too_deeply_then_a_fault() -> None:
    opening = "<cluster><name>C</name><addressOffset>0</addressOffset>"
    text = device(peripheral("P", opening * 5000 + register("R") + "</cluster>" * 5000))
    assert "nested too deeply" in faults_of(text)[0]


def test_clusters_when_nested_deeply_then_still_read() -> None:
    opening = "<cluster><name>C</name><addressOffset>4</addressOffset>"
    made = contract(peripheral("P", opening * 100 + register("R") + "</cluster>" * 100, base=0))
    assert next(iter(made.registers.values())).offset == 400


@pytest.mark.parametrize("tag", ["a", "peripheral", "cluster", "derivedFrom"])
def test_elements_when_nested_without_end_then_faults(tag: str) -> None:
    assert faults_of(f"<device><peripherals>{f'<{tag}>' * 50_000}")
    assert faults_of(f"<device><peripherals>{f'<{tag}>' * 20_000}{f'</{tag}>' * 20_000}</peripherals></device>")


# parts that are missing, wrong or too many


R = register
BROKEN = {
    "no name, peripheral": (peripheral("", R("R")), "a peripheral without a name"),
    "no name, cluster": (peripheral("P", cluster("", R("R"))), "P: a cluster without a name"),
    "no name, register": (peripheral("P", R("")), "P: a register without a name"),
    "no name, field": (peripheral("P", R("R", 0, "", [field("")])), "P.R: a field without a name"),
    "no base address": (peripheral("P", R("R"), base=None), "P: <baseAddress> is missing"),
    "base address": (peripheral("P", R("R"), base="here"), "P: <baseAddress> is no number; found here"),
    "no offset": (peripheral("P", R("R", None)), "P.R: <addressOffset> is missing"),
    "offset": (peripheral("P", R("R", "-4")), "P.R: <addressOffset> is no number; found -4"),
    "no offset, cluster": (peripheral("P", cluster("C", R("R"), offset=None)), "P.C: <addressOffset> is missing"),
    "size no number": (peripheral("P", R("R", 0, tags(size="wide"))), "P.R: <size> is no number; found wide"),
    "size empty": (peripheral("P", R("R", 0, "<size/>")), "P.R: <size> is no number"),
    "size huge": (peripheral("P", R("R", 0, tags(size=65))), "size is not supported; found 65; wanted 1 to 64"),
    "reset": (peripheral("P", R("R", 0, tags(resetValue="0xZZ"))), "<resetValue> is no number; found 0xZZ"),
    "reset mask": (peripheral("P", R("R", 0, tags(resetMask="#12"))), "<resetMask> is no number"),
    "size of peripheral": (peripheral("P", R("R"), more=tags(size="x")), "P: <size> is no number"),
    "dim zero": (peripheral("P", R("R%s", 0, tags(dim=0, dimIncrement=4))), "P.R%s: dim out of range; found 0"),
    "dim huge": (peripheral("P", R("R%s", 0, tags(dim=65537, dimIncrement=4))), "dim out of range; found 65537"),
    "dim enormous": (peripheral("P", R("R%s", 0, tags(dim="1T", dimIncrement=4))), "dim out of range"),
    "dim no number": (peripheral("P", R("R%s", 0, tags(dim="x", dimIncrement=4))), "<dim> is no number; found x"),
    "no increment": (peripheral("P", R("R%s", 0, tags(dim=2))), "<dimIncrement> is missing"),
    "dim, no place": (peripheral("P", R("R", 0, tags(dim=2, dimIncrement=4))), "dim without a place for the index"),
    "place, no dim": (peripheral("P", R("R%s")), "a place for an index, and no dim"),
    "place, no dim, field": (peripheral("P", R("R", 0, "", [field("F%s")])), "a place for an index, and no dim"),
    "place, no dim, peripheral": (peripheral("P%s", R("R")), "P%s: a place for an index, and no dim"),
    "dim index": (
        peripheral("P", R("R%s", 0, tags(dim=2, dimIncrement=4, dimIndex="A"))),
        "dimIndex does not fit dim; found A",
    ),
    "dim index twice": (
        peripheral("P", R("R%s", 0, tags(dim=2, dimIncrement=4, dimIndex="A,A"))),
        "dimIndex does not fit dim",
    ),
    "field no bits": (peripheral("P", R("R", 0, "", [field("F", None)])), "P.R.F: a field without bits"),
    "field one end": (peripheral("P", R("R", 0, "", [field("F", None, tags(lsb=0))])), "a field without bits"),
    "field backwards": (peripheral("P", R("R", 0, "", [field("F", "[0:3]")])), "a field without bits; found [0:3]"),
    "field no width": (
        peripheral("P", R("R", 0, "", [field("F", None, tags(bitOffset=3, bitWidth=0))])),
        "a field without bits",
    ),
    "field range": (peripheral("P", R("R", 0, "", [field("F", "[3]")])), "bitRange cannot be read; found [3]"),
    "field range words": (peripheral("P", R("R", 0, "", [field("F", "[a:b]")])), "bitRange cannot be read"),
    "field offset": (
        peripheral("P", R("R", 0, "", [field("F", None, tags(bitOffset="x"))])),
        "<bitOffset> is no number",
    ),
    "constraint backwards": (
        peripheral(
            "P",
            R("R", 0, "<writeConstraint><range><minimum>3</minimum><maximum>2</maximum></range></writeConstraint>"),
        ),
        "writeConstraint: minimum above maximum; found 3 > 2",
    ),
    "two registers": (peripheral("P", R("R"), R("R", 4)), "P.R: two registers of one name"),
    "two by array": (
        peripheral("P", R("R1", 8), R("R%s", 0, tags(dim=2, dimIncrement=4))),
        "P.R1: two registers of one name",
    ),
    "two in clusters": (peripheral("P", cluster("C", R("R")), cluster("C", R("R"), offset=8)), "P.C.R: two registers"),
    "two peripherals": (peripheral("P", R("R")) + peripheral("P", R("S")), "P: two peripherals of one name"),
    "two peripherals by array": (
        peripheral("P1", R("R")) + peripheral("P%s", R("S"), more=tags(dim=2, dimIncrement=4)),
        "P1: two peripherals of one name",
    ),
    "two fields": (peripheral("P", R("R", 0, "", [field("F"), field("F", "[1:1]")])), "P.R.F: two fields of one name"),
    "address": (peripheral("P", R("R"), base="0x10000000000000000"), "address out of range"),
    "address by array": (
        peripheral("P", R("R%s", 0, tags(dim=2, dimIncrement="0x10000000000000000"))),
        "address out of range",
    ),
    "peripheral in another": (
        peripheral("P", R("R"), more=peripheral("Q", R("S"), base=0)),
        "a <peripheral> out of place",
    ),
    "foreign element": ("<foo/>" + peripheral("P", R("R")), "a <peripheral> out of place"),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_part_when_broken_then_the_fault_names_it(case: str) -> None:
    text, wanted = BROKEN[case]
    found = faults_of(device(text))
    assert any(wanted in fault for fault in found), found


def test_peripherals_when_there_are_two_tables_then_refused() -> None:
    text = GOOD.replace("</device>", f"<peripherals>{peripheral('Q', R('R'))}</peripherals></device>")
    assert "a <peripheral> out of place" in faults_of(text)[0]


def test_peripheral_when_behind_the_table_then_refused_or_left_out() -> None:
    extra = f"<vendorExtensions>{peripheral('X', R('Y'), base=0)}</vendorExtensions>"
    text = GOOD.replace("</device>", extra + "</device>")
    try:
        found = parse_svd(text.encode(), "x").contract.registers
    except Faults:
        return
    assert "X.Y" not in found


def test_device_defaults_when_behind_the_peripherals_then_a_fault_or_used() -> None:
    text = GOOD.replace("</device>", "<access>read-only</access></device>")
    try:
        found = parse_svd(text.encode(), "x")
    except Faults:
        return
    assert found.notices or not found.contract.registers["P.S"].access.writable


def test_head_when_a_number_is_wrong_then_a_fault_for_the_device() -> None:
    assert "device: <size> is no number" in faults_of(device(peripheral("P", R("R")), head=HEAD + tags(size="x")))[0]


def test_faults_when_there_are_several_then_all_are_told() -> None:
    found = faults_of(device(peripheral("P", R("A", None), R("B", "x"), R("C", 0, tags(size=99)))))
    assert len(found) == 3


def test_faults_when_there_are_very_many_then_it_stops() -> None:
    found = faults_of(device(peripheral("P", *[R(f"R{i}", None) for i in range(500)])))
    assert len(found) == MAX_FAULTS


def test_forward_reference_when_it_fails_in_the_end_then_its_faults_come_once() -> None:
    text = device(
        peripheral("B", R("X", None), R("Y", 0, derived="A.R"), derived="A"),
        peripheral("A", R("R", 4)),
    )
    assert faults_of(text) == ["toy.svd: B.X: <addressOffset> is missing; wanted a decimal, 0x or # number"]


def test_forward_reference_when_resolved_then_its_notices_come_once() -> None:
    found = imported(
        peripheral("B", R("X", 0, tags(readAction="odd")), R("Y", 0, derived="A.R"), base=0),
        peripheral("A", R("R", 4)),
    )
    assert len(found.notices) == 1
    assert list(found.contract.registers) == ["B.X", "B.Y", "A.R"]


# too much


def test_registers_when_too_many_then_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd, "MAX_REGISTERS", 100)
    array = R("R%s", 0, tags(dim=60, dimIncrement=4))
    assert "too large a map" in faults_of(device(peripheral("P", array), peripheral("Q", array)))[0]
    assert faults_of(device(peripheral("P", array))) == []


def test_fields_when_too_many_then_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd, "MAX_FIELDS", 100)
    array = R("R%s", 0, tags(dim=60, dimIncrement=4), [field("F"), field("G", "[1:1]")])
    assert "too large a map" in faults_of(device(peripheral("P", array)))[0]


def test_dims_when_nested_and_huge_then_a_fault_soon() -> None:
    huge = tags(dim=65_536, dimIncrement=4)
    inner = cluster("B%s", R("R%s", 0, huge), more=huge)
    assert "too large a map" in faults_of(device(peripheral("P%s", cluster("A%s", inner, more=huge), more=huge)))[0]


def test_dims_when_nested_and_empty_then_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd, "MAX_REGISTERS", 100)
    some = tags(dim=200, dimIncrement=4)
    empty = cluster("A%s", cluster("B%s", more=some), more=some)
    assert faults_of(device(peripheral("P", R("R"), empty)))


def test_notices_when_there_are_very_many_then_bounded() -> None:
    outside = field("F%s", "[1:0]", tags(dim=1000, dimIncrement=1))
    array = cluster("A%s", R("R", 0, "", [outside]), more=tags(dim=30, dimIncrement=4))
    try:
        found = imported(peripheral("P", array))
    except Faults:
        return
    assert len(found.notices) <= 10_000


def test_derivation_when_siblings_are_long_lists_then_names_are_not_made_to_be_compared() -> None:
    size = 100
    derived = [R(f"D{i}", i, derived="LAST") for i in range(size)]
    lists = [R(f"S{i}_%s", i, tags(dim=900, dimIncrement=0)) for i in range(size)]
    text = device(peripheral("P", *derived, *lists, R("LAST")))
    began_s = time.process_time()
    assert faults_of(text) == []
    assert time.process_time() - began_s < 20  # it was minutes


DIGITS = "9" * 5000
HEX = "0x" + "F" * 5000
LONG_PATTERN = (
    f"<enumeratedValues><enumeratedValue><name>a</name><value>#x{'1' * 20000}</value></enumeratedValue>"
    "</enumeratedValues>"
)
LONG = {
    "decimal size": R("R", 0, tags(size=DIGITS)),
    "decimal offset": R("R", DIGITS),
    "decimal dimIndex": R("R%s", 0, tags(dim=2, dimIncrement=4, dimIndex=f"{DIGITS}-{DIGITS}")),
    "hex size": R("R", 0, tags(size=HEX)),
    "hex dim": R("R%s", 0, tags(dim=HEX, dimIncrement=4)),
    "hex bit": R("R", 0, "", [field("F", None, tags(bitOffset=HEX))]),
    "hex lsb": R("R", 0, "", [field("F", None, tags(lsb=HEX, msb=1))]),
    "hex constraint": R(
        "R", 0, f"<writeConstraint><range>{tags(minimum=HEX, maximum=1)}</range></writeConstraint>"
    ),
    "hex pattern": R(
        "R",
        0,
        "",
        [
            field(
                "F",
                "[0:0]",
                LONG_PATTERN,
            )
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(LONG))
def test_number_when_very_long_then_faults(case: str) -> None:
    faults_of(device(peripheral("P", LONG[case])))


def test_hex_address_when_very_long_then_a_fault() -> None:
    assert "is no number" in faults_of(device(peripheral("P", R("R", HEX))))[0]
    assert "is no number" in faults_of(device(peripheral("P", R("R", 0, tags(resetValue=HEX)))))[0]


def test_field_when_enormous_with_a_constraint_then_faults_or_left_out() -> None:
    constraint = "<writeConstraint><range><minimum>0</minimum></range></writeConstraint>"
    text = device(
        peripheral(
            "P", R("R", 0, "", [field("F", None, tags(bitOffset=0, bitWidth="0xFFFFFFFFFFFFFFFF") + constraint)])
        )
    )
    assert len(faults_of(text)) <= 1


def test_findings_when_enough_were_found_then_no_more_is_looked_at() -> None:
    findings = Findings("x")
    with pytest.raises(TooMany):
        for _ in range(MAX_FAULTS + 1):
            findings.fault("p", "r", "f", "w")
    with pytest.raises(Faults) as caught:
        findings.done()
    assert len(caught.value.faults) == MAX_FAULTS


# fuzz


SEED = 20261130
WORDS = [
    "65536", "0x", "#1", "-1", "9" * 20, "0xFFFFFFFFFFFFFFFF", "%s", "[%s]", "A,B", "0-3", "read-only", "oneToClear",
    "clear", "", " ", "1T", "P", "P.R", "R", "F", "true", "[7:0]", "64", "0",
]  # fmt: skip
PARTS = [
    tags(dim=3, dimIncrement=4), tags(dimIndex="A,B,C"), tags(size=8), tags(access="writeOnce"), register("Z", 8),
    cluster("Y", register("Z")), field("Z", "[9:8]"), tags(readAction="clear"), tags(modifiedWriteValues="oneToSet"),
    "<fields>", "</fields>", "<registers>", "</registers>", "<![CDATA[x]]>", "<!-- x -->", "&amp;", "&#0;", "<a/>",
    "<enumeratedValues><name>E</name><enumeratedValue><name>a</name><value>#1x</value></enumeratedValue>"
    "</enumeratedValues>", ' derivedFrom="P.R"', ' derivedFrom="A"', ' derivedFrom="K"',
]  # fmt: skip
RICH = device(
    peripheral(
        "A",
        register("R", 0, tags(size=16, access="read-write", resetValue=3), [field("F", "[3:0]"), field("G", "[7:4]")]),
        cluster("K", register("T%s", 0, tags(dim=2, dimIncrement=4)), offset=0x40),
        register("X", 0x80, derived="R"),
    ),
    peripheral("B", register("Y", 4, derived="A.R"), base=0x1000, derived="A"),
)
SEEDS = [SMALL, GOOD, *[RICH] * 4, *CIRCLES.values()]


def mutated(source: str, chance: random.Random) -> str:
    """The text with one to three things put in, taken out, doubled or exchanged."""
    text = source
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.randint(0, 40))
        match chance.randrange(6):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:at] + text[at:end] + text[at:]
            case 2:
                opening = text.find(">", at) + 1
                text = text[:opening] + chance.choice(WORDS) + text[max(text.find("<", opening), opening) :]
            case 3:
                opening = text.find(">", at) + 1
                text = text[:opening] + chance.choice(PARTS) + text[opening:]
            case 4:
                closing = text.find(">", at)
                text = text[:closing] + chance.choice(PARTS[-3:]) + text[max(closing, 0) :]
            case _:
                text = text[:at] + chr(chance.randrange(1, 0x250)) + text[end:]
    return text


def outcome(data: bytes) -> str:
    """What becomes of a file: `contract` or `faults`; anything else is raised."""
    try:
        found = parse_svd(data, "fuzz.svd")
    except Faults as error:
        assert error.faults
        return "faults"
    assert found.contract.registers
    return "contract"


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small maps alone, so that no mutation is slow."""
    monkeypatch.setattr(svd, "MAX_REGISTERS", 2000)
    monkeypatch.setattr(svd, "MAX_FIELDS", 20_000)


@pytest.mark.timeout(60)
def test_file_when_mutated_then_a_contract_or_faults(small_limits: None) -> None:
    chance = random.Random(SEED)
    counts = {"contract": 0, "faults": 0}
    for number in range(1500):
        data = mutated(chance.choice(SEEDS), chance).encode("utf-8", "surrogatepass")
        try:
            counts[outcome(data)] += 1
        except BaseException as error:
            raise AssertionError(f"seed {SEED}, mutation {number}: {data!r}") from error
    assert counts["contract"] > 100
    assert counts["faults"] > 100


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200), st.integers(0, 500))
@seed(SEED)
def test_file_when_bytes_are_put_in_then_a_contract_or_faults(junk: bytes, at: int) -> None:
    data = GOOD.encode()
    outcome(data[:at] + junk + data[at:])


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=300))
@seed(SEED)
def test_bytes_when_arbitrary_then_faults(junk: bytes) -> None:
    assert outcome(junk) == "faults"


NAMES = st.sampled_from(["A", "B", "R%s", "C[%s]", "", "x.y"])
NUMBERS = st.sampled_from(["0", "4", "0x10", "65", "#11", "", "x", "1k"])
BASES = st.sampled_from([None, None, "A", "B", "R%s", "P.A", "P.B.A", "Q.A", "R0"])


def _made(kind: str, children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    dims = st.sampled_from(["", "", tags(dim=2, dimIncrement=4), tags(dim=2, dimIncrement=0, dimIndex="A,B")])
    inner = st.lists(children, max_size=3).map("".join)
    if kind == "register":
        return st.builds(
            lambda n, o, m, f, b: register(n, o, m, [f] if f else [], b), NAMES, NUMBERS, dims, inner, BASES
        )
    return st.builds(
        lambda n, o, m, i, b: cluster(n, i, offset=o, more=m, derived=b), NAMES, NUMBERS, dims, inner, BASES
    )


FIELDS = st.builds(field, NAMES, st.sampled_from(["[0:0]", "[7:4]", "[x:y]", None, "[40:39]"]), st.just(""), BASES)
REGISTERS = _made("register", FIELDS)
TREES = st.recursive(REGISTERS, lambda inner: _made("cluster", inner), max_leaves=6)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TREES, min_size=1, max_size=3), st.lists(TREES, max_size=2), BASES)
@seed(SEED)
def test_device_when_put_together_at_random_then_a_contract_or_faults(
    first: list[str], second: list[str], base: str | None
) -> None:
    text = device(peripheral("P", *first, base=0), peripheral("Q", *second, base=0x1000, derived=base and "P"))
    outcome(text.encode())
