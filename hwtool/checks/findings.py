"""What a check of a board finds: for each register and each guarantee that it held, failed, or does not apply.

"Does not apply" is no pass: it is counted apart, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class Outcome(StrEnum):
    """What became of one guarantee at one place."""

    HELD = "held"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


GUARANTEES: Final = {
    "loads_well": "the contract says nothing of this register that is suspicious",
    "clean": "a clean read is executed once each time, and changes nothing",
    "refused_as_clean": "a read with an effect is refused as a clean one, and nothing is sent",
    "not_dumped": "a dump leaves it out",
    "not_merged": "a read of the registers on both sides of it does not reach it",
    "not_polled": "nothing waits for a value by reading it again and again",
    "done": "a write is done, and the device holds what was asked for",
    "once": "three times under one key it is executed once",
    "burst_once": "a burst takes as many elements as it says, once",
    "in_order": "a group is read in its order, or by one transfer",
    "other_request": "the same key with another request is refused, and nothing is sent",
    "value_kept": "what it brought is answered after a restart of the daemon, and it is not executed again",
    "loss_told": "a lost reply is told as unknown, and no retry executes it again",
    "unknown_held": "while its outcome is unknown the device takes no other effect",
    "settled_truly": "what a rule settles is what the device has counted; else a person does",
    "stuck_seen": "a bit that does not take its value is seen",
    "neighbours_kept": "an update leaves the other fields as they were",
    "pages_kept": "a write over the end of a page is one for each page, and each byte is where it belongs",
    "stays_locked": "what is written in its sequence alone is refused by itself, and nothing is sent",
    "locked_again": "what a sequence unlocks is locked when it is done",
    "relocked": "what a daemon left unlocked when it died is locked by the next one, once",
    "approval_asked": "an agent does not get it without an approval",
    "secret_kept": "its values stand in nothing that others read",
    "scenario": "a scenario goes as its file says",
}


DOING: Final = frozenset({"clean", "done", "once", "scenario"})  # in these something reaches a device


@dataclass(frozen=True, slots=True)
class Finding:
    """One guarantee at one place.

    Attributes:
        place: DEVICE.REGISTER, with a field where one was written.
        effect: of the read or write.
        told: what was counted, why it failed, or why it does not apply.
        timeline: requests and transfers, in order; of failures.
    """

    place: str
    effect: str
    guarantee: str
    outcome: Outcome
    told: str
    timeline: tuple[str, ...] = ()

    def as_object(self) -> dict[str, Any]:
        """For a program."""
        shown: dict[str, Any] = {
            "place": self.place,
            "effect": self.effect,
            "guarantee": self.guarantee,
            "outcome": self.outcome.value,
            "told": self.told,
        }
        return shown | ({"timeline": list(self.timeline)} if self.timeline else {})


@dataclass(slots=True)
class Report:
    """Everything that a check of a board found."""

    board: str
    findings: list[Finding] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        """How many came to that."""
        return sum(f.outcome is outcome for f in self.findings)

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and something was done and held: that all is refused is no proof of anything."""
        did = any(f.outcome is Outcome.HELD and f.guarantee in DOING for f in self.findings)
        return did and self.count(Outcome.FAILED) == 0

    def as_object(self) -> dict[str, Any]:
        """For a program."""
        counts = {outcome.value: self.count(outcome) for outcome in Outcome}
        return {
            "board": self.board,
            "passed": self.passed,
            "counts": counts,
            "guarantees": GUARANTEES,
            "findings": [f.as_object() for f in self.findings],
        }
