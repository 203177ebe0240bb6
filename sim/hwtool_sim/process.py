"""The simulated chips in a process of their own, behind a Unix socket: devices that outlive the daemon.

One JSON object a line, each answered by one:

    {"transfer": {…}}                          → {"answer": "confirmed" | "rejected" | "ambiguous", …}
    {"boot_evidence": ADDRESS}                 → {"nonce": "…"}
    {"control": "counts"}                      → {"counts": {"0x20": {"OLATA.write": 3, …}, …}, "transfers": N}
    {"control": "set", "address": A, "register": R, "value": V}
    {"control": "push", "address": A, "register": R, "elements": [V, …]}     fill a FIFO
    {"control": "fault", "fault": {…}}         plan a fault (hwtool_sim.faults)
    {"control": "reset", "address": A}         the chip restarts
    {"control": "stop"}

The process ends by itself when nobody has been connected for a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import socketserver
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from hwtool_contracts.library import find_contract
from hwtool_registers.bus import Ambiguous, Answer, Confirmed, Rejected, from_object
from hwtool_sim.board import bus_of
from hwtool_sim.bus import SimBus
from hwtool_sim.chip import Chip
from hwtool_sim.faults import Fault

IDLE_S: Final = 60.0


def answer_object(answer: Answer) -> dict[str, Any]:
    """An answer as it goes over the socket."""
    match answer:
        case Confirmed(data):
            return {"answer": "confirmed", "data": data.hex()}
        case Rejected(fault, proof):
            return {"answer": "rejected", "fault": fault, "proof": proof}
        case Ambiguous(stage, fault):
            return {"answer": "ambiguous", "stage": stage.value, "fault": fault}


def counts_of(bus: SimBus) -> dict[str, dict[str, int]]:
    """Executions by chip and register, pulses included."""
    found = {}
    for address, chip in bus.chips.items():
        counts = {f"{name}.{access}": n for (name, access), n in sorted(chip.executed.items())}
        counts |= {f"{name}.pulse": n for name, n in sorted(chip.pulses.items())}
        found[f"{address:#04x}"] = counts
    return found


class SimServer(socketserver.ThreadingUnixStreamServer):
    """Serves one simulated bus to any number of connections, one request at a time."""

    daemon_threads = True

    def __init__(self, path: str, bus: SimBus) -> None:
        self.bus = bus
        self.one_at_a_time = threading.Lock()
        self.connected = 0
        self.stop_asked = False
        self.idle_since_s = time.monotonic()
        _remove_stale(path)
        super().__init__(path, _Connection)

    def answer(self, line: bytes) -> dict[str, Any]:
        """Answer one request; a malformed one is answered with what is wrong."""
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError("a request is an object")
            with self.one_at_a_time:
                if "transfer" in request:
                    return answer_object(self.bus.perform(from_object(request["transfer"])))
                if "boot_evidence" in request:
                    return {"nonce": self.bus.boot_evidence(request["boot_evidence"])}
                return self._control(request)
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _control(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("control"):
            case "counts":
                return {"counts": counts_of(self.bus), "transfers": self.bus.transfers}
            case "set":
                _set(self.bus.chips[request["address"]], request["register"], request["value"])
            case "push":
                chip, name = self.bus.chips[request["address"]], request["register"]
                if name not in chip.fifos:
                    raise ValueError(f"{name} is no FIFO of {chip.contract.part}")
                chip.push(name, msgspec.convert(request["elements"], list[int]))
            case "fault":
                self.bus.faults.append(msgspec.convert(request["fault"], Fault))
            case "reset":
                self.bus.chips[request["address"]].reset()
            case "stop":
                self.stop_asked = True  # acted upon once the answer has been sent
            case other:
                raise ValueError(f"no control is called {other!r}")
        return {"done": True}

    def service_actions(self) -> None:
        """Called between requests: end when nobody has been here for a while."""
        if self.connected == 0 and time.monotonic() - self.idle_since_s > IDLE_S:
            threading.Thread(target=self.shutdown, daemon=True).start()


def _set(chip: Chip, name: str, value: int) -> None:
    """The outside world sets a register, without any effect."""
    register = chip.contract.registers[name]
    if not isinstance(value, int) or not 0 <= value <= register.mask:
        raise ValueError(f"{name} has {register.width_bits} bits; {value!r} does not fit")
    chip.values[name] = value


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
                if self.server.stop_asked:
                    threading.Thread(target=self.server.shutdown, daemon=True).start()
                    return
        except OSError:
            return  # the peer went away: its connection ends, the chips stay
        finally:
            self.server.connected -= 1
            self.server.idle_since_s = time.monotonic()


def serve(path: str, contracts: dict[int, str]) -> None:
    """Serve chips with these contracts (bundled names or paths) until stopped."""
    bus = bus_of({address: find_contract(name) for address, name in contracts.items()})
    with SimServer(path, bus) as server:
        Path(path).chmod(0o600)
        try:
            server.serve_forever(poll_interval=0.2)
        finally:
            Path(path).unlink(missing_ok=True)


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

    def close(self) -> None:
        """Hang up; what could not be sent any more is dropped."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()


def main() -> None:
    """`python -m hwtool_sim --socket PATH --chips '{"32": "mcp23017"}'`."""
    parser = argparse.ArgumentParser(prog="hwtool_sim", description="simulated chips behind a Unix socket")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--chips", required=True, help="JSON object: address to contract name or path")
    arguments = parser.parse_args()
    os.umask(0o177)
    serve(arguments.socket, {int(address, 0): name for address, name in json.loads(arguments.chips).items()})
