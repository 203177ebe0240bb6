"""Where pyftdi looks for PyUSB's backend in tests: the host that a test has put here."""

from __future__ import annotations

import pytest
from pyftdi.usbtools import UsbTools

from tests.mpsse.usb_host import Adapter, Host

HOSTS: list[Host] = []


def get_backend() -> Host | None:
    """The newest host, as pyftdi asks for it."""
    return HOSTS[-1] if HOSTS else None


def hosting(monkeypatch: pytest.MonkeyPatch, *adapters: Adapter) -> Host:
    """A host with these adapters, for the length of a test."""
    host = Host(list(adapters))
    monkeypatch.setattr(UsbTools, "BACKENDS", ("tests.mpsse.backend",))
    monkeypatch.setattr("tests.mpsse.backend.HOSTS", [host])
    return host
