"""A Linux kernel of Debian's under QEMU, with this machine's root file system read-only: real i2c drivers to talk to.

The kernel package is downloaded, not installed; a small initramfs of busybox loads the modules that are asked for,
mounts the root over 9p with a tmpfs above it, and runs one command there. QEMU writes down what passed on its own i2c
buses: that log is not ours, and a test compares it with what we meant to send.

Software emulation: Python is some twenty times slower in there than here.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.rigs.initramfs import is_built, packed
from tests.rigs.wire import Part, transactions

MODULES: Final = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net"),
    *("i2c-dev", "i2c-i801", "i2c-stub", "lm75"),
    *("xhci_pci", "ftdi_sio"),
)
TREES: Final = ("i2c", "virtio", "hwmon", "usb/common", "usb/core", "usb/host", "usb/serial")
LIMIT_S: Final = 150
QEMU: Final = "qemu-system-x86_64"

INIT: Final = """#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc; $B mount -t sysfs sys /sys; $B mount -t devtmpfs dev /dev
word() { $B sed -n "s/.*\\b$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }
for m in $($B cat /modules); do
    case $m in
        i2c-stub) [ -z "$(word rig.chips)" ] || $B modprobe $m chip_addr=$(word rig.chips);;
        xhci_pci|ftdi_sio) [ -z "$(word rig.usb)" ] || $B modprobe $m;;
        *) $B modprobe $m;;
    esac || echo "rig: no module $m"
done
S=$(word rig.systemd)
O=trans=virtio,version=9p2000.L,msize=524288
$B mount -t 9p -o ro,cache=loose,$O root /low && $B mount -t tmpfs over /over && $B mkdir /over/up /over/work
$B mount -t overlay -o lowerdir=/low,upperdir=/over/up,workdir=/over/work root /new || $B poweroff -f
for d in proc sys dev; do $B mount --move /$d /new/$d; done
$B mount -t tmpfs run /new/run; $B mkdir /new/run/out; $B mount -t 9p -o cache=none,$O out /new/run/out
$B ip link set lo up
[ ! -e /new/sys/class/net/eth0 ] || { $B ip addr add 10.0.2.15/24 dev eth0; $B ip link set eth0 up; }
if [ -n "$S" ]; then
    $B rm -f /new/.dockerenv                # above the root alone: else systemd takes the guest for a container
    $B touch /new/etc/.updated /new/var/.updated
    U=/new/run/systemd/system; $B mkdir -p $U
    # these would walk and clear what is this machine's, for a minute
    for u in tmpfiles-setup tmpfiles-setup-dev tmpfiles-clean timesyncd update-utmp random-seed; do
        $B ln -sf /dev/null $U/systemd-$u.service
    done
    printf '[Unit]\nWants=rig.service\n' > $U/rig.target
    $B cat > $U/rig.service <<'END'
[Unit]
DefaultDependencies=no
After=systemd-udevd.service systemd-udev-trigger.service
Wants=systemd-udevd.service systemd-udev-trigger.service
[Service]
Type=oneshot
Environment=HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
ExecStart=/bin/sh -c '/bin/sh /run/out/command > /run/out/said 2>&1; echo $$? > /run/out/code'
ExecStopPost=/bin/systemctl poweroff -ff
END
    exec $B switch_root /new /lib/systemd/systemd --unit=rig.target --show-status=0 --log-level=warning
fi
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
$B chroot /new /bin/sh /run/out/command > /new/run/out/said 2>&1
echo $? > /new/run/out/code
$B sync; $B poweroff -f
"""


class Ended(NamedTuple):
    """What a command in the guest came to.

    Attributes:
        wire: what QEMU saw on its buses, one entry a transaction: ("W" | "R", address, bytes) in order.
    """

    code: int
    said: str
    wire: list[list[Part]]


def missing() -> str | None:
    """Why there can be no guest here, None if there can."""
    if os.geteuid() != 0:
        return "a guest needs root: it shows the whole root file system"
    lacking = [name for name in (QEMU, "busybox", "apt-get", "dpkg-deb") if shutil.which(name) is None]
    return f"no {', '.join(lacking)}" if lacking else None


def built(directory: Path) -> Path:
    """Make kernel and initramfs in a directory, once; answers it.

    Raises:
        OSError: the kernel package cannot be had.
    """
    if is_built(directory, INIT):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        top = Path(scratch)
        package = _downloaded(top)
        tree = top / "tree"
        wanted = ["./boot/vmlinuz-*", *(f"./lib/modules/*/kernel/drivers/{name}" for name in TREES)]
        wanted += ["./lib/modules/*/modules.*", "./lib/modules/*/kernel/net/9p", "./lib/modules/*/kernel/fs"]
        wanted += ["./lib/modules/*/kernel/drivers/net", "./lib/modules/*/kernel/net/core"]
        tree.mkdir()
        unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True)
        command = ["tar", "-x", "-C", str(tree), "--wildcards", *wanted]
        subprocess.run(command, input=unpacked.stdout, check=False, capture_output=True)  # some are in no kernel
        (directory / "vmlinux").write_bytes(_elf_of(next((tree / "boot").glob("vmlinuz-*")).read_bytes()))
        _initramfs(tree, directory / "initrd.new")
    (directory / "initrd.new").rename(directory / "initrd")
    (directory / "init").write_text(INIT)
    return directory


def _downloaded(scratch: Path) -> Path:
    told = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=False)
    found = re.search(r"Depends: (linux-image-\S+)", told.stdout)
    if found is None:
        raise OSError("Debian's package lists know no kernel: apt-get update")
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", found[1]]
    got = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    packages = list(scratch.glob("*.deb"))
    if not packages:
        raise OSError(f"{found[1]} cannot be downloaded: {got.stderr.strip()[-200:]}")
    return packages[0]


def _elf_of(image: bytes) -> bytes:
    """The kernel inside a compressed one: QEMU enters it at once, and need not emulate its unpacking."""
    at = image.find(b"\xfd7zXZ\0")
    while at >= 0:
        try:
            data = lzma.LZMADecompressor().decompress(image[at:])
        except lzma.LZMAError:
            data = b""
        if data.startswith(b"\x7fELF"):
            return data
        at = image.find(b"\xfd7zXZ\0", at + 1)
    raise OSError("no kernel of a known kind inside the package")


def _initramfs(tree: Path, target: Path) -> None:
    root = tree / "root"
    for name in ("bin", "dev", "proc", "sys", "low", "over", "new", "lib"):
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "busybox", root / "bin/busybox")
    os.mknod(root / "dev/console", 0o20600, os.makedev(5, 1))
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    (root / "modules").write_text("\n".join(MODULES) + "\n")
    (version,) = (tree / "lib/modules").iterdir()
    (tree / "lib/modules").rename(root / "lib/modules")
    subprocess.run(["busybox", "depmod", "-b", root, version.name], check=True, capture_output=True)
    target.write_bytes(packed(root))


@dataclass
class Guest:
    """One that runs.

    Attributes:
        out: a directory that both see; /run/out in there.
        monitor: socket of QEMU's monitor; where there is a USB line.
    """

    out: Path
    process: subprocess.Popen[bytes]
    trace: Path
    monitor: Path

    def wire(self) -> list[list[Part]]:
        """What has passed on QEMU's buses so far."""
        return list(transactions(self.trace.read_text(encoding="utf-8")))

    def tell(self, command: str, **arguments: str) -> None:
        """A command of QEMU's own (QMP).

        Raises:
            OSError: it does not do it.
        """
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(LIMIT_S)
            line.connect(str(self.monitor))
            file = line.makefile("rw", encoding="utf-8")
            file.readline()  # it greets
            for word, more in (("qmp_capabilities", {}), (command, arguments)):
                file.write(json.dumps({"execute": word, "arguments": more}) + "\n")
                file.flush()
                while "event" in (reply := json.loads(file.readline())):
                    continue
                if "error" in reply:
                    raise OSError(f"{word}: {reply['error']}")

    def ended(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the command's end.

        Raises:
            OSError: the guest did not come to it.
        """
        try:
            said, complaint = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"the guest did not end within {limit_s} s") from error
        if not (self.out / "code").exists():
            raise OSError(f"the guest ended without a word: {said[-500:]!r} {complaint[-300:]!r}")
        told = (self.out / "said").read_text(encoding="utf-8", errors="replace")
        return Ended(int((self.out / "code").read_text()), told, self.wire())


def run(directory: Path, command: str, chips: Sequence[int] = ()) -> Ended:
    """Boot, run a shell command, power off.

    Raises:
        OSError: the guest did not come to the command's end.
    """
    with booted(directory, command, chips) as guest:
        return guest.ended()


@contextmanager
def booted(
    directory: Path,
    command: str,
    chips: Sequence[int] = (),
    forward: int | None = None,
    usb_line: str | None = None,
    systemd: bool = False,
) -> Iterator[Guest]:
    """Boot and run a shell command.

    Args:
        directory: where `built` has put kernel and initramfs.
        chips: addresses of i2c-stub.
        forward: a port of this host's loopback that leads to port 8080 in there.
        usb_line: a terminal of this host that is a USB serial port in there; QEMU calls it `line`.
        systemd: systemd and udevd of this machine's root run in there, and the command is a service of theirs.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out, trace, monitor = (Path(scratch) / name for name in ("out", "trace", "monitor"))
        out.mkdir()
        (out / "command").write_text(command)
        words = "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off nokaslr random.trust_cpu=on"
        words += f" rig.chips={','.join(map(hex, chips))}" if chips else ""
        words += " rig.usb=1" if usb_line is not None else ""
        words += " rig.systemd=1" if systemd else ""
        shared = "security_model=none,multidevs=remap"
        line = [
            QEMU,
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-M",
            "q35",
            "-m",
            "512",
            "-nodefaults",
            "-nographic",
            "-no-reboot",
        ]
        line += ["-serial", "stdio", "-kernel", str(directory / "vmlinux"), "-initrd", str(directory / "initrd")]
        line += ["-device", "ipmi-bmc-sim,id=bmc", "-device", "smbus-ipmi,bmc=bmc,address=0x10"]
        line += ["-append", words, "-trace", f"i2c_*,file={trace}"]
        line += ["-virtfs", f"local,path=/,mount_tag=root,readonly=on,{shared}"]
        line += ["-virtfs", f"local,path={out},mount_tag=out,{shared}"]
        if forward is not None:
            line += ["-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{forward}-:8080"]
            line += ["-device", "virtio-net-pci,netdev=n,romfile="]
        if usb_line is not None:
            line += ["-device", "qemu-xhci", "-chardev", f"serial,id=line,path={usb_line}"]
            line += [
                "-device",
                "usb-serial,chardev=line,id=line,serial=RIG1",
                "-qmp",
                f"unix:{monitor},server=on,wait=off",
            ]
        trace.touch()
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield Guest(out, process, trace, monitor)
        finally:
            process.kill()
            process.communicate()
