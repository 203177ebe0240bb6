"""The client's side of the protocol as bytes: framing, matching of replies, and where the sockets are."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtool.session import MAX_LINE_BYTES, MAX_REPLY_BYTES, ProtocolError, Session, socket_directory, socket_path


def line(**envelope: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **envelope}).encode() + b"\n"


def test_request_when_made_then_one_numbered_line() -> None:
    session = Session()
    first, text = session.request("reg.read", {"registers": ["gpio.OLATA"]})
    second, _ = session.request("describe", {})
    assert (first, second) == (1, 2)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "reg.read",
        "params": {"registers": ["gpio.OLATA"]},
    }


def test_request_when_it_holds_a_newline_then_the_line_is_still_one() -> None:
    _, text = Session().request("reg.write", {"reason": "two\nlines \u2028 é"})
    assert text.count(b"\n") == 1
    assert json.loads(text)["params"]["reason"] == "two\nlines \u2028 é"


def test_request_when_longer_than_a_line_may_be_then_refused_before_it_is_sent() -> None:
    session = Session()
    _, empty = session.request("m", {"reason": ""})
    room = MAX_LINE_BYTES - len(empty)
    _, full = session.request("m", {"reason": "x" * room})
    assert len(full) == MAX_LINE_BYTES
    with pytest.raises(ProtocolError, match=f"{MAX_LINE_BYTES + 1} bytes") as caught:
        session.request("m", {"reason": "x" * (room + 1)})
    assert caught.value.code is None


def test_feed_when_a_reply_comes_in_pieces_then_it_is_there_with_its_last_byte() -> None:
    session = Session()
    text = line(id=1, result={"status": "done"})
    for index in range(len(text) - 1):
        session.feed(text[index : index + 1])
        assert session.result(1) is None
    session.feed(text[-1:])
    assert session.result(1) == {"status": "done"}
    assert session.result(1) is None


def test_feed_when_several_replies_come_at_once_and_out_of_order_then_each_is_matched() -> None:
    session = Session()
    session.feed(line(id=2, result={"n": 2}) + line(id=1, result={"n": 1}) + line(id=3, result={"n": 3})[:9])
    assert [session.result(n) for n in (1, 2, 3)] == [{"n": 1}, {"n": 2}, None]
    session.feed(line(id=3, result={"n": 3})[9:])
    assert session.result(3) == {"n": 3}


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3), max_size=6), st.data())
def test_feed_when_cut_anywhere_then_the_same_replies(results: list[dict[str, str]], data: st.DataObject) -> None:
    stream = b"".join(line(id=n, result=r) for n, r in enumerate(results))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    session = Session()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        session.feed(stream[start:end])
    assert [session.result(n) for n in range(len(results))] == results


def test_feed_when_an_event_comes_then_it_is_kept_apart_from_replies() -> None:
    session = Session()
    session.feed(line(method="event", params={"kind": "held"}) + line(id=1, result={}))
    assert session.events == [{"kind": "held"}]
    assert list(session.replies) == [1]


def test_feed_when_a_notification_is_unknown_then_it_is_ignored() -> None:
    session = Session()
    session.feed(line(method="later.kind", params={}))
    assert (session.events, session.replies) == ([], {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "not JSON"),
        (b"\n", "not JSON"),
        (b'{"id": 1\n', "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[1, 2]\n", "not an object"),
        (b"17\n", "not an object"),
    ],
)
def test_feed_when_a_line_is_not_of_the_protocol_then_an_error_of_the_connection(text: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as caught:
        Session().feed(text)
    assert caught.value.code is None


def test_feed_when_a_foreign_line_is_long_then_only_its_beginning_is_said() -> None:
    with pytest.raises(ProtocolError) as caught:
        Session().feed(b"x" * 10_000 + b"\n")
    assert len(str(caught.value)) < 200


def test_error_when_it_names_a_request_then_it_is_raised_for_that_one_alone() -> None:
    session = Session()
    session.feed(
        line(id=1, error={"code": -32601, "message": "no such method"}) + line(id=2, result={"status": "done"})
    )
    assert session.result(2) == {"status": "done"}
    with pytest.raises(ProtocolError, match="no such method") as caught:
        session.result(1)
    assert caught.value.code == -32601
    assert session.result(1) is None


@pytest.mark.parametrize("number", [None, "seven"])
def test_error_when_it_names_no_request_then_it_is_raised_at_once(number: str | None) -> None:
    with pytest.raises(ProtocolError, match="parse error") as caught:
        Session().feed(line(id=number, error={"code": -32700, "message": "parse error"}))
    assert caught.value.code == -32700


def test_error_when_it_has_no_id_at_all_then_it_is_raised_at_once() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        Session().feed(line(error={"code": -32600, "message": "too long"}))


@pytest.mark.parametrize("error", [None, 17, "no", [], ["a", 1], {}, {"code": "x"}, {"code": 1.5, "message": None}])
def test_error_when_malformed_then_still_an_error_of_the_protocol(error: object) -> None:
    session = Session()
    session.feed(line(id=1, error=error))
    with pytest.raises(ProtocolError) as caught:
        session.result(1)
    assert caught.value.code is None
    with pytest.raises(ProtocolError) as caught:
        session.feed(line(id=None, error=error))
    assert caught.value.code is None


def test_error_when_malformed_and_long_then_only_its_beginning_is_said() -> None:
    with pytest.raises(ProtocolError) as caught:
        Session().feed(line(error="x" * 10_000))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "envelope", [{}, {"result": None}, {"result": []}, {"result": "done"}, {"result": 7}, {"result": [{}]}]
)
def test_result_when_a_reply_has_none_then_an_error_of_the_protocol(envelope: dict[str, Any]) -> None:
    session = Session()
    session.feed(line(id=1, **envelope))
    with pytest.raises(ProtocolError, match="without result"):
        session.result(1)
    assert session.result(1) is None


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 200_000, b"[" * 200_000 + b"]" * 200_000])
def test_feed_when_a_line_is_nested_too_deep_then_an_error_of_the_connection(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        Session().feed(text + b"\n")


@pytest.mark.parametrize("bad", [b"HTTP/1.1 400\n", b"[]\n", b"[" * 200_000 + b"\n", line(error={"message": "no"})])
def test_feed_when_good_lines_stand_around_a_bad_one_then_they_count(bad: bytes) -> None:
    session = Session()
    good = [line(id=n, result={"n": n}) for n in (1, 2, 3)]
    with pytest.raises(ProtocolError):
        session.feed(good[0] + bad + good[1] + line(method="event", params={"kind": "held"}) + good[2][:9])
    assert [session.result(n) for n in (1, 2)] == [{"n": 1}, {"n": 2}]
    assert session.events == [{"kind": "held"}]
    session.feed(good[2][9:])
    assert session.result(3) == {"n": 3}


def test_feed_when_several_lines_are_bad_then_the_first_is_told() -> None:
    with pytest.raises(ProtocolError, match="one"):
        Session().feed(b"one\ntwo\n")


def test_feed_when_a_line_never_ends_then_refused_past_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_REPLY_BYTES > MAX_LINE_BYTES
    monkeypatch.setattr("hwtool.session.MAX_REPLY_BYTES", 1000)
    session = Session()
    session.feed(b"x" * 600)
    session.feed(b"x" * 400)
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        session.feed(b"x")
    session.feed(b"its end\n" + line(id=1, result={}))
    assert session.result(1) == {}


def test_feed_when_a_good_line_comes_before_an_endless_one_then_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwtool.session.MAX_REPLY_BYTES", 1000)
    session = Session()
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        session.feed(line(id=1, result={}) + b"x" * 1001)
    assert session.result(1) == {}


@pytest.mark.parametrize(
    ("option", "own", "runtime", "directory"),
    [
        ("/opt/x", "/own", "/run/user/7", "/opt/x"),
        (None, "/own", "/run/user/7", "/own"),
        ("", "/own", "/run/user/7", "/own"),
        (None, "", "/run/user/7", "/run/user/7/hwtool"),
        (None, None, "/run/user/7", "/run/user/7/hwtool"),
        (None, None, "", "/run/hwtool"),
        (None, None, None, "/run/hwtool"),
    ],
)
def test_socket_directory_when_looked_for_then_option_environment_runtime_system(
    monkeypatch: pytest.MonkeyPatch, option: str | None, own: str | None, runtime: str | None, directory: str
) -> None:
    for name, value in (("HWTOOL_SOCKET", own), ("XDG_RUNTIME_DIR", runtime)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert socket_directory(option) == directory


def test_socket_directory_when_the_system_has_one_and_the_user_has_not_then_the_systems_but_for_who_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HWTOOL_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    monkeypatch.setattr("hwtool.session.SYSTEM_DIRECTORY", str(tmp_path / "system"))
    own, systems = str(tmp_path / "user/hwtool"), str(tmp_path / "system")
    assert socket_directory(None) == own
    (tmp_path / "system").mkdir()
    assert (socket_directory(None), socket_directory(None, serves=True)) == (systems, own)
    (tmp_path / "user/hwtool").mkdir(parents=True)
    assert socket_directory(None) == own


def test_socket_path_when_of_a_role_then_named_after_it() -> None:
    assert socket_path("/run/hwtool", "agent") == "/run/hwtool/agent.sock"
    assert socket_path("/run/hwtool", "operator") == "/run/hwtool/operator.sock"


@pytest.mark.parametrize("line", [b'{"id": true, "result": {}}', b'{"method": "event", "params": [1]}'])
def test_feed_when_a_line_only_looks_like_a_reply_then_it_is_none(line: bytes) -> None:
    session = Session()
    with contextlib.suppress(ProtocolError):
        session.feed(line + b"\n")
    assert session.replies == {}
    assert session.events == []


def test_feed_when_an_endless_line_ends_at_last_then_its_rest_is_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwtool.session.MAX_REPLY_BYTES", 64)
    session = Session()
    with pytest.raises(ProtocolError, match="more than 64 bytes"):
        session.feed(b"x" * 100)
    session.feed(b'{"id": 1, "result": {}}\n{"id": 2, "result": {"ok": true}}\n')
    assert session.result(1) is None
    assert session.result(2) == {"ok": True}
    with pytest.raises(ProtocolError, match="more than 64 bytes"):
        session.feed(b'{"id": 3, "result": {"text": "' + b"y" * 64 + b'"}}\n')
