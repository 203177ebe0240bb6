"""Lives of processes, each a fork of one that has everything imported: the simulator, and a daemon that may be killed.

What a life has to tell it writes as lines of JSON into a pipe; what it had no time to tell it has not told.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from hwtool.clock import Clock
from hwtool.config import Board
from hwtool.engine import Engine
from hwtool.policy import Caller
from hwtool_contracts.messages import Result
from hwtool_contracts.model import Contract
from hwtool_sim.behaviour import Behaviour
from hwtool_sim.board import chip_at_power_on
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.control import Bench
from hwtool_sim.process import SimServer
from hwtool_sim.remote import RemoteSimBus
from tests.crash.kinds import KEY, Kind
from tests.crash.labels import arm, die, know_the_dispatch, know_the_step
from tests.hwtool.conftest import OPERATOR

LIMIT_S: Final = 30.0
OTHER_KEY: Final = "crash-0002"
READING_TIME_NS: Final = 2_000_000_000


class Told:
    """The pipe into which a life reports."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def say(self, what: str, value: Any) -> None:
        """One line, written at once."""
        os.write(self._handle, json.dumps([what, value]).encode() + b"\n")

    def answer(self, moment: str, result: Result) -> None:
        """What a caller was told."""
        self.say("answer", [moment, msgspec.to_builtins(result)])


@dataclass(frozen=True)
class Ended:
    """A life that is over.

    Attributes:
        signal: that killed it, 0 if it ended by itself.
        answers: (moment, key, result), in the order they were given.
        facts: what else it told.
    """

    signal: int
    code: int
    answers: list[tuple[str, str, Result]]
    trouble: str | None
    facts: dict[str, Any]


class HostClock(Clock):
    """The host's clocks, which a person's reading time may be added to."""

    def __init__(self) -> None:
        self.later_ns = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.later_ns

    def boottime_ns(self) -> int:
        return super().boottime_ns() + self.later_ns


def end_tidily() -> None:
    """Let SIGTERM unwind this process and those it forks, so that each takes its directory and its children along."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def forked(work: Callable[[Told], None]) -> tuple[int, int]:
    """Fork a life; answers its process id and the end of the pipe to read from."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    os.close(reading)
    code = 1
    told = Told(writing)
    try:
        work(told)
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it was, it must not run on as its parent
        told.say("trouble", traceback.format_exc()[-2000:])
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(process: int, reading: int) -> Ended:
    """Wait for the end of a life, and gather what it told; one that does not end is killed and said to have hung."""
    data, trouble = b"", None
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline_s - time.monotonic()))
        if not ready:
            os.kill(process, signal.SIGKILL)
            trouble = f"it did not end within {LIMIT_S:.0f} s"
            break
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        data += piece
    os.close(reading)
    _, status = os.waitpid(process, 0)
    return gathered(data, os.waitstatus_to_exitcode(status), trouble)


def gathered(data: bytes, code: int, trouble: str | None = None) -> Ended:
    """A life that is over, by what it told and the code it ended with (negative: the signal)."""
    answers, facts = [], {}
    for line in data.split(b"\n")[:-1]:
        what, value = json.loads(line)
        if what == "answer":
            answers.append((value[0], value[1].get("key") or KEY, msgspec.convert(value[1], Result)))
        elif what == "trouble":
            trouble = value
        else:
            facts[what] = value
    return Ended(max(-code, 0), code, answers, trouble, facts)


class Chips(SimServer):
    """The simulator, which can also tell whether a killed daemon's last request has been dealt with."""

    def __init__(self, path: str, bus: SimBus) -> None:
        self._open = 0
        self._door = threading.Lock()
        super().__init__(path, Bench({"b": bus}))

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._door:
            self._open += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._door:
            self._open -= 1

    def answer(self, line: bytes) -> dict[str, Any]:
        if json.loads(line).get("control") == "connections":
            return {"connections": self._open}
        return super().answer(line)


def simulator(path: str, kind: Kind, contract: Contract) -> int:
    """Fork the process of the chip; it outlives every daemon and counts for itself."""

    def work(_: Told) -> None:
        chip = chip_at_power_on(contract) if contract.part == "sc16is750" else Chip(contract)
        for fifo in chip.fifos.values():
            fifo.clear()
        kind.arrange(chip)
        if contract.part == "sc16is750":
            chip.behaviour = Configured()  # what the harness put there does not come back with a reset
        with Chips(path, SimBus({kind.address: chip})) as server:
            server.serve_forever()

    process, reading = forked(work)
    os.close(reading)
    return process


class Configured(Behaviour):
    """The UART after a reset, its line set up again by whoever owns it."""

    def power_on(self, chip: Chip) -> None:
        """Line settings, and room to send."""
        chip.values |= {"LCR": 0x03, "TXLVL": 64}


def _make_silent() -> None:
    def silent(_: RemoteSimBus, __: int) -> None:
        """Most chips cannot tell whether they restarted."""

    setattr(RemoteSimBus, "boot_evidence", silent)  # noqa: B010  # a method put in its place


def first_life(kind: Kind, board: Board, store: Path, label: str | None, silent: bool) -> Callable[[Told], None]:
    """A daemon that is asked once and killed at a label; None: by somebody else, or not at all."""

    async def life(told: Told) -> None:
        clock = HostClock()
        engine = await Engine.start(board, store, clock, allow_unsafe=True)
        request = {**kind.request, "key": KEY}
        if kind.approved:
            told.answer("asked", await engine.call(kind.caller, kind.method, request))
            shown = await engine.call(OPERATOR, "approval.show", {"approval": 1})
            assert isinstance(shown.approvals, list)
            clock.later_ns += READING_TIME_NS
            code = {"approval": 1, "code": shown.approvals[0]["code"]}
            assert (await engine.call(OPERATOR, "approval.approve", code)).ok
        if label is not None:
            know_the_dispatch()
            know_the_step(kind.step)
            arm(label)
        told.answer("asked", await engine.call(kind.caller, kind.method, request))
        if label == "after the reply":
            die()
        sys.setprofile(None)
        await engine.close()

    return _life(life, silent)


def recovering_life(
    board: Board, store: Path, label: str, silent: bool, fault: Callable[[], None]
) -> Callable[[Told], None]:
    """A daemon that recovers, and is killed at a label of that if it gets there."""

    async def life(_: Told) -> None:
        fault()
        arm(label)
        engine = await Engine.start(board, store, HostClock(), allow_unsafe=True)
        await engine.rules_done(engine.daemon.devices["chip"])
        sys.setprofile(None)
        await engine.close()

    return _life(life, silent)


def last_life(kind: Kind, board: Board, store: Path, silent: bool, fault: Callable[[], None]) -> Callable[[Told], None]:
    """A daemon that recovers and is asked what became of it: by name, by the same request, and by another one."""

    async def life(told: Told) -> None:
        fault()
        engine = await Engine.start(board, store, HostClock(), allow_unsafe=True)
        await engine.rules_done(engine.daemon.devices["chip"])
        request, other = {**kind.request, "key": KEY}, {**kind.other, "key": OTHER_KEY}

        async def ask(moment: str, method: str, params: dict[str, Any], caller: Caller = kind.caller) -> Result:
            result = await engine.call(caller, method, params)
            told.answer(moment, result)
            return result

        found = await ask("found", "op.get", {"key": KEY})
        await ask("repeated", kind.method, request)
        await ask("other", "reg.write", other)
        if isinstance(found.op, dict) and found.op["state"] == "UNKNOWN":
            await ask("verified", "op.get", {"key": KEY, "verify": True})
            settle = {"id": kind.op, "verdict": "abandoned", "reason": "nobody can tell"}
            assert (await engine.call(OPERATOR, "op.settle", settle)).ok
            await ask("settled", "op.get", {"id": kind.op})
            await ask("freed", "reg.write", other)
        await ask("at last", "op.get", {"key": KEY})
        if kind.home is not None:
            await ask("home", "reg.read", {"registers": [kind.home[0]]})
        await engine.close()

    return _life(life, silent)


def _life(life: Callable[[Told], Any], silent: bool) -> Callable[[Told], None]:
    def work(told: Told) -> None:
        if silent:
            _make_silent()
        asyncio.run(life(told))

    return work


def spread(count: int, jobs: int, work: Callable[[int, Told], None]) -> Iterator[tuple[str, Any]]:
    """Do `work` for each number below `count`, in so many processes at a time; answers what they say, as it comes."""
    with selectors.DefaultSelector() as waiting:
        processes = []
        for first in range(jobs):
            process, reading = forked(_in_turn(range(first, count, jobs), work))
            waiting.register(reading, selectors.EVENT_READ, bytearray())
            processes.append(process)
        while waiting.get_map():
            for key, _ in waiting.select():
                piece = os.read(key.fd, 1 << 16)
                key.data.extend(piece)
                while b"\n" in key.data:
                    line, _, rest = bytes(key.data).partition(b"\n")
                    key.data[:] = rest
                    what, value = json.loads(line)
                    if what == "trouble":
                        raise RuntimeError(value)
                    yield what, value
                if not piece:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
        for process in processes:
            os.waitpid(process, 0)


def _in_turn(mine: Sequence[int], work: Callable[[int, Told], None]) -> Callable[[Told], None]:
    def all_of_them(told: Told) -> None:
        for index in mine:
            work(index, told)

    return all_of_them
