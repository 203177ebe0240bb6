"""What a reading of the format by fresh eyes found: each way round a rule of a contract, closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.carry_out import Finished, carry_out
from hwtool.config import Board
from hwtool.dispatch import Intent
from hwtool.prepare import Prepared
from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.native import parse_contract
from hwtool_contracts.overlay import lay_over
from hwtool_contracts.toml_reader import Faults, parse_toml
from hwtool_registers.plan import plan_alias_write
from hwtool_sim.bus import SimBus
from tests.hwtool.conftest import DEFAULTS, I2C, KEY, KEY2, FakeClock, Lab, Play, error_of, reg, toy_board

STORE = "provenance = 'generated', source = 'rtl'"
BASE = parse_contract(I2C + reg("A", 0) + reg("B", 1), "toy.toml")
HEAD = 'base = "toy.toml"\nbase_sha256 = "00"\n'
SEEN = 'provenance = "reviewed", seen = "page", source = "DS 1"'


def test_base_when_changed_then_what_keeps_a_write_back_stays() -> None:
    said = "limits = { max = 5 }, irreversible = true, approval = 'required', max_rate_per_min = 1, gate = 'B'"
    text = HEAD + f"[registers.A]\nwrite = {{ effect = 'store', {said}, {SEEN} }}\n"
    text += f"[registers.B]\nread = {{ effects = ['none'], {SEEN} }}\n"
    made = lay_over(BASE, "11", text.replace(", gate = 'B'", ""), "over.toml").contract.registers["A"].write
    assert made.effect is WriteEffect.UNKNOWN
    assert made.limits is not None and made.limits.maximum == 5
    assert (made.irreversible, made.approval, made.max_rate_per_min) == (True, "required", 1)


@pytest.mark.parametrize("name", ["A", '"*"'])
@pytest.mark.parametrize(
    "said",
    [
        "read = { effects = ['none'] }",
        "read = { effects = ['none'], provenance = 'asserted' }",
        "read = { effects = ['none', 'none'] }",
        "write = { effect = 'store' }",
        "fields.F = { bits = 0, read = { effects = ['none'] } }",
    ],
)
def test_correction_when_it_makes_harmless_and_names_nothing_seen_then_a_fault(name: str, said: str) -> None:
    with pytest.raises(Faults, match="an overlay says what was seen"):
        lay_over(BASE, "00", HEAD + f"[registers.{name}]\n{said}\n", "over.toml")


FIELDS = "fields.LOW = { bits = '3:0' }\nfields.HI = { bits = '7:4' }\n"
LIMITED = f"write = {{ effect = 'store', limits = {{ max = 100 }}, {STORE} }}\n{FIELDS}"


@pytest.mark.parametrize("alias", ["set_at = 4\nclear_at = 5\n", "toggle_at = 4\n"])
def test_alias_when_the_register_has_limits_then_an_update_keeps_them(play: Play, tmp_path: Path, alias: str) -> None:
    async def scenario(lab: Lab) -> None:
        error = error_of(await lab.ask("reg.update", register="toy.R", fields={"HI": 15}, key=KEY))
        assert (error["code"], error["rule"]) == ("refused", "out_of_limits")
        error = error_of(await lab.ask("reg.write", register="toy.R", value=0xF0, mask=0xF0, key=KEY2))
        assert error["rule"] == "out_of_limits"
        assert lab.writes("R") == 0

    play(scenario, toy_board(tmp_path, reg("R", 0, alias + LIMITED)))


def test_field_when_it_has_a_write_of_its_own_then_what_keeps_the_register_back_keeps_it_back(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        assert (await lab.ask("reg.update", register="toy.R", fields={"F": 1}, key=KEY)).ok
        error = error_of(await lab.ask("reg.update", register="toy.R", fields={"F": 0}, key=KEY2))
        assert error["code"] == "rate_limited"

    rest = f"write = {{ effect = 'store', max_rate_per_min = 1, {STORE} }}\n"
    play(
        scenario,
        toy_board(tmp_path, reg("R", 0, rest + f"fields.F = {{ bits = 0, write = {{ effect = 'store', {STORE} }} }}")),
    )


def test_write_when_a_mask_half_says_which_bits_then_these_are_looked_for(play: Play, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        lab.chip().values["M"] = 0x00F0
        done = await lab.ask("reg.write", register="toy.M", value=0x0F03, key=KEY)
        assert (done.verdict, lab.chip().values["M"] & 0xFF) == ("applied", 0xF3)

    play(scenario, toy_board(tmp_path, reg("M", 0, "width_bits = 16\nwrite_mask_bits = '15:8'\n")))


@pytest.mark.parametrize("restore", ["'none'", "[{ register = 'SEL', value = 1 }]"])
def test_bank_when_the_contract_leaves_the_selector_elsewhere_then_a_read_does_not_move_it(
    play: Play, tmp_path: Path, restore: str
) -> None:
    async def scenario(lab: Lab) -> None:
        assert (await lab.ask("reg.read", registers=["toy.X"])).ok
        left = lab.chip().values["SEL"]
        writes = lab.writes("SEL")
        assert (await lab.ask("reg.read", registers=["toy.SEL"])).ok
        assert (lab.writes("SEL"), lab.chip().values["SEL"]) == (writes, left)

    bank = f"[banks.B]\nselect = [{{ register = 'SEL', value = 2 }}]\nrestore = {restore}\n"
    play(scenario, toy_board(tmp_path, reg("SEL", 0), reg("X", 1, "bank = 'B'"), bank))


def test_alias_when_a_bit_of_the_offset_means_increment_then_its_transfer_has_it() -> None:
    head = I2C.replace('auto_increment = "both"', 'auto_increment = "both"\nincrement_mask = 0x80')
    contract = parse_contract(
        head + DEFAULTS + reg("R", 0, "width_bits = 16\nset_at = 0x10\nclear_at = 0x12\n"), "toy.toml"
    )
    plan = plan_alias_write(contract, 0x20, contract.registers["R"], 1, 1, {})
    (step,) = plan.accesses
    assert step.transfer.offset == 0x90  # type: ignore[union-attr]


def crashed_life(play: Play, board: Board, monkeypatch: pytest.MonkeyPatch, register: str) -> None:
    """A life that ends by a power cut between the dispatch of a write and its outcome; its disk is `crashed`."""

    async def life(lab: Lab) -> None:
        async def dying(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Finished:
            await carry_out(intent, prepared, clock, *more)
            lab.disk_now("crashed")
            raise RuntimeError("the power is gone")

        monkeypatch.setattr("hwtool.execution.carry_out", dying)
        await lab.operator("reg.write", register=register, value=1, key=KEY)
        monkeypatch.setattr("hwtool.execution.carry_out", carry_out)

    play(life, board)


def test_readdressed_device_when_the_power_went_before_the_outcome_then_held_by_the_rule(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_buses: dict[str, SimBus]
) -> None:
    moving = f"write = {{ effect = 'store', readdresses = true, {STORE} }}"

    async def next_life(lab: Lab) -> None:
        hold = lab.device().hold
        assert hold is not None and "may have changed the address of toy" in hold.why

    board = toy_board(tmp_path, reg("ADDR", 0, moving))
    crashed_life(play, board, monkeypatch, "toy.ADDR")
    play(next_life, board, store="crashed")


def test_reset_when_the_power_went_before_the_outcome_then_a_new_generation_of_every_part(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_buses: dict[str, SimBus]
) -> None:
    monkeypatch.setattr(SimBus, "boot_evidence", lambda *_: None)  # nothing but the row tells
    monkeypatch.setitem(type(play)._life.__globals__, "must_agree", lambda *_: None)  # it does not know parts
    reset = f"write = {{ effect = 'store', resets = 'device', {STORE} }}"
    clusters = "[clusters.A]\noffset = 0x10\n[clusters.B]\noffset = 0x20\n"
    rest = f"[clusters.A.registers.RST]\noffset = 0\naccess = 'rw'\n{reset}\n"
    rest += "[clusters.B.registers.L]\noffset = 0\naccess = 'rw'\n"
    two = "part = 'A'\n[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x20\npart = 'B'\n"
    board = toy_board(tmp_path, clusters + rest, device=two)
    before: dict[str, int] = {}

    async def look(lab: Lab) -> None:
        before.update({n: lab.device(n).generation for n in ("toy", "two")})

    async def next_life(lab: Lab) -> None:
        assert {n: lab.device(n).generation - was for n, was in before.items()} == {"toy": 1, "two": 1}

    play(look, board, store="looked")
    crashed_life(play, board, monkeypatch, "toy.RST")
    play(next_life, board, store="crashed")


def test_toml_when_nested_without_end_then_a_fault() -> None:
    with pytest.raises(Faults, match="nested too deeply"):
        parse_toml("a = " + "[" * 5000, "deep.toml")


def test_write_when_another_register_stands_at_the_same_place_then_what_keeps_that_back_counts(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        result = await lab.ask("reg.write", register="toy.SAME", value=0xFF, key=KEY)
        assert result.status == "pending_approval"
        memory = await lab.ask("reg.write", register="toy.EE[0:2]", value={"hex": "0102"}, key=KEY2)
        assert memory.status == "pending_approval"
        assert lab.chip().executed == {}

    kept = f"write = {{ effect = 'store', approval = 'required', {STORE} }}"
    memory = "[memories.EE]\noffset = 1\nsize_bytes = 4\npersistence = 'until_reset'\n"
    memory += f"read = {{ effects = ['none'], {STORE} }}\nwrite = {{ effect = 'store', {STORE} }}\n"
    board = toy_board(tmp_path, reg("LOCKED", 1, kept), reg("SAME", 1), memory, mode="separate-user")
    play(scenario, board)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (reg("R", 0) + "[identity]\nregister = 'R'\nequals = 0x1234\n", "does not fit"),
        ("[registers.'']\noffset = 0\naccess = 'rw'\n", "not a name"),
        (
            "[registers.D]\noffset = 0\naccess = 'rw'\ncount = 2\nstride_bytes = 1\ntransfer = 'block'\n"
            "[groups.D]\nmembers = ['D[0]', 'D[1]']\n",
            "is the group of its name",
        ),
    ],
)
def test_contract_when_it_says_what_cannot_be_then_a_fault(text: str, rule: str) -> None:
    with pytest.raises(Faults, match=rule):
        parse_contract(I2C + DEFAULTS + text, "toy.toml")


HALVES = "fields.LOW = { bits = '3:0' }\nfields.HI = { bits = '7:4' }\n"
ALONE = "set_at = 4\nclear_at = 5\n"


def test_part_written_by_itself_when_the_register_cannot_be_read_then_the_rest_is_not_made_up(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        lab.chip().values["R"] = 0xA0
        done = await lab.ask("reg.update", register="toy.R", fields={"LOW": 3}, key=KEY)
        assert lab.chip().values["R"] == 0xA3
        assert not done.values  # nobody knows the high half
        assert "bits 0xf: 0x03" in done.summary

    play(scenario, toy_board(tmp_path, reg("R", 0, ALONE + HALVES, access="wo")))


def test_approval_screen_when_a_part_is_written_by_itself_then_it_shows_that_part_alone(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(lab: Lab) -> None:
        pending = await lab.ask("reg.update", register="toy.R", fields={"LOW": 3}, key=KEY)
        shown = await lab.operator("approval.show", approval=pending.id)
        assert isinstance(shown.approvals, list)
        (change,) = shown.approvals[0]["changes"]
        assert (change["after"], change["after_value"], list(change["fields"])) == (None, None, ["LOW"])

    kept = f"write = {{ effect = 'store', approval = 'required', {STORE} }}\n"
    play(scenario, toy_board(tmp_path, reg("R", 0, ALONE + kept + HALVES, access="wo"), mode="separate-user"))


def test_shadow_when_a_mask_half_says_what_a_write_changes_then_refused(play: Play, tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.R", value=0x0F03, key=KEY)).ok
        error = error_of(await lab.ask("reg.update", register="toy.R", fields={"LOW": 1}, key=KEY2))
        assert error["rule"] == "unsafe_update"
        assert "what it holds cannot be told" in error["message"]
        assert lab.writes("R") == 1

    limited = f"write = {{ effect = 'store', limits = {{ max = 0xFFFE }}, {STORE} }}\n"
    rest = "width_bits = 16\nwrite_mask_bits = '15:8'\n" + limited
    fields = "fields.LOW = { bits = '3:0' }\nfields.MID = { bits = '7:4' }\n"
    play(scenario, toy_board(tmp_path, reg("R", 0, rest + fields, access="wo")))


def test_sequence_when_a_step_resets_one_device_then_the_restart_of_another_still_ends_it(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(lab: Lab) -> None:
        other = lab.device("two")

        async def meanwhile(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Finished:
            done = await carry_out(intent, prepared, clock, *more)
            other.new_generation(other.generation + 1)  # somebody has noticed that it restarted
            return done

        monkeypatch.setattr("hwtool.execution.carry_out", meanwhile)
        steps = [
            {"do": "write", "register": "toy.RST", "value": 1},
            {"do": "write", "register": "two.R", "value": 1},
        ]
        done = await lab.ask("sequence.run", steps=steps, key=KEY)
        assert done.verdict == "partial"
        assert lab.writes("R", "two") == 0

    reset = f"write = {{ effect = 'store', resets = 'device', {STORE} }}"
    two = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"
    play(scenario, toy_board(tmp_path, reg("RST", 0, reset), reg("R", 1), device=two))
