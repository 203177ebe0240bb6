"""What shows that a device did not restart: the words that rows keep, and what two of them say together. Pure.

    host:BOOT                    it restarts with its host, whose boot id this is
    counter:VALUE                a register that is another one after each restart: a count of them, or a nonce
    uptime:MS:UNIT:AT_NS:BOOT    how long it runs, counted in units of so many ms; seen at the host's CLOCK_BOOTTIME
    cause:0 or cause:1           whether a flag stands that a restart sets until somebody clears it
    anything else                a nonce that the bus itself tells

Only like can be compared with like. A word that would look the same after a restart says nothing (`silent`).
"""

from __future__ import annotations

from typing import Final, Literal

Restart = Literal["same", "reset", "silent"]
KINDS: Final = ("nonce", "host", "counter", "uptime", "cause")
OWN_NONCE: Final = "nonce"
CLOCKS_DIFFER: Final = 0.02  # of the time between two looks: a chip's own clock is not the host's


def kind_of(evidence: str) -> str:
    """Under which name a piece of evidence is kept."""
    head = evidence.partition(":")[0]
    return head if head in KINDS and head != OWN_NONCE else OWN_NONCE


def host_word(boot_id: str) -> str:
    """The word of a device that restarts with its host."""
    return f"host:{boot_id}"


def counter_word(value: int) -> str:
    """The word of a register that is another one after each restart."""
    return f"counter:{value:#x}"


def uptime_word(uptime_ms: int, unit_ms: int, boottime_ns: int, boot_id: str) -> str:
    """The word of an uptime that was seen now; its unit is what it can be short of by rounding."""
    return f"uptime:{uptime_ms}:{unit_ms}:{boottime_ns}:{boot_id}"


def cause_word(stands: bool) -> str:
    """The word of a flag that a restart sets."""
    return f"cause:{int(stands)}"


def restart_between(before: str | None, now: str | None) -> Restart:
    """What two pieces of boot evidence say together."""
    if before is None or now is None or kind_of(before) != kind_of(now):
        return "silent"
    match kind_of(now):
        case "cause":
            return _by_cause(before, now)
        case "uptime":
            return _by_uptime(before, now)
        case _:
            return "same" if before == now else "reset"


def _by_cause(before: str, now: str) -> Restart:
    if before == cause_word(True):
        return "silent"  # it stood already: another restart would not show
    return "same" if now == before else "reset"


def _by_uptime(before: str, now: str) -> Restart:
    """An uptime that went on as the host's clock did. One that fell, or fell behind, began anew in between.

    A restart in between leaves it behind by at least what it was before: that must be more than it can be short of.
    """
    then_ms, unit_ms, then_ns, then_boot = _parts(before)
    now_ms, _, now_ns, now_boot = _parts(now)
    if now_ms < then_ms:
        return "reset"
    if now_boot != then_boot:
        return "silent"  # how much time has passed is not known
    passed_ms = (now_ns - then_ns) / 1e6
    short_ms = 2 * unit_ms + CLOCKS_DIFFER * passed_ms
    if now_ms + short_ms < then_ms + passed_ms:
        return "reset"
    return "same" if then_ms > short_ms else "silent"


def _parts(word: str) -> tuple[int, int, int, str]:
    _, uptime_ms, unit_ms, at_ns, boot_id = word.split(":", 4)
    return int(uptime_ms), int(unit_ms), int(at_ns), boot_id
