"""SVD files as tests write them: the smallest device that holds what a test is about."""

from __future__ import annotations

from collections.abc import Iterable

from hwtool_contracts.importers.svd import parse_svd
from hwtool_contracts.model import Contract, Field, Register
from hwtool_contracts.notice import Imported
from hwtool_contracts.toml_reader import Faults

HEAD = "<name>TOY</name><vendor>nobody</vendor><description>a toy</description><addressUnitBits>8</addressUnitBits>"


def tags(**texts: object) -> str:
    """`name=1` as `<name>1</name>`, in the order given."""
    return "".join(f"<{tag}>{text}</{tag}>" for tag, text in texts.items())


def _element(tag: str, inner: str, derived: str | None) -> str:
    attribute = "" if derived is None else f' derivedFrom="{derived}"'
    return f"<{tag}{attribute}>{inner}</{tag}>"


def field(name: str, bits: str | None = "[0:0]", more: str = "", derived: str | None = None) -> str:
    """A field; without bits if they are said in `more` or come from a base."""
    place = "" if bits is None else tags(bitRange=bits)
    return _element("field", tags(name=name) + place + more, derived)


def register(
    name: str, offset: object = 0, more: str = "", fields: Iterable[str] = (), derived: str | None = None
) -> str:
    """A register; `offset=None` leaves the offset out."""
    place = "" if offset is None else tags(addressOffset=offset)
    inside = "".join(fields)
    return _element(
        "register", tags(name=name) + place + more + (f"<fields>{inside}</fields>" if inside else ""), derived
    )


def cluster(name: str, *inner: str, offset: object = 0, more: str = "", derived: str | None = None) -> str:
    """A cluster of registers and clusters."""
    place = "" if offset is None else tags(addressOffset=offset)
    return _element("cluster", tags(name=name) + more + place + "".join(inner), derived)


def peripheral(name: str, *inner: str, base: object = "0x40000000", more: str = "", derived: str | None = None) -> str:
    """A peripheral."""
    place = "" if base is None else tags(baseAddress=base)
    inside = f"<registers>{''.join(inner)}</registers>" if inner else ""
    return _element("peripheral", tags(name=name) + more + place + inside, derived)


def device(*peripherals: str, head: str = HEAD) -> str:
    """A whole file."""
    return f'<?xml version="1.0"?>\n<device>{head}<peripherals>{"".join(peripherals)}</peripherals></device>\n'


def imported(*peripherals: str, head: str = HEAD) -> Imported:
    """What a device of these peripherals becomes."""
    return parse_svd(device(*peripherals, head=head).encode(), "toy.svd")


def contract(*peripherals: str, head: str = HEAD) -> Contract:
    """The contract of a device of these peripherals."""
    return imported(*peripherals, head=head).contract


def one_register(more: str = "", fields: Iterable[str] = (), around: str = "", head: str = HEAD) -> Register:
    """The register of a device that has one."""
    made = contract(peripheral("P", register("R", 0, more, fields), more=around), head=head)
    return made.registers["P.R"]


def one_field(more: str = "", register_more: str = "", bits: str | None = "[3:0]") -> Field:
    """The field of a register that has one."""
    return one_register(register_more, [field("F", bits, more)]).fields["F"]


def rules(found: Imported) -> list[str]:
    """The rules of all notices."""
    return [notice.rule for notice in found.notices]


def faults_of(text: str | bytes) -> list[str]:
    """The faults of a file, as text; none if it is imported."""
    try:
        parse_svd(text if isinstance(text, bytes) else text.encode(), "toy.svd")
    except Faults as error:
        return [str(fault) for fault in error.faults]
    return []
