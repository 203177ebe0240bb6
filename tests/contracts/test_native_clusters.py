"""Clusters of the native format: nested, derived, in arrays, and what is refused of them."""

from __future__ import annotations

import pytest

from hwtool_contracts import native
from hwtool_contracts.library import find
from hwtool_contracts.model import ByteOrder, MappedAccess
from hwtool_contracts.native import MAX_CLUSTER_DEPTH, parse_contract
from hwtool_contracts.toml_reader import Faults

HEAD = 'schema = 1\npart = "toy"\nvendor = "v"\ntitle = "t"\nsource = "s"\n[access]\n[access.mapped]\n'
REG = 'offset = {}\naccess = "rw"\n'


def cluster(name: str, registers: dict[str, int], more: str = "") -> str:
    text = f"[clusters.{name}]\n{more or 'offset = 0'}\n"
    return text + "".join(f"[clusters.{name}.registers.{r}]\n" + REG.format(at) for r, at in registers.items())


def offsets(text: str) -> dict[str, int]:
    return {n: r.offset for n, r in parse_contract(HEAD + text, "toy.toml").registers.items()}


def faults_of(text: str, head: str = HEAD) -> list[str]:
    with pytest.raises(Faults) as caught:
        parse_contract(head + text, "toy.toml")
    return [str(f) for f in caught.value.faults]


def test_mapped_access_when_stated_then_four_bytes_and_little() -> None:
    made = parse_contract(HEAD + "[registers.R]\n" + REG.format(0), "t")
    assert (made.access.offset_bytes, made.access.mapped) == (4, MappedAccess(ByteOrder.LITTLE))
    assert made.registers["R"].byte_order is ByteOrder.LITTLE
    big = parse_contract(
        HEAD.replace("[access]", '[access]\noffset_bytes = 8\nbyte_order = "big"')
        + "[registers.R]\n"
        + REG.format(1 << 40),
        "t",
    )
    assert (big.access.offset_bytes, big.registers["R"].byte_order) == (8, ByteOrder.BIG)


def test_cluster_when_nested_then_names_and_offsets_add_up() -> None:
    text = cluster("A", {"R": 1}, "offset = 0x100\ncount = 2\nstride_bytes = 0x10")
    text += "[clusters.A.clusters.B]\noffset = 4\n[clusters.A.clusters.B.registers.S]\n" + REG.format(2)
    assert offsets(text) == {"A[0].R": 0x101, "A[0].B.S": 0x106, "A[1].R": 0x111, "A[1].B.S": 0x116}


def test_cluster_when_derived_then_it_has_the_registers_of_its_bases_and_its_own() -> None:
    text = cluster("A", {"R": 1, "S": 2})
    text += cluster("B", {"S": 8}, 'offset = 0x10\nderived_from = "A"')
    text += cluster("C", {"T": 9}, 'offset = 0x20\nderived_from = "B"')
    assert offsets(text) == {
        "A.R": 1, "A.S": 2, "B.R": 0x11, "B.S": 0x18, "C.R": 0x21, "C.S": 0x28, "C.T": 0x29,
    }  # fmt: skip
    assert parse_contract(HEAD + text, "t").derived_from == {"B": "A", "C": "B"}


def test_cluster_when_an_array_is_derived_then_each_of_it_is() -> None:
    text = cluster("A", {"R": 1}) + cluster("B", {}, 'offset = 16\nderived_from = "A"\ncount = 2\nstride_bytes = 4')
    assert parse_contract(HEAD + text, "t").derived_from == {"B[0]": "A", "B[1]": "A"}
    assert offsets(text) == {"A.R": 1, "B[0].R": 17, "B[1].R": 21}


def test_cluster_when_derived_inside_another_then_its_siblings_are_the_bases() -> None:
    text = "[clusters.P]\noffset = 0\n[clusters.P.clusters.A]\noffset = 0\n[clusters.P.clusters.A.registers.R]\n"
    text += REG.format(1) + '[clusters.P.clusters.B]\noffset = 8\nderived_from = "A"\n'
    assert offsets(text) == {"P.A.R": 1, "P.B.R": 9}
    assert parse_contract(HEAD + text, "t").derived_from == {}


DEEP = "".join(f"[{'.'.join(['clusters.C'] * n)}]\noffset = 0\n" for n in range(1, MAX_CLUSTER_DEPTH + 4))
BROKEN = {
    "nowhere": (
        cluster("A", {"R": 0}, 'offset = 0\nderived_from = "Z"'),
        "clusters.A.derived_from: no such cluster beside it; found Z; wanted one of A",
    ),
    "circle": (
        cluster("A", {"R": 0}, 'offset = 0\nderived_from = "B"') + cluster("B", {}, 'offset = 8\nderived_from = "A"'),
        "clusters.A.derived_from: goes in a circle; found A → B → A",
    ),
    "itself": (cluster("A", {"R": 0}, 'offset = 0\nderived_from = "A"'), "goes in a circle; found A → A"),
    "too deep": ("[registers.R]\n" + REG.format(0) + DEEP, "nested too deeply"),
    "array of faults": (
        cluster("A", {"R": 0}, "offset = 0\ncount = 9\nstride_bytes = 4") + "colour = 1\n",
        "colour: unknown key",
    ),
    "same name": (
        cluster("A", {"R": 0}) + '[registers."A.R"]\n' + REG.format(8),
        "two registers of one name; found A.R",
    ),
    "overlay": (
        '[registers.R]\noffset = 0\naccess = "rw"\n[[review]]\nmatch = "*"\n',
        "review: an overlay is no contract",
    ),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_cluster_when_it_breaks_a_rule_then_the_fault_names_it(case: str) -> None:
    text, wanted = BROKEN[case]
    found = faults_of(text)
    assert any(wanted in fault for fault in found), found


def test_cluster_when_an_array_is_wrong_then_its_faults_come_once() -> None:
    text, wanted = BROKEN["array of faults"]
    assert sum(wanted in fault for fault in faults_of(text)) == 1


def test_contract_when_mapped_and_on_a_bus_then_a_fault() -> None:
    head = HEAD + "[access.i2c]\naddresses = [0x20]\n"
    assert any(
        "memory-mapped, and on a bus with addresses" in f for f in faults_of("[registers.R]\n" + REG.format(0), head)
    )


def test_registers_when_too_many_then_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MAX_REGISTERS", 3)
    text = cluster("A", {"R": 0, "S": 1}, "offset = 0\ncount = 5\nstride_bytes = 8")
    assert any("too many registers" in fault for fault in faults_of(text))


def test_bundled_overlay_when_named_then_looked_for_among_the_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid over the wrong chip it is refused, or loads with a notice: the name was found either way."""
    try:
        found = find("tmp102", None, ["rp2040"])
    except Faults as error:
        assert all(fault.file == "rp2040.toml" for fault in error.faults)
    else:
        assert found.notices
