"""The public fault reports by number: what kind of fault each is, what guards against it here, and the guard behind it.

The reports themselves are not part of the project. A scenario is a file of this folder; a test is one of the suite's.
The guard is one of tests/mutants.py, by its words, or a change of its own: without it the first scenario (or test) of
the case turns red. `python -m tests.cases [WORD …]` tries the guards.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.mutants import MUTANTS, Mutant

PLAYED: Final = "tests/cases/test_cases.py::test_scenario_when_played_then_it_goes_as_its_file_says[{}]"
REG, HW, STORE, SIM = "tests/registers/", "tests/hwtool/", "tests/store/", "tests/sim/"


class Case(NamedTuple):
    """One report.

    Attributes:
        guards: the kind of fault, in our words.
        scenarios: files of this folder; `tests`: of the suite.
        guard: what it rests on: the words of a mutant of tests/mutants.py, or a mutant of its own without a test.
        why: why there is none, where there is none.
        red: the test that must turn red without it, where it is not the first one.
    """

    id: str
    kind: str
    guards: str
    scenarios: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    guard: str | Mutant | None = None
    why: str = ""
    red: str = ""

    @property
    def first(self) -> str:
        """The test that must turn red without the guard: the first scenario, else the first test, if none is named."""
        if self.red:
            return self.red
        return PLAYED.format(self.scenarios[0]) if self.scenarios else self.tests[0]


def guarded(guard: str, file: str, old: str, new: str) -> Mutant:
    """A guard that a case alone rests on."""
    return Mutant(guard, file, old, new, "")


CONTRACTS, REGISTERS = "contracts/hwtool_contracts/", "registers/hwtool_registers/"

CASES: Final = (
    Case("HC-001", "read-side-effect", "a scan that writes", ("eeprom_probed",),
         (HW + "test_probing.py::test_probe_when_it_is_a_modbus_line_then_holding_register_0_is_read_and_units_are_1_to_247",),
         guarded("what the board knows is not probed at all", "hwtool/probing.py", "stable_path == path and params.address in device.spec.addresses:\n", "stable_path is None:\n")),
    Case("HC-002", "read-side-effect", "a read that consumes, by who only looks", ("fifo_watched",), (),
         "a clean read with side effects is refused"),
    Case("HC-003", "read-side-effect", "a refresh that empties a FIFO", ("fifo_watched", "line_of_text"), (),
         "the key is looked up first"),
    Case("HC-005", "read-side-effect", "a read that acknowledges what another waits for", ("event_acknowledged",),
         (SIM + "test_chips.py::test_mcp23017_when_flag_capture_and_port_are_read_in_one_burst_then_the_event_is_kept_hc005",),
         "a clean read with side effects is refused"),
    Case("HC-007", "read-side-effect", "a read of what is not declared", ("status_all",), (),
         guarded("neighbours are merged, holes are not", "hwtool/devices.py", " and register.offset == last.offset + last.size_bytes and total <= longest", " and total <= longest")),
    Case("HC-009", "fifo-latch", "a block that does not advance", ("increment_bit",), (),
         guarded("the bit that moves the pointer on is set", REGISTERS + "plan.py", "        offset |= i2c.increment_mask\n", "        pass\n")),
    Case("HC-011", "fifo-latch", "a retry that takes up in the middle", ("crc_again",), (),
         "a clean read with side effects is refused"),
    Case("HC-012", "fifo-latch", "a retry of what was consumed", ("sample_lost", "every_reading_effect"), (),
         "an unknown outcome holds the device"),
    Case("HC-014", "retry-desync", "a reply that is given to the next request", (),
         (REG + "test_modbus_tcp.py::test_reply_when_it_comes_with_the_next_ones_then_it_is_dropped_by_its_number",
          "tests/modbus/test_real_slave.py::test_reply_when_late_then_never_given_to_the_next_request_hc014_hc015"),
         "a reply to an earlier request is known by its number"),
    Case("HC-015", "retry-desync", "a late reply taken for the next one", ("late_frame",),
         ("tests/modbus/test_real_slave.py::test_reply_when_late_then_never_given_to_the_next_request_hc014_hc015",),
         guarded("an ambiguous answer shuts the bus", "hwtool/worker.py", '            self.lost["request" if answer.stage is Sent.ADDRESS else "reply"] += 1\n            self.quarantine()\n', "            pass\n")),
    Case("HC-017", "retry-desync", "a replay under a number that means something else", ("numbered_commands",), (),
         "the digest is compared (a key with a row)"),
    Case("HC-019", "retry-desync", "a repeat of what toggles", ("pulse_relay", "coil_pulse"), (),
         "the one repeat needs proof that nothing happened"),
    Case("HC-020", "rmw", "read-modify-write of flags that clear", ("flag_cleared",),
         (REG + "test_plan.py::test_update_of_a_flag_when_planned_then_w1c_neighbours_are_left_alone_hc020",),
         guarded("flags have a neutral value of their own", CONTRACTS + "judge_write.py", "    if constant is not None and not write.triggers:\n        return constant\n", "")),
    Case("HC-022", "rmw", "a write of one bit that loses the others", ("configuration_bit",), (),
         guarded("an update keeps the other fields", REGISTERS + "plan.py", "        raw |= current & judged.from_current\n", "")),
    Case("HC-024", "rmw", "a hidden write at a start", ("clock_opened",), (),
         guarded("an update keeps the other fields", REGISTERS + "plan.py", "        raw |= current & judged.from_current\n", "")),
    Case("HC-025", "ack-not-applied", "an acknowledge taken for an effect", ("write_protected",), (),
         guarded("what did not change is not applied", "hwtool/outcome.py", '    return "unchanged" if n == p else "other"\n', '    return "applied"\n')),
    Case("HC-027", "ack-not-applied", "a busy device taken for a lost write", ("eeprom_busy",), (),
         guarded("a memory is asked until it answers", CONTRACTS + "memories.py", "        write = replace(write, busy_retry=BusyRetry(attempts, 1), delay_after_ms=memory.write_cycle_ms)\n", "        pass\n")),
    Case("HC-028", "ack-not-applied", "an adapter that acknowledges for nobody", ("adapter_says_yes",), (),
         guarded("what did not change is not applied", "hwtool/outcome.py", '    return "unchanged" if n == p else "other"\n', '    return "applied"\n')),
    Case("HC-030", "ack-not-applied", "a refusal taken for a success", ("exception_reply",), (),
         "the proof table: a device failure proves nothing"),
    Case("HC-031", "encoding", "bytes in the wrong order", ("byte_order",),
         ("tests/contracts/test_native.py::test_register_when_nobody_says_its_byte_order_then_a_fault_hc031",),
         guarded("bytes come in the order of the contract", REGISTERS + "bits.py", "    data = raw.to_bytes(plain_bytes, register.byte_order.value)\n", '    data = raw.to_bytes(plain_bytes, "big")\n')),
    Case("HC-032", "encoding", "an offset that was cut", ("two_byte_offset",),
         (REG + "test_i2c.py::test_transfer_when_no_command_can_say_it_then_refused_before_anything_is_sent",),
         guarded("an offset has the bytes of the contract", REGISTERS + "plan.py", "                offset_bytes,\n                pec=", "                1,\n                pec=")),
    Case("HC-034", "encoding", "an address that is off by one", ("number_and_address",), (),
         guarded("registers are counted from where the contract says", CONTRACTS + "native_registers.py", " - (self.facts.modbus_base if space.numbered else 0)\n", "\n")),
    Case("HC-035", "encoding", "a float whose halves are swapped", ("float_orders",),
         (REG + "test_bits.py::test_modbus_float_when_ordered_then_both_directions_agree_hc035",),
         guarded("words come in the order of the contract", REGISTERS + "bits.py", "        return _reorder(raw.to_bytes(plain_bytes, \"big\"), register)\n", '        return raw.to_bytes(plain_bytes, "big")\n')),
    Case("HC-037", "encoding", "a transfer without its check", ("packet_error_code",),
         (REG + "test_i2c.py::test_pec_when_it_fits_or_not_then_the_value_or_a_doubt",),
         guarded("a transfer has the code that the contract demands", REGISTERS + "plan.py", "    return contract.access.i2c is not None and contract.access.i2c.pec\n", "    return False\n")),
    Case("HC-038", "bus-fault", "a value that arrived shifted", ("slipped_clock",), (),
         guarded("what is neither old nor wanted is not applied", "hwtool/outcome.py", '    return "unchanged" if n == p else "other"\n', '    return "unchanged" if n == p else "applied"\n')),
    Case("HC-039", "bus-fault", "a bus that is held low", ("bus_stuck",), (),
         "an unknown outcome holds the device"),
    Case("HC-041", "bus-fault", "one word for every error of a bus", ("lost_before_data",),
         (REG + "test_i2c.py::test_error_when_the_kernel_tells_one_then_what_the_proof_table_says_and_never_sent_again",),
         guarded("an errno is a doubt where nothing is known of it", REGISTERS + "buses/i2c_proof.py", "    return Ambiguous(Sent.DATA, fault)\n", "    return Rejected(fault, ADDRESS_NACK)\n"),
         red=REG + "test_i2c.py::test_error_when_the_kernel_tells_one_then_what_the_proof_table_says_and_never_sent_again"),
    Case("HC-043", "bus-fault", "a value out of a disturbed reply", ("garbled_port",), (),
         guarded("a value outside its limits is refused", CONTRACTS + "judge_write.py", "        if (low is not None and value < low) or (high is not None and value > high):\n            span", "        if False:\n            span")),
    Case("HC-044", "bus-fault", "a stranger behind the same name", ("adapter_pulled",),
         (REG + "test_modbus.py::test_line_when_the_device_vanishes_then_only_before_sending_it_is_proved_hc044",),
         "a device whose bus was away is identified anew"),
    Case("HC-045", "bus-fault", "three refusals with one word", (),
         (REG + "test_ftdi.py::test_interface_when_it_cannot_be_had_then_an_error_of_its_own_and_nothing_was_said_hc045",
          REG + "test_ftdi.py::test_interface_when_taken_then_it_alone_and_given_back_when_closed_hc045",
          REG + "test_ftdi.py::test_interface_when_its_process_died_then_the_next_one_gives_it_back_hc045",
          REG + "test_i2c.py::test_address_when_a_kernel_driver_owns_it_then_refused_with_its_name",
          REG + "test_i2c.py::test_adapter_when_it_is_not_there_then_absent_with_those_that_are",
          REG + "test_modbus.py::test_line_when_opened_twice_then_the_second_is_told_and_sends_nothing"),
         "an adapter that may not be opened is not called absent"),
    Case("HC-048", "bus-fault", "a fragment taken for a frame", (),
         (REG + "test_modbus.py::test_line_when_only_a_fragment_comes_then_its_length_is_told_hc048",
          REG + "test_modbus.py::test_line_when_a_reply_comes_in_pieces_then_it_is_put_together"),
         guarded("a fragment is no frame", REGISTERS + "buses/modbus.py", '        return Ambiguous(Sent.REPLY, f"fragment of {len(frame)} bytes: {frame.hex()}")\n', "        pass\n")),
    Case("HC-049", "concurrency", "a sample of somebody else", ("channel_of_another",),
         (SIM + "test_behaviours.py::test_converter_when_started_then_busy_for_its_time_and_then_what_its_input_has_hc049",),
         guarded("a sequence keeps its device to itself", "hwtool/sequences.py", "            await self._take_turns(request, sequence, taken, left_ms)\n", "")),
    Case("HC-052", "concurrency", "two programs on one line", (),
         (REG + "test_modbus.py::test_line_when_another_program_changed_its_settings_then_nothing_is_sent_and_it_is_opened_anew",
          REG + "test_modbus.py::test_line_when_opened_twice_then_the_second_is_told_and_sends_nothing"),
         "a line with somebody else's settings is not written to"),
    Case("HC-053", "concurrency", "a change behind the owner", ("another_owner",),
         (REG + "test_i2c.py::test_address_when_a_kernel_driver_owns_it_then_refused_with_its_name",),
         guarded("what another one owns is not updated", CONTRACTS + "judge_write.py", '        elif register.owner is Owner.SHARED:\n            why = "another master may write it"\n', "")),
    Case("HC-054", "store", "a snapshot that cannot be upgraded", (),
         (STORE + "test_startup.py::test_store_when_open_already_then_the_second_is_told_and_the_first_goes_on",
          STORE + "test_writer.py::test_job_when_another_of_its_batch_wrote_before_then_it_sees_that"),
         guarded("one daemon has a store", "store/hwtool_store/place.py", "        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", "        pass\n")),
    Case("HC-055", "store", "a log that grows until the disk is full", (),
         (STORE + "test_log.py::test_log_when_something_reads_without_end_then_no_new_operation_until_it_ends_and_short_again",),
         "no new operation while the log grows without end"),
    Case("HC-056", "store", "a store that was set back", (),
         (STORE + "test_startup.py::test_database_when_set_back_to_an_old_copy_then_refused",
          HW + "test_rollback.py::test_start_when_an_older_store_was_accepted_then_unknown_devices_are_held_too_and_only_once"),
         guarded("a store that is older than its anchor is refused", "store/hwtool_store/database.py", "    if behind or (row is not None and row[0] != mark.audit_hash):\n", "    if False:\n")),
    Case("HC-058", "store", "a key that is looked up too late", ("one_key_two_values",), (),
         "the digest is compared (a key at work)"),
    Case("HC-059", "store", "a key that is stuck behind a crash", ("killed_in_between",),
         ("tests/crash/test_matrix.py::test_daemon_when_killed_at_every_label_then_nothing_runs_twice_and_every_answer_holds",),
         guarded("every start says what became of what was under way", "hwtool/engine.py", "            await engine._recover()\n", "            pass\n")),
    Case("HC-061", "store", "a replay of what is no longer true", ("settled_and_replayed",), (),
         guarded("a settlement is the answer of its key", "hwtool/recovery.py", "    response = to_row(daemon.dressed(ended.result, device))\n", "    response = row.response or {}\n")),
    Case("HC-062", "agent", "a call that a library sends again", ("call_sent_again",),
         ("tests/clients/test_recovering.py::test_write_when_the_reply_is_lost_then_its_record_answers_and_nothing_is_sent_again",),
         "the key is looked up first"),
    Case("HC-064", "agent", "success about nothing", ("name_mistyped",),
         ("tests/surface/test_socket.py::test_register_when_unknown_then_near_misses_are_suggested_hc064",),
         guarded("what comes near is told", "hwtool/resolve.py", "    near = difflib.get_close_matches(inside.upper(), upper, 3, cutoff=0.5)\n", "    near = list[str]()\n")),
    Case("HC-065", "agent", "success before a restart", ("restarted_behind_it",), (),
         "a chip's own register tells of its restart inside a watch"),
    Case("HC-066", "agent", "a failure told as work in progress", ("refusal_replayed",), (),
         guarded("the outcome is on record", "hwtool/execution.py", "                await daemon.ask(job)\n                aftermath.take_effect(", "                aftermath.take_effect(")),
)  # fmt: skip


def mutants() -> list[Mutant]:
    """The guard of each case, with the test of the case that must turn red; not those that are tried there already."""
    words = {mutant.guard: mutant for mutant in MUTANTS}
    found = []
    for case in CASES:
        guard = words[case.guard] if isinstance(case.guard, str) else case.guard
        if guard is not None and guard.test not in (case.first, *case.tests):
            found.append(guard._replace(guard=f"{case.id}: {guard.guard}", test=case.first))
    return found


def rows() -> list[str]:
    """The rows of docs/cases.md."""
    told = []
    for case in CASES:
        by = [f"`{name}`" for name in case.scenarios] + [f"`{test.rpartition('::')[2]}`" for test in case.tests]
        guard = case.guard.guard if isinstance(case.guard, Mutant) else case.guard or case.why
        told.append(f"| {case.id} | {case.guards} | {', '.join(by)} | {guard} |")
    return told
