"""`hwtool store …` as a person types it: backup, verify, prune, and a store that was set back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.bench import Bench
from tests.running import command_line

WRITE = ("write", "gpio.OLATA=0x41", "--key")


def test_backup_when_made_beside_the_daemon_then_sound_and_refused_a_second_time(bench: Bench) -> None:
    assert command_line(bench.daemon, *WRITE, "backup-0001").returncode == 0
    copy = bench.folder / "copy.db"
    made = command_line(bench.daemon, "store", "backup", str(copy))
    assert (made.returncode, "check it with hwtool store verify" in made.stdout) == (0, True)
    looked = command_line(bench.daemon, "store", "verify", str(copy))
    assert (looked.returncode, "sound (" in looked.stderr) == (0, True), looked
    again = command_line(bench.daemon, "store", "backup", str(copy))
    assert (again.returncode, "File exists" in again.stderr) == (5, True)
    assert "backup" in command_line(bench.daemon, "journal", "--operator").stdout
    busy = command_line(bench.daemon, "store", "verify", str(bench.daemon.store))
    assert (busy.returncode, "in use by another daemon" in busy.stderr) == (7, True)


def test_prune_when_asked_for_then_keys_stay_used_and_nothing_runs_twice(bench: Bench) -> None:
    for number in range(5):
        command_line(bench.daemon, *WRITE, f"prune-{number:04}")
    before = bench.executed("OLATA.write")
    pruned = command_line(bench.daemon, "store", "prune", "--keep", "1")
    assert (pruned.returncode, pruned.stdout.startswith("4 operation(s)")) == (0, True), pruned
    again = command_line(bench.daemon, *WRITE, "prune-0000")
    assert (again.returncode, "key_expired" in again.stderr) == (5, True)
    assert bench.executed("OLATA.write") == before


def test_store_when_set_back_then_refused_until_a_person_accepts_it_and_then_everything_is_held(bench: Bench) -> None:
    store = bench.daemon.store
    assert command_line(bench.daemon, *WRITE, "before-copy-1").returncode == 0
    copy = bench.folder / "copy.db"
    assert command_line(bench.daemon, "store", "backup", str(copy)).returncode == 0
    assert command_line(bench.daemon, *WRITE, "after-copy-01").returncode == 0
    bench.daemon.stop()
    shutil.move(copy, store / "hwtool.db")
    told = command_line(bench.daemon, "store", "verify", str(store))
    assert (told.returncode, "older than its anchor" in told.stdout) == (1, True)
    refused = command_line(bench.daemon, *bench.daemon.arguments())
    assert (refused.returncode, "it was set back" in refused.stderr) == (2, True)
    words = ("store", "accept-rollback", "--store", str(store), "--allow-unsafe-store")
    accepted = command_line(bench.daemon, *words, "--reason", "the disk was replaced", "--json")
    assert (accepted.returncode, len(json.loads(accepted.stdout)["held"])) == (0, 2), accepted
    bench.daemon.start()
    beside = command_line(bench.daemon, *words, "--reason", "again")
    assert (beside.returncode, "in use by another daemon" in beside.stderr) == (2, True)
    # the key that was used in what is lost looks fresh: nothing runs under it all the same
    before = bench.executed("OLATA.write")
    for register, key in (("gpio.OLATA=0x41", "after-copy-01"), ("gpio.OLATB=1", "another-0001")):
        held = command_line(bench.daemon, "write", register, "--key", key)
        assert (held.returncode, "the disk was replaced" in held.stderr) == (4, True), held
    uart = command_line(bench.daemon, "read", "--effectful", "uart.RHR", "--key", "uart-held-01")
    assert uart.returncode == 4
    assert command_line(bench.daemon, "read", "gpio.OLATA").returncode == 0
    assert bench.executed("OLATA.write") == before
    for device in ("gpio", "uart"):
        assert command_line(bench.daemon, "release", device, "--reason", "looked").returncode == 0
    assert command_line(bench.daemon, *WRITE, "released-001").returncode == 0
    bench.daemon.stop()
    bench.daemon.start()  # the hold is put once, not at every start
    assert command_line(bench.daemon, *WRITE, "released-002").returncode == 0
    bench.forgotten = 1  # one execution stands in the lost part of the journal


def test_verify_when_a_backup_is_damaged_then_says_where(bench: Bench, tmp_path: Path) -> None:
    command_line(bench.daemon, *WRITE, "damage-0001")
    copy = tmp_path / "copy.db"
    command_line(bench.daemon, "store", "backup", str(copy))
    data = bytearray(copy.read_bytes())
    place = data.find(b'"what":"intent"')
    data[place + 8 : place + 14] = b"INTENT"
    copy.write_bytes(data)
    told = command_line(bench.daemon, "store", "verify", str(copy), "--json")
    assert told.returncode == 1
    assert any("audit chain is broken" in fault for fault in json.loads(told.stdout)["faults"])
