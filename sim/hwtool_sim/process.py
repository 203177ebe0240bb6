"""The simulated chips in a process of their own, behind a Unix socket: devices that outlive the daemon.

One JSON object a line, each answered by one. Every one may say which bus it means, `"bus": NAME`; where the process has
exactly one it may be left out.

    {"join": true}                             → {"joined": NAME, "plugged": …}; a bus of the daemon asks this first
    {"transfer": {…}}                          → {"answer": "confirmed" | "rejected" | "ambiguous", …}
    {"boot_evidence": ADDRESS}                 → {"nonce": "…"}
    {"quiesce": true}                          → {"quiet": true | false}: what has come in is dropped; false: unplugged
    {"control": "counts"}                      → {"counts": {"0x20": {"OLATA.write": 3, …}, …}, "transfers": N}
    {"control": "values"}                      → {"values": {"0x20": {"values": {…}, "fifos": {…}, "nonce": "…", …}, …}}
    {"control": "traffic", "newest": N}        → {"traffic": [{…}, …]}: the last transfers of a bus, in order
    {"control": "set", "address": A, "register": R, "value": V}
    {"control": "push", "address": A, "register": R, "elements": [V, …]}     fill a FIFO
    {"control": "fault", "fault": {…}}         plan a fault (hwtool_sim.faults)
    {"control": "clear_faults"}
    {"control": "seed", "seed": N}             faults by chance are drawn anew from it
    {"control": "reset", "address": A}         the chip restarts
    {"control": "unplug", "power": false}      the bus vanishes; with power its chips restart when it is back
    {"control": "plug"}
    {"control": "move", "address": A, "to": B, "to_bus": NAME}
    {"control": "swap", "address": A, "contract": NAME}     or "same": true
    {"control": "stop"}

Where there are several buses and none is named, `counts` and `values` are grouped by bus and `clear_faults` is for all.
What is wrong with a request is answered with {"error": "…"}; it ends neither the connection nor the process.

A process that serves no line ends by itself when nobody has been connected for a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hwtool_contracts.library import find_contract
from hwtool_contracts.model import Contract
from hwtool_contracts.toml_reader import Faults
from hwtool_registers.bus import from_object
from hwtool_sim.answers import answer_object
from hwtool_sim.board import bus_of
from hwtool_sim.control import Bench, carry_out, check_unit
from hwtool_sim.line import RtuLine
from hwtool_sim.tcp import TcpLine

IDLE_S: Final = 60.0
ASKS: Final = ("join", "transfer", "boot_evidence", "quiesce", "control")


class SimServer(socketserver.ThreadingUnixStreamServer):
    """Serves simulated buses to any number of connections; each bus takes one transfer at a time.

    Args:
        idle_s: end when nobody has been connected for so long; None: never.
    """

    daemon_threads = True

    def __init__(self, path: str, bench: Bench, idle_s: float | None = IDLE_S) -> None:
        self.bench = bench
        self.connected = 0
        self.idle_s = idle_s
        self.idle_since_s = time.monotonic()
        self._turns = {name: threading.Lock() for name in bench.buses}  # held while a transfer hangs, too
        _remove_stale(path)
        super().__init__(path, _Connection)

    def answer(self, line: bytes) -> dict[str, Any]:
        """Answer one request; a malformed one is answered with what is wrong."""
        asked = "request"
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError("a request is an object")
            asked = next((word for word in ASKS if word in request), "request")
            return self._answer(asked, request)
        except KeyError as error:
            return {"error": f"{asked}: {error} is missing"}
        except Faults as error:
            return {"error": f"{asked}: " + "; ".join(map(str, error.faults))}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
            return {"error": f"{asked}: {error}"}

    def _answer(self, asked: str, request: dict[str, Any]) -> dict[str, Any]:
        match asked:
            case "control":
                return carry_out(self.bench, request)
            case "request":
                raise ValueError("nothing is asked; one of " + ", ".join(ASKS))
        name = self.bench.name_of(request.get("bus"))
        bus = self.bench.buses[name]
        if name in self.bench.lines:
            raise ValueError(f"bus {name} is served at {self.bench.lines[name].path}, not here")
        if asked == "join":
            return {"joined": name, "plugged": bus.is_there()}
        with self._turns[name]:
            if asked == "transfer":
                transfer = from_object(request["transfer"])
                with self.bench.lock:
                    answer, lasts_s = bus.carry(transfer)
                bus.wait(lasts_s)
                return answer_object(answer)
            with self.bench.lock:
                if asked == "boot_evidence":
                    return {"nonce": bus.boot_evidence(request["boot_evidence"])}
                if bus.is_there():
                    bus.quiesce(bus.clock())
                return {"quiet": bus.plugged}

    def service_actions(self) -> None:
        """Called between requests: end when nobody has been here for a while."""
        if self.idle_s is not None and self.connected == 0 and time.monotonic() - self.idle_since_s > self.idle_s:
            self.end()

    def end(self) -> None:
        """Let `serve_forever` return, from whatever thread."""
        threading.Thread(target=self.shutdown, daemon=True).start()


def _remove_stale(path: str) -> None:
    """A socket file whose process was killed is in the way of the next one."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)


class _Connection(socketserver.StreamRequestHandler):
    server: SimServer

    def handle(self) -> None:
        self.server.connected += 1
        try:
            for line in self.rfile:
                self.wfile.write(json.dumps(self.server.answer(line)).encode() + b"\n")
                if self.server.bench.stopping:
                    return
        except OSError:
            return  # the peer went away: its connection ends, the chips stay
        finally:
            if self.server.bench.stopping:  # acted upon once the answer has been sent, or nobody is there to have it
                self.server.end()
            self.server.connected -= 1
            self.server.idle_since_s = time.monotonic()


def bench_of(buses: Mapping[str, Mapping[int, Contract]], lines: Mapping[str, str | tuple[str, int]]) -> Bench:
    """Simulated buses with a chip at each address; nothing is opened yet.

    Args:
        lines: where the buses that are Modbus RTU lines are linked, and where those of Modbus TCP listen.

    Raises:
        ValueError: a line is no bus, or a chip of it no Modbus device.
    """
    bench = Bench({name: bus_of(chips) for name, chips in buses.items()})
    for name, path in lines.items():
        bus = bench.buses[bench.name_of(name)]
        for address, chip in bus.chips.items():
            check_unit(name, address, chip)
        bench.lines[name] = RtuLine(bus, path, bench.lock) if isinstance(path, str) else TcpLine(bus, *path, bench.lock)
    return bench


def serve(
    path: str,
    buses: Mapping[str, Mapping[int, Contract]],
    lines: Mapping[str, str | tuple[str, int]],
    *,
    idle_s: float | None = None,
    end_at: Iterable[signal.Signals] = (),
    prepare: Callable[[Bench], None] = lambda _: None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve chips until stopped: on a Unix socket, the serial lines among the buses on ptys, Modbus TCP on ports.

    Args:
        path: the socket; mode 0600.
        lines: name of a bus to the path of its link, or its host and port.
        idle_s: end when nobody has been connected for so long; None: never.
        end_at: signals that end it.
        prepare: called before anything is opened.
        ready: called once everything can be opened.

    Raises:
        OSError: the socket or a line cannot be had.
        ValueError: a chip cannot sit on its line.
    """
    bench = bench_of(buses, lines)
    prepare(bench)
    with contextlib.ExitStack() as ends, SimServer(path, bench, idle_s) as server:
        ends.callback(Path(path).unlink, missing_ok=True)
        Path(path).chmod(0o600)
        for number in end_at:
            signal.signal(number, lambda *_: server.end())
        for line in bench.lines.values():
            ends.callback(line.close)
            line.open()
        ready()
        server.serve_forever(poll_interval=0.2)


class SimConnection:
    """A line to a simulator process: asks, and waits for the one answer.

    Raises (from every method):
        OSError: nobody listens, or the process went away.
    """

    def __init__(self, path: str, timeout_s: float = 10.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rwb")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and read its answer."""
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the simulator went away")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ValueError(f"the simulator refused: {answer['error']}")
        return answer

    def stands(self) -> bool:
        """Whether the process has not gone away; nothing comes from it unasked but its end."""
        return not select.select([self._socket], [], [], 0)[0]

    def close(self) -> None:
        """Hang up; what could not be sent any more is dropped."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()


def _named(name: str | list[str]) -> Contract:
    """The contract of a name, or of a list of a name and those of the overlays laid over it."""
    return find_contract(name) if isinstance(name, str) else find_contract(name[0], None, name[1:])


def main() -> None:
    """`python -m hwtool_sim --socket PATH --chips '{"BUS": {"32": "mcp23017"}}' [--lines '{"BUS": "PATH"}']`."""
    parser = argparse.ArgumentParser(prog="hwtool_sim", description="simulated chips behind a Unix socket")
    parser.add_argument("--socket", required=True)
    parser.add_argument(
        "--chips",
        required=True,
        help="JSON object: bus to address to contract name or path, or a list of it and overlays",
    )
    parser.add_argument("--lines", default="{}", help="JSON object: bus to the path where its Modbus line is linked")
    arguments = parser.parse_args()
    os.umask(0o177)
    try:
        chips = {
            bus: {int(address, 0): _named(name) for address, name in on_it.items()}
            for bus, on_it in json.loads(arguments.chips).items()
        }
        lines = json.loads(arguments.lines)
        if lines:
            serve(arguments.socket, chips, lines, end_at=(signal.SIGTERM, signal.SIGINT))
        else:
            serve(arguments.socket, chips, {}, idle_s=IDLE_S)
    except (ValueError, AttributeError, TypeError, OSError) as error:
        parser.error(str(error))
    except Faults as error:
        parser.error("; ".join(map(str, error.faults)))
