"""Any sequence of operations against an oracle: what a key answers, what is refused and why, and an unbroken chain."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hwtool_store import audit
from hwtool_store import operations as ops
from hwtool_store.database import Store
from hwtool_store.faults import KeyTaken, StoreRule
from hwtool_store.operations import OpRow, Tombstone
from tests.store.conftest import LOCUS, NEW, OTHER_LOCUS, do, started

PRINCIPALS: Final = ("uid:1000", "uid:1001")
KEYS: Final = ("write-0001", "write-0002", "write-0003")
PAIRS: Final = st.tuples(st.sampled_from(PRINCIPALS), st.sampled_from(KEYS))
LOCI: Final = st.sampled_from((LOCUS, OTHER_LOCUS))
OPEN: Final = ("INTENT", "UNKNOWN")
BUS: Final = st.sampled_from(("applied", "satisfied", "not_applied", "partial"))
SETTLED: Final = st.sampled_from(("applied", "satisfied", "not_applied", "partial", "lost", "superseded", "abandoned"))
BY: Final = st.sampled_from(("rule", "human"))


@dataclass
class Known:
    """What the oracle knows of an operation."""

    pair: tuple[str, str]
    locus: str
    state: str
    verdict: str | None = None


class Keys(RuleBasedStateMachine):
    """A store and what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store: Store = started(Path(self.folder.name))
        self.ops: dict[int, Known] = {}
        self.tombs: dict[tuple[str, str], str] = {}
        self.held: set[str] = set()
        self.rows = 0
        self.newest = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def open_on(self, locus: str) -> set[str]:
        return {op.state for op in self.ops.values() if op.locus == locus and op.state in OPEN}

    def numbers(self) -> list[int]:
        return sorted(self.ops)

    @initialize()
    def empty(self) -> None:
        assert do(self.store, ops.in_state, "PENDING", "INTENT", "UNKNOWN", "DONE") == []

    @rule(pair=PAIRS, locus=LOCI)
    def t1(self, pair: tuple[str, str], locus: str) -> None:
        new = replace(NEW, principal=pair[0], key=pair[1], locus=locus)
        taken = [number for number, op in self.ops.items() if op.pair == pair]
        why = r"op: device stopped|op: device held" if self.open_on(locus) or locus in self.held else ""
        if taken:
            with pytest.raises(KeyTaken) as error:
                do(self.store, ops.t1_intent, new, {})
            assert error.value.op_id == taken[0]
        elif pair in self.tombs or why:
            with pytest.raises(StoreRule, match="key expired" if pair in self.tombs else why):
                do(self.store, ops.t1_intent, new, {})
        else:
            number = do(self.store, ops.t1_intent, new, {})
            assert number > self.newest
            self.newest = number
            self.ops[number] = Known(pair, locus, "INTENT")
            self.rows += 1

    def move(self, data: st.DataObject, legal: str, state: str, verdict: str | None, by: str) -> None:
        """Try one operation's next state; the oracle says whether it is allowed."""
        number = data.draw(st.sampled_from(self.numbers()))
        known = self.ops[number]

        def step() -> int:
            if state == "UNKNOWN":
                return do(self.store, ops.to_unknown, number, {}, {}, {})
            if by == "bus":
                return do(self.store, ops.t2_done, number, str(verdict), {}, {}, 200, {})
            return do(self.store, ops.t3_settle, number, str(verdict), "rule", {}, {}, 300, {})

        if known.state != legal:
            with pytest.raises(StoreRule, match=r"op: illegal transition|op: final"):
                step()
            return
        self.rows += 1
        assert step() == self.rows
        known.state, known.verdict = state, verdict

    @precondition(lambda self: self.ops)
    @rule(data=st.data(), verdict=BUS)
    def done(self, data: st.DataObject, verdict: str) -> None:
        self.move(data, "INTENT", "DONE", verdict, "bus")

    @precondition(lambda self: self.ops)
    @rule(data=st.data())
    def unknown(self, data: st.DataObject) -> None:
        self.move(data, "INTENT", "UNKNOWN", None, "bus")

    @precondition(lambda self: self.ops)
    @rule(data=st.data(), verdict=SETTLED)
    def settle(self, data: st.DataObject, verdict: str) -> None:
        self.move(data, "UNKNOWN", "DONE", verdict, "rule")

    @rule(keep=st.integers(0, 2), most=st.integers(1, 3))
    def prune(self, keep: int, most: int) -> None:
        finished = [number for number in self.numbers() if self.ops[number].state == "DONE"]
        surplus = max(len(finished) - keep, 0)
        count = do(self.store, ops.prune, keep, 400, most)
        assert count == min(surplus, most)
        left = {op.op_id for op in do(self.store, ops.in_state, "DONE")}
        assert left >= set(finished[surplus:])
        gone = set(finished) - left
        assert len(gone) == count
        self.rows += 1 if gone else 0
        for number in gone:
            op = self.ops.pop(number)
            self.tombs[op.pair] = str(op.verdict)

    @rule(locus=LOCI)
    def hold(self, locus: str) -> None:
        self.rows += 1
        assert do(self.store, ops.put_hold, locus, "bob", "why", 1, {}) == self.rows
        self.held.add(locus)

    @rule(locus=LOCI)
    def release(self, locus: str) -> None:
        stopped = "UNKNOWN" in self.open_on(locus)
        if stopped or locus not in self.held:
            why = "hold: settle the open op first" if locus in self.held else "no such row"
            with pytest.raises(StoreRule, match=why):
                do(self.store, ops.take_hold, locus, {})
            return
        self.rows += 1
        assert do(self.store, ops.take_hold, locus, {}) == self.rows
        self.held.remove(locus)

    @rule()
    def restart(self) -> None:
        epoch = self.store.epoch
        self.store.close()
        self.store = started(Path(self.folder.name))
        assert self.store.epoch == epoch + 1

    @invariant()
    def every_key_answers_as_the_oracle_says(self) -> None:
        by_pair = {op.pair: (number, op) for number, op in self.ops.items()}
        for principal in PRINCIPALS:
            for key in KEYS:
                found = do(self.store, ops.find, principal, key)
                if (principal, key) in by_pair:
                    number, op = by_pair[principal, key]
                    assert isinstance(found, OpRow)
                    assert (found.op_id, found.locus, found.state, found.verdict) == (
                        number,
                        op.locus,
                        op.state,
                        op.verdict,
                    )
                elif (principal, key) in self.tombs:
                    assert found == Tombstone(self.tombs[principal, key])
                else:
                    assert found is None

    @invariant()
    def the_chain_is_whole_and_as_long_as_what_happened(self) -> None:
        assert do(self.store, audit.first_break, 10_000) is None
        assert self.store.seq == do(self.store, audit.tip)[0] == self.rows

    @invariant()
    def held_devices_are_listed(self) -> None:
        assert {row.locus for row in do(self.store, ops.holds)} == self.held


TestKeys = Keys.TestCase
TestKeys.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
