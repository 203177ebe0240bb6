"""Reading of an SVD file as XML: a peripheral at a time, without entities, without a document type, without network.

Rules
- A document type is refused before anything else is read: entities, and with them bombs and external files, cannot
  exist without one.
- Only one peripheral at a time is held as a tree, unless another one derives from it.
- What is not well-formed is a fault with line and column; a truncated file never makes a smaller map.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers import expat

from hwtool_contracts.toml_reader import Fault, Faults

PROPERTIES: Final = frozenset({"size", "access", "resetValue", "resetMask", "addressUnitBits", "width"})
MAX_FILE_BYTES: Final = 128 << 20
CHUNK_BYTES: Final = 64 << 10


class _HeadRead(Exception):
    """The prologue and the head of the device have been read."""


class SvdXml:
    """One SVD file on its way in.

    Attributes:
        head: the texts of the simple elements of `<device>` that stand before its peripherals; also `cpu.endian`.
        bases: names of peripherals that something in the file may derive from.
    """

    def __init__(self, data: bytes, file: str) -> None:
        """Look at the prologue and the head.

        Raises:
            Faults: too large, a document type, not an SVD file, or not well-formed so far.
        """
        self.file = file
        if len(data) > MAX_FILE_BYTES:
            self.refuse("too large", f"{len(data)} bytes", f"at most {MAX_FILE_BYTES} bytes")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            data = _as_utf8(data, file)
        self._data = data
        self.head: dict[str, str] = {}
        self._read_head()
        found = set(re.findall(rb"derivedFrom\s*=\s*[\"']\s*([^\"'.\s]+)", data))
        texts = [name.decode(encoding, "replace") for name in found for encoding in ("utf-8", "latin-1")]
        self.bases = {html.unescape(text).partition(".")[0] for text in texts}

    def refuse(self, rule: str, found: str, wanted: str) -> None:
        """Give up.

        Raises:
            Faults: always.
        """
        raise Faults([Fault(self.file, "", "", rule, found, wanted)])

    def _read_head(self) -> None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        path: list[str] = []
        text: list[str] = []

        def doctype(*_: object) -> None:
            place = f"line {parser.CurrentLineNumber}"
            self.refuse(
                "a document type is not allowed", place, "a file without <!DOCTYPE>; entities are never expanded"
            )

        def start(tag: str, _: dict[str, str]) -> None:
            if not path and tag != "device":
                self.refuse("not a CMSIS-SVD file", f"<{tag}>", "<device> as the outermost element")
            path.append(tag)
            text.clear()
            if len(path) == 2 and tag == "peripherals":
                raise _HeadRead

        def end(tag: str) -> None:
            if len(path) == 2:
                self.head[tag] = "".join(text).strip()
            elif path == ["device", "cpu", "endian"]:
                self.head["cpu.endian"] = "".join(text).strip()
            path.pop()

        parser.StartDoctypeDeclHandler = doctype
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = text.append
        try:
            parser.Parse(self._data, True)
        except _HeadRead:
            return
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise self._not_xml(error) from error
        self.refuse("no peripherals", "no <peripherals> in <device>", "a device with <peripherals>")

    def _not_xml(self, error: Exception) -> Faults:
        wanted = "the whole file, well-formed, in the encoding that it declares"
        return Faults([Fault(self.file, "", "", "not well-formed XML", str(error), wanted)])

    def peripherals(self) -> Iterator[Element]:
        """Each `<peripheral>` once it is complete; its children are dropped when the next one is asked for.

        Whoever must keep one takes its children along before.

        Raises:
            Faults: not well-formed, truncated, or with a peripheral out of place.
        """
        parser: XMLPullParser[Element] = XMLPullParser(("end",))
        read: list[Element] = []
        whole: Element | None = None
        try:
            for at in range(0, len(self._data), CHUNK_BYTES):
                parser.feed(self._data[at : at + CHUNK_BYTES])
                for _, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                    whole = element
                    if element.tag == "peripheral":
                        yield element
                        element.clear()
                        read.append(element)
                    elif element.tag == "peripherals" and [id(e) for e in element] != [id(e) for e in read]:
                        found = f"{len(read)} of them, {len(element)} elements in <peripherals>"
                        self.refuse("a <peripheral> out of place", found, "<peripheral> in <peripherals> alone")
            parser.close()
            self._check_rest(whole)
        except (ParseError, LookupError, ValueError) as error:
            raise self._not_xml(error) from error

    def _check_rest(self, device: Element | None) -> None:
        """What stands behind the peripherals is no peripheral, and nothing that they should have inherited."""
        if device is None:
            return
        behind = False
        for child in device:
            if behind and child.tag in PROPERTIES:
                rule = f"<{child.tag}> behind <peripherals>"
                self.refuse(rule, (child.text or "").strip(), "before <peripherals>, where registers inherit it")
            if child.tag != "peripherals" and next(child.iter("peripheral"), None) is not None:
                self.refuse("a <peripheral> out of place", f"in <{child.tag}>", "<peripheral> in <peripherals> alone")
            behind = behind or child.tag == "peripherals"


def _as_utf8(data: bytes, file: str) -> bytes:
    """UTF-16 with a byte order mark as UTF-8, without the declaration that says otherwise.

    Raises:
        Faults: not UTF-16 although the mark says so.
    """
    try:
        text = data.decode("utf-16")
    except UnicodeDecodeError as error:
        raise Faults([Fault(file, "", "", "not UTF-16 as its mark says", str(error), "UTF-8 or UTF-16")]) from error
    return re.sub(r"^\s*<\?xml[^>]*\?>", "", text, count=1).encode("utf-8", "surrogatepass")
