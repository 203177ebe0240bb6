"""What shows that a device did not restart: the words that rows keep, and what two of them say together. Pure.

    host:BOOT                    it restarts with its host, whose boot id this is
    usb:BUS-NUMBER:BOOT          it is a USB device, which gets a new number each time it is enumerated
    counter:VALUE                a register that is another one after each restart: a count of them, or a nonce
    uptime:MS:UNIT:WRAP:NS:BOOT  how long it runs, in units of UNIT ms, modulo WRAP ms; seen at CLOCK_BOOTTIME
    cause:FLAG:WHO               whether a flag stands that a restart sets; WHO: `alone` where nobody else can clear it
    anything else                a nonce that the bus itself tells

Only like can be compared with like. What would look the same after a restart, and what would look like a restart
without one (a counter that wraps, a clock that goes wrong), says nothing (`silent`).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Restart = Literal["same", "reset", "silent"]
KINDS: Final = ("nonce", "host", "usb", "counter", "uptime", "cause")
OWN_NONCE: Final = "nonce"
NEVER_MS: Final = 10 * 365 * 86_400_000  # a counter that wraps after ten years does not in practice
CLOCKS_DIFFER: Final = 0.02  # of the time between two looks: a chip's own clock is not the host's


def kind_of(evidence: str) -> str:
    """Under which name a piece of evidence is kept."""
    head = evidence.partition(":")[0]
    return head if head in KINDS and head != OWN_NONCE else OWN_NONCE


def host_word(boot_id: str) -> str:
    """The word of a device that restarts with its host."""
    return f"host:{boot_id}"


def usb_word(enumeration: str, boot_id: str) -> str:
    """The word of a device that is a USB device; numbers begin anew with the host."""
    return f"usb:{enumeration}:{boot_id}"


def counter_word(value: int) -> str:
    """The word of a register that is another one after each restart."""
    return f"counter:{value:#x}"


def uptime_word(uptime_ms: int, unit_ms: int, wrap_ms: int, boottime_ns: int, boot_id: str) -> str:
    """The word of an uptime that was seen now; `wrap_ms`: where it begins anew by itself."""
    return f"uptime:{uptime_ms}:{unit_ms}:{wrap_ms}:{boottime_ns}:{boot_id}"


def cause_word(stands: bool, alone: bool) -> str:
    """The word of a flag that a restart sets; `alone`: nobody but this daemon writes to the device."""
    return f"cause:{int(stands)}:{'alone' if alone else 'shared'}"


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
    if before.split(":")[1] == "1":
        return "silent"  # it stood already: another restart would not show
    if now.split(":")[1] == "1":
        return "reset"
    # it may have come and been cleared, unless nobody else can
    return "same" if before.endswith(":alone") and now.endswith(":alone") else "silent"


def _by_uptime(before: str, now: str) -> Restart:
    """What the two looks leave room for: it went on as the host's clock did, it began anew, both, or neither."""
    then, later = _Uptime.of(before), _Uptime.of(now)
    if later.boot_id != then.boot_id:  # how much time has passed is not known, nor whether it wrapped
        return "reset" if later.ms < then.ms and then.wrap_ms > NEVER_MS else "silent"
    passed_ms = (later.at_ns - then.at_ns) / 1e6
    loose_ms = 2 * then.unit_ms + CLOCKS_DIFFER * passed_ms
    if then.ms + passed_ms + loose_ms >= then.wrap_ms:
        return "silent"
    went_on = abs(later.ms - then.ms - passed_ms) <= loose_ms
    began_anew = later.ms <= passed_ms + loose_ms
    if went_on is began_anew:
        return "silent"
    return "same" if went_on else "reset"


class _Uptime(NamedTuple):
    ms: int
    unit_ms: int
    wrap_ms: int
    at_ns: int
    boot_id: str

    @classmethod
    def of(cls, word: str) -> _Uptime:
        _, ms, unit_ms, wrap_ms, at_ns, boot_id = word.split(":", 5)
        return cls(int(ms), int(unit_ms), int(wrap_ms), int(at_ns), boot_id)
