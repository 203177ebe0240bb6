"""The demo: the whole story in a temporary directory, with a real daemon and simulated chips in their own processes.

Every step states what it expects and looks at the devices' own counters; the demo fails if one does not hold.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from hwtool.bench import BENCH
from hwtool.connection import Connection
from hwtool.losses import ConnectionLost, NoDaemon
from hwtool.session import ProtocolError
from hwtool.timeline import timeline
from hwtool_contracts.errors import explain
from hwtool_sim.process import SimConnection

START_LIMIT_S: Final = 20.0
GPIO, UART = "0x20", "0x4d"


class DemoFailed(Exception):
    """A step did not come out as it must."""


class Story:
    """The daemon of the demo, a connection to it, and one to the simulator for faults and counts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemon: subprocess.Popen[bytes] | None = None
        self._clients: list[Connection] = []
        self._sims: dict[str, SimConnection] = {}
        self.steps = 0

    def start(self) -> None:
        """Start the daemon and connect."""
        board = self._directory / "board.toml"
        board.write_text(BENCH.replace('kind = "sim"', 'kind = "sim"\nprocess = true'), encoding="utf-8")
        command = [sys.executable, "-m", "hwtool", "serve", "--board", str(board), "--allow-unsafe-store"]
        command += ["--store", str(self._directory / "store"), "--socket", str(self._directory / "run")]
        with (self._directory / "daemon.log").open("ab") as log:
            self._daemon = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
        self._clients = [self._connect("agent"), self._connect("operator")]
        self._sims = {
            bus: SimConnection(str(self._directory / "store" / f"sim-{bus}.sock")) for bus in ("i2c0", "line0")
        }

    def _connect(self, role: Any) -> Connection:
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                return Connection(self._directory / "run", role, timeout_s=START_LIMIT_S)
            except NoDaemon:
                if (self._daemon is not None and self._daemon.poll() is not None) or time.monotonic() > deadline_s:
                    log = (self._directory / "daemon.log").read_text(encoding="utf-8")
                    raise DemoFailed(f"the daemon did not start: {log}") from None
                time.sleep(0.02)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One request of the agent."""
        return self._clients[0].ask(method, params)

    def post(self, method: str, **params: Any) -> int:
        """One request of the agent whose reply nobody waits for."""
        return self._clients[0].post(method, params)

    def ask_patiently(self, method: str, **params: Any) -> dict[str, Any]:
        """As `ask`, obeying `unavailable`: wait as long as it says, then the same request with the same key."""
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            result = self.show(self.ask(method, **params))
            error = result["error"]
            if error is None or error["code"] != "unavailable":
                return result
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"{method} was still unavailable after {START_LIMIT_S} s: {error}")
            time.sleep(error["retry_after_ms"] / 1000)

    def order(self, method: str, **params: Any) -> dict[str, Any]:
        """One request of the operator."""
        return self._clients[1].ask(method, params)

    def kill(self) -> None:
        """kill -9."""
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGKILL)
            self._daemon.wait()
        self._hang_up()

    def count(self, address: str, access: str) -> int:
        """How often a chip executed an access, by its own count."""
        counts: dict[str, dict[str, int]] = self._sims["i2c0"].ask({"control": "counts"})["counts"]
        return counts[address].get(access, 0)

    def fault(self, **fault: Any) -> None:
        """Plan a fault between daemon and chip."""
        self._sims["i2c0"].ask({"control": "fault", "fault": fault})

    def _hang_up(self) -> None:
        for client in self._clients:
            client.close()
        self._clients = []

    def end(self) -> None:
        """Stop the daemon and the simulators."""
        self._hang_up()
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.send_signal(signal.SIGTERM)
            try:
                self._daemon.wait(START_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
        for sim in self._sims.values():
            with contextlib.suppress(OSError, ValueError):  # it has ended with its daemon
                sim.ask({"control": "stop"})
            sim.close()

    def tell(self, what: str) -> None:
        """A heading."""
        self.steps += 1
        click.echo(f"\n{self.steps}. {what}")

    def show(self, result: dict[str, Any]) -> dict[str, Any]:
        """What an answer says."""
        said = result["summary"] if result["error"] is None else explain(result["error"], result["effects"])
        again = ", replayed" if result["replayed"] else ""
        click.echo(f"   {result['status']}, effects {result['effects']}{again}: {said}")
        return result

    def prove(self, holds: bool, counted: str) -> None:
        """A proof at the device.

        Raises:
            DemoFailed: it does not hold.
        """
        click.echo(f"   {'counted' if holds else 'FAILED'}: {counted}")
        if not holds:
            raise DemoFailed(counted)


def _raw(result: dict[str, Any]) -> str | None:
    values = result.get("values") or [{}]
    raw: str | None = values[0].get("raw")
    return raw


def clean_reads(story: Story) -> None:
    """Clean reads may be repeated."""
    story.tell("A clean read needs no key and may be repeated")
    raws = {_raw(story.show(story.ask("reg.read", registers=["temp.TEMPERATURE"]))) for _ in range(2)}
    story.prove(raws == {"0x1900"}, "both answers are 0x1900, 25 °C")


def fifo(story: Story) -> None:
    """A read that consumes."""
    story.tell("Reading a FIFO takes something out of it: as a plain read it is refused")
    refused = story.show(story.ask("reg.read", registers=["uart.RHR"]))
    pops = story.count(UART, "RHR.read")
    story.prove((refused["error"] or {}).get("rule") == "read_has_side_effects" and pops == 0, "0 elements were popped")
    story.tell("Under a key it is done, once")
    first = story.show(story.ask("reg.read_effectful", register="uart.RHR", key="demo-fifo-1"))
    story.prove(_raw(first) == "0x68" and story.count(UART, "RHR.read") == 1, "1 element popped: 0x68, 'h'")
    story.tell("The same key again gives the same value and pops nothing")
    again = story.show(story.ask("reg.read_effectful", register="uart.RHR", key="demo-fifo-1"))
    same = _raw(again) == "0x68" and again["replayed"] and story.count(UART, "RHR.read") == 1
    story.prove(same, "still 1 element popped")


def writes(story: Story) -> None:
    """A write with its evidence, and a rehearsal."""
    story.tell("A write says what was seen, not that it was sent")
    done = story.show(story.ask("reg.write", register="gpio.OLATA", value="0x40", key="demo-write-1"))
    evidence = done["evidence"]
    click.echo(f"   evidence: {evidence['how']}, before {evidence['before']}, after {evidence['after']}")
    story.prove(story.count(GPIO, "OLATA.write") == 1 and done["effects"] == "applied", "1 write executed")
    story.tell("A rehearsal goes the whole way but the last step")
    dry = story.ask("reg.update", register="gpio.OLATA", fields={"P0": "high"}, key="demo-write-2", dry_run=True)
    story.show(dry)
    for transfer in dry["transfers"]:
        click.echo(f"   would send: {transfer['do']} {transfer['address']} {transfer['offset']} {transfer['data']}")
    story.prove(story.count(GPIO, "OLATA.write") == 1 and dry["dry_run"], "still 1 write executed, the key is unused")


def lost_reply(story: Story) -> None:
    """An unknown outcome stops the device until it is settled."""
    story.tell("A reply is lost: the outcome is unknown, and nobody pretends otherwise")
    story.fault(kind="reply_lost", address=0x4D, access="read", offset=0x00)
    lost = story.show(story.ask("reg.read_effectful", register="uart.RHR", key="demo-fifo-2"))
    story.prove(lost["effects"] == "unknown" and story.count(UART, "RHR.read") == 2, "the chip did pop: 2 elements")
    story.tell("The same key is not sent again, and the device is held")
    again = story.show(story.ask("reg.read_effectful", register="uart.RHR", key="demo-fifo-2"))
    held = story.show(story.ask("reg.read_effectful", register="uart.RHR", key="demo-fifo-3"))
    stopped = again["error"]["code"] == "outcome_unknown" and held["error"]["code"] == "held"
    story.prove(stopped and story.count(UART, "RHR.read") == 2, "still 2 elements popped")
    story.tell("No rule can tell (the FIFO's sender may have refilled it), so an operator settles it")
    reason = "RXLVL fell by one: the element is gone"
    story.show(story.order("op.settle", id=lost["id"], verdict="lost", reason=reason))
    freed = story.ask_patiently("reg.read_effectful", register="uart.RHR", key="demo-fifo-4")
    story.prove(_raw(freed) == "0x6c" and story.count(UART, "RHR.read") == 3, "3 elements popped: 0x6c, the first 'l'")


def crash(story: Story) -> None:
    """kill -9 between intent and outcome."""
    story.tell("kill -9 while a write is under way: the intent is on disk, the outcome is not")
    story.fault(kind="hang", address=0x20, access="write", offset=0x14, hang_s=1.0)
    number = story.post("reg.write", register="gpio.OLATA", value="0x99", key="demo-crash-1")
    _until(lambda: story.count(GPIO, "OLATA.write") == 2, "the write")
    story.kill()
    click.echo(f"   the daemon is dead; request {number} got no answer")
    story.prove(story.count(GPIO, "OLATA.write") == 2, "the chip did act: 2 writes executed")
    story.tell("It starts again, and settles the outcome by evidence: the chip kept its state and did not restart")
    story.start()
    settled = story.show(story.ask("op.get", key="demo-crash-1"))
    op = settled["op"]
    click.echo(f"   operation {op['id']}: {op['state']} {op['verdict']} by {op['verdict_by']}")
    by_rule = (op["state"], op["verdict"], op["verdict_by"]) == ("DONE", "applied", "rule")
    story.prove(
        by_rule and story.count(GPIO, "OLATA.write") == 2, "2 writes executed in all: the crash repeated nothing"
    )
    story.tell("The same request again: the same outcome, nothing is sent")
    again = story.show(story.ask("reg.write", register="gpio.OLATA", value="0x99", key="demo-crash-1"))
    story.prove(again["replayed"] and story.count(GPIO, "OLATA.write") == 2, "still 2 writes executed")


def units(story: Story) -> None:
    """Several steps under one key, and the way out."""
    story.tell("A sequence goes on until the first step that is not proven")
    steps = [
        {"do": "write", "register": "gpio.OLATB", "value": "0x0f"},
        {"do": "expect", "register": "gpio.OLATB", "equals": "0xf0"},
        {"do": "write", "register": "gpio.OLATB", "value": "0xff"},
    ]
    stopped = story.show(story.ask("sequence.run", steps=steps, key="demo-steps-1"))
    story.prove(
        stopped["verdict"] == "partial" and story.count(GPIO, "OLATB.write") == 1, "1 write executed, the last was not"
    )
    story.tell("An operator holds the device: nothing with an effect passes, but a safe state does")
    story.order("device.hold", device="gpio", reason="somebody works on it")
    refused = story.show(story.ask("reg.write", register="gpio.OLATB", value="0xff", key="demo-held-1"))
    safe = story.show(story.ask("device.safe_state", device="gpio", key="demo-safe-1"))
    story.order("device.release", device="gpio", reason="done")
    counts = story.count(GPIO, "OLATA.write"), story.count(GPIO, "OLATB.write")
    passed = refused["error"]["code"] == "held" and safe["ok"] and counts == (3, 2)
    story.prove(passed, "1 more write to each of the two registers that the board lists")


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise DemoFailed(f"{what} did not come")
        time.sleep(0.01)


def journal(story: Story) -> None:
    """The record of it all."""
    story.tell("The journal")
    entries = story.order("journal.read", limit=200)["entries"]
    for entry in entries:
        click.echo(f"   {timeline(entry)}")
    intents = sum(e["what"] == "intent" for e in entries)
    executed = sum(story.count(chip, what) for chip, what in ((UART, "RHR.read"), (GPIO, "OLATA.write")))
    executed += story.count(GPIO, "OLATB.write")
    counted = f"{intents} intents in the journal (a sequence's header sends nothing, a safe state two entries), "
    story.prove((intents, executed) == (8, 8), counted + f"{executed} executions counted by the chips")


def run_demo(keep: Path | None) -> int:
    """Run the story; 0 if every proof held, 1 if not."""
    # socket paths are short: not below a deep TMPDIR
    parent = None if len(tempfile.gettempdir()) < 40 else "/tmp"
    directory = keep or Path(tempfile.mkdtemp(prefix="hwtool-", dir=parent))
    directory.mkdir(parents=True, exist_ok=True)
    story = Story(directory)
    click.echo(f"hwtool demo: six simulated chips in processes of their own, a daemon, its store in {directory}")
    try:
        story.start()
        for part in (clean_reads, fifo, writes, lost_reply, crash, units, journal):
            part(story)
    except (DemoFailed, ConnectionLost, ProtocolError, OSError) as error:
        click.echo(f"\nFAIL: {error}", err=True)
        return 1
    finally:
        story.end()
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    click.echo(
        f"\nPASS: {story.steps} steps, each counted at the devices; nothing was executed twice, nothing was lost unseen"
    )
    return os.EX_OK
