"""What a memory must keep, checked on a few bytes of it: read cleanly, written once, and nothing beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hwtool.checks.asked import Asked, once_only, other_refused, unapproved_never
from hwtool.checks.case import Case
from hwtool.checks.outcomes import loss_told, settled_truly, unknown_held
from hwtool.checks.rig import OPERATOR
from hwtool.checks.stand import UNSENT, NotApplicable, Stand, ensure
from hwtool_contracts.errors import Code
from hwtool_contracts.judge import ReadJudgement, Refused
from hwtool_contracts.judge_write import WriteJudgement, judge_write
from hwtool_contracts.model import Memory, Register


class Bytes:
    """A few bytes of a memory: what is there, and what is written over it."""

    def __init__(self, stand: Stand, device: str, memory: Memory, first: int, length: int) -> None:
        self.stand, self.device, self.memory = stand, device, memory
        self.first, self.length = first, length

    @property
    def name(self) -> str:
        """As a request has it."""
        return f"{self.device}.{self.memory.name}[{self.first}:{self.length}]"

    @property
    def place(self) -> str:
        """As a finding has it."""
        return f"{self.device}.{self.memory.name}"

    @property
    def register(self) -> Register | None:
        """The register that these bytes are; None: its contract has no such range."""
        return self.stand.device(self.device).contract.registers.get(self.name.partition(".")[2])

    @property
    def cells(self) -> bytearray:
        """What the chip holds in all of the memory."""
        return self.stand.chip(self.device).memories[self.memory.name].cells

    def held(self) -> bytes:
        """What it holds in these bytes."""
        return bytes(self.cells[self.first : self.first + self.length])

    def executed(self, access: str) -> int:
        """Accesses that the chip took part in."""
        return self.stand.executed(self.device, self.memory.name, access)

    def judged_write(self) -> WriteJudgement | Refused | None:
        """What its contract says of writing them."""
        contract, register = self.stand.device(self.device).contract, self.register
        return None if register is None else judge_write(contract, register, 0)

    def prepare(self) -> None:
        """Something in every cell, and what the access needs open."""
        self.cells[:] = bytes((0x51 + 7 * i) & 0xFF for i in range(len(self.cells)))
        register = self.register
        if register is None:
            return
        read, write = self.stand.device(self.device).judge((register,)), self.judged_write()
        gates = read.gates if isinstance(read, ReadJudgement) else ()
        gates += write.gates if isinstance(write, WriteJudgement) else ()
        self.stand.open_gates(self.device, gates, register)

    def written(self, mask: int) -> dict[str, Any]:
        """A write of other bytes than those that are there after `prepare`."""
        pattern = bytes(((0x51 + 7 * (self.first + i)) & 0xFF) ^ mask for i in range(self.length))
        return {"register": self.name, "value": {"hex": pattern.hex()}}

    def asked(self) -> Asked:
        """The write that is checked."""
        return Asked(self.device, ((self.memory.name, "write"),), "reg.write", self.written(0xFF))


def cases(stand: Stand, device: str, memory: Memory) -> Iterator[Case]:
    """Every guarantee of a memory."""
    few = Bytes(stand, device, memory, *((1, 2) if memory.size_bytes > 2 else (0, 1)))
    register = few.register
    if register is not None and memory.access.readable:
        effect = "read " + "+".join(sorted(e.value for e in memory.read.effects))
        judged = stand.device(device).judge((register,))
        clean = isinstance(judged, ReadJudgement) and judged.clean
        name, check = ("clean", _clean) if clean else ("refused_as_clean", _refused_as_clean)
        yield Case(few.place, effect, name, partial(check, few))
    if memory.access.writable:
        effect = f"write {memory.write.effect.value}"
        for name, guarantee in WRITTEN.items():
            yield Case(few.place, effect, name, partial(_prepared, few, guarantee))


async def _prepared(few: Bytes, guarantee: Callable[[Bytes], Any]) -> str:
    few.prepare()
    told: str = await guarantee(few)
    return told


async def _clean(few: Bytes) -> str:
    """Read twice: executed twice, told what is there, nothing moved."""
    few.prepare()
    stand, before, counted = few.stand, few.stand.state(few.device), few.executed("read")
    told = [await stand.call("reg.read", OPERATOR, registers=[few.name]) for _ in range(2)]
    if not all(r.ok for r in told):
        raise NotApplicable(f"not read: {told[-1].summary}")
    executed = few.executed("read") - counted
    ensure(executed == 2, f"{executed} executions of two reads")
    said = {value["hex"] for r in told for value in r.values or []}
    ensure(said == {few.held().hex()}, f"told {', '.join(sorted(said))}, and it holds {few.held().hex()}")
    ensure(stand.state(few.device) == before, "a clean read moved something")
    return "2 executed, nothing moved"


async def _refused_as_clean(few: Bytes) -> str:
    """A read with an effect is refused as a clean one, and nothing is sent."""
    few.prepare()
    counted = few.executed("read")
    told = await few.stand.call("reg.read", OPERATOR, registers=[few.name])
    code, executed = (told.error or {}).get("code"), few.executed("read") - counted
    ensure(code == Code.REFUSED and executed == 0, f"{told.status}, {code}, {executed} executed")
    return f"{code}, 0 executed"


async def _done(few: Bytes) -> str:
    """The bytes hold what was asked for."""
    asked = few.asked()
    await few.stand.done_undisturbed(asked.method, **asked.params, key=few.stand.key())
    wanted = asked.params["value"]["hex"]
    ensure(few.held().hex() == wanted, f"it holds {few.held().hex()}, asked for was {wanted}")
    return f"{few.length} bytes as asked for"


async def _once(few: Bytes) -> str:
    """Three times under one key the bytes are written once."""
    asked = few.asked()
    first, executed, key = await once_only(few.stand, asked)
    ensure(executed == 1, f"{executed} executed")
    effect = f"write {few.memory.write.effect.value}"
    few.stand.remember(few.place, effect, asked.method, asked.params | {"key": key}, first)
    return "1 executed, replayed twice"


async def _pages_kept(few: Bytes) -> str:
    """A write over the end of a page is as many writes as there are pages, and each byte is where it belongs."""
    page = few.memory.page_bytes
    if not 1 < page < few.memory.size_bytes:
        raise NotApplicable("it has no pages")
    over = Bytes(few.stand, few.device, few.memory, page - 1, 2)
    if over.register is None:
        raise NotApplicable("one request stays in one page")
    counted = over.executed("write")
    await over.stand.done_undisturbed("reg.write", **over.written(0xFF), key=over.stand.key())
    executed = over.executed("write") - counted
    wanted = over.written(0xFF)["value"]["hex"]
    ensure(over.held().hex() == wanted, f"over the end of a page it holds {over.held().hex()}, asked for was {wanted}")
    ensure(executed == 2, f"{executed} writes for two pages")
    return "2 executed for two pages"


async def _neighbours_kept(few: Bytes) -> str:
    """The bytes before and behind are as they were."""
    before = bytes(few.cells)
    await few.stand.done_undisturbed("reg.write", **few.written(0xFF), key=few.stand.key())
    written = range(few.first, few.first + few.length)
    moved = [i for i, byte in enumerate(few.cells) if byte != before[i] and i not in written]
    ensure(not moved, f"bytes {', '.join(map(hex, moved[:8]))} changed with it")
    return f"{len(before) - few.length} other bytes as they were"


async def _stuck_seen(few: Bytes) -> str:
    """A byte that does not take its value is seen."""
    few.stand.chip(few.device).memories[few.memory.name].stuck = {few.first}
    told = await few.stand.effect("reg.write", **few.written(0xFF), key=few.stand.key())
    code = None if told.error is None else told.error["code"]
    if told.status == "pending_approval" or code in UNSENT:
        raise NotApplicable(f"not sent, whoever asks: {code}")
    if told.ok and told.effects == "unknown":
        raise NotApplicable("nothing of it is looked at, and that is said: unverified")
    ensure(not told.ok, f"byte {few.first:#x} stayed as it was, and the write was told {told.verdict}")
    return f"{code}, verdict {told.verdict}"


async def _approval_asked(few: Bytes) -> str:
    judged = few.judged_write()
    return await unapproved_never(few.stand, few.asked(), isinstance(judged, WriteJudgement) and bool(judged.approval))


WRITTEN: dict[str, Callable[[Bytes], Any]] = {
    "done": _done,
    "once": _once,
    "other_request": lambda few: other_refused(few.stand, few.asked(), "reg.write", few.written(0x0F)),
    "loss_told": lambda few: loss_told(few.stand, few.asked()),
    "unknown_held": lambda few: unknown_held(few.stand, few.asked()),
    "settled_truly": lambda few: settled_truly(few.stand, few.asked(), few.prepare),
    "stuck_seen": _stuck_seen,
    "neighbours_kept": _neighbours_kept,
    "pages_kept": _pages_kept,
    "approval_asked": _approval_asked,
}
