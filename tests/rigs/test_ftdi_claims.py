"""An FTDI adapter of QEMU's on Linux's own USB: found, claimed, refused in three ways, given back, pulled out."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys

import pytest

from tests.rigs import guest
from tests.rigs.test_kernel_i2c import TOP
from tests.rigs.test_usb_serial import await_file

LIMIT_S = 240.0


@pytest.mark.timeout(400)
def test_adapter_when_claimed_refused_left_and_pulled_out_then_the_kernel_has_it_back_each_time() -> None:
    why = guest.missing()
    if why is None and "PYTEST_XDIST_WORKER" in os.environ:
        why = "a minute of emulation, which the gate has not: python -m tests.rigs --only ftdi"
    if why is not None:
        pytest.skip(why)
    try:
        kernel = guest.built(TOP / ".peers" / "guest")
    except OSError as error:
        pytest.skip(str(error))
    line, other = os.openpty()
    script = f"cd {shlex.quote(str(TOP))}; {shlex.quote(sys.executable)} -m tests.rigs.ftdi_claims\n"
    try:
        # with udevd: from it, and not from the kernel, libusb hears of what comes and goes
        with guest.booted(kernel, script, usb_line=os.ttyname(other), systemd=True) as one:
            await_file(one, "ready")
            one.tell("device_del", id="line")
            (one.out / "gone").touch()
            await_file(one, "away")
            one.tell("device_add", driver="usb-serial", chardev="line", id="again", serial="RIG1")
            (one.out / "back").touch()
            ended = one.ended(LIMIT_S)
    finally:
        os.close(line)
        os.close(other)
    assert ended.code == 0, ended.said
    said = {told[0]: told[1:] for told in (json.loads(x) for x in ended.said.splitlines() if x.startswith("["))}
    note = "ftdi-RIG1-1.taken"
    assert said["bound at first"] == [True], ended.said
    assert said["another serial number"] == [
        errno.ENODEV,
        "no 232h has the serial number RIG2; there are: RIG1",
    ]
    assert said["claimed"] == [False, [note]]
    assert said["given back"] == [True, []]
    number, words, holder = said["held by another"]
    assert (number, f"(pid {holder})" in words) == (errno.EBUSY, True), words
    assert said["its holder died"] == [False, [note]]  # nobody gives back by dying
    assert said["left over"] == [["ftdi://ftdi:232h:RIG1/1: given back to its kernel driver"], True, []]
    number, words = said["forbidden"]
    assert (number, "hwtool udev prints it" in words) == (errno.EACCES, True), words
    rejected, words, bound = said["no engine"]
    assert (rejected, "cannot be set up" in words, bound) == (True, True, True), words
    assert said["open"] == [True, False]
    assert said["pulled out behind the look"] == [True]
    assert said["pulled out"] == ["port-vanished", True]
    assert said["away"][0] == "port-not-opened"
    assert said["back"] == [True, True, True]  # bound, had, and bound again
