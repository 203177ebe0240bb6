"""What a guest boots from: Debian's packages, unpacked but not installed, and an initramfs made of them."""

from __future__ import annotations

import lzma
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LIMIT_S: Final = 200


class Packages:
    """Debian's packages of an architecture, fetched with the lists of its own: this machine's are left alone."""

    def __init__(self, directory: Path, architecture: str) -> None:
        self._directory, self._architecture = directory, architecture
        for name in ("state/lists/partial", "cache/archives/partial"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / "status").touch()
        self._apt("apt-get", "update")

    def _apt(self, program: str, *words: str) -> str:
        settings = {
            "APT::Architecture": self._architecture,
            "APT::Architectures::": self._architecture,
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "0",
            "Debug::NoLocking": "1",
            "Dir::State": str(self._directory / "state"),
            "Dir::State::status": str(self._directory / "status"),
            "Dir::State::lists": str(self._directory / "state/lists"),
            "Dir::Cache": str(self._directory / "cache"),
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        told = subprocess.run(
            [program, "-qq", *options, *words], capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        if told.returncode:
            raise OSError(f"{program} {' '.join(words)}: {told.stderr.strip()[-300:]}")
        return told.stdout

    def depends(self, package: str) -> str:
        """The first package that another one depends on: the kernel that a name without a version stands for.

        Raises:
            OSError: Debian's lists do not know it.
        """
        found = re.search(r"Depends: ([^:\s]+)", self._apt("apt-cache", "depends", package))
        if found is None:
            raise OSError(f"Debian's package lists know no {package}")
        return found[1]

    def unpacked(self, target: Path, *packages: str, but: Iterable[str] = ()) -> None:
        """Put packages and what they need into a directory; nothing of them is run.

        Raises:
            OSError: they cannot be had.
        """
        self._apt("apt-get", "-y", "--download-only", "install", *packages)
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted((self._directory / "cache/archives").glob("*.deb")):
            if not file.name.startswith(tuple(but)):
                subprocess.run(["dpkg-deb", "-x", file, target], check=True)
            file.unlink()


def is_built(directory: Path, init: str) -> bool:
    """Whether a directory has an initramfs that was made with this first program."""
    made_of = directory / "init"
    return (directory / "initrd").exists() and made_of.exists() and made_of.read_text() == init


def modules_of(tree: Path, names: Iterable[str]) -> list[tuple[str, bytes]]:
    """Kernel modules and what they depend on, in the order in which they are loaded; what is built in is left out."""
    files = {file.name.partition(".ko")[0].replace("-", "_"): file for file in tree.rglob("*.ko*")}
    ordered: dict[str, bytes] = {}

    def need(name: str) -> None:
        name = name.replace("-", "_")
        file = files.get(name)
        if file is None or name in ordered:
            return
        data = file.read_bytes()
        data = lzma.decompress(data) if file.suffix == ".xz" else data
        told = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in filter(None, b"" if told is None else told[1].split(b",")):
            need(other.decode())
        ordered[name] = data

    for name in names:
        need(name)
    return list(ordered.items())


def packed(root: Path) -> bytes:
    """A directory as an initramfs; several may follow one another."""
    names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
    command = ["busybox", "cpio", "-o", "-H", "newc"]
    return subprocess.run(command, cwd=root, input=names, capture_output=True, check=True).stdout
