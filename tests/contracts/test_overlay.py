"""Overlays: what a review may say and must show, what corrections change, and what a changed base reopens."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.judge_write import UpdateJudgement, judge_update
from hwtool_contracts.library import bundled, find, find_contract
from hwtool_contracts.model import Access, Contract, Field, Owner, Register, WriteSpec
from hwtool_contracts.overlay import (
    Overlaid,
    base_of,
    covered,
    covers_digest,
    is_silent,
    lay_over,
    names_of,
)
from hwtool_contracts.toml_reader import Faults
from tests.svd_text import cluster, contract, device, field, peripheral, register, tags

SHA = "a" * 64
HEAD = f'base = "toy.svd"\nbase_sha256 = "{SHA}"\n'
SIGNED = 'seen = "page"\nsource = "DS 1.2"\nreviewed_by = "somebody"\non = 2026-11-30\n'
DRIVER = SIGNED.replace("page", "driver")
CLEAN = 'effects = ["none"], provenance = "reviewed", seen = "page", source = "DS 3"'
STORE = 'effect = "store", provenance = "reviewed", seen = "page", source = "DS 3"'

UART = peripheral(
    "UART0",
    register("DR", 0, tags(readAction="modify")),
    register("CR", 4, "", [field("EN"), field("FLAG", "[1:1]", tags(modifiedWriteValues="oneToClear"))]),
    register("SR", 8, tags(access="read-only"), [field("BUSY"), field("ERR", "[1:1]", tags(readAction="clear"))]),
    register("TX", 12, tags(access="write-only")),
)
BASE = contract(
    UART, peripheral("UART1", base="0x40001000", derived="UART0"), peripheral("SPI", register("CR"), base=0)
)


def review(match: str = '"UART0.*"', said: str = 'silent_read = "none"', signed: str = SIGNED, more: str = "") -> str:
    return f"[[review]]\nmatch = {match}\n{said}\n{signed}{more}\n"


def laid(text: str, base: Contract = BASE, sha: str = SHA) -> Overlaid:
    return lay_over(base, sha, HEAD + text, "over.toml")


def over(text: str, base: Contract = BASE) -> dict[str, Register]:
    found = laid(text, base)
    assert not found.notices
    return dict(found.contract.registers)


def faults_of(text: str, base: Contract = BASE, sha: str = SHA, head: str = HEAD) -> list[str]:
    with pytest.raises(Faults) as caught:
        lay_over(base, sha, head + text, "over.toml")
    return [str(f) for f in caught.value.faults]


def clean(place: Register | Field) -> bool:
    return place.read.effects == {ReadEffect.NONE}


def untouched(found: dict[str, Register], *touched: str) -> None:
    """Everything but these is as the base has it."""
    for name, one in BASE.registers.items():
        if name not in touched:
            assert found[name] == one


# reviews


def test_review_when_signed_then_silent_reads_are_none_and_reviewed() -> None:
    found = over(review('"UART0.CR"'))
    made = found["UART0.CR"]
    assert clean(made)
    assert clean(made.fields["EN"])
    assert clean(made.fields["FLAG"])
    told = made.read.provenance
    assert (told.basis, told.seen, told.source) == (Basis.REVIEWED, "page", "DS 1.2")
    assert made.write == BASE.registers["UART0.CR"].write
    assert (made.volatile, made.volatile_unsaid) == (True, True)
    untouched(found, "UART0.CR", "UART1.CR")


def test_review_when_a_driver_was_seen_then_the_evidence_says_so() -> None:
    assert over(review(signed=DRIVER))["UART0.CR"].read.provenance.seen == "driver"


def test_review_when_the_file_states_an_effect_then_it_stays() -> None:
    found = over(review(said='silent_read = "none"\nsilent_write = "store"'))
    assert found["UART0.DR"].read.effects == {ReadEffect.MODIFY}
    assert found["UART0.CR"].fields["FLAG"].write.effect is WriteEffect.ONE_TO_CLEAR
    assert found["UART0.CR"].fields["FLAG"].write.provenance.basis is Basis.ASSERTED
    assert found["UART0.SR"].fields["ERR"].read.effects == {ReadEffect.CLEAR}
    assert clean(found["UART0.SR"].fields["BUSY"])


def test_review_when_of_writes_then_silent_writes_are_store() -> None:
    found = over(review(said='silent_write = "store"'))
    assert found["UART0.CR"].write.effect is found["UART0.TX"].write.effect is WriteEffect.STORE
    assert found["UART0.CR"].fields["EN"].write.provenance.basis is Basis.REVIEWED
    assert not clean(found["UART0.CR"])


def test_review_when_a_direction_does_not_exist_then_nothing_is_said_of_it() -> None:
    found = over(review(said='silent_read = "none"\nsilent_write = "store"'))
    assert is_silent(found["UART0.TX"].read)
    assert is_silent(found["UART0.SR"].write)
    assert is_silent(found["UART0.SR"].fields["BUSY"].write)


def test_review_when_a_write_has_limits_then_they_stay() -> None:
    said = "<writeConstraint><range><minimum>1</minimum><maximum>2</maximum></range></writeConstraint>"
    base = contract(peripheral("P", register("R", 0, said)))
    write = over(review('"P.*"', 'silent_write = "store"'), base)["P.R"].write
    assert write.effect is WriteEffect.STORE
    assert write.limits == base.registers["P.R"].write.limits


def test_review_when_of_volatility_then_what_nobody_said_is_not_volatile() -> None:
    found = over(review('"UART0.CR"', "silent_volatile = false"))
    for place in (found["UART0.CR"], found["UART0.CR"].fields["EN"]):
        assert (place.volatile, place.volatile_unsaid) == (False, False)
        assert is_silent(place.read)


def test_review_when_volatility_was_said_then_it_stays() -> None:
    text = review('"UART0.CR"', "silent_volatile = false")
    first = laid('[registers."UART0.CR"]\nvolatile = true\n').contract
    assert over(text, first)["UART0.CR"].volatile


def test_review_when_some_are_excepted_then_they_are_not_covered() -> None:
    found = over(review(more='except = ["*.SR", "UART0.C?"]'))
    assert not clean(found["UART0.CR"])
    assert not clean(found["UART0.SR"].fields["BUSY"])
    untouched(found)


def test_review_when_the_match_is_a_list_then_any_of_them() -> None:
    found = over(review('["SPI.*", "UART0.CR"]'))
    assert clean(found["SPI.CR"]) and clean(found["UART0.CR"])
    assert not clean(found["UART0.SR"].fields["BUSY"])


def test_review_when_of_a_peripheral_then_those_derived_from_it_are_covered_too() -> None:
    found = over(review())
    assert clean(found["UART1.CR"])
    assert not clean(found["SPI.CR"])


def test_review_when_the_derived_one_is_excepted_then_only_the_base_is_covered() -> None:
    found = over(review(more='except = ["UART1.*"]'))
    assert clean(found["UART0.CR"])
    assert not clean(found["UART1.CR"])


def test_review_when_the_base_is_excepted_then_the_derived_is_too() -> None:
    found = over(review('"UART*"', more='except = ["UART0.CR"]'))
    assert not clean(found["UART1.CR"])
    assert clean(found["UART1.SR"].fields["BUSY"])


def test_review_when_of_the_derived_one_alone_then_the_base_is_not_covered() -> None:
    found = over(review('"UART1.CR"'))
    assert clean(found["UART1.CR"])
    assert not clean(found["UART0.CR"])


def test_names_when_derived_through_several_then_all_of_them_and_circles_end() -> None:
    chain = contract(
        peripheral("A", register("R")), peripheral("B", base=0, derived="A"), peripheral("C", base=8, derived="B")
    )
    assert list(names_of(chain, "C.R")) == ["C.R", "B.R", "A.R"]
    assert list(names_of(chain, "loose")) == ["loose"]
    round_ = contract(peripheral("A", register("R")))
    twisted = {"A": "B", "B": "A"}
    object.__setattr__(round_, "derived_from", twisted)
    assert list(names_of(round_, "A.R")) == ["A.R", "B.R"]


def test_reviews_when_several_then_each_says_its_part() -> None:
    found = over(review() + review(said='silent_write = "store"') + review(said="silent_volatile = false"))
    made = found["UART0.CR"]
    assert (clean(made), made.write.effect, made.volatile) == (True, WriteEffect.STORE, False)


def test_review_when_laid_then_only_what_it_covers_became_harmless() -> None:
    found = over(review('"UART0.CR"', 'silent_read = "none"\nsilent_write = "store"\nsilent_volatile = false'))
    untouched(found, "UART0.CR", "UART1.CR")


def test_review_when_an_exception_matches_nothing_then_a_fault() -> None:
    assert faults_of(review(more='except = ["UART0.SRR"]'))


def without(text: str, key: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(key)) + "\n"


BAD_REVIEWS = {
    "not seen": (without(review(), "seen"), "review[0].seen: key is missing"),
    "no source": (without(review(), "source"), "review[0].source: key is missing"),
    "nobody": (without(review(), "reviewed_by"), "review[0].reviewed_by: key is missing"),
    "no day": (without(review(), "on"), "review[0].on: key is missing"),
    "from memory": (review(signed=SIGNED.replace("page", "memory")), "review[0].seen: from memory is unknown"),
    "seen how": (review(signed=SIGNED.replace("page", "glance")), "review[0].seen: not in the vocabulary"),
    "empty source": (review(signed=SIGNED.replace("DS 1.2", " ")), "review[0].source: empty string"),
    "empty name": (review(signed=SIGNED.replace("somebody", "")), "review[0].reviewed_by: empty string"),
    "day": (review(signed=SIGNED.replace("2026-11-30", '"yesterday"')), "review[0].on: not a date"),
    "day as number": (review(signed=SIGNED.replace("2026-11-30", "20261130")), "review[0].on: not a date"),
    "time": (review(signed=SIGNED.replace("2026-11-30", "07:30:00")), "review[0].on: not a date"),
    "says nothing": (review(said=""), "review[0]: a review that says nothing"),
    "read is pop": (
        review(said='silent_read = "pop"'),
        "review[0].silent_read: a review says that silence is harmless",
    ),
    "write is pulse": (review(said='silent_write = "pulse"'), "review[0].silent_write: a review says"),
    "volatile": (review(said="silent_volatile = true"), "review[0].silent_volatile: silence counts as volatile anyway"),
    "matches nothing": (review('"GPIO.*"'), "review[0].match: matches no register; found GPIO.*"),
    "no match": (without(review(), "match"), "review[0].match: key is missing"),
    "empty match": (review('""'), "review[0].match: empty string"),
    "empty list": (review("[]"), "review[0].match: matches no register"),
    "match as number": (review("3"), "review[0].match: wrong type"),
    "brackets are letters": (review('"UART[01].*"'), "matches no register"),
    "unknown key": (review(more="expect = ['x']"), "review[0].expect: unknown key; found expect"),
    "except as text": (review(more="except = 'x'"), "review[0].except: wrong type"),
    "no table": ("review = 3\n", "review: wrong type"),
    "second": (review() + review(signed=""), "review[1].seen: key is missing"),
}


@pytest.mark.parametrize("case", list(BAD_REVIEWS))
def test_review_when_it_cannot_stand_then_the_fault_names_its_place(case: str) -> None:
    text, wanted = BAD_REVIEWS[case]
    found = faults_of(text)
    assert any(wanted in fault for fault in found), found
    assert all(fault.startswith("over.toml: ") for fault in found)


def test_review_when_its_day_is_a_text_then_understood() -> None:
    assert over(review(signed=SIGNED.replace("2026-11-30", '"2026-11-30"')))


BAD_HEADS = {
    "a model in other words": (HEAD + "verified = 'model: QEMU'\n", "verified: does not say whether a part or a model"),
    "no sha": ('base = "toy.svd"\n', "base_sha256: key is missing"),
    "no base": (f'base_sha256 = "{SHA}"\n', "base: key is missing"),
    "schema": (HEAD + "schema = 2\n", "schema: unknown schema; found 2"),
    "unknown": (HEAD + "colour = 1\n", "colour: unknown key"),
    "defaults": (HEAD + "[defaults]\n", "defaults: unknown key"),
    "access": (HEAD + "[access]\n", "access: unknown key"),
}


@pytest.mark.parametrize("case", list(BAD_HEADS))
def test_head_when_wrong_then_a_fault(case: str) -> None:
    head, wanted = BAD_HEADS[case]
    assert any(wanted in fault for fault in faults_of("", head=head))


def test_overlay_when_not_toml_then_a_fault() -> None:
    assert "not valid TOML" in faults_of("x = ?")[0]


def test_base_when_named_then_told() -> None:
    assert base_of(HEAD, "x") == "toy.svd"
    assert base_of("schema = 1", "x") is None
    with pytest.raises(Faults, match="base"):
        base_of("base = 3", "x")


def test_overlay_when_laid_then_the_digest_is_another_and_tells_overlays_apart() -> None:
    digests = {BASE.digest, laid("").contract.digest, laid(review()).contract.digest, laid("", sha="b").contract.digest}
    assert len(digests) == 4
    assert laid("# a remark\n").contract.digest == laid("").contract.digest


def test_sha_when_written_otherwise_then_understood() -> None:
    head = HEAD.replace(SHA, "sha256:" + SHA.upper())
    assert lay_over(BASE, SHA, head, "x").notices == ()


# corrections


def correction(name: str, said: str) -> str:
    return f'[registers."{name}"]\n{said}\n'


def test_correction_when_of_a_register_then_fields_that_had_its_effects_follow() -> None:
    found = over(correction("UART0.CR", f"read = {{ {CLEAN} }}\nwrite = {{ {STORE} }}\nvolatile = false"))
    made = found["UART0.CR"]
    assert clean(made) and clean(made.fields["EN"]) and clean(made.fields["FLAG"])
    assert made.write.effect is made.fields["EN"].write.effect is WriteEffect.STORE
    assert made.fields["FLAG"].write.effect is WriteEffect.ONE_TO_CLEAR
    assert not made.fields["EN"].volatile


def test_correction_when_of_a_field_then_the_others_stay() -> None:
    found = over(correction("UART0.CR", f"fields.EN = {{ write = {{ {STORE} }}, values = {{ on = 1 }} }}"))
    made = found["UART0.CR"]
    assert made.fields["EN"].write.effect is WriteEffect.STORE
    assert dict(made.fields["EN"].values) == {"on": 1}
    assert made.fields["FLAG"] == BASE.registers["UART0.CR"].fields["FLAG"]
    assert is_silent(made.write)


def test_correction_when_of_a_base_peripheral_then_the_derived_ones_follow_unless_spoken_of() -> None:
    said = f"read = {{ {CLEAN} }}"
    found = over(correction("UART0.CR", said))
    assert clean(found["UART1.CR"])
    found = over(correction("UART0.CR", said) + correction("UART1.CR", 'description = "other"'))
    assert clean(found["UART0.CR"])
    assert not clean(found["UART1.CR"])
    assert found["UART1.CR"].description == "other"


def test_correction_when_by_a_pattern_then_all_that_match_but_the_excepted() -> None:
    found = over(correction("UART*.CR", f"read = {{ {CLEAN} }}"))
    assert clean(found["UART0.CR"]) and clean(found["UART1.CR"])
    found = over(correction("*", 'owner = "shared"\nexcept = ["UART1.*", "SPI.CR"]'))
    assert {n for n, r in found.items() if r.owner is Owner.SHARED} == {n for n in found if n.startswith("UART0")}


def test_correction_when_after_a_review_then_it_wins() -> None:
    text = review() + correction("UART0.CR", 'read = { effects = ["pop"] }')
    found = over(text)
    assert found["UART0.CR"].read.effects == {ReadEffect.POP}
    assert found["UART0.CR"].fields["EN"].read.effects == {ReadEffect.POP}


def test_correction_when_it_says_what_modify_truly_is_then_so() -> None:
    said = 'read = { effects = ["pop"], provenance = "reviewed", seen = "page", source = "DS 3", level = "SR" }'
    found = over(review('"*.SR"') + correction("UART0.DR", said.replace(', level = "SR"', "")))
    assert found["UART0.DR"].read.effects == {ReadEffect.POP}
    assert found["UART1.DR"].read.effects == {ReadEffect.POP}


def test_correction_when_of_other_keys_then_each_is_taken() -> None:
    said = (
        'access = "ro"\ndescription = "text"\nreset = 3\nreset_mask = 0xF\nvolatile = true\n'
        'persistence = "nonvolatile"\nowner = "shared"\nsensitive = true\nbyte_order = "big"\n'
        'values = { a = 1 }\nunit = "V"\nscale = 2'
    )
    made = over(correction("SPI.CR", said))["SPI.CR"]
    assert (made.access, made.description, made.reset, made.reset_mask) == (Access.RO, "text", 3, 15)
    assert (made.volatile_unsaid, made.sensitive, dict(made.values), made.quantity.unit) == (False, True, {"a": 1}, "V")
    assert (made.persistence.value, made.owner.value, made.byte_order.value) == ("nonvolatile", "shared", "big")


def test_correction_when_access_is_taken_away_then_its_effect_is_gone_too() -> None:
    made = over(correction("UART0.CR", 'access = "wo"'))["UART0.CR"]
    assert is_silent(made.read)
    found = faults_of(correction("UART0.CR", f'access = "wo"\nread = {{ {CLEAN} }}'))
    assert "access wo has no read" in found[0]


def test_correction_when_an_illegal_access_is_put_right_then_it_works() -> None:
    base = contract(peripheral("P", register("R", 0, "<access>r-w</access>")))
    made = over(correction("P.R", f'access = "rw"\nread = {{ {CLEAN} }}'), base)["P.R"]
    assert clean(made)


def test_correction_when_the_field_is_new_then_added() -> None:
    made = over(correction("SPI.CR", 'fields.NEW = { bits = "3:2", description = "new" }'))["SPI.CR"]
    assert (made.fields["NEW"].msb, made.fields["NEW"].lsb) == (3, 2)
    assert is_silent(made.fields["NEW"].read)
    assert made.fields["NEW"].volatile_unsaid


def test_correction_when_volatile_is_unknown_again_then_unsaid() -> None:
    first = laid(correction("SPI.CR", "volatile = false")).contract
    assert over(correction("SPI.CR", 'volatile = "unknown"'), first)["SPI.CR"].volatile_unsaid


QUANTITY = correction("SPI.CR", 'scale = 0.5\nsigned = true\nunit = "V"')


def test_correction_when_of_one_part_of_a_quantity_then_the_others_stay() -> None:
    first = laid(QUANTITY).contract
    made = over(correction("SPI.CR", 'unit = "mV"'), first)["SPI.CR"]
    assert made.quantity.scale == first.registers["SPI.CR"].quantity.scale


def test_correction_when_of_the_limits_of_a_float_then_in_its_unit() -> None:
    base = laid(correction("SPI.CR", 'encoding = "float32"')).contract
    over(correction("SPI.CR", f"write = {{ {STORE}, limits = {{ min = -1.5, max = 2.5 }} }}"), base)


BAD_CORRECTIONS = {
    "moved": (correction("SPI.CR", "offset = 4"), "registers.SPI.CR.offset: an overlay cannot move or resize"),
    "resized": (correction("SPI.CR", "width_bits = 8"), "registers.SPI.CR.width_bits: an overlay cannot"),
    "space": (correction("SPI.CR", 'space = "holding"'), "registers.SPI.CR.space: an overlay cannot"),
    "array": (correction("SPI.CR", "count = 2\nstride_bytes = 4"), "registers.SPI.CR.count: an overlay cannot"),
    "field moved": (correction("UART0.CR", "fields.EN = { bits = 3 }"), "fields.EN.bits: an overlay cannot move"),
    "new field, no bits": (correction("SPI.CR", "fields.F = {}"), "fields.F.bits: not a bit range of the register"),
    "new field overlaps": (correction("UART0.CR", "fields.F = { bits = '1:0' }"), "overlaps another field"),
    "matches nothing": (correction("GPIO*.CR", "volatile = true"), "registers.GPIO*.CR: matches no register"),
    "new, no offset": (correction("SPI.DR", 'access = "rw"'), "registers.SPI.DR.offset: key is missing"),
    "reviewed unseen": (
        correction("SPI.CR", 'read = { effects = ["none"], provenance = "reviewed" }'),
        "registers.SPI.CR.read.provenance: reviewed without evidence",
    ),
    "from memory": (
        correction("SPI.CR", 'read = { effects = ["none"], provenance="reviewed", seen = "memory", source = "x" }'),
        "registers.SPI.CR.read.seen: not in the vocabulary",
    ),
    "none by silence": (
        correction("SPI.CR", 'read = { effects = ["none"], provenance = "silent" }'),
        "read effect none cannot rest on provenance silent",
    ),
    "store by heuristic": (
        correction("SPI.CR", 'write = { effect = "store", provenance = "heuristic" }'),
        "write effect store cannot rest on provenance heuristic",
    ),
    "word": (correction("SPI.CR", 'read = { effects = ["pops"] }'), "did you mean pop?"),
    "reset": (correction("SPI.CR", "reset = 0x1_0000_0000"), "registers.SPI.CR.reset: out of range"),
    "unknown": (correction("SPI.CR", "colour = 4"), "registers.SPI.CR.colour: unknown key"),
    "bank": (correction("SPI.CR", 'bank = "B"'), "no such bank"),
    "affects": (correction("SPI.CR", 'read = { effects = ["pop"], affects = ["XX"] }'), "no such register or field"),
    "table": ("registers = 3\n", "registers: wrong type"),
    "clusters": ("clusters = 3\n", "clusters: wrong type"),
    "same name": (
        '[clusters.SPI]\noffset = 0\n[clusters.SPI.registers.CR]\noffset = 8\naccess = "rw"\n',
        "registers.SPI.CR: the base has a register of this name",
    ),
    "too high": ('[registers.NEW]\noffset = 0x1_0000_0000\naccess = "rw"\n', "does not fit offset_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD_CORRECTIONS))
def test_correction_when_it_breaks_a_rule_then_the_fault_names_its_place(case: str) -> None:
    text, wanted = BAD_CORRECTIONS[case]
    found = faults_of(text)
    assert any(wanted in fault for fault in found), found


def test_correction_when_a_pattern_is_wrong_then_its_faults_come_once() -> None:
    assert len(faults_of(correction("UART*", "colour = 4"))) == 1


# additions


def test_register_when_new_then_added_as_those_of_the_base_are() -> None:
    text = '[registers."SPI.NEW"]\noffset = 0x100\nwidth_bits = 32\naccess = "rw"\n'
    text += "[registers.LIST]\noffset = 0x200\naccess = 'ro'\ncount = 2\nstride_bytes = 4\n"
    found = over(text)
    assert (found["SPI.NEW"].offset, found["SPI.NEW"].byte_order.value) == (0x100, "little")
    assert is_silent(found["SPI.NEW"].read)
    assert (found["LIST[0]"].offset, found["LIST[1]"].offset) == (0x200, 0x204)
    untouched(found)


def test_cluster_when_new_then_added_with_its_registers() -> None:
    text = "[clusters.CH]\noffset = 0x300\ncount = 2\nstride_bytes = 16\n"
    text += f'[clusters.CH.registers.R]\noffset = 4\naccess = "rw"\nread = {{ {CLEAN} }}\n'
    text += '[clusters.D]\noffset = 0x400\nderived_from = "CH"\n'
    found = laid(text).contract
    offsets = {n: r.offset for n, r in found.registers.items() if n not in BASE.registers}
    assert offsets == {"CH[0].R": 0x304, "CH[1].R": 0x314, "D.R": 0x404}
    assert found.derived_from == {"UART1": "UART0", "D": "CH"}


def test_banks_groups_assumptions_and_identity_when_stated_then_added() -> None:
    text = f"""
[banks.B]
select = [{{ register = "SPI.CR", value = 1 }}]
[registers."UART0.CR"]
bank = "B"
read = {{ {CLEAN} }}
[registers."SPI.CR"]
read = {{ {CLEAN} }}
write = {{ {STORE} }}
volatile = false
fields.F = {{ bits = 0 }}
[groups.G]
members = ["UART0.SR", "UART0.DR"]
[[assume]]
register = "SPI.CR"
field = "F"
value = 0
for = "tests"
[identity]
register = "SPI.CR"
equals = 3
"""
    found = laid("schema = 1\nverified = 'QEMU'\n" + text).contract
    assert found.banks["B"].select[0].register == "SPI.CR"
    assert found.registers["UART0.CR"].bank == found.registers["UART1.CR"].bank == "B"
    assert found.groups["G"].members == ("UART0.SR", "UART0.DR")
    assert (found.assumes[0].purpose, found.verified) == ("tests", "QEMU")
    assert found.identity is not None and found.identity.equals == (3,)


def test_overlay_when_laid_on_another_then_both_hold() -> None:
    first = laid(review()).contract
    second = laid(review('"SPI.*"'), first).contract
    assert clean(second.registers["UART0.CR"]) and clean(second.registers["SPI.CR"])


# a changed base


def changed(text: str, base: Contract = BASE) -> Overlaid:
    return laid(text, base, "b" * 64)


def test_base_when_changed_then_a_notice_and_reviews_are_open_again() -> None:
    found = changed(review())
    assert [n.rule for n in found.notices] == [
        "the base has changed since it was reviewed",
        "what it covers has changed",
    ]
    assert found.notices[1].place == "review[0]"
    assert found.contract.registers == BASE.registers


def test_base_when_changed_and_the_review_still_covers_the_same_then_it_holds() -> None:
    digest = covers_digest(covered(BASE, ("UART0.*",), ()))
    text = review(more=f'covers_sha256 = "{digest}"')
    found = changed(text)
    assert [n.place for n in found.notices] == ["base"]
    assert clean(found.contract.registers["UART1.CR"])


def test_review_when_its_match_was_changed_after_it_was_signed_then_a_fault_with_its_digest() -> None:
    signed = covers_digest(covered(BASE, ("UART0.*",), ()))
    now = covers_digest(covered(BASE, ("SPI.*",), ()))
    (fault,) = faults_of(review('"SPI.*"', more=f'covers_sha256 = "{signed}"'))
    assert "review[0].covers_sha256: not the digest of what the entry covers" in fault
    assert f"wanted {now}" in fault


def test_review_when_it_lies_on_another_overlay_then_its_digest_is_of_the_lowest_file() -> None:
    signed = covers_digest(covered(BASE, ("UART0.*",), ()))
    first = laid(review('"UART0.CR"')).contract
    text = HEAD + review('"UART0.SR"', more="") + review(more=f'covers_sha256 = "{signed}"')
    assert lay_over(first, SHA, text, "over.toml", lowest=BASE).notices == ()
    other = contract(OTHER_BASES["a name"], peripheral("UART1", base="0x40001000", derived="UART0"))
    found = lay_over(first, SHA, text, "over.toml", lowest=other, direct=False)
    assert [n.rule for n in found.notices] == ["what it covers has changed"]


OTHER_BASES = {
    "a text": UART.replace("<name>EN</name>", "<name>EN</name><description>clears on read</description>"),
    "a name": UART.replace("<name>EN</name>", "<name>ENABLE</name>"),
    "an offset": UART.replace("<addressOffset>4", "<addressOffset>16"),
    "an effect": UART.replace("oneToClear", "oneToSet"),
    "a new register": UART.replace("<registers>", "<registers>" + register("NEW", 0x20)),
    "an access": UART.replace("write-only", "read-write"),
    "bits": UART.replace("[1:1]", "[2:2]"),
}


@pytest.mark.parametrize("case", list(OTHER_BASES))
def test_base_when_what_a_review_covers_has_changed_then_open_again(case: str) -> None:
    digest = covers_digest(covered(BASE, ("UART0.*",), ()))
    other = contract(OTHER_BASES[case], peripheral("UART1", base="0x40001000", derived="UART0"))
    found = changed(review(more=f'covers_sha256 = "{digest}"'), other)
    assert [n.place for n in found.notices] == ["base", "review[0]"]
    assert found.contract.registers == other.registers


def test_base_when_something_else_has_changed_then_the_review_holds() -> None:
    digest = covers_digest(covered(BASE, ("UART0.*",), ()))
    again = UART.replace("<name>EN</name>", "<name>EN</name><description> </description>")
    other = contract(again, peripheral("UART1", base="0x40001000", derived="UART0"), peripheral("NEW", register("X")))
    found = changed(review(more=f'covers_sha256 = "{digest}"'), other)
    assert [n.place for n in found.notices] == ["base"]
    assert clean(found.contract.registers["UART1.CR"])


def test_base_when_changed_and_a_review_matches_nothing_then_no_fault() -> None:
    assert len(changed(review('"GONE.*"')).notices) == 2


def test_base_when_changed_then_corrections_to_harmless_are_open_again() -> None:
    said = f"read = {{ {CLEAN} }}\nwrite = {{ {STORE} }}\nvolatile = false\ndescription = 'kept'"
    found = changed(correction("UART0.CR", said))
    made = found.contract.registers["UART0.CR"]
    assert is_silent(made.read) and is_silent(made.write) and made.volatile and made.volatile_unsaid
    assert made.description == "kept"
    for one in made.fields.values():
        assert not clean(one) and one.write.effect is not WriteEffect.STORE and one.volatile
    assert [n.place for n in found.notices] == ["base", "UART0.CR", "UART1.CR"]


def test_base_when_changed_then_a_field_made_harmless_is_open_again() -> None:
    found = changed(correction("UART0.SR", f"fields.ERR = {{ read = {{ {CLEAN} }} }}"))
    assert is_silent(found.contract.registers["UART0.SR"].fields["ERR"].read)


def test_base_when_changed_then_stricter_corrections_are_kept() -> None:
    said = 'read = { effects = ["pop"] }\nwrite = { effect = "push" }\nowner = "shared"\nsensitive = true'
    found = changed(correction("UART0.CR", said))
    made = found.contract.registers["UART0.CR"]
    assert made.read.effects == {ReadEffect.POP}
    assert (made.write.effect, made.owner, made.sensitive) == (WriteEffect.PUSH, Owner.SHARED, True)
    assert [n.place for n in found.notices] == ["base"]


def test_base_when_changed_then_a_new_field_is_not_harmless() -> None:
    said = f'fields.ALL = {{ bits = "31:0", volatile = false, read = {{ {CLEAN} }}, write = {{ {STORE} }} }}'
    found = changed(correction("SPI.CR", said)).contract
    judged = judge_read(found, (found.registers["SPI.CR"],))
    assert isinstance(judged, ReadJudgement)
    assert not judged.clean


@pytest.mark.parametrize("effect", ["arm"])
def test_base_when_changed_then_a_correction_that_needs_no_key_is_open_again(effect: str) -> None:
    found = changed(correction("SPI.CR", f'read = {{ effects = ["{effect}"] }}')).contract
    judged = judge_read(found, (found.registers["SPI.CR"],))
    assert isinstance(judged, ReadJudgement)
    assert not judged.clean


def test_base_when_changed_then_a_correction_that_allows_updates_is_open_again() -> None:
    text = f"read = {{ {CLEAN} }}\n" + 'write = { effect = "one_to_clear" }\nfields.F = { bits = "31:1" }\n'
    found = changed(correction("SPI.CR", text + "fields.G = { bits = 0 }")).contract
    assert not isinstance(judge_update(found, found.registers["SPI.CR"], frozenset({"F"})), UpdateJudgement)


def test_base_when_changed_then_registers_of_the_overlay_stay_as_it_says() -> None:
    text = f'[registers.NEW]\noffset = 0x100\naccess = "ro"\nread = {{ {CLEAN} }}\n'
    assert clean(changed(text).contract.registers["NEW"])


def test_base_when_changed_and_what_is_corrected_has_gone_then_a_fault() -> None:
    with pytest.raises(Faults, match="offset: key is missing"):
        changed(correction("SPI.GONE", "volatile = true"))


# from silence to harmless: only by evidence


def test_overlay_when_laid_then_nothing_harmless_rests_on_silence() -> None:
    found = laid(review("'*'", 'silent_read = "none"\nsilent_write = "store"')).contract
    for made in found.registers.values():
        places: list[Register | Field] = [made, *made.fields.values()]
        for place in places:
            if clean(place):
                assert place.read.provenance.basis is Basis.REVIEWED
            if place.write.effect is WriteEffect.STORE:
                assert place.write.provenance.basis is Basis.REVIEWED


def test_write_spec_when_store_rests_on_silence_then_it_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="store cannot rest on"):
        WriteSpec(WriteEffect.STORE, BASE.registers["SPI.CR"].write.provenance)


def test_read_when_reviewed_and_one_field_is_write_only_then_clean() -> None:
    fields = [field("A"), field("W", "[1:1]", tags(access="write-only"))]
    base = contract(peripheral("P", register("R", 0, tags(access="read-write"), fields)))
    found = laid(review('"P.*"'), base).contract
    judged = judge_read(found, (found.registers["P.R"],))
    assert isinstance(judged, ReadJudgement)
    assert judged.clean


# files


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    text = device(UART, peripheral("UART1", base="0x40001000", derived="UART0"))
    (tmp_path / "toy.svd").write_text(text)
    sha = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "over.toml").write_text(HEAD.replace(SHA, sha) + review())
    return tmp_path


def test_overlay_when_named_as_a_contract_then_its_base_stands_beside_it(beside: Path) -> None:
    assert clean(find_contract("over.toml", beside).registers["UART0.CR"])
    assert clean(find_contract(str(beside / "over.toml")).registers["UART0.CR"])


def test_overlay_when_laid_over_a_file_then_the_same(beside: Path) -> None:
    by_name = find("over.toml", beside)
    by_hand = find("toy.svd", beside, ["over.toml"])
    assert by_name == by_hand
    assert not by_name.notices
    assert not clean(find_contract("toy.svd", beside).registers["UART0.CR"])


def test_overlay_when_the_base_is_missing_then_a_fault(beside: Path) -> None:
    (beside / "toy.svd").unlink()
    with pytest.raises(Faults, match=r"toy\.svd.*cannot be read"):
        find("over.toml", beside)


def test_overlay_when_laid_over_a_bundled_chip_then_corrected(tmp_path: Path) -> None:
    text = 'base = "tmp102.toml"\nbase_sha256 = "0"\n[registers.CONFIG]\nowner = "shared"\n'
    (tmp_path / "mine.toml").write_text(text)
    name = next(n for n in bundled("tmp102").registers if n.startswith("CONF"))
    (tmp_path / "mine.toml").write_text(text.replace("CONFIG", name))
    found = find("tmp102", tmp_path, ["mine.toml"])
    assert found.contract.registers[name].owner is Owner.SHARED


def test_overlay_when_unknown_then_near_misses(tmp_path: Path) -> None:
    with pytest.raises(Faults, match="rp2040"):
        find("tmp102", None, ["rp2041"])
    with pytest.raises(Faults, match="tmp102"):
        find("tmp103", None, ["rp2040"])


@pytest.mark.parametrize("names", [("a", "a"), ("a", "b")], ids=["itself", "each other"])
def test_overlay_when_it_is_its_own_base_then_a_fault(tmp_path: Path, names: tuple[str, str]) -> None:
    for name, other in zip(names, reversed(names), strict=True):
        (tmp_path / f"{name}.toml").write_text(HEAD.replace("toy.svd", f"{other}.toml"))
    with pytest.raises(Faults):
        find("a.toml", tmp_path)


def test_overlay_when_its_base_is_an_overlay_then_its_digest_is_that_files(beside: Path) -> None:
    sha = hashlib.sha256((beside / "over.toml").read_bytes()).hexdigest()
    head = HEAD.replace("toy.svd", "over.toml").replace(SHA, sha)
    (beside / "second.toml").write_text(head + review(said='silent_write = "store"'))
    assert not find("second.toml", beside).notices


def test_file_when_of_another_ending_and_no_text_then_a_fault(tmp_path: Path) -> None:
    (tmp_path / "chip.SVD").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Faults):
        find("./chip.SVD", tmp_path)


def test_clusters_when_nested_in_the_base_then_reviews_reach_them() -> None:
    base = contract(peripheral("P", cluster("C[%s]", register("R"), more=tags(dim=2, dimIncrement=4))))
    found = over(review('"P.C[1].*"'), base)
    assert [n for n, r in found.items() if clean(r)] == ["P.C[1].R"]
