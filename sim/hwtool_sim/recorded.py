"""A recording as it is read back: whole and strictly, or one error with the line that is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hwtool_contracts.model import Space
from hwtool_registers.bus import Answer, Capabilities, from_object
from hwtool_sim.answers import answer_of
from hwtool_sim.recording import FORMAT, VERSION
from hwtool_sim.redaction import filled

CALLS: Final = frozenset({"open", "quiesce", "alive", "boot_evidence"})
WRONG: Final = (KeyError, ValueError, TypeError, AttributeError)


class BadRecording(ValueError):
    """A recording that cannot be replayed; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded transfer, as it stands in line `line` of the file, and its answer."""

    line: int
    transfer: dict[str, Any]
    answer: Answer
    clean: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Another call, made before the exchange number `before`; it gave something, or raised."""

    before: int
    gives: Any
    error: OSError | None


@dataclass(slots=True)
class Recorded:
    """A whole recording.

    Attributes:
        head: its first line.
        capabilities: of the bus that was recorded.
        calls: the other calls, by name and address.
        end_line: the number of its last line.
    """

    head: dict[str, Any]
    capabilities: Capabilities
    exchanges: list[Exchange] = field(default_factory=list)
    calls: dict[tuple[str, int | None], list[Call]] = field(default_factory=dict)
    end_line: int = 1

    def take(self, line: int, entry: dict[str, Any]) -> None:
        """Take in one entry.

        Raises:
            KeyError, ValueError, TypeError, AttributeError: it is none.
        """
        if "transfer" in entry:
            from_object(filled(entry["transfer"]))
            clean = entry.get("clean", False) is True
            self.exchanges.append(Exchange(line, entry["transfer"], answer_of(filled(entry["answer"])), clean))
            return
        if entry["call"] not in CALLS:
            raise ValueError(f"no call is called {entry['call']!r}")
        error = None
        if "error" in entry:
            told = filled(entry["error"])
            error = OSError(told["text"]) if told["errno"] is None else OSError(told["errno"], told["text"])
        call = Call(len(self.exchanges), entry["gives"] if error is None else None, error)
        self.calls.setdefault((entry["call"], entry.get("address")), []).append(call)


def load(path: Path) -> Recorded:
    """Read a recording.

    Raises:
        BadRecording: it cannot be read, is damaged, of another version, or was cut short.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadRecording(f"the recording {path} cannot be read: {error}") from error
    line = 0
    try:
        lines = _entries(text)
        line, head = next(lines, (1, {}))
        recorded = _begun(head)
        for line, entry in lines:
            if "cut" in entry:
                raise ValueError(f"the recording was cut short: {entry['cut']}")
            if "end" in entry:
                if entry["end"] != line - 2:
                    raise ValueError(f"it ends after {entry['end']!r} entries, and has {line - 2}")
                recorded.end_line = line
                for _ in lines:
                    raise ValueError("something follows the end")
                return recorded
            recorded.take(line, entry)
        raise ValueError("it has no end behind this: the recording was cut short")
    except _Damage as error:
        raise BadRecording(f"the recording {path}, line {error.line}: {error}") from error
    except WRONG as error:
        told = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise BadRecording(f"the recording {path}, line {max(line, 1)}: {told}") from error


class _Damage(Exception):
    """A line that is no JSON object."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def _entries(text: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file, each with the number of its line."""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            raise _Damage(number, "the line is torn: the recording was cut short")
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _Damage(number, f"not JSON: {error}") from error
        if not isinstance(entry, dict):
            raise _Damage(number, "not an object")
        yield number, entry


def _begun(head: dict[str, Any]) -> Recorded:
    """A recording of which only the head was read.

    Raises:
        ValueError, TypeError: it is none.
    """
    if head.get("format") != FORMAT:
        raise ValueError(f"no recording: it does not begin with a head of format {FORMAT!r}")
    if head.get("version") != VERSION:
        raise ValueError(f"version {head.get('version')!r} of the format; this program replays version {VERSION}")
    told = head.get("capabilities")
    if told is None:
        return Recorded(head, Capabilities())
    return Recorded(head, Capabilities(**told | {"spaces": frozenset(map(Space, told["spaces"]))}))
