"""A simulated bus in another process, as the daemon sees it: joined if it runs, started if it does not."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from hwtool_registers.bus import Ambiguous, Answer, Rejected, Sent, Transfer, as_object
from hwtool_sim.answers import answer_of
from hwtool_sim.lock import exclusive
from hwtool_sim.process import SimConnection

START_LIMIT_S: Final = 20.0


class RemoteSimBus:
    """The daemon's end of a bus of a simulator process; one daemon has it at a time.

    Args:
        path: the process's Unix socket.
        bus: its name there.
        chips: address to contract, to start it with; None: it must run already.
    """

    inline = False

    def __init__(
        self,
        path: str,
        bus: str,
        chips: Mapping[int, str | list[str]] | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._bus = bus
        self._held: BinaryIO | None = None
        self._chips = chips
        self._clock = clock
        self._sleep = sleep
        self._connection: SimConnection | None = None
        self._started: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Join the process, starting it first if it is ours to start; locked against other daemons until `close`.

        Raises:
            OSError: another daemon has the bus, nobody listens, it did not start in time, has no such bus, or the bus
                is unplugged.
        """
        if self._connection is not None:
            return
        fresh = self._held is None
        if self._held is None:
            in_use = f"bus {self._bus} of the simulator at {self._path} is in use by another daemon"
            self._held = exclusive(f"{self._path}.{self._bus}.lock", in_use)
        try:
            self._connection = self._connected()
            if self._ask({"join": True}).get("plugged") is False:
                raise OSError(errno.ENODEV, f"bus {self._bus} of the simulator at {self._path} is unplugged")
        except (OSError, ValueError) as error:
            self._hang_up()
            if fresh:
                self._release()
            if isinstance(error, ValueError):
                raise OSError(errno.EINVAL, str(error)) from error  # no such bus there: that does not mend itself
            raise

    def _connected(self) -> SimConnection:
        try:
            return SimConnection(self._path)
        except OSError:
            if self._chips is None:
                raise
        chips = json.dumps({self._bus: {str(address): name for address, name in self._chips.items()}})
        command = [sys.executable, "-m", "hwtool_sim", "--socket", self._path, "--chips", chips]
        # a session of its own: it must outlive a killed daemon
        self._started = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
        deadline_s = self._clock() + START_LIMIT_S
        while True:
            try:
                return SimConnection(self._path)
            except OSError as error:
                if self._started.poll() is not None or self._clock() > deadline_s:
                    raise OSError(f"the simulator at {self._path} did not start: {error}") from error
                self._sleep(0.02)

    def perform(self, transfer: Transfer) -> Answer:
        """Send one transfer to the process; see the bus contract."""
        try:
            self.open()
        except OSError as error:
            return Rejected(f"no simulator at {self._path}: {error}", "port-not-opened")
        try:
            answer = _answer(self._ask({"transfer": as_object(transfer)}))
        except OSError as error:
            self._hang_up()
            return Ambiguous(Sent.REPLY, f"the simulator went away: {error}")
        if isinstance(answer, Rejected) and answer.proof == "port-not-opened":
            self._hang_up()  # unplugged there: it is joined again when it is back
        return answer

    def alive(self) -> bool:
        """Whether the process has not gone away since it was asked last; one that is back may be another."""
        if self._connection is not None and self._connection.stands():
            return True
        self._hang_up()
        return False

    def boot_evidence(self, address: int) -> str | None:
        """The chip's nonce.

        Raises:
            OSError: the process cannot be reached.
        """
        self.open()
        try:
            nonce: str | None = self._ask({"boot_evidence": address})["nonce"]
        except OSError:
            self._hang_up()
            raise
        return nonce

    def quiesce(self, until_s: float) -> None:
        """Wait, then start again on a new connection, with nothing left on the line.

        Raises:
            OSError: the process cannot be reached, or the bus is unplugged.
        """
        rest_s = until_s - self._clock()
        if rest_s > 0:
            self._sleep(rest_s)
        self._hang_up()
        self.open()
        try:
            quiet = self._ask({"quiesce": True})["quiet"]
        except OSError:
            self._hang_up()
            raise
        if not quiet:
            raise OSError(errno.ENODEV, f"bus {self._bus} of the simulator at {self._path} is unplugged")

    def close(self) -> None:
        """Stop the process if this bus started it, else only hang up."""
        started, self._started = self._started, None
        if started is not None and started.poll() is None:
            try:
                if self._connection is None:
                    self._connection = SimConnection(self._path)
                self._ask({"control": "stop"})
            except OSError:
                started.terminate()  # it cannot be asked any more
            started.wait(START_LIMIT_S)
        self._hang_up()
        self._release()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            raise ConnectionResetError("not connected")
        return self._connection.ask({"bus": self._bus, **request})

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _answer(shown: dict[str, Any]) -> Answer:
    try:
        return answer_of(shown)
    except (KeyError, ValueError, TypeError):
        return Ambiguous(Sent.REPLY, f"the simulator answered {shown.get('answer')!r}")
