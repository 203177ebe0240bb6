"""The importer of CMSIS-SVD: what each word becomes, who inherits what, and where everything stands."""

from __future__ import annotations

import pytest

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.importers.svd_words import indices, number, number_of_pattern
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.model import Access, ByteOrder, Limits, MappedAccess, Persistence, Space
from hwtool_contracts.toml_reader import Faults
from tests.svd_text import (
    HEAD,
    cluster,
    contract,
    device,
    faults_of,
    field,
    imported,
    one_field,
    one_register,
    peripheral,
    register,
    rules,
    tags,
)

# words


READ_WORDS = [
    ("clear", ReadEffect.CLEAR),
    ("set", ReadEffect.SET),
    ("modify", ReadEffect.MODIFY),
    ("modifyExternal", ReadEffect.MODIFY_EXTERNAL),
    (" clear\n", ReadEffect.CLEAR),
]


@pytest.mark.parametrize("level", ["register", "field"])
@pytest.mark.parametrize(("word", "effect"), READ_WORDS, ids=[repr(w) for w, _ in READ_WORDS])
def test_read_action_when_stated_then_asserted_as_the_table_says(level: str, word: str, effect: ReadEffect) -> None:
    said = tags(readAction=word)
    spec = one_register(said).read if level == "register" else one_field(said).read
    assert spec.effects == {effect}
    assert spec.provenance.basis is Basis.ASSERTED
    assert spec.provenance.source == "toy.svd"
    assert spec.provenance.seen is None


WRITE_WORDS = [
    ("oneToClear", WriteEffect.ONE_TO_CLEAR),
    ("oneToSet", WriteEffect.ONE_TO_SET),
    ("oneToToggle", WriteEffect.ONE_TO_TOGGLE),
    ("zeroToClear", WriteEffect.ZERO_TO_CLEAR),
    ("zeroToSet", WriteEffect.ZERO_TO_SET),
    ("zeroToToggle", WriteEffect.ZERO_TO_TOGGLE),
    ("clear", WriteEffect.CLEAR),
    ("set", WriteEffect.SET),
    ("modify", WriteEffect.UNKNOWN),
    (" oneToClear\n", WriteEffect.ONE_TO_CLEAR),
]


@pytest.mark.parametrize("level", ["register", "field"])
@pytest.mark.parametrize(("word", "effect"), WRITE_WORDS, ids=[repr(w) for w, _ in WRITE_WORDS])
def test_modified_write_values_when_stated_then_asserted_as_the_table_says(
    level: str, word: str, effect: WriteEffect
) -> None:
    said = tags(modifiedWriteValues=word)
    spec = one_register(said).write if level == "register" else one_field(said).write
    assert spec.effect is effect
    assert spec.provenance.basis is Basis.ASSERTED


def test_effect_words_when_absent_then_unknown_and_silent_and_volatile_unsaid() -> None:
    made = one_register("", [field("F")])
    for place in (made, made.fields["F"]):
        assert place.read.effects == {ReadEffect.UNKNOWN}
        assert place.write.effect is WriteEffect.UNKNOWN
        assert place.read.provenance.basis is place.write.provenance.basis is Basis.SILENT
        assert (place.volatile, place.volatile_unsaid) == (True, True)


UNHEARD = [
    ("readAction", "pop", "not a readAction of the format"),
    ("readAction", "Clear", "not a readAction of the format"),
    ("readAction", "", "not a readAction of the format"),
    ("modifiedWriteValues", "oneToFly", "not a modifiedWriteValues of the format"),
    ("modifiedWriteValues", "ONETOCLEAR", "not a modifiedWriteValues of the format"),
]


@pytest.mark.parametrize(("tag", "word", "rule"), UNHEARD, ids=[f"{t}={w}" for t, w, _ in UNHEARD])
@pytest.mark.parametrize("level", ["register", "field"])
def test_effect_word_when_unheard_of_then_unknown_with_a_notice(level: str, tag: str, word: str, rule: str) -> None:
    said = f"<{tag}>{word}</{tag}>"
    more, fields = (said, []) if level == "register" else ("", [field("F", "[0:0]", said)])
    found = imported(peripheral("P", register("R", 0, more, fields)))
    assert rules(found) == [rule]
    assert found.notices[0].place == ("P.R" if level == "register" else "P.R.F")
    made = found.contract.registers["P.R"]
    place = made if level == "register" else made.fields["F"]
    assert place.read.effects == {ReadEffect.UNKNOWN}
    assert place.write.effect is WriteEffect.UNKNOWN


@pytest.mark.parametrize("tag", ["readAction", "modifiedWriteValues"])
def test_effect_word_when_unheard_of_then_it_is_no_silence(tag: str) -> None:
    made = one_register(f"<{tag}>popAndFly</{tag}>")
    spec = made.read if tag == "readAction" else made.write
    assert spec.provenance.basis is not Basis.SILENT


ACCESS_WORDS = [
    ("read-only", Access.RO),
    ("write-only", Access.WO),
    ("read-write", Access.RW),
    ("writeOnce", Access.W1),
    ("read-writeOnce", Access.RW1),
    (" read-only ", Access.RO),
]


@pytest.mark.parametrize("level", ["device", "peripheral", "cluster", "register", "field"])
@pytest.mark.parametrize(("word", "access"), ACCESS_WORDS, ids=[repr(w) for w, _ in ACCESS_WORDS])
def test_access_when_stated_at_a_level_then_registers_and_fields_have_it(level: str, word: str, access: Access) -> None:
    said = {one: tags(access=word) if one == level else "" for one in ("device", "peripheral", "cluster", "register")}
    inner = register("R", 0, said["register"], [field("F", "[0:0]", tags(access=word) if level == "field" else "")])
    around = peripheral("P", cluster("C", inner, more=said["cluster"]), more=said["peripheral"])
    made = contract(around, head=HEAD + said["device"]).registers["P.C.R"]
    assert made.access is access
    assert made.fields["F"].access is access


ILLEGAL = ["read", "write", "rw", "read/write", "Read-Only", "READ-WRITE", "", "none"]


@pytest.mark.parametrize("word", ILLEGAL, ids=[repr(w) for w in ILLEGAL])
@pytest.mark.parametrize("level", ["register", "field"])
def test_access_when_illegal_then_none_with_a_notice_and_never_rw(level: str, word: str) -> None:
    said = f"<access>{word}</access>"
    fields = [field("F", "[0:0]", said if level == "field" else "")]
    found = imported(peripheral("P", register("R", 0, said if level == "register" else "", fields)))
    made = found.contract.registers["P.R"]
    assert made.fields["F"].access is Access.NONE
    assert made.access is Access.NONE
    assert "not an access of the format" in rules(found)


def test_access_when_nobody_states_it_then_rw_and_unknown() -> None:
    assert one_register().access is Access.RW


@pytest.mark.parametrize(
    ("accesses", "union"),
    [
        (["read-only", "write-only"], Access.RW),
        (["read-only", "read-only"], Access.RO),
        (["write-only", "writeOnce"], Access.WO),
        (["nonsense", "read-only"], Access.RO),
        (["nonsense"], Access.NONE),
        (["writeOnce", "writeOnce"], Access.W1),
    ],
    ids=str,
)
def test_access_when_only_fields_state_it_then_the_register_has_their_union(accesses: list[str], union: Access) -> None:
    fields = [field(f"F{i}", f"[{i}:{i}]", tags(access=word)) for i, word in enumerate(accesses)]
    assert one_register("", fields).access is union


NARROWED = [
    ("read-only", "read-write", Access.RO, True),
    ("read-only", "write-only", Access.NONE, True),
    ("write-only", "read-write", Access.WO, True),
    ("read-write", "read-only", Access.RO, False),
    ("read-write", "write-only", Access.WO, False),
    ("read-write", "writeOnce", Access.W1, False),
    ("read-writeOnce", "read-write", Access.RW, False),
]


@pytest.mark.parametrize(("outer", "inner", "access", "noticed"), NARROWED, ids=[f"{o},{i}" for o, i, _, _ in NARROWED])
def test_field_access_when_the_register_states_one_then_no_more_than_both_allow(
    outer: str, inner: str, access: Access, noticed: bool
) -> None:
    fields = [field("F", "[0:0]", tags(access=inner))]
    found = imported(peripheral("P", register("R", 0, tags(access=outer), fields)))
    assert found.contract.registers["P.R"].fields["F"].access is access
    assert rules(found) == (["a field allows more than its register"] if noticed else [])


@pytest.mark.parametrize("word", ["writeOnce", "read-writeOnce"])
def test_write_once_when_access_says_it_then_the_write_effect_says_it_too(word: str) -> None:
    made = one_register(tags(access=word), [field("F"), field("G", "[1:1]", tags(access=word))])
    assert made.write.effect is WriteEffect.WRITE_ONCE
    assert made.write.provenance.basis is Basis.ASSERTED
    assert {f.write.effect for f in made.fields.values()} == {WriteEffect.WRITE_ONCE}


def test_write_once_when_it_also_modifies_then_unknown_and_asserted_with_a_notice() -> None:
    said = tags(access="writeOnce", modifiedWriteValues="oneToClear")
    found = imported(peripheral("P", register("R", 0, said)))
    write = found.contract.registers["P.R"].write
    assert (write.effect, write.provenance.basis) == (WriteEffect.UNKNOWN, Basis.ASSERTED)
    assert rules(found) == ["write once, and modifies what is written"]
    field_said = imported(peripheral("P", register("R", 0, "", [field("F", "[0:0]", said)])))
    assert field_said.contract.registers["P.R"].fields["F"].write.effect is WriteEffect.UNKNOWN


def test_write_once_when_the_register_says_it_and_the_field_modifies_then_unknown() -> None:
    made = one_field(tags(modifiedWriteValues="oneToClear"), tags(access="writeOnce"))
    assert made.write.effect is WriteEffect.UNKNOWN


def test_write_once_when_the_field_is_narrowed_then_it_is_still_said() -> None:
    made = one_field(tags(access="read-writeOnce"), tags(access="write-only"))
    assert made.write.effect is WriteEffect.WRITE_ONCE


# inheritance of effects


def test_effects_when_the_register_states_them_then_fields_inherit_and_may_override() -> None:
    made = one_register(
        tags(modifiedWriteValues="oneToClear", readAction="modify"),
        [field("A"), field("B", "[1:1]", tags(modifiedWriteValues="oneToSet", readAction="clear"))],
    )
    one, other = made.fields["A"], made.fields["B"]
    assert one.read.effects == {ReadEffect.MODIFY}
    assert other.read.effects == {ReadEffect.CLEAR}
    assert (one.write.effect, other.write.effect) == (WriteEffect.ONE_TO_CLEAR, WriteEffect.ONE_TO_SET)


def test_effects_when_only_a_field_states_them_then_the_register_stays_silent() -> None:
    made = one_register("", [field("A", "[0:0]", tags(readAction="clear"))])
    assert made.read.provenance.basis is Basis.SILENT
    assert made.fields["A"].read.effects == {ReadEffect.CLEAR}


def test_effects_when_a_direction_is_forbidden_then_nothing_is_said_of_it() -> None:
    made = one_register(tags(access="write-only", readAction="clear"), [field("F")])
    assert made.read.provenance.basis is Basis.SILENT
    assert made.fields["F"].read.provenance.basis is Basis.SILENT
    made = one_register(tags(access="read-only", modifiedWriteValues="oneToClear"), [field("F")])
    assert made.write.provenance.basis is Basis.SILENT
    assert made.fields["F"].write.provenance.basis is Basis.SILENT


# numbers


NUMBERS = [
    ("0", 0),
    ("10", 10),
    ("010", 10),
    ("+7", 7),
    ("0x1F", 31),
    ("0X1f", 31),
    ("#101", 5),
    ("0b101", 5),
    ("0B11", 3),
    ("1k", 1024),
    ("2K", 2048),
    ("1m", 1 << 20),
    ("1M", 1 << 20),
    ("1G", 1 << 30),
    ("1T", 1 << 40),
    ("0x2k", 2048),
    (" 12\n", 12),
    ("", None),
    ("-1", None),
    ("1.5", None),
    ("0x", None),
    ("0xG", None),
    ("#", None),
    ("#2", None),
    ("#1x", None),
    ("1kk", None),
    ("１", None),
    ("1 2", None),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS, ids=[repr(t) for t, _ in NUMBERS])
def test_number_when_spelled_then_as_the_schema_says(text: str, value: int | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(("text", "value"), [("#1x", 2), ("#XX1", 1), ("0bx0", 0), ("0x1", None), ("1", None)])
def test_pattern_when_it_has_dont_care_bits_then_its_smallest_value(text: str, value: int | None) -> None:
    assert number_of_pattern(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x40000000", 0x40000000), ("1073741824", 1 << 30), ("1G", 1 << 30), ("#1000", 8), ("0012", 12)],
)
def test_base_address_when_spelled_otherwise_then_understood(text: str, value: int) -> None:
    assert contract(peripheral("P", register("R"), base=text)).registers["P.R"].offset == value


INDICES = [
    (None, 3, ["0", "1", "2"]),
    ("", 2, ["0", "1"]),
    ("0-2", 3, ["0", "1", "2"]),
    ("3-5", 3, ["3", "4", "5"]),
    ("A-C", 3, ["A", "B", "C"]),
    ("X,Y", 2, ["X", "Y"]),
    (" X , Y ", 2, ["X", "Y"]),
    ("only", 1, ["only"]),
    ("0-2", 2, None),
    ("2-0", 3, None),
    ("A-C", 2, None),
    ("X,X", 2, None),
    ("X,", 2, None),
    ("X,Y", 3, None),
]


@pytest.mark.parametrize(("text", "count", "names"), INDICES, ids=[f"{t}*{c}" for t, c, _ in INDICES])
def test_dim_index_when_spelled_then_its_names(text: str | None, count: int, names: list[str] | None) -> None:
    assert indices(text, count) == names


# places


def test_head_when_read_then_the_contract_carries_it() -> None:
    made = contract(peripheral("P", register("R")))
    assert (made.part, made.vendor, made.title, made.source) == ("TOY", "nobody", "a toy", "toy.svd")
    assert made.access.mapped == MappedAccess(ByteOrder.LITTLE)
    assert made.access.offset_bytes == 4
    assert made.digest.startswith("sha256:")
    one = made.registers["P.R"]
    assert (one.space, one.persistence, one.bank, one.sensitive) == (Space.MEMORY, Persistence.UNTIL_RESET, None, False)


def test_head_when_it_says_little_then_names_come_from_the_file() -> None:
    made = contract(peripheral("P", register("R")), head="<vendorID>ACME</vendorID>")
    assert (made.part, made.vendor, made.title) == ("toy", "ACME", "toy")
    assert contract(peripheral("P", register("R")), head="").vendor == "unknown"


def test_address_when_above_four_gigabytes_then_eight_bytes() -> None:
    made = contract(peripheral("P", register("R"), base="0x100000000"))
    assert made.access.offset_bytes == 8


@pytest.mark.parametrize(
    ("endian", "order", "noticed"),
    [
        ("little", ByteOrder.LITTLE, False),
        ("big", ByteOrder.BIG, False),
        ("selectable", ByteOrder.LITTLE, True),
        ("other", ByteOrder.LITTLE, True),
    ],
)
def test_endian_when_stated_then_the_byte_order(endian: str, order: ByteOrder, noticed: bool) -> None:
    head = HEAD + f"<cpu><name>CM0</name><endian>{endian}</endian></cpu>"
    found = imported(peripheral("P", register("R")), head=head)
    assert found.contract.access.mapped == MappedAccess(order)
    assert found.contract.registers["P.R"].byte_order is order
    assert rules(found) == (["the byte order is not fixed"] if noticed else [])


def test_nested_clusters_when_expanded_then_names_and_addresses_add_up() -> None:
    inner = cluster("B", register("R", 4), offset="0x10")
    made = contract(peripheral("P", cluster("A", inner, register("S", 8), offset="0x100"), base="0x1000"))
    assert {n: r.offset for n, r in made.registers.items()} == {"P.A.B.R": 0x1114, "P.A.S": 0x1108}


LISTS = [
    ("R%s", "A,B", ["P.RA", "P.RB"]),
    ("R[%s]", None, ["P.R[0]", "P.R[1]"]),
    ("%s_R", "x,y", ["P.x_R", "P.y_R"]),
]


@pytest.mark.parametrize(("name", "index", "names"), LISTS, ids=[n for n, _, _ in LISTS])
def test_register_dim_when_a_list_or_array_then_each_is_there(name: str, index: str | None, names: list[str]) -> None:
    said = tags(dim=2, dimIncrement="0x8") + ("" if index is None else tags(dimIndex=index))
    made = contract(peripheral("P", register(name, 4, said), base=0x100))
    assert [(n, r.offset) for n, r in made.registers.items()] == [(names[0], 0x104), (names[1], 0x10C)]


def test_cluster_dim_when_an_array_then_each_has_all_registers() -> None:
    said = tags(dim=2, dimIncrement=16)
    made = contract(peripheral("P", cluster("C[%s]", register("R", 4), register("S%s", 8, said), more=said), base=0))
    assert {n: r.offset for n, r in made.registers.items()} == {
        "P.C[0].R": 4,
        "P.C[0].S0": 8,
        "P.C[0].S1": 24,
        "P.C[1].R": 20,
        "P.C[1].S0": 24,
        "P.C[1].S1": 40,
    }


def test_peripheral_dim_when_a_list_then_each_is_a_cluster() -> None:
    said = tags(dim=2, dimIncrement="0x1000", dimIndex="X,Y")
    made = contract(peripheral("U%s", register("R", 4), base=0, more=said))
    assert {n: r.offset for n, r in made.registers.items()} == {"UX.R": 4, "UY.R": 0x1004}


def test_field_dim_when_a_list_then_each_has_its_bits() -> None:
    more = tags(dim=3, dimIncrement=2, dimIndex="A,B,C")
    made = one_register("", [field("F%s", "[1:0]", more)])
    assert {n: (f.msb, f.lsb) for n, f in made.fields.items()} == {"FA": (1, 0), "FB": (3, 2), "FC": (5, 4)}


def test_field_dim_when_it_leaves_the_register_then_those_outside_are_left_out_with_a_notice() -> None:
    more = tags(dim=3, dimIncrement=4)
    found = imported(peripheral("P", register("R", 0, tags(size=8), [field("F%s", "[3:0]", more)])))
    assert list(found.contract.registers["P.R"].fields) == ["F0", "F1"]
    assert [(n.place, n.rule) for n in found.notices] == [("P.R.F2", "outside the register")]


BITS = [
    (tags(bitOffset=4, bitWidth=3), (6, 4)),
    (tags(bitOffset=4), (4, 4)),
    (tags(bitWidth="0x2", bitOffset="#11"), (4, 3)),
    (tags(lsb=2, msb=9), (9, 2)),
    (tags(msb=9, lsb=9), (9, 9)),
    (tags(bitRange="[7:4]"), (7, 4)),
    (tags(bitRange=" [ 7 : 4 ] "), (7, 4)),
    (tags(bitRange="7:4"), (7, 4)),
    (tags(bitRange="[0x1F:0x10]"), (31, 16)),
]


@pytest.mark.parametrize(("said", "bits"), BITS, ids=[s for s, _ in BITS])
def test_field_bits_when_spelled_in_three_ways_then_the_same(said: str, bits: tuple[int, int]) -> None:
    found = one_field(said, bits=None)
    assert (found.msb, found.lsb) == bits


def test_field_outside_when_the_register_is_narrow_then_left_out_with_a_notice() -> None:
    found = imported(peripheral("P", register("R", 0, tags(size=8), [field("F", "[8:8]"), field("G")])))
    assert list(found.contract.registers["P.R"].fields) == ["G"]
    assert rules(found) == ["outside the register"]


def test_register_defaults_when_stated_at_each_level_then_the_nearest_holds() -> None:
    head = HEAD + tags(size=16, access="read-only", resetValue="0x1234", resetMask="0xFF")
    outer = register("R", 0)
    own = register("S", 4, tags(size=8, resetValue=1))
    inside = cluster("C", register("T", 0), offset=8, more=tags(size=32, resetMask="0xF"))
    made = contract(
        peripheral("P", outer, own, inside, more=tags(access="write-only")),
        peripheral("Q", register("R"), base=0),
        head=head,
    )
    told = {n: (r.width_bits, r.access, r.reset, r.reset_mask) for n, r in made.registers.items()}
    assert told == {
        "P.R": (16, Access.WO, 0x34, 0xFF),
        "P.S": (8, Access.WO, 1, None),
        "P.C.T": (32, Access.WO, 4, 0xF),
        "Q.R": (16, Access.RO, 0x34, 0xFF),
    }


def test_width_when_only_the_device_says_width_then_it_is_the_size_else_thirty_two() -> None:
    assert one_register(head=HEAD + tags(width=16)).width_bits == 16
    assert one_register(head=HEAD + tags(width=16, size=8)).width_bits == 8
    assert one_register().width_bits == 32


RESETS = [
    ("", None, None),
    (tags(resetValue="0xA5"), 0xA5, None),
    (tags(resetValue="0xA5", resetMask="0xFFFFFFFF"), 0xA5, None),
    (tags(resetValue="0xA5", resetMask="0xF0"), 0xA0, 0xF0),
    (tags(resetValue="0xA5", resetMask=0), 0, 0),
    (tags(resetMask="0xF0"), None, None),
    (tags(size=8, resetValue="0x12", resetMask="0xFFFF"), 0x12, None),
]


@pytest.mark.parametrize(("said", "reset", "mask"), RESETS, ids=[s or "nothing" for s, _, _ in RESETS])
def test_reset_when_masked_then_only_known_bits_are_told(said: str, reset: int | None, mask: int | None) -> None:
    made = one_register(said)
    assert (made.reset, made.reset_mask) == (reset, mask)


def test_reset_when_wider_than_the_register_then_its_low_bits_with_a_notice() -> None:
    found = imported(peripheral("P", register("R", 0, tags(size=8, resetValue="0x1FF"))))
    assert found.contract.registers["P.R"].reset == 0xFF
    assert rules(found) == ["the reset value is wider than the register"]


def test_alternate_group_when_stated_then_it_ends_the_name() -> None:
    made = contract(peripheral("P", register("R"), register("R", 0, tags(alternateGroup="ALT"))))
    assert list(made.registers) == ["P.R", "P.R_ALT"]
    made = contract(peripheral("P", register("R%s", 0, tags(alternateGroup="ALT", dim=2, dimIncrement=4))))
    assert list(made.registers) == ["P.R0_ALT", "P.R1_ALT"]


def test_registers_when_they_share_bytes_then_each_stays_and_the_judge_unites_them() -> None:
    word = register("W", 0, tags(size=32))
    byte = register("B", 1, tags(size=8, readAction="clear"))
    made = contract(peripheral("P", word, byte, register("X", 4)))
    assert len(made.registers) == 3
    judged = judge_read(made, (made.registers["P.W"],))
    assert isinstance(judged, ReadJudgement)
    assert judged.effects == {ReadEffect.UNKNOWN, ReadEffect.CLEAR}


def test_fields_when_they_share_bits_then_alternates_of_each_other_with_a_notice() -> None:
    fields = [field("A", "[3:0]"), field("B", "[7:2]"), field("C", "[8:8]")]
    found = imported(peripheral("P", register("R", 0, "", fields)))
    made = found.contract.registers["P.R"].fields
    assert {n: f.alternate for n, f in made.items()} == {"A": True, "B": True, "C": False}
    assert [(n.place, n.rule, n.found) for n in found.notices] == [("P.R", "fields share bits", "A with B, B with A")]


def test_fields_when_they_share_bits_in_different_directions_then_no_alternates() -> None:
    fields = [field("A", "[3:0]", tags(access="read-only")), field("B", "[3:0]", tags(access="write-only"))]
    found = imported(peripheral("P", register("R", 0, "", fields)))
    assert not found.notices
    assert not any(f.alternate for f in found.contract.registers["P.R"].fields.values())


def test_address_unit_bits_when_not_eight_then_a_notice() -> None:
    head = HEAD.replace("<addressUnitBits>8", "<addressUnitBits>32")
    found = imported(peripheral("P", register("R", 4)), head=head)
    assert rules(found) == ["addressUnitBits is not 8"]
    assert found.contract.registers["P.R"].offset == 0x40000004


def test_address_unit_bits_when_addresses_count_words_then_a_fault() -> None:
    head = HEAD.replace("<addressUnitBits>8", "<addressUnitBits>32")
    text = device(peripheral("P", register("R", 1)), head=head)
    assert any("addressUnitBits" in fault for fault in faults_of(text))


def test_address_unit_bits_when_absent_then_eight() -> None:
    assert not imported(peripheral("P", register("R")), head="<name>T</name>").notices


# writeConstraint


def span(low: object, high: object) -> str:
    return f"<writeConstraint><range>{tags(minimum=low, maximum=high)}</range></writeConstraint>"


ENUM = (
    "<enumeratedValues><enumeratedValue><name>off</name><value>0</value></enumeratedValue>"
    "<enumeratedValue><name>on</name><value>#01</value></enumeratedValue></enumeratedValues>"
)


def test_write_constraint_when_a_range_then_limits() -> None:
    assert one_register(span(1, 9)).write.limits == Limits(1, 9)
    assert one_field(span("0x2", 12)).write.limits == Limits(2, 12)


def test_write_constraint_when_the_maximum_does_not_fit_then_the_widest_value() -> None:
    assert one_field(span(0, 255)).write.limits == Limits(0, 15)
    half = "<writeConstraint><range><minimum>3</minimum></range></writeConstraint>"
    assert one_field(half).write.limits == Limits(3, 15)
    empty = "<writeConstraint><range></range></writeConstraint>"
    assert one_field(empty).write.limits == Limits(0, 15)


def test_write_constraint_when_the_minimum_does_not_fit_then_a_fault() -> None:
    half = "<writeConstraint><range><minimum>300</minimum></range></writeConstraint>"
    with pytest.raises(Faults, match="minimum above"):
        one_field(half)


def test_write_constraint_when_by_enumeration_then_the_values_of_the_field() -> None:
    said = "<writeConstraint><useEnumeratedValues>true</useEnumeratedValues></writeConstraint>"
    assert dict(one_field(ENUM + said).write.values) == {"off": 0, "on": 1}
    assert dict(one_field(said).write.values) == {}
    assert dict(one_field(ENUM + said.replace("true", "false")).write.values) == {}


def test_write_constraint_when_the_register_has_one_then_fields_do_not_inherit_it() -> None:
    made = one_register(span(1, 9) + tags(modifiedWriteValues="oneToSet"), [field("F", "[3:0]")])
    assert made.write.limits == Limits(1, 9)
    assert made.write.effect is made.fields["F"].write.effect is WriteEffect.ONE_TO_SET
    assert made.fields["F"].write.limits is None


def test_write_constraint_when_the_field_is_read_only_then_nothing_is_said() -> None:
    assert one_field(span(1, 2) + tags(access="read-only")).write.limits is None


def test_disable_condition_when_stated_then_a_notice_and_the_register_stays() -> None:
    found = imported(peripheral("P", register("R", 0, tags(disableCondition="X == 1"))))
    assert rules(found) == ["disableCondition is not enforced"]
    assert "P.R" in found.contract.registers


# enumerations


def value(name: str | None, number_text: str | None, more: str = "") -> str:
    inner = ("" if name is None else tags(name=name)) + ("" if number_text is None else tags(value=number_text)) + more
    return f"<enumeratedValue>{inner}</enumeratedValue>"


def enumeration(*values: str, name: str = "", derived: str = "") -> str:
    attribute = f' derivedFrom="{derived}"' if derived else ""
    return f"<enumeratedValues{attribute}>{tags(name=name) if name else ''}{''.join(values)}</enumeratedValues>"


def test_enumeration_when_read_then_names_and_values() -> None:
    made = one_field(enumeration(value("a", "0"), value("b", "0x1"), value("c", "#10"), value("d", "0b11")))
    assert dict(made.values) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_enumeration_when_several_then_all_values_are_together() -> None:
    made = one_field(enumeration(value("a", "0")) + enumeration(value("b", "1")))
    assert dict(made.values) == {"a": 0, "b": 1}


def test_enumeration_when_a_value_is_the_default_or_nameless_then_left_out_or_named_by_its_number() -> None:
    made = one_field(enumeration(value("rest", None, tags(isDefault="true")), value(None, "0x3"), value("", "2")))
    assert dict(made.values) == {"0x3": 3, "2": 2}


ODD_VALUES = [
    (value("a", "banana"), "an enumerated value is no number", {}),
    (value("a", "16"), "an enumerated value does not fit", {}),
    (value("a", "#1xx"), "an enumerated value has don't-care bits", {"a": 4}),
    (value("a", "1") + value("a", "2"), "two values of one name", {"a": 1}),
]


@pytest.mark.parametrize(("said", "rule", "values"), ODD_VALUES, ids=[r for _, r, _ in ODD_VALUES])
def test_enumeration_when_a_value_is_odd_then_a_notice(said: str, rule: str, values: dict[str, int]) -> None:
    found = imported(peripheral("P", register("R", 0, "", [field("F", "[3:0]", enumeration(said))])))
    assert rules(found) == [rule]
    assert dict(found.contract.registers["P.R"].fields["F"].values) == values


def test_enumeration_when_the_same_name_and_value_come_twice_then_no_notice() -> None:
    found = imported(
        peripheral("P", register("R", 0, "", [field("F", "[3:0]", enumeration(value("a", "1"), value("a", "1")))]))
    )
    assert not found.notices


def test_descriptions_when_read_then_kept() -> None:
    made = one_register(tags(description="two\n words"), [field("F", "[0:0]", tags(description="a field"))])
    assert (made.description, made.fields["F"].description) == ("two\n words", "a field")


# derivedFrom


def test_peripheral_when_derived_then_it_has_the_registers_at_its_own_address() -> None:
    made = contract(
        peripheral("A", register("R", 4, tags(readAction="clear")), base=0x100, more=tags(size=16)),
        peripheral("B", base=0x200, derived="A"),
    )
    assert made.registers["B.R"].offset == 0x204
    assert made.registers["B.R"].width_bits == 16
    assert made.registers["B.R"].read.effects == {ReadEffect.CLEAR}
    assert made.derived_from == {"B": "A"}


def test_peripheral_when_it_derives_forwards_then_the_order_of_the_file_is_kept() -> None:
    made = contract(
        peripheral("Z", register("X"), base=0),
        peripheral("B", register("OWN", 8), base=0x200, derived="A"),
        peripheral("A", register("R", 4), base=0x100),
    )
    assert list(made.registers) == ["Z.X", "B.R", "B.OWN", "A.R"]
    assert made.registers["B.R"].offset == 0x204


def test_peripheral_when_it_derives_through_another_then_everything_comes_along() -> None:
    made = contract(
        peripheral("C", base=0x300, derived="B"),
        peripheral("B", register("S", 8), base=0x200, derived="A"),
        peripheral("A", register("R", 4), base=0x100),
    )
    assert {n: r.offset for n, r in made.registers.items()} == {
        "C.R": 0x304,
        "C.S": 0x308,
        "B.R": 0x204,
        "B.S": 0x208,
        "A.R": 0x104,
    }
    assert made.derived_from == {"C": "B", "B": "A"}


def test_peripheral_when_it_says_a_register_itself_then_that_one_counts() -> None:
    made = contract(
        peripheral("A", register("R", 4), register("S", 8), base=0),
        peripheral("B", register("R", 0x40, tags(size=8)), base=0x100, derived="A"),
    )
    assert {n: (r.offset, r.width_bits) for n, r in made.registers.items() if n.startswith("B")} == {
        "B.S": (0x108, 32),
        "B.R": (0x140, 8),
    }


def test_peripheral_when_derived_then_access_and_address_may_be_inherited() -> None:
    made = contract(
        peripheral("A", register("R"), base=0x100, more=tags(access="read-only")),
        peripheral("B", base=None, derived="A"),
    )
    assert (made.registers["B.R"].offset, made.registers["B.R"].access) == (0x100, Access.RO)


@pytest.mark.parametrize("base", ["T%s", "T", "T[%s]"])
def test_peripheral_when_it_derives_from_an_array_then_the_array_does_not_come_along(base: str) -> None:
    name = "T[%s]" if "[" in base else "T%s"
    made = contract(
        peripheral(name, register("R"), base=0, more=tags(dim=2, dimIncrement=16)),
        peripheral("U", base=0x100, derived=base),
    )
    assert [n for n in made.registers if n.startswith("U")] == ["U.R"]


def test_peripheral_when_it_derives_from_one_of_a_list_then_found() -> None:
    made = contract(
        peripheral("T%s", register("R"), base=0, more=tags(dim=2, dimIncrement=16)),
        peripheral("U", base=0x100, derived="T1"),
    )
    assert "U.R" in made.registers


REGISTER_PATHS = ["R", "P.R", "Q.S", "Q.C.T", "C.T", "Q.L[%s]", "Q.L", "Q.L1"]


@pytest.mark.parametrize("path", REGISTER_PATHS)
@pytest.mark.parametrize("forwards", [False, True], ids=["backwards", "forwards"])
def test_register_when_derived_by_a_path_then_found(path: str, forwards: bool) -> None:
    array = register("L%s", 0x20, tags(dim=2, dimIncrement=4, readAction="clear"))
    if "[" in path:
        array = array.replace("L%s", "L[%s]")
    here = peripheral(
        "P",
        register("D", 0x40, derived=path),
        register("R", 0, tags(readAction="clear")),
        cluster("C", register("T", 4, tags(readAction="clear"))),
    )
    there = peripheral(
        "Q",
        register("S", 0, tags(readAction="clear")),
        cluster("C", register("T", 4, tags(readAction="clear")), offset=8),
        array,
        base=0,
    )
    made = contract(*([here, there] if forwards else [there, here]))
    derived = made.registers["P.D"]
    assert derived.offset == 0x40000040
    assert derived.read.effects == {ReadEffect.CLEAR}


def test_register_when_derived_then_its_own_words_win_and_fields_are_put_together() -> None:
    base = register(
        "A",
        0,
        tags(size=16, access="read-only", resetValue=5, description="old"),
        [field("F", "[0:0]", tags(description="base")), field("G", "[1:1]")],
    )
    own = register("B", 4, tags(description="new"), [field("F", "[7:7]"), field("H", "[2:2]")], derived="A")
    made = contract(peripheral("P", base, own)).registers["P.B"]
    assert (made.width_bits, made.access, made.reset, made.description) == (16, Access.RO, 5, "new")
    assert {n: f.lsb for n, f in made.fields.items()} == {"G": 1, "F": 7, "H": 2}
    assert made.fields["F"].description == ""


def test_register_when_derived_twice_removed_then_everything_comes_along() -> None:
    made = contract(
        peripheral(
            "P",
            register("C", 8, derived="B"),
            register("B", 4, tags(resetValue=7), derived="A"),
            register("A", 0, tags(size=8)),
        )
    )
    assert (made.registers["P.C"].width_bits, made.registers["P.C"].reset) == (8, 7)


def test_register_when_it_derives_from_an_array_then_dim_only_with_a_place_for_it() -> None:
    array = register("A%s", 0, tags(dim=2, dimIncrement=4))
    made = contract(
        peripheral(
            "P", array, register("B", 0x10, derived="A%s"), register("C%s", 0x20, derived="A%s"), register("D", 0x30)
        )
    )
    assert list(made.registers) == ["P.A0", "P.A1", "P.B", "P.C0", "P.C1", "P.D"]


def test_register_when_it_overrides_the_dim_of_its_base_then_its_own_counts() -> None:
    array = register("A%s", 0, tags(dim=2, dimIncrement=4))
    other = register("C%s", 0x20, tags(dim=3, dimIncrement=8), derived="A%s")
    made = contract(peripheral("P", array, other, base=0))
    assert [r.offset for n, r in made.registers.items() if n.startswith("P.C")] == [0x20, 0x28, 0x30]


@pytest.mark.parametrize("path", ["A", "P.A", "Q.A", "ONE", "Q.ONE"])
def test_cluster_when_derived_by_a_path_then_found(path: str) -> None:
    inner = cluster("A", register("R", 4), offset=0x10)
    listed = cluster("%s", register("R", 4), offset=0x20, more=tags(dim=2, dimIncrement=8, dimIndex="ONE,TWO"))
    made = contract(
        peripheral("P", cluster("D", register("OWN", 8), offset=0x100, derived=path), inner, listed, base=0),
        peripheral("Q", inner, listed, base=0x1000),
    )
    assert (made.registers["P.D.R"].offset, made.registers["P.D.OWN"].offset) == (0x104, 0x108)


def test_cluster_when_derived_from_elsewhere_then_its_children_find_their_siblings_there() -> None:
    there = cluster("A", register("R", 0, derived="LOCAL"), offset=0)
    made = contract(
        peripheral("Q", there, register("LOCAL", 0x40, tags(size=8)), base=0x1000),
        peripheral("P", cluster("D", offset=0x100, derived="Q.A"), base=0),
    )
    assert (made.registers["P.D.R"].width_bits, made.registers["P.D.R"].offset) == (8, 0x100)


def test_register_when_its_path_leads_through_a_derived_peripheral_then_found() -> None:
    made = contract(
        peripheral("A", register("X", 0, tags(size=8)), base=0),
        peripheral("B", base=0x100, derived="A"),
        peripheral("C", register("Y", 0, derived="B.X"), base=0x200),
    )
    assert made.registers["C.Y"].width_bits == 8


FIELD_PATHS = ["F", "R.F", "S.G", "P.S.G", "Q.R.F", "Q.C.R.F"]


@pytest.mark.parametrize("path", FIELD_PATHS)
def test_field_when_derived_by_a_path_then_found(path: str) -> None:
    base = field("F", "[3:0]", tags(readAction="clear"))
    there = peripheral("Q", register("R", 0, "", [base]), cluster("C", register("R", 4, "", [base])), base=0)
    here = peripheral(
        "P",
        register("R", 0, "", [base, field("D", None, tags(description="own"), derived=path)]),
        register("S", 4, "", [base.replace("<name>F", "<name>G")]),
    )
    found = imported(here, there)
    derived = found.contract.registers["P.R"].fields["D"]
    assert (derived.msb, derived.lsb) == (3, 0)
    assert derived.read.effects == {ReadEffect.CLEAR}
    assert derived.description == "own"


def test_field_when_derived_with_bits_of_the_same_spelling_then_its_own_bits() -> None:
    made = one_register("", [field("A", "[3:0]", tags(readAction="set")), field("B", "[7:4]", derived="A")])
    assert (made.fields["B"].msb, made.fields["B"].lsb) == (7, 4)
    assert made.fields["B"].read.effects == {ReadEffect.SET}


SPELLINGS = [
    (tags(bitOffset=0, bitWidth=4), tags(bitRange="[7:4]")),
    (tags(bitOffset=0, bitWidth=4), tags(lsb=4, msb=7)),
    (tags(lsb=0, msb=3), tags(bitRange="[7:4]")),
    (tags(lsb=0, msb=3), tags(bitOffset=4)),
    (tags(bitRange="[3:0]"), tags(bitOffset=4)),
]


@pytest.mark.parametrize(("base", "own"), SPELLINGS, ids=[f"{b}, then {o}" for b, o in SPELLINGS])
def test_field_when_derived_with_bits_of_another_spelling_then_its_own_bits(base: str, own: str) -> None:
    made = one_register("", [field("A", None, base), field("B", None, own, derived="A")])
    assert (made.fields["B"].msb, made.fields["B"].lsb) == (7, 4)


@pytest.mark.parametrize(
    ("base", "own"),
    [
        (tags(bitRange="[3:0]"), tags(lsb=4, msb=7)),
        (tags(lsb=0, msb=3), tags(bitOffset=4, bitWidth=4)),
        (tags(bitRange="[3:0]"), tags(bitOffset=4, bitWidth=4)),
    ],
    ids=str,
)
def test_field_when_derived_with_bits_that_are_looked_at_first_then_its_own_bits(base: str, own: str) -> None:
    made = one_register("", [field("A", None, base), field("B", None, own, derived="A")])
    assert (made.fields["B"].msb, made.fields["B"].lsb) == (7, 4)


ENUM_PATHS = ["E", "F.E", "R.F.E", "P.R.F.E", "Q.R.F.E"]


@pytest.mark.parametrize("path", ENUM_PATHS)
def test_enumeration_when_derived_by_a_path_then_found(path: str) -> None:
    source = field("F", "[1:0]", enumeration(value("a", "1"), name="E"))
    made = contract(
        peripheral("P", register("R", 0, "", [source, field("G", "[3:2]", enumeration(derived=path))])),
        peripheral("Q", register("R", 0, "", [source]), base=0),
    )
    assert dict(made.registers["P.R"].fields["G"].values) == {"a": 1}


def test_enumeration_when_derived_from_another_register_of_the_peripheral_then_its_name_is_enough() -> None:
    source = field("F", "[1:0]", enumeration(value("a", "1"), name="E"))
    made = contract(
        peripheral(
            "P",
            register("S", 4, "", [field("G", "[3:2]", enumeration(derived="E"))]),
            cluster("C", register("R", 0, "", [source])),
        )
    )
    assert dict(made.registers["P.S"].fields["G"].values) == {"a": 1}


@pytest.mark.xfail(strict=True, reason="LIMIT: an enumeration of another peripheral is found by its path alone")
def test_enumeration_when_its_name_is_unique_in_the_device_then_found() -> None:
    source = field("F", "[1:0]", enumeration(value("a", "1"), name="E"))
    made = contract(
        peripheral("Q", register("R", 0, "", [source]), base=0),
        peripheral("P", register("R", 0, "", [field("G", "[3:2]", enumeration(derived="E"))])),
    )
    assert dict(made.registers["P.R"].fields["G"].values) == {"a": 1}


def test_enumeration_when_derived_from_one_that_does_not_fit_then_values_left_out() -> None:
    source = field("F", "[1:0]", enumeration(value("a", "1"), value("b", "2"), name="E"))
    found = imported(peripheral("P", register("R", 0, "", [source, field("G", "[2:2]", enumeration(derived="E"))])))
    assert dict(found.contract.registers["P.R"].fields["G"].values) == {"a": 1}
    assert rules(found) == ["an enumerated value does not fit"]


def test_elements_when_unknown_to_the_importer_then_passed_over() -> None:
    inner = register("R", 0, tags(displayName="r", protection="s", dataType="uint32_t", alternateRegister="X"))
    text = device(peripheral("P", inner, more="<interrupt><name>I</name><value>1</value></interrupt>"))
    assert faults_of(text) == []


def test_registers_container_when_it_holds_other_elements_then_passed_over() -> None:
    made = contract(peripheral("P", "<foo/>", register("R", 0, "", ["<bar/>", field("F")])))
    assert list(made.registers["P.R"].fields) == ["F"]


def test_size_when_above_sixty_four_then_a_fault() -> None:
    assert faults_of(device(peripheral("P", register("R", 0, tags(size=65)))))


def test_size_when_zero_then_a_fault() -> None:
    assert faults_of(device(peripheral("P", register("R", 0, tags(size=0)))))
