"""What a packing line relies on, tested without one. `pytest` in this directory needs hwtool and pytest alone."""

import pytest

import hwtool
from hwtool.failures import Held, OutcomeUnknown, Refused, Unavailable
from hwtool.retrying import retry


def test_a_dump_drains_no_fifo(hw_sim, hw_client):
    hw_sim.push("feeder.CODE", 11, 12, 13)
    shown = hw_client.dump("feeder")
    assert "feeder.CODE" in {left_out["register"] for left_out in shown.json["left_out"]}
    with pytest.raises(Refused):
        hw_client.read("feeder.CODE")
    assert hw_sim.executed("feeder.CODE", "read") == 0
    assert hw_sim.fifo("feeder.CODE") == [11, 12, 13]


def test_a_code_is_taken_once_under_its_key(hw_sim, hw_client, hw_key):
    hw_sim.push("feeder.CODE", 11, 12)
    key = hw_key()
    first, again = (hw_client.read_effectful("feeder.CODE", key=key) for _ in range(2))
    assert int(first.value) == int(again.value) == 11
    assert again.replayed
    assert hw_sim.fifo("feeder.CODE") == [12]


def test_one_key_is_one_label_though_the_reply_is_lost(hw_sim, hw_client, hw_key):
    hw_sim.fault("feeder", "reply_lost", at="STEP")
    key = hw_key()
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            hw_client.write("feeder.STEP", 1, key=key)
    assert hw_sim.executed("feeder.STEP", "pulse") == 1
    assert hw_sim.traffic("feeder") == ["feeder write 0x02 01"]


def test_nothing_goes_on_until_a_person_has_looked(hw_sim, hw_client, hw_operator, hw_key):
    hw_sim.fault("feeder", "reply_lost", at="STEP")
    with pytest.raises(OutcomeUnknown) as unknown:
        hw_client.write("feeder.STEP", 1, key=hw_key())
    with pytest.raises(Held):
        hw_client.write("feeder.STEP", 1, key=hw_key())
    hw_operator.settle(unknown.value.result.id, "applied", "the label is there")
    key = hw_key()  # until a late reply can come no more the bus is left alone, and the daemon says how long to wait
    assert retry(lambda: hw_client.write("feeder.STEP", 1, key=key), attempts=9, first_ms=50, give_up_ms=20_000).ok
    assert hw_sim.executed("feeder.STEP", "pulse") == 2


def test_a_daemon_that_is_killed_under_a_step_feeds_no_second_label(hw_sim, hw_daemon, hw_client, hw_key):
    key = hw_key()
    with pytest.raises(OutcomeUnknown):
        hw_daemon.killed_during(lambda: hw_client.write("feeder.STEP", 1, key=key), "feeder.STEP")
    with pytest.raises(OutcomeUnknown):
        hw_client.write("feeder.STEP", 1, key=key)
    assert hw_sim.executed("feeder.STEP", "pulse") == 1


def test_a_restart_forgets_no_answer(hw_sim, hw_daemon, hw_client, hw_key):
    key = hw_key()
    assert hw_client.write("feeder.SPEED", 0x40, key=key).effects == "applied"
    hw_daemon.restart()
    assert hw_client.write("feeder.SPEED", 0x40, key=key).replayed
    assert hw_sim.executed("feeder.SPEED", "write") == 1


def test_what_is_kept_over_a_power_cut_needs_a_person(hw_sim, hw_daemon, hw_client, hw_key):
    key = hw_key()
    waiting = hw_client.write("feeder.LENGTH", 50, key=key)
    assert waiting.status == "pending_approval"
    assert hw_sim.value("feeder.LENGTH") == 0x20
    assert hw_daemon.approve(waiting.id).ok
    assert hw_client.write("feeder.LENGTH", 50, key=key).effects == "applied"
    assert (hw_sim.value("feeder.LENGTH"), hw_sim.executed("feeder.LENGTH")) == (50, 1)


def test_a_feeder_that_was_unplugged_comes_back(hw_sim, hw_client, hw_key):
    hw_sim.unplug("feeder", power=True)
    with pytest.raises(Unavailable) as gone:
        hw_client.write("feeder.SPEED", 0x40, key=hw_key())
    assert gone.value.effects == "none"
    hw_sim.plug("feeder")
    assert hw_client.read("feeder.SPEED").value.raw == "0x10"
    assert hw_client.write("feeder.SPEED", 0x40, key=hw_key()).effects == "applied"
    assert hw_sim.executed("feeder.SPEED", "write") == 1


@pytest.mark.hwtool(board="board.toml")
def test_a_typing_error_in_a_counter_is_no_zero(hw_sim):
    with pytest.raises(ValueError, match="has no register 'SPEDE'"):
        hw_sim.executed("feeder.SPEDE")
    assert hwtool.new_key() != hwtool.new_key()
