"""The buses of a board file: their kinds, the keys of each kind, and one bus as it is read, all faults at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast, get_args

from hwtool_contracts.toml_reader import Table
from hwtool_registers.buses.ftdi_url import DEFAULT_LATENCY_MS, EXAMPLE, FtdiUrl, parse_url

ID: Final = re.compile(r"[a-z0-9_-]{1,63}")
BusKind = Literal["sim", "modbus-rtu", "modbus-tcp", "i2c", "spi", "ftdi-i2c", "ftdi-spi"]
KINDS: Final = ", ".join(get_args(BusKind))
ON_I2C: Final = ("i2c", "ftdi-i2c")
ON_SPI: Final = ("spi", "ftdi-spi")
OVER_USB: Final = ("ftdi-i2c", "ftdi-spi")
KEYS_OF: Final = {
    "path": ("modbus-rtu", "i2c", "spi"),
    "adapter": ("i2c", "spi"),
    "url": OVER_USB,
    "latency_ms": OVER_USB,
    "max_hz": ("spi", *OVER_USB),
    "mode": ON_SPI,
    "clock_stretching": ("ftdi-i2c",),
    "host": ("modbus-tcp",),
    "port": ("modbus-tcp",),
    **dict.fromkeys(("baud", "parity", "stop_bits", "gap_ms", "echo"), ("modbus-rtu",)),
    **dict.fromkeys(("process", "socket", "replay"), ("sim",)),
}
UNSTABLE: Final = re.compile(r"/dev/(tty(USB|ACM)\d+|i2c-\d+|spidev\d+)")
KINDS_NOT_YET: Final = frozenset({"uartbone", "line", "mmap", "gdb", "openocd", "ipbus"})
MOST_HZ: Final = {"spi": 100_000_000, "ftdi-i2c": 1_000_000, "ftdi-spi": 30_000_000}


@dataclass(frozen=True, slots=True)
class BusSpec:
    """One bus of the board.

    Attributes:
        path: device node of a serial or i2c bus, of SPI up to the chip select; `adapter`: name of the adapter instead.
        url: of an FTDI adapter's interface, by its serial number.
        max_hz: highest clock of the wiring; None: as the devices have it.
        mode: of every device on SPI, in place of what its contract says.
        latency_ms: an FTDI adapter's latency timer.
        clock_stretching: chips may hold the clock: AD7 of the FTDI adapter is wired to AD0.
        host, port: of a Modbus TCP server.
        process: the simulated chips run in a process of their own.
        socket: join a simulator that runs there.
        sole_master: nobody else writes to the devices of this bus.
        response_ms: how long a device may take to answer.
        reply_lifetime_ms: how long after an ambiguous answer a late reply may still arrive.
        transfer_limit_ms: past this a transfer is given up and the bus counts as wedged.
        read_attempts: how often a clean read is sent in all, before its error is told.
        echo: its adapter hears what it sends itself.
        may_repeat: something below may send a request again by itself: only what may be repeated goes there.
        accept_unacknowledged: on a bus that acknowledges nothing, a write that nothing shows counts as done.
        record: each start records the bus in a new file beside this name; None: it is not recorded.
        replay: its answers come from this recording; nothing is behind it.
    """

    name: str
    kind: BusKind
    path: str | None
    baud: int
    parity: Literal["none", "even", "odd"]
    stop_bits: int
    process: bool
    socket: str | None
    sole_master: bool
    response_ms: int
    reply_lifetime_ms: int
    gap_ms: int | None
    transfer_limit_ms: int
    read_attempts: int = 1
    adapter: str | None = None
    url: FtdiUrl | None = None
    max_hz: int | None = None
    mode: int | None = None
    latency_ms: int = DEFAULT_LATENCY_MS
    clock_stretching: bool = False
    host: str | None = None
    port: int = 502
    echo: bool = False
    may_repeat: bool = False
    accept_unacknowledged: bool = False
    record: Path | None = None
    replay: Path | None = None

    @property
    def simulated(self) -> bool:
        """No real device behind it."""
        return self.kind == "sim"

    @property
    def stable_path(self) -> str:
        """What identifies the bus over restarts; devices are held by this and their address."""
        if self.socket is not None:
            return f"{self.kind}:{self.socket}#{self.name}"  # a simulator may serve several buses
        if self.host is not None:
            return f"{self.kind}:{self.host}:{self.port}"
        if self.url is not None:
            return f"{self.kind}:{self.url.product}:{self.url.serial}/{self.url.interface}"
        return f"{self.kind}:{self.path or self.adapter or self.name}"


def check_id(name: str, table: Table) -> None:
    """A fault where a bus or a device has a name that is none."""
    if not ID.fullmatch(name):
        table.fault("", "not a name", name, "1 to 63 of a-z 0-9 _ -")


def read_bus(name: str, table: Table, beside: Path) -> BusSpec:
    """One `[buses.NAME]` of a board; its faults are added to the table's."""
    check_id(name, table)
    kind = table.text("kind", required=True) or "sim"
    if kind in KINDS_NOT_YET:
        table.fault("kind", "bus kind not supported by this version", kind, KINDS)
    elif kind not in get_args(BusKind):
        table.fault("kind", "unknown bus kind", kind, KINDS)
    parity = table.text("parity") or "none"
    if parity not in ("none", "even", "odd"):
        table.fault("parity", "not in the vocabulary", repr(parity), "none, even or odd")
    response_ms = table.integer("response_ms", low=1, high=60_000) or 200
    path, socket = table.text("path"), table.text("socket")
    process = bool(table.flag("process", False))
    adapter, host = table.text("adapter"), table.text("host")
    if kind == "modbus-rtu" and path is None:
        table.fault("path", "key is missing", None, "the device node, a stable name below /dev/serial/by-id")
    if kind == "modbus-tcp" and not host:
        table.fault("host", "key is missing", host, "the name or address of the server or gateway")
    if kind in ("i2c", "spi") and (path is None) is (adapter is None):
        names = {"i2c": "/sys/class/i2c-dev/i2c-*/name", "spi": "what /sys/class/spi_master/spi*/device leads to"}
        wanted = f"adapter = its name ({names[kind]}), or path = a name that udev keeps stable"
        table.fault("adapter", "one of adapter and path", path, wanted)
    if path is not None and kind in ("i2c", "spi") and not path.startswith("/"):
        table.fault("path", "not a place below /dev", path, "an absolute path")
    if path is not None and kind in KEYS_OF["path"] and UNSTABLE.fullmatch(path):
        wanted = "a name below /dev/serial/by-id or by-path; of an i2c or SPI bus, adapter = its name"
        table.fault("path", "a number that the next start may give to another", path, wanted)
    for key in sorted(set(table.data) & set(KEYS_OF)):
        if kind in get_args(BusKind) and kind not in KEYS_OF[key]:
            told = "a simulated bus" if kind == "sim" else f"a bus of kind {kind}"
            rule = "only for kind = sim" if KEYS_OF[key] == ("sim",) else f"not a key of {told}"
            table.fault(key, rule, None, "the key left out")
    if process and socket is not None:
        table.fault("process", "process and socket exclude each other", None, "one of them")
    latency_ms = table.integer("latency_ms", low=1, high=255) or DEFAULT_LATENCY_MS
    if kind in OVER_USB and response_ms < latency_ms:
        rule = f"below the adapter's latency timer of {latency_ms} ms: no answer would come in time"
        table.fault("response_ms", rule, response_ms, f"at least {latency_ms}, or a shorter latency_ms")
    record, replay = table.text("record"), table.text("replay")
    if replay is not None and (process or socket is not None):
        table.fault("replay", "a recording answers, no simulator", replay, "replay without process and socket")
    spec = BusSpec(
        name=name,
        kind=cast(BusKind, kind),
        path=path,
        adapter=adapter,
        url=_url(table, kind),
        max_hz=table.integer("max_hz", low=100, high=MOST_HZ.get(kind, 100_000_000)),
        mode=table.integer("mode", low=0, high=3),
        latency_ms=latency_ms,
        clock_stretching=bool(table.flag("clock_stretching", False)),
        host=host,
        port=table.integer("port", low=1, high=65_535) or 502,
        baud=table.integer("baud", low=300, high=4_000_000) or 19200,
        parity=cast(Literal["none", "even", "odd"], parity),
        stop_bits=table.integer("stop_bits", low=1, high=2) or 1,
        process=process,
        socket=socket,
        sole_master=bool(table.flag("sole_master", False)),
        response_ms=response_ms,
        reply_lifetime_ms=table.integer("reply_lifetime_ms", low=1, high=600_000) or 3 * response_ms,
        gap_ms=table.integer("gap_ms", low=0, high=10_000),
        transfer_limit_ms=table.integer("transfer_limit_ms", low=1, high=600_000) or 10 * response_ms,
        read_attempts=table.integer("read_attempts", low=1, high=10) or 1,
        echo=bool(table.flag("echo", False)),
        may_repeat=bool(table.flag("may_repeat", False)),
        accept_unacknowledged=bool(table.flag("accept_unacknowledged", False)),
        record=None if record is None else beside / record,
        replay=None if replay is None else beside / replay,
    )
    if spec.transfer_limit_ms < spec.response_ms:
        table.fault("transfer_limit_ms", "below response_ms", spec.transfer_limit_ms, f"at least {spec.response_ms}")
    table.done()
    return spec


def _url(table: Table, kind: str) -> FtdiUrl | None:
    text = table.text("url")
    if text is None:
        if kind in OVER_USB and "url" not in table:
            table.fault("url", "key is missing", None, f"the adapter by its serial number: {EXAMPLE}")
        return None
    try:
        return parse_url(text)
    except ValueError as error:
        table.fault("url", "names no interface of an adapter", text, str(error))
    return None
