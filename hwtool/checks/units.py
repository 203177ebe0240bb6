"""Sequences, safe states and freezes: what stops, what passes, and that each is counted at the device."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hwtool.checks.rig import OPERATOR, Check, Rig

DEVICE = "gpio"


def _code(error: dict[str, object] | None) -> object:
    return None if error is None else error["code"]


async def units(rig: Rig) -> AsyncIterator[Check]:
    """Run them in order; the device is left released and safe."""
    steps = [
        {"do": "write", "register": f"{DEVICE}.OLATB", "value": 0x0F},
        {"do": "expect", "register": f"{DEVICE}.OLATB", "equals": 0xF0},
        {"do": "write", "register": f"{DEVICE}.OLATA", "value": 0x0F},
    ]
    key = rig.key()
    with rig.counting(DEVICE, "OLATB", "write") as first, rig.counting(DEVICE, "OLATA", "write") as later:
        stopped = await rig.call("sequence.run", steps=steps, key=key)
        again = await rig.call("sequence.run", steps=steps, key=key)
    held = stopped.verdict == "partial" and (first[0], later[0]) == (1, 0)
    yield Check("a sequence stops at the first step that is not proven", held, f"{first[0]} and {later[0]} executed")
    yield Check("its key replays it", again.replayed and again.verdict == "partial", f"replayed {again.replayed}")

    await rig.call("device.hold", OPERATOR, device=DEVICE, reason="check")
    await rig.call("daemon.freeze", OPERATOR, reason="check")
    key = rig.key()
    with rig.counting(DEVICE, "OLATA", "write") as executed:
        refused = await rig.call("reg.write", register=f"{DEVICE}.OLATA", value=0x0F, key=key)
    stays_out = _code(refused.error) == "held" and executed[0] == 0
    yield Check("a held and frozen device takes no write", stays_out, f"{executed[0]} executed")
    with rig.counting(DEVICE, "OLATA", "write") as executed:
        safe = await rig.call("device.safe_state", device=DEVICE, key=rig.key())
    state = [rig.chip(DEVICE).values[name] for name in ("OLATA", "OLATB")]
    passes = safe.ok and executed[0] == 1 and state == [0, 0]
    yield Check("a safe state passes both, once", passes, f"{executed[0]} executed, OLATA and OLATB = {state}")
    await rig.call("daemon.thaw", OPERATOR)
    await rig.call("device.release", OPERATOR, device=DEVICE, reason="check")
    with rig.counting(DEVICE, "OLATA", "write") as executed:
        free = await rig.call("reg.write", register=f"{DEVICE}.OLATA", value=0x0F, key=key)
    yield Check("thawed and released, the unused key works", free.ok and executed[0] == 1, f"{executed[0]} executed")
