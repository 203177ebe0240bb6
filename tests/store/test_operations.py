"""Operations: each transaction read back with its audit row, and keys that are fresh only by both witnesses."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from hwtool_store import audit
from hwtool_store import operations as ops
from hwtool_store.audit import AuditRow
from hwtool_store.database import FILE, Store
from hwtool_store.faults import KeyTaken, StoreFatal, StoreRule
from hwtool_store.operations import Grant, OpRow, Tombstone
from tests.store.conftest import LOCUS, NEW, OTHER_LOCUS, damage, do, started

GRANT = Grant("alice", "granted", "boot-1", 9_000, used=False)
SHOWN = {"OLATA": "0x00"}
INTENT = OpRow(
    op_id=1,
    principal=NEW.principal,
    key=NEW.key,
    digest=NEW.digest,
    locus=LOCUS,
    kind="write",
    request=NEW.request,
    contract_hash=NEW.contract_hash,
    epoch=1,
    device_gen=1,
    pre=NEW.pre,
    state="INTENT",
    verdict=None,
    verdict_by=None,
    response=None,
    evidence=None,
    created_ns=100,
    intent_ns=100,
    done_ns=None,
)
PENDING = replace(INTENT, state="PENDING", pre=None, intent_ns=None)


def found(store: Store, key: str = NEW.key, principal: str = NEW.principal) -> OpRow | Tombstone | None:
    return do(store, ops.find, principal, key)


def trail(store: Store) -> list[AuditRow]:
    return do(store, audit.page, 0, 1000)


def intent(store: Store, key: str = NEW.key, locus: str = LOCUS) -> int:
    return do(store, ops.t1_intent, replace(NEW, key=key, locus=locus), {"what": "intent"})


def pending(store: Store, key: str = NEW.key) -> int:
    return do(store, ops.t0_pending, replace(NEW, key=key, pre=None), {"what": "pending"})


def granted(store: Store, op_id: int, given: Grant = GRANT) -> int:
    op = do(store, ops.get, op_id)
    assert op is not None
    return do(store, ops.grant, op, given, SHOWN, {"what": given.decision})


def done(store: Store, key: str = NEW.key, verdict: str = "applied") -> int:
    op_id = intent(store, key)
    do(store, ops.t2_done, op_id, verdict, {}, {}, 200, {"what": "done"})
    return op_id


def test_key_when_never_used_then_nothing_is_found(store: Store) -> None:
    assert found(store) is None
    assert do(store, ops.get, 1) is None


def test_intent_when_committed_then_its_row_and_its_audit_row_are_there(store: Store) -> None:
    assert intent(store) == 1
    assert found(store) == INTENT
    assert do(store, ops.get, 1) == INTENT
    assert trail(store) == [AuditRow(1, 1, 1, {"what": "intent"})]
    assert store.seq == 1


def test_outcome_when_committed_then_verdict_response_evidence_and_time_are_there(store: Store) -> None:
    intent(store)
    seq = do(store, ops.t2_done, 1, "applied", {"ok": True}, {"read_back": "0x55"}, 200, {"what": "done"})
    assert seq == 2
    assert found(store) == replace(
        INTENT,
        state="DONE",
        verdict="applied",
        verdict_by="bus",
        response={"ok": True},
        evidence={"read_back": "0x55"},
        done_ns=200,
    )
    assert trail(store)[1:] == [AuditRow(2, 1, 1, {"what": "done"})]


def test_consumed_values_when_the_outcome_comes_then_they_are_kept_in_order(store: Store) -> None:
    intent(store)
    do(store, ops.t2_done, 1, "applied", {}, {}, 200, {}, data=[b"\x02", b"\x01", b""])
    assert do(store, ops.data_of, 1) == [b"\x02", b"\x01", b""]
    assert do(store, ops.data_of, 2) == []


def test_unknown_when_committed_then_the_row_waits_for_a_settlement(store: Store) -> None:
    intent(store)
    assert do(store, ops.to_unknown, 1, {"error": "outcome_unknown"}, {"fault": "silence"}, {"what": "unknown"}) == 2
    assert found(store) == replace(
        INTENT, state="UNKNOWN", response={"error": "outcome_unknown"}, evidence={"fault": "silence"}
    )
    assert trail(store)[1:] == [AuditRow(2, 1, 1, {"what": "unknown"})]


SETTLEMENTS: list[tuple[str, Literal["rule", "human"]]] = [
    ("applied", "rule"),
    ("satisfied", "rule"),
    ("not_applied", "human"),
    ("partial", "human"),
    ("lost", "rule"),
    ("superseded", "rule"),
    ("abandoned", "human"),
]


@pytest.mark.parametrize(("verdict", "by"), SETTLEMENTS, ids=[s[0] for s in SETTLEMENTS])
def test_settlement_when_committed_then_the_unknown_op_is_done_and_its_device_free(
    store: Store, verdict: str, by: Literal["rule", "human"]
) -> None:
    intent(store)
    do(store, ops.to_unknown, 1, {}, {}, {})
    seq = do(store, ops.t3_settle, 1, verdict, by, {"settled": True}, {"n": "0x55"}, 300, {"what": "settled"})
    assert found(store) == replace(
        INTENT,
        state="DONE",
        verdict=verdict,
        verdict_by=by,
        response={"settled": True},
        evidence={"n": "0x55"},
        done_ns=300,
    )
    assert trail(store)[-1] == AuditRow(seq, 1, 1, {"what": "settled"})
    assert intent(store, "write-0002") == 2


def test_pending_when_committed_then_it_has_no_pre_image_and_no_intent(store: Store) -> None:
    assert pending(store) == 1
    assert found(store) == PENDING
    assert do(store, ops.grant_of, 1) is None
    assert trail(store) == [AuditRow(1, 1, 1, {"what": "pending"})]


@pytest.mark.parametrize("by", ["human", "rule"])
def test_denial_when_committed_then_the_key_is_consumed(store: Store, by: Literal["human", "rule"]) -> None:
    pending(store)
    assert do(store, ops.deny, 1, by, {"error": "denied"}, 300, {"what": "denied"}) == 2
    assert found(store) == replace(
        PENDING, state="DONE", verdict="denied", verdict_by=by, response={"error": "denied"}, done_ns=300
    )
    assert trail(store)[1:] == [AuditRow(2, 1, 1, {"what": "denied"})]
    with pytest.raises(KeyTaken):
        intent(store)


def test_grant_when_consumed_then_the_pending_op_is_an_intent_and_the_grant_is_used(store: Store) -> None:
    pending(store)
    assert granted(store, 1) == 2
    assert do(store, ops.grant_of, 1) == GRANT
    assert found(store) == replace(PENDING, evidence=SHOWN)
    assert do(store, ops.t1_granted, 1, {"OLATA": "0x01"}, 1, 250, {"what": "intent"}) == 1
    assert found(store) == replace(INTENT, pre={"OLATA": "0x01"}, intent_ns=250, evidence=SHOWN)
    assert do(store, ops.grant_of, 1) == replace(GRANT, used=True)
    assert [row.body["what"] for row in trail(store)] == ["pending", "granted", "intent"]
    do(store, ops.t2_done, 1, "applied", {}, {}, 260, {"what": "done"})
    assert isinstance(found(store), OpRow)


def test_grant_when_it_survives_a_restart_then_it_is_consumed_in_the_new_epoch(directory: Path) -> None:
    first = started(directory)
    pending(first)
    granted(first, 1)
    first.close()
    second = started(directory)
    assert do(second, ops.t1_granted, 1, {}, 1, 250, {}) == 1
    op = do(second, ops.get, 1)
    assert op is not None
    assert (op.state, op.epoch) == ("INTENT", 2)
    second.close()


@pytest.mark.parametrize(
    ("given", "generation"),
    [(None, 1), (replace(GRANT, decision="denied"), 1), (GRANT, 2)],
    ids=["nobody answered", "denied", "another generation"],
)
def test_intent_of_a_pending_op_when_its_grant_does_not_fit_then_refused_and_the_grant_is_unused(
    store: Store, given: Grant | None, generation: int
) -> None:
    pending(store)
    if given is not None:
        granted(store, 1, given)
    before = trail(store)
    with pytest.raises(StoreRule, match="op: not approved"):
        do(store, ops.t1_granted, 1, {}, generation, 250, {})
    assert found(store) == (PENDING if given is None else replace(PENDING, evidence=SHOWN))
    assert do(store, ops.grant_of, 1) == given
    assert trail(store) == before


def test_grant_when_given_twice_then_the_first_and_what_it_was_shown_stand(store: Store) -> None:
    pending(store)
    granted(store, 1)
    op = do(store, ops.get, 1)
    assert op is not None
    with pytest.raises(StoreRule, match=r"UNIQUE constraint failed: approval\.op_id"):
        do(store, ops.grant, op, replace(GRANT, decision="denied"), {"OLATA": "0xFF"}, {})
    assert do(store, ops.grant_of, 1) == GRANT
    assert found(store) == replace(PENDING, evidence=SHOWN)


@pytest.mark.parametrize("state", ["INTENT", "UNKNOWN", "DONE", "pruned"])
def test_grant_when_its_op_is_not_pending_then_refused_and_the_op_is_as_before(store: Store, state: str) -> None:
    intent(store)
    if state == "UNKNOWN":
        do(store, ops.to_unknown, 1, {}, {}, {})
    elif state != "INTENT":
        do(store, ops.t2_done, 1, "applied", {}, {}, 200, {})
    op = do(store, ops.get, 1)
    assert op is not None
    if state == "pruned":
        do(store, ops.prune, 0, 400)
    left, before = found(store), trail(store)
    with pytest.raises(StoreRule, match="approval of operation 1: no such row"):
        do(store, ops.grant, op, GRANT, SHOWN, {})
    assert do(store, ops.grant_of, 1) is None
    assert (found(store), trail(store)) == (left, before)


TRANSITIONS: list[tuple[str, Callable[[sqlite3.Connection], int]]] = [
    ("intent of operation 9", lambda conn: ops.t1_granted(conn, 9, {}, 1, 1, {})),
    ("outcome of operation 9", lambda conn: ops.t2_done(conn, 9, "applied", {}, {}, 1, {})),
    ("operation 9 becoming unknown", lambda conn: ops.to_unknown(conn, 9, {}, {}, {})),
    ("settlement of operation 9", lambda conn: ops.t3_settle(conn, 9, "applied", "human", {}, {}, 1, {})),
    ("denial of operation 9", lambda conn: ops.deny(conn, 9, "human", {}, 1, {})),
]


@pytest.mark.parametrize(("says", "job"), TRANSITIONS, ids=[t[0] for t in TRANSITIONS])
def test_transition_when_the_op_does_not_exist_then_refused_and_nothing_is_recorded(
    store: Store, says: str, job: Callable[[sqlite3.Connection], int]
) -> None:
    intent(store)
    before = trail(store)
    with pytest.raises(StoreRule, match=f"{says}: no such row"):
        do(store, job)
    assert (found(store), trail(store)) == (INTENT, before)


def test_pending_when_the_device_is_held_then_its_grant_stays_unused(store: Store) -> None:
    pending(store)
    granted(store, 1)
    do(store, ops.put_hold, LOCUS, "bob", "wiring", 200, {"what": "hold"})
    with pytest.raises(StoreRule, match="op: device held"):
        do(store, ops.t1_granted, 1, {}, 1, 250, {})
    assert do(store, ops.grant_of, 1) == GRANT
    do(store, ops.take_hold, LOCUS, {"what": "release"})
    assert do(store, ops.t1_granted, 1, {}, 1, 260, {}) == 1


def test_pending_when_the_device_is_busy_then_its_grant_stays_unused(store: Store) -> None:
    pending(store)
    granted(store, 1)
    intent(store, "write-0002")
    with pytest.raises(StoreRule, match="op: device stopped"):
        do(store, ops.t1_granted, 1, {}, 1, 250, {})
    assert do(store, ops.grant_of, 1) == GRANT


def test_hold_when_put_on_and_taken_off_then_the_device_is_stopped_between(store: Store) -> None:
    assert do(store, ops.put_hold, LOCUS, "bob", "wiring", 200, {"what": "hold"}) == 1
    assert do(store, ops.holds) == [ops.HoldRow(LOCUS, "bob", "wiring", 200)]
    with pytest.raises(StoreRule, match="op: device held"):
        intent(store)
    assert found(store) is None
    assert intent(store, locus=OTHER_LOCUS) == 1
    assert do(store, ops.take_hold, LOCUS, {"what": "release"}) == 3
    assert do(store, ops.holds) == []
    assert intent(store, "write-0002") == 2
    assert [row.body["what"] for row in trail(store)] == ["hold", "intent", "release", "intent"]


def test_hold_when_put_on_again_then_the_newer_reason_stands(store: Store) -> None:
    do(store, ops.put_hold, LOCUS, "bob", "wiring", 200, {})
    do(store, ops.put_hold, LOCUS, "eve", "smoke", 300, {})
    assert do(store, ops.holds) == [ops.HoldRow(LOCUS, "eve", "smoke", 300)]


def test_hold_when_put_on_again_while_an_op_is_unknown_then_the_newer_reason_stands(store: Store) -> None:
    intent(store)
    do(store, ops.put_hold, LOCUS, "bob", "wiring", 200, {})
    do(store, ops.to_unknown, 1, {}, {}, {})
    assert do(store, ops.put_hold, LOCUS, "eve", "smoke", 300, {"what": "hold"}) == 4
    assert do(store, ops.holds) == [ops.HoldRow(LOCUS, "eve", "smoke", 300)]
    assert trail(store)[-1] == AuditRow(4, None, 1, {"what": "hold"})


def test_hold_when_there_is_none_then_taking_it_off_is_refused_and_not_recorded(store: Store) -> None:
    do(store, ops.put_hold, OTHER_LOCUS, "bob", "wiring", 200, {})
    with pytest.raises(StoreRule, match="hold on i2c:1:0x20: no such row"):
        do(store, ops.take_hold, LOCUS, {})
    assert [row.locus for row in do(store, ops.holds)] == [OTHER_LOCUS]
    assert len(trail(store)) == 1


def test_hold_when_an_op_is_unknown_then_it_stays_until_that_is_settled(store: Store) -> None:
    intent(store)
    do(store, ops.to_unknown, 1, {}, {}, {})
    do(store, ops.put_hold, LOCUS, "bob", "wiring", 200, {})
    with pytest.raises(StoreRule, match="hold: settle the open op first"):
        do(store, ops.take_hold, LOCUS, {})
    do(store, ops.t3_settle, 1, "applied", "human", {}, {}, 300, {})
    do(store, ops.take_hold, LOCUS, {})
    assert do(store, ops.holds) == []


@pytest.mark.parametrize("state", ["INTENT", "UNKNOWN"])
def test_device_when_an_op_of_it_is_open_then_no_other_starts_there_but_elsewhere(store: Store, state: str) -> None:
    intent(store)
    if state == "UNKNOWN":
        do(store, ops.to_unknown, 1, {}, {}, {})
    with pytest.raises(StoreRule, match="op: device stopped"):
        intent(store, "write-0002")
    assert found(store, "write-0002") is None
    assert intent(store, "write-0003", OTHER_LOCUS) == 2
    assert do(store, ops.t0_pending, replace(NEW, key="write-0004", pre=None), {}) == 3


def test_states_when_asked_for_then_their_ops_come_oldest_first(store: Store) -> None:
    done(store, "write-0001")
    pending(store, "write-0002")
    pending(store, "write-0003")
    intent(store, "write-0004")
    assert [op.op_id for op in do(store, ops.in_state, "PENDING")] == [2, 3]
    assert [op.op_id for op in do(store, ops.in_state, "INTENT", "DONE", "UNKNOWN")] == [1, 4]
    assert do(store, ops.in_state, "UNKNOWN") == []


def test_pending_when_counted_then_by_principal(store: Store) -> None:
    pending(store, "write-0001")
    pending(store, "write-0002")
    do(store, ops.t0_pending, replace(NEW, principal="uid:1001", pre=None), {})
    do(store, ops.deny, 1, "human", {}, 300, {})
    counts = [do(store, ops.pending_of, principal) for principal in ("uid:1000", "uid:1001", "uid:1002")]
    assert counts == [1, 1, 0]


def test_device_when_first_seen_then_its_row_is_made_once(store: Store) -> None:
    first, again = do(store, ops.device, LOCUS), do(store, ops.device, LOCUS)
    assert first == again == ops.DeviceRow(1, LOCUS, None, 1, {})
    assert do(store, ops.device, OTHER_LOCUS).device_id == 2


def test_boot_evidence_when_it_shows_a_restart_then_the_generation_rises_and_is_audited(store: Store) -> None:
    same = do(store, ops.note_boot, LOCUS, {"counter": 4}, False, 100)
    assert (same.generation, same.boot_evidence) == (1, {"counter": 4})
    assert trail(store) == []
    risen = do(store, ops.note_boot, LOCUS, {"counter": 5}, True, 200)
    assert (risen.generation, risen.boot_evidence) == (2, {"counter": 5})
    body = {"at_ns": 200, "what": "generation", "locus": LOCUS, "generation": 2}
    assert trail(store) == [AuditRow(1, None, 1, body)]


@pytest.mark.parametrize("op_id", [None, 7])
def test_note_when_nothing_changes_state_then_only_the_chain_grows(store: Store, op_id: int | None) -> None:
    assert do(store, ops.note, {"what": "refused"}, op_id) == 1
    assert trail(store) == [AuditRow(1, op_id, 1, {"what": "refused"})]
    assert do(store, ops.in_state, "PENDING", "INTENT", "UNKNOWN", "DONE") == []


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["PENDING", "INTENT", "UNKNOWN", "DONE"])
def test_key_when_it_has_a_row_then_it_is_taken_whatever_the_request(store: Store, state: str) -> None:
    if state == "PENDING":
        pending(store)
    else:
        intent(store)
    if state == "UNKNOWN":
        do(store, ops.to_unknown, 1, {}, {}, {})
    if state == "DONE":
        do(store, ops.t2_done, 1, "not_applied", {}, {}, 200, {})
    before = trail(store)
    other = replace(NEW, digest=b"e" * 32, locus=OTHER_LOCUS, kind="read")
    for job in (ops.t0_pending, ops.t1_intent):
        with pytest.raises(KeyTaken, match="key exists: op 1") as taken:
            do(store, job, other, {})
        assert taken.value.op_id == 1
    assert trail(store) == before


def test_key_when_another_principal_uses_it_then_it_is_another_key(store: Store) -> None:
    intent(store)
    other = replace(NEW, principal="uid:1001", locus=OTHER_LOCUS)
    assert found(store, principal="uid:1001") is None
    assert do(store, ops.t1_intent, other, {}) == 2
    mine, theirs = found(store), found(store, principal="uid:1001")
    assert isinstance(mine, OpRow)
    assert isinstance(theirs, OpRow)
    assert (mine.op_id, theirs.op_id) == (1, 2)


def test_key_when_pruned_then_it_is_expired_for_its_principal_only(store: Store) -> None:
    done(store, verdict="not_applied")
    assert do(store, ops.prune, 0, 400) == 1
    assert found(store) == Tombstone("not_applied")
    assert do(store, ops.get, 1) is None
    for job in (ops.t0_pending, ops.t1_intent):
        with pytest.raises(StoreRule, match="key expired") as expired:
            do(store, job, NEW, {})
        assert not isinstance(expired.value, KeyTaken)
    assert found(store, principal="uid:1001") is None
    assert do(store, ops.t1_intent, replace(NEW, principal="uid:1001"), {}) == 2


def test_key_when_pruned_then_it_is_expired_after_a_restart_too(directory: Path) -> None:
    first = started(directory)
    done(first)
    do(first, ops.prune, 0, 400)
    first.close()
    second = started(directory)
    assert found(second) == Tombstone("applied")
    second.close()


def test_prune_when_some_are_kept_then_the_newest_done_ones_and_all_open_ones(store: Store) -> None:
    for key in ("write-0001", "write-0002", "write-0003"):
        done(store, key)
    pending(store, "write-0004")
    granted(store, 4)
    intent(store, "write-0005")
    do(store, ops.to_unknown, 5, {}, {}, {})
    assert do(store, ops.prune, 1, 400) == 2
    assert [op.op_id for op in do(store, ops.in_state, "PENDING", "UNKNOWN", "DONE")] == [3, 4, 5]
    assert do(store, ops.grant_of, 4) == GRANT
    assert do(store, ops.prune, 1, 400) == 0


def test_prune_when_an_op_has_data_and_a_grant_then_they_go_with_it(store: Store) -> None:
    pending(store)
    granted(store, 1)
    do(store, ops.t1_granted, 1, {}, 1, 250, {})
    do(store, ops.t2_done, 1, "applied", {}, {}, 260, {}, data=[b"a", b"b"])
    assert do(store, ops.prune, 0, 400) == 1
    assert do(store, ops.data_of, 1) == []
    assert do(store, ops.grant_of, 1) is None


def test_prune_when_something_went_then_one_row_says_how_many_and_when_nothing_none(store: Store) -> None:
    assert do(store, ops.prune, 0, 400) == 0
    assert trail(store) == []
    for key in ("write-0001", "write-0002", "write-0003"):
        done(store, key)
    assert do(store, ops.prune, 3, 400) == 0
    assert store.seq == 6
    assert do(store, ops.prune, 1, 500) == 2
    body = {"at_ns": 500, "what": "pruned", "operations": 2, "newest": 2}
    assert trail(store)[6:] == [AuditRow(7, None, 1, body)]
    assert store.seq == 7


def test_prune_when_there_is_more_than_one_step_may_do_then_the_next_steps_do_the_rest(store: Store) -> None:
    for number in range(5):
        done(store, f"write-{number:04}")
    assert [do(store, ops.prune, 1, 400, most=2) for _ in range(3)] == [2, 2, 0]
    assert [op.op_id for op in do(store, ops.in_state, "DONE")] == [5]
    assert [row.body["operations"] for row in trail(store) if row.body["what"] == "pruned"] == [2, 2]
    assert all(found(store, f"write-{number:04}") == Tombstone("applied") for number in range(4))


def test_prune_when_no_limit_is_given_then_200_go_in_one_step(store: Store) -> None:
    def many(conn: sqlite3.Connection) -> None:
        for number in range(203):
            op_id = ops.t1_intent(conn, replace(NEW, key=f"write-{number:04}"), {})
            ops.t2_done(conn, op_id, "applied", {}, {}, 200, {})

    do(store, many)
    assert [do(store, ops.prune, 1, 400) for _ in range(3)] == [200, 2, 0]


def test_caller_when_its_ops_are_pruned_then_it_cannot_be_deleted_and_its_keys_stay_used(store: Store) -> None:
    done(store)
    do(store, ops.prune, 0, 400)
    with pytest.raises(StoreRule, match="caller: fixed"):
        do(store, lambda conn: conn.execute("DELETE FROM caller").rowcount)
    assert found(store) == Tombstone("applied")


@pytest.mark.parametrize(
    "key", ["short-1", "k" * 129, "with space", "slash/0001", "ümlaut-001", "write-0001\0 bad", "write-0001\0", ""]
)
def test_key_when_outside_its_alphabet_or_length_then_the_database_refuses_it(store: Store, key: str) -> None:
    with pytest.raises(StoreRule, match="CHECK constraint failed"):
        intent(store, key)


@pytest.mark.parametrize("key", ["a.b_c:d-", "k" * 128, "seq-00001#12"])
def test_key_when_inside_its_alphabet_and_length_then_the_database_takes_it(store: Store, key: str) -> None:
    assert intent(store, key) == 1


HASH = ops.key_hash(NEW.key)
FLIPPED = bytes([HASH[0] ^ 4])
BEFORE_HALF = b"\x1c\x2c"  # the lengths of both blobs of a row of tomb_key2: the half comes next, then the whole
DAMAGES = [
    ("sqlite_autoindex_op_1", NEW.key.encode(), b"write-0003", False, "two indexes of keys disagree"),
    ("op_key2", HASH, FLIPPED + HASH[1:], False, "two indexes of keys disagree"),
    ("tomb", HASH, FLIPPED + HASH[1:], True, "two witnesses of pruned keys disagree"),
    ("tomb", HASH, HASH[:15] + bytes([HASH[15] ^ 4]), True, "two witnesses of pruned keys disagree"),
    ("tomb_key2", BEFORE_HALF + HASH[8:], BEFORE_HALF + HASH[8:15] + bytes([HASH[15] ^ 4]), True,
     "two witnesses of pruned keys disagree"),
    ("sqlite_autoindex_caller_1", b"uid:1000", b"uid:1004", False, "index and table disagree about principal"),
    ("sqlite_autoindex_caller_1", b"uid:1000", b"uid:1004", True, "index and table disagree about principal"),
    ("caller", b"uid:1000", b"uid:1004", False, "index and table disagree about principal"),
]  # fmt: skip
DAMAGE_IDS = ["key", "hash", "first half of a tombstone", "second half of a tombstone", "second index of tombstones",
              "index of callers", "index of callers, pruned", "table of callers"]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "pruned", "says"), DAMAGES, ids=DAMAGE_IDS)
@pytest.mark.parametrize("job", ["find", "intent"])
def test_key_when_one_bit_of_one_index_has_flipped_then_the_store_fails_instead_of_executing_twice(
    directory: Path, name: str, old: bytes, new: bytes, pruned: bool, says: str, job: str
) -> None:
    first = started(directory)
    done(first)
    if pruned:
        do(first, ops.prune, 0, 400)
    first.close()
    damage(directory, name, old, new)
    second = started(directory)
    told: list[BaseException] = []
    second.on_fatal(told.append)
    with pytest.raises(StoreFatal, match=says):
        found(second) if job == "find" else intent(second)
    with pytest.raises(StoreFatal, match=says):
        found(second, "write-0099")
    second.close()
    assert isinstance(told[0], StoreFatal)


@pytest.mark.parametrize(
    "job",
    [
        lambda conn: ops.t1_intent(conn, replace(NEW, key="write-0002"), {}),
        lambda conn: ops.t0_pending(conn, replace(NEW, key="write-0002"), {}),
        lambda conn: ops.put_hold(conn, LOCUS, "bob", "wiring", 300, {}),
        lambda conn: ops.take_hold(conn, LOCUS, {}),
        lambda conn: ops.note_boot(conn, LOCUS, {}, True, 300),
        lambda conn: ops.device(conn, LOCUS),
    ],
    ids=["intent", "pending", "hold", "release", "boot", "device"],
)
@pytest.mark.parametrize("name", ["sqlite_autoindex_device_1", "device"])
def test_device_when_index_or_table_of_loci_is_damaged_then_the_store_fails_instead_of_forgetting_it(
    directory: Path, name: str, job: Callable[[sqlite3.Connection], object]
) -> None:
    first = started(directory)
    intent(first)
    do(first, ops.to_unknown, 1, {}, {}, {})
    first.close()
    damage(directory, name, LOCUS.encode(), b"i2c:1:0x24")
    second = started(directory)
    with pytest.raises(StoreFatal, match="index and table disagree about locus 'i2c:1:0x20'"):
        do(second, job)
    second.close()


def renumber(directory: Path, old: int, new: int) -> None:
    """Give the only op of a closed store another number in the table alone, as a failing disk would."""
    conn = sqlite3.connect(directory / FILE)
    root = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name='op'").fetchone()[0]
    size = conn.execute("PRAGMA page_size").fetchone()[0]
    conn.close()
    data = bytearray((directory / FILE).read_bytes())
    base = (root - 1) * size
    cell = base + int.from_bytes(data[base + 8 : base + 10], "big")
    at = cell + (2 if data[cell] & 0x80 else 1)  # behind the length of the row
    assert data[at] == old
    data[at] = new
    (directory / FILE).write_bytes(data)


@pytest.mark.parametrize("job", ["find", "intent"])
def test_key_when_the_indexes_know_it_and_the_table_does_not_then_the_store_fails(directory: Path, job: str) -> None:
    first = started(directory)
    done(first)
    first.close()
    renumber(directory, 1, 3)
    second = started(directory)
    with pytest.raises(StoreFatal, match="the indexes know key 'write-0001', the table does not"):
        found(second) if job == "find" else intent(second)
    second.close()


def test_witnesses_of_a_key_when_looked_up_then_each_is_answered_by_its_own_index(store: Store) -> None:
    def indexes(conn: sqlite3.Connection) -> list[str]:
        conn.set_trace_callback(asked.append)
        ops.find(conn, NEW.principal, NEW.key)
        conn.set_trace_callback(None)
        plans = [conn.execute(f"EXPLAIN QUERY PLAN {text}").fetchall() for text in asked]
        return [str(row[3]) for plan in plans for row in plan]

    asked: list[str] = []
    do(store, ops.caller, NEW.principal)
    used = do(store, indexes)
    wanted = [
        "sqlite_autoindex_caller_1",
        "SCAN caller",
        "sqlite_autoindex_op_1",
        "op_key2",
        "PRIMARY KEY",
        "tomb_key2",
    ]
    assert [part in plan for part, plan in zip(wanted, used, strict=True)] == [True] * 6, used
    assert "USING COVERING INDEX tomb_key2" in used[5]


JSON: list[dict[str, Any]] = [{}, {"a": [1, {"b": None}]}, {"text": "grüße \u2028 \0 '\";--"}]


@pytest.mark.parametrize("data", JSON, ids=["empty", "nested", "odd text"])
def test_json_of_a_row_when_read_back_then_it_is_what_was_written(store: Store, data: dict[str, Any]) -> None:
    do(store, ops.t1_intent, replace(NEW, request=data, pre=data), data)
    do(store, ops.t2_done, 1, "applied", data, data, 200, data)
    op = do(store, ops.get, 1)
    assert op is not None
    assert (op.request, op.pre, op.response, op.evidence) == (data, data, data, data)
    assert [row.body for row in trail(store)] == [data, data]
