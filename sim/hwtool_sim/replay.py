"""A bus that answers from a recording (hwtool_sim.recording), strictly: what is asked must be what was recorded.

Rules
- Each transfer must be the next recorded one, byte for byte; where bytes were left out, their number must be the same.
  Else it is answered `Rejected`, `not-sent`, and so is everything from then on; the first divergence is remembered.
- One thing differs from run to run by timing: how often a clean read is polled (a verification window, `wait_until`).
  A run of the same clean read (`"clean": true`) may be asked for more or fewer times than it was recorded, at least
  once: the answers come in order, the last one stays. A transfer with an effect never; nor what is banked, for
  selectors are written around each read of it, nor several registers that are polled in turn.
- The other calls (`open`, `quiesce`, `alive`, `boot_evidence`) come when time says so: each is answered with what it
  was answered between the same two transfers, in order; where there is nothing, with what came last.
- What was left out is answered with zeros. No time passes: a transfer that hung is answered at once, as it ended.
- In the log and in answers a divergence is told by its line alone, for what was asked may be secret; `finish` tells it
  all.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwtool_registers.bus import Answer, Capabilities, Rejected, Transfer, as_object
from hwtool_sim.recorded import Exchange, load
from hwtool_sim.redaction import fits

log = logging.getLogger(__name__)


class Diverged(Exception):
    """What was asked is not what was recorded; the message names file, line and both."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a run first differed: the line, what stands there (None: its end), and what was asked (None: nothing)."""

    line: int
    recorded: dict[str, Any] | None
    asked: dict[str, Any] | None

    def __str__(self) -> str:
        recorded = "its end" if self.recorded is None else json.dumps(self.recorded)
        asked = "nothing more" if self.asked is None else json.dumps(self.asked)
        return f"line {self.line}: recorded was {recorded}; asked was {asked}"


class Replay:
    """Answers from a recording.

    Attributes:
        head: the head line of the recording.
        divergence: the first one; None: there was none yet.

    Raises:
        BadRecording: the file cannot be read, is damaged, of another version, or was cut short.
    """

    inline = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.divergence: Divergence | None = None
        recorded = load(path)
        self.head, self._end_line = recorded.head, recorded.end_line
        self._capabilities = recorded.capabilities
        self._exchanges, self._calls = recorded.exchanges, recorded.calls
        self._at = 0  # the next exchange
        self._taken: dict[tuple[str, int | None], int] = {}  # how many calls of a kind have been answered

    @property
    def capabilities(self) -> Capabilities:
        """As of the bus that was recorded."""
        return self._capabilities

    def perform(self, transfer: Transfer) -> Answer:
        """Answer the next recorded transfer; see the head of this file."""
        if self.divergence is None:
            asked = as_object(transfer)
            found = self._found(asked)
            if found is not None:
                return found.answer
            self.divergence = self._diverged(asked)
            log.error(
                "the replay of %s has diverged at line %d; nothing more is answered", self.path, self.divergence.line
            )
        return Rejected(f"not as recorded: the replay has diverged at line {self.divergence.line}", "not-sent")

    def _found(self, asked: dict[str, Any]) -> Exchange | None:
        """The exchange that answers, gone past; a run of a clean read that has begun may end here, or go on."""
        rest = self._after_run()
        for at in dict.fromkeys((self._at, rest)):
            if at < len(self._exchanges) and fits(self._exchanges[at].transfer, asked):
                self._at = at + 1
                return self._exchanges[at]
        last = self._exchanges[self._at - 1] if self._at else None
        return last if last is not None and last.clean and fits(last.transfer, asked) else None

    def _after_run(self) -> int:
        """The exchange behind what is left of the run of a clean read that was answered last."""
        at = self._at
        while 0 < at < len(self._exchanges) and self._repeats(at):
            at += 1
        return at

    def _repeats(self, at: int) -> bool:
        """Whether an exchange is the same clean read as the one before it."""
        one, other = self._exchanges[at - 1], self._exchanges[at]
        return one.clean and other.clean and one.transfer == other.transfer

    def _diverged(self, asked: dict[str, Any] | None) -> Divergence:
        at = self._after_run()
        if at == len(self._exchanges):
            return Divergence(self._end_line, None, asked)
        return Divergence(self._exchanges[at].line, self._exchanges[at].transfer, asked)

    def finish(self) -> None:
        """Say that this was all.

        Raises:
            Diverged: something was not as recorded, or transfers are left that nobody asked for.
        """
        left = self._left()
        if left is not None:
            raise Diverged(f"{self.path}, {left}")

    def _left(self) -> Divergence | None:
        if self.divergence is None and self._after_run() < len(self._exchanges):
            return self._diverged(None)
        return self.divergence

    def open(self) -> None:
        """As recorded.

        Raises:
            OSError: as recorded.
        """
        self._called("open", None, None)

    def alive(self) -> bool:
        """As recorded."""
        return bool(self._called("alive", None, True))

    def boot_evidence(self, address: int) -> str | None:
        """As recorded; None where it was not asked for.

        Raises:
            OSError: as recorded.
        """
        word: str | None = self._called("boot_evidence", address, None)
        return word

    def quiesce(self, until_s: float) -> None:
        """As recorded; nothing is waited for.

        Raises:
            OSError: as recorded.
        """
        self._called("quiesce", None, None)

    def close(self) -> None:
        """Tell in the log if transfers are left; `finish` raises."""
        left = self._left()
        if left is not None and self.divergence is None:
            log.error("the replay of %s ends before line %d: more was recorded than asked for", self.path, left.line)

    def _called(self, call: str, address: int | None, unless: Any) -> Any:
        """What a call gave at this point of the recording."""
        calls, taken = self._calls.get((call, address), []), self._taken.get((call, address), 0)
        reach = self._after_run()
        came = [n for n in range(taken, len(calls)) if calls[n].before <= reach]
        current = next((n for n in came if calls[n].before >= self._at), came[-1] if came else taken - 1)
        if current < 0:
            return unless
        self._taken[call, address] = current + 1
        if (error := calls[current].error) is not None:
            raise OSError(*error.args)
        return calls[current].gives
