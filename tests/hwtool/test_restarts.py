"""Evidence of a restart: what two words say together, and the three that a chip's own register can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwtool.config import Board
from hwtool.restarts import Restart, cause_word, counter_word, host_word, kind_of, restart_between, uptime_word
from hwtool_contracts.native import parse_contract
from hwtool_contracts.toml_reader import Faults
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import DEFAULTS, I2C, KEY, KEY2, FakeClock, Lab, Play, code_of, reg, toy_board

STAYS: Restart = "same"
RAN_MS = 60_000
S = 1_000_000_000


def up(ms: int, at_s: float, boot: str = "b", bits: int = 32) -> str:
    return uptime_word(ms, 1000, 1000 << bits, round(at_s * S), boot)


@pytest.mark.parametrize(
    ("before", "now", "answer"),
    [
        pytest.param(None, counter_word(1), "silent", id="nothing known before"),
        pytest.param(counter_word(1), None, "silent", id="nothing known now"),
        pytest.param(counter_word(1), counter_word(1), "same", id="the count stands"),
        pytest.param(counter_word(1), counter_word(2), "reset", id="the count went on"),
        pytest.param("a9", "a9", "same", id="the bus's nonce stands"),
        pytest.param("a9", "b7", "reset", id="another nonce"),
        pytest.param("a9", counter_word(0xA9), "silent", id="two kinds"),
        pytest.param(host_word("x"), host_word("y"), "reset", id="the host rebooted"),
        pytest.param(cause_word(False, True), cause_word(False, True), "same", id="no cause stands"),
        pytest.param(cause_word(False, False), cause_word(False, False), "silent", id="it may have been cleared"),
        pytest.param(cause_word(False, True), cause_word(False, False), "silent", id="others write by now"),
        pytest.param(cause_word(False, False), cause_word(False, True), "silent", id="others wrote before"),
        pytest.param(cause_word(False, True), cause_word(True, True), "reset", id="a cause has come"),
        pytest.param(cause_word(False, False), cause_word(True, False), "reset", id="a cause has come, others write"),
        pytest.param(cause_word(True, True), cause_word(True, True), "silent", id="it stood already"),
        pytest.param(cause_word(True, True), cause_word(False, True), "silent", id="it stood, and somebody cleared it"),
        pytest.param(up(RAN_MS, 100), up(RAN_MS + 10_000, 110), "same", id="uptime went on"),
        pytest.param(up(RAN_MS, 100), up(RAN_MS + 9_000, 110), "same", id="rounded down"),
        pytest.param(up(RAN_MS, 100), up(5_000, 110), "reset", id="uptime fell"),
        pytest.param(up(RAN_MS, 100), up(65_000, 200), "reset", id="it fell behind: restarted, and grew beyond"),
        pytest.param(up(1_000, 100), up(11_000, 110), "silent", id="it had hardly run: a restart would hide in it"),
        pytest.param(up(RAN_MS, 100), up(RAN_MS + 1, 10, "c"), "silent", id="another boot of the host, uptime grew"),
        pytest.param(up(RAN_MS, 100), up(1, 10, "c"), "reset", id="another boot of the host, uptime fell"),
        pytest.param(up(RAN_MS, 100, bits=8), up(1, 10, "c", 8), "silent", id="another boot, it may have wrapped"),
        pytest.param(up(RAN_MS, 100, bits=6), up(5_000, 110, bits=6), "silent", id="it may have wrapped"),
        pytest.param(up(RAN_MS, 100), up(RAN_MS + 90_000, 200), "silent", id="a clock that is a tenth slow"),
        pytest.param(up(RAN_MS, 100), up(RAN_MS + 110_000, 200), "silent", id="a clock that is a tenth fast"),
        pytest.param(
            up(RAN_MS, 0), up(RAN_MS + 10_000_000, 10_000), "silent", id="clocks may differ by more than it ran"
        ),
    ],
)
def test_words_when_compared_then_as_the_table(before: str | None, now: str | None, answer: Restart) -> None:
    assert restart_between(before, now) == answer


def test_kinds_when_told_apart_then_a_nonce_is_what_has_no_name() -> None:
    words = [counter_word(1), up(1, 1), cause_word(True, True), host_word("x"), "0f3c", "nonce:1", "line:1"]
    assert [kind_of(w) for w in words] == ["counter", "uptime", "cause", "host", "nonce", "nonce", "nonce"]


PARTS: dict[str, tuple[str, str]] = {
    "counter": (reg("BOOTS", 1, "reset = 0", "ro"), "counter = 'BOOTS'"),
    "uptime": (reg("UP", 1, "reset = 0\nwidth_bits = 16", "ro"), "uptime = 'UP'\nunit_ms = 100"),
    "cause": (
        reg("ST", 1, "reset = 0\nfields = { POR = { bits = 3 }, X = { bits = 0 } }"),
        "cause = 'ST.POR'",
    ),
}
GO = reg("GO", 4, "write = { effect = 'command', verify = 'signal', signals = [{ register = 'N', delta = 1 }] }", "wo")
N = reg("N", 5, "reset = 7", "ro")
R = reg("R", 6, "reset = 0x10")


def board_of(tmp_path: Path, by: str) -> Board:
    part, restart = PARTS[by]
    return toy_board(tmp_path, "[restart]\n" + restart + "\n", part, GO, N, R, head=I2C)


def mute(lab: Lab) -> None:
    """A bus that cannot tell; a chip whose clock is the daemon's, that ran for a while, and whose cause was cleared."""
    bus = lab.bus()
    setattr(bus, "boot_evidence", lambda _: None)  # noqa: B010  # a method put in its place
    bus.clock = lab.clock.monotonic_s
    if "ST" in lab.chip().values:
        lab.chip().values["ST"] = 0
    lab.chip().started_s = lab.clock.monotonic_s() - 100.0


@pytest.mark.parametrize("by", PARTS)
@pytest.mark.parametrize(
    ("happens", "verdict"), [(lambda _: None, "applied"), (Chip.reset, None)], ids=["kept", "reset"]
)
def test_rule_when_the_chips_register_tells_then_e1_is_known(
    play: Play, tmp_path: Path, by: str, happens: Callable[[Chip], None], verdict: str | None
) -> None:
    async def life(lab: Lab) -> None:
        mute(lab)
        lab.fault(FaultKind.REPLY_LOST, offset=4)
        assert code_of(await lab.ask("reg.write", register="toy.GO", value=1, key=KEY)) == "outcome_unknown"
        happens(lab.chip())
        await lab.rules_ran()
        found = await lab.ask("op.get", key=KEY)
        assert (found.verdict, lab.device().unknown == {}) == (verdict, verdict is not None)

    play(life, board_of(tmp_path, by))


@pytest.mark.parametrize("by", PARTS)
def test_generation_when_the_chips_register_tells_of_a_restart_then_it_rises_once(
    play: Play, tmp_path: Path, by: str
) -> None:
    async def life(lab: Lab) -> None:
        mute(lab)
        assert (await lab.ask("reg.write", register="toy.GO", value=1, key=KEY)).ok
        before = lab.device().generation
        lab.clock.advance(50)
        assert (await lab.ask("reg.write", register="toy.GO", value=1, key="key-middle")).ok
        assert lab.device().generation == before
        lab.chip().now_s = lab.clock.monotonic_s()
        lab.chip().reset()
        stale = await lab.ask("reg.write", register="toy.GO", value=1, key=KEY2, generation=before)
        assert (code_of(stale), lab.device().generation) == ("stale", before + 1)
        assert (await lab.ask("reg.write", register="toy.GO", value=1, key=KEY2, generation=before + 1)).ok
        assert lab.device().generation == before + 1

    play(life, board_of(tmp_path, by))


@pytest.mark.parametrize("by", PARTS)
def test_write_when_the_chips_register_tells_of_a_restart_in_the_watch_then_not_called_undone(
    play: Play, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hwtool import carry_out

    real = carry_out._look

    async def life(lab: Lab) -> None:
        mute(lab)

        async def restarting(*arguments: Any) -> Any:
            if not restarted:
                restarted.append(True)
                lab.chip().now_s = lab.clock.monotonic_s()
                lab.chip().reset()
            return await real(*arguments)

        restarted: list[bool] = []
        monkeypatch.setattr(carry_out, "_look", restarting)
        lab.chip().values["R"] = 0x33
        assert code_of(await lab.ask("reg.write", register="toy.R", value=0x55, key=KEY)) == "outcome_unknown"

    play(life, board_of(tmp_path, by))


def test_rule_when_another_chip_was_put_there_then_its_register_settles_nothing(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus]
) -> None:
    who = reg("WHO", 7, "reset = 0x42", "ro")
    identity = "[identity]\nregister = 'WHO'\nequals = 0x42\n"
    part, restart = PARTS["counter"]
    head = I2C
    board = toy_board(tmp_path, f"[restart]\n{restart}\n", identity, part, R, who, head=head)

    async def first(lab: Lab) -> None:
        lab.chip().values["R"] = 0x33
        lab.clock.held = True
        lab.fault(FaultKind.REPLY_LOST, offset=6)
        assert code_of(await lab.ask("reg.write", register="toy.R", value=0x55, key=KEY)) == "outcome_unknown"
        lab.chip().values |= {"BOOTS": 9, "WHO": 0x17}  # another one, which has started more often

    async def second(lab: Lab) -> None:
        row = await lab.row()
        assert (row.state, row.verdict) == ("UNKNOWN", None)

    play(first, board)
    play(second, board)


def test_uptime_when_the_daemon_is_restarted_too_then_it_is_compared_with_what_is_on_record(
    play: Play, tmp_path: Path, kept_buses: dict[str, SimBus]
) -> None:
    clock = FakeClock()

    async def first(lab: Lab) -> None:
        mute(lab)
        assert (await lab.ask("reg.write", register="toy.GO", value=1, key=KEY)).ok

    async def second(lab: Lab) -> None:
        assert lab.device().generation == 1
        lab.chip().now_s = lab.clock.monotonic_s()
        lab.chip().reset()

    async def third(lab: Lab) -> None:
        assert lab.device().generation == 2

    for life in (first, second, third):
        play(life, board_of(tmp_path, "uptime"), clock=clock)
        clock.advance(30)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("counter = 'BOOTS'\ncause = 'BOOTS'", "one of counter, uptime and cause"),
        ("", "one of counter, uptime and cause"),
        ("counter = 'BOOTS'\nunit_ms = 5", "speaks of an uptime"),
        ("counter = 'NONE'", "NONE"),
        ("counter = 'SEL'", "a write would look like a restart"),
        ("uptime = 'SEL'", "a write would look like a restart"),
        ("counter = 'POPS'", "POPS"),
        ("counter = 'BANKED'", "must be read at any time"),
        ("counter = 'SECRET'", "would keep a confidential value on record"),
        ("uptime = 'BOOTS'\nunit_ms = 0", "unit_ms"),
        ("counter = 'BOOTS'\nsurprise = 1", "surprise"),
    ],
)
def test_restart_when_it_cannot_be_then_one_fault_names_it(table: str, fault: str) -> None:
    parts = [
        *(reg("BOOTS", 1, "", "ro"), reg("POPS", 2, "read = { effects = ['pop'], provenance = 'generated' }", "ro")),
        *(reg("SEL", 3), reg("BANKED", 4, "bank = 'B'", "ro"), reg("SECRET", 5, "confidential = true", "ro")),
        "[banks.B]\nselect = [{ register = 'SEL', value = 1, mask = 1 }]\n",
    ]
    with pytest.raises(Faults) as raised:
        parse_contract(I2C + DEFAULTS + "".join(parts) + "[restart]\n" + table, "toy.toml")
    assert fault in str(raised.value)
