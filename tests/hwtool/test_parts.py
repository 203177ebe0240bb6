"""Parts of a chip as devices, indexed banks, nested and derived clusters, the order of groups, identities, overlays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board, parse_board
from hwtool_contracts.judge import ReadJudgement, judge_read
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.library import bundled
from hwtool_contracts.model import Contract
from hwtool_contracts.native import parse_contract
from hwtool_contracts.parts import part_of
from hwtool_contracts.toml_reader import Faults
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import (
    DEFAULTS,
    I2C,
    KEY,
    KEY2,
    KEY3,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    raws,
    reg,
    toy_board,
)


def contract_of(*parts: str, head: str = I2C) -> Contract:
    return parse_contract(head + DEFAULTS + "\n".join(parts), "toy.toml")


def inner(cluster: str, name: str, offset: int, rest: str = "", access: str = "rw") -> str:
    """One register of a cluster."""
    return f"[clusters.{cluster}.registers.{name}]\noffset = {offset}\naccess = '{access}'\n{rest}\n"


def traffic(lab: Lab, name: str) -> list[tuple[str, str, Any]]:
    return [
        ("R", t["offset"], t["size_bytes"]) if t["do"] == "read" else ("W", t["offset"], t["data"])
        for t in lab.sent(name)
    ]


# --- banks that an element selects by its number ----------------------------------------------------------------

PAGED = (
    "[banks.PAGE]\nselect = [{ register = 'PAGE', value = '@index', mask = 0x0f }]\n",
    reg("PAGE", 0),
    "[clusters.CH]\noffset = 0\ncount = 3\nstride_bytes = 0\nbank = 'PAGE'\n",
    inner("CH", "V", 4),
)


def test_indexed_bank_when_loaded_then_one_for_each_element() -> None:
    contract = contract_of(*PAGED)
    assert {n: [(s.register, s.value, s.mask) for s in b.select] for n, b in contract.banks.items()} == {
        f"PAGE[{i}]": [("PAGE", i, 0x0F)] for i in range(3)
    }
    assert {n: (r.bank, r.offset) for n, r in contract.registers.items() if r.bank} == {
        f"CH[{i}].V": (f"PAGE[{i}]", 4) for i in range(3)
    }


def test_indexed_bank_when_an_element_is_used_then_selected_and_set_back(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"CH[0].V": 0x10, "CH[1].V": 0x11, "CH[2].V": 0x12, "PAGE": 0xA0}
        done = await lab.ask("reg.read", registers=["toy.CH[2].V"])
        assert raws(done) == ["0x12"]
        accesses = [t for t in traffic(lab, "toy") if t != ("R", "0x00", 1)]
        assert accesses == [("W", "0x00", "a2"), ("R", "0x04", 1), ("W", "0x00", "a0")]
        assert (await lab.ask("reg.write", register="toy.CH[1].V", value=0x55, key=KEY)).verdict == "applied"
        values = lab.chip().values
        assert [values[f"CH[{i}].V"] for i in range(3)] == [0x10, 0x55, 0x12]
        assert values["PAGE"] == 0xA0

    play(life, toy_board(tmp_path, *PAGED))


def test_indexed_bank_when_several_selectors_then_the_number_is_in_its_own_alone() -> None:
    banks = (
        "[banks.B]\nselect = [{ register = 'PAGE', value = '@index', mask = 0x0f }, { register = 'KEY', value = 7 }]\n"
        "restore = 'none'\n"
    )
    contract = contract_of(banks, reg("KEY", 1), *PAGED[1:2], PAGED[2].replace("PAGE", "B"), PAGED[3])
    assert [(s.register, s.value, s.mask) for s in contract.banks["B[2]"].select] == [
        ("PAGE", 2, 0x0F),
        ("KEY", 7, 0xFF),
    ]
    assert contract.banks["B[2]"].restore == "none"


def test_indexed_bank_when_the_mask_has_no_room_for_the_number_then_refused() -> None:
    with pytest.raises(Faults, match="mask"):
        contract_of(PAGED[0].replace("0x0f", "0x01"), *PAGED[1:])


def test_bank_of_a_cluster_when_a_cluster_stands_inside_then_what_follows_keeps_it() -> None:
    contract = contract_of(
        "[banks.ONE]\nselect = [{ register = 'PAGE', value = 1, mask = 0x0f }]\n",
        reg("PAGE", 0),
        "[clusters.A]\noffset = 8\nbank = 'ONE'\n",
        "[clusters.A.clusters.B]\noffset = 0\n[clusters.A.clusters.B.registers.X]\noffset = 0\naccess = 'rw'\n",
        "[clusters.A.clusters.C]\noffset = 4\n[clusters.A.clusters.C.registers.Y]\noffset = 0\naccess = 'rw'\n",
    )
    assert {n: r.bank for n, r in contract.registers.items() if n != "PAGE"} == {"A.B.X": "ONE", "A.C.Y": "ONE"}


# --- clusters ---------------------------------------------------------------------------------------------------


def test_nested_clusters_when_loaded_then_offsets_add_up_and_siblings_are_found() -> None:
    contract = contract_of(
        "[clusters.A]\noffset = 0x10\ncount = 2\nstride_bytes = 0x20\n",
        inner("A", "OWN", 0),
        "[clusters.A.clusters.B]\noffset = 4\ncount = 2\nstride_bytes = 8\n",
        "[clusters.A.clusters.B.registers.X]\noffset = 1\naccess = 'rw'\nset_at = 2\nclear_at = 3\n",
        "[clusters.A.clusters.B.registers.Y]\noffset = 5\naccess = 'ro'\n" + effect("ack", ", affects = ['X']") + "\n",
    )
    assert {n: r.offset for n, r in contract.registers.items()} == {
        "A[0].OWN": 0x10,
        "A[0].B[0].X": 0x15,
        "A[0].B[0].Y": 0x19,
        "A[0].B[1].X": 0x1D,
        "A[0].B[1].Y": 0x21,
        "A[1].OWN": 0x30,
        "A[1].B[0].X": 0x35,
        "A[1].B[0].Y": 0x39,
        "A[1].B[1].X": 0x3D,
        "A[1].B[1].Y": 0x41,
    }
    x = contract.registers["A[1].B[1].X"]
    assert x.set_at is not None and x.clear_at is not None
    assert (x.set_at.at, x.clear_at.at) == (0x3E, 0x3F)


def test_derived_cluster_when_loaded_then_its_base_with_its_own_in_their_place() -> None:
    contract = contract_of(
        "[clusters.A]\noffset = 0x10\n",
        inner("A", "X", 0),
        inner("A", "Y", 1),
        "[clusters.B]\noffset = 0x20\nderived_from = 'A'\n",
        inner("B", "Y", 2, "reset = 7"),
        "[clusters.C]\noffset = 0x30\nderived_from = 'B'\ncount = 2\nstride_bytes = 8\n",
    )
    assert {n: (r.offset, r.reset) for n, r in contract.registers.items()} == {
        "A.X": (0x10, None),
        "A.Y": (0x11, None),
        "B.X": (0x20, None),
        "B.Y": (0x22, 7),
        "C[0].X": (0x30, None),
        "C[0].Y": (0x32, 7),
        "C[1].X": (0x38, None),
        "C[1].Y": (0x3A, 7),
    }
    assert contract.derived_from == {"B": "A", "C[0]": "B", "C[1]": "B"}


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no such base": (("[clusters.B]\noffset = 0\nderived_from = 'A'\n",), "no such cluster"),
    "a circle": (
        (
            "[clusters.A]\noffset = 0\nderived_from = 'B'\n",
            inner("A", "X", 0),
            "[clusters.B]\noffset = 8\nderived_from = 'A'\n",
        ),
        "goes in a circle",
    ),
    "of itself": (("[clusters.A]\noffset = 0\nderived_from = 'A'\n", inner("A", "X", 0)), "goes in a circle"),
    "aliases": (("[clusters.A]\noffset = 0\naliases = 1\n", inner("A", "X", 0)), "wrong type"),
    "unknown bank": (("[clusters.A]\noffset = 0\nbank = 'NO'\n", inner("A", "X", 0)), "no such bank"),
    "count alone": (("[clusters.A]\noffset = 0\ncount = 2\n", inner("A", "X", 0)), "needs count and stride"),
    "a fault in each element": (
        ("[clusters.A]\noffset = 0\ncount = 9\nstride_bytes = 1\n", inner("A", "X", 0, "nonsense = 1")),
        "nonsense",
    ),
}


@pytest.mark.parametrize(("parts", "rule"), WRONG.values(), ids=list(WRONG))
def test_cluster_when_something_is_wrong_then_a_fault_says_it_once_a_cluster(parts: tuple[str, ...], rule: str) -> None:
    with pytest.raises(Faults) as caught:
        contract_of(*parts)
    said = [str(f) for f in caught.value.faults]
    assert 1 <= sum(rule in line for line in said) <= len(parts), said


def test_clusters_when_nested_without_end_then_refused() -> None:
    path, lines = "clusters.A", []
    for _ in range(20):
        lines.append(f"[{path}]\noffset = 0\n")
        path += ".clusters.A"
    with pytest.raises(Faults, match="nested too deeply"):
        contract_of(*lines)


# --- groups -----------------------------------------------------------------------------------------------------


def test_group_when_it_has_an_order_then_read_and_written_in_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        done = await lab.ask("reg.read", registers=["toy.G"])
        assert done.ok
        assert traffic(lab, "toy") == [("R", "0x02", 1), ("R", "0x00", 1), ("R", "0x01", 1)]
        values = {"toy.A": 1, "toy.B": 2, "toy.C": 3}
        assert (await lab.ask("reg.write", registers=values, key=KEY)).verdict == "applied"
        writes = [t for t in traffic(lab, "toy") if t[0] == "W"]
        assert writes == [("W", "0x02", "03"), ("W", "0x00", "01"), ("W", "0x01", "02")]

    group = "[groups.G]\nmembers = ['A', 'B', 'C']\norder = ['C', 'A', 'B']\n"
    play(life, toy_board(tmp_path, reg("A", 0), reg("B", 1), reg("C", 2), group))


ORDERS = {
    "not the members": ("order = ['A', 'C']", "not the members"),
    "one twice": ("order = ['A', 'A', 'B']", "not the members"),
    "one transfer": ("order = ['B', 'A']\ntransfer = 'one'", "one transfer has the order of the offsets"),
    "unknown transfer": ("transfer = 'two'", "not in the vocabulary"),
}


@pytest.mark.parametrize(("rest", "rule"), ORDERS.values(), ids=list(ORDERS))
def test_order_when_it_does_not_fit_then_refused(rest: str, rule: str) -> None:
    with pytest.raises(Faults, match=rule):
        contract_of(reg("A", 0), reg("B", 1), f"[groups.G]\nmembers = ['A', 'B']\n{rest}\n")


# --- identity ---------------------------------------------------------------------------------------------------

ID = reg("ID", 0xF, access="ro")
IDENTITIES: dict[str, tuple[str, str, int, bool]] = {
    "the number": ("equals = 0x42", "", 0x42, True),
    "another number": ("equals = 0x42", "", 0x43, False),
    "one of several": ("equals = [0x42, 0x43]", "", 0x43, True),
    "none of several": ("equals = [0x42, 0x43]", "", 0x44, False),
    "inside the mask": ("equals = 0x42\nmask = 0xf0", "", 0x4F, True),
    "outside the mask": ("equals = 0x42\nmask = 0xf0", "", 0x5F, False),
    "anything": ("", "", 0x99, True),
    "the board's": ("", "identity = '0x42'", 0x42, True),
    "not the board's": ("", "identity = '0x42'", 0x43, False),
    "both": ("equals = 0x42", "identity = '0x43'", 0x43, True),
}


@pytest.mark.parametrize(("identity", "device", "held", "fits"), IDENTITIES.values(), ids=list(IDENTITIES))
def test_identity_when_the_first_effect_is_asked_for_then_compared_once(
    play: Play, tmp_path: Path, identity: str, device: str, held: int, fits: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["ID"] = held
        done = await lab.ask("reg.write", register="toy.R", value=1, key=KEY)
        assert done.ok is fits
        assert traffic(lab, "toy")[0] == ("R", "0x0f", 1)
        if fits:
            assert (await lab.ask("reg.write", register="toy.R", value=2, key=KEY2)).ok
            assert lab.reads("ID") == 1
        else:
            assert (code_of(done), error_of(done)["what"]) == ("stale", "identity")
            assert (lab.writes("R"), await lab.rows()) == (0, [])

    board = toy_board(tmp_path, reg("R", 0), ID, f"[identity]\nregister = 'ID'\n{identity}\n", device=device)
    play(life, board)


SERIALS = {"the one": ("0x11", 0x11, True), "another": ("0x11", 0x12, False), "not said": (None, 0x12, True)}


@pytest.mark.parametrize(("named", "held", "fits"), SERIALS.values(), ids=list(SERIALS))
def test_serial_when_the_board_names_one_then_it_is_compared_with_the_serial_alone(
    play: Play, tmp_path: Path, named: str | None, held: int, fits: bool
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values |= {"ID": 0x42, "SN": held}
        done = await lab.ask("reg.write", register="toy.R", value=1, key=KEY)
        assert done.ok is fits
        assert traffic(lab, "toy")[:2] == [("R", "0x0f", 1), ("R", "0x0e", 1)]
        lab.chip().values |= {"ID": 0x41, "SN": 0x11}
        lab.device().identified = False
        assert code_of(await lab.ask("reg.write", register="toy.R", value=1, key=KEY2)) == "stale"

    identity = "[identity]\nregister = 'ID'\nequals = 0x42\nserial = 'SN'\n"
    device = "" if named is None else f"identity = '{named}'"
    play(life, toy_board(tmp_path, reg("R", 0), ID, reg("SN", 0xE, access="ro"), identity, device=device))


TEXTS = {
    "begins so": ("ACME,X1,77", None, True),
    "another maker": ("OTHER,X1,77", None, False),
    "this serial": ("ACME,X1,77", "X1,77", True),
    "another serial": ("ACME,X1,78", "X1,77", False),
}


@pytest.mark.parametrize(("held", "named", "fits"), TEXTS.values(), ids=list(TEXTS))
def test_identity_of_text_when_compared_then_it_begins_with_it_and_holds_the_boards(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str, named: str | None, fits: bool
) -> None:
    # the comparison of counts knows no lines
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)

    async def life(lab: Lab) -> None:
        lab.chip().values["IDN"] = int.from_bytes(held.encode(), "big")
        done = await lab.ask("reg.write", register="toy.P", value=1, key=KEY)
        assert done.ok is fits, done
        if not fits:
            assert error_of(done)["found"] == held

    text = (
        I2C.replace(
            'offset_bytes = 1\nbyte_order = "big"\n[access.i2c]\naddresses = [0x20, 0x21]\nauto_increment = "both"',
            "[access.line]",
        )
        + DEFAULTS
        + "[registers.IDN]\nquery = '*IDN?'\naccess = 'ro'\nencoding = 'text'\nwidth_bits = 256\n"
        + "[registers.P]\nset = 'P {value}'\naccess = 'wo'\nencoding = 'decimal'\n"
        + "[identity]\nregister = 'IDN'\nequals = 'ACME'\n"
    )
    (tmp_path / "toy.toml").write_text(text)
    identity = "" if named is None else f"identity = '{named}'\n"
    board = parse_board(
        "name = 'toys'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\n"
        f"[devices.toy]\ncontract = './toy.toml'\nbus = 'b'\n{identity}",
        "toys.toml",
        tmp_path,
    )
    play(life, board)


def test_identity_by_a_command_when_loaded_then_the_command_is_read() -> None:
    identity = bundled("w25q128").identity
    assert identity is not None
    assert (identity.register, identity.equals) == ("JEDEC_ID", (0xEF4018, 0xEF7018))
    for wrong in ("", "register = 'R'\ncommand = 'C'\n"):
        with pytest.raises(Faults, match="one of register and command"):
            contract_of(reg("R", 0), f"[identity]\n{wrong}equals = 1\n")


# --- parts as devices -------------------------------------------------------------------------------------------

CHIP = (
    reg("TOP", 0),
    "[clusters.A]\noffset = 0x10\n",
    inner("A", "X", 0),
    inner("A", "ST", 1, access="ro"),
    inner("A", "F", 2, effect("pop", ", level = 'ST'"), access="ro"),
    "[clusters.B]\noffset = 0x20\nderived_from = 'A'\n",
)


def parts_board(directory: Path, *devices: str, parts: tuple[str, ...] = CHIP, bus: str = "") -> Board:
    (directory / "toy.toml").write_text(I2C + DEFAULTS + "\n".join(parts))
    text = f"name = 'toys'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nreply_lifetime_ms = 100\n{bus}\n"
    return parse_board(text + "\n".join(devices), "toys.toml", directory)


def device(name: str, part: str | None = None, address: int = 0x20, rest: str = "") -> str:
    told = "" if part is None else f"part = '{part}'\n"
    return f"[devices.{name}]\ncontract = './toy.toml'\nbus = 'b'\naddress = {address}\n{told}{rest}\n"


def test_part_when_it_is_a_device_then_its_registers_without_the_clusters_name_and_a_place_of_its_own(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = parts_board(tmp_path, device("one", "A"), device("two", "B"))
    bus = board.buses["b"]
    assert [d.locus(bus) for d in board.devices.values()] == ["sim:b:0x20/A", "sim:b:0x20/B"]
    assert list(board.devices["one"].contract.registers) == ["X", "ST", "F"]
    assert board.devices["one"].contract.digest != board.devices["two"].contract.digest
    assert board.devices["one"].contract.part == "toy.A"

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="one.X", value=1, key=KEY)).verdict == "applied"
        assert (await lab.ask("reg.write", register="two.X", value=2, key=KEY2)).verdict == "applied"
        assert [t for t in traffic(lab, "one") if t[0] == "W"] == [("W", "0x10", "01"), ("W", "0x20", "02")]
        values = lab.chip("one").values
        assert (values["A.X"], values["B.X"]) == (1, 2)
        assert lab.chip("one") is lab.chip("two")
        assert code_of(await lab.ask("reg.read", registers=["one.TOP"])) == "not_found"

    # the comparison of counts knows a chip by its whole name
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)
    play(life, board)


def test_parts_when_the_outcome_of_one_is_unknown_then_the_other_goes_on(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)

    async def life(lab: Lab) -> None:
        lab.chip("one").push("A.F", [0x41])
        lab.chip("one").values["A.ST"] = 1
        lab.fault(FaultKind.REPLY_LOST, "one", access="read", offset=0x12)
        lab.clock.held = True
        lost = await lab.ask("reg.read_effectful", register="one.F", key=KEY)
        assert code_of(lost) == "outcome_unknown"
        assert code_of(await lab.ask("reg.write", register="one.X", value=1, key=KEY2)) == "held"
        other = await lab.ask("reg.write", register="two.X", value=2, key=KEY3)
        assert code_of(other) == "unavailable"  # the line is in doubt for both
        lab.clock.held = False
        lab.clock.advance(1)
        await lab.rules_ran("one")
        assert (await lab.ask("reg.write", register="two.X", value=2, key=KEY3)).ok

    play(life, parts_board(tmp_path, device("one", "A"), device("two", "B")))


def test_parts_when_one_restarts_the_chip_then_the_other_forgets_too(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)
    reset = "write = { effect = 'command', resets = 'device', verify = 'none', provenance = 'generated' }"
    parts = (
        "[clusters.A]\noffset = 0x10\n",
        inner("A", "RST", 0, reset, access="wo"),
        "[clusters.B]\noffset = 0x20\n",
        inner("B", "L", 0, "[clusters.B.registers.L.fields]\nHIGH = { bits = '7:4' }\nLOW = { bits = '3:0' }", "wo"),
    )

    async def life(lab: Lab) -> None:
        def silent(address: int) -> str | None:
            return None if address else ""

        lab.bus("one").boot_evidence = silent  # type: ignore[method-assign]
        assert (await lab.ask("reg.write", register="two.L", value=0x21, key=KEY)).ok
        assert (await lab.ask("reg.write", register="one.RST", value=1, key=KEY2)).ok
        assert lab.chip("one").values["B.L"] == 0
        refused = await lab.ask("reg.update", register="two.L", fields={"LOW": 5}, key=KEY3)
        assert (code_of(refused), error_of(refused)["rule"]) == ("refused", "no_shadow")

    play(life, parts_board(tmp_path, device("one", "A"), device("two", "B"), parts=parts))


BOARDS: dict[str, tuple[tuple[str, ...], str]] = {
    "the whole beside a part": ((device("one", "A"), device("two")), "not another part of the same chip"),
    "a part beside the whole": ((device("one"), device("two", "A")), "not another part of the same chip"),
    "the same part twice": ((device("one", "A"), device("two", "A")), "the same place as devices.one"),
    "no such part": ((device("one", "C"),), "no such cluster"),
    "the whole twice": ((device("one"), device("two")), "the same place as devices.one"),
}


@pytest.mark.parametrize(("devices", "rule"), BOARDS.values(), ids=list(BOARDS))
def test_board_when_parts_do_not_go_together_then_refused(tmp_path: Path, devices: tuple[str, ...], rule: str) -> None:
    with pytest.raises(Faults, match=rule):
        parts_board(tmp_path, *devices)


def test_part_when_there_are_no_clusters_then_said() -> None:
    with pytest.raises(Faults, match="a contract with clusters"):
        part_of(contract_of(reg("R", 0)), "A")
    with pytest.raises(Faults, match="one of A"):
        part_of(contract_of(*CHIP), "AA")


OUTSIDE = {
    "gate": effect("none", ", gate = 'TOP'"),
    "affects": effect("ack", ", affects = ['TOP']"),
    "level": effect("pop", ", level = 'TOP'"),
    "peek": effect("clear", ", peek = 'TOP'"),
    "signal": "write = { effect = 'store', provenance = 'generated', signals = ['TOP'] }",
    "triggers": "write = { effect = 'store', provenance = 'generated', triggers = ['TOP'] }",
    "verify": "write = { effect = 'store', provenance = 'generated', verify = { by = 'read_back', register = 'TOP' } }",
    "scale": "unit = 'V'\nscale_from = 'TOP'\nscales = { 0 = 1 }",
}


@pytest.mark.parametrize("rest", OUTSIDE.values(), ids=list(OUTSIDE))
def test_part_when_a_register_names_one_outside_then_refused(rest: str) -> None:
    contract = contract_of(reg("TOP", 0), "[clusters.A]\noffset = 0x10\n", inner("A", "X", 0, rest))
    with pytest.raises(Faults, match="TOP"):
        part_of(contract, "A")


def test_part_when_registers_name_their_siblings_in_full_then_they_are_found_without_it() -> None:
    contract = contract_of(
        "[clusters.A]\noffset = 0x10\n",
        inner("A", "ST", 0, "[clusters.A.registers.ST.fields]\nN = { bits = '3:0' }", access="ro"),
        inner("A", "F", 1, effect("pop", ", level = 'A.ST.N', gate = 'A.ST.N = 2', affects = ['A.ST']"), "ro"),
        inner(
            "A",
            "W",
            2,
            "write = { effect = 'store', provenance = 'generated', verify = { by = 'read_back', register = 'A.ST' },"
            " signals = ['A.ST.N'], commit_by = 'A.W', triggers = ['A.F'], gate = 'A.ST.N = 1' }",
        ),
        "[groups.G]\nmembers = ['A.ST', 'A.W']\n",
        "[[assume]]\nregister = 'A.ST'\nfield = 'N'\nvalue = 0\nfor = 'all'\n",
        "[identity]\nregister = 'A.ST'\nserial = 'A.ST'\nequals = 1\n",
        "[banks.B]\nselect = [{ register = 'A.W', value = 1 }]\n",
    )
    part = part_of(contract, "A")
    f, w = part.registers["F"], part.registers["W"]
    assert (f.read.level, f.read.gate, f.read.affects) == ("ST.N", "ST.N = 2", ("ST",))
    assert w.write.verify is not None
    assert (w.write.verify.register, w.write.signals[0].register) == ("ST", "ST.N")
    assert (w.write.commit_by, w.write.triggers, w.write.gate) == ("W", ("F",), "ST.N = 1")
    assert [n for g in part.groups.values() for n in g.members] == ["ST", "W"]
    assert [a.register for a in part.assumes] == ["ST"]
    assert part.identity is not None
    assert (part.identity.register, part.identity.serial) == ("ST", "ST")
    assert [s.register for b in part.banks.values() for s in b.select] == ["W"]


def test_part_when_a_value_is_understood_by_a_sibling_named_in_full_then_it_loads() -> None:
    contract = contract_of(
        "[clusters.A]\noffset = 0x10\n",
        inner("A", "MODE", 0),
        inner("A", "V", 1, "width_bits = 16\nencoding = 'linear16'\nexponent_from = 'A.MODE'", access="ro"),
    )
    assert part_of(contract, "A").registers["V"].quantity.exponent_from == "MODE"


def test_part_when_a_register_outside_stands_at_the_same_place_then_it_is_refused() -> None:
    contract = contract_of(
        "[clusters.A]\noffset = 0x10\n",
        inner("A", "X", 0),
        reg("FIFO", 0x10, effect("pop"), access="ro"),  # another view of the same cell
    )
    whole = judge_read(contract, (contract.registers["A.X"],))
    assert isinstance(whole, ReadJudgement)
    assert not whole.clean
    with pytest.raises(Faults, match="would forget what reaching it does; found FIFO"):
        part_of(contract, "A")


def test_verify_when_it_names_a_sibling_in_its_cluster_then_it_is_used() -> None:
    verify = "write = { effect = 'store', provenance = 'generated', verify = { by = 'read_back', register = 'ST' } }"
    contract = contract_of(
        "[clusters.A]\noffset = 0x10\n", inner("A", "X", 0, verify, "wo"), inner("A", "ST", 1, access="ro")
    )
    judged = judge_write(contract, contract.registers["A.X"], 1)
    assert isinstance(judged, WriteJudgement)
    assert judged.verify.by == "read_back"


# --- overlays in a board ----------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("process", [False, True], ids=["in the daemon", "in a process of its own"])
def test_overlay_when_a_board_names_it_then_device_and_simulated_chip_follow_it(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: bool
) -> None:
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)
    import hashlib

    text = I2C + DEFAULTS + "\n".join(CHIP)
    (tmp_path / "toy.toml").write_text(text)
    overlay = (
        f"base = 'toy.toml'\nbase_sha256 = '{hashlib.sha256(text.encode()).hexdigest()}'\n"
        "[registers.'A.X']\nerratum = 'it lies'\n"
        "read = { effects = ['clear'], provenance = 'reviewed', seen = 'page', source = 'p. 7' }\n"
    )
    (tmp_path / "fix.toml").write_text(overlay)
    more = "overlays = ['./fix.toml']\n"
    board = parts_board(
        tmp_path,
        device("one", "A", rest=more),
        device("two", "B", rest=more),
        bus="process = true" if process else "",
    )
    assert board.devices["one"].named == [str(tmp_path / "toy.toml"), str(tmp_path / "fix.toml")]

    async def life(lab: Lab) -> None:
        refused = await lab.ask("reg.read", registers=["one.X"])
        assert error_of(refused)["rule"] == "read_has_side_effects"
        assert (await lab.ask("reg.write", register="one.X", value=7, key=KEY)).ok
        first = await lab.ask("reg.read_effectful", register="one.X", key=KEY2)
        second = await lab.ask("reg.read_effectful", register="one.X", key=KEY3)
        assert (raws(first), raws(second)) == (["0x07"], ["0x00"])
        assert first.warnings == ["erratum: X: it lies"]
        assert isinstance(lab.device("one").worker.bus, SimBus) is not process

    play(life, board)


def test_overlays_when_two_parts_of_one_chip_name_others_then_refused(tmp_path: Path) -> None:
    import hashlib

    text = I2C + DEFAULTS + "\n".join(CHIP)
    (tmp_path / "toy.toml").write_text(text)
    (tmp_path / "fix.toml").write_text(
        f"base = 'toy.toml'\nbase_sha256 = '{hashlib.sha256(text.encode()).hexdigest()}'\n"
        "[registers.'A.X']\nerratum = 'it lies'\n"
    )
    with pytest.raises(Faults, match="not another part of the same chip"):
        parts_board(tmp_path, device("one", "A", rest="overlays = ['./fix.toml']\n"), device("two", "B"))


ADDRESSES: dict[str, tuple[str, str, str]] = {
    "a chip select too high": ("w25q128", "address = 32", "no such chip select"),
    "a PHY too high": ("ethernet_phy_c22", "address = 32", "no such chip select or PHY"),
    "a line with an address": ("tdk_genesys_gh", "address = 1", "a line has one device"),
    "an address that the chip has not": ("bme280", "address = 0x40", "has no such address"),
    "params that nothing takes": ("bme280", "address = 0x76\nparams = { r = 1 }", "has no parameters"),
    "an identity that it has not": ("pca9546", "address = 0x70\nidentity = '1'", "no \\[identity\\]"),
}


@pytest.mark.parametrize(("contract", "rest", "rule"), ADDRESSES.values(), ids=list(ADDRESSES))
def test_board_when_a_device_cannot_be_there_then_refused(tmp_path: Path, contract: str, rest: str, rule: str) -> None:
    with pytest.raises(Faults, match=rule):
        parse_board(
            "name = 'toys'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\n"
            f"[devices.toy]\ncontract = '{contract}'\nbus = 'b'\n{rest}\n",
            "toys.toml",
            tmp_path,
        )


@pytest.mark.parametrize("params", ["params = { shunt = '0.02' }", ""], ids=["given", "left out"])
def test_params_when_the_board_gives_them_then_values_are_scaled_with_them(
    play: Play, tmp_path: Path, params: str
) -> None:
    current = reg("I", 0, "scale = '0.1'\nscale_param = 'shunt'\nunit = 'A'")
    shunt = "[params.shunt]\nmin = '0.001'\nmax = 1\n"
    if not params:
        with pytest.raises(Faults, match="contract toy needs it"):
            toy_board(tmp_path, current, shunt)
        return

    async def life(lab: Lab) -> None:
        lab.chip().values["I"] = 50
        done = await lab.ask("reg.read", registers=["toy.I"])
        assert ((done.values or [])[0]["value"], (done.values or [])[0]["unit"]) == (0.1, "A")
        wrote = await lab.ask("reg.write", register="toy.I", value={"scaled": "0.2", "unit": "A"}, key=KEY)
        assert (wrote.ok, lab.chip().values["I"]) == (True, 100)

    play(life, toy_board(tmp_path, current, shunt, device=params))
