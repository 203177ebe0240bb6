"""Answers of a bus as they go over a socket or stand in a recording; the transfers' half is hwtool_registers.bus."""

from __future__ import annotations

from typing import Any

from hwtool_registers.bus import Ambiguous, Answer, Confirmed, Rejected, Sent


def answer_object(answer: Answer) -> dict[str, Any]:
    """An answer as plain data."""
    match answer:
        case Confirmed(data):
            return {"answer": "confirmed", "data": data.hex()}
        case Rejected(fault, proof):
            return {"answer": "rejected", "fault": fault, "proof": proof}
        case Ambiguous(stage, fault):
            return {"answer": "ambiguous", "stage": stage.value, "fault": fault}


def answer_of(shown: dict[str, Any]) -> Answer:
    """The answer that plain data is; the inverse.

    Raises:
        ValueError, KeyError: it is none.
    """
    match shown["answer"]:
        case "confirmed":
            return Confirmed(bytes.fromhex(shown["data"]))
        case "rejected":
            return Rejected(shown["fault"], shown["proof"])
        case "ambiguous":
            return Ambiguous(Sent(shown["stage"]), shown["fault"])
        case other:
            raise ValueError(f"no answer is called {other!r}")
