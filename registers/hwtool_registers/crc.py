"""The CRC of one byte behind each word of a transfer, as Sensirion's sensors and some EEPROMs have it."""

from __future__ import annotations

from hwtool_contracts.model import Crc


def crc8(crc: Crc, word: bytes) -> int:
    """The CRC of a word, most significant bit first."""
    value = crc.init
    for byte in word:
        value ^= byte
        for _ in range(8):
            value = ((value << 1) ^ crc.poly) & 0xFF if value & 0x80 else value << 1
    return value


def with_crc(crc: Crc, data: bytes) -> bytes:
    """The data with the CRC of each word behind it."""
    words = (data[i : i + crc.word_bytes] for i in range(0, len(data), crc.word_bytes))
    return b"".join(word + bytes([crc8(crc, word)]) for word in words)


def without_crc(crc: Crc, data: bytes) -> bytes:
    """The data alone.

    Raises:
        ValueError: a CRC is wrong: the bytes are not those that were sent.
    """
    found = b""
    step = crc.word_bytes + 1
    for at in range(0, len(data), step):
        word, told = data[at : at + step - 1], data[at + step - 1 : at + step]
        if told != bytes([crc8(crc, word)]):
            raise ValueError(f"wrong CRC behind {word.hex()}: {told.hex() or 'nothing'}, not {crc8(crc, word):02x}")
        found += word
    return found
