"""The breaker of one bus: after a run of transport failures it fails fast, then lets one probe through at a time.

    closed ─FAILURES in a row→ open ─pause over→ one probe a pause ─success→ closed
                                 ↑                     │
                                 └──pause doubled──────┘ failure

Pure: the time is passed in. A failure is an answer that shows a bus in trouble: ambiguous, or a port that cannot be
opened. A device that refuses (a Modbus exception) is there: that is a success. No acknowledge at an address says
something of one device and nothing of its neighbours: it counts as neither. The breaker stops requests on their way in,
never a transfer of an operation that has begun, and it never touches holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hwtool_registers.bus import NOT_SENT, Ambiguous, Answer, Confirmed, Rejected

FAILURES: Final = 5
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
NOT_OPEN: Final = frozenset({"port-not-opened", "port-vanished"})  # proofs of a bus that is not there
SAYS_NOTHING: Final = frozenset({NOT_SENT, "address-nack"})


def is_failure(answer: Answer) -> bool | None:
    """Whether an answer shows that the transport fails; None: it shows neither."""
    match answer:
        case Confirmed():
            return False
        case Ambiguous():
            return True
        case Rejected(_, proof):
            return None if proof in SAYS_NOTHING else proof in NOT_OPEN


@dataclass
class Breaker:
    """State of one bus.

    Attributes:
        failures: in a row.
        pause_s: how long it stays open before the next probe; 0 while closed.
        until_s: monotonic time of the next probe.
    """

    failures: int = 0
    pause_s: float = 0.0
    until_s: float = 0.0

    @property
    def open(self) -> bool:
        """Whether only probes pass."""
        return self.pause_s > 0

    def note(self, answer: Answer, now_s: float) -> None:
        """Learn from an answer."""
        failure = is_failure(answer)
        if failure is None:
            return
        if not failure:
            self.failures, self.pause_s = 0, 0.0
            return
        self.failures += 1
        if self.open:
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
        elif self.failures >= FAILURES:
            self.pause_s = FIRST_PAUSE_S
        self.until_s = now_s + self.pause_s

    def rest_s(self, now_s: float) -> float:
        """How long until the next probe may pass; 0: now. Uses up nothing."""
        return max(0.0, self.until_s - now_s) if self.open else 0.0

    def refuses(self, now_s: float) -> int | None:
        """Milliseconds until a request should come again, None if it may pass; a probe uses up its pause's turn."""
        if not self.open:
            return None
        rest_s = self.until_s - now_s
        if rest_s <= 0:
            self.until_s = now_s + self.pause_s  # the next probe, if this one never gets as far as an answer
            return None
        return max(1, round(1000 * rest_s))
