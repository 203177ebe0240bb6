"""The oracle: it knows the promise, the contracts that were drawn and what the chips did; nothing of how it is kept.

For each (caller, key) the operation reaches the device at most once, whatever is asked, lost, crashed or restarted.
What was answered for good is answered again. What is said of effects and values is what the chip has done. While an
outcome is unknown, or a person has said so, nothing else has an effect on the device. What needs a person has one.

Left out, in the promise's own words: what a person settles may be wrong; a foreign write on a bus that the board calls
its own, and a restart that nothing shows, cannot be told from ours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from hwtool.policy import Caller
from hwtool_contracts.messages import Result
from tests.model.boards import Drawn, Place
from tests.model.lives import Did

NOT_FOR_GOOD: Final = ("store_failed", "key_conflict")  # said of this request, not of the operation


@dataclass(frozen=True)
class Request:
    """A keyed request, and what it comes to.

    Attributes:
        place: the device and the register that it is about.
        plan: how often each register may be reached: by (register, "read" | "write").
        mask: bits that a write means, `value` what they are to become.
        asks: a person must have agreed.
    """

    method: str
    params: dict[str, Any]
    place: tuple[str, str]
    plan: Counter[tuple[str, str]]
    mask: int = 0
    value: int = 0
    asks: bool = False

    @property
    def device(self) -> str:
        """The device that it is about."""
        return self.place[0]


@dataclass(eq=False)
class Op:
    """What is known of one key: the request it is bound to, what was done under it, the answer that is final.

    Attributes:
        bound: whether it is known to be; an `unanswered` request may have bound it, or may not.
        shaken: between the look before its dispatch and the look after it the chip restarted, or another master wrote.
    """

    caller: Caller
    key: str
    request: Request
    bound: bool = False
    unanswered: list[Request] = field(default_factory=list)
    did: list[Did] = field(default_factory=list)
    final: Result | None = None
    op_id: int | None = None
    in_doubt: bool = False
    pending: bool = False
    agreed: bool = False
    by_person: bool = False
    shaken: bool = False


class Promise:
    """What must hold, told as faults: none while it is kept."""

    def __init__(self, drawn: Drawn) -> None:
        self.places = {(p.device, p.name): p for p in drawn.places}
        self.held: set[str] = set()  # by a person
        self.misled: set[str] = set()  # devices of which nobody can tell what was ours
        self.written_by_others: set[str] = set()  # devices that may not hold what was written to them last

    def effect(self, did: Did) -> bool:
        """Whether an access is one that needs a key."""
        return did.access == "write" or not self.places[did.device, did.register].clean

    def _latches(self, request: Request, did: Did) -> bool:
        """A read that may pass without a key, and has come under one."""
        asked = (did.register, did.access) in request.plan
        return asked and self.places[did.device, did.register].reads != {"none"}

    def at_rest(self, did: list[Did]) -> list[str]:
        """Of what was done while no keyed request was at work: nothing had an effect, nothing has changed."""
        return [f"{d} without a request" for d in did if self.effect(d) or d.changed]

    def heard(self, op: Op, request: Request, result: Result | None, did: list[Did], unknown: list[Op]) -> list[str]:
        """Of what was done for a request, and what was answered.

        Args:
            unknown: operations at this device that were unknown before, and still are.
        """
        code = None if result is None or result.error is None else result.error["code"]
        acts = [d for d in did if self.effect(d) or (d.device == request.device and self._latches(request, d))]
        found = self.at_rest([d for d in did if d not in acts])
        if op.bound and request is not op.request:
            found += [f"{d} under a key that is another request's" for d in acts]
            if result is not None and code not in NOT_FOR_GOOD:
                found.append(f"another request under {op.key} is answered {result.status} {code}")
            return found
        if code == "key_conflict":
            others = [r for r in op.unanswered if r != request]
            op.request = others[0] if others else op.request
            return found if others else [*found, f"{op.key} is new, and called another request's"]
        if result is None or code == "store_failed":
            op.unanswered.append(request)
        op.request = request
        op.did += acts
        op.bound = op.bound or bool(acts) or (result is not None and result.id is not None)
        if acts:
            found += self._permitted(op, unknown)
            found += [fault for d in acts for fault in self._as_asked(op, d)]
        return found if result is None else found + self.answered(op, result)

    def _permitted(self, op: Op, unknown: list[Op]) -> list[str]:
        passes = op.request.method == "device.safe_state"
        found = [f"{op.key} acted while {o.key} was unknown" for o in unknown if not passes]
        if op.request.device in self.held and not passes:
            found.append(f"{op.key} acted while a person held {op.request.device}")
        if op.request.asks and not op.agreed:
            found.append(f"{op.key} acted, and nobody has agreed")
        found += [f"{op.key} acted on {d.device}" for d in op.did if d.device != op.request.device]
        times = Counter((d.register, d.access) for d in op.did) - op.request.plan
        return found + [f"{op.key}: {at} {n} times more than was asked for" for at, n in times.items()]

    def _as_asked(self, op: Op, did: Did) -> list[str]:
        """Of one access: a write is of the value that was asked for; a field update leaves the rest as it is."""
        request, whole = op.request, (1 << self.places[did.device, did.register].bits) - 1
        if did.access != "write" or not did.whole:  # a frame that broke off is no write of the whole
            return []
        wrong, others = (did.raw ^ request.value) & request.mask, whole & ~request.mask & ~did.kept
        found = [f"{op.key}: {did}, asked for {request.value:#x} in {request.mask:#x}"] if wrong else []
        told = not op.shaken and request.device not in self.written_by_others
        return found + ([f"{op.key}: {did} changed {others:#x} besides"] if others and told else [])

    def in_order(self, ops: list[Op], did: list[Did]) -> list[str]:
        """Of two requests at once at one device: after one whose outcome is unknown, the other does not act."""
        found = []
        for first, second in (ops, ops[::-1]):
            own = [n for n, d in enumerate(did) if d in first.did]
            later = [d for d in did[own[-1] + 1 :] if d in second.did and self.effect(d)] if own else []
            if later and first.in_doubt and second.request.method != "device.safe_state":
                found.append(f"{second.key} acted after {first.key}, which is unknown")
        return found

    def answered(self, op: Op, result: Result) -> list[str]:
        """Of an answer about an operation: it is the final one if there is one, and it is true."""
        code = None if result.error is None else result.error["code"]
        op.op_id = op.op_id or result.id
        if op.final is not None:
            same = _told(result) == _told(op.final) or code == "store_failed"
            return [] if same else [f"{op.key} was {_told(op.final)}, and now is {_told(result)}"]
        op.in_doubt = code == "outcome_unknown" and result.verdict is None
        op.pending = result.status == "pending_approval"
        if result.verdict is None or code == "store_failed":
            claims = result.effects == "none" and code != "store_failed" and any(d.changed for d in op.did)
            return [f"{op.key} has effects none, and did {op.did}"] if claims else []
        op.final = result
        return [] if op.by_person or op.request.device in self.misled else self._true(op, result)

    def _true(self, op: Op, result: Result) -> list[str]:
        """Of a final answer: what it says is what was done."""
        did, planned = len(op.did), op.request.plan.total()
        found = []
        if result.effects == "none" and any(d.changed for d in op.did) and not op.shaken:
            found.append(f"effects none, and it did {op.did}")
        if result.effects == "applied" and not did:
            found.append("effects applied, and it did nothing")
        if result.verdict == "applied" and did != planned:
            found.append(f"applied, and {did} of {planned} were done")
        if result.verdict == "partial" and not 0 < did <= planned:
            found.append(f"partial, and {did} of {planned} were done")
        if result.verdict == "denied" and did:
            found.append(f"denied, and it did {op.did}")
        if op.request.method == "reg.read_effectful":
            given = [self.places[d.device, d.register].shown(d.raw) for d in op.did]
            told = [str(v["raw"]).removeprefix("0x") for v in result.values or []]
            if told != given[: len(told)] or (result.ok and told != given):
                found.append(f"it answers {told}, and the chip gave {given}")
            found += _loss(result, len(given) - len(told))
        return [f"{op.key} ({op.request.method} {op.request.params}) is {_told(result)}: {fault}" for fault in found]


def _loss(result: Result, gone: int) -> list[str]:
    """Of values that the chip gave up and the answer has not: that is said, and the bounds hold."""
    found = []
    if gone and result.verdict not in ("lost", "partial", "superseded", "abandoned"):
        found.append(f"{gone} values are gone, and nobody says so")
    least, _, most = str((result.error or {}).get("bound") or "").rpartition("..")
    if most and not int(least or most) <= gone <= int(most):
        found.append(f"{gone} values are gone, and {least}..{most} are said to be")
    return found


def clean_read(places: list[Place], result: Result | None, did: list[Did]) -> list[str]:
    """Of a request without a key: the effects of its registers need none, and its values are the chip's."""
    if result is None or not result.ok:
        return []
    found = [f"{p.name} was read without a key" for p in places if not p.clean]
    for place, value in zip(places, result.values or [], strict=True):
        given = {place.shown(d.raw) for d in did if d.register == place.name}
        if str(value["raw"]).removeprefix("0x") not in given:
            found.append(f"{place.name} is told as {value['raw']}, and the chip gave {given}")
    return found


def _told(result: Result) -> tuple[Any, ...]:
    values = [v["raw"] for v in result.values or []]
    return result.status, result.effects, result.verdict, None if result.error is None else result.error["code"], values
