"""What the project says of devices that outlive the daemon and of what breaks, sentence by sentence, each with a test.

docs/proofs.md prints this table; a test checks that both are the same and that every test named here exists.
"""

from __future__ import annotations

from typing import Final

SIM, OUT, CONTROL = "tests/sim/", "tests/surface/test_outliving.py::", "tests/sim/test_control.py::"
SAFE, SEQ = "tests/hwtool/test_safe_state.py::", "tests/hwtool/test_sequences.py::"
KEYED, RECOVERY = "tests/hwtool/test_keyed.py::", "tests/hwtool/test_recovery.py::"
BUS, LOSS, REVIEW = (
    "tests/hwtool/test_bus_state.py::",
    "tests/hwtool/test_loss.py::",
    "tests/hwtool/test_found_by_review.py::",
)
START, MATRIX = "tests/store/test_startup.py::", "tests/crash/test_matrix.py::"
FAULTS, LINE = SIM + "test_faults.py::", SIM + "test_line.py::"

PROMISES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "The simulated board": (
        ("it survives a killed daemon and counts executions per register and access", SIM + "test_verb.py::test_sim_when_daemons_join_die_and_come_again_then_the_chips_count_on_their_own"),
        ("a killed daemon finds in it what became of its last request", OUT + "test_daemon_when_killed_with_the_reply_lost_then_the_device_it_left_behind_tells"),
        ("it is reset by a control connection", SIM + "test_process.py::test_reset_when_asked_then_the_nonce_changes_and_the_state_is_gone"),
        ("it is moved by a control connection", CONTROL + "test_chip_when_moved_then_it_keeps_its_state_and_its_counts_and_leaves_nothing_behind"),
        ("it is faulted by a control connection", CONTROL + "test_fault_when_planned_over_the_process_then_answer_and_execution_are_those_of_its_kind"),
        ("a Modbus RTU slave on a pty is made from the same chips", LINE + "test_line_when_the_planner_makes_the_transfers_then_they_arrive_as_they_were_sent"),
        ("a master that nobody here wrote agrees with it", LINE + "test_line_when_an_independent_master_asks_then_it_agrees"),
    ),
    "Faults at a chosen access": (
        ("each kind: its answer and its counts", CONTROL + "test_fault_when_planned_over_the_process_then_answer_and_execution_are_those_of_its_kind"),
        ("each kind, in real bytes on a line", LINE + "test_fault_when_it_strikes_a_write_on_the_line_then_real_bytes_and_exact_counts"),
        ("each kind, through the daemon: one frame, and its class", OUT + "test_line_when_replies_go_wrong_then_each_request_is_one_frame_and_its_class_is_right"),
        ("late reply", FAULTS + "test_late_reply_when_the_next_read_goes_out_before_it_came_then_it_is_taken_for_its_answer"),
        ("duplicated reply", FAULTS + "test_duplicated_reply_when_the_next_request_goes_out_then_the_copy_was_emptied"),
        ("NACK at data", FAULTS + "test_data_nack_when_it_strikes_a_burst_then_the_chip_has_what_came_before_it"),
        ("hang past the transfer limit", "tests/hwtool/test_worker.py::test_write_when_the_device_hangs_past_the_limit_then_unknown_and_a_late_return_changes_no_row"),
        ("reset of the chip", FAULTS + "test_reset_when_planned_around_a_write_then_the_state_tells_which_came_first"),
        ("reset inside the watch is not called unchanged", REVIEW + "test_write_when_the_device_restarts_inside_the_watch_then_not_called_undone_but_superseded"),
        ("a foreign master writes in between", FAULTS + "test_foreign_when_another_master_writes_then_it_is_counted_apart"),
        ("unplug and return", OUT + "test_line_when_it_is_absent_at_start_unplugged_and_back_then_the_daemon_lives_and_identifies_it_anew"),
    ),
    "Recovery": (
        ("the kinds of the table, with E1 same, reset and silent, and E2", RECOVERY + "test_crash_when_the_daemon_starts_again_then_settled_by_rule_or_held_for_a_person"),
        ("E1 by the host's boot id", RECOVERY + "test_crash_when_the_device_restarts_with_the_host_then_the_hosts_boot_id_is_its_evidence"),
        ("E3: a bus is quiet before its rules run", KEYED + "test_outcome_when_ambiguous_then_unknown_and_held_until_the_rules_settle_it"),
        ("on_loss", LOSS + "test_consuming_read_when_its_reply_is_lost_then_reported_only_where_the_board_says_so"),
        ("wedged buses", "tests/hwtool/test_worker.py::test_transfer_when_it_outlives_its_limit_then_wedged_until_it_returns_and_quarantined_after"),
        ("quarantined buses", "tests/hwtool/test_worker.py::test_quarantine_when_time_goes_on_then_the_rest_is_told_and_the_bus_is_back_after_its_lifetime"),
        ("queues at a hold", KEYED + "test_hold_when_it_comes_while_requests_wait_then_they_are_answered_held"),
        ("queues at an unknown outcome", KEYED + "test_hold_when_an_outcome_becomes_unknown_then_queued_requests_are_held_too"),
        ("an open op whose device left the board", RECOVERY + "test_crash_when_the_device_left_the_board_then_unknown_until_a_person_settles_it"),
        ("an open op whose place has another device", RECOVERY + "test_crash_when_another_device_has_its_place_then_the_place_is_held"),
        ("an edited contract between crash and restart", RECOVERY + "test_crash_when_the_contract_is_edited_before_the_next_start_then_the_row_decides"),
        ("two devices at one locus", "tests/hwtool/test_config.py::test_board_when_one_thing_is_broken_then_one_fault_names_it"),
        ("two daemons with two stores on one bus", SIM + "test_verb.py::test_sim_when_a_second_daemon_with_another_store_joins_then_it_is_refused_and_sends_nothing"),
        ("an absent bus keeps nothing else from starting", BUS + "test_start_when_a_bus_is_absent_then_the_others_work_and_its_devices_are_unavailable_until_it_comes"),
    ),
    "The store": (
        ("fatal error at T1: nothing dispatched", KEYED + "test_t1_when_the_store_fails_then_store_failed_without_effects_and_nothing_on_the_bus"),
        ("fatal error at T2: what was observed is answered", KEYED + "test_t2_when_the_store_fails_then_store_failed_with_what_was_observed"),
        ("fatal error while an outcome becomes unknown", KEYED + "test_unknown_when_the_store_fails_to_record_it_then_store_failed_and_the_device_held"),
        ("fatal error at the start", "tests/crash/disk/test_disk.py::test_start_when_the_disk_fails_under_its_writer_then_one_sentence_and_no_traceback"),
        ("EIO and ENOSPC at each sync and write", "tests/crash/disk/test_disk.py::test_disk_when_it_fails_at_any_call_then_refused_or_finished_and_nothing_runs_twice"),
        ("the anchor, and its refusal", START + "test_database_when_set_back_to_an_old_copy_then_refused"),
        ("free-space mark", "tests/store/test_space.py::test_mark_when_asked_then_low_below_it_and_it_says_where_and_how_much"),
        ("ballast", "tests/store/test_space.py::test_store_when_somebody_else_fills_a_real_disk_then_the_outcome_is_still_recorded"),
        ("file-system refusal", START + "test_store_when_its_file_system_is_unsafe_then_only_by_name_and_never_durable"),
        ("journal paging while writing", "tests/store/test_paging.py::test_journal_when_read_while_others_write_then_every_row_once_and_the_log_stays_short"),
        ("SIGTERM with open intents", OUT + "test_stop_when_an_intent_is_open_then_it_is_waited_for_recorded_and_answered"),
    ),
    "Safe states": (
        ("one op for a list of the board", SAFE + "test_safe_state_when_called_then_every_entry_is_written_once_in_order_and_seen"),
        ("only writes whose repeat is harmless", SAFE + "test_board_when_an_entry_is_not_harmless_to_repeat_then_refused_when_it_is_loaded"),
        ("a failed entry does not stop the later ones", SAFE + "test_safe_state_when_an_entry_fails_then_the_later_ones_are_still_sent"),
        ("it ends a running watch", SAFE + "test_safe_state_when_called_during_a_watch_then_that_op_is_unknown_and_no_rule_settles_it_afterwards"),
        ("it ends a running sequence", SEQ + "test_sequence_when_it_is_stopped_from_outside_then_no_further_step_is_begun"),
        ("what was asked for before does not run after it", SAFE + "test_request_when_it_waited_before_a_safe_state_then_it_does_not_run_after_it"),
        ("no rule settles an older op afterwards", SAFE + "test_rule_when_a_safe_state_was_dispatched_since_then_only_a_person_settles_the_older_op"),
        ("… nor one that was under way", SAFE + "test_rule_when_it_is_under_way_at_the_safe_states_intent_then_the_store_refuses_its_settlement"),
        ("called twice: an older unknown one is superseded", SAFE + "test_safe_state_when_called_twice_then_an_older_unknown_one_is_superseded"),
        ("it passes hold, freeze, breaker, free-space mark", SAFE + "test_safe_state_when_others_are_stopped_then_it_passes"),
        ("not a wedged bus, and says so", SAFE + "test_safe_state_when_the_bus_is_wedged_then_it_says_so_and_its_key_stays_unused"),
        ("not a failed store, and says so", SAFE + "test_safe_state_when_the_store_has_failed_then_nothing_is_sent"),
        ("never gated by approval", SAFE + "test_safe_state_when_the_contract_needs_approval_then_never_gated"),
        ("its key is minted on the command line", "tests/surface/test_units.py::test_safe_state_when_frozen_then_it_passes_and_nothing_else_does_until_thawed"),
    ),
    "Sequences": (
        ("header and steps", SEQ + "test_sequence_when_every_step_is_done_then_a_header_and_an_operation_a_step_in_order"),
        ("intent in the first T1, done in the last T2", SEQ + "test_header_when_the_last_step_has_an_effect_then_it_ends_in_the_same_commit"),
        ("it stops at the first step that is not proven", SEQ + "test_sequence_when_a_step_is_not_proven_then_it_stops_there"),
        ("crash between steps: no further step is begun", SEQ + "test_crash_when_between_two_steps_then_no_further_step_is_begun_and_the_header_ends_by_rule"),
        ("crash inside a step: unknown until it is settled", SEQ + "test_crash_when_inside_a_step_then_the_header_is_unknown_until_it_is_settled"),
        ("replay of the header's key", SEQ + "test_header_when_its_key_is_sent_again_then_replayed_and_nothing_is_sent"),
        ("approval of the whole", SEQ + "test_sequence_when_one_step_needs_approval_then_the_whole_is_approved_once"),
    ),
    "Crashes": (
        ("SIGKILL at every labelled point, for every kind, chip kept or reset; and again inside the recovery", MATRIX + "test_daemon_when_killed_at_every_label_then_nothing_runs_twice_and_every_answer_holds"),
        ("the harness finds seeded defects", MATRIX + "test_matrix_when_the_product_has_a_defect_then_it_is_found"),
        ("journal, database and counters agree at the end of every life", "tests/hwtool/test_agreement.py::test_life_when_something_wrote_behind_the_daemons_back_then_it_does_not_end_well"),
    ),
}  # fmt: skip


def rows() -> list[str]:
    """The rows of the table in docs/proofs.md."""
    found = []
    for group, sentences in PROMISES.items():
        found.append(f"| **{group}** | |")
        found += [f"| {sentence} | `{test}` |" for sentence, test in sentences]
    return found
