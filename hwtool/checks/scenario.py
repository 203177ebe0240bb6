"""Scenarios: what is to happen on simulated chips and what must come of it, as a TOML file becomes data.

A file has a board (its own, or one beside it), contracts, faults and steps; docs/scenarios.md tells the language. Here
a file is read strictly: everything wrong with it is told at once, and a scenario that expects nothing is refused, since
it could not fail. What the steps do is in hwtool.checks.play.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from hwtool.config import Board, board_of, load_board
from hwtool.simulator import places_of
from hwtool_contracts.messages import METHODS, Result
from hwtool_contracts.model import Contract
from hwtool_contracts.native import contract_of
from hwtool_contracts.toml_reader import Fault, Faults, Table, parse_toml
from hwtool_sim.control import Stop, control_of
from hwtool_sim.script import Script, planned, script_of

MOST_REPEATS: Final = 1000
MOST_SECONDS: Final = 10_000_000
DOES: Final = ("call", "together", "control", "fault", "pass_s", "daemon")


class Who(StrEnum):
    """Who asks; `approver` is a person who has asked for nothing."""

    AGENT = "agent"
    OPERATOR = "operator"
    APPROVER = "approver"


class Life(StrEnum):
    """What becomes of the daemon in a step."""

    RESTART = "restart"  # it ends as it is told to, and another one starts on its store
    KILL = "kill"  # it ends without a word, and another one starts on what the disk holds then


class Moment(StrEnum):
    """When the daemon is killed in the middle of a request: at its transfer, around what the chip does."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        approved: where it waits for an approval, whoever may gives one, and it is sent again.
        killed: the daemon is killed at a transfer that writes (of a read: that reads), after `passed` others of it.
        expect: what the result must have; None: anything.
    """

    method: str
    params: Mapping[str, Any]
    who: Who
    approved: bool
    killed: Moment | None
    passed: int
    expect: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What must be there after a step; what is None may be anything.

    Attributes:
        traffic: every transfer of the step, in order (see hwtool.checks.traffic).
        executed: every execution of the step, by `device.REGISTER read` or `… write`; "some" for at least one.
        holds: by `device.REGISTER`, or `device.MEMORY[offset]` as hex.
        fifos: elements that wait, by `device.REGISTER`.
        pulses: how often something fired in all, by `device.REGISTER`.
    """

    traffic: tuple[str, ...] | None = None
    executed: Mapping[str, int | str] | None = None
    holds: Mapping[str, int | str] | None = None
    fifos: Mapping[str, list[int]] | None = None
    pulses: Mapping[str, int] | None = None

    @property
    def anything(self) -> bool:
        """Whether nothing must be there."""
        nothing = self.traffic is None and self.executed is None  # these say something of what is not named, too
        return nothing and not (self.holds or self.fifos or self.pulses)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, and what must be there then.

    Attributes:
        number: from 1, as reports have it.
        calls: requests that are made at once.
        repeat: how often they are made, one round after the other; each must come to what is expected.
        control: of the simulator, with `device` in place of bus and address.
    """

    number: int
    say: str
    calls: tuple[Call, ...] = ()
    repeat: int = 1
    control: Mapping[str, Any] | None = None
    fault: Mapping[str, Any] | None = None
    pass_s: float = 0.0
    daemon: Life | None = None
    seen: Seen = Seen()

    @property
    def told(self) -> str:
        """What it does, for a report."""
        if self.calls:
            return " and ".join(call.method for call in self.calls)
        if self.control is not None:
            return f"control {self.control.get('name')}"
        if self.fault is not None:
            return f"fault {self.fault.get('kind')}"
        return f"the daemon: {self.daemon}" if self.daemon is not None else f"{self.pass_s:g} s pass"

    @property
    def expects(self) -> bool:
        """Whether it can fail."""
        return not self.seen.anything or any(call.expect for call in self.calls)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file.

    Attributes:
        guards: the kind of fault that it guards against.
    """

    name: str
    title: str
    guards: str
    board: Board
    script: Script
    steps: tuple[Step, ...]


def scenario_files(path: Path) -> list[Path]:
    """A file, or every scenario in a directory, in the order of their names.

    Raises:
        Faults: there is none.
    """
    if not path.is_dir():
        return [path]
    files = (p for p in path.glob("*.toml") if p.is_file())
    found = sorted(p for p in files if "[[steps]]" in p.read_text("utf-8", "replace"))
    if not found:
        raise Faults([Fault(str(path), "", "", "no scenario here", None or "", "files with [[steps]]")])
    return found


def load_scenario(path: Path, board: Board | None = None) -> Scenario:
    """Read a scenario.

    Args:
        board: for a file that has none of its own.

    Raises:
        Faults: it cannot be read, or breaks rules; all of them are told.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([Fault(str(path), "", "", "cannot be read", str(error), "a readable scenario")]) from error
    data, faults = parse_toml(text, path.name), list[Fault]()
    top = Table(data, "", path.name, faults)
    if top.integer("schema", required=True) not in (1, None):
        top.fault("schema", "unknown schema", data["schema"], "1")
    title, guards = top.text("title", required=True), top.text("guards", required=True)
    contracts = _contracts(top, faults)
    top.raw("board")
    played_on = None if faults else _board(top, path, contracts, board, faults)
    script = Script(None, ())
    try:
        places = {} if played_on is None else places_of(played_on)
        parts = {key: top.raw(key) for key in ("seed", "faults") if key in top}
        script = script_of(parts, path.name, places)
    except Faults as found:
        faults += found.faults
    steps = tuple(_step(n, table, played_on) for n, table in enumerate(top.array("steps"), 1))
    top.done()
    if not any(step.expects for step in steps):
        top.fault("steps", "nothing is expected: it could not fail", None, "expect, traffic, executed, holds, …")
    if faults or played_on is None:
        raise Faults(faults)
    return Scenario(path.stem, title or "", guards or "", played_on, script, steps)


def _contracts(top: Table, faults: list[Fault]) -> dict[str, Contract]:
    """The contracts that a scenario has made for itself: what names one need not be said."""
    found = {}
    for name, table in top.tables("contracts"):
        head = {"schema": 1, "part": name, "vendor": "a scenario", "title": name, "source": top.file}
        try:
            found[name] = contract_of(head | dict(table.data), top.file, table.where)
        except Faults as wrong:
            faults += wrong.faults
    return found


def _board(
    top: Table, path: Path, contracts: Mapping[str, Contract], given: Board | None, faults: list[Fault]
) -> Board | None:
    """The board of a scenario: a table of its own, the name of a file beside it, or the one that was given."""
    stated = top.raw("board")
    try:
        if isinstance(stated, dict):
            return board_of(stated, path.name, path.parent, "board", contracts)
        if isinstance(stated, str):
            return load_board(path.parent / stated)
        if stated is None and given is None:
            top.fault("board", "no board", None, "[board], board = FILE, or --board FILE")
        elif stated is not None:
            top.fault("board", "wrong type", repr(stated), "a table, or the name of a file")
    except Faults as wrong:
        faults += wrong.faults
        return None
    return given


def _step(number: int, table: Table, board: Board | None) -> Step:
    does = [key for key in DOES if key in table]
    if len(does) != 1:
        table.fault("", "a step does one thing", ", ".join(does) or "nothing", "one of " + ", ".join(DOES))
    calls = (_call(table),) if "call" in table else tuple(_call_of(inner) for inner in table.array("together"))
    passes = table.decimal("pass_s")
    if passes is not None and not 0 <= passes <= MOST_SECONDS:
        table.fault("pass_s", "out of range", passes, f"0 to {MOST_SECONDS} seconds")
    if sum(call.killed is not None for call in calls) > 1:
        table.fault("together", "the daemon can be killed once", None, "one killed")
    step = Step(
        number,
        table.text("say") or "",
        calls,
        table.integer("repeat", low=1, high=MOST_REPEATS) or 1,
        table.raw("control"),
        _plain(table.raw("fault")),
        0.0 if passes is None else float(passes),
        table.choice("daemon", Life),
        Seen(
            table.strings("traffic") if "traffic" in table else None,
            table.raw("executed"),
            table.raw("holds"),
            table.raw("fifos"),
            table.named_integers("pulses", 1 << 31) if "pulses" in table else None,
        ),
    )
    seen = step.seen
    named = {
        "control": step.control,
        "fault": step.fault,
        "holds": seen.holds,
        "fifos": seen.fifos,
        "executed": seen.executed,
    }
    for key, value in named.items():
        if value is not None and not isinstance(value, dict):
            table.fault(key, "wrong type", repr(value), "a table")
    for name, count in (seen.executed if isinstance(seen.executed, dict) else {}).items():
        if count != "some" and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            table.fault(
                f"executed.{name}", "not a count", repr(count), '1 or more, or "some"; what is not named is none'
            )
    if board is not None:
        _check_hands(step, table, board)
    table.done()
    return step


def _check_hands(step: Step, table: Table, board: Board) -> None:
    """What the outside world is to do is looked at when the file is read, as far as that can be known then."""
    try:
        if isinstance(step.fault, dict):
            planned(step.fault, places_of(board))
    except ValueError as error:
        table.fault("fault", str(error), None, "a fault as docs/simulator.md tells")
    try:
        if isinstance(step.control, dict):
            control = control_of(request_of(step.control, places_of(board)))
            if isinstance(control, Stop):
                raise ValueError("there is no process that could stop")
    except ValueError as error:
        table.fault("control", str(error), None, "a control as docs/simulator.md tells")


def request_of(asked: Mapping[str, Any], places: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """A control of a step as the simulator takes it.

    Raises:
        ValueError: there is no such device.
    """
    parts = dict(asked)
    device = parts.pop("device", None)
    if device is not None:
        if not isinstance(device, str) or device not in places:
            raise ValueError(f"there is no device {device!r}; there are " + ", ".join(places))
        parts["bus"], parts["address"] = places[device]
    return {"control": parts.pop("name", None), **parts}


def _call_of(table: Table) -> Call:
    call = _call(table)
    table.done()
    return call


def _call(table: Table) -> Call:
    method = table.text("call", required=True) or ""
    if method and method not in METHODS:
        table.fault("call", "no such method", method, "one of " + ", ".join(METHODS))
    killed = table.choice("killed", Moment)
    params, expect = table.raw("params"), table.raw("expect")
    for key, value in (("params", params), ("expect", expect)):
        if value is not None and not isinstance(value, dict):
            table.fault(key, "wrong type", repr(value), "a table")
    for key in expect if isinstance(expect, dict) else ():
        if key not in Result.__struct_fields__:
            near = difflib.get_close_matches(key, Result.__struct_fields__, 1)
            wanted = near[0] + "?" if near else "one of " + ", ".join(Result.__struct_fields__)
            table.fault(f"expect.{key}", "no member of a result", key, wanted)
    if killed is not None and expect is not None:
        table.fault("expect", "a request that the daemon dies of has no result", None, "the key left out")
    if killed is None and "passed" in table:
        table.fault("passed", "belongs to killed", None, "killed, or the key left out")
    return Call(
        method,
        _plain(params or {}),
        table.choice("as", Who) or Who.AGENT,
        bool(table.flag("approved", False)),
        killed,
        table.integer("passed", low=0) or 0,
        _plain(expect),
    )


def _plain(value: Any) -> Any:
    """As JSON has it: decimals are floats."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def mismatches(expected: Any, found: Any, where: str = "") -> Iterator[str]:
    """Where a result is not what was expected: every member of an expected table must be there and agree.

    A table of one operator says something else than equality: `{ has = TEXT }`, `{ one_of = [...] }`,
    `{ absent = true }` (null, or not there).
    """
    match expected:
        case {"has": str(text), **rest} if not rest:
            if not isinstance(found, str) or text not in found:
                yield f"{where} is {found!r}, without {text!r}"
        case {"one_of": list(choices), **rest} if not rest:
            if found not in choices:
                yield f"{where} is {found!r}, none of {choices}"
        case {"absent": True, **rest} if not rest:
            if found is not None:
                yield f"{where} is {found!r}, and should not be there"
        case dict():
            for key, inner in expected.items():
                at = f"{where}.{key}" if where else key
                yield from mismatches(inner, found.get(key) if isinstance(found, dict) else None, at)
        case list():
            if not isinstance(found, list) or len(found) != len(expected):
                yield f"{where} is {found!r}, and should have {len(expected)} entries"
                return
            for index, inner in enumerate(expected):
                yield from mismatches(inner, found[index], f"{where}[{index}]")
        case _:
            if found != expected or isinstance(found, bool) is not isinstance(expected, bool):
                yield f"{where} is {found!r}, and should be {expected!r}"
