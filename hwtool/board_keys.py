"""The keys of a board as a table: the manual prints it, editors get a JSON Schema of it, tests compare it.

hwtool.config reads with code, not from this table; a test loads a board that uses every key and compares what the
loader took with what stands here, both ways.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from hwtool.board_buses import BusKind
from hwtool.config import ApprovalMode, OnLoss, Restarts, Unverified
from hwtool.policy_table import Gate, YesNo
from hwtool_contracts.keys import Key, definitions, words_of
from hwtool_contracts.model import Owner

TABLES: Final[dict[str, dict[str, Key]]] = {
    "board": {
        "name": Key("text", "of the board, for people", required=True),
        "approval_mode": Key(
            "word",
            "who may grant what needs approval. separate-user (default): another user; a person's own request on the "
            "operator socket is its own approval, journalled `direct`. two-person: always another user. sudo: only uid "
            "0. self: the requester too, on simulated boards",
            words_of(ApprovalMode),
        ),
        "self_approval_on_hardware": Key("flag", "`self` is allowed with real buses too; default false"),
        "buses": Key("bus*", "the buses, by name"),
        "devices": Key("device*", "the devices, by name"),
        "policy": Key("policy[]", "rules that narrow what callers may do, the first match decides"),
        "metrics": Key("metrics", "where metrics in Prometheus text are put; off without it"),
    },
    "bus": {
        "kind": Key("word", "what it is", get_args(BusKind), required=True),
        "path": Key(
            "text",
            "modbus-rtu, i2c: the device node, by a name that stays: below `/dev/serial/by-id`, or a link of udev's; "
            "spi: such a name without the `.N` of the chip select",
        ),
        "host": Key("text", "modbus-tcp: name or address of the server or gateway"),
        "port": Key("integer", "modbus-tcp: its port; default 502"),
        "adapter": Key(
            "text",
            "in place of `path`. i2c: the adapter's name, as `/sys/class/i2c-dev/i2c-*/name` tells; spi: that of the "
            "controller's device, where `/sys/class/spi_master/spi*/device` leads",
        ),
        "url": Key(
            "text",
            "ftdi-i2c, ftdi-spi: `ftdi://ftdi:PRODUCT:SERIAL/INTERFACE`; PRODUCT is 232h, 2232h or 4232h, INTERFACE 1 "
            "or, where there is a second engine, 2",
        ),
        "max_hz": Key(
            "integer",
            "spi, ftdi-spi: highest clock of the wiring, and the lower of this and the contract's is used; default the "
            "contract's, else 1000000. ftdi-i2c: clock; default 100000, at most 1000000",
        ),
        "mode": Key("integer", "spi, ftdi-spi: 0 to 3, for every device, in place of what its contract says"),
        "latency_ms": Key(
            "integer",
            "ftdi-i2c, ftdi-spi: the adapter's latency timer, 1 to 255; default 16; `response_ms` is not below it",
        ),
        "clock_stretching": Key(
            "flag", "ftdi-i2c: chips may hold the clock; AD7 is wired to AD0 for that; default false"
        ),
        "baud": Key("integer", "modbus-rtu: bit rate in bit/s, 300 to 4000000; default 19200"),
        "parity": Key("word", "modbus-rtu; default none", ("none", "even", "odd")),
        "stop_bits": Key("integer", "modbus-rtu: 1 or 2; default 1"),
        "gap_ms": Key("integer", "modbus-rtu: silence before a frame; default 3.5 characters, at least 1.75 ms"),
        "echo": Key(
            "flag",
            "modbus-rtu: the adapter hears what it sends, as on an RS-485 pair whose receiver stays on: each request "
            "must come back before its reply; default false",
        ),
        "may_repeat": Key(
            "flag",
            "something below may send a request again by itself (a gateway with retries, an adapter's firmware): reads "
            "with effects, and writes whose repeat is not harmless, are refused there; default false",
        ),
        "accept_unacknowledged": Key(
            "flag",
            "on a bus that acknowledges nothing (spi, ftdi-spi), a write that no verification shows "
            "counts as applied, `how` = sent; default false: its outcome is unknown, and the device held",
        ),
        "response_ms": Key("integer", "how long a device may take to answer, 1 to 60000; default 200"),
        "reply_lifetime_ms": Key(
            "integer", "after an ambiguous answer nothing is sent for this long; default three times `response_ms`"
        ),
        "transfer_limit_ms": Key(
            "integer",
            "past this a transfer is given up and the bus is wedged until it returns; default ten times `response_ms`",
        ),
        "read_attempts": Key(
            "integer",
            "how often a clean read, also one in preparation, is sent in all before its error is told, 1 to 10; "
            "default 1. Exponential pauses with jitter, the bus's own word first, and at most ten retries of a device "
            "at once, one more each second. Effects are never sent again",
        ),
        "sole_master": Key(
            "flag",
            "nobody else writes to the devices of this bus; default false. Without it an unknown outcome is settled by "
            "rule only where the state was already as asked",
        ),
        "process": Key("flag", "sim: the chips run in a process of their own, which outlives a killed daemon"),
        "socket": Key("text", "sim: join the bus of this name in the simulator that listens there (simulator.md)"),
        "record": Key(
            "text",
            "a file, relative to this one: each start of the daemon records the bus in a new one beside it, "
            "`run-1.jsonl` of `run.jsonl`, without what is secret (simulator.md)",
        ),
        "replay": Key(
            "text", "sim: answers come from this recording, relative to this file; nothing is behind the bus"
        ),
    },
    "device": {
        "contract": Key("text", "a bundled name, or a path relative to this file, native or SVD", required=True),
        "overlays": Key("texts", "laid over the contract, in this order: bundled names or paths"),
        "part": Key(
            "text",
            "the cluster of a big chip that this device is: a peripheral of a microcontroller. Devices with the same "
            "contract, overlays and place and different parts are one chip to the simulator; each is held by itself",
        ),
        "params": Key("values", "what the contract's `[params]` asks of the wiring"),
        "bus": Key("text", "the bus that it sits on", required=True),
        "address": Key(
            "integer",
            "7-bit I2C address, Modbus unit 1 to 247, chip select (of an FTDI adapter: 0 on AD3 to 4 on AD7), PHY "
            "address; left out for memory-mapped chips and lines",
        ),
        "mux": Key("text", "the device, on the same bus, behind which it sits: a multiplexer, as its contract says"),
        "channel": Key("integer", "on which channel of it, from 0 on; it is switched on before each access"),
        "identity": Key("value", "compared with the contract's `[identity]` register before the first effect"),
        "owner": Key("word", "shared: another program of this host writes to it too", words_of(Owner)),
        "restarts": Key(
            "word",
            "with_host: it restarts exactly when this host does, so the host's boot id shows that it did not. "
            "with_usb: it is the USB device behind the bus's node, so that the number of its enumeration shows both",
            words_of(Restarts),
        ),
        "on_loss": Key(
            "word",
            "report: a consuming read that nothing can settle is closed as lost, with its bound, and holds nothing; "
            "hold (default): it waits for a person",
            words_of(OnLoss),
        ),
        "unverified": Key(
            "word",
            "refuse: no effects while the contract was checked on no real part (`verified`); allow (default): results "
            "say so",
            words_of(Unverified),
        ),
        "safe_state": Key(
            "safe_state[]",
            "what `device.safe_state` writes, in this order; plain stores alone, none nonvolatile",
        ),
        "writes_per_day": Key(
            "names",
            "nonvolatile registers and memories that need no approval for so many writes a UTC day, counted from the "
            "store; beyond it each write needs approval again",
        ),
    },
    "safe_state": {
        "register": Key("text", "a register of the device", required=True),
        "value": Key("value", 'as in requests: a number, a name, `{ scaled = "1.2", unit = "V" }`', required=True),
    },
    "policy": {
        "who": Key("text", "`*`, `uid:N`, or `group:NAME` of this host; by the kernel's word", required=True),
        "device": Key("text", "name or pattern (`*` any text, `?` one character); default `*`"),
        "register": Key(
            "text",
            "name or pattern; default `*`. The name of a memory or of an array means all its ranges or elements. A "
            "rule holds for the bits, whatever name they are reached by",
        ),
        "read": Key("word", "clean reads, expectations, and the reading steps of sequences", words_of(YesNo)),
        "effectful_read": Key("word", "also of a register that a write consumes to verify itself", words_of(Gate)),
        "write": Key(
            "word", "writes and updates; yes takes no approval away that the contract demands", words_of(Gate)
        ),
        "limits": Key("limits", "values that may be written, laid inside the contract's own"),
        "rate_per_min": Key(
            "integer",
            "operations with an effect that one caller may begin in a minute, a sequence counting all its steps; 1 to "
            "60000",
        ),
        "confidential": Key("flag", "registers that the contract calls confidential are shown to this caller"),
    },
    "limits": {
        "min": Key("number", "the least, included"),
        "max": Key("number", "the most, included"),
        "unit": Key("text", "of both; without it the number that the whole register's bits are"),
    },
    "metrics": {
        "textfile": Key("text", "written whole into this file, for a textfile collector"),
        "interval_s": Key("integer", "how often, 1 to 3600; default 15"),
        "port": Key("integer", "and served on this port of 127.0.0.1; off without it"),
    },
}


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a board, for editors: keys, types and words; the loader knows more."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hwtool board",
        "$ref": "#/$defs/board",
        "$defs": definitions(TABLES),
    }
