"""Every method, role, approval mode and state against the table that the manual prints (tests/permissions.py)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool_contracts.messages import METHODS, Result
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import AGENT, OPERATOR, FakeClock, Lab, effect, reg, toy_board
from tests.permissions import (
    APPROVERS,
    EVERY,
    LOOKING,
    MODES,
    PLANNING,
    STATES,
    Mode,
    Role,
    State,
    approvers_table,
    expected,
    table,
)

UNMEASURED = True

TOP = Path(__file__).parent.parent.parent
LASTING = {"events.subscribe", "run.start", "run.finish", "run.acknowledge", "lease.acquire", "lease.release"}
# nothing is otherwise after them, so that the next one finds what a fresh start would show
LOOKS = {*LOOKING, *PLANNING, "approval.list", "approval.show", "policy.show"} - LASTING
PARTS = (
    reg("A", 0, "fields.F = { bits = 0 }"),
    reg(
        "P", 1, "fields.F = { bits = 0 }\nwrite = { effect = 'store', provenance = 'generated', approval = 'required' }"
    ),
    reg("FIFO", 2, effect("pop"), "ro"),
    reg("BLIND", 3, access="wo"),
)


def test_table_when_the_surface_grows_then_a_line_is_missing_here() -> None:
    assert set(EVERY) == set(METHODS)


def test_manual_when_it_prints_the_tables_then_these() -> None:
    text = (TOP / "docs" / "permissions.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in text
    assert "\n".join(approvers_table()) in text


def params_of(method: str, register: str, key: str, found: dict[str, Any]) -> dict[str, Any]:
    """A call that would be done if nothing were in its way."""
    write = {"register": f"toy.{register}", "value": 1}
    calls: dict[str, dict[str, Any]] = {
        "reg.contract": {"register": "toy.A"},
        "reg.read": {"registers": ["toy.A"]},
        "op.get": {"id": found["op"]},
        "op.wait": {"id": found["op"], "wait_ms": 0},
        "device.dump": {"device": "toy"},
        "run.start": {"name": "again"},
        "run.finish": {"run": found[f"run {key[:3]}"]},
        "run.acknowledge": {"run": found[f"run {key[:3]}"], "error_id": found[f"error {key[:3]}"], "how": "seen"},
        "lease.acquire": {"device": "spare", "ttl_ms": 1},
        "lease.release": {"device": "spare"},
        "reg.plan": {"method": "reg.write", "params": write},
        "reg.write": write | {"key": key},
        "reg.update": {"register": f"toy.{register}", "fields": {"F": 1}, "key": key},
        "reg.read_effectful": {"register": "toy.FIFO", "key": key},
        "sequence.run": {"steps": [{"do": "write", **write}], "key": key},
        "device.safe_state": {"device": "toy", "key": key},
        "approval.show": {"approval": found["waiting"]},
        "approval.approve": {"approval": found["waiting"]},
        "approval.deny": {"approval": found["waiting"], "reason": "no"},
        "op.settle": {"id": found["unknown"], "verdict": "not_applied", "reason": "looked"},
        "device.hold": {"device": "spare", "reason": "look"},
        "device.release": {"device": "spare", "reason": "done"},
        "bus.probe": {"bus": "spare", "address": 0x33},
        "policy.show": {"register": "toy.A", "who": "uid:1000"},
        "store.backup": {"to": f"{found['folder']}/{key}.db"},
        "store.prune": {"keep": 1000},
    }
    return calls.get(method, {})


async def to_work_on(lab: Lab) -> dict[str, Any]:
    """An operation, one that waits, one that is unknown, and a run with an error for each caller."""
    found: dict[str, Any] = {"folder": str(lab.directory)}
    found |= {"op": (await lab.ask("reg.write", register="spare.A", value=1, key="key-before-1")).id or 0}
    waiting = await lab.ask("reg.write", register="spare.P", value=1, key="key-before-2")
    found["waiting"] = waiting.id or 0
    for caller, name in ((AGENT, "age"), (OPERATOR, "ope")):
        run: Any = (await lab.ask("run.start", caller, name="run")).run
        failed: Any = (
            await lab.ask("reg.write", caller, register="toy.NOPE", value=1, key=f"{name}-before-3", run=run["id"])
        ).error
        found |= {f"run {name}": run["id"], f"error {name}": failed["error_id"]}
    lab.bus("doubt").faults.clear()
    lab.fault(FaultKind.REPLY_LOST, "doubt", offset=3)
    found["unknown"] = (await lab.ask("reg.write", register="doubt.BLIND", value=1, key="key-before-4")).id or 0
    await lab.rules_ran("doubt")
    return found


async def put_into(lab: Lab, state: State) -> None:
    if state == "held":
        await lab.operator("device.hold", device="toy", reason="look")
    elif state == "frozen":
        await lab.operator("daemon.freeze")
    elif state == "read-only":
        lab.daemon.read_only = True


def matrix_board(directory: Path, mode: Mode) -> Board:
    """A toy, a spare one, and one whose operation is in doubt, each on a bus of its own."""
    more = "".join(
        f"[buses.{n}]\nkind = 'sim'\nreply_lifetime_ms = 100\n"
        f"[devices.{n}]\ncontract = './toy.toml'\nbus = '{n}'\naddress = 0x20\n"
        for n in ("spare", "doubt")
    )
    return toy_board(directory, *PARTS, mode=mode, device="safe_state = [{ register = 'A', value = 0 }]\n" + more)


async def asked(lab: Lab, method: str, role: Role, register: str, found: dict[str, Any], key: str) -> Result:
    caller = AGENT if role == "agent" else OPERATOR
    params = params_of(method, register, key, found)
    if method == "approval.approve":
        shown: Any = (await lab.operator("approval.show", approval=found["waiting"])).approvals
        params |= {"code": shown[0]["code"]}
        lab.clock.advance(2)
    lab.chip().push("FIFO", b"a")
    return await lab.engine.call(caller, method, params, (object(), lambda _: None))


def word_of(result: Result) -> str:
    if result.status == "pending_approval":
        return "pending"
    return "done" if result.error is None else str(result.error["code"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("state", STATES)
def test_method_when_called_in_this_state_and_mode_then_as_the_table_says(
    tmp_path: Path, mode: Mode, state: State
) -> None:
    wrong: list[str] = []
    board = matrix_board(tmp_path, mode)

    async def ready(directory: Path) -> tuple[Lab, dict[str, Any]]:
        clock = FakeClock()
        engine = await Engine.start(board, directory, clock, allow_unsafe=True, reread=lambda: board)
        lab = Lab(engine, clock, directory)
        found = await to_work_on(lab)
        await put_into(lab, state)
        return lab, found

    async def one(lab: Lab, found: dict[str, Any], method: str, role: Role, key: str) -> bool:
        """Ask; answers whether nothing has come of it, so that the next one can be asked there too."""
        before = lab.chip().executed.copy()
        result = await asked(lab, method, role, "P" if state == "needs approval" else "A", found, key)
        told, wanted = word_of(result), expected(method, role, mode, state)
        if told != wanted:
            wrong.append(f"{method} by {role}: {told}, not {wanted}: {result.summary}")
        acted = {k: n for k, n in (lab.chip().executed - before).items() if k[1] == "write" or k[0] == "FIFO"}
        if told != "done" and acted:
            wrong.append(f"{method} by {role}: {told}, and yet {acted}")
        return told == "denied" or (told == "done" and method in LOOKS)

    async def everything() -> None:
        lab: Lab | None = None
        found: dict[str, Any] = {}
        roles: tuple[Role, ...] = ("agent", "operator")
        for number, (method, role) in enumerate((m, r) for m in EVERY for r in roles):
            if lab is None:
                lab, found = await ready(tmp_path / f"store-{number}")
            untouched = False
            try:
                untouched = await one(lab, found, method, role, f"{role[:3]}-matrix-{number}")
            finally:
                if not untouched:
                    await lab.engine.close()
                    lab = None
        if lab is not None:
            await lab.engine.close()

    asyncio.run(everything())
    assert wrong == []


ANSWERS = {"another operator": Caller(5, "operator", "p-", 0), "uid 0": OPERATOR, "the requester": None}


@pytest.mark.parametrize(("mode", "who"), APPROVERS)
def test_approve_when_this_person_answers_in_this_mode_then_as_the_table_says(
    tmp_path: Path, mode: Mode, who: str
) -> None:
    async def life() -> None:
        clock = FakeClock()
        engine = await Engine.start(matrix_board(tmp_path, mode), tmp_path / "store", clock, allow_unsafe=True)
        lab = Lab(engine, clock, tmp_path / "store")
        try:
            waiting = await lab.ask("reg.write", register="toy.P", value=1, key="key-to-approve")
            shown: Any = (await lab.operator("approval.show", approval=waiting.id)).approvals
            clock.advance(2)
            person = ANSWERS[who] or Caller(AGENT.uid, "operator", "r-", 0)
            told = await lab.ask("approval.approve", person, approval=waiting.id, code=shown[0]["code"])
            assert word_of(told) == APPROVERS[mode, who]
        finally:
            await engine.close()

    asyncio.run(life())
