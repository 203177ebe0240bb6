"""Real SVD files: what each becomes, against another parser, there and back, and that silence never turns harmless."""

from __future__ import annotations

import hashlib
import json
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from hwtool_contracts import wire
from hwtool_contracts.effects import NO_BASIS_FOR_HARMLESS, Basis, ReadEffect, WriteEffect
from hwtool_contracts.importers.svd import import_svd
from hwtool_contracts.library import OVERLAYS, bundled_overlays
from hwtool_contracts.model import Contract, Field, Register
from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.notice import Imported
from hwtool_contracts.overlay import lay_over
from hwtool_contracts.toml_reader import Faults
from tests.corpus import corpus_file, svd_files

UNMEASURED = True

# file: registers, fields, notices, registers or fields that state a read effect, that state a write effect
FILES: dict[str, tuple[int, int, int, int, int]] = {
    "ARM_Example.svd": (33, 60, 0, 0, 0),
    "ATSAM3N0A.svd": (416, 4385, 1, 0, 0),
    "ATSAMD21E15L.svd": (1023, 3821, 0, 0, 0),
    "CMSDK_CM3.svd": (116, 182, 0, 0, 37),
    "D1-H.svd": (2566, 3059, 199, 0, 25),
    "EFM32ZG108F4.svd": (303, 1203, 0, 24, 0),
    "RP2040.svd": (1182, 5800, 0, 53, 292),
    "STM32F410.svd": (461, 2915, 0, 0, 0),
    "e310x.svd": (237, 874, 6, 0, 0),
    "esp32s2-ulp.svd": (104, 523, 1, 0, 0),
    "esp8266.svd": (214, 821, 23, 0, 0),
    "fu540.svd": (25, 67, 0, 0, 0),
    "neorv32.svd": (184, 282, 1, 28, 0),
    "svdconv/DisableCondTest.svd": (7, 6, 0, 0, 0),
    "svdconv/PosMaskDim.svd": (256, 2048, 0, 0, 0),
    "svdconv/SVDTiny.svd": (5, 0, 0, 0, 0),
    "svdsuite/default_register_properties_on_device_level.svd": (1, 0, 0, 0, 0),
    "svdsuite/simple_array_peripheral_level.svd": (4, 0, 0, 0, 0),
    "svdsuite/simple_list_field_level.svd": (1, 2, 0, 0, 0),
}
REFUSED = {
    "svdconv/ResetMask.svd": ["RESET_MASK.TIMER2: size is not supported; found 65; wanted 1 to 64 bits"],
    "svdsuite/circular_inheritance.svd": [
        "PeripheralA.ClusterA: derivedFrom goes in a circle; found ClusterB",
        "PeripheralA.ClusterB: derivedFrom goes in a circle; found ClusterA",
    ],
    "svdsuite/nested_cluster_inheritance.svd": [
        "PeripheralA.ClusterA.ClusterB: derivedFrom goes in a circle; found ClusterA"
    ],
    "svdsuite/test_setup_5.svd": ["PeripheralB.RegisterA: derivedFrom leads nowhere; found PATH"],
}

# where cmsis-svd sees otherwise, by address: (width, fields as (lowest bit, width)) of it, and why
WORDS = (
    "it does not resolve a derivedFrom with a path into a cluster; the file has the field CDS there (lines 111, 141)"
)
GANG = "the file has cmp2gang as [36:26] of a register of 32 bits: left out here, with a notice"
ELSEWHERE = {
    ("svdconv/DisableCondTest.svd", 0xE000EE10): WORDS,
    ("e310x.svd", 0x10015000): GANG,
    ("e310x.svd", 0x10025000): GANG,
    ("e310x.svd", 0x10035000): GANG,
}


@cache
def imported(name: str) -> Imported:
    """The import of a file; tests do not change it."""
    return import_svd(corpus_file(f"svd/{name}"))


def places(contract: Contract) -> Iterator[tuple[str, Register | Field]]:
    """Every register and field with its path."""
    for name, register in contract.registers.items():
        yield name, register
        for field in register.fields.values():
            yield f"{name}.{field.name}", field


def harmless(contract: Contract) -> set[str]:
    """Places whose read is none or whose write is store."""
    return {
        name
        for name, place in places(contract)
        if place.read.effects == {ReadEffect.NONE} or place.write.effect is WriteEffect.STORE
    }


def test_corpus_when_listed_then_each_file_is_in_a_table() -> None:
    root = corpus_file("svd/ARM_Example.svd").parent
    assert {str(path.relative_to(root)) for path in svd_files()} == FILES.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", list(FILES))
def test_file_when_imported_then_as_many_of_everything_as_the_table_says(name: str) -> None:
    found = imported(name)
    told = [place for _, place in places(found.contract)]
    registers = len(found.contract.registers)
    assert FILES[name] == (
        registers,
        len(told) - registers,
        len(found.notices),
        sum(place.read.provenance.basis is Basis.ASSERTED for place in told),
        sum(place.write.provenance.basis is Basis.ASSERTED for place in told),
    )


@pytest.mark.parametrize("name", list(REFUSED))
def test_file_when_refused_then_with_these_faults(name: str) -> None:
    path = corpus_file(f"svd/{name}")
    with pytest.raises(Faults) as caught:
        import_svd(path)
    assert len(caught.value.faults) == len(REFUSED[name])
    for fault, wanted in zip(caught.value.faults, REFUSED[name], strict=True):
        assert wanted in str(fault)


@pytest.mark.parametrize("name", list(FILES))
def test_file_when_read_by_cmsis_svd_then_the_same_addresses_widths_and_bits(name: str) -> None:
    parser = pytest.importorskip("cmsis_svd.parser", reason="the oracle cmsis-svd is not installed")
    device = parser.SVDParser.for_xml_file(str(corpus_file(f"svd/{name}"))).get_device()
    theirs: Counter[tuple[int, int, tuple[tuple[int, int], ...]]] = Counter()
    for array in device.peripherals:
        for one in getattr(array, "peripherals", None) or [array]:
            for register in one.get_registers() or []:
                bits = sorted((f.bit_offset, f.bit_width) for f in register.get_fields() or [])
                # it passes over <width> of the device, which is what is left here
                theirs[(one.base_address + register.address_offset, register.size or 32, tuple(bits))] += 1
    contract = imported(name).contract
    mine = Counter(
        (r.offset, r.width_bits, tuple(sorted((f.lsb, f.width_bits) for f in r.fields.values())))
        for r in contract.registers.values()
    )
    differ = {offset for offset, _, _ in (theirs - mine) + (mine - theirs)}
    assert differ == {offset for file, offset in ELSEWHERE if file == name}
    assert theirs.total() == mine.total()


def test_e310x_when_imported_then_the_field_outside_is_the_one_left_out() -> None:
    notices = [n for n in imported("e310x.svd").notices if n.rule == "outside the register"]
    assert [(n.place, n.found) for n in notices] == [(f"PWM{i}.cfg.cmp2gang", "bits 36:26 of 32") for i in range(3)]


def test_disable_condition_file_when_imported_then_the_derived_register_has_the_field_of_its_base() -> None:
    registers = imported("svdconv/DisableCondTest.svd").contract.registers
    assert list(registers["DCB.DSCSR"].fields) == ["CDS"]
    assert registers["DCB.DSCSR"].fields == registers["DCB.DSCSR_Clust.DSCSR"].fields


@pytest.mark.parametrize("name", list(FILES))
def test_contract_when_written_and_read_then_the_same_but_for_the_digest(name: str) -> None:
    contract = imported(name).contract
    again = parse_contract(write_contract(contract), "again.toml")
    assert list(again.registers) == list(contract.registers) or set(again.registers) == set(contract.registers)
    for register in contract.registers:
        assert again.registers[register] == contract.registers[register]
    assert replace(again, digest=contract.digest) == contract


@pytest.mark.parametrize("name", list(FILES))
def test_contract_when_encoded_and_decoded_then_equal_and_the_same_bytes_again(name: str) -> None:
    found = imported(name)
    data = wire.encode(found)
    assert wire.encode(found) == data
    again = wire.decode(data)
    assert again == found
    assert list(again.contract.registers) == list(found.contract.registers)
    assert wire.encode(again) == data


# no path from silence to harmless


@pytest.mark.parametrize("name", list(FILES))
def test_file_when_imported_then_nothing_is_harmless_and_silence_is_unknown(name: str) -> None:
    contract = imported(name).contract
    assert harmless(contract) == set()
    for path, place in places(contract):
        if place.read.provenance.basis in NO_BASIS_FOR_HARMLESS:
            assert place.read.effects == {ReadEffect.UNKNOWN}, path
        if place.write.provenance.basis in NO_BASIS_FOR_HARMLESS:
            assert place.write.effect is WriteEffect.UNKNOWN, path
        assert place.volatile and place.volatile_unsaid, path


@pytest.mark.parametrize("name", [n for n, row in FILES.items() if row[3:] == (0, 0)])
def test_file_when_it_states_nothing_then_everything_is_silent(name: str) -> None:
    text = corpus_file(f"svd/{name}").read_text()
    assert not re.search(r"<(readAction|modifiedWriteValues)>|[wW]riteOnce", text)
    for _, place in places(imported(name).contract):
        assert place.read.provenance.basis is place.write.provenance.basis is Basis.SILENT


@cache
def pattern(text: str) -> re.Pattern[str]:
    """A pattern of an overlay, read by the manual and not by the code: `*` any text, `?` one character."""
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text) + r"\Z")


def covered_names(contract: Contract, overlay: dict[str, object]) -> set[str]:
    """The registers that an overlay may have touched: matched by a review and not excepted, or named in a table."""

    def known_as(name: str) -> list[str]:
        peripheral, _, rest = name.partition(".")
        names = [name]
        while peripheral in contract.derived_from:
            peripheral = contract.derived_from[peripheral]
            names.append(f"{peripheral}.{rest}")
        return names

    reviews = overlay.get("review", [])
    tables = overlay.get("registers", {})
    assert isinstance(reviews, list) and isinstance(tables, dict)
    found = set()
    for name in contract.registers:
        names = known_as(name)
        for review in reviews:
            matches = [review["match"]] if isinstance(review["match"], str) else review["match"]
            hit = any(pattern(m).match(n) for m in matches for n in names)
            if hit and not any(pattern(e).match(n) for e in review.get("except", []) for n in names):
                found.add(name)
        if any(pattern(table).match(n) for table in tables for n in names):
            found.add(name)
    return found


def check_cover(base: Contract, found: Contract, overlay: dict[str, object]) -> None:
    """Only what the overlay covers became harmless, with evidence; all else is as it was."""
    may = covered_names(base, overlay)
    made = harmless(found)
    assert made
    assert {path for path in made if path not in may and path.rpartition(".")[0] not in may} == set()
    for register in set(base.registers) - may:
        assert found.registers[register] == base.registers[register]
    for path, place in places(found):
        if place.read.effects == {ReadEffect.NONE}:
            assert place.read.provenance.basis is Basis.REVIEWED, path
            assert place.read.provenance.seen in ("page", "driver") and place.read.provenance.source, path
        if place.write.effect is WriteEffect.STORE:
            assert place.write.provenance.basis is Basis.REVIEWED, path
            assert place.write.provenance.seen in ("page", "driver") and place.write.provenance.source, path


@pytest.mark.parametrize("name", bundled_overlays())
def test_bundled_overlay_when_laid_then_only_what_it_covers_became_harmless(name: str) -> None:
    text = (OVERLAYS / f"{name}.toml").read_text()
    overlay = tomllib.loads(text)
    base = imported(overlay["base"]).contract
    data = corpus_file(f"svd/{overlay['base']}").read_bytes()
    found = lay_over(base, hashlib.sha256(data).hexdigest(), text, f"{name}.toml")
    assert not found.notices
    check_cover(base, found.contract, overlay)


WALKED = ["RP2040.svd", "STM32F410.svd", "EFM32ZG108F4.svd", "neorv32.svd", "e310x.svd", "CMSDK_CM3.svd"]
REVIEW = (
    '[[review]]\nmatch = {match}\nexcept = {out}\n{said}\nseen = "driver"\nsource = "-"\nreviewed_by = "-"\n'
    "on = 2026-11-30\n"
)


@pytest.mark.parametrize("name", WALKED)
@pytest.mark.parametrize("number", range(4))
def test_overlay_when_put_together_at_random_then_only_what_it_covers_became_harmless(name: str, number: int) -> None:
    base = imported(name).contract
    chance = random.Random(f"{name} {number}")
    peripherals = sorted({n.partition(".")[0] for n in base.registers})
    text = f'base = "x"\nbase_sha256 = "{"0" * 64}"\n'
    for _ in range(3):
        chosen = chance.choice([*peripherals, "*"])
        match = [f"{chosen}.*"] if chance.random() < 0.7 else [n for n in base.registers if chance.random() < 0.05]
        out = [n for n in base.registers if chance.random() < 0.1] + (["*SR", "*?DR"] if chance.random() < 0.5 else [])
        said = chance.choice(['silent_read = "none"', 'silent_write = "store"\nsilent_volatile = false'])
        text += REVIEW.format(match=json.dumps(match), out=json.dumps(out), said=said)
    read = 'read = { effects = ["none"], provenance = "reviewed", seen = "page", source = "-" }\n'
    readable = [n for n, r in base.registers.items() if r.access.readable]
    for register in chance.sample(readable, 3):
        text += f'[registers."{register}"]\n{read}'
    found = lay_over(base, "0" * 64, text, "random.toml")
    assert not found.notices
    check_cover(base, found.contract, tomllib.loads(text))


@pytest.mark.parametrize("name", bundled_overlays())
def test_bundled_overlay_when_the_base_has_changed_then_nothing_is_harmless(name: str) -> None:
    whole = (OVERLAYS / f"{name}.toml").read_text()
    text = "\n".join(line for line in whole.splitlines() if not line.startswith("covers_sha256"))
    base = imported(tomllib.loads(text)["base"]).contract
    found = lay_over(base, "0" * 64, text, f"{name}.toml")
    assert found.notices
    assert harmless(found.contract) == set()


@pytest.mark.parametrize("name", bundled_overlays())
def test_bundled_overlay_when_only_bytes_of_the_base_have_changed_then_its_reviews_hold(name: str) -> None:
    text = (OVERLAYS / f"{name}.toml").read_text()
    overlay = tomllib.loads(text)
    base = imported(overlay["base"]).contract
    found = lay_over(base, "0" * 64, text, f"{name}.toml")
    assert harmless(found.contract)
    assert not [n for n in found.notices if n.place.startswith("review[")]


@pytest.mark.parametrize("name", bundled_overlays())
def test_bundled_overlay_when_laid_then_what_the_file_states_is_kept_unless_a_table_says_otherwise(name: str) -> None:
    text = (OVERLAYS / f"{name}.toml").read_text()
    overlay = tomllib.loads(text)
    base = imported(overlay["base"]).contract
    data = corpus_file(f"svd/{overlay['base']}").read_bytes()
    found = lay_over(base, hashlib.sha256(data).hexdigest(), text, f"{name}.toml").contract
    corrected = covered_names(base, {"registers": overlay.get("registers", {})})
    for register in set(base.registers) - corrected:
        for (_, before), (path, after) in zip(
            places(replace(base, registers={register: base.registers[register]})),
            places(replace(found, registers={register: found.registers[register]})),
            strict=True,
        ):
            if before.read.provenance.basis is Basis.ASSERTED:
                assert after.read == before.read, path
            if before.write.provenance.basis is Basis.ASSERTED:
                assert after.write == before.write, path


@pytest.mark.parametrize("name", ["RP2040.svd", "neorv32.svd", "e310x.svd"])
def test_everything_when_reviewed_then_what_the_file_states_is_kept(name: str) -> None:
    base = imported(name).contract
    entry = (
        f'base = "x"\nbase_sha256 = "{"0" * 64}"\n[[review]]\nmatch = "*"\nsilent_read = "none"\n'
        'silent_write = "store"\nseen = "page"\nsource = "-"\nreviewed_by = "-"\non = 2026-11-30\n'
    )
    found = lay_over(base, "0" * 64, entry, "all.toml").contract
    for (path, before), (_, after) in zip(places(base), places(found), strict=True):
        if before.read.provenance.basis is Basis.ASSERTED:
            assert after.read == before.read, path
        if before.write.provenance.basis is Basis.ASSERTED:
            assert after.write == before.write, path
