"""A device that is a USB device: an enumeration is its restart, as sysfs numbers it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hwtool.restarts import kind_of, restart_between, usb_word
from hwtool_registers.buses import usb_nodes
from hwtool_registers.buses.i2c import I2c, I2cSettings
from hwtool_registers.buses.modbus import ModbusRtu, RtuSettings
from hwtool_sim.bus import SimBus
from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, code_of, reg, toy_board


def sysfs_with(top: Path, node: Path, number: int, usb: bool = True) -> Path:
    """A /sys in which a node belongs to the USB device 3-NUMBER, or to none."""
    told = node.stat().st_rdev
    tty = top / "devices/pci/usb3/3-1/3-1:1.0/tty/ttyACM0"
    tty.mkdir(parents=True, exist_ok=True)
    if usb:
        (top / "devices/pci/usb3/3-1/busnum").write_text("3\n")
        (top / "devices/pci/usb3/3-1/devnum").write_text(f"{number}\n")
    link = top / "dev/char" / f"{os.major(told)}:{os.minor(told)}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tty)
    return top


def test_enumeration_when_asked_then_the_number_of_the_usb_device_behind_the_node(tmp_path: Path) -> None:
    node = Path("/dev/null")
    assert usb_nodes.enumeration_of(node, sysfs_with(tmp_path / "a", node, 17)) == "3-17"
    assert usb_nodes.enumeration_of(node, sysfs_with(tmp_path / "b", node, 17, usb=False)) is None
    assert usb_nodes.enumeration_of(tmp_path / "gone", tmp_path) is None
    assert usb_nodes.enumeration_of(node, tmp_path / "empty") is None


def test_words_when_compared_then_another_number_or_another_boot_is_a_restart() -> None:
    assert kind_of(usb_word("3-17", "b")) == "usb"
    assert restart_between(usb_word("3-17", "b"), usb_word("3-17", "b")) == "same"
    assert restart_between(usb_word("3-17", "b"), usb_word("3-18", "b")) == "reset"
    assert restart_between(usb_word("3-17", "b"), usb_word("3-17", "c")) == "reset"
    assert restart_between(usb_word("3-17", "b"), None) == "silent"


def test_buses_with_nodes_when_asked_then_they_name_them() -> None:
    assert ModbusRtu(RtuSettings("/dev/serial/by-id/x")).node == Path("/dev/serial/by-id/x")
    assert I2c(I2cSettings(None, "/dev/my-i2c")).node == Path()  # not opened yet


def test_device_when_it_is_enumerated_anew_then_a_new_generation_and_its_register_was_set_back(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buses_are: Callable[[type[SimBus]], None]
) -> None:
    number = ["3-17"]

    class WithNode(SimBus):
        node = Path("/dev/x")

        def boot_evidence(self, address: int) -> None:
            """A bus with a node tells nothing of its devices."""

    monkeypatch.setattr("hwtool.worker.enumeration_of", lambda _: number[0])
    buses_are(WithNode)

    async def life(lab: Lab) -> None:
        object.__setattr__(lab.device().spec, "restarts_with_usb", True)
        assert (await lab.ask("reg.write", register="toy.R", value=1, key=KEY)).ok
        lab.fault(FaultKind.REPLY_LOST, offset=0)
        assert code_of(await lab.ask("reg.write", register="toy.R", value=2, key=KEY2)) == "outcome_unknown"
        before, number[0] = lab.device().generation, "3-18"
        await lab.rules_ran()
        assert (await lab.row(KEY2)).verdict == "superseded"
        assert (await lab.ask("reg.write", register="toy.R", value=3, key="key-after-it")).ok
        assert lab.device().generation == before + 1

    play(life, toy_board(tmp_path, reg("R", 0, "reset = 0x10")))
