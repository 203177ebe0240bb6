"""The checker of agreement can fail: each thing that is doctored is found, and nothing is found in what is sound."""

from __future__ import annotations

import ast
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.messages import Result
from hwtool_contracts.model import Contract
from hwtool_sim.faults import FaultKind
from hwtool_store.operations import HoldRow, OpRow
from tests.agreement import Record, disagreements, record_of
from tests.executions import Count, Place, matters
from tests.hwtool.agree import BEHIND_ITS_BACK
from tests.hwtool.conftest import KEY, KEY2, KEY3, Lab, Play, effect, reg, toy_board

LOCUS = "sim:b:0x20"
PARTS = (reg("R", 0), reg("F", 1, effect("pop"), "ro"), reg("G", 3))
KEY4 = "key-0000004"


@dataclass
class Evidence:
    """All that the checker is given of one life: a write, a pop, a write without an answer, one settled by a person."""

    record: Record
    contract: Contract
    executed: Counter[Place]
    answers: list[tuple[str, Result]]
    moments: list[Count] | None = None

    def faults(self) -> list[str]:
        """What the checker says."""
        counts = [Count({LOCUS: Counter()}, frozenset()), Count({LOCUS: self.executed}, self.record.begun())]
        names = {LOCUS: "toy"}
        return disagreements(self.record, {LOCUS: self.contract}, self.moments or counts, self.answers, names)

    def doctor_row(self, op_id: int, **members: Any) -> None:
        """Change a row."""
        rows = [replace(r, **members) if r.op_id == op_id else r for r in self.record.rows]
        self.record = replace(self.record, rows=rows)

    def row(self, op_id: int) -> OpRow:
        """A row."""
        (row,) = [r for r in self.record.rows if r.op_id == op_id]
        return row

    def doctor_audit(self, seq: int, **members: Any) -> None:
        """Change the body of an audit row."""
        chain = [a._replace(body={**a.body, **members}) if a.seq == seq else a for a in self.record.audit]
        self.record = replace(self.record, audit=chain)

    def seq(self, op_id: int, what: str) -> int:
        """The audit row of a step."""
        (found,) = [a.seq for a in self.record.audit if a.op_id == op_id and a.body["what"] == what]
        return found


@pytest.fixture
def evidence(play: Play, tmp_path: Path) -> Evidence:
    """What a life left: op 1 written, op 2 popped, op 3 settled as not applied by rule, op 4 unknown."""
    kept: list[Evidence] = []

    async def life(lab: Lab) -> None:
        lab.chip().push("F", b"ab")
        answers = [
            (KEY, await lab.ask("reg.write", register="toy.R", value=5, key=KEY)),
            (KEY2, await lab.ask("reg.read_effectful", register="toy.F", key=KEY2)),
        ]
        lab.fault(FaultKind.REQUEST_LOST)
        answers.append((KEY3, await lab.ask("reg.write", register="toy.R", value=6, key=KEY3)))
        await lab.rules_ran()
        answers.append((KEY3, await lab.ask("reg.write", register="toy.R", value=6, key=KEY3)))
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=1)
        answers.append((KEY4, await lab.ask("reg.read_effectful", register="toy.F", key=KEY4)))
        await lab.rules_ran()
        kept.append(Evidence(record_of_nothing(), lab.device().contract, lab.chip().executed, answers))

    play(life, toy_board(tmp_path, *PARTS))
    (found,) = kept
    found.record = record_of(tmp_path / "store")
    return found


def record_of_nothing() -> Record:
    """An empty record."""
    return Record([], [], None, [], {})


def test_evidence_when_sound_then_everything_agrees(evidence: Evidence) -> None:
    assert evidence.faults() == []
    states = [(r.state, r.verdict, r.verdict_by) for r in evidence.record.rows]
    assert states == [
        ("DONE", "applied", "bus"),
        ("DONE", "applied", "bus"),
        ("DONE", "not_applied", "rule"),
        ("UNKNOWN", None, None),
    ]
    assert (evidence.executed["R", "write"], evidence.executed["F", "read"]) == (1, 2)


def _without(op_id: int, what: str) -> Callable[[Evidence], None]:
    def act(e: Evidence) -> None:
        seq = e.seq(op_id, what)
        e.record = replace(e.record, audit=[a for a in e.record.audit if a.seq != seq])

    return act


def _twice(op_id: int, what: str) -> Callable[[Evidence], None]:
    def act(e: Evidence) -> None:
        (again,) = [a for a in e.record.audit if a.op_id == op_id and a.body["what"] == what]
        e.record = replace(e.record, audit=[*e.record.audit, again._replace(seq=len(e.record.audit) + 1)])

    return act


def _ran(name: str, access: str, by: int) -> Callable[[Evidence], None]:
    def act(e: Evidence) -> None:
        e.executed = e.executed + Counter({(name, access): by}) if by > 0 else Counter(e.executed)
        if by < 0:
            e.executed[name, access] += by

    return act


def _no_row(op_id: int) -> Callable[[Evidence], None]:
    def act(e: Evidence) -> None:
        e.record = replace(e.record, rows=[r for r in e.record.rows if r.op_id != op_id])

    return act


def _both_open(e: Evidence) -> None:
    e.doctor_row(3, state="UNKNOWN", verdict=None, verdict_by=None)
    _without(3, "settled")(e)


def _later_for_an_earlier(e: Evidence) -> None:
    """The pop in doubt did not run; the pop after it ran twice: the totals would fit."""
    e.doctor_row(2, state="UNKNOWN", verdict=None, verdict_by=None, evidence={"how": "crash"})
    e.doctor_audit(e.seq(2, "outcome"), what="unknown")
    e.doctor_row(4, state="DONE", verdict="abandoned", verdict_by="human", response={"verdict": "abandoned"})
    e.answers.clear()
    first = Counter({("R", "write"): 1})
    after = first + Counter({("F", "read"): 2})
    moments = [(Counter[Place](), set()), (first, {1, 2}), (after, {1, 2, 3, 4})]
    e.moments = [Count({LOCUS: executed}, frozenset(begun)) for executed, begun in moments]


def _answer(key: str, **members: Any) -> Callable[[Evidence], None]:
    def act(e: Evidence) -> None:
        (last,) = [a for k, a in e.answers if k == key][-1:]
        values = {name: getattr(last, name) for name in last.__struct_fields__}
        e.answers.append((key, Result(**{**values, **members})))

    return act


def _verdict_of_row(e: Evidence) -> None:
    e.doctor_row(1, verdict="satisfied")


def _rule_says_applied(e: Evidence) -> None:
    e.doctor_row(3, verdict="applied", response={**(e.row(3).response or {}), "verdict": "applied"})
    e.doctor_audit(e.seq(3, "settled"), verdict="applied")
    e.answers.clear()


def _other_author(e: Evidence) -> None:
    e.doctor_row(3, verdict_by="human")


def _value_lost(e: Evidence) -> None:
    e.record.data[2] = []


def _hold_of_nobody(e: Evidence) -> None:
    e.record = replace(e.record, holds=[HoldRow(LOCUS, "uid:0", "?", 0)])


def _chain(e: Evidence) -> None:
    e.record = replace(e.record, broken=3)


DOCTORED: dict[str, tuple[Callable[[Evidence], None], str]] = {
    "a write ran twice": (_ran("R", "write", 1), "write of R executed 2x"),
    "a write did not run": (_ran("R", "write", -1), "write of R executed 0x"),
    "a write that nobody asked for": (_ran("G", "write", 1), "write of G executed 1x; operations [1, 2, 3, 4] account"),
    "a pop ran twice": (_ran("F", "read", 1), "read of F executed 3x; operations [1, 2, 3, 4] account for 1 to 2"),
    "a later one is not counted for an earlier one": (
        _later_for_an_earlier,
        "read of F executed 2x; operations [3, 4]",
    ),
    "no intent": (_without(1, "intent"), "the journal tells ['outcome'], not intent, outcome"),
    "no outcome": (_without(1, "outcome"), "the journal tells ['intent'], not intent, outcome"),
    "two outcomes": (_twice(1, "outcome"), "['intent', 'outcome', 'outcome'], not"),
    "two intents": (_twice(1, "intent"), "['intent', 'outcome', 'intent'], not"),
    "no settlement": (_without(3, "settled"), "['intent', 'unknown'], not intent, unknown, settled"),
    "another verdict in the row": (_verdict_of_row, "is satisfied; the journal says applied"),
    "another author in the row": (_other_author, "is settled by human; the journal says by rule"),
    "a rule that guessed": (_rule_says_applied, "write of R executed 1x; operations [1, 2, 3, 4] account for 2"),
    "a row is gone": (_no_row(2), "is of operation 2: no such row"),
    "two in doubt at once": (_both_open, "operations [3, 4] are in doubt at once"),
    "a value is gone": (_value_lost, "read [1] bytes; [] are on record"),
    "a hold without a record": (_hold_of_nobody, "toy is held; the journal does not tell of it"),
    "the chain is broken": (_chain, "the audit chain is broken at row 3"),
    "another verdict is answered": (_answer(KEY, verdict="satisfied"), "later ('satisfied'"),
    "other effects are answered": (_answer(KEY, effects="unknown"), "later ('applied', 'unknown'"),
    "another value is answered": (_answer(KEY2, values=[]), "later ('applied', 'applied', True, None, '[]')"),
    "an outcome is taken back": (_answer(KEY, verdict=None, status="in_progress"), "later in_progress"),
    "another operation answers": (_answer(KEY, id=7), "was operation 1, then 7"),
    "an unknown is answered as done": (_answer(KEY4, verdict="applied", error=None), "its row is UNKNOWN None"),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_evidence_when_doctored_then_the_checker_says_what_does_not_fit(evidence: Evidence, name: str) -> None:
    act, sentence = DOCTORED[name]
    act(evidence)
    assert sentence in "\n".join(evidence.faults())


def test_audit_chain_when_a_row_of_the_file_is_doctored_then_the_checker_says_where(
    evidence: Evidence, tmp_path: Path
) -> None:
    conn = sqlite3.connect(tmp_path / "store" / "hwtool.db", isolation_level=None)
    conn.executescript("DROP TRIGGER audit_u; UPDATE audit SET body=replace(body,'intent','INTENT') WHERE seq=1;")
    conn.close()
    evidence.record = record_of(tmp_path / "store")
    assert "the audit chain is broken at row 1" in evidence.faults()


def test_life_when_something_wrote_behind_the_daemons_back_then_it_does_not_end_well(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        register = lab.device().contract.registers["R"]
        lab.chip().write(register.space, register.offset, b"\x01")

    with pytest.raises(AssertionError, match="write of R executed 1x"):
        play(life, toy_board(tmp_path, *PARTS))


def test_accesses_when_counted_then_those_that_need_a_key_and_no_selectors(play: Play) -> None:
    async def life(lab: Lab) -> None:
        counted = matters(lab.device("uart").contract)
        assert {("RHR", "read"), ("MSR", "read"), ("THR", "write"), ("IER", "write")} <= counted
        assert not {("LCR", "write"), ("RXLVL", "read"), ("IER", "read")} & counted

    play(life)


def test_exemptions_when_listed_then_each_is_a_test_of_this_folder() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    tests = {n.name for f in files for n in ast.walk(ast.parse(f.read_text())) if isinstance(n, ast.FunctionDef)}
    assert set(BEHIND_ITS_BACK) <= tests
    assert all(BEHIND_ITS_BACK.values())


def test_undeclared_read_when_closed_at_once_then_the_journal_says_by_whom(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, access="read")
        await lab.ask("reg.read_effectful", register="toy.U", key=KEY)
        (row,) = await lab.rows()
        assert (row.verdict, row.verdict_by) == ("lost", "rule")
        (settled,) = [body for body in await lab.audit() if body["what"] == "settled"]
        assert (settled.get("by"), settled["error"]) == ("rule", "value_lost")

    play(life, toy_board(tmp_path, reg("U", 0, "read = { effects = ['unknown'], provenance = 'silent' }", "ro")))
