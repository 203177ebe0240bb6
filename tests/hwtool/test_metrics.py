"""Metrics: what is counted is what happened, in Prometheus text that a reader of its authors takes."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hwtool_sim.faults import FaultKind
from tests.hwtool.conftest import KEY, KEY2, KEY3, Lab, Play, error_of, reg, toy_board

PARTS = (reg("A", 0), reg("BLIND", 1, access="wo"))


async def samples(lab: Lab) -> dict[tuple[str, ...], float]:
    """Every sample by name and label values."""
    text = (await lab.ask("metrics")).text
    assert isinstance(text, str)
    return {(s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def test_metrics_when_things_happened_then_they_are_counted(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("reg.read", registers=["toy.A"])
        await lab.ask("reg.write", register="toy.NOPE", value=1, key=KEY)
        lab.fault(FaultKind.REPLY_LOST, offset=1)
        await lab.ask("reg.write", register="toy.BLIND", value=1, key=KEY2)
        lab.fault(FaultKind.NACK, access="read", offset=0)
        await lab.rules_ran()
        await lab.ask("reg.read", registers=["toy.A"])
        found = await samples(lab)
        assert found["hwtool_requests_total", "reg.read", "done"] == 1
        assert found["hwtool_requests_total", "reg.read", "failed"] == 1
        assert found["hwtool_errors_total", "not_found"] == 1
        assert found["hwtool_errors_total", "outcome_unknown"] == 1
        assert found["hwtool_replies_lost_total", "b"] == 1
        assert found["hwtool_rejected_total", "b"] == 1
        assert found["hwtool_transfers_total", "b"] == len(lab.sent())
        assert found["hwtool_device_held", "toy"] == 1
        assert found["hwtool_unknown_operations", "toy"] == 1
        assert found["hwtool_request_seconds_count", "reg.write"] == 2
        assert found["hwtool_journal_seq_total",] == lab.daemon.store.seq
        assert found["hwtool_steps_after_error_total",] == 0

    play(life, toy_board(tmp_path, *PARTS))


def test_metrics_when_something_is_tried_again_then_counted_by_its_reason(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.fault(FaultKind.REPLY_LOST, access="read", offset=0)
        lab.fault(FaultKind.NACK, access="read", offset=0)
        assert (await lab.ask("reg.read", registers=["toy.A"])).ok
        found = await samples(lab)
        assert found["hwtool_retries_total", "b", "timeout"] == 1
        assert found["hwtool_retries_total", "b", "bus_fault"] == 1

    play(life, toy_board(tmp_path, *PARTS, bus="read_attempts = 3"))


def test_metrics_when_a_run_goes_on_after_an_error_then_the_counter_to_alert_on_rises(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await lab.ask("run.start", name="careless")
        await lab.operator("daemon.freeze")
        failed = await lab.ask("reg.write", register="toy.A", value=1, key=KEY, run=1)
        assert error_of(failed)["error_id"] == 1
        await lab.operator("daemon.thaw")
        assert (await lab.ask("reg.write", register="toy.A", value=1, key=KEY2, run=1)).ok
        assert (await samples(lab))["hwtool_steps_after_error_total",] == 1
        await lab.ask("run.acknowledge", run=1, error_id=1, how="thawed")
        assert (await lab.ask("reg.write", register="toy.A", value=2, key=KEY3, run=1)).ok
        assert (await samples(lab))["hwtool_steps_after_error_total",] == 1

    play(life, toy_board(tmp_path, *PARTS))


def test_metrics_when_written_to_a_file_then_whole(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        lab.engine.metrics.write(tmp_path / "hwtool.prom")
        assert "hwtool_transfers_total" in (tmp_path / "hwtool.prom").read_text()

    play(life, toy_board(tmp_path, *PARTS))
    assert [f.name for f in tmp_path.iterdir() if "prom" in f.name] == ["hwtool.prom"]
