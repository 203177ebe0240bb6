"""A secret is planted wherever a caller or a chip can put one; no record, log, error or other caller gets to see it.

It may stand in `op.request, pre, response` and `op_data`, and in the values that its own caller is given.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hwtool_contracts.messages import Result
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import OTHER, Lab, Play, code_of, effect, reg
from tests.hwtool.test_events import Ears, settle
from tests.hwtool.test_journal_files import rendered
from tests.hwtool.test_permission import board, rule

SECRET = 0xC0FFEE42
BYTES = SECRET.to_bytes(4, "big")
FORMS = (
    *(form for number in (SECRET, int.from_bytes(BYTES, "little")) for form in (f"{number:08x}", str(number))),
    BYTES.hex(" "),
    str(list(BYTES))[1:-1],
    BYTES[::-1].hex(" "),
    str(list(BYTES[::-1]))[1:-1],
)
KEPT = {("op", "request"), ("op", "pre"), ("op", "response"), ("op_data", "data")}
HIDDEN = "sensitive = true\nwidth_bits = 32"
PARTS = (
    reg("S", 0, HIDDEN),
    reg("T", 4, f"{HIDDEN}\n{effect('clear')}", "ro"),
    reg("ASKS", 8, f"{HIDDEN}\nwrite = {{ effect = 'store', provenance = 'generated', approval = 'required' }}"),
    reg("LIMITED", 12, f"{HIDDEN}\nwrite = {{ effect = 'store', provenance = 'generated', limits = {{ max = 16 }} }}"),
    reg("HALF", 16, f"{HIDDEN}\nfields.V = {{ bits = '31:0' }}"),
    reg("RULED", 20, HIDDEN),
    reg("N", 24),
)


def hidden_in(text: str | bytes) -> list[str]:
    """The forms of the secret that stand in something."""
    told = text if isinstance(text, bytes) else text.encode()
    found = [form for form in FORMS if form.encode() in told.lower()]
    return found + [repr(b) for b in (BYTES, BYTES[::-1]) if b in told]


def plain(result: Result) -> dict[str, Any]:
    """An answer as it goes over the socket."""
    told: dict[str, Any] = json.loads(msgspec.json.encode(result))
    return told


def said_beside_the_values(result: Result) -> str:
    """What an answer says to whoever asked, but for the values that they asked for."""
    told = plain(result)
    return json.dumps({k: v for k, v in told.items() if k not in ("values", "steps", "plan", "transfers", "dump")})


def leaks_of_tables(file: Path) -> list[tuple[str, str]]:
    """Columns with the secret in them, but for the four."""
    found = []
    kept = 0
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as conn:
        for (table,) in conn.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
            columns = [name for _, name, *_ in conn.execute(f"PRAGMA table_info({table})")]
            for row in conn.execute(f"SELECT * FROM {table}"):
                for column, value in zip(columns, row, strict=True):
                    if hidden_in(value if isinstance(value, bytes) else str(value)):
                        kept += (table, column) in KEPT
                        found += [(table, column)] if (table, column) not in KEPT else []
    assert kept, "the secret was planted nowhere: this proves nothing"
    return found


async def planted(lab: Lab) -> list[Result]:
    """Everything that a caller can do with it; what it was answered."""
    count = iter(range(1000))

    async def ask(method: str, **params: Any) -> Result:
        return await lab.ask(method, key=f"key-secret-{next(count):04}", **params)

    put = {"register": "toy.S", "value": SECRET}
    step = {"do": "write", **put}
    answers = [
        await lab.ask("reg.plan", method="reg.write", params=put),
        await ask("reg.write", **put, dry_run=True),
        await ask("reg.write", **put, reason="to keep it"),
        await ask("reg.write", **put, mask=0xFFFFFFFF),
        await ask("reg.write", register="toy.N", value=1, expect={"toy.S": SECRET}),
        await ask("reg.write", register="toy.N", value=1, expect={"toy.S": SECRET ^ 1}),
        await ask("reg.write", register="toy.S", value=SECRET << 8),
        await ask("reg.write", register="toy.LIMITED", value=SECRET),
        await ask("reg.write", register="toy.RULED", value=SECRET),
        await ask("sequence.run", steps=[{"do": "expect", "register": "toy.RULED", "equals": SECRET}, step]),
        await ask("sequence.run", steps=[step, {"do": "expect", "register": "toy.S", "equals": SECRET}]),
        await ask("sequence.run", steps=[{"do": "expect", "register": "toy.S", "equals": SECRET, "mask": 1}, step]),
        await ask("reg.update", register="toy.HALF", fields={"V": SECRET}),
        await ask("reg.update", register="toy.HALF", fields={"V": SECRET << 1}),
        await ask("sequence.run", steps=[step, {"do": "read", "register": "toy.S"}]),
        await ask("sequence.run", steps=[step, {"do": "expect", "register": "toy.S", "equals": SECRET ^ 2}]),
        await ask(
            "sequence.run",
            steps=[{"do": "wait_until", "register": "toy.S", "equals": SECRET ^ 4, "timeout_ms": 5}, step],
        ),
        await lab.ask("reg.read", registers=["toy.S", "toy.N"]),
        await lab.ask("device.dump", device="toy"),
    ]
    lab.chip().values["T"] = SECRET
    answers.append(await ask("reg.read_effectful", register="toy.T"))
    for kind in (FaultKind.REPLY_LOST, FaultKind.NACK, FaultKind.CORRUPTED):
        for method, params in (("reg.write", put), ("reg.read_effectful", {"register": "toy.T"})):
            lab.chip().values["T"] = SECRET
            lab.chip().values["S"] = 0
            lab.fault(kind, access="write" if method == "reg.write" else "read")
            answers.append(told := await ask(method, **params))
            await lab.rules_ran()
            if code_of(told) == "outcome_unknown":
                answers.append(await lab.ask("op.get", id=told.id, verify=True))
                settled = {"id": told.id, "verdict": "abandoned", "reason": "seen"}
                answers.append(await lab.operator("op.settle", **settled))
            lab.bus().faults.clear()
    return answers


def test_secret_when_planted_everywhere_then_in_no_record_no_log_no_error_and_nobody_elses_answer(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def life(lab: Lab) -> None:
        ears = Ears(lab)
        assert (await ears.subscribe(kinds=["op"])).ok
        answers = await planted(lab)
        waiting = await lab.ask("reg.write", register="toy.ASKS", value=SECRET, key="key-secret-asks", reason="mine")
        others = [
            await lab.operator("approval.list"),
            await lab.operator("approval.show", approval=waiting.approval),
            await lab.operator("journal.read", limit=1000),
            await lab.ask("journal.read", OTHER, limit=1000),
            await lab.operator("device.list"),
            await lab.operator("describe"),
            await lab.operator("policy.show", register="toy.S"),
        ]
        for row in await lab.rows():
            others.append(await lab.ask("op.get", OTHER, id=row.op_id, verify=True))
            answers.append(await lab.operator("op.get", id=row.op_id))  # may have the values, as who asked
        assert not [(r.summary, hidden_in(t)) for r in answers if hidden_in(t := said_beside_the_values(r))]
        assert not [(r.summary, hidden_in(t)) for r in others if hidden_in(t := json.dumps(plain(r)))]
        await settle(lab)
        assert (ears.heard != [], hidden_in(json.dumps(ears.heard))) == (True, [])
        await rendered(lab, tmp_path / "j")
        files = [f for f in (tmp_path / "j").rglob("*") if f.is_file()]
        assert len(files) > 2
        assert not [(f.name, found) for f in files if (found := hidden_in(f.read_bytes()))]
        assert not hidden_in(lab.engine.metrics.text())
        assert not hidden_in(caplog.text)

    play(
        life,
        board(
            tmp_path,
            rule(register="'RULED'", limits="{ max = 16 }") + rule(write="'yes'"),
            *PARTS,
            mode="separate-user",
        ),
    )
    (file,) = (tmp_path / "store").glob("*.db")
    assert leaks_of_tables(file) == []
