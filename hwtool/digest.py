"""The digest of a request: what binds a key to one thing that happens on a device.

SHA-256 over `hwtool.op.v1\\0` and canonical JSON (sorted keys, integers as hex strings, no floats) of everything that
decides what happens on the device, and of nothing else: not the key, the caller, the reason or a deadline. Requests
that touch a sensitive register are digested by HMAC under the store's secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hwtool.resolve import Resolved


def digest_input(resolved: Resolved) -> dict[str, Any]:
    """Everything that decides what happens on the device."""
    device = resolved.device
    targets = []
    for index, register in enumerate(resolved.registers):
        target: dict[str, Any] = {
            "register": register.name,
            "space": register.space.value,
            "offset": hex(register.offset),
            "width": hex(register.width_bits),
            "byte_order": register.byte_order.value,
            "word_order": register.word_order.value,
            "bank": register.bank,
        }
        if resolved.changes:
            change = resolved.changes[index]
            verify = change.judged.verify
            shown_by = [verify.by, verify.register, _hex(verify.mask), *(["consumes"] if verify.consumes else [])]
            target |= {
                "value": hex(change.value),
                "mask": None if change.mask is None else hex(change.mask),
                "effect": change.judged.effect.value,
                "verify": shown_by,
                "signals": [[s.register, _hex(s.delta), _hex(s.equals)] for s in change.judged.signals],
            }
        else:
            target["effects"] = sorted(e.value for e in resolved.reads[index][1].effects)
        targets.append(target)
    return {
        "kind": resolved.kind,
        "locus": device.locus,
        "targets": targets,
        "transfer": None if resolved.group is None else resolved.group.transfer,
        "count": hex(resolved.count),
        "expect": {name: hex(value) for name, value in resolved.expect.items()},
    }


def _hex(number: int | None) -> str | None:
    return None if number is None else hex(number)


def digest_of(content: Mapping[str, Any], secret: bytes | None) -> bytes:
    """32 bytes; keyed with the store's secret where the content is sensitive."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    text = b"hwtool.op.v1\0" + canonical.encode()
    return hmac.digest(secret, text, "sha256") if secret is not None else hashlib.sha256(text).digest()


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Paths at which two digest inputs differ."""
    found = []
    for name in sorted(set(one) | set(other)):
        a, b = one.get(name), other.get(name)
        if a == b:
            continue
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(isinstance(x, dict) for x in a):
            for index, (x, y) in enumerate(zip(a, b, strict=True)):
                found += differences(x, y, f"{prefix}{name}[{index}].")
        else:
            found.append(prefix + name)
    return found


CONTRACT_MEMBERS = frozenset(
    {"space", "offset", "width", "byte_order", "word_order", "bank"}
    | {"effect", "effects", "verify", "signals", "transfer"}
)


def describe_differences(paths: Sequence[str]) -> list[str]:
    """What a key conflict says differs; only the contract's resolution counts as `contract`."""
    inside = {p.rpartition(".")[2] for p in paths}
    if "register" in inside:
        return ["register"]  # everything else differs with it
    return ["contract"] if inside and inside <= CONTRACT_MEMBERS else list(paths)
