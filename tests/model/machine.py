"""The machine: a board by chance, then requests, faults, people, crashes and time in any order, before the oracle."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hwtool.policy import Caller
from hwtool_sim.faults import Fault, FaultKind
from tests.crash.simulation.world import DECADE_NS, Chances
from tests.hwtool.conftest import AGENT, OPERATOR, OTHER
from tests.model.boards import ADDRESSES, Drawn, Place, boards
from tests.model.lives import Did, Lives
from tests.model.promise import Op, Promise, Request, clean_read
from tests.model.requests import NUMBERS, place_of, request_of

EITHER: Final = st.booleans()
SEEDS: Final = st.integers(0, 2**16)
APART: Final = frozenset(
    {
        FaultKind.EXCEPTION,  # of Modbus
        FaultKind.HANG,  # a thread's time, which is not this world's
        FaultKind.UNPLUG,  # a mishap of its own
        FaultKind.SWAP,  # another chip would not tell what it did
        FaultKind.STUCK_BITS,  # a device that does not do what it says, and an adapter that lies, break any promise
        FaultKind.FLIP,
        FaultKind.FALSE_ACK,
    }
)
LOST: Final = tuple(k for k in FaultKind if k not in APART)
MISHAPS: Final = st.one_of(
    st.none(),
    st.tuples(st.just("crash"), st.integers(0, 90)),
    st.tuples(st.just("fault"), st.integers(0, 10 * len(LOST) - 1)),
    st.tuples(st.sampled_from(("none", "none", "disk", "unplug")), st.just(0)),
)
VERDICTS: Final = ("applied", "satisfied", "not_applied", "partial", "lost", "superseded", "abandoned")
Mishap = tuple[str, int] | None


class Model(RuleBasedStateMachine):
    """Every rule plays one step, and fails where the promise is not kept."""

    counts: ClassVar[Counter[str]] = Counter()

    @initialize(drawn=boards(), seed=SEEDS)
    def begin(self, drawn: Drawn, seed: int) -> None:
        """A board, its chips, and the first daemon."""
        self.drawn, self.promise = drawn, Promise(drawn)
        self.lives = Lives(drawn, seed)
        self.ops: list[Op] = []
        self.counts["examples"] += 1
        self.lives.begin()
        for place in drawn.places:
            self._outside(place, seed)

    def _outside(self, place: Place, number: int) -> None:
        """What the world outside puts into a chip: an element, an event; what shows it shows it."""
        chip, value = self.lives.chips[place.device], (0x81 + number) * 0x01010101 & ((1 << place.bits) - 1)
        if "pop" in place.reads:
            chip.push(place.name, [value, value ^ 1])
        elif not place.clean:
            chip.values[place.name] = value
            if f"{place.name}_SHOWN" in chip.values:
                chip.values[f"{place.name}_SHOWN"] = value

    def _check(self, faults: list[str]) -> None:
        assert not faults, "; ".join(faults)

    def _done(self) -> list[Did]:
        """What the chips have done since it was asked last."""
        did, faults = self.lives.did[:], self.lives.bus.faults
        self.lives.did.clear()
        self.lives.bus.faults = [f for f in faults if f.times]
        self.counts["faults struck"] += len(faults) - len(self.lives.bus.faults)
        return did

    # what is asked

    def _place(self, data: st.DataObject) -> Place:
        return place_of(self.drawn.places, data)

    def _request(self, data: st.DataObject) -> Request:
        return request_of(self.drawn, data)

    def _struck(self, mishap: Mishap, device: str, step: str) -> int | None:
        """Let something go wrong in what comes next; the step of a crash."""
        self.counts[step] += 1
        word, number = mishap or ("none", 0)
        match word:
            case "crash":
                return number
            case "disk":
                self.lives.world.chances = Chances(disk=0.4)
            case "unplug":
                self.lives.bus.faults.append(Fault(FaultKind.UNPLUG, ADDRESSES[device]))
            case "fault":
                self._plan(LOST[number % len(LOST)], device, number // len(LOST))
        return None

    def _plan(self, kind: FaultKind, device: str, number: int) -> None:
        access: Any = ("write", "write", "read", "read", "any")[number % 5]
        more: dict[str, Any] = {}
        match kind:
            case FaultKind.LATE_REPLY:
                more = {"late_s": 0.05}
            case FaultKind.STUCK_BUS:
                more = {"lasts_s": 0.05}
            case FaultKind.DATA_NACK:
                more, access = {"after_bytes": number % 3}, "write"
            case FaultKind.FOREIGN:
                more = {"register": self.drawn.of(device)[0].name, "value": number, "when": "before"}
                self._mislead(device)
            case FaultKind.RESET:
                more = {"when": ("before", "after")[number % 2]}
                self._restarted(device)
        self.lives.bus.faults.append(Fault(kind, ADDRESSES[device], access, skip=number // 5, **more))

    def _mislead(self, device: str) -> None:
        self.promise.written_by_others.add(device)
        if self.drawn.sole_master:
            self.promise.misled.add(device)

    def _restarted(self, device: str) -> None:
        if device in self.drawn.silent:
            self.promise.misled.add(device)

    def _keyed(self, op: Op, request: Request, mishap: Mishap) -> None:
        """Ask, and have it judged; a daemon that has ended is followed by the next."""
        self._asked([(op, request)], mishap)

    def _asked(self, asked: list[tuple[Op, Request]], mishap: Mishap) -> None:
        """Ask for one or two things at once; of two, each access is given to the one that is about its register."""
        device = asked[0][1].device
        crash_after = self._struck(mishap, device, "keyed requests" if len(asked) == 1 else "keyed requests at once")
        devices = {r.device for _, r in asked}
        doubtful = [o for o in self.ops if o.in_doubt and o.request.device in devices]
        undisturbed = {d: self._disturbances(d) for d in devices}
        calls = [(o.caller, r.method, {**r.params, "key": o.key}) for o, r in asked]
        results = self.lives.ask_all(calls, crash_after)
        did = self._done()
        self._after()
        acted = [d for d in did if self.promise.effect(d)]
        unknown = [o for o in doubtful if self._is_unknown(o)] if acted else []
        rest = did
        for (op, request), result in zip(asked, results, strict=True):
            own = rest if op is asked[-1][0] else [d for d in rest if (d.device, d.register) == request.place]
            rest = [d for d in rest if d not in own]
            op.shaken = op.shaken or undisturbed[request.device] != self._disturbances(request.device)
            doubted, others = op.in_doubt, [o for o in unknown if o.request.device == request.device and o is not op]
            self._check(self.promise.heard(op, request, result, own, others))
            self.counts["unknown outcomes"] += op.in_doubt and not doubted
        pair = [op for op, _ in asked]
        if len(devices) == 1 and len(set(pair)) == 2 and None not in results:
            self._check(self.promise.in_order(pair, did))
        for (op, _), result in zip(asked, results, strict=True):
            op.in_doubt = op.in_doubt or (result is None and op.final is None)
        self.counts["accesses with an effect"] += len(acted)

    def _disturbances(self, device: str) -> tuple[str, int]:
        chip = self.lives.chips[device]
        return chip.nonce, chip.foreign.total()

    def _is_unknown(self, op: Op) -> bool:
        found = self.lives.ask(op.caller, "op.get", {"key": op.key})
        doubt = found is not None and found.error is not None and found.error["code"] == "outcome_unknown"
        return found is not None and found.verdict is None and doubt

    def _after(self) -> None:
        """What went wrong is over, but for what has been planned and has not come; nothing is begun by a start."""
        self.lives.world.chances = Chances()
        if not self.lives.alive:
            self.lives.begin()
            self._check(self.promise.at_rest(self._done()))

    @rule(data=st.data(), mishap=MISHAPS, other=EITHER)
    def ask(self, data: st.DataObject, mishap: Mishap, other: bool) -> None:
        """A new key."""
        self._ask(data, mishap, other)

    @rule(data=st.data(), mishap=MISHAPS)
    def ask_more(self, data: st.DataObject, mishap: Mishap) -> None:
        """The same: it is what everything else is about, and shall come more often than each of that."""
        self._ask(data, mishap, False)

    def _new(self, caller: Caller, data: st.DataObject, beside: int = 0) -> Op:
        """A key that its caller has not used; another one may have."""
        number = sum(o.caller is caller for o in self.ops) + beside
        return Op(caller, f"model-key-{number:02}", self._request(data))

    def _ask(self, data: st.DataObject, mishap: Mishap, other: bool) -> None:
        op = self._new(OTHER if other else AGENT, data)
        self.ops.append(op)
        self._keyed(op, op.request, mishap)

    @rule(data=st.data(), mishap=MISHAPS)
    def ask_at_once(self, data: st.DataObject, mishap: Mishap) -> None:
        """Two new keys about two registers at the same time, or one key twice."""
        first, second = (self._new(AGENT, data, beside) for beside in (0, 1))
        if first.request.place == second.request.place:
            second = first
        self.ops += list(dict.fromkeys((first, second)))
        self._asked([(first, first.request), (second, second.request)], mishap)

    @precondition(lambda self: self.ops)
    @rule(data=st.data(), mishap=MISHAPS)
    def ask_again(self, data: st.DataObject, mishap: Mishap) -> None:
        """A key that was used, for the same request or for another one."""
        op = self._op(data)
        other = self._request(data) if data.draw(NUMBERS) % 8 == 7 else op.request
        self._keyed(op, op.request if other == op.request else other, mishap)

    def _op(self, data: st.DataObject) -> Op:
        return self.ops[-1 - data.draw(NUMBERS) % len(self.ops)]

    @rule(data=st.data(), way=st.sampled_from(("plan", "dry_run", "dump")))
    def rehearse(self, data: st.DataObject, way: str) -> None:
        """A plan, a rehearsal and a dump send nothing that has an effect."""
        request = self._request(data)
        params = {**request.params, "key": "model-rehearsal"}
        if way == "dump" or (way == "dry_run" and request.method == "device.safe_state"):
            self.lives.ask(AGENT, "device.dump", {"device": request.device})
        elif way == "plan":
            self.lives.ask(AGENT, "reg.plan", {"method": request.method, "params": params})
        else:
            self.lives.ask(AGENT, request.method, {**params, "dry_run": True})
        self.counts["rehearsals and dumps"] += 1
        self._check(self.promise.at_rest(self._done()))

    @rule(data=st.data(), mishap=MISHAPS)
    def read(self, data: st.DataObject, mishap: Mishap) -> None:
        """A read without a key, of registers that may or may not be clean."""
        first = self._place(data)
        own = self.drawn.of(first.device)
        places = [first] if data.draw(EITHER) else list(dict.fromkeys((first, own[data.draw(NUMBERS) % len(own)])))
        crash_after = self._struck(mishap, first.device, "clean reads")
        names = [f"{p.device}.{p.name}" for p in places]
        result = self.lives.ask(AGENT, "reg.read", {"registers": names}, crash_after)
        did = self._done()
        self._after()
        self._check(self.promise.at_rest(did) + clean_read(places, result, did))

    @precondition(lambda self: self.ops)
    @rule(data=st.data(), verify=EITHER, mishap=MISHAPS)
    def look(self, data: st.DataObject, verify: bool, mishap: Mishap) -> None:
        """What became of an operation; its rules may look at the device."""
        op = self._op(data)
        self._looked(op, verify, self._struck(mishap, op.request.device, "looks"))

    def _looked(self, op: Op, verify: bool, crash_after: int | None = None) -> None:
        doubted = op.in_doubt
        result = self.lives.ask(op.caller, "op.get", {"key": op.key, "verify": verify}, crash_after)
        did = self._done()
        self._after()
        self._check(self.promise.at_rest(did))
        if result is not None and (result.error is None or result.error["code"] != "not_found"):
            self._check(self.promise.answered(op, result))
            self.counts["settled by rule"] += doubted and op.final is not None and not op.by_person
        elif result is not None and op.did:
            self._check([f"{op.key} acted, and is not found"])

    # what people do

    @precondition(lambda self: self._doubtful())
    @rule(data=st.data(), mishap=MISHAPS, verdict=st.sampled_from(VERDICTS))
    def settle(self, data: st.DataObject, mishap: Mishap, verdict: str) -> None:
        """A person says what became of an operation, true or not."""
        doubtful = self._doubtful()
        op = doubtful[data.draw(NUMBERS) % len(doubtful)]
        crash_after = self._struck(mishap, op.request.device, "settlements tried")
        asked = {"id": op.op_id, "verdict": verdict, "reason": "a person has looked"}
        result = self.lives.ask(OPERATOR, "op.settle", asked, crash_after)
        op.by_person = op.by_person or result is None or result.ok or result.effects == "unknown"
        op.in_doubt = op.in_doubt and not (result is not None and result.ok)
        self.promise.written_by_others.add(op.request.device)  # what a shadow rests on may be a person's word
        self.counts["settled by a person"] += result is not None and result.ok
        did = self._done()
        self._after()
        self._check(self.promise.at_rest(did))

    def _doubtful(self) -> list[Op]:
        return [o for o in self.ops if o.in_doubt and o.op_id is not None]

    def _pending(self) -> list[Op]:
        return [o for o in self.ops if o.pending and o.op_id is not None and not o.agreed]

    @precondition(lambda self: self._pending())
    @rule(data=st.data(), agree=st.sampled_from((True, True, False)), mishap=MISHAPS)
    def decide(self, data: st.DataObject, agree: bool, mishap: Mishap) -> None:
        """A person agrees to what waits for one, or does not; who had asked asks again."""
        pending = self._pending()
        op = pending[data.draw(NUMBERS) % len(pending)]
        shown = self.lives.ask(OPERATOR, "approval.show", {"approval": op.op_id})
        self.lives.run(asyncio.sleep(2.0))
        if not agree:
            self.lives.ask(OPERATOR, "approval.deny", {"approval": op.op_id, "reason": "no"})
        elif shown is not None and isinstance(shown.approvals, list) and shown.approvals:
            code = shown.approvals[0]["code"]
            given = self.lives.ask(OPERATOR, "approval.approve", {"approval": op.op_id, "code": code})
            op.agreed = given is not None and given.ok
        self.counts["agreed" if op.agreed else "not agreed"] += 1
        self._check(self.promise.at_rest(self._done()))
        self._keyed(op, op.request, mishap)

    @precondition(lambda self: len(self.ops) > 2)
    @rule(data=st.data())
    def hold_or_release(self, data: st.DataObject) -> None:
        """A person stops a device, or lets it go on: that is refused while an outcome there is unknown."""
        device = self._place(data).device
        if device in self.promise.held:
            doubtful = [o for o in self.ops if o.in_doubt and o.request.device == device and self._is_unknown(o)]
            result = self.lives.ask(OPERATOR, "device.release", {"device": device, "reason": "go on"})
            if result is not None and result.ok:
                self.promise.held.discard(device)
                self._check([f"{device} is released while {o.key} is unknown" for o in doubtful if self._is_unknown(o)])
        else:
            result = self.lives.ask(OPERATOR, "device.hold", {"device": device, "reason": "stop"})
            if result is not None and result.ok:
                self.promise.held.add(device)
        self.counts["holds and releases"] += 1
        self._check(self.promise.at_rest(self._done()))

    # what happens by itself

    @rule(data=st.data(), number=NUMBERS)
    def world(self, data: st.DataObject, number: int) -> None:
        """Elements and events come, another master writes, a chip restarts, the bus is pulled out."""
        place = self._place(data)
        chip, bus = self.lives.chips[place.device], self.lives.bus
        doubtful = any(o.in_doubt and o.request.device == place.device for o in self.ops)
        self.counts["of the world"] += 1
        match number % 8:
            case 0 | 1 | 2 if not doubtful:
                self._outside(place, number)
            case 3:
                chip.write_by_another(place.name, number * 0x01010101 & ((1 << place.bits) - 1))
                self._mislead(place.device)
            case 4:
                chip.reset()
                self._restarted(place.device)
            case 5 if bus.plugged:
                bus.unplug(power=number > 127)
                if number > 127:
                    for device in self.lives.chips:
                        self._restarted(device)
            case _:
                bus.plug()

    @rule(number=NUMBERS)
    def wait(self, number: int) -> None:
        """Time passes: a moment, a window, an hour; rules may look at devices, and look for a bus that is away."""
        longest_s = 3700.0 if self.lives.bus.plugged else 10.0
        self.lives.run(asyncio.sleep((0.01, 0.2, 1.0, longest_s)[number % 4]))
        self.counts["waits"] += 1
        self._after()
        self._check(self.promise.at_rest(self._done()))

    @rule(number=NUMBERS, clean=EITHER)
    def restart(self, number: int, clean: bool) -> None:
        """The daemon ends, with or without a word, perhaps with its chips, and starts, not always at the first try."""
        if clean:
            self.lives.stop()
        else:
            self.lives.end()
        if not clean and number % 4 == 3:  # the power was cut
            for device, chip in self.lives.chips.items():
                chip.reset()
                self._restarted(device)
        if number % 16 == 15:  # a clock was set
            self.lives.world.base_ns += DECADE_NS if number % 32 == 31 else -DECADE_NS
        self.counts["restarts"] += 1
        self.lives.begin(number if number % 2 else None)
        self._check(self.promise.at_rest(self._done()))

    def teardown(self) -> None:
        """At last nothing goes wrong any more: each key is asked for once again."""
        if not hasattr(self, "lives") or not self.lives.alive:
            return
        try:
            self.lives.bus.faults.clear()
            self.lives.bus.plug()
            self.lives.run(asyncio.sleep(1.0))
            for op in self.ops:
                self._looked(op, True)
                self._keyed(op, op.request, None)
        finally:
            self.lives.end()
            self.counts.update(self.lives.counts)
