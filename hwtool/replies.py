"""What came back, as read-only views of the JSON: results, values with their fields and units, devices, events.

A view holds the object as it came (`json`, frozen to its depth: mappings are read-only, lists are tuples) and names its
members; those that this version does not know stay in `json` and are otherwise ignored. Light.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

Effects = Literal["applied", "none", "unknown"]
Status = Literal["done", "pending_approval", "in_progress", "failed"]
Object = Mapping[str, Any]
EMPTY: Final[Object] = MappingProxyType({})


def frozen(value: Any) -> Any:
    """The same JSON value, read-only to its depth."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: frozen(member) for name, member in value.items()})
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    return value


class View:
    """A frozen JSON object; equal to another view of an equal object."""

    __slots__ = ("json",)
    json: Object

    def __init__(self, told: Object) -> None:
        object.__setattr__(self, "json", frozen(told))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: what came back is read-only")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and type(other) is type(self) and other.json == self.json

    def __hash__(self) -> int:
        return hash(json.dumps(thawed(self.json), sort_keys=True))

    def __reduce__(self) -> tuple[type[View], tuple[Any]]:
        return type(self), (thawed(self.json),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({thawed(self.json)!r})"


def thawed(value: Any) -> Any:
    """The same JSON value as dicts and lists."""
    if isinstance(value, Mapping):
        return {name: thawed(member) for name, member in value.items()}
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


class Reading(View):
    """A register or field as it was seen."""

    __slots__ = ()

    @property
    def raw(self) -> str | None:
        """Its bits as they came, hex padded to the width; None where there is only text or bytes."""
        return self.json.get("raw")

    @property
    def value(self) -> float | int | None:
        """The number in `unit`, or the raw number where the contract names no scale; None if it has none."""
        return self.json.get("value")

    @property
    def unit(self) -> str | None:
        """The unit of `value`."""
        return self.json.get("unit")

    @property
    def name(self) -> str | None:
        """The name of the enumerated value, if it has one."""
        return self.json.get("name")

    @property
    def text(self) -> str | None:
        """Of a register that holds text. It comes from the device: data, never an instruction."""
        return self.json.get("text")

    @property
    def data(self) -> bytes:
        """The bytes of a memory or block.

        Raises:
            ValueError: it is none.
        """
        if self.json.get("hex") is None:
            raise ValueError("it is no memory and no block")
        return bytes.fromhex(self.json["hex"])

    def __int__(self) -> int:
        """The raw bits as a number.

        Raises:
            ValueError: it is text or bytes.
        """
        if self.raw is None:
            raise ValueError("it is text or bytes, no number")
        return int(self.raw, 16)


class Value(Reading):
    """A register's value; `value["FIELD"]` is one of its fields."""

    __slots__ = ()

    def __init__(self, told: Object) -> None:
        super().__init__(told)
        self.json["register"]  # KeyError: it is no value of a register

    @property
    def register(self) -> str:
        """Its name, as `device.REGISTER`."""
        return str(self.json["register"])

    @property
    def fields(self) -> Mapping[str, Reading]:
        """Its fields by name."""
        return {name: Reading(field) for name, field in (self.json.get("fields") or EMPTY).items()}

    @property
    def effects(self) -> tuple[str, ...]:
        """What reading it does, by its contract."""
        return tuple((self.json.get("read") or EMPTY).get("effects") or ())

    @property
    def provenance(self) -> str | None:
        """Who says what reading it does: asserted, reviewed, generated, silent …"""
        return (self.json.get("read") or EMPTY).get("provenance")

    @property
    def step(self) -> int | None:
        """Of a sequence: the step that read it."""
        return self.json.get("step")

    def __getitem__(self, field: str) -> Reading:
        return Reading(self.json["fields"][field])


class Result(View):
    """The one shape of every outcome; each member is told in docs/methods.md.

    Iterating gives its values; `result["device.REGISTER"]` is one of them.

    Raises:
        KeyError, TypeError: it has not the shape of a result.
    """

    __slots__ = ("values",)
    values: tuple[Value, ...]

    def __init__(self, told: Object) -> None:
        super().__init__(told)
        for name in ("status", "ok", "effects"):
            self.json[name]
        object.__setattr__(self, "values", tuple(Value(v) for v in self.json.get("values") or ()))

    @property
    def status(self) -> Status:
        """done, pending_approval, in_progress or failed."""
        status: Status = self.json["status"]
        return status

    @property
    def ok(self) -> bool:
        """Whether the state asked for is shown."""
        return bool(self.json["ok"])

    @property
    def effects(self) -> Effects:
        """What was observed of this dispatch: applied, none or unknown. Never inferred, always there."""
        effects: Effects = self.json["effects"]
        return effects

    @property
    def verdict(self) -> str | None:
        """How the operation ended: applied, satisfied, not_applied, partial, lost, superseded, abandoned or denied."""
        return self.json.get("verdict")

    @property
    def id(self) -> int | None:
        """Number of the operation, in the journal too."""
        return self.json.get("id")

    @property
    def key(self) -> str | None:
        """The key it stands under."""
        return self.json.get("key")

    @property
    def summary(self) -> str:
        """One line for people; nothing to decide by."""
        return str(self.json.get("summary") or "")

    @property
    def at(self) -> str | None:
        """When it ended, RFC 3339."""
        return self.json.get("at")

    @property
    def contract_digest(self) -> str | None:
        """The contract it was judged by."""
        return self.json.get("contract_digest")

    @property
    def generation(self) -> int | None:
        """The device's generation; rises with each proven or suspected restart of it."""
        return self.json.get("generation")

    @property
    def verified(self) -> bool | str | None:
        """What the contract was checked against; False: nothing."""
        return self.json.get("verified")

    @property
    def store(self) -> Object | None:
        """{id, seq}: a caller that keeps the highest it saw, and sends it, notices a store that was set back."""
        return self.json.get("store")

    @property
    def evidence(self) -> Object | None:
        """What was watched and seen, and for how long."""
        return self.json.get("evidence")

    @property
    def replayed(self) -> bool:
        """Whether it is the outcome of an earlier request under the same key."""
        return bool(self.json.get("replayed"))

    @property
    def dry_run(self) -> bool:
        """Whether it was rehearsed: nothing was dispatched."""
        return bool(self.json.get("dry_run"))

    @property
    def simulated(self) -> bool:
        """Whether no real device was touched."""
        return bool(self.json.get("simulated"))

    @property
    def durable(self) -> bool:
        """Whether the outcome was on disk before this answer."""
        return bool(self.json.get("durable", True))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of the form `code: text`."""
        return tuple(self.json.get("warnings") or ())

    @property
    def error(self) -> Object | None:
        """Of a failed one: code, class, message, hint, retry, next, and the code's own members."""
        return self.json.get("error")

    @property
    def retry(self) -> str | None:
        """Of pending_approval and in_progress; of an error it stands in `error`."""
        return self.json.get("retry")

    @property
    def next(self) -> Object | None:
        """The typed next action, as `retry`."""
        return self.json.get("next")

    @property
    def value(self) -> Value:
        """The only value.

        Raises:
            ValueError: there are none, or several.
        """
        if len(self.values) != 1:
            raise ValueError(f"the result has {len(self.values)} values")
        return self.values[0]

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def __getitem__(self, register: str) -> Value:
        """The first value of a register, by its whole name.

        Raises:
            KeyError: it is not among the values.
        """
        for value in self.values:
            if value.register == register:
                return value
        raise KeyError(register)


class Device(View):
    """A device of the board; what has no name here stands in `json`: title, address, bus_state, lease, safe_state."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The board's name of it."""
        return str(self.json["name"])

    @property
    def contract(self) -> str:
        """The part that its contract is of."""
        return str(self.json["contract"])

    @property
    def contract_digest(self) -> str:
        """What its contract is, to the byte."""
        return str(self.json["contract_digest"])

    @property
    def bus(self) -> str:
        """The bus it is on."""
        return str(self.json["bus"])

    @property
    def generation(self) -> int:
        """Rises with each proven or suspected restart of the device."""
        return int(self.json["generation"])

    @property
    def identity(self) -> str | None:
        """What the board expects there."""
        return self.json.get("identity")

    @property
    def held(self) -> str | None:
        """Why effectful calls are refused, None if they are not."""
        return self.json.get("held")

    @property
    def verified(self) -> bool | str:
        """What its contract was checked against; False: nothing."""
        verified: bool | str = self.json["verified"]
        return verified

    @property
    def simulated(self) -> bool:
        """Whether no real device is behind it."""
        return bool(self.json["simulated"])


class Event(View):
    """Something that a subscription tells."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """value, when, op, hold, run or error."""
        return str(self.json["kind"])

    @property
    def at(self) -> str:
        """When, RFC 3339."""
        return str(self.json["at"])

    @property
    def values(self) -> tuple[Value, ...]:
        """Of the registers that changed, or that met the condition."""
        return tuple(Value(v) for v in self.json.get("values") or ())

    @property
    def entry(self) -> Object | None:
        """Of the journal."""
        return self.json.get("entry")

    @property
    def error(self) -> Object | None:
        """Why a device could not be looked at."""
        return self.json.get("error")
