"""The same ideas for each read and write effect that the bundled chips have, found by walking their contracts.

For a read with effects: as a clean read it is refused and nothing moves on the bus; three times under one key it is
executed once and answers the same value; a lost reply is unknown and is never sent again. For a write: three times
under one key it is executed once; another value is a conflict; a lost reply is unknown and is never sent again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from hwtool.checks.rig import OPERATOR, Check, Rig
from hwtool.checks.samples import Sample, sample_of
from hwtool_contracts.effects import ReadEffect, WriteEffect
from hwtool_contracts.judge import ReadJudgement, Refused
from hwtool_contracts.model import Register
from hwtool_sim.faults import Fault, FaultKind


def read_samples(rig: Rig) -> Iterator[tuple[str, Register, str]]:
    """For each chip and each read effect that needs a key, the first register that has it."""
    seen = set()
    for name, device in rig.engine.daemon.devices.items():
        for register in device.contract.registers.values():
            judged = device.judge((register,))
            if isinstance(judged, Refused) or judged.clean:
                continue
            for effect in sorted(judged.effects):
                if (name, effect) not in seen:
                    seen.add((name, effect))
                    yield name, register, effect


def write_samples(rig: Rig) -> Iterator[Sample]:
    """For each chip and each write effect, the first register or field that can be written with it."""
    seen = set()
    for name, device in rig.engine.daemon.devices.items():
        for register in device.contract.registers.values():
            for part in (*register.fields.values(), None):
                effect = (part or register).write.effect
                if (name, effect) in seen:
                    continue
                found = sample_of(name, device, register, part, rig.chip(name).values[register.name])
                if found is not None and found.other is not None:
                    seen.add((name, effect))
                    yield found


async def effects(rig: Rig) -> AsyncIterator[Check]:
    """Run all of them; each line names chip, register and effect."""
    for device, register, effect in list(read_samples(rig)):
        yield await _refused_as_clean(rig, device, register, effect)
        yield await _read_once(rig, device, register, effect)
    for sample in list(write_samples(rig)):
        yield await _write_once(rig, sample)
    for device, register, effect in list(read_samples(rig)):
        yield await _read_lost(rig, device, register, effect)
    for sample in list(write_samples(rig)):
        yield await _write_lost(rig, sample)


async def _refused_as_clean(rig: Rig, device: str, register: Register, effect: str) -> Check:
    await rig.engine.call(OPERATOR, "reg.read", {"registers": [_clean_register(rig, device)]})
    before = rig.bus(device).transfers
    result = await rig.call("reg.read", registers=[f"{device}.{register.name}"])
    sent = rig.bus(device).transfers - before
    code = (result.error or {}).get("code")
    name = f"read {effect}: {device}.{register.name} as a clean read is refused"
    return Check(name, code == "refused" and sent == 0, f"{code}, {sent} transfers")


def _clean_register(rig: Rig, device: str) -> str:
    """A register of the device that can be read without effect."""
    for register in rig.device(device).contract.registers.values():
        judged = rig.device(device).judge((register,))
        if isinstance(judged, ReadJudgement) and judged.clean and register.bank is None:
            return f"{device}.{register.name}"
    raise LookupError(f"{device} has no clean register")


async def _read_once(rig: Rig, device: str, register: Register, effect: str) -> Check:
    _fill(rig, device, register)
    key = rig.key()
    with rig.counting(device, register.name, "read") as executed:
        results = [
            await rig.call("reg.read_effectful", register=f"{device}.{register.name}", key=key) for _ in range(3)
        ]
    raws = {(r.values or [{}])[0].get("raw") for r in results}
    passed = (
        executed[0] == 1
        and len(raws) == 1
        and None not in raws
        and [r.replayed for r in results] == [False, True, True]
    )
    name = f"read {effect}: {device}.{register.name} three times under one key is executed once"
    return Check(name, passed, f"{executed[0]} executed, answers {sorted(map(str, raws))}")


def _fill(rig: Rig, device: str, register: Register) -> None:
    """Something to take, where reading takes."""
    chip = rig.chip(device)
    if register.name in chip.fifos:
        chip.push(register.name, b"abc")


async def _write_once(rig: Rig, sample: Sample) -> Check:
    key, counted = rig.key(), sample.register.name
    with rig.counting(sample.device, counted, "write") as executed:
        results = [await rig.call(sample.method, OPERATOR, key=key, **sample.params) for _ in range(3)]
        conflict = await rig.call(sample.method, OPERATOR, key=key, **(sample.other or {}))
    code = (conflict.error or {}).get("code")
    passed = executed[0] == 1 and code == "key_conflict" and [r.replayed for r in results] == [False, True, True]
    passed = passed and all(r.ok for r in results)
    name = f"write {sample.effect}: {sample.device}.{counted} three times under one key is executed once"
    return Check(name, passed, f"{executed[0]} executed, another value: {code}, effects {results[0].effects}")


async def _read_lost(rig: Rig, device: str, register: Register, effect: str) -> Check:
    _fill(rig, device, register)
    params = {"register": f"{device}.{register.name}"}
    return await _lost(rig, device, register, "read", f"read {effect}", "reg.read_effectful", params)


async def _write_lost(rig: Rig, sample: Sample) -> Check:
    what = f"write {sample.effect}"
    params = sample.other if sample.effect is WriteEffect.STORE and sample.other else sample.params
    return await _lost(rig, sample.device, sample.register, "write", what, sample.method, params)


async def _lost(
    rig: Rig, device: str, register: Register, access: str, what: str, method: str, params: dict[str, Any]
) -> Check:
    """Lose one reply: the outcome is not claimed, the key never executes again, the device is freed by a verdict."""
    bus, key = rig.bus(device), rig.key()
    address = rig.device(device).spec.address
    bus.faults = [Fault(FaultKind.REPLY_LOST, address, access, offset=register.offset)]  # type: ignore[arg-type]
    with rig.counting(device, register.name, access) as executed:
        first = await rig.call(method, OPERATOR, key=key, **params)
        bus.faults = []
        again = [await rig.call(method, OPERATOR, key=key, **params) for _ in range(2)]
        await rig.engine.rules_done(rig.device(device))
        again.append(await rig.call(method, OPERATOR, key=key, **params))
    honest = not first.ok and first.effects == "unknown" and executed[0] == 1
    undeclared = ReadEffect.UNKNOWN.value in what
    held = rig.device(device).unknown_op is not None
    by = "rule"
    if held:
        by = "a person"
        await rig.call("op.settle", OPERATOR, id=first.id, verdict="abandoned", reason="safety check")
    final = await rig.call("op.get", OPERATOR, key=key)
    free = rig.device(device).held() is None
    name = f"{what}: {device}.{register.name} with its reply lost is not claimed and not sent again"
    counted = f"{executed[0]} executed, {first.effects}, then {final.verdict} by {by}"
    return Check(name, honest and free and (not undeclared or not held) and final.verdict is not None, counted)
