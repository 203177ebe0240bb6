"""What a person is shown who has to settle an operation, and what is recorded of the verdict."""

from __future__ import annotations

from tests.bench import Bench, come_about
from tests.running import command_line


def test_op_when_unknown_then_an_operator_sees_intent_picture_and_rule_and_an_agent_does_not(bench: Bench) -> None:
    bench.fault("reply_lost", access="write")
    # somebody writes before the rule looks: the register is neither as it was nor as it should be
    bench.fault("foreign", access="read", offset=0x14, skip=1, register="OLATA", value=0x99)
    lost = command_line(bench.daemon, "write", "gpio.OLATA=0x41", "--key", "settle-0001")
    assert lost.returncode == 3, lost
    with bench.daemon.client() as client:
        come_about(lambda: client.ask("op.get", {"key": "settle-0001"})["op"]["needs_person"])
    shown = command_line(bench.daemon, "op", "1", "--operator").stdout
    for part in (
        "operation 1: UNKNOWN",
        "gpio.OLATA was to be 0x41",
        "to be sent: write 0x14 41 (access)",
        "before: gpio.OLATA was 0x0",
        "rule of OLATA: ",
        "shown by OLATA",
        "needs a person: ",
    ):
        assert part in shown, (part, shown)
    assert "to be sent" not in command_line(bench.daemon, "op", "1").stdout
    words = ("settle", "1", "not_applied", "--reason", "the scope shows nothing")
    assert command_line(bench.daemon, *words).returncode == 0
    journal = command_line(bench.daemon, "journal", "--operator").stdout
    assert "the scope shows nothing" in journal
    assert "DONE not_applied by human" in command_line(bench.daemon, "op", "1", "--operator").stdout
