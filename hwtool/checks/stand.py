"""The stand of the checks: a board's devices as fresh simulated chips, one case after the other, with what was counted.

Each case begins with the chip at power-on, nothing held and nothing in doubt, and has a timeline of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hwtool.approvals import TOO_SOON_NS
from hwtool.checks.rig import AGENT, OPERATOR, Rig
from hwtool.checks.simulated import OwnTime
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool.policy_table import Gate
from hwtool_contracts.effects import WriteEffect
from hwtool_contracts.errors import Code
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Field, Register
from hwtool_contracts.places import find_place, gate_of
from hwtool_registers.bus import as_object
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault, FaultKind

APPROVERS: Final = (Caller(0, "operator", "grant-", 0), Caller(2, "operator", "grant-", 0))
BETWEEN_CASES_S: Final = 3700.0  # rates and budgets of policy, and unanswered approvals, are over by then
CLEARS: Final = frozenset({WriteEffect.ONE_TO_CLEAR, WriteEffect.ZERO_TO_CLEAR, WriteEffect.CLEAR})
SETS: Final = frozenset({WriteEffect.ONE_TO_SET, WriteEffect.ZERO_TO_SET, WriteEffect.SET, WriteEffect.LOCK})
TOGGLES: Final = frozenset({WriteEffect.ONE_TO_TOGGLE, WriteEffect.ZERO_TO_TOGGLE})
ON_ZEROS: Final = frozenset({WriteEffect.ZERO_TO_CLEAR, WriteEffect.ZERO_TO_SET, WriteEffect.ZERO_TO_TOGGLE})
UNSENT: Final = frozenset(
    {Code.DENIED, Code.REFUSED, Code.RATE_LIMITED, Code.UNAVAILABLE, Code.INVALID_ARGS, Code.STALE}
)  # said of what was not sent


class Broken(Exception):
    """A guarantee did not hold; the text says what was counted."""


class NotApplicable(Exception):
    """A guarantee cannot be checked here; the text says why."""


def ensure(condition: bool, told: str) -> None:
    """The guarantee holds as far as this goes.

    Raises:
        Broken: it does not.
    """
    if not condition:
        raise Broken(told)


class Remembered(NamedTuple):
    """A request that is to be answered by the same result after a restart."""

    place: str
    effect: str
    method: str
    params: dict[str, Any]
    result: Result


class Stand(Rig):
    """One engine on the simulated board.

    Attributes:
        time: of the engine and of the chips.
        remembered: what a later life of the daemon must know.
    """

    def __init__(self, engine: Engine, time: OwnTime) -> None:
        super().__init__(engine)
        self.time = time
        self.remembered: list[Remembered] = []
        self._fresh: dict[str, Chip] = {}
        self._said: list[str] = []
        self._sent = 0
        for device in engine.daemon.devices.values():
            bus = self.bus(device.name)
            bus.clock = time.monotonic_s

    def chip(self, device: str) -> Chip:
        """The chip of a device as it is now."""
        return self.bus(device).chips[self.device(device).spec.place]

    def named(self, device: str, register: str) -> str:
        """A register's name at the chip: that of a part of one has its cluster before it."""
        part, chip = self.device(device).spec.part, self.chip(device)
        return register if part is None or register in chip.contract.registers else f"{part}.{register}"

    def taken_by(self, device: str, register: str) -> str:
        """The register of the chip that a write of this one reaches, by whose name it is counted and kept."""
        name, chip = self.named(device, register), self.chip(device)
        there = chip.contract.registers.get(name)
        return name if there is None else chip.taker(there)

    def executed(self, device: str, register: str, access: str) -> int:
        """How often the chip took part in an access to one of its registers."""
        name = self.taken_by(device, register) if access == "write" else self.named(device, register)
        return self.chip(device).executed[name, access]

    def state(self, device: str) -> tuple[dict[str, int], dict[str, bytes]]:
        """What the chip holds: in its registers, and in its memories."""
        chip = self.chip(device)
        return dict(chip.values), {name: bytes(memory.cells) for name, memory in chip.memories.items()}

    async def fresh(self, name: str) -> None:
        """The chip at power-on, as its contract assumes it; nothing planned, held or in doubt. No restart shows."""
        bus, device = self.bus(name), self.device(name)
        bus.faults = []
        await self.engine.rules_done(device)
        for op_id in sorted(device.unknown):
            await self.engine.call(
                OPERATOR, "op.settle", {"id": op_id, "verdict": "abandoned", "reason": "the next case begins"}
            )
        if device.hold is not None:
            await self.engine.call(OPERATOR, "device.release", {"device": name, "reason": "the next case begins"})
        self.time.advance(BETWEEN_CASES_S)
        place, before = device.spec.place, self.chip(name)
        if name not in self._fresh:
            bus.chips[place] = chip_at_power_on(before.contract)
            for assume in device.contract.assumes:
                self._set(name, assume.register, assume.field, assume.value)
            self._fresh[name] = bus.chips[place]
        bus.chips[place] = self._fresh[name].copied()
        bus.chips[place].nonce = before.nonce
        self._said = []
        self._sent = bus.transfers

    def _set(self, device: str, register: str, field: str | None, value: int) -> None:
        chip, declared = self.chip(device), self.register(device, register)
        name = self.named(device, register)
        if field is None:
            chip.values[name] = value
        else:
            bits = declared.fields[field]
            chip.values[name] = chip.values[name] & ~bits.mask | bits.placed(value)

    def remember(self, place: str, effect: str, method: str, params: dict[str, Any], result: Result) -> None:
        """Keep what a request was answered."""
        self.remembered.append(Remembered(place, effect, method, params, result))

    def open_gates(self, device: str, gates: tuple[str, ...], beside: Register) -> None:
        """Have the places hold what an access needs there."""
        for gate in gates:
            place, value = gate_of(gate)
            found = find_place(self.device(device).contract, place, beside)
            if found is not None:
                register, field = found
                self._set(device, register.name, None if field is None else field.name, 1 if value is None else value)

    def charge(self, device: str, register: Register, part: Field | None, effect: WriteEffect, bits: int) -> None:
        """Have bits of a register hold what a write with this effect would change."""
        chip, name = self.chip(device), self.taken_by(device, register.name)
        bits &= register.mask if part is None else part.mask
        if effect in CLEARS:
            chip.values[name] |= bits
        elif effect in SETS:
            chip.values[name] &= ~bits

    def fill(self, device: str, register: Register) -> None:
        """Something to take, where reading takes."""
        name, chip = self.named(device, register.name), self.chip(device)
        if name in chip.fifos:
            chip.push(name, [0x31, 0x32, 0x33, 0x34])  # "1" to "4": a value may be a text

    def policy_asks(self, device: str, register: str, access: str) -> bool:
        """Whether the board's policy has an agent ask a person for an effect: the first rule that matches decides."""
        for rule in self.engine.daemon.board.policy:
            if rule.meant_for(AGENT.uid, AGENT.groups) and rule.about(device, register):
                return (rule.effectful_read if access == "read" else rule.write) is Gate.APPROVAL
        return False

    async def lose(self, kind: FaultKind, device: str, method: str, /, **params: Any) -> None:
        """Plan a loss at the first access of a request, where its plan has it; what selects a bank is spared.

        Raises:
            NotApplicable: it has no plan.
        """
        plan = await self.call("reg.plan", OPERATOR, method=method, params=params)
        accesses = [t for t in plan.transfers or [] if t["role"] == "access"]
        if not accesses:
            raise NotApplicable(f"nothing is planned: {plan.summary}")
        first = accesses[0]
        reads = first["do"] == "read" or first.get("read_bytes", 0) > 0 or first.get("expects_reply", False)
        at = int(first["offset"], 0) if "offset" in first else int.from_bytes(bytes.fromhex(first.get("data", ""))[:4])
        place = self.device(device).spec.place
        self.bus(device).faults = [Fault(kind, place, "read" if reads else "write", offset=at)]

    async def call(self, method: str, caller: Caller = AGENT, /, **params: Any) -> Result:
        """One request, with a line in the timeline."""
        result = await super().call(method, caller, **params)
        code = "" if result.error is None else f", {result.error['code']}"
        told = f"{caller.role} {method} {_brief(params)}"
        self._said.append(f"{told}: {result.status}{code}, effects {result.effects}: {result.summary}")
        return result

    async def effect(self, method: str, /, **params: Any) -> Result:
        """A keyed request of an operator, approved by whoever may where it needs that."""
        result = await self.call(method, OPERATOR, **params)
        if result.status != "pending_approval":
            return result
        for approver in APPROVERS:
            shown = await self.call("approval.show", approver, approval=result.id)
            if shown.approvals:
                self.time.advance(TOO_SOON_NS / 1e9 + 0.1)
                granted = await self.call(
                    "approval.approve", approver, approval=result.id, code=shown.approvals[0]["code"]
                )
                if granted.ok:
                    return await self.call(method, OPERATOR, **params)
        return result

    async def done_undisturbed(self, method: str, /, **params: Any) -> Result:
        """As `effect`, of a request that nothing keeps from being done.

        Raises:
            NotApplicable: policy, a gate or a rule of the contract keeps it from being sent.
            Broken: it was sent, and is not done.
        """
        result = await self.effect(method, **params)
        if result.ok:
            return result
        code = "an approval" if result.error is None else str(result.error["code"])
        if result.status == "pending_approval" or code in UNSENT:
            raise NotApplicable(f"not sent, whoever asks: {code}: {result.summary}")
        raise Broken(f"{code}: {result.summary}")

    def timeline(self, device: str) -> tuple[str, ...]:
        """What was asked for and answered, then what the bus was asked for, in order."""
        bus = self.bus(device)
        sent = list(bus.log)[-(bus.transfers - self._sent) :] if bus.transfers > self._sent else []
        return (*self._said, *(f"bus: {as_object(t)}" for t in sent))


def _brief(params: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())
