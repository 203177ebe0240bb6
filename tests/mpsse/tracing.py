"""pyftdi's own decoder of MPSSE commands beside the emulated engine: a second reader of the same bytes.

What it cannot make sense of it tells as a warning of its logger, `pyftdi.mpsse.tracer`, and a test sees that there is
none. One thing is mended here: pyftdi 0.57 decodes the answer to GET_BITS where nothing has come, and leaves it on the
list of what is owed, so that every answer behind it is taken for another one's. One is added: a command that no engine
knows, and its answer of two bytes.
"""

from __future__ import annotations

from pyftdi.tracer import FtdiMpsseEngine, FtdiMpsseTracer

from hwtool_registers.buses.ftdi_adapter import NO_COMMAND


class Mended(FtdiMpsseEngine):  # type: ignore[misc]  # untyped
    """The decoder of one engine."""

    def __init__(self, interface: int) -> None:
        super().__init__(interface)
        self._commands[NO_COMMAND] = "REFUSED"

    def _cmd_refused(self) -> bool:
        self._expect_resp.append(2)
        del self._trace_tx[0]
        return True

    def _resp_refused(self) -> bool:
        if len(self._trace_rx) < 2:
            return False
        self._expect_resp.popleft()
        del self._trace_rx[:2]
        return True

    def _resp_get_bits_low(self) -> bool:
        if not self._trace_rx:
            return False
        self._expect_resp.popleft()
        del self._trace_rx[0]
        return True


class Tracer:
    """The decoders of an adapter's engines; none for a kind that pyftdi's tracer does not know."""

    def __init__(self, version: int) -> None:
        self._engines = [Mended(n) for n in range(FtdiMpsseTracer.MPSSE_ENGINES.get(version, 0))]

    def sent(self, interface: int, data: bytes) -> None:
        """Bytes to an engine."""
        if interface < len(self._engines):
            self._engines[interface].send(data)

    def came(self, interface: int, data: bytes) -> None:
        """Bytes from an engine."""
        if interface < len(self._engines) and data:
            self._engines[interface].receive(data)
