"""A grant is for exactly what was shown: whatever else is asked for needs its own, and the grant stays unused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwtool.policy import Caller
from tests.hwtool.conftest import AGENT, KEY, KEY2, OTHER, FakeClock, Lab, Play, code_of, reg, toy_board
from tests.hwtool.test_approvals import approved

ASKS = "write = { effect = 'store', provenance = 'generated', approval = 'required' }"
PARTS = (reg("A", 0, ASKS), reg("B", 1, ASKS))
TWO = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"
STEPS = [{"do": "write", "register": "toy.A", "value": 1}, {"do": "write", "register": "toy.B", "value": 2}]

MUTATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], Caller, str | None]] = {
    # what was granted, what differs, who asks; the code, None: it waits for a person of its own
    "device": ({"register": "toy.A", "value": 1}, {"register": "two.A"}, AGENT, "key_conflict"),
    "register": ({"register": "toy.A", "value": 1}, {"register": "toy.B"}, AGENT, "key_conflict"),
    "value": ({"register": "toy.A", "value": 1}, {"value": 2}, AGENT, "key_conflict"),
    "mask": ({"register": "toy.A", "value": 1, "mask": 1}, {"mask": 3}, AGENT, "key_conflict"),
    "no mask": ({"register": "toy.A", "value": 1, "mask": 1}, {"mask": None}, AGENT, "key_conflict"),
    "key": ({"register": "toy.A", "value": 1}, {"key": KEY2}, AGENT, None),
    "requester": ({"register": "toy.A", "value": 1}, {}, OTHER, None),
    "expectation": ({"register": "toy.A", "value": 1}, {"expect": {"toy.B": 0}}, AGENT, "key_conflict"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_grant_when_something_else_is_asked_for_then_it_needs_its_own_and_nothing_is_sent(
    play: Play, tmp_path: Path, name: str
) -> None:
    granted, differs, caller, code = MUTATIONS[name]

    async def life(lab: Lab) -> None:
        first = {"key": KEY, **granted}
        waiting = await lab.ask("reg.write", **first)
        await approved(lab, waiting.id)
        other = {k: v for k, v in (first | differs).items() if v is not None}
        told = await lab.ask("reg.write", caller, **other)
        assert (code_of(told), told.status == "pending_approval") == (code, code is None)
        assert (lab.writes("A"), lab.writes("B"), lab.writes("A", "two")) == (0, 0, 0)
        done = await lab.ask("reg.write", **first)  # the grant was not used up by it
        assert (done.ok, lab.writes("A")) == (True, 1)

    play(life, toy_board(tmp_path, *PARTS, device=TWO, mode="separate-user"))


STEP_MUTATIONS: dict[str, list[dict[str, Any]]] = {
    "a value": [STEPS[0], STEPS[1] | {"value": 3}],
    "a register": [STEPS[0], STEPS[1] | {"register": "toy.A"}],
    "a device": [STEPS[0], STEPS[1] | {"register": "two.B"}],
    "the order": [STEPS[1], STEPS[0]],
    "one more": [*STEPS, {"do": "read", "register": "toy.A"}],
    "one fewer": [STEPS[0]],
    "a mask": [STEPS[0] | {"mask": 1}, STEPS[1]],
}


@pytest.mark.parametrize("name", STEP_MUTATIONS)
def test_grant_when_a_step_of_the_sequence_differs_then_it_needs_its_own(play: Play, tmp_path: Path, name: str) -> None:
    async def life(lab: Lab) -> None:
        waiting = await lab.ask("sequence.run", steps=STEPS, key=KEY)
        await approved(lab, waiting.id)
        told = await lab.ask("sequence.run", steps=STEP_MUTATIONS[name], key=KEY)
        assert (code_of(told), lab.writes("A"), lab.writes("B")) == ("key_conflict", 0, 0)
        assert (await lab.ask("sequence.run", steps=STEP_MUTATIONS[name], key=KEY2)).status == "pending_approval"
        assert (await lab.ask("sequence.run", steps=STEPS, key=KEY)).ok
        again = await lab.ask("sequence.run", steps=STEPS, key=KEY)
        assert (again.replayed, lab.writes("A"), lab.writes("B")) == (True, 1, 1)

    play(life, toy_board(tmp_path, *PARTS, device=TWO, mode="separate-user"))


@pytest.mark.parametrize("what", ["contract", "generation", "reboot"])
def test_grant_when_contract_generation_or_host_changed_then_void_and_nothing_is_sent(
    play: Play, tmp_path: Path, kept_buses: Any, what: str
) -> None:
    clock = FakeClock()

    async def first(lab: Lab) -> None:
        waiting = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        await approved(lab, waiting.id)

    async def then(lab: Lab) -> None:
        if what == "generation":
            lab.chip().reset()
        told = await lab.ask("reg.write", register="toy.A", value=1, key=KEY)
        assert (code_of(told), lab.writes("A")) == ("approval_expired", 0)
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY2)).status == "pending_approval"

    board = toy_board(tmp_path, *PARTS, mode="separate-user")
    play(first, board, clock=clock)
    if what == "reboot":
        clock.boot_word = "boot-2"
    later = toy_board(tmp_path, *PARTS, reg("NEW", 7), mode="separate-user") if what == "contract" else board
    play(then, later, clock=clock)
