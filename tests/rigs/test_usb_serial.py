"""A USB serial port is pulled out under a request and put back, on a Linux kernel (ftdi_sio) with QEMU's usb-serial.

The slave is libmodbus on this side of it; frames are counted on the wire between the two.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from hwtool_contracts.model import Space
from hwtool_registers.bus import RegisterRead, RegisterWrite
from hwtool_registers.buses.modbus import request_of
from tests.modbus.libmodbus_slave import LIBRARY, library
from tests.modbus.test_conformance import started
from tests.modbus.wire import Wire
from tests.rigs import guest
from tests.rigs.test_kernel_i2c import TOP

LIMIT_S = 150.0
READ = RegisterRead(17, Space.HOLDING, 5, 2, 1, 3)
WRITE = RegisterWrite(17, Space.HOLDING, 7, b"\x12\x34", 1, 6)
READ_BACK = RegisterRead(17, Space.HOLDING, 7, 2, 1, 3)


def await_file(one: guest.Guest, name: str) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not (one.out / name).exists():
        assert one.process.poll() is None, (one.out / "said").read_text()  # it ended before
        assert time.monotonic() < until_s, f"the guest has not come to {name}"
        time.sleep(0.1)  # no event crosses over


@pytest.mark.timeout(400)
def test_port_when_pulled_out_under_a_write_then_in_doubt_at_once_and_found_again_by_its_name(tmp_path: Path) -> None:
    why = guest.missing()
    if why is None and "PYTEST_XDIST_WORKER" in os.environ:
        why = "half a minute of emulation, which the gate has not: python -m tests.rigs --only usb"
    if why is not None:
        pytest.skip(why)
    try:
        library()
        kernel = guest.built(TOP / ".peers" / "guest")
    except OSError as error:
        pytest.skip(f"{error} ({LIBRARY} is Debian's libmodbus5)")
    wire = Wire()
    slave = started("tests.modbus.libmodbus_slave", "rtu", wire.slave_end, str(tmp_path / "counts"))
    script = f"cd {shlex.quote(str(TOP))}; {shlex.quote(sys.executable)} -m tests.rigs.unplug\n"
    try:
        with guest.booted(kernel, script, usb_line=wire.master_end) as one:
            await_file(one, "ready")
            slave.send_signal(signal.SIGSTOP)
            (one.out / "go").touch()
            until_s = time.monotonic() + LIMIT_S
            while request_of(WRITE) not in wire.requests:
                assert time.monotonic() < until_s
                time.sleep(0.01)
            one.tell("device_del", id="line")
            await_file(one, "gone")
            slave.send_signal(signal.SIGCONT)
            while "6 7" not in (tmp_path / "counts").read_text():  # now it carries out what was asked
                assert time.monotonic() < until_s
                time.sleep(0.01)
            one.tell("device_add", driver="usb-serial", chardev="line", id="again")
            (one.out / "back").touch()
            ended = one.ended()
    finally:
        slave.send_signal(signal.SIGCONT)
        slave.kill()
        slave.communicate()
        wire.close()
    assert ended.code == 0, ended.said
    said = [json.loads(line) for line in ended.said.splitlines() if line.startswith("[")]
    assert [line[:4] for line in said] == [
        ["at first", False, "confirmed", "000f"],
        ["pulled out", False, "ambiguous", "reply"],
        ["away", False, "rejected", "port-not-opened"],
        ["back again", False, "confirmed", "1234"],
    ], said
    assert wire.requests == [request_of(t) for t in (READ, WRITE, READ_BACK)]
