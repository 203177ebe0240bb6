"""A board with full I2C under QEMU: sabrelite (i.MX6), Debian's kernel and Python for it, and chips on three buses.

Kernel and Python are Debian's packages, unpacked and put into an initramfs; what a test adds (our bus layer, the work)
is a second one behind it. Everything is emulated by software: Python is some twenty times slower in there than here.

| adapter | chips |
|---|---|
| 21a0000.i2c | tmp105 0x48; at24c, 4096 bytes, offsets of two bytes, 0x52 |
| 21a4000.i2c | tmp421 0x4c; ds1338 0x68; emc1413 0x18; adm1272 (PMBus) 0x11 |
| 21a8000.i2c | pca9546 0x70, behind its channel 1 a tmp105 0x49; max7310 0x21 |
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.rigs.guest import Ended
from tests.rigs.initramfs import Packages, is_built, modules_of, packed
from tests.rigs.wire import transactions

QEMU: Final = "qemu-system-arm"
LIMIT_S: Final = 150
MODULES: Final = ("imx2-wdt", "i2c-imx", "i2c-dev")
PACKAGES: Final = ("python3-minimal", "libpython3.11-stdlib", "busybox-static")
NEEDLESS: Final = ("perl", "dpkg_", "tar_", "gcc-12-base", "media-types", "debconf", "readline-common")
FIRST, SECOND, THIRD = ADAPTERS = ("21a0000.i2c", "21a4000.i2c", "21a8000.i2c")
CHIPS: Final = (
    "tmp105,bus=i2c-bus.0,address=0x48",
    "at24c-eeprom,bus=i2c-bus.0,address=0x52,rom-size=4096",
    "tmp421,bus=i2c-bus.1,address=0x4c",
    "ds1338,bus=i2c-bus.1,address=0x68",
    "emc1413,bus=i2c-bus.1,address=0x18,temperature0=41000",
    "adm1272,bus=i2c-bus.1,address=0x11",
    "pca9546,bus=i2c-bus.2,address=0x70",
    "tmp105,bus=i2c.1,address=0x49",
    "max7310,bus=i2c-bus.2,address=0x21",
)
INIT: Final = """#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc; $B mount -t sysfs sys /sys; $B mount -t devtmpfs dev /dev
for m in $($B cat /modules/order); do $B insmod /modules/$m.ko || echo "rig: no module $m"; done
i=0; while [ ! -e /dev/i2c-2 ] && [ $i -lt 50 ]; do $B sleep 0.1; i=$((i+1)); done
export PATH=/usr/bin:/bin HOME=/ PYTHONDONTWRITEBYTECODE=1 LANG=C.UTF-8
cd /work && $B sh /work/command > /said 2>&1
code=$?
echo; echo "rig: said"; $B cat /said; echo "rig: code $code"
$B reboot -f
"""


def missing() -> str | None:
    """Why there can be no such guest here, None if there can."""
    lacking = [name for name in (QEMU, "busybox", "apt-get", "dpkg-deb") if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)}"
    return None if os.geteuid() == 0 else "a guest needs root: device nodes are made for it"


def built(directory: Path) -> Path:
    """Make kernel, device tree and initramfs in a directory, once; answers it.

    Raises:
        OSError: the packages cannot be had.
    """
    if is_built(directory, INIT):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        top = Path(scratch)
        packages = Packages(top / "apt", "armhf")
        packages.unpacked(top / "kernel", packages.depends("linux-image-armmp"), but=("initramfs", "linux-base"))
        packages.unpacked(top / "root", *PACKAGES, but=NEEDLESS)
        shutil.copy(next((top / "kernel/boot").glob("vmlinuz-*")), directory / "vmlinuz")
        shutil.copy(next((top / "kernel").rglob("imx6q-sabrelite.dtb")), directory / "board.dtb")
        (directory / "initrd.new").write_bytes(_initramfs(top))
    (directory / "initrd.new").rename(directory / "initrd")
    (directory / "init").write_text(INIT)
    return directory


def _initramfs(top: Path) -> bytes:
    root = top / "root"
    for name in ("usr/share", "usr/sbin", "var", "etc"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("dev", "proc", "sys", "tmp", "modules", "work"):
        (root / name).mkdir(exist_ok=True)
    os.mknod(root / "dev/console", 0o20600, os.makedev(5, 1))
    modules = modules_of(top / "kernel", MODULES)
    for name, data in modules:
        (root / "modules" / f"{name}.ko").write_bytes(data)
    (root / "modules/order").write_text("\n".join(name for name, _ in modules) + "\n")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    return packed(root)


def run(directory: Path, command: str, trees: Mapping[str, Path]) -> Ended:
    """Boot, run a shell command, power off.

    Args:
        trees: what stands below /work in there; every .py file of each directory.

    Raises:
        OSError: the guest did not come to the command's end.
    """
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        work = scratch / "root/work"
        for place, tree in trees.items():
            shutil.copytree(tree, work / place, ignore=shutil.ignore_patterns("__pycache__", "*.toml", "chips"))
        work.mkdir(parents=True, exist_ok=True)
        (work / "command").write_text(command)
        (scratch / "initrd").write_bytes((directory / "initrd").read_bytes() + packed(scratch / "root"))
        trace = scratch / "trace"
        line = [QEMU, "-M", "sabrelite", "-m", "512", "-nodefaults", "-nographic", "-no-reboot", "-nic", "none"]
        line += ["-serial", "null", "-serial", "stdio", "-trace", f"i2c_*,file={trace}"]
        line += ["-kernel", str(directory / "vmlinuz"), "-initrd", str(scratch / "initrd")]
        line += ["-dtb", str(directory / "board.dtb")]
        line += ["-append", "console=ttymxc1,115200 quiet loglevel=1 panic=-1"]
        line += [word for chip in CHIPS for word in ("-device", chip)]
        try:
            ended = subprocess.run(
                line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"the guest did not end within {LIMIT_S} s") from error
        said = ended.stdout.replace("\r", "")
        code = re.search(r"^rig: code (\d+)$", said, re.MULTILINE)
        if code is None:
            raise OSError(f"the guest ended without a word: {said[-500:]!r} {ended.stderr[-300:]!r}")
        told = said.partition("rig: said\n")[2].partition("rig: code")[0]
        return Ended(int(code[1]), told, list(transactions(trace.read_text(encoding="utf-8"))))
