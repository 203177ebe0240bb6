"""Mistakes that people make in a contract, a board or a policy: lint says where, and why, before anything is sent.

Each is one change to docs/examples, which is otherwise as it should be. What is said is what `hwtool board lint` says:
the faults of a board that does not load, or its warnings, those of its contracts included (`hwtool check` has these,
too: `loads_well`). The last column is what the line must hold beside the place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hwtool.board_lint import linted
from hwtool.config import load_board
from hwtool_contracts.toml_reader import Faults

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples"
CHIP, BOARD = "logger.toml", "bench.toml"
SAID: Final = 'provenance = "asserted", source = "this file"'
POLICY: Final = "# the first rule that matches decides\n"  # a rule is put before the others here
DEFAULT_WRITE: Final = f'write = {{ effect = "store", {SAID} }}'

RXDATA: Final = """[registers.RXDATA]
offset = 0x19
access = "ro"
read = { effects = ["none"] }

[registers.TAKEN]"""


class Mistake(NamedTuple):
    """One change to one file, and the line that must come of it."""

    file: str
    right: str
    wrong: str
    place: str
    words: str


def first_rule(text: str) -> tuple[str, str, str]:
    """A policy rule before all others."""
    return BOARD, POLICY, f"{POLICY}[[policy]]\nwho = '*'\n{text}\n\n"


def behind_a_mux(device: str) -> tuple[str, str, str]:
    """A multiplexer, and a thermometer that its board has more to say of."""
    mux = "[devices.mux]\ncontract = 'pca9546'\nbus = 'wires'\naddress = 0x70\nsafe_state = []\n"
    return BOARD, POLICY, f"{mux}[devices.far]\ncontract = 'tmp102'\nbus = 'wires'\nmux = 'mux'\n{device}\n{POLICY}"


def last_rule(text: str) -> tuple[str, str, str]:
    """A policy rule behind all others."""
    return BOARD, "rate_per_min = 6000\n", f"rate_per_min = 6000\n\n[[policy]]\nwho = '*'\n{text}\n"


def of_register(name: str, right: str, wrong: str) -> tuple[str, str, str]:
    """A change to the text of one register."""
    text = (EXAMPLES / CHIP).read_text(encoding="utf-8")
    start = text.index(f"[registers.{name}]\n")
    whole = text[start : text.find("\n\n", start)]
    assert right in whole, whole
    return CHIP, whole, whole.replace(right, wrong, 1)


MISTAKES: Final = {
    # --- a contract: what reading does
    "a FIFO is declared none": Mistake(
        *of_register("FIFO", 'effects = ["pop"]', 'effects = ["none"]'),
        "FIFO",
        "harmless, and it acts: read none, with level, when_empty, max_burst",
    ),
    "a data port is declared none, on no source": Mistake(
        *of_register("TAKEN", "[registers.TAKEN]", RXDATA),
        "RXDATA",
        "a name of a data port",
    ),
    "a register is declared none, and its text says that reading clears it": Mistake(
        *of_register("TAKEN", "modulo 256.", "cleared on read."), "TAKEN", "cleared on read"
    ),
    "a FIFO is written as if it stored": Mistake(
        *of_register("FIFO", 'access = "ro"', f'access = "rw"\n{DEFAULT_WRITE}'), "FIFO", "a FIFO that stores"
    ),
    "a clean register shares its bytes with a FIFO": Mistake(
        *of_register("LEVEL", "offset = 0x02", "offset = 0x02\nwidth_bits = 16"), "LEVEL", "reaches FIFO too"
    ),
    "the level of a FIFO is one that reading clears": Mistake(
        *of_register("LEVEL", "volatile = true", f'volatile = true\nread = {{ effects = ["clear"], {SAID} }}'),
        "registers.FIFO.read.level",
        "its read has side effects",
    ),
    "the level of a FIFO is a flag": Mistake(
        *of_register("FIFO", 'level = "LEVEL"', 'level = "STATUS.FULL"'),
        "FIFO",
        "a level that does not count: STATUS.FULL counts to 1",
    ),
    "two halves of one moment, read in the wrong order": Mistake(
        CHIP, '["TIME_LOW", "TIME_HIGH"]', '["TIME_HIGH", "TIME_LOW"]', "TIME", "TIME_HIGH before TIME_LOW"
    ),
    "two halves of one moment, without the one that freezes": Mistake(
        CHIP, '["TIME_LOW", "TIME_HIGH"]', '["TAKEN", "TIME_HIGH"]', "TIME", "TIME_HIGH before TIME_LOW"
    ),
    "a transfer goes through a FIFO": Mistake(
        CHIP,
        'members = ["TIME_LOW", "TIME_HIGH"]\ntransfer = "each"',
        'members = ["LEVEL", "FIFO", "FLAGS"]\ntransfer = "one"',
        "TIME",
        "never gets to what is behind it",
    ),
    # --- a contract: what writing does
    "flags that ones clear are declared store": Mistake(
        *of_register("FLAGS", "one_to_clear", "store"), "FLAGS.OVERRUN", "a store against its text"
    ),
    "a serial number that is burnt once, and nobody is asked": Mistake(
        *of_register(
            "SERIAL",
            'persistence = "nonvolatile"\nwrite = { effect = "write_once", approval = "required", irreversible = true',
            'write = { effect = "write_once"',
        ),
        "SERIAL",
        "one-time programmable”, and has neither approval",
    ),
    "a memory that wears out, and nobody is asked": Mistake(
        CHIP,
        'access = "rw"\npersistence = "nonvolatile"\nread',
        'access = "rw"\npersistence = "until_reset"\nread',
        "NOTES",
        "neither persistence = nonvolatile nor approval",
    ),
    "a memory is looked at before its write cycle is over": Mistake(
        CHIP,
        "window_ms = 20, provenance",
        "window_ms = 4, provenance",
        "NOTES",
        "window_ms 4, and a write keeps it busy",
    ),
    "a register is looked at while it is still left alone": Mistake(
        *of_register("TAKE", "window_ms = 20", "window_ms = 2"), "TAKE", "window_ms 2, and it is left alone for 5 ms"
    ),
    "a value is named, and its limits refuse it": Mistake(
        *of_register("CALIBRATION", "limits = ", "values = { off = 0x00, mid = 0x80 }, limits = "),
        "CALIBRATION",
        "off = 0x0",
    ),
    "limits and mask leave no value": Mistake(
        *of_register("CALIBRATION", "limits = ", "mask = 0x3f, limits = "), "CALIBRATION", "nothing may be written"
    ),
    "a write mask without the bits of a field": Mistake(
        *of_register("CONTROL", "reset = 0x00", "reset = 0x00\nwrite = { effect = 'store', mask = 0x81 }"),
        "CONTROL.RATE",
        "outside the register's write mask 0x81",
    ),
    "a verification whose mask has none of the bits that are written": Mistake(
        *of_register("ALARM_LOW", "mask = 0xff }", "mask = 0x0f }, mask = 0xf0"), "ALARM_LOW", "verified by nothing"
    ),
    "a verification by a register that reading empties": Mistake(
        *of_register("ALARM_LOW", "mask = 0xff", 'register = "FIFO"'),
        "registers.ALARM_LOW.write.verify",
        "its read has side effects",
    ),
    "a verification whose mask is wider than what it looks at": Mistake(
        *of_register("ALARM_LOW", "mask = 0xff", 'register = "TAKEN", mask = 0x100'), "ALARM_LOW", "is wider than TAKEN"
    ),
    "a consequence that is no change": Mistake(
        *of_register("TAKE", "delta = 1", "delta = 256"), "TAKE", "TAKEN by 256: that is no change"
    ),
    "a consequence that does not fit where it should show": Mistake(
        *of_register("TAKE", '"TAKEN", delta = 1', '"STATUS.READY", equals = 2'), "TAKE", "does not fit its 1 bits"
    ),
    "a consequence at a register that is not there": Mistake(
        *of_register("TAKE", '"TAKEN"', '"TOOK"'), "registers.TAKE.write.signals", "no such register"
    ),
    "a consequence that reading the FIFO would show": Mistake(
        *of_register("TAKE", '"TAKEN"', '"FIFO"'), "registers.TAKE.write.signals", "its read has side effects"
    ),
    "a gate that nothing opens": Mistake(
        *of_register("ARM", 'access = "rw"\nreset = 0x01', 'access = "ro"\nreset = 0x00'),
        "ALARM_HIGH",
        "a gate that nothing opens",
    ),
    # --- a contract: where registers stand, and what speaks of several
    "a register is half in another": Mistake(
        *of_register("SERIAL", "offset = 0x10", "offset = 0x11"), "SERIAL", "it ends at 0x12, in PASSWORD"
    ),
    "two registers in one place, of which one stores and one is a command": Mistake(
        *of_register("GUARD", "offset = 0x0e", "offset = 0x06"), "GUARD", "by TAKE, in the same bytes, command"
    ),
    "a field is outside its register": Mistake(
        *of_register("CONTROL", "RESTART = { bits = 7", "RESTART = { bits = 8"),
        "CONTROL.fields.RESTART",
        "not a bit range",
    ),
    "two fields share a bit": Mistake(
        *of_register("CONTROL", 'RATE = { bits = "3:1"', 'RATE = { bits = "3:0"'),
        "CONTROL.fields.RATE",
        "overlaps another",
    ),
    "a page is selected by what hardware changes": Mistake(
        CHIP,
        'select = [{ register = "PAGE", value = 1 }]',
        'select = [{ register = "STATUS", value = 1 }]',
        "banks.RIGHT",
        "cannot select a bank",
    ),
    "a sequence waits for what reading takes": Mistake(
        CHIP,
        'register = "STATUS", equals = 1, mask = 1',
        'register = "FIFO", equals = 1',
        "SAMPLE step 1",
        "whose read is pop",
    ),
    "a sequence writes what may not be written": Mistake(
        CHIP,
        'register = "TAKE", value = 1',
        'register = "TAKE", value = 2',
        "SAMPLE step 2",
        "not a value that may be written",
    ),
    "a sequence takes a clean register under a key": Mistake(
        CHIP,
        '    { do = "read_effectful", register = "FIFO" },',
        '    { do = "read_effectful", register = "FIFO" },\n    { do = "read_effectful", register = "TAKEN" },',
        "SAMPLE step 4",
        "a clean read",
    ),
    "a calibration is unlocked, and nothing locks it again": Mistake(
        CHIP,
        '    { do = "write", register = "GUARD", value = 1 },\n]\nrelock = [{ register = "GUARD", value = 1 }]',
        "]",
        "CALIBRATE",
        "KEY unlocks CALIBRATION, and neither a step nor relock",
    ),
    "a calibration is unlocked by a sequence that is not there": Mistake(
        CHIP, 'unlock = "CALIBRATE"', 'unlock = "CALIBRATION"', "registers.CALIBRATION.write.unlock", "no such sequence"
    ),
    "a relock that burns something": Mistake(
        CHIP,
        'relock = [{ register = "GUARD", value = 1 }]',
        'relock = [{ register = "SERIAL", value = 1 }]',
        "sequences.CALIBRATE.relock[0].register",
        "SERIAL",
    ),
    "an identity that no such chip has": Mistake(
        CHIP, "equals = 0x7d", "equals = 0x7e", "ID", "it is 0x7d from reset on and nobody writes it"
    ),
    "an identity outside its own mask": Mistake(
        CHIP, "equals = 0x7d", "equals = 0x7d\nmask = 0x0f", "ID", "has bits outside its mask 0xf"
    ),
    "an assumption that does not hold at power-on": Mistake(
        CHIP,
        "[identity]",
        "[[assume]]\nregister = 'ARM'\nfield = 'OPEN'\nvalue = 0\nfor = 'limits'\n\n[identity]",
        "ARM.OPEN",
        "it is 0x1 from reset on",
    ),
    # --- a board
    "an identity that is no number": Mistake(
        BOARD, 'identity = "0x7d"', 'identity = "SN-7"', "devices.logger", "not compared with ID"
    ),
    "an identity of another kind": Mistake(
        BOARD, 'identity = "0x7d"', 'identity = "0x7e"', "devices.logger", "ID of every logger is 0x7d"
    ),
    "an address that the chip has not": Mistake(
        BOARD, "0x30", "0x33", "devices.logger.address", "logger has no such address"
    ),
    "an address of eight bits": Mistake(BOARD, "0x48", "0x90", "devices.air.address", "probably 0x48"),
    "two devices at one address": Mistake(
        BOARD, "address = 0x48", "address = 0x30", "devices.air.address", "devices.logger"
    ),
    "an address behind a multiplexer that another device has before it": Mistake(
        *behind_a_mux("address = 0x48\nchannel = 1"), "devices.far.address", "devices.air may answer there too"
    ),
    "the address of the multiplexer behind it": Mistake(
        *behind_a_mux("address = 0x70\nchannel = 1"), "devices.far.address", "devices.mux may answer there too"
    ),
    "a channel that the multiplexer has not": Mistake(
        *behind_a_mux("address = 0x49\nchannel = 4"), "devices.far.channel", "pca9546 has none of this number"
    ),
    "a channel without a multiplexer": Mistake(
        BOARD, "address = 0x48", "address = 0x48\nchannel = 1", "devices.air.channel", "mux and channel go together"
    ),
    "a safe state that takes from a FIFO": Mistake(
        BOARD, '"GUARD", value = 1', '"FIFO", value = 1', "devices.logger.safe_state[1].register", "read_only"
    ),
    "a safe state that wears something out": Mistake(
        BOARD, '"GUARD", value = 1', '"SERIAL", value = 1', "devices.logger.safe_state[1].register", "SERIAL"
    ),
    "a safe state behind a lock": Mistake(
        BOARD, '"GUARD", value = 1', '"CALIBRATION", value = 0x80', "devices.logger.safe_state[1].register", "CALIBRATE"
    ),
    "a safe state with a value that the contract refuses": Mistake(
        BOARD,
        '"GUARD", value = 1',
        '"ALARM_LOW", value = 0xff',
        "devices.logger.safe_state[1].register",
        "out_of_limits",
    ),
    "no safe state": Mistake(
        BOARD, 'safe_state = [{ register = "TLOW", value = 0x4b00 }]', "", "devices.air", "device.safe_state is refused"
    ),
    "a bus that stops listening too soon": Mistake(
        BOARD, "reply_lifetime_ms = 150", "reply_lifetime_ms = 40", "buses.wires", "below response_ms 50"
    ),
    "a transfer that is given up before it may be answered": Mistake(
        BOARD, "response_ms = 50", "response_ms = 50\ntransfer_limit_ms = 40", "buses.wires.transfer_limit_ms", "below"
    ),
    "a sole master beside another one": Mistake(
        *of_register("CONTROL", 'access = "rw"', 'access = "rw"\nowner = "shared"'),
        "devices.logger",
        "CONTROL: owner shared",
    ),
    "a bus that repeats what must happen once": Mistake(
        BOARD, "sole_master = true", "sole_master = true\nmay_repeat = true", "devices.logger", "may_repeat"
    ),
    "a budget for what does not wear out": Mistake(
        BOARD,
        "address = 0x30",
        "address = 0x30\nwrites_per_day = { CONTROL = 5 }",
        "devices.logger",
        "it needs no budget",
    ),
    "whoever asks approves, on hardware": Mistake(
        BOARD, '"separate-user"', '"self"', "approval_mode", "self on real hardware"
    ),
    "an adapter by a number that the next start may give to another": Mistake(
        BOARD, 'adapter = "an adapter of this host"', 'path = "/dev/i2c-1"', "buses.wires.path", "the next start"
    ),
    # --- a policy
    "a rule for a device that is not there": Mistake(
        *first_rule("device = 'loger'\nwrite = 'no'"), "policy[0].device", "no device of the board"
    ),
    "a rule for a register that is not there": Mistake(
        *first_rule("device = 'logger'\nregister = 'CALIBRATON'\nwrite = 'no'"), "policy[0].register", "no register"
    ),
    "a rule for a group that is not there": Mistake(
        BOARD,
        POLICY,
        f"{POLICY}[[policy]]\nwho = 'group:no-such-group-here'\nwrite = 'no'\n\n",
        "policy[0].who",
        "no such group",
    ),
    "a rule that forbids, behind one that lets": Mistake(
        *last_rule("device = 'logger'\nregister = 'CALIBRATION'\nwrite = 'no'"),
        "policy[3]",
        "never asked: an earlier rule",
    ),
    "a rule that is never asked, since several before it are": Mistake(
        *last_rule("register = 'ALARM_*'\nwrite = 'no'"), "policy[3]", "never asked: an earlier rule"
    ),
    "a rule that says nothing": Mistake(*first_rule("device = 'air'"), "policy[0]", "says nothing"),
    "a rule that forbids to write what nobody can write": Mistake(
        *first_rule("device = 'logger'\nregister = 'TAKEN'\nwrite = 'no'"),
        "policy[0]",
        "logger.TAKEN, which cannot be written",
    ),
    "a rule that forbids a read by the wrong word": Mistake(
        *first_rule("device = 'logger'\nregister = 'FIFO'\nread = 'no'"), "policy[0]", "effectful_read is the word"
    ),
    "a rule that asks for what is never asked": Mistake(
        *first_rule("device = 'logger'\nregister = 'TAKEN'\neffectful_read = 'approval'"),
        "policy[0]",
        "read is the word",
    ),
    "a rule that is thought to take an approval away": Mistake(
        *first_rule("device = 'logger'\nregister = 'SERIAL'\nwrite = 'yes'"),
        "policy[0]",
        "takes no approval away: SERIAL",
    ),
    "limits that are wider than those of the contract": Mistake(
        BOARD,
        "limits = { max = 200 }",
        "limits = { max = 250 }",
        "policy[1]",
        "narrow nothing: the contract of logger.ALARM_LOW",
    ),
    "limits that leave nothing": Mistake(
        *first_rule("device = 'logger'\nregister = 'CALIBRATION'\nlimits = { max = 0x20 }"),
        "policy[0]",
        "leave nothing of logger.CALIBRATION",
    ),
    "limits upside down": Mistake(
        BOARD, "limits = { max = 200 }", "limits = { min = 201, max = 200 }", "policy[1].limits.min", "above max"
    ),
    "limits in a unit that nothing there has": Mistake(
        BOARD,
        "limits = { max = 200 }",
        "limits = { max = 200, unit = 'V' }",
        "policy[1].limits.unit",
        "has this unit",
    ),
}
LINTS: Final = sorted((Path(__file__).parents[2] / "contracts" / "hwtool_contracts").glob("lint_*.py"))
ONLY_MODELS: Final = "was checked on no real part"  # true of the example, and no mistake


def board_lint(directory: Path, mistake: Mistake | None) -> list[str]:
    """What is said of the example with a mistake in it, or of the example."""
    for name in (CHIP, BOARD):
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        if mistake is not None and mistake.file == name:
            assert text.count(mistake.right) == 1, mistake.right
            text = text.replace(mistake.right, mistake.wrong)
        (directory / name).write_text(text, encoding="utf-8")
    try:
        told = linted(load_board(directory / BOARD))["warnings"]
    except Faults as found:
        return [str(fault) for fault in found.faults]
    return [warning for warning in told if ONLY_MODELS not in warning]


def test_example_when_nothing_is_wrong_then_nothing_is_said(tmp_path: Path) -> None:
    assert board_lint(tmp_path, None) == []


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_when_planted_then_its_place_and_the_reason_are_said(tmp_path: Path, what: str) -> None:
    mistake = MISTAKES[what]
    told = board_lint(tmp_path, mistake)
    assert any(mistake.place in line and mistake.words in line for line in told), "\n".join(told) or "nothing is said"


def test_rule_when_lint_has_it_then_a_mistake_is_planted_for_it(tmp_path: Path) -> None:
    rules = {
        rule for file in LINTS for rule in re.findall(r'Complaint\(\s*"([^"]+)"', file.read_text(encoding="utf-8"))
    }
    told = "\n".join(line for mistake in MISTAKES.values() for line in board_lint(tmp_path, mistake))
    assert len(rules) > 20
    assert [rule for rule in sorted(rules) if f": {rule}: " not in told] == []
