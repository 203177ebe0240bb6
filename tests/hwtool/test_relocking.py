"""A device that a crash may have left unlocked is locked again where the contract says how; it settles nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.native import parse_contract
from hwtool_contracts.native_write import write_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_sim.bus import SimBus
from tests.hwtool.conftest import DEFAULTS, I2C, KEY, Lab, Play, reg, toy_board
from tests.hwtool.test_modes import started

STORE = "provenance = 'generated', source = 'rtl'"
KEYED = "[{ register = 'LOCK', value = 1 }]"
PARTS = (
    reg("KEYR", 0, f"write = {{ effect = 'unlock', affects = ['CR'], verify = 'none', {STORE} }}", access="wo"),
    reg("CR", 1, f"write = {{ effect = 'store', unlock = 'SET_CR', {STORE} }}"),
    reg("LOCK", 2),
    reg("CMD", 3, f"write = {{ effect = 'command', {STORE} }}", access="wo"),
    reg("ASKS", 4, f"write = {{ effect = 'store', approval = 'required', {STORE} }}"),
    reg("ROM", 5, "persistence = 'nonvolatile'"),
)


def sequence(relock: str = KEYED) -> str:
    """The sequence that writes CR."""
    return f"""
[sequences.SET_CR]
params = ["value"]
relock = {relock}
steps = [
    {{ do = "write", register = "KEYR", value = 0x45 }},
    {{ do = "write", register = "CR", value = "$value" }},
    {{ do = "write", register = "LOCK", value = 1 }},
]
"""


async def dies_in_its_second_step(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, person: tuple[str, dict[str, Any]] | None = None
) -> None:
    """The store as it was when the power went while CR was being written, and a person had just done something."""
    from hwtool.carry_out import carry_out

    async def dying(intent: Any, *rest: Any) -> Any:
        done = await carry_out(intent, *rest)
        if intent.op_id == 3:
            if person is not None:
                assert (await lab.operator(person[0], **person[1])).ok
            lab.disk_now("crashed")
            raise RuntimeError("the power is gone")
        return done

    with monkeypatch.context() as patch:
        patch.setattr("hwtool.execution.carry_out", dying)
        told = await lab.ask("sequence.run", key=KEY, sequence="toy.SET_CR", params={"value": 5})
        assert told.effects == "unknown"


def test_relock_when_the_daemon_died_in_its_sequence_then_sent_once_a_start_and_nothing_is_settled(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = toy_board(tmp_path, *PARTS, sequence())

    async def life(lab: Lab) -> None:
        await dies_in_its_second_step(lab, monkeypatch)
        assert lab.writes("LOCK") == 0

    async def next_life(lab: Lab) -> None:
        assert (lab.writes("LOCK"), lab.writes("CR"), lab.writes("KEYR")) == (1, 1, 1)
        told = [b for b in await lab.audit() if "relock" in b["what"]]
        assert [(b["what"], b["device"], b["of"], b["registers"]) for b in told] == [
            ("relock", "toy", 1, ["LOCK"]),
            ("relocked", "toy", 1, ["LOCK"]),
        ]
        states = {row.op_id: row.state for row in await lab.rows()}
        assert states[1] == ("DONE" if states[3] == "DONE" else "UNKNOWN")

    play(life, board)
    play(next_life, board, store="crashed")


FREEZE = ("daemon.freeze", {"reason": "look first"})
HOLD = ("device.hold", {"device": "toy", "reason": "look first"})


@pytest.mark.parametrize(
    ("person", "start"),
    [(None, "read_only"), (None, "rehearsing"), (FREEZE, None), (HOLD, None)],
    ids=["read-only", "rehearsing", "frozen", "held"],
)
def test_relock_when_nothing_may_be_sent_then_not_sent_and_the_journal_says_so(
    play: Play,
    tmp_path: Path,
    kept_buses: dict[str, SimBus],
    monkeypatch: pytest.MonkeyPatch,
    person: tuple[str, dict[str, Any]] | None,
    start: str | None,
) -> None:
    board = toy_board(tmp_path, *PARTS, sequence())

    async def next_life(lab: Lab) -> None:
        assert lab.writes("LOCK") == 0
        (told,) = [b for b in await lab.audit() if "relock" in b["what"]]
        assert (told["what"], told["registers"], told["reason"] != "") == ("not_relocked", ["LOCK"], True)

    play(lambda lab: dies_in_its_second_step(lab, monkeypatch, person), board)
    (tmp_path / "again").mkdir()
    (tmp_path / "crashed").rename(tmp_path / "again" / "store")
    started(tmp_path / "again", board, next_life, **({} if start is None else {start: True}))


def test_relock_when_another_chip_sits_there_then_not_sent(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = (reg("ID", 9, "reset = 0x42", "ro"), "[identity]\nregister = 'ID'\nequals = 0x42\n")
    board = toy_board(tmp_path, *PARTS, *identity, sequence())

    async def life(lab: Lab) -> None:
        await dies_in_its_second_step(lab, monkeypatch)
        lab.chip().values["ID"] = 0x99

    async def next_life(lab: Lab) -> None:
        assert lab.writes("LOCK") == 0
        assert [b["what"] for b in await lab.audit() if "relock" in b["what"]] == ["not_relocked"]

    play(life, board)
    (tmp_path / "again").mkdir()
    (tmp_path / "crashed").rename(tmp_path / "again" / "store")
    started(tmp_path / "again", board, next_life)


WRONG = {
    "a command": ("[{ register = 'CMD', value = 1 }]", "not harmless"),
    "what needs a person": ("[{ register = 'ASKS', value = 1 }]", "cannot be sent by itself"),
    "what wears out": ("[{ register = 'ROM', value = 1 }]", "cannot be sent by itself"),
    "nothing that is there": ("[{ register = 'NOPE', value = 1 }]", "NOPE"),
    "a value that does not fit": ("[{ register = 'LOCK', value = 256 }]", "refused by rule"),
    "no value": ("[{ register = 'LOCK' }]", "key is missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_relock_when_it_might_do_harm_then_a_fault_of_the_contract(name: str) -> None:
    relock, wanted = WRONG[name]
    with pytest.raises(Faults, match=wanted):
        parse_contract(I2C + DEFAULTS + "\n".join(PARTS) + sequence(relock), "toy.toml")


def test_relock_when_written_and_loaded_again_then_the_same() -> None:
    contract = parse_contract(I2C + DEFAULTS + "\n".join(PARTS) + sequence(), "toy.toml")
    again = parse_contract(write_contract(contract), "toy.toml")
    assert again.sequences == contract.sequences
    assert [(one.register, one.value) for one in again.sequences["SET_CR"].relock] == [("LOCK", 1)]
