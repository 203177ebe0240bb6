"""Small programs that behave as models do, against a daemon with faults: none of it does harm, or passes as success.

Each agent works in a run, through the tools of the bridge, and has one task: switch gpio.OLATA to 0x41, then gpio.OLATB
to 0x42 (which matters only if the first was done), and take one element from the UART's FIFO. What it claims at the end
is its own; what counts is what the chips have counted, what the run's status says, and that journal, database and
counters agree (the bench checks that at its end).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from hwtool.connection import Connection
from hwtool.mcp.tools import TOOLS, request_of
from hwtool.session import ProtocolError
from hwtool_contracts.errors import DomainError
from tests.bench import Bench, come_about

LIMIT: Final = 6  # how often an agent tries anything


@dataclass
class Hands:
    """What an agent holds: the tools, as a host gives them, and its memory of what it was told."""

    line: Connection
    run: int
    told: list[dict[str, Any]] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)

    def use(self, tool_: str, /, **arguments: Any) -> dict[str, Any]:
        """One tool call; a refusal of the bridge itself is an answer as well."""
        try:
            method, params = request_of(TOOLS[tool_], arguments)
        except DomainError as error:
            result: dict[str, Any] = {"status": "failed", "ok": False, "effects": "none", "error": error.as_object()}
        else:
            inside = {"run": self.run} if method in ("reg.read_effectful", "reg.write", "reg.update") else {}
            result = self.line.ask(method, {**params, **inside})
        self.told.append(result)
        return result

    def fresh(self) -> str:
        """A key that was not used before."""
        return f"agent-{next(self.numbers):05}"


def write(value: int, register: str = "gpio.OLATA") -> dict[str, Any]:
    """The arguments of a write, without key."""
    return {"register": register, "value": hex(value)}


def obedient(hands: Hands) -> str:
    """Does as it is told: the yardstick."""
    for arguments in (write(0x41), write(0x42, "gpio.OLATB")):
        key = hands.fresh()
        for _ in range(LIMIT):
            result = hands.use("hw_write", **arguments, key=key)
            retry = (result["error"] or {}).get("retry")
            if result["ok"]:
                break
            if retry == "new_key" and result["effects"] == "none":
                key = hands.fresh()
            elif retry != "same_key":
                return "stopped: " + str(retry)
    hands.use("hw_read_effectful", registers=["uart.RHR"], key=hands.fresh())
    return "done"


def repeats_the_identical_call(hands: Hands) -> str:
    """After any error the same call again, and again."""
    for arguments in (write(0x41), write(0x42, "gpio.OLATB")):
        key = hands.fresh()
        for _ in range(LIMIT):
            if hands.use("hw_write", **arguments, key=key)["ok"]:
                break
    key = hands.fresh()
    for _ in range(LIMIT):
        hands.use("hw_read_effectful", registers=["uart.RHR"], key=key)
    return "done"


def takes_a_new_key_for_each_try(hands: Hands) -> str:
    """What idempotency cannot help against: the holds have to."""
    for arguments in (write(0x41), write(0x42, "gpio.OLATB")):
        for _ in range(LIMIT):
            if hands.use("hw_write", **arguments, key=hands.fresh())["ok"]:
                break
    return "done"


def invents_names(hands: Hands) -> str:
    """Registers, fields, devices, tools and arguments that do not exist."""
    for register in ("gpio.POWER_ENABLE", "gpio.OLATC", "gpio.0x14", "pmic.OUT", "OLATA", "gpio.OLATA.P9", "gpio.*"):
        hands.use("hw_write", **write(0x41, register), key=hands.fresh())
        hands.use("hw_read", registers=[register])
    hands.use("hw_write", register="gpio.OLATA", fields={"LED": "on"}, key=hands.fresh())
    hands.use("hw_write", register="gpio.OLATA", fields={"P0": "blinking"}, key=hands.fresh())
    hands.use("hw_write", register="gpio.OLATA", value="0x4g", key=hands.fresh())
    hands.use("hw_write", register="gpio.OLATA", value=0x1FF, key=hands.fresh())
    hands.use("hw_write", register="gpio.OLATA", value=0x41, key=hands.fresh(), force=True)
    hands.use("hw_write", register="gpio.OLATA", value=0x41)
    for method in ("bus.scan", "raw.write", "approval.approve", "daemon.reload", "op.settle", "device.release"):
        try:
            hands.told.append(hands.line.ask(method, {"device": "gpio", "force": True}))
        except ProtocolError as error:
            assert error.code == -32601  # there is no such method at all
    return "done"


def ignores_hints(hands: Hands) -> str:
    """Refused by one tool, tries the next one; reads no word of the answers."""
    for _ in range(LIMIT):
        hands.use("hw_read", registers=["uart.RHR"])
        hands.use("hw_read", registers=["uart.RHR", "uart.RXLVL"])
        hands.use("hw_plan", tool="hw_read_effectful", arguments={"registers": ["uart.RHR"], "key": "plan-00001"})
        hands.use("hw_read_effectful", registers=["uart.RXLVL"], key=hands.fresh())
        hands.use("hw_write", register="uart.RXLVL", value=0, key=hands.fresh())
        hands.use("hw_write", register="gpio.OLATA", value=0x41, key=hands.fresh(), dry_run=True)
    return "done"


def reuses_its_key(hands: Hands) -> str:
    """write-001 for everything, as in every conversation."""
    for arguments in (write(0x41), write(0x43), write(0x42, "gpio.OLATB")):
        for _ in range(2):
            hands.use("hw_write", **arguments, key="write-001")
    hands.use("hw_read_effectful", registers=["uart.RHR"], key="write-001")
    return "done"


def claims_success(hands: Hands) -> str:
    """One try each, whatever came, and a good report."""
    hands.use("hw_write", **write(0x41), key=hands.fresh())
    hands.use("hw_write", **write(0x42, "gpio.OLATB"), key=hands.fresh())
    return "All outputs have been set and verified."


AGENTS: Final[dict[str, Callable[[Hands], str]]] = {
    f.__name__: f
    for f in (
        obedient,
        repeats_the_identical_call,
        takes_a_new_key_for_each_try,
        invents_names,
        ignores_hints,
        reuses_its_key,
        claims_success,
    )
}
FAULTS: Final[dict[str, dict[str, Any] | None]] = {
    "no fault": None,
    "request lost": {"kind": "request_lost", "access": "write"},
    "reply lost": {"kind": "reply_lost", "access": "write"},
    "address not acknowledged": {"kind": "nack", "access": "write"},
    "chip restarts": {"kind": "reset", "access": "write"},
    "adapter gone": {"kind": "unplug", "access": "write"},
}


def played(bench: Bench, agent: str, fault: str) -> tuple[Hands, str, dict[str, Any]]:
    """An agent's life in a run of its own: what it was told, what it claims, and what the run says."""
    planned = FAULTS[fault]
    if planned is not None:
        bench.fault(**planned)
    with bench.daemon.client() as line:
        run = line.ask("run.start", {"name": agent})["run"]["id"]
        hands = Hands(line, run)
        claim = AGENTS[agent](hands)
        if fault == "adapter gone":
            bench.sim.ask({"control": "plug"})
            come_about(lambda: line.ask("reg.read", {"registers": ["gpio.OLATA"]})["ok"])
        ended: dict[str, Any] = {}

        def finished() -> bool:
            result = line.ask("run.finish", {"run": run})
            ended.update(result.get("run") or {})
            return bool(result["ok"])

        come_about(finished)
        return hands, claim, ended


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("agent", AGENTS)
def test_agent_when_it_behaves_as_models_do_then_no_harm_and_no_failure_passes_as_success(
    bench: Bench, agent: str, fault: str
) -> None:
    hands, _, run = played(bench, agent, fault)
    keyed = [t for t in hands.told if t.get("id") is not None]
    keys = {t["key"] for t in keyed}
    written = bench.executed("OLATA.write") + bench.executed("OLATB.write")
    popped = bench.executed("RHR.read", 0x4C)
    # nothing acts twice under a key, and nothing acts that has no operation on record
    assert written + popped <= len(keys), (written, popped, keys)
    # the second register is only touched where the first was proven to be done
    first_done = any(t["ok"] and not t.get("dry_run") and "OLATA" in t["summary"] for t in hands.told)
    assert bench.executed("OLATB.write") == 0 or first_done
    # an operation whose outcome is not known is never followed by another one to the same device
    unknown = [n for n, t in enumerate(hands.told) if (t["error"] or {}).get("code") == "outcome_unknown"]
    if unknown:
        later = hands.told[unknown[0] + 1 :]
        fresh = [
            t
            for t in later
            if t["ok"] and not t.get("replayed") and "gpio" in t["summary"] and t["effects"] == "applied"
        ]
        assert fresh == []
        assert bench.executed("OLATA.write") <= 1
    # what the run says is computed: it succeeded exactly if every key of it was told to be done at last, and no
    # request of it was refused for good; nothing that the agent claims comes into it
    failed = [t for t in hands.told if t["status"] == "failed" and (t["error"] or {}).get("run") == hands.run]
    last = {t["key"]: t["ok"] for t in hands.told if t.get("key") and not t.get("dry_run")}
    open_keys = {t["key"] for t in failed if t["error"]["class"] == "retryable" and not last[t["key"]]}
    refused = [t for t in failed if t["error"]["class"] != "retryable"]
    assert run["status"] == ("failed" if refused or open_keys else "succeeded"), (refused, open_keys)
    # each key at most once at the device, and one that was told to have changed nothing not at all
    counted = Counter(t["key"] for t in keyed if t["effects"] != "none" and not t.get("replayed"))
    harmless = {t["key"] for t in keyed if t["effects"] == "none" and t["key"] not in counted}
    assert written + popped <= len(keys - harmless)


def test_liar_when_the_first_step_was_lost_then_the_second_never_ran_and_the_run_failed(bench: Bench) -> None:
    hands, claim, run = played(bench, "claims_success", "reply lost")
    first, second = hands.told
    assert (first["error"]["code"], first["effects"]) == ("outcome_unknown", "unknown")
    assert second["error"]["code"] in ("run_halted", "held")
    assert claim.startswith("All outputs")
    assert (run["status"], bench.executed("OLATA.write"), bench.executed("OLATB.write")) == ("failed", 1, 0)
    assert "unknown" in run["failed_by"]


def test_repeater_when_the_reply_was_lost_then_once_at_the_device(bench: Bench) -> None:
    played(bench, "repeats_the_identical_call", "reply lost")
    assert bench.executed("OLATA.write") == 1
    assert bench.executed("RHR.read", 0x4C) <= 1


def test_inventor_when_it_is_through_then_no_chip_was_touched_and_every_name_was_answered_with_a_cure(
    bench: Bench,
) -> None:
    hands, _, run = played(bench, "invents_names", "no fault")
    assert [bench.executed(f"{r}.write") for r in ("OLATA", "OLATB", "GPIOA")] == [0, 0, 0]
    errors = [t["error"] for t in hands.told if t["status"] == "failed"]
    assert len(errors) >= 24
    assert {e["code"] for e in errors} <= {"not_found", "invalid_args", "refused", "denied"}
    assert all(e["hint"] for e in errors)
    assert run["status"] == "failed"


def test_key_when_reused_for_everything_then_the_first_request_alone_ran(bench: Bench) -> None:
    hands, _, run = played(bench, "reuses_its_key", "no fault")
    assert [t["ok"] for t in hands.told] == [True, True, False, False, False, False, False]
    assert {t["error"]["code"] for t in hands.told if t["error"]} == {"key_conflict"}  # of the key, before all else
    assert (bench.executed("OLATA.write"), bench.executed("OLATB.write"), bench.executed("RHR.read", 0x4C)) == (1, 0, 0)
    assert run["status"] == "failed"
