"""What a read with an effect must keep beside others: nobody's neighbour, and no burst twice."""

from __future__ import annotations

from hwtool.checks.asked import Asked, once_only
from hwtool.checks.rig import OPERATOR
from hwtool.checks.stand import NotApplicable, Stand, ensure
from hwtool_contracts.judge import ReadJudgement
from hwtool_contracts.model import Register
from hwtool_contracts.places import cells


def _beside(stand: Stand, device: str, register: Register) -> list[Register]:
    """The nearest clean registers below and above: what a read that bridges a gap would reach over it from."""
    contract, sides = stand.device(device).contract, list[Register]()
    own = cells(contract, register)
    below: list[tuple[int, Register]] = []
    above: list[tuple[int, Register]] = []
    for other in contract.registers.values():
        if other.name == register.name or other.space is not register.space or other.bank != register.bank:
            continue
        judged = stand.device(device).judge((other,))
        if isinstance(judged, ReadJudgement) and judged.clean:
            theirs = cells(contract, other)
            if theirs.stop <= own.start:
                below.append((own.start - theirs.stop, other))
            elif theirs.start >= own.stop:
                above.append((theirs.start - own.stop, other))
    for side in (below, above):
        sides += [min(side, key=lambda found: found[0])[1]] if side else []
    return sides


async def not_merged(stand: Stand, device: str, register: Register) -> str:
    """The registers on both sides of it are read together, and it is not reached."""
    beside = _beside(stand, device, register)
    if register.space.whole or len(beside) < 2:
        raise NotApplicable("nothing that can be read stands on both sides of it")
    for other in beside:
        judged = stand.device(device).judge((other,))
        stand.open_gates(device, judged.gates if isinstance(judged, ReadJudgement) else (), other)
    names = [f"{device}.{other.name}" for other in beside]
    with stand.counting(device, register.name, "read") as executed:
        told = await stand.call("reg.read", OPERATOR, registers=names)
    ensure(executed[0] == 0, f"a read of {' and '.join(names)} executed it {executed[0]} times")
    if not told.ok:
        raise NotApplicable(f"its neighbours are not read: {told.summary}")
    return f"0 executed by a read of {' and '.join(other.name for other in beside)}"


async def burst_once(stand: Stand, device: str, register: Register) -> str:
    """A burst takes as many elements as it says, once."""
    judged = stand.device(device).judge((register,))
    size = register.read.element_bytes or 0
    each = max(1, size // ((register.width_bits + 7) // 8))
    longest = register.read.max_burst or 1
    count = max(2, each) if max(2, each) <= longest else 0
    if not isinstance(judged, ReadJudgement) or not count:
        raise NotApplicable("it gives one element in one transfer")
    stand.open_gates(device, judged.gates, register)
    stand.fill(device, register)
    params = {"register": f"{device}.{register.name}", "count": count}
    _, executed, _ = await once_only(stand, Asked(device, ((register.name, "read"),), "reg.read_effectful", params))
    ensure(executed == count, f"{executed} elements taken by a burst of {count}")
    return f"{count} taken, replayed twice"
