"""Every real counterpart by one command: what was tested against what, and what could not be had here.

    python -m tests.rigs                every rig, with the reason of each that is skipped
    python -m tests.rigs --only arm     those whose name contains the word
    python -m tests.rigs --prepare      fetch and build what the guests boot from, and no more

A rig is a program or a kernel that nobody here wrote. What the gate runs of them are the same tests.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.rigs import arm, guest

TOP: Final = Path(__file__).parents[2]
KEPT: Final = TOP / ".peers"
BUILT: Final = {"x86 guest": (guest.missing, guest.built, "guest"), "ARM guest": (arm.missing, arm.built, "arm")}


class Rig(NamedTuple):
    """One counterpart.

    Attributes:
        tests: what pytest runs.
    """

    name: str
    counterpart: str
    tests: tuple[str, ...]


RIGS: Final = (
    Rig("x86 kernel", "Linux's i801 and i2c-stub, QEMU's EEPROMs and its trace", ("tests/rigs/test_kernel_i2c.py",)),
    Rig("daemon in a guest", "the same, the whole daemon on it", ("tests/rigs/test_kernel_daemon.py",)),
    Rig(
        "usb serial port",
        "Linux's ftdi_sio, QEMU's usb-serial, libmodbus behind it",
        ("tests/rigs/test_usb_serial.py",),
    ),
    Rig(
        "ftdi adapter",
        "Linux's USB and libusb, QEMU's FT232BM: claims, refusals, unplugging",
        ("tests/rigs/test_ftdi_claims.py",),
    ),
    Rig("systemd and udev", "both of this machine's, in the guest", ("tests/rigs/test_systemd.py",)),
    Rig("arm kernel", "Linux's i2c-imx, eight of QEMU's chips and its trace", ("tests/rigs/test_arm_i2c.py",)),
    Rig("conformance suite", "the same slaves as benches, and the scripted counterparts", ("tests/conformance",)),
    Rig("modbus slaves", "libmodbus, modbus-tk, pymodbus; RTU and TCP", ("tests/modbus/test_conformance.py",)),
    Rig("second modbus master", "mbpoll, at one server of modbus-tk", ("tests/modbus/test_second_master.py",)),
    Rig("browser", "Debian's chromium, the page of a check in it", ("tests/rigs/test_report_in_browser.py",)),
    Rig("daemon and a modbus slave", "pymodbus, RTU", ("tests/modbus/test_real_slave.py",)),
)


def prepared() -> None:
    """Fetch and build what the guests boot from; what cannot be had is said."""
    for name, (missing, built, place) in BUILT.items():
        why = missing()
        try:
            told = why or f"ready in {built(KEPT / place).relative_to(TOP)}"
        except OSError as error:
            told = str(error)
        print(f"{name}: {told}")


def carried_out(rig: Rig) -> bool:
    """Run the tests of one; prints its line, and answers whether nothing failed."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *rig.tests]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    counted = re.findall(r"(\d+) (passed|failed|skipped|error)", "".join(done.stdout.splitlines()[-1:]))
    told = ", ".join(f"{number} {what}" for number, what in counted) or f"ended with {done.returncode}"
    print(f"{rig.name:26} {rig.counterpart:58} {told}, {time.monotonic() - began_s:.0f} s", flush=True)
    for reason in re.findall(r"^SKIPPED .*", done.stdout, re.MULTILINE):
        print(f"    {reason}")
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-1000:])
    return done.returncode == 0


def main() -> int:
    """Run them; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="tests.rigs", description="real counterparts")
    parser.add_argument("--only", default="", help="the rigs whose name contains this")
    parser.add_argument("--prepare", action="store_true", help="only fetch and build")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepared()
        return 0
    failed = [rig.name for rig in RIGS if arguments.only in rig.name and not carried_out(rig)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
