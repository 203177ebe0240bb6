"""Recording a bus: every transfer with its answer, as one JSON object a line, without what is secret.

A run on real hardware becomes a test that needs none: `hwtool_sim.replay` answers from the file.

    {"format": "hwtool-recording", "version": 1, "bus", "kind", "contracts": {PLACE: DIGEST}, "capabilities", "when"}
    {"at_s", "transfer": {…}, "answer": {…}, "clean": true}     clean: by the contract this read may be asked for again
    {"at_s", "call": "open" | "quiesce" | "alive" | "boot_evidence", "address", "gives" | "error"}
    {"end": N}                                                  after N entries; a file without it was cut short

Rules
- The bus is called exactly once for each call, and what it answers or raises goes back unchanged.
- Each entry is written once the bus has answered, in one piece and past any buffer of this process: if it is killed,
  the transfer under way is missing, and the last line may be torn.
- What goes wrong with the file (a full disk) never reaches the bus: it is told once in the log, and the recording ends
  there, marked `{"cut": WHY}` if that still fits.
- Bytes that are secret (hwtool_sim.reached) are left out, also by hash; what stands there says hwtool_sim.redaction.
- The file is new and belongs to its user alone (0600).
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from hwtool_registers.bus import (
    Answer,
    Bus,
    Capabilities,
    Closes,
    Confirmed,
    Declares,
    HasNode,
    Hears,
    Opens,
    Testifies,
    Transfer,
    as_object,
)
from hwtool_sim.answers import answer_object
from hwtool_sim.reached import Reached
from hwtool_sim.redaction import left_out, redacted

log = logging.getLogger(__name__)
T = TypeVar("T")
FORMAT: Final = "hwtool-recording"
VERSION: Final = 1
MOST_FILES: Final = 1_000_000


class RecordingFile:
    """A recording that is being written.

    Args:
        path: must not exist.
        head: more members of the head line.
        clock: monotonic seconds.

    Raises:
        OSError: it exists, or cannot be made or written.
    """

    def __init__(self, path: Path, head: dict[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()  # the bus's thread, and the event loop for what does not block
        self._began_s = clock()
        self._entries = self._size_bytes = 0
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._write({"format": FORMAT, "version": VERSION, **head, "when": datetime.now(UTC).isoformat()})
        except OSError:
            os.close(self._file)
            raise

    def now_s(self) -> float:
        """Seconds since the recording began."""
        return round(self._clock() - self._began_s, 6)

    def note(self, make: Callable[[], dict[str, Any]]) -> None:
        """Append what is made; whatever goes wrong with that ends the recording and nothing else."""
        with self._lock:
            if self._file is None:
                return
            try:
                self._write(make())
                self._entries += 1
            except Exception as error:  # noqa: BLE001  # the bus has acted: nothing here may hide its answer
                self._cut(str(error) if isinstance(error, OSError) else type(error).__name__)  # its words may quote

    def end(self) -> None:
        """Write the last line and close it; nothing is recorded any more."""
        with self._lock:
            if self._file is not None:
                try:
                    self._write({"end": self._entries})
                except OSError as error:
                    self._cut(str(error))
                else:
                    self._close()

    def _write(self, entry: dict[str, Any]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        if self._file is not None:
            done = 0
            while done < len(line):
                done += os.write(self._file, line[done:])
            self._size_bytes += len(line)

    def _cut(self, why: str) -> None:
        log.error("the recording %s is cut short after %d entries: %s", self.path, self._entries, why)
        if self._file is not None:
            try:
                os.ftruncate(self._file, self._size_bytes)  # whole lines only
                os.lseek(self._file, self._size_bytes, os.SEEK_SET)
                self._write({"cut": why})
            except OSError:
                pass  # it has no end line, which says the same
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class Recorder:
    """A bus that passes everything on to another one and records it; made with `recorder`.

    It has the optional parts that the other one has and no more, as members of its own: that is what `isinstance`
    with one of the bus's protocols looks at. `close` it always has, for the file.
    """

    def __init__(self, bus: Bus, file: RecordingFile, reached: Reached) -> None:
        self._bus = bus
        self._file = file
        self._reached = reached
        if isinstance(bus, Opens):
            opening = bus.open
            self.open = lambda: self._called("open", None, opening)
        if isinstance(bus, Hears):
            hearing = bus.alive
            self.alive = lambda: self._called("alive", None, hearing)
        if isinstance(bus, Testifies):
            asking = bus.boot_evidence
            self.boot_evidence = lambda address: self._called("boot_evidence", address, lambda: asking(address))
        if isinstance(bus, Declares):
            self.capabilities: Capabilities = bus.capabilities

    @property
    def inline(self) -> bool:
        """As the bus itself says."""
        return bool(getattr(self._bus, "inline", False))

    def perform(self, transfer: Transfer) -> Answer:
        """Have the bus send it, once, then record it with its answer."""
        at_s = self._file.now_s()
        try:
            answer = self._bus.perform(transfer)
        except Exception as error:
            # told as the worker takes it: nobody knows what became of the transfer
            raised = {"answer": "ambiguous", "stage": "data", "fault": f"{type(error).__name__}: {error}"}
            self._file.note(lambda: self._entry(at_s, transfer, raised))
            raise
        self._file.note(lambda: self._entry(at_s, transfer, answer_object(answer), answer))
        return answer

    def quiesce(self, until_s: float) -> None:
        """Have the bus be quiet."""
        self._called("quiesce", None, lambda: self._bus.quiesce(until_s))

    def close(self) -> None:
        """Close the bus, and the file."""
        try:
            if isinstance(self._bus, Closes):
                self._bus.close()
        finally:
            self._file.end()

    def _entry(
        self, at_s: float, transfer: Transfer, shown: dict[str, Any], answer: Answer | None = None
    ) -> dict[str, Any]:
        known = self._reached.known(transfer)
        if "fault" in shown and self._reached.has_secrets:
            shown["fault"] = left_out("", len(shown["fault"]))
        if isinstance(answer, Confirmed) and answer.data and known.brought:
            shown["data"] = left_out("", len(answer.data))
        entry = {"at_s": at_s, "transfer": redacted(as_object(transfer), known), "answer": shown}
        return entry | ({"clean": True} if known.clean else {})

    def _called(self, call: str, address: int | None, make: Callable[[], T]) -> T:
        """One call of another part of the bus; what it gives or raises goes to the caller."""
        entry: dict[str, Any] = {"at_s": self._file.now_s(), "call": call}
        entry |= {} if address is None else {"address": address}
        try:
            gives = make()
        except Exception as error:
            text = left_out("", len(str(error))) if self._reached.has_secrets else str(error)
            told = {"errno": getattr(error, "errno", None), "text": text}
            self._file.note(lambda: entry | {"error": told})
            raise
        self._file.note(lambda: entry | {"gives": gives})
        return gives


class RecorderOfNode(Recorder):
    """Of a bus behind a node of this host's, which may be another one after each open."""

    @property
    def node(self) -> Path:
        """The bus's node, as it is named now."""
        if not isinstance(self._bus, HasNode):
            raise TypeError("the bus has no node")
        return self._bus.node


def recorder(bus: Bus, path: Path, head: dict[str, Any], reached: Reached) -> Recorder:
    """A bus that is recorded into a new file.

    Args:
        head: members of the head line, as `bus` and `kind`.

    Raises:
        OSError: the file exists, or cannot be made.
    """
    told = capabilities_object(bus.capabilities) if isinstance(bus, Declares) else None
    contracts = {f"{place:#04x}": contract.digest for place, contract in reached.contracts}
    file = RecordingFile(path, head | {"contracts": contracts, "capabilities": told})
    return (RecorderOfNode if isinstance(bus, HasNode) else Recorder)(bus, file, reached)


def next_path(path: Path) -> Path:
    """The first of `NAME-1.EXT`, `NAME-2.EXT` … that does not exist: each start has a recording of its own.

    Raises:
        OSError: they are all there.
    """
    numbered = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(1))
    for candidate in itertools.islice(numbered, MOST_FILES):
        if not os.path.lexists(candidate):
            return candidate
    raise FileExistsError(f"{path} has {MOST_FILES} recordings beside it")


def capabilities_object(capabilities: Capabilities) -> dict[str, Any]:
    """What a bus can carry, as the head line has it."""
    return asdict(capabilities) | {"spaces": sorted(capabilities.spaces)}
