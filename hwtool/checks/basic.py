"""The seven checks: repeatable reads, and writes that one key applies once."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hwtool.checks.rig import Check, Rig

DEVICE, REGISTER = "gpio", "OLATA"
NAME = f"{DEVICE}.{REGISTER}"


async def basic(rig: Rig) -> AsyncIterator[Check]:
    """Run the seven in order."""
    await rig.call("reg.read", registers=[NAME])  # the contract's assumptions are read once, before anything counts
    bus, chip = rig.bus(DEVICE), rig.chip(DEVICE)
    before = dict(chip.values), {k: n for k, n in chip.executed.items() if k[1] == "write"}
    transfers = bus.transfers
    raws = [(r.values or [{}])[0].get("raw") for r in [await rig.call("reg.read", registers=[NAME]) for _ in range(3)]]
    yield Check("1 three reads of a plain register agree", len(set(raws)) == 1 and None not in raws, f"read {raws}")
    cost = bus.transfers - transfers
    yield Check("2 they cost three bus reads", cost == 3, f"{cost} transfers")
    after = dict(chip.values), {k: n for k, n in chip.executed.items() if k[1] == "write"}
    yield Check("3 they change nothing", before == after, f"{len(chip.values)} registers compared, no write executed")

    key = rig.key()
    with rig.counting(DEVICE, REGISTER, "write") as executed:
        results = [await rig.call("reg.write", register=NAME, value="0x55", key=key) for _ in range(3)]
    held = chip.values[REGISTER]
    once = executed[0] == 1 and held == 0x55 and all(r.ok for r in results)
    yield Check("4 three writes with one key apply once", once, f"{executed[0]} executed, {REGISTER} = {held:#04x}")
    flags = [r.replayed for r in results]
    same = len({r.id for r in results}) == 1 and len({r.effects for r in results}) == 1
    yield Check("5 the repeats are replayed", flags == [False, True, True] and same, f"replayed {flags}")
    with rig.counting(DEVICE, REGISTER, "write") as executed:
        conflict = await rig.call("reg.write", register=NAME, value="0xaa", key=key)
    code = (conflict.error or {}).get("code")
    refused = code == "key_conflict" and executed[0] == 0 and chip.values[REGISTER] == 0x55
    yield Check("6 the same key with another value is key_conflict", refused, f"{code}, {executed[0]} executed")
    with rig.counting(DEVICE, REGISTER, "write") as executed:
        again = await rig.call("reg.write", register=NAME, value="0xaa", key=rig.key())
    applied = again.ok and executed[0] == 1 and chip.values[REGISTER] == 0xAA
    yield Check(
        "7 another key applies again", applied, f"{executed[0]} executed, {REGISTER} = {chip.values[REGISTER]:#04x}"
    )
