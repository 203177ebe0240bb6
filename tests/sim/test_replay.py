"""A replay answers what was recorded, in its order, and nothing else; a damaged recording is one error with a line."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import (
    Ambiguous,
    Answer,
    Capabilities,
    Confirmed,
    Line,
    RegisterRead,
    RegisterWrite,
    Rejected,
    Sent,
    Transfer,
)
from hwtool_sim.board import bus_of
from hwtool_sim.reached import Reached
from hwtool_sim.recorded import BadRecording
from hwtool_sim.recording import recorder
from hwtool_sim.replay import Diverged, Replay
from tests.contracts.test_judge import reg
from tests.hwtool.test_planted_secrets import BYTES
from tests.sim.test_new_spaces import contract_of
from tests.sim.test_reached import I2C, LINE
from tests.sim.test_recorded_secrets import BYTEWISE
from tests.sim.test_recording import Calls

AT = 0x20
TOY = contract_of(
    I2C,
    reg("R", 0),
    reg("CLEAN", 1),
    reg("OTHER", 2),
    "[registers.POPS]\noffset = 3\naccess = 'ro'\nread = { effects = ['pop'], provenance = 'generated' }",
)
POLL, OTHER, POP = (RegisterRead(AT, Space.MEMORY, at, 1) for at in (1, 2, 3))
Script = list[tuple[Transfer, Answer]]


def write(value: int, at: int = 0) -> RegisterWrite:
    return RegisterWrite(AT, Space.MEMORY, at, bytes([value]))


def came(value: int) -> Confirmed:
    return Confirmed(bytes([value]))


def recorded(folder: Path, script: Script, reached: Reached | None = None) -> Path:
    """A recording of these transfers with these answers."""
    path = folder / "r.jsonl"
    made = recorder(Calls([answer for _, answer in script]), path, {}, reached or Reached([(AT, TOY)]))
    for transfer, _ in script:
        made.perform(transfer)
    made.close()
    return path


EVERY: Script = [
    (write(1), Confirmed()),
    (POLL, came(7)),
    (POP, came(9)),
    (write(2), Rejected("busy", "address-nack")),
    (write(2), Ambiguous(Sent.DATA, "half")),
    (POP, Ambiguous(Sent.REPLY, "nothing came")),
]  # fmt: skip


def test_replay_when_asked_the_same_then_the_same_answers_and_nothing_is_left(tmp_path: Path) -> None:
    replay = Replay(recorded(tmp_path, EVERY))
    assert [replay.perform(transfer) for transfer, _ in EVERY] == [answer for _, answer in EVERY]
    replay.finish()
    replay.close()
    assert replay.divergence is None


def without(place: int) -> Callable[[list[Transfer]], list[Transfer]]:
    return lambda asked: asked[:place] + asked[place + 1 :]


SEEDED: dict[str, tuple[Callable[[list[Transfer]], list[Transfer]], int]] = {
    "another value": (lambda asked: [write(3), *asked[1:]], 2),
    "another offset": (lambda asked: [write(1, 2), *asked[1:]], 2),
    "another order": (lambda asked: [asked[0], asked[2], asked[1], *asked[3:]], 3),
    "an effect repeated": (lambda asked: [asked[0], *asked], 3),
    "an effectful read repeated": (lambda asked: [*asked[:3], *asked[2:]], 5),
    "one transfer more": (lambda asked: [*asked, write(5)], 8),
    "a write left out": (without(0), 2),
    "a clean read left out": (without(1), 3),
    "the last one left out": (without(5), 7),
    "all left out": (lambda _: [], 2),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "line"), SEEDED.values(), ids=list(SEEDED))
def test_replay_when_something_differs_then_told_with_its_line_and_nothing_more_is_answered(
    tmp_path: Path, changed: Callable[[list[Transfer]], list[Transfer]], line: int
) -> None:
    replay = Replay(recorded(tmp_path, EVERY))
    asked = changed([transfer for transfer, _ in EVERY])
    answers = [replay.perform(transfer) for transfer in asked]
    with pytest.raises(Diverged, match=rf"r\.jsonl, line {line}: recorded was .*; asked was "):
        replay.finish()
    refused = Rejected(f"not as recorded: the replay has diverged at line {line}", "not-sent")
    whole = asked[: len(EVERY)] == [t for t, _ in EVERY[: len(asked)]]
    good = next((n for n, answer in enumerate(answers) if answer == refused), len(answers))
    assert answers[good:] == [refused] * (len(answers) - good)
    assert good == (min(len(asked), len(EVERY)) if whole else line - 2)


def test_divergence_when_it_comes_then_the_first_is_kept_and_told_once_without_what_was_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    replay = Replay(recorded(tmp_path, EVERY))
    asked = RegisterWrite(AT, Space.MEMORY, 0, BYTES)
    answers = [replay.perform(asked), replay.perform(write(1)), replay.perform(write(1))]
    assert answers == [Rejected("not as recorded: the replay has diverged at line 2", "not-sent")] * 3
    assert replay.divergence is not None
    assert replay.divergence.line == 2
    replay.close()
    path = tmp_path / "r.jsonl"
    told = f"the replay of {path} has diverged at line 2; nothing more is answered"
    assert [record.getMessage() for record in caplog.records] == [told]
    with pytest.raises(Diverged, match=BYTES.hex()):
        replay.finish()


def test_replay_when_closed_too_early_then_told_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replay = Replay(recorded(tmp_path, EVERY))
    replay.perform(write(1))
    replay.close()
    assert [r.getMessage() for r in caplog.records] == [
        f"the replay of {replay.path} ends before line 3: more was recorded than asked for"
    ]


POLLED: Script = [(write(1), Confirmed()), *((POLL, came(n)) for n in (0, 0, 1)), (write(2), Confirmed())]


@pytest.mark.parametrize(
    ("times", "brought"),
    [(1, [0]), (2, [0, 0]), (3, [0, 0, 1]), (5, [0, 0, 1, 1, 1])],
)
def test_clean_read_when_polled_more_or_fewer_times_then_answered_in_order_and_the_last_stays(
    tmp_path: Path, times: int, brought: list[int]
) -> None:
    replay = Replay(recorded(tmp_path, POLLED))
    assert replay.perform(write(1)) == Confirmed()
    assert [replay.perform(POLL) for _ in range(times)] == [came(n) for n in brought]
    assert replay.perform(write(2)) == Confirmed()
    replay.finish()


@pytest.mark.parametrize("times", [1, 3, 4])
def test_clean_read_when_it_is_the_end_then_its_run_may_be_cut_or_go_on(tmp_path: Path, times: int) -> None:
    replay = Replay(recorded(tmp_path, POLLED[:-1]))
    asked: list[Transfer] = [write(1), *[POLL] * times]
    for transfer in asked:
        assert isinstance(replay.perform(transfer), Confirmed)
    replay.finish()


NOT_A_RUN: dict[str, tuple[Script, list[Transfer], int]] = {
    "pops, fewer": ([(POP, came(1)), (POP, came(2)), (write(1), Confirmed())], [POP, write(1)], 3),
    "pops, more": ([(POP, came(1)), (write(1), Confirmed())], [POP, POP], 3),
    "writes, fewer": ([(write(1), Confirmed())] * 2, [write(1)], 3),
    "writes, more": ([(write(1), Confirmed())], [write(1), write(1)], 3),
    "another clean read": ([(POLL, came(1)), (write(1), Confirmed())], [POLL, OTHER], 3),
    "an older clean read": ([(POLL, came(1)), (OTHER, came(1)), (write(1), Confirmed())], [POLL, OTHER, POLL], 4),
    "a clean read none of whose run was asked": ([(POLL, came(1)), (write(1), Confirmed())], [write(1)], 2),
    "a clean read behind an effect": ([(POLL, came(1)), (write(1), Confirmed())], [POLL, write(1), POLL], 4),
}


@pytest.mark.parametrize(("script", "asked", "line"), NOT_A_RUN.values(), ids=list(NOT_A_RUN))
def test_replay_when_it_is_no_run_of_a_clean_read_then_strict(
    tmp_path: Path, script: Script, asked: list[Transfer], line: int
) -> None:
    replay = Replay(recorded(tmp_path, script))
    for transfer in asked:
        replay.perform(transfer)
    with pytest.raises(Diverged, match=rf"line {line}: "):
        replay.finish()


def test_redacted_when_replayed_then_its_length_counts_and_zeros_come(tmp_path: Path) -> None:
    secret = RegisterWrite(AT, Space.MEMORY, 4, BYTES)
    read = RegisterRead(AT, Space.MEMORY, 4, 4)
    script: Script = [(secret, Ambiguous(Sent.DATA, f"of {BYTES!r}")), (read, Confirmed(BYTES))]
    path = recorded(tmp_path, script, Reached([(AT, BYTEWISE)]))
    replay = Replay(path)
    other = RegisterWrite(AT, Space.MEMORY, 4, b"abcd")
    assert replay.perform(other) == Ambiguous(Sent.DATA, "left out of the recording")
    assert replay.perform(read) == Confirmed(bytes(4))
    replay.finish()
    for wrong in (b"abc", b"abcde", b"abcdefgh"):
        replay = Replay(path)
        replay.perform(RegisterWrite(AT, Space.MEMORY, 4, wrong))
        assert replay.divergence is not None


def test_redacted_line_when_replayed_then_its_words_and_its_length_count(tmp_path: Path) -> None:
    path = recorded(tmp_path, [(Line("KEY 1234", False), Confirmed())], Reached([(AT, LINE)]))
    assert "1234" not in path.read_text()
    for text, fits in {"KEY 9999": True, "KEY 99999": False, "KEY 12341234": False, "VOLT 999": False}.items():
        replay = Replay(path)
        assert (replay.perform(Line(text, False)) == Confirmed()) is fits


class Moody(Calls):
    """A bus whose other calls give something else each time."""

    def __init__(self) -> None:
        super().__init__([Confirmed()] * 9)
        self.gone = True
        self.nonce = 0

    def open(self) -> None:
        gone, self.gone = self.gone, False
        if gone:
            raise OSError(errno.ENODEV, "away")

    def alive(self) -> bool:
        return self.nonce != 1

    def boot_evidence(self, address: int) -> str | None:
        self.nonce += 1
        return f"{self.nonce}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(frozenset({Space.MEMORY}), longest_read_bytes=32)


def test_other_calls_when_replayed_then_as_between_the_same_two_transfers(tmp_path: Path) -> None:
    made: Any = recorder(Moody(), tmp_path / "r", {}, Reached([(AT, TOY)]))
    with pytest.raises(OSError, match="away"):
        made.open()
    made.open()
    assert (made.boot_evidence(AT), made.alive()) == ("1", False)
    made.perform(write(1))
    assert [made.boot_evidence(AT) for _ in range(3)] == ["2", "3", "4"]
    made.perform(write(2))
    assert (made.boot_evidence(AT), made.alive()) == ("5", True)
    made.close()

    replay = Replay(tmp_path / "r")
    assert replay.capabilities == Capabilities(frozenset({Space.MEMORY}), longest_read_bytes=32)
    with pytest.raises(OSError, match="away") as raised:
        replay.open()
    assert raised.value.errno == errno.ENODEV
    replay.open()
    replay.open()  # what came last stays
    assert (replay.boot_evidence(AT), replay.boot_evidence(AT), replay.alive()) == ("1", "1", False)
    assert replay.boot_evidence(AT + 1) is None
    replay.perform(write(1))
    assert replay.boot_evidence(AT) == "2"  # fewer than recorded
    replay.perform(write(2))
    assert (replay.boot_evidence(AT), replay.boot_evidence(AT), replay.alive()) == ("5", "5", True)
    replay.quiesce(1e9)
    replay.finish()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def spoilt(lines: list[str], at: int, **members: Any) -> str:
    """A recording with some members of one line changed; None: taken out."""
    entry = {key: value for key, value in (json.loads(lines[at]) | members).items() if value is not None}
    return "".join([*lines[:at], json.dumps(entry) + "\n", *lines[at + 1 :]])


DAMAGE: dict[str, tuple[Callable[[list[str]], str], str]] = {
    "nothing in it": (lambda _: "", "line 1: no recording"),
    "another file": (lambda _: '{"name": "x"}\n', "line 1: no recording: it does not begin with a head of format"),
    "no JSON": (lambda _: "name = 'x'\n", "line 1: not JSON"),
    "another version": (lambda x: spoilt(x, 0, version=2), "line 1: version 2 of the format; this .* version 1"),
    "unknown capabilities": (lambda x: spoilt(x, 0, capabilities={"spaces": [], "wings": 2}), "line 1: TypeError"),
    "the last line torn": (lambda x: "".join(x)[:-3], "line 8: the line is torn"),
    "an entry torn": (lambda x: "".join(x[:3]) + x[3][:20], "line 4: the line is torn"),
    "the end gone": (lambda x: "".join(x[:-1]), "line 7: it has no end behind this: the recording was cut short"),
    "the end of another": (lambda x: spoilt(x, 7, end=5), "line 8: it ends after 5 entries, and has 6"),
    "something behind the end": (lambda x: "".join([*x, x[1]]), "line 8: something follows the end"),
    "an entry gone": (lambda x: "".join([*x[:2], *x[3:]]), "line 7: it ends after 6 entries, and has 5"),
    "cut short by itself": (lambda x: "".join(x[:3]) + '{"cut": "full"}\n', "line 4: .* was cut short: full"),
    "garbage": (lambda x: "".join([*x[:2], "\x00\x01\n", *x[3:]]), "line 3: not JSON"),
    "no object": (lambda x: "".join([*x[:2], "[1]\n", *x[3:]]), "line 3: not an object"),
    "no transfer": (lambda x: spoilt(x, 2, transfer=None), "line 3: KeyError: 'call'"),
    "an unknown transfer": (lambda x: spoilt(x, 2, transfer={"do": "dance"}), "line 3: no transfer is called 'dance'"),
    "an unknown call": (lambda x: spoilt(x, 2, transfer=None, call="dance"), "line 3: no call is called 'dance'"),
    "an unknown answer": (lambda x: spoilt(x, 2, answer={"answer": "maybe"}), "line 3: no answer is called 'maybe'"),
    "no hex": (lambda x: spoilt(x, 2, answer={"answer": "confirmed", "data": "zz"}), "line 3: non-hexadecimal"),
}  # fmt: skip


@pytest.mark.parametrize(("damaged", "told"), DAMAGE.values(), ids=list(DAMAGE))
def test_recording_when_damaged_then_one_error_with_the_line(
    tmp_path: Path, damaged: Callable[[list[str]], str], told: str
) -> None:
    path = recorded(tmp_path, EVERY)
    path.write_text(damaged(lines_of(path)))
    with pytest.raises(BadRecording, match=rf"^the recording {path}, {told}"):
        Replay(path)


def test_recording_when_it_is_not_there_then_said(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match=r"cannot be read: .*No such file"):
        Replay(tmp_path / "none")


def test_cut_recording_when_ended_by_hand_then_replayed_up_to_there(tmp_path: Path) -> None:
    path = recorded(tmp_path, EVERY)
    path.write_text("".join(lines_of(path)[:3]) + '{"end": 2}\n')
    replay = Replay(path)
    assert [replay.perform(t) for t, _ in EVERY[:2]] == [a for _, a in EVERY[:2]]
    replay.finish()


def test_chips_when_recorded_and_replayed_then_the_same_bytes(tmp_path: Path) -> None:
    made = recorder(bus_of({AT: TOY}), tmp_path / "r", {}, Reached([(AT, TOY)]))
    asked: list[Transfer] = [
        write(5),
        RegisterRead(AT, Space.MEMORY, 0, 1),
        write(6, 2),
        OTHER,
        RegisterRead(9, Space.MEMORY, 0, 1),
    ]
    answers = [made.perform(transfer) for transfer in asked]
    made.close()
    replay = Replay(tmp_path / "r")
    assert [replay.perform(transfer) for transfer in asked] == answers
    assert answers[1] == came(5)
    replay.finish()
