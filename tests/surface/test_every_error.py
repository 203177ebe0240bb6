"""Every code of the catalogue, produced through the sockets, checked, and obeyed until it reaches the device.

The expectations stand here by hand, from the design, not from the catalogue that is tested.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hwtool.engine import Engine
from hwtool.server import Server
from hwtool_contracts.errors import Code, exit_code, explain, parse
from hwtool_sim.faults import FaultKind
from hwtool_store import operations
from hwtool_store.faults import StoreFatal
from tests.hwtool.conftest import FakeClock, Lab, effect, reg, toy_board
from tests.hwtool.test_permission import rule

PARTS = (
    reg("A", 0),
    reg("FIFO", 1, effect("pop", ", level = 'LEVEL'"), "ro"),
    reg("LEVEL", 2, access="ro"),
    reg("BLIND", 3, access="wo"),
    reg("P", 4, "write = { effect = 'store', provenance = 'generated', approval = 'required' }"),
    reg("FAST", 5),
    reg("PIN", 6, "confidential = true"),
)
# code: class, retry, next action, exit code
EXPECTED: dict[Code, tuple[str, str, str, int]] = {
    Code.INVALID_ARGS: ("not_retryable", "after_fix", "change_argument", 2),
    Code.NOT_FOUND: ("not_retryable", "after_fix", "change_argument", 5),
    Code.DENIED: ("needs_person", "never", "ask_operator", 4),
    Code.REFUSED: ("not_retryable", "after_fix", "change_argument", 5),
    Code.STALE: ("not_retryable", "after_fix", "call", 5),
    Code.PRECONDITION_FAILED: ("not_retryable", "after_fix", "change_argument", 5),
    Code.EXPIRED: ("not_retryable", "after_fix", "change_argument", 1),
    Code.KEY_CONFLICT: ("not_retryable", "never", "change_argument", 5),
    Code.KEY_EXPIRED: ("not_retryable", "never", "stop", 5),
    Code.RATE_LIMITED: ("retryable", "same_key", "wait", 7),
    Code.BUSY: ("retryable", "same_key", "wait", 7),
    Code.UNAVAILABLE: ("retryable", "same_key", "wait", 7),
    Code.BUS_FAULT: ("retryable", "new_key", "call", 1),
    Code.TIMEOUT: ("retryable", "same_key", "wait", 1),
    Code.OUTCOME_UNKNOWN: ("needs_person", "check_first", "call", 3),
    Code.VALUE_LOST: ("not_retryable", "new_key", "stop", 9),
    Code.NOT_APPLIED: ("not_retryable", "new_key", "change_argument", 9),
    Code.HELD: ("needs_person", "after_settlement", "ask_operator", 4),
    Code.RUN_HALTED: ("not_retryable", "after_settlement", "stop", 4),
    Code.APPROVAL_DENIED: ("needs_person", "new_key", "stop", 4),
    Code.APPROVAL_EXPIRED: ("needs_person", "new_key", "ask_operator", 4),
    Code.STORE_FAILED: ("needs_person", "check_first", "ask_operator", 6),
    Code.INTERNAL: ("needs_person", "check_first", "ask_operator", 1),
}


class Wire:
    """One connection, as anybody could open it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._writer.write(json.dumps(line).encode() + b"\n")
        while True:
            told = json.loads(await self._reader.readline())
            if told.get("id") == number:
                result: dict[str, Any] = told["result"]
                return result

    def close(self) -> None:
        self._writer.close()


class Desk:
    """An agent and an operator at one daemon, and the laboratory behind it."""

    def __init__(self, lab: Lab, agent: Wire, operator: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab = lab
        self.agent = agent
        self.operator = operator
        self.monkeypatch = monkeypatch
        self._keys = itertools.count(1)

    def key(self) -> str:
        return f"key-error-{next(self._keys)}"

    async def write(self, register: str = "A", value: int = 1, **more: Any) -> dict[str, Any]:
        return await self.agent.ask("reg.write", **({"register": f"toy.{register}", "value": value} | more))

    async def approve(self, op_id: int) -> None:
        shown = await self.operator.ask("approval.show", approval=op_id)
        self.lab.clock.advance(2)
        told = await self.operator.ask("approval.approve", approval=op_id, code=shown["approvals"][0]["code"])
        assert told["ok"], told


Case = Callable[[Desk], Awaitable[tuple[dict[str, Any], Callable[[], Awaitable[dict[str, Any]]]]]]
CASES: dict[Code, Case] = {}


def case(code: Code) -> Callable[[Case], Case]:
    def put(function: Case) -> Case:
        CASES[code] = function
        return function

    return put


@case(Code.INVALID_ARGS)
async def _(desk: Desk) -> Any:
    key = desk.key()
    return await desk.write(value=0x100, key=key), lambda: desk.write(value=1, key=key)


@case(Code.NOT_FOUND)
async def _(desk: Desk) -> Any:
    key = desk.key()
    wrong = await desk.write("AA", key=key)
    return wrong, lambda: desk.write(wrong["error"]["suggestions"][0].partition(".")[2], key=key)


@case(Code.DENIED)
async def _(desk: Desk) -> Any:
    return await desk.agent.ask("reg.read", registers=["toy.PIN"]), lambda: desk.operator.ask(
        "reg.read", registers=["toy.PIN"]
    )


@case(Code.REFUSED)
async def _(desk: Desk) -> Any:
    desk.lab.chip().push("FIFO", b"a")
    key = desk.key()
    return await desk.agent.ask("reg.read", registers=["toy.FIFO"]), lambda: desk.agent.ask(
        "reg.read_effectful", register="toy.FIFO", key=key
    )


@case(Code.STALE)
async def _(desk: Desk) -> Any:
    key = desk.key()
    wrong = await desk.write(key=key, generation=7)
    assert wrong["error"]["next"] == {"action": "call", "method": "device.list", "params": {}}
    listed = await desk.agent.ask("device.list")
    return wrong, lambda: desk.write(key=key, generation=listed["devices"][0]["generation"])


@case(Code.PRECONDITION_FAILED)
async def _(desk: Desk) -> Any:
    key = desk.key()
    wrong = await desk.write(key=key, expect={"toy.A": 9})
    return wrong, lambda: desk.write(key=key, expect=wrong["error"]["observed"] and {"toy.A": 0})


@case(Code.EXPIRED)
async def _(desk: Desk) -> Any:
    key, now = desk.key(), desk.lab.clock.wall // 1_000_000
    return await desk.write(key=key, not_after=now - 1000), lambda: desk.write(key=key, not_after=now + 60_000)


@case(Code.KEY_CONFLICT)
async def _(desk: Desk) -> Any:
    key = desk.key()
    await desk.write(key=key)
    return await desk.write(value=2, key=key), lambda: desk.write(value=2, key=desk.key())


@case(Code.KEY_EXPIRED)
async def _(desk: Desk) -> Any:
    key = desk.key()
    await desk.write(key=key)
    await desk.lab.daemon.ask(lambda conn: operations.prune(conn, 0, 1))
    return await desk.write(key=key), lambda: desk.write(key=desk.key())


@case(Code.RATE_LIMITED)
async def _(desk: Desk) -> Any:
    await desk.write("FAST", key=desk.key())
    key = desk.key()
    limited = await desk.write("FAST", 2, key=key)
    assert limited["error"]["next"] == {"action": "wait", "wait_ms": limited["error"]["retry_after_ms"]}

    async def obey() -> dict[str, Any]:
        desk.lab.clock.advance(limited["error"]["retry_after_ms"] / 1000 + 0.001)
        return await desk.write("FAST", 2, key=key)

    return limited, obey


@case(Code.BUSY)
async def _(desk: Desk) -> Any:
    await desk.lab.device().lock.acquire()
    key = desk.key()
    busy = await desk.write(key=key, queue_ms=1)

    async def obey() -> dict[str, Any]:
        desk.lab.device().lock.release()
        return await desk.write(key=key, queue_ms=1000)

    return busy, obey


@case(Code.UNAVAILABLE)
async def _(desk: Desk) -> Any:
    await desk.operator.ask("daemon.freeze")
    key = desk.key()
    frozen = await desk.write(key=key)

    async def obey() -> dict[str, Any]:
        await desk.operator.ask("daemon.thaw")
        return await desk.write(key=key)

    return frozen, obey


@case(Code.BUS_FAULT)
async def _(desk: Desk) -> Any:
    desk.lab.fault(FaultKind.NACK, offset=0)
    return await desk.write(key=desk.key()), lambda: desk.write(key=desk.key())


@case(Code.TIMEOUT)
async def _(desk: Desk) -> Any:
    desk.lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
    key = desk.key()
    lost = await desk.write(key=key)

    async def obey() -> dict[str, Any]:
        await desk.lab.device().worker.settled()
        return await desk.write(key=key)

    return lost, obey


@case(Code.OUTCOME_UNKNOWN)
async def _(desk: Desk) -> Any:
    desk.lab.fault(FaultKind.REPLY_LOST, offset=3)
    unknown = await desk.write("BLIND", key=desk.key())
    assert unknown["error"]["next"] == {"action": "call", "method": "op.get", "params": {"id": unknown["id"]}}

    async def obey() -> dict[str, Any]:
        looked = await desk.agent.ask("op.get", id=unknown["id"])
        assert looked["op"]["state"] == "UNKNOWN"
        await desk.operator.ask("op.settle", id=unknown["id"], verdict="not_applied", reason="the pin is low")
        await desk.lab.rules_ran()  # the bus has been quiet
        return await desk.write("BLIND", key=desk.key())

    return unknown, obey


@case(Code.VALUE_LOST)
async def _(desk: Desk) -> Any:
    desk.lab.chip().push("FIFO", b"ab")
    desk.lab.fault(FaultKind.REPLY_LOST, access="read", offset=1)
    key = desk.key()
    await desk.agent.ask("reg.read_effectful", register="toy.FIFO", key=key)
    await desk.lab.rules_ran()
    lost = await desk.agent.ask("reg.read_effectful", register="toy.FIFO", key=key)
    return lost, lambda: desk.agent.ask("reg.read_effectful", register="toy.FIFO", key=desk.key())


@case(Code.NOT_APPLIED)
async def _(desk: Desk) -> Any:
    desk.lab.fault(FaultKind.FOREIGN, offset=0, when="after", register="A", value=0x55)
    return await desk.write(key=desk.key()), lambda: desk.write(key=desk.key())


@case(Code.HELD)
async def _(desk: Desk) -> Any:
    await desk.operator.ask("device.hold", device="toy", reason="look")
    key = desk.key()
    held = await desk.write(key=key)

    async def obey() -> dict[str, Any]:
        await desk.operator.ask("device.release", device="toy", reason="done")
        return await desk.write(key=key)

    return held, obey


@case(Code.RUN_HALTED)
async def _(desk: Desk) -> Any:
    run = (await desk.agent.ask("run.start", name="errors"))["run"]["id"]
    failed = await desk.write("AA", key=desk.key(), run=run)
    key = desk.key()
    halted = await desk.write(key=key, run=run)

    async def obey() -> dict[str, Any]:
        number = failed["error"]["error_id"]
        await desk.agent.ask("run.acknowledge", run=run, error_id=number, how="the name was wrong")
        return await desk.write(key=key, run=run)

    return halted, obey


async def approved_later(desk: Desk) -> dict[str, Any]:
    key = desk.key()
    waiting = await desk.write("P", key=key)
    await desk.approve(waiting["id"])
    return await desk.write("P", key=key)


@case(Code.APPROVAL_DENIED)
async def _(desk: Desk) -> Any:
    key = desk.key()
    waiting = await desk.write("P", key=key)
    await desk.operator.ask("approval.deny", approval=waiting["approval"], reason="not today")
    denied = await desk.write("P", key=key)
    assert denied["error"]["reason"] == "not today"
    return denied, lambda: approved_later(desk)


@case(Code.APPROVAL_EXPIRED)
async def _(desk: Desk) -> Any:
    key = desk.key()
    waiting = await desk.write("P", key=key)
    await desk.approve(waiting["id"])
    desk.lab.clock.advance(121)
    return await desk.write("P", key=key), lambda: approved_later(desk)


@case(Code.INTERNAL)
async def _(desk: Desk) -> Any:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a defect")

    with desk.monkeypatch.context() as patched:
        patched.setattr("hwtool.catalogue.devices", broken)
        defect = await desk.agent.ask("device.list")
    return defect, lambda: desk.agent.ask("device.list")


@case(Code.STORE_FAILED)
async def _(desk: Desk) -> Any:
    def fatal(*_: Any, **__: Any) -> Any:
        raise StoreFatal("fdatasync: no space left")

    with desk.monkeypatch.context() as patched:
        patched.setattr("hwtool_store.operations.t1_intent", fatal)
        failed = await desk.write(key=desk.key())
    return failed, lambda: desk.agent.ask("describe")  # the daemon says so as long as it lives; a person looks


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A directory whose sockets' paths are short enough."""
    directory = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


def test_cases_when_the_catalogue_grows_then_one_is_missing_here() -> None:
    assert set(CASES) == set(EXPECTED) == set(Code)


@pytest.mark.parametrize("code", Code)
def test_error_when_it_comes_over_the_socket_then_as_the_design_says_and_obeying_it_reaches_the_device(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    limited = rule(register="'FAST'", rate_per_min="1")

    async def life() -> None:
        clock = FakeClock()
        board = toy_board(tmp_path, *PARTS, mode="self", device=limited + rule("uid:4242", confidential="true"))
        engine = await Engine.start(board, tmp_path / "store", clock, allow_unsafe=True)
        server = Server(engine, short)
        wires: list[Wire] = []
        try:
            await server.listen()
            for role in ("agent", "operator"):
                wires.append(Wire(*await asyncio.open_unix_connection(str(short / f"{role}.sock"), limit=1 << 22)))
            desk = Desk(Lab(engine, clock, tmp_path / "store"), wires[0], wires[1], monkeypatch)
            result, obey = await CASES[code](desk)
            check(code, result)
            cured = await obey()
            assert cured["ok"], (cured["summary"], cured["error"])
        finally:
            for wire in wires:
                wire.close()
            await server.close()
            await engine.close()

    asyncio.run(life())


def check(code: Code, result: dict[str, Any]) -> None:
    """Everything an error says."""
    error = parse(result["error"])
    assert error is not None, result
    assert (error["code"], result["status"], result["ok"]) == (code.value, "failed", False)
    told = (error["class"], error["retry"], error["next"]["action"], exit_code(result))
    assert told == EXPECTED[code]
    sentence = explain(error, result["effects"])
    assert str(error["message"]).rstrip(".") in sentence
    assert sentence.endswith(".")
    assert error["hint"]
    damaged = {name: value for name, value in error.items() if name != "retry"}
    assert parse(damaged) is None
