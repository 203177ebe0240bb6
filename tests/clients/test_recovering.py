"""What a client decides, without sockets: a call is sent once, and after a loss its key is asked with the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hwtool import calls
from hwtool.calls import Call
from hwtool.failures import KeyConflict, Malformed, OutcomeUnknown
from hwtool.losses import ConnectionLost, NeverSent, NoDaemon, NoReply
from hwtool.recovering import PAUSES_S, Ask, Connect, Pause, Step, conversation, new_key
from hwtool.replies import Result
from hwtool.session import ProtocolError
from hwtool_contracts.errors import Code, DomainError

KEY = "key-0001"
WRITE = calls.write("d.R", 0x40, key=KEY)
SENT = Ask("reg.write", {"register": "d.R", "value": 0x40, "key": KEY})
ASKED = Ask("op.get", {"key": KEY, "request": {"method": "reg.write", "params": {"register": "d.R", "value": 0x40}}})
WAIT = Ask("op.wait", {"key": KEY, "wait_ms": 25_000})
LOST = ConnectionLost("the daemon hung up")


def told(status: str = "done", **members: Any) -> dict[str, Any]:
    """A result as it comes."""
    return {"status": status, "ok": status == "done", "effects": "none", **members}


def failed(code: Code, **fields: Any) -> dict[str, Any]:
    """A failed result."""
    return told("failed", error=DomainError(code, "why", **fields).as_object())


DONE = told(verdict="applied", effects="applied", key=KEY, id=7)
PROGRESS = told("in_progress", effects="unknown")
NOT_FOUND = failed(Code.NOT_FOUND, searched=KEY, suggestions=[])


def play(call: Call[Any], *answers: Any, run: int | None = None) -> tuple[Any, list[Step]]:
    """Drive a conversation with these answers; what came of it, and what it asked for."""
    steps: list[Step] = []
    talk = conversation(call, run)
    rest = list(answers)
    try:
        step = next(talk)
        while True:
            steps.append(step)
            answer = rest.pop(0)
            step = talk.throw(answer) if isinstance(answer, Exception) else talk.send(answer)
    except StopIteration as end:
        assert not rest
        return end.value, steps
    except Exception as error:  # noqa: BLE001  # what came of it
        assert not rest
        return error, steps


def test_call_when_answered_then_sent_once() -> None:
    result, steps = play(WRITE, None, DONE)
    assert (result.verdict, result.id, steps) == ("applied", 7, [Connect(), SENT])


@pytest.mark.parametrize("recorded", [DONE, told("pending_approval", key=KEY)], ids=["done", "pending"])
def test_write_when_the_reply_is_lost_then_its_record_answers_and_nothing_is_sent_again(recorded: Any) -> None:
    result, steps = play(WRITE, None, LOST, None, recorded)
    assert (result.status, steps) == (recorded["status"], [Connect(), SENT, Connect(), ASKED])


def test_write_when_the_reply_is_lost_and_it_goes_on_then_waited_for() -> None:
    result, steps = play(WRITE, None, LOST, *[None, PROGRESS] * 4, None, DONE)
    again = [Connect(), ASKED, Connect(), WAIT]
    assert (result.verdict, steps) == ("applied", [Connect(), SENT, *again, *again, Connect(), ASKED])


FAILURES: list[tuple[Any, type[Exception]]] = [
    (NOT_FOUND, NeverSent),
    (failed(Code.KEY_CONFLICT, key=KEY, differs=["value"]), KeyConflict),
    (failed(Code.OUTCOME_UNKNOWN, op=1, settled=False), OutcomeUnknown),
]


@pytest.mark.parametrize(("recorded", "kind"), FAILURES, ids=[k.__name__ for _, k in FAILURES])
def test_write_when_the_reply_is_lost_then_raises_what_the_record_says(recorded: Any, kind: type[Exception]) -> None:
    error, steps = play(WRITE, None, LOST, None, recorded)
    assert (type(error), steps) == (kind, [Connect(), SENT, Connect(), ASKED])


def test_write_when_the_daemon_is_gone_then_says_to_ask_with_the_key_first() -> None:
    answers = [a for _ in PAUSES_S for a in (NoDaemon("no daemon"), None)]
    error, steps = play(WRITE, None, LOST, *answers, NoDaemon("no daemon"))
    waited = [s for pause in PAUSES_S for s in (Connect(), Pause(pause))]
    assert (type(error), steps) == (ConnectionLost, [Connect(), SENT, *waited, Connect()])
    assert "op_get(key='key-0001')" in str(error)


def test_write_when_the_daemon_comes_back_then_asked() -> None:
    gone = NoDaemon("no daemon")
    result, steps = play(WRITE, None, LOST, gone, None, gone, None, None, DONE)
    pauses = [Connect(), Pause(PAUSES_S[0]), Connect(), Pause(PAUSES_S[1]), Connect()]
    assert (result.verdict, steps) == ("applied", [Connect(), SENT, *pauses, ASKED])


def test_record_when_asking_for_it_is_lost_too_then_asked_again() -> None:
    result, steps = play(WRITE, None, LOST, None, LOST, None, None, DONE)
    pause = [Connect(), ASKED, Pause(PAUSES_S[0]), Connect(), ASKED]
    assert (result.verdict, steps) == ("applied", [Connect(), SENT, *pause])


def test_write_when_nobody_listens_from_the_start_then_not_sent() -> None:
    error, steps = play(WRITE, NoDaemon("no daemon"))
    assert (type(error), steps) == (NoDaemon, [Connect()])


def test_write_when_no_reply_comes_in_time_then_nothing_is_asked_and_nothing_cancelled() -> None:
    error, steps = play(WRITE, None, NoReply("none"))
    assert (type(error), steps) == (NoReply, [Connect(), SENT])


def test_read_when_the_reply_is_lost_then_repeated_until_the_daemon_has_been_away_for_too_long() -> None:
    read = calls.read("d.R")
    sent = Ask("reg.read", {"registers": ["d.R"]})
    values = told(values=[{"register": "d.R", "raw": "0x40"}])
    result, steps = play(read, None, LOST, None, values)
    assert (int(result.value), steps) == (0x40, [Connect(), sent, Connect(), sent])
    again = [a for _ in PAUSES_S for a in (None, LOST, None)]
    error, steps = play(read, None, LOST, *again, None, LOST)
    assert (type(error), steps.count(sent)) == (ConnectionLost, len(PAUSES_S) + 2)


@pytest.mark.parametrize(
    "call",
    [calls.run_start("n"), calls.approve(1, "c"), calls.lease_acquire("d", ttl_ms=1), calls.settle(1, "applied", "r")],
    ids=lambda c: c.method,
)
def test_change_without_key_when_the_reply_is_lost_then_not_repeated(call: Call[Any]) -> None:
    error, steps = play(call, None, LOST)
    assert (error, len(steps)) == (LOST, 2)


def test_rehearsal_when_the_reply_is_lost_then_repeated() -> None:
    _, steps = play(calls.write("d.R", 1, key=KEY, dry_run=True), None, LOST, None, DONE)
    assert [type(s) for s in steps] == [Connect, Ask, Connect, Ask]
    assert steps[1] == steps[3]


def test_run_when_one_is_open_then_calls_that_can_belong_to_it_do() -> None:
    for call, run in (
        (WRITE, 4),
        (calls.read("d.R"), 4),
        (calls.write("d.R", 1, key=KEY, run=9), 9),
        (calls.safe_state("d", key=KEY), None),
        (calls.devices(), None),
    ):
        _, steps = play(call, None, told(devices=[]), run=4)
        assert isinstance(steps[1], Ask)
        assert steps[1].params.get("run") == run, call.method


MALFORMED: list[tuple[str, Any]] = [
    ("no code", {"message": "m"}),
    ("unknown code", {"code": "on_fire", "message": "m"}),
    ("half of it", {"code": "busy", "message": "m"}),
    ("none", None),
    ("text", "busy"),
]


@pytest.mark.parametrize(("error"), [e for _, e in MALFORMED], ids=[n for n, _ in MALFORMED])
def test_error_when_malformed_then_no_exception_of_a_code_and_the_outcome_is_to_be_looked_at(error: Any) -> None:
    came, _ = play(WRITE, None, told("failed", effects="unknown", error=error))
    assert isinstance(came, Malformed)
    assert (came.retry, came.effects) == ("check_first", "unknown")


NO_RESULTS: list[Any] = [{}, {"status": "done"}, told(values=3), told(values=[{"raw": "0x1"}])]


@pytest.mark.parametrize("answer", NO_RESULTS, ids=["empty", "no effects", "values", "value without register"])
def test_answer_when_it_has_not_the_shape_of_a_result_then_an_error_of_the_protocol(answer: Any) -> None:
    came, _ = play(WRITE, None, answer)
    assert isinstance(came, ProtocolError)


def test_listing_when_its_member_is_missing_then_an_error_of_the_protocol() -> None:
    make: Callable[[], Call[Any]]
    for make in (calls.devices, calls.approvals, calls.discover, calls.describe, calls.metrics):
        came, _ = play(make(), None, told())
        assert isinstance(came, ProtocolError), make


def test_result_when_it_came_then_frozen_to_its_depth_and_unknown_members_are_kept() -> None:
    result, _ = play(WRITE, None, {**DONE, "from_tomorrow": {"list": [1, {"deep": 2}]}, "evidence": {"a": [1]}})
    assert isinstance(result, Result)
    assert result.json["from_tomorrow"]["list"][1]["deep"] == 2
    with pytest.raises(AttributeError):
        result.ok = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        result.evidence["a"] = 2  # type: ignore[index]
    assert result.json["from_tomorrow"]["list"] == (1, {"deep": 2})


def test_key_when_made_then_random_and_of_the_right_form() -> None:
    made = {new_key() for _ in range(1000)}
    assert len(made) == 1000
    assert all(8 <= len(k) <= 120 and k.startswith("py-") for k in made)
    assert new_key("agent-7-").startswith("agent-7-")
