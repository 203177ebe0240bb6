"""The engine as a whole: every method and its one shape, what is refused before it, the journal, secrets, the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hwtool.bench import bench
from hwtool.carry_out import Finished
from hwtool.carry_out import carry_out as real_carry_out
from hwtool.config import parse_board
from hwtool.dispatch import Intent
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool.prepare import Prepared
from hwtool.recovery import observe as real_observe
from hwtool.recovery import settle as real_settle
from hwtool.state import REFUSALS_A_SECOND
from hwtool_contracts.messages import METHODS
from hwtool_sim.faults import FaultKind
from hwtool_store.faults import StoreRefused
from tests.hwtool.conftest import (
    AGENT,
    GHOST,
    KEY,
    KEY2,
    KEY3,
    OPERATOR,
    OTHER,
    FakeClock,
    Lab,
    Play,
    code_of,
    effect,
    error_of,
    raws,
    reg,
    toy_board,
    until,
)

R = reg("R", 0)
WRITE = {"register": "toy.R", "value": 0x55, "key": KEY}

# method, parameters, what an operator gets on a fresh bench: done, or the code
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "describe": ({}, "done"),
    "rpc.discover": ({}, "done"),
    "device.list": ({}, "done"),
    "reg.find": ({"query": "temperature"}, "done"),
    "reg.contract": ({"register": "uart.RHR"}, "done"),
    "reg.read": ({"registers": ["gpio.OLATA"]}, "done"),
    "reg.read_effectful": ({"register": "uart.RHR", "key": KEY}, "done"),
    "reg.plan": ({"method": "reg.write", "params": {"register": "gpio.OLATA", "value": 1}}, "done"),
    "reg.write": ({"register": "gpio.OLATA", "value": 1, "key": KEY}, "done"),
    "reg.update": ({"register": "gpio.OLATA", "fields": {"P0": 1}, "key": KEY}, "done"),
    "sequence.run": ({"steps": [{"do": "write", "register": "gpio.OLATA", "value": 1}], "key": KEY}, "done"),
    "device.safe_state": ({"device": "gpio", "key": KEY}, "done"),
    "op.get": ({"key": KEY}, "not_found"),
    "op.wait": ({"id": 1, "wait_ms": 0}, "not_found"),
    "run.start": ({"name": "bring-up"}, "done"),
    "run.finish": ({"run": 1}, "not_found"),
    "run.acknowledge": ({"run": 1, "error_id": 1, "how": "looked"}, "not_found"),
    "lease.acquire": ({"device": "gpio", "ttl_ms": 1000}, "done"),
    "lease.release": ({"device": "gpio"}, "done"),
    "metrics": ({}, "done"),
    "device.dump": ({"device": "gpio"}, "done"),
    "events.subscribe": ({"kinds": ["op"]}, "refused"),
    "journal.read": ({}, "done"),
    "approval.list": ({}, "done"),
    "approval.show": ({"approval": 1}, "not_found"),
    "approval.approve": ({"approval": 1, "code": "x"}, "not_found"),
    "approval.deny": ({"approval": 1, "reason": "x"}, "not_found"),
    "op.settle": ({"id": 1, "verdict": "applied", "reason": "x"}, "not_found"),
    "device.hold": ({"device": "gpio", "reason": "x"}, "done"),
    "device.release": ({"device": "nope", "reason": "x"}, "not_found"),
    "bus.probe": ({"bus": "nope", "address": 0x33}, "not_found"),
    "policy.show": ({"register": "gpio.OLATA", "who": "uid:7"}, "done"),
    "store.backup": ({"to": "/proc/nowhere/copy.db"}, "refused"),
    "store.prune": ({"keep": 1000}, "done"),
    "daemon.reload": ({}, "refused"),
    "daemon.freeze": ({"reason": "x"}, "done"),
    "daemon.thaw": ({}, "done"),
}


def test_methods_when_the_surface_grows_then_a_line_is_missing_here() -> None:
    assert set(CALLS) == set(METHODS)


@pytest.mark.parametrize("method", CALLS)
def test_method_when_called_then_a_result_of_the_one_shape_and_agents_only_get_theirs(play: Play, method: str) -> None:
    async def life(lab: Lab) -> None:
        params, expected = CALLS[method]
        agent = await lab.ask(method, **params)
        if method == "lease.acquire":
            await lab.ask("lease.release", device="gpio")
        if METHODS[method].operator:
            assert (code_of(agent), agent.effects) == ("denied", "none")
        result = await lab.operator(method, **params)
        assert (code_of(result) or result.status) == expected
        assert result.store == {"id": str(lab.daemon.store.store_id), "seq": lab.daemon.store.seq}

    play(life)


def test_method_when_unknown_then_key_error(play: Play) -> None:
    async def life(lab: Lab) -> None:
        with pytest.raises(KeyError):
            await lab.engine.call(AGENT, "bus.scan", {})

    play(life)


INVALID: list[tuple[str, dict[str, Any], str, Any]] = [
    ("reg.write", {"register": "gpio.OLATA", "value": 1, "key": "short"}, "$.key", "short"),
    ("reg.write", {"register": "gpio.OLATA", "value": 1, "key": KEY, "typo": 1}, "$", None),
    ("reg.write", {"register": "gpio.OLATA", "value": 1}, "$", None),
    ("reg.write", {"register": "gpio.OLATA", "value": 1, "key": KEY, "deadline_ms": -1}, "$.deadline_ms", -1),
    ("reg.write", {"register": "gpio.OLATA", "value": 1, "key": KEY, "store": {"id": 3, "seq": 1}}, "$.store.id", 3),
    ("reg.write", {"registers": {}, "key": KEY}, "$.registers", {}),
    ("reg.read", {"registers": ["gpio.OLATA", 7]}, "$.registers[1]", 7),
    ("reg.read", {"registers": []}, "$.registers", None),
    ("reg.read", {"registers": ["gpio.OLATA", "uart.LCR"]}, "$.registers[1]", "uart.LCR"),
    ("reg.read", {"registers": ["gpio.OLATA"], "run": -1}, "$.run", -1),
    ("run.start", {"name": ""}, "$.name", ""),
    ("lease.acquire", {"device": "gpio", "ttl_ms": 600_001}, "$.ttl_ms", 600_001),
    ("reg.plan", {"method": "device.hold", "params": {}}, "$.method", "device.hold"),
    ("reg.plan", {"method": "reg.write", "params": {"register": 5, "value": 1}}, "$.params.register", 5),
    ("op.get", {}, "$", None),
    ("op.wait", {"id": 1, "wait_ms": 30_000}, "$.wait_ms", 30_000),
    ("journal.read", {"limit": 201}, "$.limit", 201),
    ("journal.read", {"cursor": "next"}, "$.cursor", "next"),
    ("reg.find", {"cursor": "9" * 19}, "$.cursor", "9" * 19),
    ("reg.update", {"register": "gpio.OLATA", "fields": {"P0": 0.5}, "key": KEY}, "$.fields[...]", None),
    ("reg.write", {"register": "gpio.OLATA", "value": True, "key": KEY}, "$.value", True),
]


@pytest.mark.parametrize(("method", "params", "path", "got"), INVALID, ids=[f"{i[0]} {i[2]}" for i in INVALID])
def test_parameters_when_wrong_then_invalid_args_with_the_path_and_nothing_is_touched(
    play: Play, method: str, params: dict[str, Any], path: str, got: Any
) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask(method, **params)
        assert (code_of(result), result.effects, error_of(result)["path"]) == ("invalid_args", "none", path)
        if got is not None:
            assert error_of(result)["got"] == got
        assert (lab.sent("gpio"), await lab.rows()) == ([], [])

    play(life)


@pytest.mark.parametrize(("method", "effects"), [("device.list", "none"), ("reg.write", "unknown")])
def test_defect_when_a_method_raises_then_internal_and_the_daemon_lives_on(
    play: Play, monkeypatch: pytest.MonkeyPatch, method: str, effects: str
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("hwtool.catalogue.devices", broken)
    monkeypatch.setattr("hwtool.keyed.KeyedOperations.submit", broken)

    async def life(lab: Lab) -> None:
        result = await lab.ask(method, **CALLS[method][0])
        assert (code_of(result), result.effects) == ("internal", effects)
        assert "ZeroDivisionError: a defect" in error_of(result)["message"]
        assert (await lab.ask("describe")).ok

    play(life)


# --- what is looked up ------------------------------------------------------------------------------------------


def test_describe_when_asked_then_role_principal_prefix_methods_and_the_guide(play: Play) -> None:
    async def life(lab: Lab) -> None:
        told = (await lab.ask("describe")).describe
        assert isinstance(told, dict)
        assert (told["role"], told["principal"], told["key_prefix"]) == ("agent", "uid:1000", "abc-")
        assert (told["board"], told["approval_mode"]) == ("bench", "self")
        assert told["wall_clock_ms"] == lab.clock.wall // 1_000_000
        assert {m for m in told["methods"] if METHODS[m].operator} == set()
        more = (await lab.operator("describe", topic="agents")).describe
        assert isinstance(more, dict)
        assert (len(more["text"]) > 500, set(more["methods"])) == (True, set(METHODS))
        missing = await lab.ask("describe", topic="cooking")
        assert (code_of(missing), error_of(missing)["suggestions"]) == ("not_found", ["agents"])

    play(life)


def test_find_when_paged_then_each_match_once_and_the_cursor_ends(play: Play) -> None:
    async def life(lab: Lab) -> None:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await lab.ask("reg.find", device="gpio", limit=7, cursor=cursor)
            assert isinstance(page.matches, list)
            names += [m["register"] for m in page.matches]
            assert page.cursor is None or isinstance(page.cursor, str)
            cursor = page.cursor
            if cursor is None:
                break
        assert len(names) == len(set(names)) > 20
        for query, expected in {
            "fifo pop": "uart.RHR",
            "TXLVL": "uart.TXLVL",
            "push": "uart.THR",
            "relay ms": "meter.RELAY_PULSE_WIDTH",
            "group_of_nothing": None,
        }.items():
            matches = (await lab.ask("reg.find", query=query)).matches
            assert isinstance(matches, list)
            assert (expected in {m["register"] for m in matches}) is (expected is not None)
        (group,) = [m for m in (await lab.ask("reg.find", query="olat")).matches if "group" in m]  # type: ignore[union-attr]
        assert group["group"] == ["OLATA", "OLATB"]
        assert code_of(await lab.ask("reg.find", device="nope")) == "not_found"

    play(life)


@pytest.mark.parametrize(
    ("name", "member", "expected"),
    [
        ("uart.RHR", "method", "reg.read_effectful"),
        ("uart.TXLVL", "method", "reg.read"),
        ("uart.IIR", "undeclared", True),
        ("uart.THR", "refused", "write_only"),
    ],
)
def test_contract_when_asked_then_how_the_register_is_read(
    play: Play, name: str, member: str, expected: object
) -> None:
    async def life(lab: Lab) -> None:
        result = await lab.ask("reg.contract", register=name)
        assert isinstance(result.contract, dict)
        assert result.contract["judged_read"][member] == expected
        assert result.contract_digest == lab.device("uart").contract.digest
        assert lab.sent("uart") == []

    play(life)


def test_contract_when_fields_groups_limits_and_signals_are_declared_then_all_are_told(play: Play) -> None:
    async def life(lab: Lab) -> None:
        group = (await lab.ask("reg.contract", register="gpio.OLAT")).contract
        assert isinstance(group, dict)
        assert [m["register"] for m in group["members"]] == ["gpio.OLATA", "gpio.OLATB"]
        width = (await lab.ask("reg.contract", register="meter.RELAY_PULSE_WIDTH")).contract
        assert isinstance(width, dict)
        assert (width["write"]["approval"], width["write"]["limits"]) == (
            "required",
            {"minimum": "60", "maximum": "200"},
        )
        gpio = (await lab.ask("reg.contract", register="gpio.GPIOA")).contract
        assert isinstance(gpio, dict)
        assert gpio["write"]["verify"] == {"by": "read_back", "register": "OLATA", "mask": 255}
        thr = (await lab.ask("reg.contract", register="uart.THR")).contract
        assert isinstance(thr, dict)
        assert (thr["write"]["signals"], "read" in thr) == ([{"register": "TXLVL", "delta": -1}], False)
        config = (await lab.ask("reg.contract", register="temp.CONFIGURATION")).contract
        assert isinstance(config, dict)
        fields = {f["name"]: f for f in config["fields"]}
        assert ("write" in fields["R1_R0"], "write" in fields["SD"]) == (False, True)
        near = await lab.ask("reg.contract", register="gpio.OLATTA")
        assert "gpio.OLATA" in error_of(near)["suggestions"]

    play(life)


def test_contract_when_a_field_is_write_only_then_no_read_is_told_of_it(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        told = (await lab.ask("reg.contract", register="toy.R")).contract
        assert isinstance(told, dict)
        assert ["read" in f for f in told["fields"]] == [False, True]

    play(life, toy_board(tmp_path, reg("R", 0, "fields.A = { bits = 0, access = 'wo' }\nfields.B = { bits = 1 }")))


def test_devices_when_listed_then_generation_bus_identity_and_hold(play: Play) -> None:
    async def life(lab: Lab) -> None:
        devices = (await lab.ask("device.list")).devices
        assert isinstance(devices, list)
        assert [d["name"] for d in devices] == ["gpio", "uart", "temp", "adc", "rtc", "meter"]
        meter = devices[-1]
        assert (meter["bus"], meter["address"], meter["identity"], meter["held"]) == ("line0", "0x01", "32", None)
        assert {d["simulated"] for d in devices} == {True}
        document = (await lab.ask("rpc.discover")).openrpc
        assert isinstance(document, dict)
        assert {m["name"] for m in document["methods"]} == set(METHODS)

    play(life)


# --- operations of others, the journal, secrets -----------------------------------------------------------------


def test_operation_when_it_is_another_callers_then_without_values_key_and_evidence(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        mine = await lab.ask("reg.write", **WRITE)
        theirs = await lab.ask("op.get", OTHER, id=mine.id)
        assert (theirs.values, theirs.evidence, theirs.key) == (None, None, None)
        assert theirs.summary == f"operation {mine.id} of another caller"
        assert isinstance(theirs.op, dict)
        assert (theirs.op["state"], theirs.op["verdict"], theirs.op["key"]) == ("DONE", "applied", None)
        assert "0x55" not in str(theirs)
        person = await lab.operator("op.get", id=mine.id)
        assert (person.key, raws(person)) == (KEY, ["0x55"])
        assert code_of(await lab.ask("op.get", OTHER, key=KEY)) == "not_found"
        lab.fault(FaultKind.NACK)
        failed = await lab.ask("reg.write", **{**WRITE, "key": KEY2})
        hidden = error_of(await lab.ask("op.get", OTHER, id=failed.id))
        assert (hidden["code"], hidden["message"]) == ("bus_fault", f"operation {failed.id} of another caller")

    play(life, toy_board(tmp_path, R))


def test_journal_when_read_by_another_then_without_arguments_values_reasons_and_summaries(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **WRITE, reason="private words")

        async def entries(who: Caller, **params: Any) -> list[dict[str, Any]]:
            found = (await lab.ask("journal.read", who, **params)).entries
            assert isinstance(found, list)
            return [e for e in found if e["what"] != "generation"]

        mine, theirs, persons = await entries(AGENT), await entries(OTHER), await entries(OPERATOR)
        assert mine == persons
        assert [e["what"] for e in mine] == ["intent", "outcome"]
        assert (mine[0]["arguments"], mine[0]["reason"]) == ({"R": "0x55"}, "private words")
        assert [e["what"] for e in theirs] == ["intent", "outcome"]
        assert not {"arguments", "reason", "summary"} & {name for e in theirs for name in e}
        assert theirs[0]["principal"] == "uid:1000"

    play(life, toy_board(tmp_path, R))


def test_journal_when_paged_and_filtered_then_each_row_once(play: Play) -> None:
    async def life(lab: Lab) -> None:
        for n in range(3):
            await lab.ask("reg.write", register="gpio.OLATA", value=n + 1, key=f"key-000010{n}")
        await lab.ask("reg.write", register="temp.TLOW", value=0x1000, key=KEY)
        seqs: list[int] = []
        cursor: str | None = None
        for _ in range(20):
            page = await lab.ask("journal.read", limit=3, **({"cursor": cursor} if cursor else {"since": 0}))
            assert isinstance(page.entries, list)
            seqs += [e["seq"] for e in page.entries]
            assert page.cursor is None or isinstance(page.cursor, str)
            cursor = page.cursor
            if cursor is None:
                break
        assert seqs == list(range(1, lab.daemon.store.seq + 1))
        newest = await lab.ask("journal.read", limit=2)
        assert ([e["seq"] for e in newest.entries or []], newest.cursor) == (seqs[-2:], None)
        only = (await lab.ask("journal.read", device="temp", limit=2)).entries
        assert isinstance(only, list)
        assert {e["device"] for e in only} == {"temp"}
        since = (await lab.ask("journal.read", since=seqs[-2])).entries
        assert isinstance(since, list)
        assert [e["seq"] for e in since] == seqs[-1:]
        assert code_of(await lab.ask("journal.read", device="nope")) == "not_found"
        assert (await lab.ask("reg.read", registers=["gpio.OLATA"])).ok
        assert lab.daemon.store.seq == seqs[-1]

    play(life)


SECRET = 0xC0FFEE42
SECRETS = ("c0ffee42", str(SECRET))


def test_secret_when_written_read_lost_and_settled_then_no_record_and_no_summary_has_it(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        lab.chip().values["T"] = SECRET
        write = {"register": "toy.S", "value": SECRET, "key": KEY, "expect": {"toy.N": 0}}
        results = [
            await lab.ask("reg.plan", method="reg.write", params={k: v for k, v in write.items() if k != "key"}),
            await lab.ask("reg.write", **write),
            await lab.ask("reg.write", **write),
            await lab.ask("reg.write", **{**write, "value": SECRET - 1}),
            await lab.ask("reg.write", **{**write, "value": 1 << 40}),
            await lab.ask("reg.write", register="toy.S", value=SECRET, mask=0xFFFFFFFF, key="key-0000044"),
            await lab.ask("reg.read_effectful", register="toy.T", key=KEY2),
        ]
        assert [r.replayed for r in results[:3]] == [False, False, True]
        assert code_of(results[3]) == "key_conflict"
        assert raws(results[6]) == ["0xc0ffee42"]
        assert results[6].summary == "toy.T read once"
        lab.fault(FaultKind.REPLY_LOST)
        unknown = await lab.ask("reg.write", register="toy.S", value=SECRET, key=KEY3, reason="please")
        assert code_of(unknown) == "outcome_unknown"
        await lab.rules_ran()
        settled = await lab.ask("op.get", key=KEY3, verify=True)
        results += [unknown, settled]
        text = str(await lab.audit()).lower() + str([r.summary for r in results]).lower()
        assert not [s for s in SECRETS if s in text]
        assert text.count("redacted") >= 6

    secret = "sensitive = true\nwidth_bits = 32"
    consuming = f"{secret}\n{effect('clear')}"
    play(life, toy_board(tmp_path, reg("S", 0, secret), reg("T", 4, consuming, "ro"), reg("N", 8)))


def test_secret_when_guessed_by_its_digest_then_the_stores_secret_is_in_it(play: Play, tmp_path: Path) -> None:
    import hashlib
    import json

    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", register="toy.S", value=7, key=KEY)
        row = await lab.row()
        text = json.dumps(row.request["content"], sort_keys=True, separators=(",", ":"))
        assert row.digest != hashlib.sha256(b"hwtool.op.v1\0" + text.encode()).digest()

    play(life, toy_board(tmp_path, reg("S", 0, "sensitive = true")))


def test_refusals_when_more_than_ten_a_second_then_counted_in_one_row(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        for n in range(REFUSALS_A_SECOND + 5):
            assert code_of(await lab.ask("reg.write", **{**WRITE, "register": "toy.NOPE", "key": f"key-00000{n:02}"}))
        assert code_of(await lab.ask("reg.write", OTHER, **{**WRITE, "register": "toy.NOPE"})) == "not_found"
        lab.clock.advance(1)
        await lab.ask("reg.write", **{**WRITE, "register": "toy.NOPE"})
        bodies = [b for b in await lab.audit() if b["what"].startswith("refus")]
        kinds = [(b["what"], b["principal"]) for b in bodies]
        mine = ("refused", "uid:1000")
        assert kinds == [mine] * 10 + [("refusals_counted", "uid:1000"), ("refused", "uid:1001"), mine]
        assert bodies[10]["count"] == 5  # beyond the ten that have rows of their own

    play(life, toy_board(tmp_path, R))


def test_refusals_when_nobody_else_writes_then_flushed_by_themselves(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.write", **{**WRITE, "register": "toy.NOPE"})
        before = lab.daemon.store.seq
        await asyncio.sleep(0.25)
        await lab.ask("describe")
        await until(lambda: lab.daemon.store.seq == before + 1)

    play(life, toy_board(tmp_path, R))


def test_settlement_when_a_rule_was_faster_than_the_person_then_refused(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beaten(daemon: Any, row: Any, verdict: Any, by: Any, body: Any) -> Any:
        await real_settle(daemon, row, verdict, "rule", body)
        return await real_settle(daemon, row, verdict, by, body)

    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST)
        unknown = await lab.ask("reg.write", register="toy.W", value=1, key=KEY)
        await lab.rules_ran()
        monkeypatch.setattr("hwtool.operators.settle", beaten)
        late = await lab.operator("op.settle", id=unknown.id, verdict="abandoned", reason="x")
        assert (code_of(late), error_of(late)["rule"]) == ("refused", "not_unknown")
        assert (await lab.row()).verdict_by == "rule"

    play(life, toy_board(tmp_path, reg("W", 0, access="wo")))


def test_hold_when_its_device_left_the_board_then_it_waits_for_its_return(play: Play, tmp_path: Path) -> None:
    board, without = toy_board(tmp_path, R), toy_board(tmp_path, R)
    del without.devices["toy"]

    async def hold(lab: Lab) -> None:
        assert (await lab.operator("device.hold", device="toy", reason="x")).ok

    async def gone(lab: Lab) -> None:
        assert (await lab.ask("device.list")).devices == []
        assert code_of(await lab.ask("reg.write", **WRITE)) == "not_found"

    async def back(lab: Lab) -> None:
        assert code_of(await lab.ask("reg.write", **WRITE)) == "held"

    play(hold, board)
    play(gone, without)
    play(back, board)


# --- start and end ----------------------------------------------------------------------------------------------


def test_store_when_used_with_simulated_buses_then_real_ones_are_refused_and_the_reverse(
    play: Play, tmp_path: Path
) -> None:
    real = parse_board(
        "name = 'real'\n[buses.line]\nkind = 'modbus-rtu'\npath = '/nowhere/tty'\n", "real.toml", tmp_path
    )

    async def life(_: Lab) -> None:
        pass

    play(life, store="simulated")
    with pytest.raises(StoreRefused, match="used with simulated buses"):
        play(life, real, store="simulated")
    play(life, real, store="real")
    with pytest.raises(StoreRefused, match="used with real buses"):
        play(life, store="real")


def test_start_when_a_bus_cannot_be_opened_then_everything_is_given_back(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hwtool.buses import make_bus

    def second_fails(spec: Any, *rest: Any) -> Any:
        if spec.name == "line0":
            raise OSError("in use")
        return make_bus(spec, *rest)

    async def life(lab: Lab) -> None:
        assert (await lab.ask("describe")).ok

    monkeypatch.setattr("hwtool.engine.make_bus", second_fails)
    with pytest.raises(OSError, match="in use"):
        play(life)
    monkeypatch.undo()
    play(life)


def test_close_when_something_is_at_work_then_it_is_waited_for_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def slow(intent: Intent, prepared: Prepared, clock: FakeClock, *more: Any) -> Finished:
        await gate.wait()
        return await real_carry_out(intent, prepared, clock, *more)

    monkeypatch.setattr("hwtool.execution.carry_out", slow)

    async def life() -> None:
        engine = await Engine.start(toy_board(tmp_path, R), tmp_path / "store", FakeClock(), allow_unsafe=True)
        task = asyncio.create_task(engine.call(AGENT, "reg.write", dict(WRITE)))
        await until(lambda: engine.daemon.store.seq > 0)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        late = await engine.call(AGENT, "reg.write", {**WRITE, "key": KEY2})
        assert (code_of(late), error_of(late)["reason"]) == ("unavailable", "stopping")
        assert not closing.done()
        gate.set()
        assert (await task).verdict == "applied"
        await closing

    asyncio.run(life())


def test_close_when_rules_do_not_end_then_it_waits_for_a_transfer_and_no_longer(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_ever(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("hwtool.engine.run_rules", for_ever)

    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "gpio")
        await lab.ask("reg.write", register="gpio.OLATA", value=1, key=KEY)
        await lab.device("gpio").worker.settled()
        await until(lambda: lab.engine._rules)

    play(life)


def test_result_when_the_store_is_not_durable_then_it_says_so(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.daemon.store.durable = False
        result = await lab.ask("reg.write", **WRITE)
        assert (result.durable, result.simulated, result.verified) == (False, True, False)
        assert (await lab.ask("reg.write", **WRITE)).durable is False

    play(life, toy_board(tmp_path, R))


def test_unknown_user_when_it_only_looks_then_allowed(play: Play) -> None:
    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.read", GHOST, registers=["gpio.OLATA"])).ok
        assert (await lab.ask("device.list", GHOST)).ok

    play(life)


def test_op_get_when_the_key_is_at_work_and_has_no_row_yet_then_in_progress_not_never_sent(play: Play) -> None:
    async def life(lab: Lab) -> None:
        async with lab.device("gpio").lock:
            task = asyncio.create_task(lab.ask("reg.write", register="gpio.OLATA", value=1, key=KEY))
            await until(lambda: lab.device("gpio").waiting)
            told = await lab.ask("op.get", key=KEY)
            assert (told.status, told.effects, told.retry) == ("in_progress", "unknown", "wait_same_key")
        assert (await task).verdict == "applied"

    play(life, bench())


def test_release_when_the_device_is_not_held_then_it_says_so(play: Play) -> None:
    async def life(lab: Lab) -> None:
        told = await lab.operator("device.release", device="gpio", reason="just in case")
        assert (told.ok, "was not held" in told.summary) == (True, True)

    play(life, bench())


def test_person_when_quicker_than_the_rule_then_the_rule_gives_way(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, "gpio", offset=0x14)
        lab.clock.held = True
        lost = await lab.ask("reg.write", register="gpio.OLATA", value=1, key=KEY)
        lab.clock.held = False
        lab.clock.advance(1)
        gate = asyncio.Event()

        async def slow(*arguments: Any) -> dict[str, int]:
            await gate.wait()
            return await real_observe(*arguments)

        monkeypatch.setattr("hwtool.recovery.observe", slow)
        verify = asyncio.create_task(lab.ask("op.get", key=KEY, verify=True))
        await until(lambda: lab.device("gpio").lock.locked())
        settled = await lab.operator("op.settle", id=lost.id, verdict="abandoned", reason="no time")
        gate.set()
        told = await verify
        assert settled.ok
        assert (told.verdict, code_of(told)) == ("abandoned", "outcome_unknown")
        await lab.rules_ran("gpio")

    play(life, bench())


def test_sensitive_value_when_a_write_fails_then_it_stands_in_no_error_evidence_or_summary(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        monkeypatch.setattr("hwtool_sim.writing._write_bits", lambda *_: None)  # a chip that keeps what it has
        lab.chip().values["K"] = 0xC0FFEE42
        result = await lab.ask("reg.write", register="toy.K", value=0xC0FFEE43, key=KEY)
        assert code_of(result) == "not_applied"
        row = await lab.row()
        read = await lab.ask("reg.read", registers=["toy.K"])
        for said in (str(result.error), result.summary, str(row.evidence), read.summary, str(await lab.audit())):
            assert "c0ffee4" not in said.lower()
        assert raws(read) == ["0xc0ffee42"]  # the caller who may read it gets it

    play(life, toy_board(tmp_path, reg("K", 0, "width_bits = 32\nsensitive = true")))
