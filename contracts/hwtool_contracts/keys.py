"""The keys of the native format as a table: the manual prints it, editors get a JSON Schema of it, tests compare it.

The loader reads with code, not from this table; a test loads files that use every key and compares what the loader took
with what stands here, both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from hwtool_contracts.effects import Basis, ReadEffect, WriteEffect
from hwtool_contracts.model import Access, ByteOrder, Encoding, Owner, Persistence, Space


class Key(NamedTuple):
    """One key.

    Attributes:
        kind: what it takes: text, integer, flag, number, texts, integers, bits, one of `words`, names (a table of names
            and integers), the name of another table of this module, or several of these with `|` between them.
        says: what it says, in a line.
        words: the closed vocabulary, where it has one.
        required: whether the table cannot stand without it.
    """

    kind: str
    says: str
    words: tuple[str, ...] = ()
    required: bool = False


def words_of(words: Iterable[StrEnum]) -> tuple[str, ...]:
    """A closed vocabulary as texts."""
    return tuple(w.value for w in words)


ORDERS: Final = words_of(ByteOrder)
EVIDENCE: Final = {
    "provenance": Key("word", "where it is known from; asserted where it is not said", words_of(Basis)),
    "seen": Key("word", "what a reviewed effect was seen in", ("page", "driver")),
    "source": Key("text", "document and section, or repository, commit and path"),
}
QUANTITY: Final = {
    "encoding": Key("word", "how the bits are understood", tuple(e for e in words_of(Encoding) if e != "bytes")),
    "signed": Key("flag", "two's complement"),
    "scale": Key("number", "value = decoded number * scale + add"),
    "add": Key("number", "see scale"),
    "unit": Key("text", "unit of the value"),
    "exponent_from": Key("text", "linear16: register or REG.FIELD whose low five bits, signed, are the exponent"),
    "scale_from": Key("text", "register or REG.FIELD whose raw value chooses one of `scales`"),
    "scales": Key("numbers", 'scale for each raw value of `scale_from`: a table, `{ 0 = "0.1", 1 = "0.2" }`'),
    "scale_param": Key("text", "parameter of the board that the scale is multiplied with"),
}
STATED: Final = {
    "access": Key("word", "which directions the map allows", words_of(Access)),
    "read": Key("read", "what a read does"),
    "write": Key("write", "what a write does"),
    "reset": Key("integer", "value after power-on"),
    "volatile": Key('flag | "unknown"', 'hardware changes it by itself; "unknown" counts as yes until a review'),
    "values": Key("names", "names of raw values"),
    "description": Key("text", "a text for people and searches"),
}
REGISTER: Final = {
    **STATED,
    **QUANTITY,
    "reset_mask": Key("integer", "bits whose reset value is known"),
    "persistence": Key("word", "how long a written value lasts", words_of(Persistence)),
    "owner": Key("word", "whether another writer exists on this host", words_of(Owner)),
    "sensitive": Key("flag", "its value is redacted in every record"),
    "confidential": Key("flag", "shown only to callers that the board's policy allows; sensitive too"),
    "access_bits": Key("integer", "8, 16, 32 or 64: width of the only bus accesses that reach it"),
    "bank": Key("text", "the bank in which it answers"),
    "byte_order": Key("word", "order of its bytes", ORDERS),
    "word_order": Key("word", "order of its 16-bit words", ORDERS),
    "also_at": Key("integers", "other offsets of the same storage"),
    "set_at": Key("alias", "offset where ones set bits of it"),
    "clear_at": Key("alias", "offset where ones clear bits of it"),
    "toggle_at": Key("alias", "offset where ones toggle bits of it"),
    "write_mask_bits": Key("text", "the upper half, as msb:lsb: says bit for bit which bits below a write changes"),
    "may_block": Key("flag", "an access may hold the bus up: never polled, merged or dumped"),
    "erratum": Key("text", "what is wrong with it; told with each result"),
    "verified": Key("text", "what it was checked against"),
    "fields": Key("field*", "its fields by name"),
}
ARRAY: Final = {
    "count": Key("integer", "elements of an array, named N[i]"),
    "stride_bytes": Key("integer", "from one element to the next; coils count coils"),
}

TABLES: Final[dict[str, dict[str, Key]]] = {
    "file": {
        "schema": Key("integer", "1", required=True),
        "part": Key("text", "name of the part", required=True),
        "vendor": Key("text", "who makes it", required=True),
        "title": Key("text", "what it is", required=True),
        "source": Key("text", "the document it was written from", required=True),
        "owner": Key("word", "default of all registers", words_of(Owner)),
        "verified": Key("text", "what the contract was checked against; `a model: …` where that was no real part"),
        "access": Key("access", "how it is reached", required=True),
        "defaults": Key("defaults", "what registers have that do not say otherwise"),
        "registers": Key("register*", "registers by name"),
        "clusters": Key("cluster*", "clusters of registers by name"),
        "commands": Key("command*", "opcodes by name"),
        "memories": Key("memory*", "ranges of bytes by name"),
        "sequences": Key("sequence*", "sequences that are run by name"),
        "banks": Key("bank*", "when registers answer"),
        "groups": Key("group*", "registers that are accessed together"),
        "assume": Key("assume[]", "what must hold for the file to be right"),
        "identity": Key("identity", "what the chip says it is"),
        "restart": Key("restart", "what the chip shows of its restarts"),
        "mux": Key("mux", "it is a multiplexer: devices sit behind its channels"),
        "params": Key("param*", "what the board says of the wiring"),
    },
    "overlay": {
        "schema": Key("integer", "1"),
        "base": Key("text", "name of the file below", required=True),
        "base_sha256": Key("text", "of that file, when it was reviewed", required=True),
        "verified": Key("text", "what the whole was checked against"),
        "review": Key("review[]", "what silence means"),
        "registers": Key("correction*", "registers to correct or add; a name may be a pattern"),
        "clusters": Key("cluster*", "clusters to add"),
        "commands": Key("command*", "commands to add"),
        "memories": Key("memory*", "memories to add"),
        "sequences": Key("sequence*", "sequences to add"),
        "params": Key("param*", "parameters to add"),
        "banks": Key("bank*", "banks to add"),
        "groups": Key("group*", "groups to add"),
        "assume": Key("assume[]", "assumptions to add"),
        "identity": Key("identity", "the identity"),
        "restart": Key("restart", "what the chip shows of its restarts"),
    },
    "review": {
        "match": Key("text | texts", "patterns of register names: * any text, ? one character", required=True),
        "except": Key("texts", "names or patterns that are not covered"),
        "silent_read": Key("word", "what a silent read is", ("none",)),
        "silent_write": Key("word", "what a silent write is", ("store",)),
        "silent_volatile": Key("flag", "false: hardware changes none of the bits nobody spoke of"),
        "seen": Key("word", "what was looked at", ("page", "driver"), required=True),
        "source": Key("text", "document and section, or repository, commit and path", required=True),
        "reviewed_by": Key("text", "who signs", required=True),
        "on": Key("date", "when", required=True),
        "covers_sha256": Key("text", "digest of what it covered: it holds while that stays the same"),
    },
    "access": {
        "offset_bytes": Key("integer", "bytes of the offset in the transfer; 0: none is sent"),
        "byte_order": Key("word", "of registers longer than a byte; without it each of them must say its own", ORDERS),
        "i2c": Key("i2c", "I2C facts"),
        "spi": Key("spi", "SPI facts"),
        "mdio": Key("mdio", "management bus of Ethernet PHYs"),
        "modbus": Key("modbus", "Modbus facts"),
        "line": Key("line", "line protocol"),
        "mapped": Key("mapped", "memory-mapped: offsets are addresses"),
    },
    "i2c": {
        "addresses": Key("integers", "7-bit addresses it can have"),
        "auto_increment": Key("word", "when the register pointer moves", ("read", "write", "both", "none")),
        "increment_mask": Key("integer", "bits of the offset that make it move in longer transfers"),
        "read": Key("word", "how a read is framed", ("restart", "stop")),
        "crc": Key("crc", "a CRC behind each word"),
        "pec": Key("flag", "each transfer ends with the packet error code of SMBus"),
        "offset_bits_in_address": Key("integer", "highest bits of the offset that are the lowest of the address"),
    },
    "crc": {
        "width_bits": Key("integer", "8"),
        "poly": Key("integer", "polynomial without its highest bit", required=True),
        "init": Key("integer", "start value"),
        "word_bytes": Key("integer", "bytes that one CRC covers", required=True),
    },
    "spi": {
        "read_mask": Key("integer", "bits of the offset that mark a read"),
        "increment_mask": Key("integer", "bits of the offset that make it move"),
        "mode": Key("integer", "clock polarity and phase, 0 to 3"),
        "max_hz": Key("integer", "highest clock"),
        "word_bits": Key("integer", "of a word of the controller: 8, 16 or 32; default 8. A transfer is whole words"),
    },
    "mdio": {"addresses": Key("integers", "PHY addresses it can have; none: any of 0 to 31")},
    "modbus": {
        "base": Key("integer", "number that the manual gives to register 0 on the wire: 0 or 1", required=True),
        "functions": Key(
            "integers",
            "function codes it answers: 1 to 6, 15, 16; 22: it merges updates; 24: its queues; 43: its objects",
        ),
        "max_registers": Key("integer", "registers that one request may span"),
        "word_order": Key("word", "of values longer than a register", ORDERS),
        "atomic_multi": Key("flag", "several registers are written whole or not at all"),
    },
    "line": {"terminator": Key("text", "what ends a line")},
    "mapped": {},
    "defaults": {
        "width_bits": Key("integer", "of registers"),
        "volatile": STATED["volatile"],
        "owner": REGISTER["owner"],
        "persistence": REGISTER["persistence"],
        "read": Key("read", "of registers that have no read table; needs a source"),
        "write": Key("write", "of registers that have no write table; needs a source"),
    },
    "register": {
        **REGISTER,
        **ARRAY,
        "offset": Key("integer", "what the chip expects; in Modbus spaces counted from base; required but for lines"),
        "width_bits": Key("integer", "8; in Modbus word spaces 16, of coils 1, of lines 32; of blocks required"),
        "transfer": Key("word", "of an array: its elements are the group N too, accessed in one transfer", ("block",)),
        "space": Key("word", "address space", tuple(s for s in words_of(Space) if s not in ("command", "line"))),
        "query": Key("text", "line protocol: the line that is answered with the value"),
        "set": Key("text", "line protocol: the line that sets it, {value} for the value"),
    },
    "correction": {**REGISTER, "except": Key("texts", "of a pattern: names that it does not mean")},
    "field": {
        **STATED,
        **QUANTITY,
        "bits": Key("bits", "a bit number, or msb:lsb"),
        "parts": Key("texts", "bit ranges that make the value, most significant first"),
        "reserved": Key("word", "what is written there", ("keep", "zero", "one")),
        "erratum": Key("text", "what is wrong with it; told with each result of the register"),
        "confidential": REGISTER["confidential"],
        "alternate": Key("flag", "shares bits with another field, which is there in another mode"),
    },
    "cluster": {
        **ARRAY,
        "offset": Key("integer", "of its first byte", required=True),
        "registers": Key("register*", "named N.REG, of an array N[i].REG"),
        "clusters": Key("cluster*", "clusters in it"),
        "derived_from": Key("text", "a cluster beside it whose registers it has too; a review of one covers the other"),
        "bank": Key("text", "bank of its registers"),
        "aliases": Key("aliases", "where ones act on the bits of each of its registers that stores"),
    },
    "aliases": {
        "set_at": Key("integer", "how far from a register ones set bits of it"),
        "clear_at": Key("integer", "how far from a register ones clear bits of it"),
        "toggle_at": Key("integer", "how far from a register ones toggle bits of it"),
    },
    "command": {
        **{k: v for k, v in REGISTER.items() if k != "access"},
        "code": Key("integer", "the opcode"),
        "code_bytes": Key("integer", "bytes of it; 0: a plain read; else as offset_bytes"),
        "offset_bytes": Key("integer", "bytes of an address behind the code: the highest bytes of the value"),
        "dummy_bytes": Key("integer", "zeros between code and answer"),
        "duplex": Key("flag", "SPI: the answer begins with the first bit of the code, and comes while that goes out"),
        "write_bytes": Key("integer", "bytes of data it takes, CRCs not counted"),
        "read_bytes": Key("integer", "bytes it answers, CRCs not counted"),
    },
    "memory": {
        "offset": Key("integer", "of its first byte"),
        "size_bytes": Key("integer", "of the whole", required=True),
        "page_bytes": Key("integer", "a write is cut at these"),
        "write_cycle_ms": Key("integer", "how long it does not acknowledge after a write"),
        "owner": REGISTER["owner"],
        "busy": Key("text", "how a write cycle shows: nack, or the register or REG.FIELD that is not 0 meanwhile"),
        "access": STATED["access"],
        "persistence": Key("word", "nonvolatile where it is not said", words_of(Persistence)),
        "read": STATED["read"],
        "write": STATED["write"],
        "read_code": Key("integer", "opcode that reads it, followed by the offset"),
    },
    "read": {
        "effects": Key("words", "what reading does; the strictest decides", words_of(ReadEffect), required=True),
        **EVIDENCE,
        "affects": Key("texts", "registers or REG.FIELD whose state it changes"),
        "level": Key("text", "pop: what counts the elements"),
        "when_empty": Key("text", 'pop: what an empty FIFO answers; "last": the last element again'),
        "max_burst": Key("integer", "pop: elements one transfer may take; more are taken in chunks"),
        "element_bytes": Key("integer", "pop: bytes of an element"),
        "peek": Key("text", "clean register that shows what would be taken"),
        "state": Key("text", 'claim: what shows whether it is taken, by 1 or as "REG.FIELD = value"'),
        "ack_by": Key("texts", "registers whose access acknowledges what this one shows"),
        "reseek": Key("text", "advance: register whose write sets the pointer anew"),
        "gate": Key("text", 'REG.FIELD that is not 0, or "REG.FIELD = value", while a read is answered'),
    },
    "write": {
        "effect": Key("word", "what writing does", words_of(WriteEffect), required=True),
        **EVIDENCE,
        "affects": Key("texts", "registers or REG.FIELD whose state it changes"),
        "verify": Key("word | verify", "how success shows", ("read_back", "signal", "none")),
        "mask": Key("integer", "bits that may be written"),
        "signals": Key("texts | signal[]", "observable consequences"),
        "window_ms": Key("integer", "how long the consequence may take"),
        "approval": Key("word", "whether a person must agree", ("none", "required")),
        "limits": Key("limits", "what may be written"),
        "values": Key("names", "the only values that may be written"),
        "gate": Key("text", 'REG.FIELD that is not 0, or "REG.FIELD = value", while a write is taken'),
        "triggers": Key("texts", "what any write sets off: none of it is harmless"),
        "commit_by": Key("text", "register whose write makes this one take effect"),
        "resets": Key("word", "the device restarts: a new generation", ("device",)),
        "readdresses": Key("flag", "the device answers elsewhere afterwards: approval, then held"),
        "absolute": Key("flag", "a command that names a place, not a step: harmless to repeat"),
        "irreversible": Key("flag", "cannot be undone: approval"),
        "busy_retry": Key("busy_retry", "the one repeat: the bus proved that the device was busy"),
        "delay_after_ms": Key("integer", "how long the device is left alone"),
        "unlock": Key("text", "name of the sequence in which alone it may be written: keys, write, relock"),
        "max_rate_per_min": Key("integer", "how often it may be written"),
    },
    "verify": {
        "by": Key("word", "how", ("read_back", "signal", "none"), required=True),
        "register": Key("text", "another register that shows it"),
        "mask": Key("integer", "bits that are compared, in the register that is read"),
        "tolerance": Key("integer", "raw units that the read-back may differ by"),
        "consumes": Key("flag", "reading that register consumes what it shows: once, as the end of the write"),
    },
    "signal": {
        "register": Key("text", "what is looked at", required=True),
        "delta": Key("integer", "by how much one execution changes it"),
        "equals": Key("integer", "what it then is"),
    },
    "limits": {"min": Key("number", "lowest value"), "max": Key("number", "highest value")},
    "busy_retry": {
        "attempts": Key("integer", "transfers in all", required=True),
        "interval_ms": Key("integer", "between two of them", required=True),
    },
    "alias": {
        "at": Key("integer | text", "offset; in an overlay also a register", required=True),
        "shift": Key("integer", "how much higher the bits stand there"),
    },
    "bank": {
        "select": Key("select[]", "registers to set, in order", required=True),
        "restore": Key("word | select[]", "what becomes of them afterwards, or values to set", ("prior", "none")),
        "at_once": Key(
            "flag",
            "Modbus: holding registers are selected and read in one request (function 23), so that nobody comes in "
            "between. Only where the device is known to write before it reads, as the standard says: one that reads "
            "first would answer from the bank before. Default false",
        ),
    },
    "select": {
        "register": Key("text", "a clean store register of an exclusive device", required=True),
        "value": Key(
            'integer | "@index"', "what it must hold; @index: the number of the cluster's element", required=True
        ),
        "mask": Key("integer", "in these bits"),
    },
    "group": {
        "members": Key("texts", "registers", required=True),
        "order": Key("texts", "order of access, where it is not that of members"),
        "transfer": Key("word", "one transfer, or one each", ("one", "each")),
    },
    "assume": {
        "register": Key("text", "what is looked at once a generation", required=True),
        "field": Key("text", "its field", required=True),
        "value": Key("integer", "what it must be", required=True),
        "for": Key("text", "what would be wrong otherwise", required=True),
    },
    "identity": {
        "register": Key("text", "clean register or REG.FIELD; or command"),
        "command": Key("text", "clean command"),
        "equals": Key("integer | integers | text", "what every such chip has there; of a text: its beginning"),
        "mask": Key("integer", "bits that are compared"),
        "serial": Key("text", "clean register that the board's identity is compared with"),
    },
    "restart": {
        "counter": Key("text", "clean register or REG.FIELD: another value after each restart; one of these three"),
        "uptime": Key("text", "clean register or REG.FIELD: time since the restart, counted from 0"),
        "unit_ms": Key("integer", "of uptime: milliseconds of one count; default 1000"),
        "cause": Key("text", "clean register or REG.FIELD: not 0 after a restart, until somebody clears it"),
    },
    "mux": {
        "register": Key(
            "text", "plain store that switches: the channel written is the only one that is on", required=True
        ),
        "channels": Key("integers", "what is written for each channel, from channel 0 on", required=True),
    },
    "param": {
        "default": Key("number", "where the board says nothing"),
        "min": Key("number", "lowest value"),
        "max": Key("number", "highest value"),
        "unit": Key("text", "its unit"),
    },
    "sequence": {
        "params": Key("texts", "names that steps have as $name"),
        "steps": Key("step[]", "what is done, in order", required=True),
        "result": Key("text", "register whose value is the answer"),
        "relock": Key("relock[]", "writes that lock again what it unlocked, sent at the start after a crash in it"),
    },
    "relock": {
        "register": Key("text", "where; its write is a plain store that does the same each time", required=True),
        "value": Key("integer", "what, the whole raw value", required=True),
    },
    "step": {
        "do": Key("word", "what", ("read", "read_effectful", "write", "update", "wait_until", "expect"), required=True),
        "register": Key("text", "where", required=True),
        "value": Key("value", "write: what"),
        "fields": Key("values", "update: field to value"),
        "mask": Key("integer", "which bits"),
        "count": Key("integer", "read_effectful: elements"),
        "equals": Key("value", "wait_until, expect: what it must be"),
        "timeout_ms": Key("integer", "wait_until: how long"),
        "interval_ms": Key("integer", "wait_until: how often"),
    },
}


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a contract or an overlay, for editors: keys, types and words; the loader knows more."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hwtool contract or overlay",
        "if": {"required": ["base"]},
        "then": {"$ref": "#/$defs/overlay"},
        "else": {"$ref": "#/$defs/file"},
        "$defs": definitions(TABLES),
    }


def definitions(tables: Mapping[str, Mapping[str, Key]]) -> dict[str, Any]:
    """A JSON Schema of each table, by name."""
    return {
        name: {
            "type": "object",
            "additionalProperties": False,
            "properties": {key: _typed(told) for key, told in keys.items()},
            **({"required": needed} if (needed := [k for k, told in keys.items() if told.required]) else {}),
        }
        for name, keys in tables.items()
    }


PLAIN: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "flag": {"type": "boolean"},
    "number": {"type": ["number", "string"]},
    "numbers": {"type": "object", "additionalProperties": {"type": ["number", "string"]}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "integers": {"type": "array", "items": {"type": "integer"}},
    "names": {"type": "object", "additionalProperties": {"type": "integer"}},
    "bits": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+:[0-9]+$"}]},
    "date": {"anyOf": [{"type": "string"}, {"type": "object"}]},
    "value": {"type": ["integer", "string", "object"]},
    "values": {"type": "object"},
}


def _typed(key: Key) -> dict[str, Any]:
    options = [_option(kind.strip(), key) for kind in key.kind.split("|")]
    if key.kind == "alias":
        options += [{"type": "integer"}, {"type": "string"}]
    return {"description": key.says, **(options[0] if len(options) == 1 else {"anyOf": options})}


def _option(kind: str, key: Key) -> dict[str, Any]:
    if kind == "word":
        return {"type": "string", "enum": list(key.words)}
    if kind == "words":
        return {"type": "array", "items": {"type": "string", "enum": list(key.words)}, "minItems": 1}
    if kind.startswith('"'):
        return {"const": kind.strip('"')}
    if kind in PLAIN:
        return dict(PLAIN[kind])
    if kind.endswith("*"):
        return {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{kind[:-1]}"}}
    if kind.endswith("[]"):
        return {"type": "array", "items": {"$ref": f"#/$defs/{kind[:-2]}"}}
    return {"$ref": f"#/$defs/{kind}"}


def reference(tables: Mapping[str, Mapping[str, Key]] = TABLES) -> list[str]:
    """The tables of the manual: each key with what it takes and says."""
    lines = []
    for name, keys in tables.items():
        lines += [f"### `{name}`", ""]
        if not keys:
            lines += ["No keys: that the table is there says it.", ""]
            continue
        lines += ["| key | takes | says |", "|---|---|---|"]
        for key, told in keys.items():
            takes = told.kind if not told.words else told.kind.replace("word", ", ".join(told.words), 1)
            takes = takes.replace("|", "or")
            needed = " (required)" if told.required else ""
            lines.append(f"| `{key}` | {takes}{needed} | {told.says.replace('|', 'or')} |")
        lines.append("")
    return lines
