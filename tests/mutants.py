"""The guards of the engine, each with a change that removes it and the test that must turn red.

`python -m tests.mutants` applies each change to a copy of the tree and runs the named test on it; a mutant that
survives, or a change that no longer fits the source, ends it with 1. docs/guards.md prints this table.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parent.parent
SHARED = ("asyncio", "concurrent.futures", "logging", "msgspec", "prometheus_client", "serial", "smbus2", "sqlite3")
SHARES = 4  # twice as many as the gate has cores: a mutant is often caught by what does not come
SECONDS = itertools.count(1_000_000_000)
SOURCES = ("hwtool", "contracts", "registers", "store", "sim", "tests", "pyproject.toml", "docs", "README.md")


class Mutant(NamedTuple):
    """One guard.

    Attributes:
        guard: what it keeps.
        file: where it stands.
        old: the text of the guard, once in the file.
        new: the text without it.
        test: the test that must fail then.
    """

    guard: str
    file: str
    old: str
    new: str
    test: str


KEYED = "tests/hwtool/test_keyed.py::"
LEFT_OUT = "tests/sim/test_recorded_secrets.py::"
REACHED = "tests/sim/test_reached.py::test_transfer_when_a_secret_may_be_in_it_then_it_is_secret"
SAFE = "tests/hwtool/test_safe_state.py::"
RECONCILED = "tests/hwtool/test_reconciliation.py::"
MODBUS = "tests/registers/test_modbus.py::"
BURSTS = "tests/hwtool/test_bursts.py::"
TCP = "tests/registers/test_modbus_tcp.py::"
I2C = "tests/registers/test_i2c.py::"
FTDI = "tests/registers/test_ftdi.py::"
RULES, UNITS = "tests/host/test_rules.py::", "tests/host/test_units.py::"
RESTARTS = "tests/hwtool/test_restarts.py::"
SEQUENCES = "tests/hwtool/test_sequences.py::"
ADVERSARY = "tests/hwtool/test_found_by_adversary.py::"
REVIEW = "tests/hwtool/test_found_by_review.py::"
FORMAT = "tests/hwtool/test_format_keys.py::"
STRUCTURES = "tests/hwtool/test_structures.py::"
PERMISSION = "tests/hwtool/test_permission.py::"
IN_POLICY = "tests/hwtool/test_found_in_policy.py::"
RUNS = "tests/hwtool/test_runs.py::"
REACH = "tests/hwtool/test_reach.py::"
SOCKET = "tests/surface/test_socket.py::"
CLIENT = "tests/clients/test_client.py::test_client_when_"
RECOVERING = "tests/clients/test_recovering.py::"
RETRYING = "tests/clients/test_retrying.py::"
RECORDED = "tests/hwtool/test_recorded.py::"
BRIDGE = "tests/mcp/test_bridge.py::"
CARE = "tests/store/test_care.py::"
PAGED = "tests/hwtool/test_paged.py::test_page_when_"
IN_OPERATION = "tests/hwtool/test_found_in_operation.py::"
RELOCK = "tests/hwtool/test_relocking.py::"
MISTAKE = "tests/hwtool/test_planted_mistakes.py::test_mistake_when_planted_then_its_place_and_the_reason_are_said"
MODES = "tests/hwtool/test_modes.py::"
PLANTED = (
    "tests/hwtool/test_planted_secrets.py::"
    "test_secret_when_planted_everywhere_then_in_no_record_no_log_no_error_and_nobody_elses_answer"
)
RETRY = "tests/hwtool/test_retry.py::"
OVERLAY = "tests/contracts/test_overlay.py::"
CACHE = "tests/contracts/test_cache.py::"
MUX = "tests/hwtool/test_mux.py::"
MERGING = "tests/hwtool/test_merging.py::"
SUITE = "tests/conformance/test_conformance.py::test_"
MET = SUITE + "trouble_when_met_then_of_the_declared_class_and_no_frame_is_repeated"
NEXT = SUITE + "next_read_when_the_quarantine_is_over_then_its_own_answer_and_one_frame"
GONE = SUITE + "bus_when_it_vanished_then_closed_at_once_and_not_sent_to_again"
PLUGIN = "tests/surface/test_pytest_plugin.py::"
REPORT = (
    "tests/hwtool/test_check_board.py::test_report_when_shown_then_escaped_and_without_a_reference_to_anything_outside"
)
MUTANTS = [
    Mutant(
        "the seam: an intent is dispatched once",
        "hwtool/dispatch.py",
        "    intent.spend()\n    return await _send(",
        "    return await _send(",
        KEYED + "test_intent_when_spent_twice_then_stopped_before_the_bus",
    ),
    Mutant(
        "the seam: only the dispatch sends what has an effect",
        "hwtool/prepare.py",
        "    if resolved.kind == \"read\":\n",
        "    if False:\n        await device.worker.send_once(None)\n    if resolved.kind == \"read\":\n",
        "tests/hwtool/test_worker.py::test_door_when_the_source_is_read_then_only_these_files_use_it",
    ),
    Mutant(
        "T1 is durable before the dispatch",
        "hwtool/execution.py",
        "            return await self._daemon.ask(job)\n        except StoreRule",
        "            self._daemon.store.submit(job)\n            return 1\n        except StoreRule",
        KEYED + "test_intent_when_the_bus_sees_the_effect_then_it_is_on_disk_and_the_outcome_before_the_reply",
    ),
    Mutant(
        "the outcome is durable before the reply",
        "hwtool/execution.py",
        "                await daemon.ask(job)\n                aftermath.take_effect(",
        "                daemon.store.submit(job)\n                aftermath.take_effect(",
        KEYED + "test_t2_when_the_store_fails_then_store_failed_with_what_was_observed",
    ),
    Mutant(
        "the key is looked up first",
        "hwtool/keyed.py",
        "        found = await self._look_up(request)\n        looked_up.set()\n",
        "        found = None\n        looked_up.set()\n",
        KEYED + "test_key_when_sent_three_times_then_one_execution_and_two_replays",
    ),
    Mutant(
        "the key is looked up before anything is refused",
        "hwtool/keyed.py",
        "        found = await self._look_up(request)\n        looked_up.set()\n",
        "        if request.device is not None:\n            await admit(self._daemon, request, request.device)\n"
        "        found = await self._look_up(request)\n        looked_up.set()\n",
        KEYED + "test_admission_when_refused_then_a_used_key_still_answers_and_a_fresh_one_stays_unused",
    ),
    Mutant(
        "one task works on a key",
        "hwtool/keyed.py",
        "        running = self._running.get(place)\n",
        "        running = None\n",
        KEYED + "test_key_when_sent_twice_at_once_then_one_execution",
    ),
    Mutant(
        "the digest is compared (a key with a row)",
        "hwtool/keyed.py",
        "        if request.error is not None or row.digest != request.digest:\n",
        "        if request.error is not None:\n",
        KEYED + "test_key_when_used_for_another_request_then_conflict_names_what_differs_and_nothing_is_touched",
    ),
    Mutant(
        "the digest is compared (a key at work)",
        "hwtool/keyed.py",
        "        elif running.request.digest != request.digest or request.error is not None:\n",
        "        elif request.error is not None:\n",
        KEYED + "test_key_when_another_request_comes_with_it_at_once_then_conflict_with_effects_unknown",
    ),
    Mutant(
        "a held device takes no effectful request",
        "hwtool/admission.py",
        "    held = device.held()\n",
        "    held = None\n",
        "tests/hwtool/test_approvals.py::test_request_when_the_device_is_held_then_held_and_no_person_is_asked",
    ),
    Mutant(
        "what was queued before a hold does not run after it",
        "hwtool/execution.py",
        "        check_stopped(daemon, request, (device,))  # what was queued before a hold never runs after it\n",
        "",
        KEYED + "test_hold_when_it_comes_while_requests_wait_then_they_are_answered_held",
    ),
    Mutant(
        "an unknown outcome holds the device",
        "hwtool/execution.py",
        "        device.mark_unknown(op_id, now_ns)\n        aftermath.take_effect(",
        "        aftermath.take_effect(",
        KEYED + "test_outcome_when_ambiguous_then_unknown_and_held_until_the_rules_settle_it",
    ),
    Mutant(
        "the proof table: several registers prove only where they are atomic",
        "registers/hwtool_registers/buses/modbus_pdu.py",
        "(code in PROVES_IF_ATOMIC and atomic)",
        "code in PROVES_IF_ATOMIC",
        MODBUS + "test_proof_table_when_an_exception_comes_then_only_these_show_non_execution",
    ),
    Mutant(
        "the proof table: a device failure proves nothing",
        "registers/hwtool_registers/buses/modbus_pdu.py",
        "PROVES_ALWAYS: Final = frozenset({0x06})",
        "PROVES_ALWAYS: Final = frozenset({0x06, 0x04})",
        MODBUS + "test_proof_table_when_an_exception_comes_then_only_these_show_non_execution",
    ),
    Mutant(
        "an exception of the bus is ambiguous, not a failure",
        "hwtool/worker.py",
        '            return Ambiguous(Sent.DATA, f"{type(error).__name__}: {error}")',
        '            return Rejected(f"{type(error).__name__}: {error}", "exception")',
        "tests/hwtool/test_worker.py::"
        "test_transfer_when_the_bus_raises_then_ambiguous_and_quarantined_and_not_repeated",
    ),
    Mutant(
        "not_after is checked before the intent",
        "hwtool/execution.py",
        "            check_time(daemon, request, after_intent=False)\n            check_rate",
        "            check_rate",
        KEYED + "test_not_after_when_it_passes_before_t1_then_expired_and_no_row",
    ),
    Mutant(
        "not_after is checked between the intent and the dispatch",
        "hwtool/execution.py",
        "            check_time(self._daemon, request, after_intent=True)\n",
        "            pass\n",
        KEYED + "test_not_after_when_it_passes_while_t1_is_synced_then_done_not_applied_and_nothing_on_the_bus",
    ),
    Mutant(
        "a quarantined bus is sent nothing",
        "hwtool/worker.py",
        "        self.check()\n        if self._absent is not None:\n",
        "        if self._absent is not None:\n",
        "tests/hwtool/test_worker.py::"
        "test_transfer_when_the_bus_raises_then_ambiguous_and_quarantined_and_not_repeated",
    ),
    Mutant(
        "the bank must be what the plan was made on",
        "hwtool/dispatch.py",
        "        if any(device.known.get(name) != value for name, value in bank.items()):\n",
        "        if False:\n",
        KEYED + "test_bank_when_it_changes_between_plan_and_dispatch_then_nothing_is_sent",
    ),
    Mutant(
        "a grant is for the transfers that were shown",
        "hwtool/execution.py",
        '    if (row.evidence or {}).get("approved_plan") != plan:\n',
        "    if False:\n",
        "tests/hwtool/test_approvals.py::"
        "test_grant_when_neighbours_changed_since_it_was_shown_then_stale_and_unused",
    ),
    Mutant(
        "without a sole master only `satisfied` settles by rule",
        "hwtool/reconciliation.py",
        "    if not sole_master:\n        return NeedsPerson(\"the bus has other masters: a change",
        "    if False:\n        return NeedsPerson(\"the bus has other masters: a change",
        "tests/hwtool/test_outcome.py",
    ),
    Mutant(
        "a value that a reset would leave proves nothing",
        "hwtool/reconciliation.py",
        '    if restart == "silent" and not all(',
        "    if False and not all(",
        "tests/hwtool/test_outcome.py",
    ),
    Mutant(
        "a clean read with side effects is refused",
        "contracts/hwtool_contracts/judge.py",
        "    if judgement.clean:\n        return None\n    words",
        "    if True:\n        return None\n    words",
        "tests/contracts/test_judge.py::test_refusals_when_the_wrong_verb_is_used_then_each_names_the_other",
    ),
    Mutant(
        "silence is unknown, never none",
        "contracts/hwtool_contracts/model.py",
        "        if ReadEffect.NONE in self.effects and self.provenance.basis in NO_BASIS_FOR_HARMLESS:\n",
        "        if False:\n",
        "tests/contracts/test_native.py::test_file_when_it_breaks_a_rule_then_the_fault_names_it",
    ),
    Mutant(
        "a key is fresh only if both indexes miss it",
        "store/hwtool_store/operations.py",
        "    if by_key != by_hash:\n",
        "    if False:\n",
        "tests/store/test_operations.py",
    ),
    Mutant(
        "no clean read behind a closed gate",
        "hwtool/reading.py",
        "    await check_read_gates(device, wanted)\n",
        "",
        REVIEW + "test_clean_read_when_its_gate_is_closed_then_refused_and_no_value_is_made_up",
    ),
    Mutant(
        "no expectation behind a closed gate",
        "hwtool/prepare.py",
        "    await check_read_gates(resolved.device,",
        "    print(resolved.device,",
        REVIEW + "test_expectation_when_it_is_behind_a_closed_gate_then_no_value_is_made_up_for_it",
    ),
    Mutant(
        "no picture from before behind a closed gate",
        "hwtool/prepare.py",
        "    await check_read_gates(device, named.values())\n",
        "",
        REVIEW + "test_write_when_what_would_prove_it_is_behind_a_closed_gate_then_refused_before_the_intent",
    ),
    Mutant(
        "no proof of an outcome behind a closed gate",
        "hwtool/carry_out.py",
        "    await check_read_gates(device, registers)  # the write may have closed one\n",
        "",
        REVIEW + "test_watch_when_the_write_closes_the_gate_of_its_own_proof_then_unknown_and_held",
    ),
    Mutant(
        "no settlement by what is behind a closed gate",
        "hwtool/recovery.py",
        "                if value is None and not held:\n",
        "                if False:\n",
        REVIEW + "test_rules_when_the_proof_is_behind_a_gate_that_closed_then_a_person_until_it_is_open",
    ),
    Mutant(
        "a safe state is dispatched once",
        "hwtool/dispatch.py",
        "    intent.spend()\n    sent = []\n",
        "    sent = []\n",
        SAFE + "test_safe_state_when_its_intent_is_spent_twice_then_stopped_before_the_bus",
    ),
    Mutant(
        "what was asked for before a safe state does not run after it",
        "hwtool/admission.py",
        "    if request.overtaken():\n",
        "    if False:\n",
        SAFE + "test_request_when_it_waited_before_a_safe_state_then_it_does_not_run_after_it",
    ),
    Mutant(
        "what is being prepared when a safe state comes is not sent",
        "hwtool/execution.py",
        "            check_stopped(daemon, request, (device,))\n            check_time",
        "            check_time",
        SAFE + "test_request_when_a_safe_state_comes_while_it_is_prepared_then_it_is_not_sent",
    ),
    Mutant(
        "a safe state ends a running watch",
        "hwtool/carry_out.py",
        "        if overtaken():\n            raise",
        "        if False:\n            raise",
        SAFE + "test_safe_state_when_called_during_a_watch_then_that_op_is_unknown_and_no_rule_settles_it_afterwards",
    ),
    Mutant(
        "no rule settles what a safe state has overtaken (the rules)",
        "hwtool/recovery.py",
        "    if overtaken_by is not None:\n",
        "    if False:\n",
        SAFE + "test_rule_when_a_safe_state_was_dispatched_since_then_only_a_person_settles_the_older_op",
    ),
    Mutant(
        "no rule settles what a safe state has overtaken (the store)",
        "store/hwtool_store/operations.py",
        '    if by == "rule" and row is not None and row[0]:\n',
        "    if False:\n",
        SAFE + "test_rule_when_it_is_under_way_at_the_safe_states_intent_then_the_store_refuses_its_settlement",
    ),
    Mutant(
        "a frozen daemon takes no effectful request",
        "hwtool/admission.py",
        "    if daemon.frozen:\n",
        "    if False:\n",
        SAFE + "test_safe_state_when_others_are_stopped_then_it_passes",
    ),
    Mutant(
        "below the free-space mark no new operation is begun",
        "hwtool/admission.py",
        "    if low is not None:\n",
        "    if False:\n",
        SAFE + "test_safe_state_when_others_are_stopped_then_it_passes",
    ),
    Mutant(
        "an open breaker keeps requests away",
        "hwtool/execution.py",
        "        device.worker.admit()\n",
        "",
        "tests/hwtool/test_bus_state.py::test_breaker_when_open_then_requests_fail_fast_and_a_clean_read_probes",
    ),
    Mutant(
        "a device whose bus was away is identified anew",
        "hwtool/worker.py",
        "        self.returns += 1\n        self.after_return()\n",
        "        self.returns += 1\n",
        "tests/hwtool/test_bus_state.py::"
        "test_bus_when_it_was_away_then_the_identity_is_looked_at_before_the_next_effect",
    ),
    Mutant(
        "a sequence stops at the first step that is not proven",
        "hwtool/headers.py",
        "        elif not result.ok or self.last:\n",
        "        elif self.last:\n",
        SEQUENCES + "test_sequence_when_a_step_is_not_proven_then_it_stops_there",
    ),
    Mutant(
        "a sequence ends with its last step in one commit",
        "hwtool/recovery.py",
        "        if row.parent_op is not None:\n",
        "        if False:\n",
        SEQUENCES + "test_header_when_a_person_settles_its_step_then_it_ends_by_rule_in_the_same_commit",
    ),
    Mutant(
        "what cannot be seen does not hide what is not there",
        "hwtool/outcome.py",
        '        return "missed" if "unchanged" in parts or "missed" in parts else "open"\n',
        '        return "open"\n',
        ADVERSARY + "test_safe_state_when_one_entry_cannot_be_seen_then_it_does_not_hide_that_another_was_not_taken",
    ),
    Mutant(
        "a device's own word is not compared with its host's",
        "hwtool/restarts.py",
        "    if before is None or now is None or kind_of(before) != kind_of(now):\n",
        "    if before is None or now is None:\n",
        ADVERSARY + "test_boot_evidence_when_of_two_kinds_then_nothing_can_be_said",
    ),
    Mutant(
        "an absent bus is not opened for an effect",
        "hwtool/worker.py",
        "        if self._absent is not None:\n            raise",
        "        await self.present()\n        if self._absent is not None:\n            raise",
        "tests/hwtool/test_bus_state.py::test_dispatch_when_the_bus_is_away_then_it_is_not_opened_for_an_effect",
    ),
    Mutant(
        "a grant that ended in the queue is not used",
        "hwtool/execution.py",
        "        ended = None if row is None else await no_longer_granted(self._daemon, row)\n",
        "        ended = None\n",
        ADVERSARY + "test_grant_when_it_ends_while_the_request_waits_for_its_turn_then_it_is_not_used",
    ),
    Mutant(
        "a grant of a sequence that ended in the queue is not used",
        "hwtool/sequences.py",
        "                ended = await no_longer_granted(self._daemon, row)\n",
        "                ended = None\n",
        ADVERSARY + "test_grant_when_it_ends_while_the_request_waits_for_its_turn_then_it_is_not_used",
    ),
    Mutant(
        "after a store failure nothing is dispatched",
        "hwtool/execution.py",
        "        if self._daemon.failed:\n",
        "        if False:\n",
        ADVERSARY + "test_dispatch_when_the_store_has_failed_since_the_intent_then_nothing_is_sent",
    ),
    Mutant(
        "a device that restarts ends its sequence",
        "hwtool/execution.py",
        "        check_seen(request)  # it may have restarted while this waited\n",
        "",
        ADVERSARY + "test_sequence_when_the_device_restarts_between_two_steps_then_it_stops",
    ),
    Mutant(
        "a sequence that waits for a turn does not keep a safe state waiting",
        "hwtool/sequences.py",
        "            alarms = [asyncio.ensure_future(d.lock.alarmed()) for d in taken]\n",
        "            alarms: list[Any] = []\n",
        ADVERSARY + "test_safe_state_when_a_sequence_keeps_the_turn_and_waits_for_another_device_then_it_does_not_wait",
    ),
    Mutant(
        "nothing is sent to whoever is there since the bus was away",
        "hwtool/dispatch.py",
        "        if device.worker.returns != returns:\n",
        "        if False:\n",
        ADVERSARY
        + "test_dispatch_when_the_bus_was_away_and_is_back_since_the_identity_was_looked_at_then_nothing_is_sent",
    ),
    Mutant(
        "no rule settles by what another device holds",
        "hwtool/recovery.py",
        "        await check_identity(device)\n",
        "        pass\n",
        ADVERSARY + "test_rules_when_another_device_answers_then_nothing_is_settled_by_what_it_holds",
    ),
    Mutant(
        "a loss is reported only after looking",
        "hwtool/reconciliation.py",
        "isinstance(told, NeedsPerson) and now is not None and all(",
        "isinstance(told, NeedsPerson) and all(",
        "tests/hwtool/test_loss.py",
    ),
    Mutant(
        "nothing harmless rests on silence",
        "contracts/hwtool_contracts/model.py",
        "        if self.effect is WriteEffect.STORE and self.provenance.basis in NO_BASIS_FOR_HARMLESS:\n",
        "        if False:\n",
        OVERLAY + "test_write_spec_when_store_rests_on_silence_then_it_cannot_be_made",
    ),
    Mutant(
        "a word that the importer does not know is unknown, and no silence",
        "contracts/hwtool_contracts/importers/svd_specs.py",
        "                return ReadSpec(frozenset({ReadEffect.UNKNOWN}), self._provenance)  # stated",
        "                return inherited  # stated",
        "tests/contracts/test_svd.py::test_effect_word_when_unheard_of_then_it_is_no_silence",
    ),
    Mutant(
        "a review holds for what was signed alone",
        "contracts/hwtool_contracts/overlay.py",
        "        if stale or (self.changed and review.covers is None):\n",
        "        if self.changed and review.covers is None:\n",
        OVERLAY + "test_base_when_what_a_review_covers_has_changed_then_open_again",
    ),
    Mutant(
        "a review whose match was changed after it was signed is refused",
        "contracts/hwtool_contracts/overlay.py",
        "        if stale and self.direct and not self.changed:\n",
        "        if False:\n",
        OVERLAY + "test_review_when_its_match_was_changed_after_it_was_signed_then_a_fault_with_its_digest",
    ),
    Mutant(
        "what a correction made harmless is open when the base has changed",
        "contracts/hwtool_contracts/overlay.py",
        "            if self.changed:\n                corrected = self._reopened(",
        "            if False:\n                corrected = self._reopened(",
        OVERLAY + "test_base_when_changed_then_corrections_to_harmless_are_open_again",
    ),
    Mutant(
        "a damaged cache is not believed",
        "contracts/hwtool_contracts/cache.py",
        " or hashlib.sha256(content).digest() != data[len(MAGIC) : start]:",
        ":",
        CACHE + "test_file_when_any_byte_is_flipped_then_made_anew_and_never_another_contract",
    ),
    Mutant(
        "a cache that others may write is not believed",
        "contracts/hwtool_contracts/cache.py",
        "                return None  # somebody else could have written it\n",
        "                pass\n",
        CACHE + "test_file_when_others_may_write_it_then_not_believed",
    ),
    Mutant(
        "fields that share bits are not updated by guess",
        "contracts/hwtool_contracts/judge_write.py",
        "        if others:\n            which = ",
        "        if False:\n            which = ",
        FORMAT + "test_alternates_when_they_overlap_then_an_update_of_either_is_refused_and_a_whole_write_is_not",
    ),
    Mutant(
        "the one repeat needs proof that nothing happened",
        "hwtool/dispatch.py",
        "        if not isinstance(answer, Rejected) or answer.proof not in BUSY:\n",
        "        if isinstance(answer, Confirmed):\n",
        FORMAT + "test_busy_retry_when_the_answer_is_ambiguous_then_never_again",
    ),
    Mutant(
        "the one repeat has to be declared",
        "hwtool/dispatch.py",
        "        if busy is None or step.role is not Role.ACCESS or tries >= busy.attempts:\n",
        "        busy = busy or BusyRetry(3, 1)\n        if step.role is not Role.ACCESS or tries >= busy.attempts:\n",
        FORMAT + "test_busy_retry_when_not_declared_then_one_transfer",
    ),
    Mutant(
        "a write that restarts the device begins a generation",
        "hwtool/aftermath.py",
        "        if self._restarts:\n",
        "        if False:\n",
        FORMAT + "test_resets_when_written_then_the_generation_rises_and_the_shadow_is_gone",
    ),
    Mutant(
        "a device that may answer elsewhere is held",
        "hwtool/aftermath.py",
        "        if self._moves and self._device.hold is None:\n",
        "        if False:\n",
        FORMAT + "test_readdresses_when_approved_and_written_then_the_device_is_held_by_the_rule",
    ),
    Mutant(
        "a rate is kept",
        "hwtool/aftermath.py",
        "        if len(recent) >= limit:\n",
        "        if False:\n",
        FORMAT + "test_max_rate_when_it_is_reached_then_rate_limited_and_the_key_is_unused",
    ),
    Mutant(
        "a device is left alone after a write that says so",
        "hwtool/devices.py",
        "(rest_s := self._until_s - self._worker.clock.monotonic_s()) > 0:\n            self._worker.lock",
        "(rest_s := 0.0) > 0:\n            self._worker.lock",
        FORMAT + "test_delay_after_when_the_write_is_read_back_then_the_read_waits",
    ),
    Mutant(
        "a shadow is not what an unknown write may have left",
        "store/hwtool_store/operations.py",
        '        if not (verdict in ("not_applied", "denied") and effects == "none"):\n',
        "        if False:\n",
        FORMAT + "test_shadow_when_a_later_write_is_unknown_then_refused_until_it_is_settled",
    ),
    Mutant(
        "a locked register is written in its sequence alone",
        "hwtool/resolve.py",
        '            if name != inside:\n                message = f"{change',
        '            if False:\n                message = f"{change',
        STRUCTURES + "test_locked_register_when_written_outside_its_sequence_then_refused",
    ),
    Mutant(
        "a memory is not accessed while its register shows that it is busy",
        "contracts/hwtool_contracts/memories.py",
        "        read = replace(read, gate=idle)\n",
        "",
        STRUCTURES + "test_memory_when_a_register_shows_that_it_is_busy_then_it_is_not_accessed",
    ),
    Mutant(
        "what a killed write may have done to its device is recorded with its row",
        "hwtool/recovery.py",
        "                record_orphan(daemon, conn, row, facts(row), daemon.clock.wall_ns())\n",
        "",
        "tests/hwtool/test_found_in_contracts.py::"
        "test_readdressed_device_when_the_power_went_before_the_outcome_then_held_by_the_rule",
    ),
    Mutant(
        "an overlay makes nothing harmless without saying what was seen",
        "contracts/hwtool_contracts/overlay.py",
        "        _check_seen(table)\n        for register in chosen:\n",
        "        for register in chosen:\n",
        "tests/hwtool/test_found_in_contracts.py::"
        "test_correction_when_it_makes_harmless_and_names_nothing_seen_then_a_fault",
    ),
    Mutant(
        "policy: what a rule forbids is denied",
        "hwtool/permission.py",
        "        if rule is not None and getattr(rule, touch.use) in (YesNo.NO, Gate.NO):\n",
        "        if rule is not None and getattr(rule, touch.use) is YesNo.NO:\n",
        PERMISSION + "test_rule_when_it_says_no_then_denied_for_everybody_it_means_and_nothing_is_sent",
    ),
    Mutant(
        "policy: clean reads ask for it too",
        "hwtool/reading.py",
        "        check_use(daemon.board.policy, caller, Touch(device, register, \"read\"))\n",
        "        Touch(device, register, \"read\")\n",
        PERMISSION + "test_rule_when_it_says_no_then_denied_for_everybody_it_means_and_nothing_is_sent",
    ),
    Mutant(
        "policy: a rule speaks of those it names alone",
        "hwtool/policy_table.py",
        "(kind == \"uid\" and int(name) == uid)",
        "(kind == \"uid\" and str(uid).startswith(name))",
        PERMISSION + "test_rule_when_it_names_a_caller_then_it_speaks_of_no_other",
    ),
    Mutant(
        "policy: limits are asked for again once the whole value is known",
        "hwtool/execution.py",
        "        permission.check_values(rules, request.caller, resolved, prepared.values, prepared.known)\n",
        "",
        PERMISSION + "test_limits_when_a_value_would_be_outside_then_refused_and_nothing_is_written",
    ),
    Mutant(
        "policy: what begins is counted",
        "hwtool/permission.py",
        "            rates.note(caller.principal, rule, now_s)\n",
        "            pass\n",
        PERMISSION + "test_rate_when_it_is_used_up_then_limited_until_the_minute_is_over_and_for_that_caller_alone",
    ),
    Mutant(
        "confidential: what reaches its bits is denied too",
        "hwtool/permission.py",
        "    for register in touch.device.reached(touch.register):\n",
        "    for register in (touch.register,):\n",
        PERMISSION + "test_confidential_when_a_caller_is_not_allowed_then_denied_and_not_looked_at",
    ),
    Mutant(
        "confidential: a write that is read back would tell",
        "hwtool/permission.py",
        "    if touch.use != \"write\" or touch.register.access.readable:\n",
        "    if touch.use != \"write\":\n",
        PERMISSION + "test_confidential_when_a_caller_is_not_allowed_then_denied_and_not_looked_at",
    ),
    Mutant(
        "a daily budget is looked at again at the head of the queue",
        "hwtool/execution.py",
        "            await check_left(daemon, resolved)\n",
        "            pass\n",
        PERMISSION + "test_budget_when_two_come_at_once_for_the_last_write_then_one_runs",
    ),
    Mutant(
        "what a verification consumes is not read again by the watch",
        "hwtool/carry_out.py",
        "    names = {t.observe for t in targets if t.observe and not t.confirms} | {s",
        "    names = {t.observe for t in targets if t.observe} | {s",
        REACH + "test_consumed_verification_when_another_register_of_the_write_is_watched_then_still_once",
    ),
    Mutant(
        "a register with accesses of its own width is never merged",
        "contracts/hwtool_contracts/judge.py",
        "    if any(r.access_bits is not None for r in members):\n",
        "    if False:\n",
        REACH + "test_pieces_when_read_then_each_access_once_in_order_and_the_value_whole",
    ),
    Mutant(
        "a wide access counts what its neighbours do",
        "contracts/hwtool_contracts/places.py",
        "    if shared is None:\n",
        "    if shared is None or shared:\n",
        REACH + "test_wide_access_when_a_neighbour_pops_then_no_clean_read",
    ),
    Mutant(
        "a halted run takes no effectful step",
        "hwtool/admission.py",
        "    await Runs(daemon).check(request.caller, request.run, effectful=True)\n",
        "",
        RUNS + "test_run_when_it_was_halted_then_no_person_is_asked_for_a_later_step",
    ),
    Mutant(
        "what waited while its run was halted does not run",
        "hwtool/execution.py",
        "        await Runs(daemon).check(request.caller, request.run, effectful=True, begins=True)\n",
        "",
        RUNS + "test_run_when_two_requests_wait_and_the_first_fails_then_the_second_never_runs",
    ),
    Mutant(
        "an unknown step fails its run",
        "hwtool/runs.py",
        '            return Cause(f"operation {op.op_id} is unknown", op.op_id, error_id, True, False)\n',
        "            return None\n",
        RUNS + "test_run_when_switching_off_times_out_then_the_next_step_never_runs_and_the_run_is_failed",
    ),
    Mutant(
        "a run is its caller's",
        "hwtool/runs.py",
        "        if run.row.principal != caller.principal:\n",
        "        if False:\n",
        RUNS + "test_run_when_it_is_of_another_caller_then_denied",
    ),
    Mutant(
        "a lease keeps others away",
        "hwtool/admission.py",
        "    check_lease(daemon, request.caller, devices)\n",
        "",
        RUNS + "test_lease_when_a_device_is_leased_then_others_wait_and_its_holder_does_not",
    ),
    Mutant(
        "policy: a rule holds for the bits, by whatever name",
        "hwtool/permission.py",
        "    reached = touch.device.reached(touch.register)\n",
        "    reached = (touch.register,)\n",
        IN_POLICY + "test_rule_when_another_name_of_the_bits_is_used_then_it_holds",
    ),
    Mutant(
        "a sequence is counted when it begins",
        "hwtool/sequences.py",
        "            take_rate(self._daemon.rates, self._daemon.board.policy, request.caller, sequence, now_s)\n",
        "",
        IN_POLICY + "test_rate_when_sequences_come_at_once_then_no_more_begins_than_it_allows",
    ),
    Mutant(
        "a sequence's budget is looked at again when it begins",
        "hwtool/sequences.py",
        "                await check_left(self._daemon, sequence)\n",
        "                pass\n",
        IN_POLICY + "test_budget_when_sequences_come_at_once_then_no_more_is_written_than_it_allows",
    ),
    Mutant(
        "a partial write of what cannot be read is laid over a secret",
        "hwtool/permission.py",
        "    return touch.change is not None and touch.change.update is not None\n",
        "    return False\n",
        IN_POLICY + "test_confidential_when_a_write_is_laid_over_what_was_written_then_denied",
    ),
    Mutant(
        "rules do not ask for ever",
        "hwtool/engine.py",
        "                if op_id not in self._looked:",
        "                if True:",
        "tests/hwtool/test_loss.py::test_rules_when_the_chip_answers_nothing_any_more_then_it_is_not_asked_for_ever",
    ),
    Mutant(
        "a rest is kept between the transfers of one plan",
        "hwtool/dispatch.py",
        "            await device.on_bus.rested()",
        "            pass",
        REACH + "test_delay_when_a_group_writes_its_members_one_by_one_then_it_is_kept_between_them",
    ),
    Mutant(
        "a daemon that was started read-only has no effects",
        "hwtool/admission.py",
        "    check_read_only(daemon, request)\n",
        "",
        MODES + "test_read_only_when_started_so_then_no_effect_but_a_safe_state_and_none_is_offered",
    ),
    Mutant(
        "a daemon that rehearses sends nothing",
        "hwtool/keyed.py",
        "        if params.dry_run or self._daemon.rehearsing:",
        "        if params.dry_run:",
        MODES + "test_rehearsal_when_the_daemon_was_started_so_then_every_keyed_request_is_one",
    ),
    Mutant(
        "a board may demand a contract that was checked on a real part",
        "hwtool/admission.py",
        "    check_verified(request, devices)\n",
        "",
        MODES + "test_unverified_when_the_board_demands_a_real_part_then_effects_are_refused",
    ),
    Mutant(
        "what is reloaded while it runs needs no restart",
        "hwtool/reloading.py",
        "    if needs:\n",
        "    if False:\n",
        MODES + "test_reload_when_something_needs_a_restart_then_named_and_nothing_is_taken_over",
    ),
    Mutant(
        "only errors of the transport are retried",
        "hwtool/retry.py",
        "    if error.code in TRANSIENT:",
        "    if True:",
        RETRY + "test_decide_when_any_error_then_only_transport_errors_are_retried",
    ),
    Mutant(
        "a storm of callers retries no more than a device's budget",
        "hwtool/retry.py",
        "        self.tokens -= 1.0\n",
        "",
        RETRY + "test_storm_when_fifty_callers_read_from_a_dead_device_then_no_more_retries_than_the_budget",
    ),
    Mutant(
        "a retry waits for the quarantine of a lost reply",
        "hwtool/devices.py",
        "                await self.worker.silence()",
        "                pass",
        RETRY + "test_clean_read_when_its_reply_is_lost_then_sent_again_after_the_quarantine_and_not_before",
    ),
    Mutant(
        "a caller fills no more than half of a queue",
        "hwtool/execution.py",
        "    if device.callers[principal] >= MOST_OF_A_CALLER:",
        "    if False:",
        RETRY + "test_queue_when_one_caller_fills_its_half_then_others_still_get_in",
    ),
    Mutant(
        "a wait for the bus ends at the request's own end",
        "hwtool/execution.py",
        "    if request.expires_boottime_ns is not None:\n        limit_s = min(",
        "    if False:\n        limit_s = min(",
        RETRY + "test_breaker_when_the_wait_is_too_short_or_ends_with_not_after_then_not_sent",
    ),
    Mutant(
        "a socket that a manager passed keeps its role",
        "hwtool/service_manager.py",
        "            if name in (role, f\"{role}.sock\") or Path(bound).name == f\"{role}.sock\":",
        "            if True:",
        "tests/surface/test_starting.py::test_sockets_when_the_wrong_ones_are_passed_then_one_clear_sentence",
    ),
    Mutant(
        "a secret is in no audit row",
        "hwtool/state.py",
        '                "arguments": REDACTED if resolved.sensitive else arguments(resolved),',
        '                "arguments": arguments(resolved),',
        PLANTED,
    ),
    Mutant(
        "a secret is on no approval screen",
        "hwtool/approvals.py",
        '"transfers": REDACTED if resolved.sensitive else [',
        '"transfers": [',
        PLANTED,
    ),
    Mutant(
        "a secret is in no line of a sequence's evidence",
        "hwtool/headers.py",
        '        shown = REDACTED if self.sequence.sensitive else summary',
        '        shown = summary',
        PLANTED,
    ),
    Mutant(
        "a secret is not told back in an error about a step",
        "hwtool/steps.py",
        '        shown = REDACTED if register.sensitive else hex(wanted)',
        '        shown = hex(wanted)',
        PLANTED,
    ),
    Mutant(
        "a secret is not told back in a refusal of policy",
        "hwtool/permission.py",
        '    told = "its value (it is sensitive) is outside the limits" if change.register.sensitive else why',
        '    told = why',
        PLANTED,
    ),
    Mutant(
        "an operation of another caller is shown without its values",
        "hwtool/history.py",
        '        if not mine:\n',
        '        if False:\n',
        PLANTED,
    ),
    Mutant(
        "what was queued before a reload keeps to the new policy",
        "hwtool/execution.py",
        "        permission.check(daemon.board.policy, request.caller, resolved)  # rates",
        "        # rates",
        IN_OPERATION + "test_reload_when_a_request_is_queued_then_it_keeps_to_what_the_board_says_now",
    ),
    Mutant(
        "what was queued before a reload keeps to its word on unverified contracts",
        "hwtool/execution.py",
        "        check_verified(request, resolved.devices)\n",
        "",
        IN_OPERATION + "test_reload_when_a_request_is_queued_then_it_keeps_to_what_the_board_says_now",
    ),
    Mutant(
        "what was queued before a reload asks a person if it says so now",
        "hwtool/execution.py",
        "        if needed and not (request.approval",
        "        if False and not (request.approval",
        IN_OPERATION + "test_reload_when_a_request_is_queued_then_it_keeps_to_what_the_board_says_now",
    ),
    Mutant(
        "another chip is not relocked",
        "hwtool/relocking.py",
        "            await check_identity(device)",
        "            pass",
        RELOCK + "test_relock_when_another_chip_sits_there_then_not_sent",
    ),
    Mutant(
        "a grant is worth what the approval mode says now",
        "hwtool/pending.py",
        '    if why_not is not None:\n',
        '    if False:\n',
        IN_OPERATION + "test_reload_when_the_approval_mode_is_stricter_then_a_grant_of_ones_own_is_void",
    ),
    Mutant(
        "a subscription ends when its registers may not be read any more",
        "hwtool/events.py",
        '        due = [s for s in due if self._still_allowed(s, device)]\n',
        '',
        IN_OPERATION + "test_reload_when_a_read_is_forbidden_then_its_subscription_ends_and_says_so",
    ),
    Mutant(
        "a preparation is not tried again before a safe state",
        "hwtool/execution.py",
        'partial(self._must_stop, request, device)',
        'lambda: False',
        IN_OPERATION + "test_preparation_when_a_safe_state_is_asked_for_then_not_tried_again",
    ),
    Mutant(
        "polls of a dead device leave its bus to others",
        "hwtool/events.py",
        'max(rest_s, rest_after_failure_s, 0.001)',
        'max(rest_s, 0.001)',
        IN_OPERATION + "test_poll_when_its_device_is_dead_then_others_on_the_bus_are_served",
    ),
    Mutant(
        "a row of the journal says no more than its hash covers",
        "hwtool/journal_files.py",
        '    if told.keys() != MEMBERS or told["at"] != at:',
        '    if False:',
        IN_OPERATION + "test_verify_when_a_row_is_spoilt_then_told",
    ),
    Mutant(
        "nothing stands behind the seal of a day",
        "hwtool/journal_files.py",
        '            if sealed:\n',
        '            if False:\n',
        IN_OPERATION + "test_verify_when_something_stands_behind_the_seal_or_in_the_wrong_folder_then_told",
    ),
    Mutant(
        "a socket that everybody may write to is not served",
        "hwtool/service_manager.py",
        '.st_mode & 0o002:',
        '.st_mode & 0:',
        "tests/surface/test_found_in_verbs.py::test_sockets_when_passed_open_deaf_or_twice_then_one_clear_sentence",
    ),
    Mutant(
        "a relock is not sent where nothing may be",
        "hwtool/relocking.py",
        '    why = _hindered(daemon, device)\n',
        '    why = None\n',
        RELOCK + "test_relock_when_nothing_may_be_sent_then_not_sent_and_the_journal_says_so",
    ),
    Mutant(
        "a relock is a write that does no harm",
        "contracts/hwtool_contracts/cross_check.py",
        '        if judged.repeat is not When.YES:\n            self.fault(table, "register",',
        '        if False:\n            self.fault(table, "register",',
        RELOCK + "test_relock_when_it_might_do_harm_then_a_fault_of_the_contract",
    ),
    Mutant("a bank that is left as it is, is selected by each access", "registers/hwtool_registers/plan.py",
        "        if prior == wanted and not left:\n",
        "        if prior == wanted:\n",
        PAGED + "a_clean_read_moves_it_after_the_plan_then_the_write_never_reaches_the_other"),
    Mutant("an access that moves a selector shows in what plans count on", "hwtool/devices.py",
        "            self.follow(step, answer)\n            if not isinstance",
        "            if not isinstance",
        PAGED + "a_clean_read_moves_it_after_the_plan_then_the_write_never_reaches_the_other"),
    Mutant("an entry of a safe state is planned anew where the one before moved its bank", "hwtool/prepare.py",
        "part.returns == device.worker.returns and not moved",
        "part.returns == device.worker.returns",
        PAGED + "a_safe_state_is_of_both_then_each_gets_its_own"),
    Mutant("a key of another request is an error of the run", "hwtool/runs.py",
        "        op_id = None if code == Code.KEY_CONFLICT else result.id\n",
        "        op_id = result.id\n",
        RUNS + "test_run_when_a_key_of_another_request_is_used_then_it_fails_though_that_one_was_done"),
    Mutant("after a loss the record is asked with the request itself", "hwtool/recovering.py",
        '{"key": key, "request": {"method": call.method, "params": inner}}',
        '{"key": key}',
        CLIENT + "the_key_is_of_another_request_then_a_lost_reply_is_not_taken_for_its_own"),
    Mutant("a client sends no effect again after a loss", "hwtool/recovering.py",
        "    if call.repeatable:\n",
        "    if True:\n",
        RECOVERING + "test_write_when_the_reply_is_lost_then_its_record_answers_and_nothing_is_sent_again"),
    Mutant("asking for the record of a request begins nothing", "hwtool/engine.py",
        "return await self._keyed.recorded(caller, keyed)",
        "return await self._keyed.submit(caller, keyed)",
        RECORDED + "test_recorded_when_nothing_was_sent_then_not_found_and_nothing_is_begun"),
    Mutant("the record of another request is a conflict", "hwtool/keyed.py",
        "        if request.error is not None or found.digest != request.digest:\n"
        "            return self._conflict(request, found.request[\"content\"], \"none\", found)\n"
        "        waiting",
        "        waiting",
        RECORDED + "test_recorded_when_it_waits_for_a_person_then_pending_and_a_grant_is_not_used_by_asking"),
    Mutant("an effect keeps its key over all attempts", "hwtool/attempts.py",
        "        if call.key not in account.known and before:\n",
        "        if False:\n",
        RETRYING + "test_effect_when_its_key_changes_between_attempts_then_refused_unsent"),
    Mutant("a change without a key is not retried", "hwtool/attempts.py",
        "        if call.key is None:\n            raise FreshKeyInRetry(",
        "        if call.key is None:\n            return\n        if False:\n            raise FreshKeyInRetry(",
        RETRYING + "test_change_without_a_key_when_inside_a_policy_then_refused_unsent"),
    Mutant("a fall-back hides no effect", "hwtool/retrying.py",
        " and tried.acted == 0:\n",
        ":\n",
        RETRYING + "test_fall_back_when_an_effect_of_an_earlier_step_was_applied_then_it_does_not_hide_it"),
    Mutant("an attempt that was given up sends nothing beside the next one", "hwtool/attempts.py",
        "        if account.current is not self:\n",
        "        if False:\n",
        RETRYING + "test_task_of_an_attempt_when_another_one_was_begun_then_it_sends_nothing_any_more"),
    Mutant("the account of an outer policy holds inside of an inner one", "hwtool/attempts.py",
        "        attempt = attempt.account.outer\n",
        "        attempt = None\n",
        RETRYING + "test_key_when_fresh_in_each_call_of_an_inner_policy_then_the_outer_one_refuses_it"),
    Mutant("an answer under another key is no answer", "hwtool/recovering.py",
        "    if call.key is not None and answered not in (None, call.key):\n",
        "    if False:\n",
        "tests/clients/test_broken_peers.py::"
        "test_answer_when_it_is_not_of_this_call_then_the_record_is_asked_and_nothing_is_sent_again"),
    Mutant("a connection that broke is not used again", "hwtool/client.py",
        "            self._drop()  # half a request may stand in it, or half a reply\n",
        "            pass\n",
        "tests/clients/test_broken_peers.py::"
        "test_answer_when_it_is_not_of_this_call_then_the_record_is_asked_and_nothing_is_sent_again"),
    Mutant("a raw request keeps its key too", "hwtool/client.py",
        "        effect = check_key(Call(method, params or {}, lambda result: result))\n",
        "        effect = check_key(Call(\"describe\", {}, lambda result: result))\n",
        "tests/clients/test_broken_peers.py::test_raw_ask_when_inside_a_policy_then_its_key_is_kept_too"),
    Mutant("a late reply is nobody's", "hwtool/connection.py",
        "        except TimeoutError:\n            self._session.forget(number)\n",
        "        except TimeoutError:\n",
        "tests/clients/test_broken_peers.py::"
        "test_reply_when_it_comes_after_the_caller_gave_up_then_nobody_takes_it_for_his"),
    Mutant("a safe state waits for nothing of its connection", "hwtool/server.py",
        "        before = None if method == SAFE_STATE else tail\n",
        "        before = tail\n",
        SOCKET + "test_safe_state_when_others_of_its_connection_wait_then_at_once_and_they_are_overtaken"),
    Mutant("what has come is known by its key before it begins", "hwtool/server.py",
        "            arrived = self._server.engine.expect(self._caller, method, params, self._safe.get(place))\n",
        "            arrived = None\n",
        SOCKET + "test_safe_state_when_others_of_its_connection_wait_then_at_once_and_they_are_overtaken"),
    Mutant("what comes behind a safe state follows on it", "hwtool/server.py",
        "                last = asyncio.ensure_future(asyncio.wait({task, tail}))\n",
        "                last = tail\n",
        SOCKET + "test_requests_when_they_come_behind_a_safe_state_then_after_it_and_not_overtaken_by_it"),
    Mutant("a second safe state overtakes what came behind the first", "hwtool/execution.py",
        "            request.arrived.passes(self._daemon.alarms())\n",
        "            pass\n",
        SAFE + "test_safe_states_when_two_come_then_the_second_overtakes_what_came_behind_the_first"),
    Mutant("a safe state does not overtake what came behind it", "hwtool/admission.py",
        "            one.alarms = alarms\n",
        "            pass\n",
        SOCKET + "test_requests_when_they_come_behind_a_safe_state_then_after_it_and_not_overtaken_by_it"),
    Mutant("a safe state overtakes what came before it and had not begun", "hwtool/admission.py",
        "    before = {} if arrived is None else arrived.alarms\n",
        "    before: Mapping[str, int] = {}\n",
        SOCKET + "test_safe_state_when_others_of_its_connection_wait_then_at_once_and_they_are_overtaken"),
    Mutant("the bridge says no more of a broken answer than is known", "hwtool/mcp/bridge.py",
        '            effects = "none" if call.key is None or call.repeatable else "unknown"\n',
        '            effects = "none"\n',
        "tests/mcp/test_bridge_core.py::test_write_when_there_is_no_answer_then_no_more_is_said_than_is_known"),
    Mutant("a run is of one client", "hwtool/runs_open.py",
        "        mine = _OPEN.get().get(self._mine)\n",
        "        mine = next(iter(_OPEN.get().values()), None)\n",
        "tests/clients/test_broken_peers.py::"
        "test_run_when_open_in_one_client_then_no_other_ones_calls_belong_to_it"),
    Mutant("a read-only session offers no tool that changes a device", "hwtool/mcp/tools.py",
        "if not (read_only and tool.effect)]",
        "if True]",
        BRIDGE + "test_tools_when_read_only_then_none_can_change_a_device"),
    Mutant("no tool call waits for a person", "hwtool/mcp/bridge.py",
        '        if call.method == "op.wait":',
        "        if False:",
        BRIDGE + "test_calls_when_a_person_must_agree_then_answered_at_once_and_no_call_waits_for_one"),
    Mutant("a discover settles no era", "hwtool/mcp/server.py",
        "        if not _is_discover(item):\n",
        "        if True:\n",
        "tests/mcp/test_transcripts.py::test_transcript_when_played_then_as_recorded"),
    Mutant("a lost reply is never told as a failure", "hwtool/mcp/bridge.py",
        '            return _not_known(call.key, str(error) or "no answer yet")\n',
        "            return failed(_unavailable(str(error)), call.key)\n",
        BRIDGE + "test_bridge_when_the_daemon_dies_under_a_call_then_unknown_and_the_tool_that_looks"),
    Mutant("an argument that a tool does not take is refused", "hwtool/mcp/tools.py",
        "        if name not in tool.takes:\n",
        "        if False:\n",
        BRIDGE + "test_arguments_when_wrong_then_invalid_args_that_name_the_place"),
    Mutant("what a device says in words stands in no summary", "hwtool/results.py",
        '        return f"text of {register.size_bytes} bytes"\n',
        "        return repr(as_text(slot_of(register, {}), raw))\n",
        "tests/hwtool/test_device_text.py::test_text_when_a_device_says_it_then_marked_and_in_no_summary_and_no_message"),
    Mutant("an accepted rollback holds every device that the store knows", "store/hwtool_store/rollback.py",
        '        operations.put_hold(conn, locus, "rollback", why, start.wall_ns, note)\n',
        "        pass\n",
        CARE + "test_rollback_when_a_person_accepts_it_then_it_starts_with_everything_held"),
    Mutant("an accepted rollback holds every device of the board", "hwtool/engine.py",
        "            for locus, body in bodies.items() if why is not None else ():\n",
        "            for locus, body in ():\n",
        "tests/hwtool/test_rollback.py::"
        "test_start_when_an_older_store_was_accepted_then_unknown_devices_are_held_too_and_only_once"),
    Mutant("no epoch of what is lost comes again", "store/hwtool_store/rollback.py",
        "    epoch = max(last, 0 if mark is None else mark.epoch) + 1\n",
        "    epoch = last + 1\n",
        CARE + "test_rollback_when_the_lost_life_had_begun_later_epochs_then_none_of_them_comes_again"),
    Mutant("a backup takes the place of no file", "store/hwtool_store/backup.py",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC",
        "os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC",
        CARE + "test_backup_when_the_file_exists_or_cannot_be_made_then_refused_and_nothing_is_left"),
    Mutant("jobs are done between two steps of a backup", "store/hwtool_store/writer.py",
        "            batch = self._waiting(MAX_BATCH)\n            if batch:\n                self._perform(batch)\n",
        "",
        CARE + "test_backup_when_it_takes_steps_then_jobs_are_done_between_them"),
    Mutant("a damaged anchor is refused in a sentence", "store/hwtool_store/anchor.py",
        "        if max(epoch, seq) > MOST:\n",
        "        if False:\n",
        CARE + "test_rollback_when_the_anchor_is_damaged_then_a_person_may_accept_the_store_all_the_same"),
    Mutant("whether the device restarted is asked again after the rules have looked", "hwtool/recovery.py",
        "    return decide(row, now, restart_of(row, await boot_evidence(daemon, device)), kept)\n",
        "    return decide(row, now, 'same', kept)\n",
        RECONCILED + "test_restart_when_it_comes_between_the_rules_two_looks_then_it_is_not_taken_for_undone"),
    Mutant("a page is looked at when its write cycle is over", "hwtool/recovery.py",
        '    await daemon.clock.sleep(facts(row).get("rest_ms", 0) / 1000)',
        "    await daemon.clock.sleep(0)",
        RECONCILED + "test_page_when_its_write_cycle_may_still_run_then_the_rules_wait_for_it"),
    Mutant("what a write-only register set off is not superseded by a restart", "hwtool/reconciliation.py",
        "all(t.observe is not None and not t.write_only for t in targets)",
        "all(t.observe is not None for t in targets)",
        RECONCILED + "test_write_only_register_when_the_device_restarted_then_a_person_and_not_superseded"),
    Mutant("a bit that was not to be burnt is nobody's part", "hwtool/reconciliation.py",
        "    return (n ^ p) & ~(target.wanted ^ p) == 0\n",
        "    return True\n",
        RECONCILED + "test_write_when_it_can_be_done_in_part_then_partial_whatever_restarted"),
    Mutant("a chunk is on record before the next is taken", "hwtool/dispatch.py",
        "        why = await between(so_far.answers) if number else None\n",
        "        why = None\n",
        BURSTS + "test_chunk_when_the_next_is_taken_then_the_one_before_is_on_record"),
    Mutant("a safe state ends a burst between two chunks", "hwtool/carry_out.py",
        '        if overtaken():\n            return "a safe',
        '        if False:\n            return "a safe',
        BURSTS + "test_burst_when_a_safe_state_comes_between_two_chunks_then_no_more_is_taken"),
    Mutant("a burst that stops answers what it has taken", "hwtool/carry_out.py",
        "        if not whole and not prepared.plan.chunks:\n",
        "        if not whole:\n",
        BURSTS + "test_burst_when_a_safe_state_comes_between_two_chunks_then_no_more_is_taken"),
    Mutant("what is on record is not counted as lost", "hwtool/reconciliation.py",
        "        gone = taken - kept\n",
        "        gone = taken\n",
        BURSTS + "test_reply_when_lost_in_the_second_chunk_then_the_first_is_answered_and_the_loss_is_the_chunk"),
    Mutant("a flag that stood already shows no restart", "hwtool/restarts.py",
        '    if before.split(":")[1] == "1":\n',
        "    if False:\n",
        RESTARTS + "test_words_when_compared_then_as_the_table"),
    Mutant("an uptime that a restart could have hidden in says nothing", "hwtool/restarts.py",
        "    if went_on is began_anew:\n",
        "    if not went_on and not began_anew:\n",
        RESTARTS + "test_words_when_compared_then_as_the_table"),
    Mutant("a chip's own register tells of its restart inside a watch", "hwtool/carry_out.py",
        "restart_between(prepared.boot, await device.testify())",
        "restart_between(prepared.boot, await device.worker.boot_evidence(device.spec.address))",
        RESTARTS + "test_write_when_the_chips_register_tells_of_a_restart_in_the_watch_then_not_called_undone"),
    Mutant("no new operation while the log grows without end", "store/hwtool_store/database.py",
        "return self._space.low() or self._log.too_long()",
        "return self._space.low()",
        "tests/store/test_log.py::test_log_when_something_reads_without_end_then_no_new_operation_until_it_ends_and_short_again"),
    Mutant("the kernel repeats nothing on an i2c bus", "registers/hwtool_registers/buses/i2c.py",
        "            fcntl.ioctl(node, I2C_RETRIES, 0)\n",
        "",
        I2C + "test_open_when_done_then_locked_nothing_repeats_and_nothing_is_sent"),
    Mutant("an address that a kernel driver owns is left alone", "registers/hwtool_registers/buses/i2c.py",
        "        if owner is not None:\n",
        "        if False:\n",
        I2C + "test_address_when_a_kernel_driver_owns_it_then_refused_with_its_name"),
    Mutant("a NACK behind a repeated start proves nothing", "registers/hwtool_registers/buses/i2c_proof.py",
        "if number in adapter.absent and not may_have_executed:",
        "if number in adapter.absent:",
        I2C + "test_error_when_the_kernel_tells_one_then_what_the_proof_table_says_and_never_sent_again"),
    Mutant("a wrong packet error code is no value", "registers/hwtool_registers/buses/i2c_messages.py",
        "        if told != wanted:\n",
        "        if False:\n",
        I2C + "test_pec_when_it_fits_or_not_then_the_value_or_a_doubt"),
    Mutant("what did not come of a block is not made up", "registers/hwtool_registers/buses/i2c.py",
        "block[1 : block[0] + 1]",
        "block[1 : size + 1]",
        I2C + "test_block_when_fewer_bytes_came_than_were_asked_for_then_no_value"),
    Mutant("pyftdi sends a message once", "registers/hwtool_registers/buses/ftdi_i2c.py",
        "        made.set_retry_count(1)  # the number of attempts\n",
        "",
        FTDI + "test_nack_when_it_comes_then_it_proves_what_the_byte_says_and_nothing_is_repeated"),
    Mutant("a byte that was not acknowledged proves nothing", "registers/hwtool_registers/buses/ftdi_i2c.py",
        "    if nack.first or (nack.second and not may_have_executed):\n",
        "    if True:\n",
        FTDI + "test_write_when_a_byte_is_not_acknowledged_then_sent_once_and_in_doubt"),
    Mutant("a command behind which nobody answers may be executed", "registers/hwtool_registers/buses/ftdi_i2c.py",
        "(nack.second and not may_have_executed)",
        "nack.second",
        FTDI + "test_nack_when_it_comes_then_it_proves_what_the_byte_says_and_nothing_is_repeated"),
    Mutant("a chip left in the middle of a bit is freed before a START", "registers/hwtool_registers/buses/ftdi_i2c.py",
        "        _freed(controller.ftdi, 1 / (2 * self.max_hz))\n",
        "",
        FTDI + "test_bus_when_a_chip_was_left_in_the_middle_of_a_bit_then_freed_when_it_is_opened"),
    Mutant("an interface is claimed before anything is said to it", "registers/hwtool_registers/buses/ftdi_claim.py",
        "        usb.util.claim_interface(device, number)\n",
        "",
        FTDI + "test_interface_when_it_cannot_be_claimed_then_nothing_was_said_to_it"),
    Mutant("an interface goes back to its kernel driver", "registers/hwtool_registers/buses/ftdi_claim.py",
        "not self.took or self._attached()",
        "True",
        FTDI + "test_interface_when_taken_then_it_alone_and_given_back_when_closed_hc045"),
    Mutant("a process that dies leaves a note of what it took", "registers/hwtool_registers/buses/ftdi_claim.py",
        "            _write_note(note, url)\n",
        "",
        FTDI + "test_interface_when_its_process_died_then_the_next_one_gives_it_back_hc045"),
    Mutant("a driver that was not there is not bound", "registers/hwtool_registers/buses/ftdi_claim.py",
        "note is not None and _read_note(note) == url",
        "True",
        FTDI + "test_interface_when_no_driver_had_it_then_none_is_bound"),
    Mutant("an adapter that may not be opened is not called absent", "registers/hwtool_registers/buses/ftdi_claim.py",
        "    if closed:\n",
        "    if False:\n",
        FTDI + "test_interface_when_it_cannot_be_had_then_an_error_of_its_own_and_nothing_was_said_hc045"),
    Mutant("a time-out below the adapter's latency is refused", "hwtool/board_buses.py",
        "    if kind in OVER_USB and response_ms < latency_ms:\n",
        "    if False:\n",
        "tests/hwtool/test_config.py"),
    Mutant("an adapter is named by its serial number alone", "registers/hwtool_registers/buses/ftdi_url.py",
        "    if _is_index(serial):\n",
        "    if False:\n",
        FTDI + "test_url_when_read_then_an_interface_by_its_serial_number_or_refused"),
    Mutant("an engine in doubt is set up anew", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "            self._doubted(error)\n            return Ambiguous(",
        "            return Ambiguous(",
        FTDI + "test_spi_when_less_comes_back_than_was_clocked_then_in_doubt_and_none_of_it_is_the_next_ones"),
    Mutant("an adapter that is gone is let go", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "        if error is not None and _is_gone(error):\n            self.close()\n",
        "",
        GONE + "[ftdi-i2c-vanished before-read]"),
    Mutant("no serial port drives against who holds a wire down", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "            if number == errno.ENXIO:\n",
        "            if False:\n",
        FTDI + "test_bus_when_sda_is_held_down_for_good_then_absent_and_said"),
    Mutant("an adapter in doubt is kept", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "        if error is not None and _is_gone(error):\n",
        "        if True:\n",
        FTDI + "test_adapter_when_in_doubt_then_kept_and_set_up_anew_for_the_next_transfer"),
    Mutant("what is left of an answer is none to the next", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "    if len(came) != 3 or came[:2] != bytes([REFUSED, NO_COMMAND]):\n",
        "    if len(came) != 3:\n",
        FTDI + "test_answer_when_an_earlier_one_is_left_in_the_adapter_then_nothing_is_sent_and_none_of_it_is_taken"),
    Mutant("wires that are held down acknowledge nothing", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "        if held:\n            self._doubted()\n            return Rejected(",
        "        if False:\n            return Rejected(",
        FTDI + "test_wire_when_it_is_held_down_before_a_start_then_not_sent_and_nothing_passes_for_an_acknowledge"),
    Mutant("a transfer that was not stopped is in doubt", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "        if held:\n            self._doubted()\n            return Ambiguous(",
        "        if False:\n            return Ambiguous(",
        FTDI + "test_write_when_its_stop_did_not_happen_then_in_doubt"),
    Mutant("a NACK proves nothing while a chip holds the clock", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "held = self._master.held(look(self._controller.ftdi))\n        except OSError as error:\n"
        "            self._doubted(error)\n            return Ambiguous(",
        "held = \"\" if isinstance(answer, Rejected) else self._master.held(look(self._controller.ftdi))\n"
        "        except OSError as error:\n            self._doubted(error)\n            return Ambiguous(",
        FTDI + "test_nack_when_a_chip_holds_the_clock_then_it_proves_nothing"),
    Mutant("a transfer is over when it is called done", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "held = self._master.held(look(self._controller.ftdi))\n        except OSError as error:\n"
        "            self._doubted(error)\n            return Ambiguous(",
        "held = \"\"\n        except OSError as error:\n"
        "            self._doubted(error)\n            return Ambiguous(",
        FTDI + "test_spi_when_less_comes_back_than_was_clocked_then_in_doubt_and_none_of_it_is_the_next_ones"),
    Mutant("a driver that another has detached is not bound", "registers/hwtool_registers/buses/ftdi_claim.py",
        "            device.detach_kernel_driver(number)\n            claim.took = True\n",
        "            claim.took = True\n            device.detach_kernel_driver(number)\n",
        FTDI + "test_driver_when_another_program_detached_it_meanwhile_then_not_bound_under_its_feet"),
    Mutant("what sysfs has told is not asked", "registers/hwtool_registers/buses/ftdi_claim.py",
        "_asked(device) if serial is None else serial",
        "_asked(device)",
        FTDI + "test_adapter_when_its_twin_may_not_be_opened_then_neither_is_taken"),
    Mutant("two adapters of one serial number are none", "registers/hwtool_registers/buses/ftdi_claim.py",
        "    if len(found) > 1:\n",
        "    if False:\n",
        FTDI + "test_adapter_when_two_have_a_serial_number_then_neither_is_taken"),
    Mutant("an engine that answers nothing is not set up", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "            look(controller.ftdi)  # it has an engine; pyftdi's own check of that never fails\n",
        "",
        FTDI + "test_open_when_the_engine_cannot_be_set_up_then_given_back"),
    Mutant("an answer is awaited for response_ms", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "math.ceil(settings.response_ms / settings.latency_ms) + 1",
        "4",
        FTDI + "test_answer_when_it_takes_longer_than_four_packets_then_awaited_for_the_response_time"),
    Mutant("no clock is above max_hz", "registers/hwtool_registers/buses/ftdi_adapter.py",
        "math.ceil(clock_hz / min(hz, clock_hz))",
        "round(clock_hz / min(hz, clock_hz))",
        FTDI + "test_clock_when_the_engine_cannot_make_it_then_the_next_lower_one"),
    Mutant("nothing is sampled at the wrong edge", "registers/hwtool_registers/buses/ftdi_spi.py",
        "        if exchange.duplex and chip.mode & 1:\n",
        "        if False:\n",
        FTDI + "test_spi_when_a_message_is_duplex_then_its_answer_begins_with_it_where_the_mode_allows"),
    Mutant("what was clocked in part is no answer", "registers/hwtool_registers/buses/ftdi_spi.py",
        "        if len(came) != exchange.clocked_bytes:\n",
        "        if False:\n",
        MET + "[ftdi-spi-fragment-read]"),
    Mutant("a read on SPI has its mark, and nothing else has", "registers/hwtool_registers/plan.py",
        "        return address, offset & ~spi.marks | marks\n",
        "        return address, offset | marks\n",
        "tests/sim/test_spi.py"),
    Mutant("a clock is the lower of the chip's and the wiring's", "hwtool/buses.py",
        "min(limits, default=DEFAULT_MAX_HZ)",
        "max(limits, default=DEFAULT_MAX_HZ)",
        "tests/hwtool/test_spi_board.py"),
    Mutant("a mode that the board says stands for all", "hwtool/buses.py",
        "facts.mode if spec.mode is None else spec.mode",
        "facts.mode",
        "tests/hwtool/test_spi_board.py"),
    Mutant("what a daemon that died had taken is given back at start", "hwtool/server.py",
        "        for told in give_back(board, store_directory):",
        "        for told in ():",
        "tests/surface/test_starting.py::test_start_when_a_daemon_that_died_had_taken_an_interface_that_the_board_has_not_"
        "then_given_back_or_said"),
    Mutant("a chip select of another program is left alone", "registers/hwtool_registers/buses/spi.py",
        "                fcntl.flock(port.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "                pass\n",
        "tests/registers/test_spi.py::test_node_when_another_program_has_locked_it_then_busy"),
    Mutant("a chip select that vanished is closed", "registers/hwtool_registers/buses/spi.py",
        "        if number == errno.ESHUTDOWN or not _is_there(node, port):\n",
        "        if False:\n",
        GONE + "[spi-vanished before-read]"),
    Mutant("a chip select is told vanished by what the kernel says too", "registers/hwtool_registers/buses/spi.py",
        "number == errno.ESHUTDOWN or ",
        "",
        "tests/registers/test_spi.py::test_error_when_the_kernel_tells_it_then_it_proves_nothing_and_is_not_repeated"),
    Mutant("a mode that another program has left is not kept", "registers/hwtool_registers/buses/spi.py",
        "                setattr(port, way, False)\n",
        "                pass\n",
        "tests/registers/test_spi.py::test_open_when_another_program_left_bits_of_its_own_then_the_mode_is_the_contracts"),
    Mutant("a note stays as long as its driver is not back", "registers/hwtool_registers/buses/ftdi_claim.py",
        "        if done and self.note is not None:\n",
        "        if self.note is not None:\n",
        FTDI + "test_interface_when_a_process_that_runs_has_it_then_left_to_it_with_its_note"),
    Mutant("a USB node is granted by its serial number", "hwtool/host/rules.py",
        ', ATTR{{serial}}=="{_plain(bus.url.serial)}"',
        "",
        RULES + "test_rules_when_a_bus_has_a_node_then_two_lines_with_one_action_each"),
    Mutant("a name in a rule matches itself", "hwtool/host/rules.py",
        'return "".join(SPECIAL.get(character, character) for character in text)',
        "return text",
        RULES + "test_rules_when_a_bus_has_a_node_then_two_lines_with_one_action_each"),
    Mutant("what cannot stand in a rule is in none", "hwtool/host/rules.py",
        "    if UNSAYABLE.search(text):\n",
        "    if False:\n",
        RULES + "test_rules_when_no_rule_can_find_a_node_then_said"),
    Mutant("a service sees no homes", "hwtool/host/units.py",
        "    if any(plain.is_relative_to(unseen) for unseen in UNSEEN):\n",
        "    if False:\n",
        UNITS + "test_units_when_the_service_could_not_reach_a_file_then_said"),
    Mutant("a service reaches the nodes of its own buses", "hwtool/host/units.py",
        "CLASSES.get(bus.kind, ())",
        "sum(CLASSES.values(), ())",
        UNITS + "test_service_when_made_for_a_bus_then_it_may_reach_the_nodes_of_that_and_no_others"),
    Mutant("members of a node's group are looked at", "hwtool/doctor/host.py",
        "        if mode >> 3 & READ_OR_WRITE:\n            group",
        "        if False:\n            group",
        "tests/host/test_doctor.py"),
    Mutant("an access list counts as far as its mask lets it", "hwtool/doctor/host.py",
        "allowed & mask & READ_OR_WRITE",
        "allowed & READ_OR_WRITE",
        "tests/host/test_doctor.py::test_access_list_when_packed_by_the_kernel_then_users_and_groups_by_name"),
    Mutant("who is both agent and operator is found", "hwtool/doctor/places.py",
        "        if both:\n",
        "        if False:\n",
        "tests/host/test_doctor.py"),
    Mutant("no sign of life while the store does not answer", "hwtool/service_manager.py",
        "        await alive()\n",
        "",
        "tests/surface/test_service_manager.py::test_signs_of_life_when_what_must_answer_does_not_then_none_are_given"),
    Mutant("a bus is not named by a number that may change", "hwtool/board_buses.py",
        "    if path is not None and kind in KEYS_OF[\"path\"] and UNSTABLE.fullmatch(path):\n",
        "    if False:\n",
        "tests/hwtool/test_config.py"),
    Mutant("a reply to an earlier request is known by its number", "registers/hwtool_registers/buses/modbus_tcp.py",
        "                if number != self._number:\n",
        "                if False:\n",
        TCP + "test_reply_when_it_comes_with_the_next_ones_then_it_is_dropped_by_its_number"),
    Mutant("a connection is looked at before an effect is sent on it", "registers/hwtool_registers/buses/modbus_tcp.py",
        "        if self._line is not None and not self.alive():\n",
        "        if False:\n",
        TCP + "test_connection_when_the_other_side_closed_it_in_between_then_noticed_before_an_effect_is_sent"),
    Mutant("no merged read is longer than the bus can read", "hwtool/devices.py",
        "min(MOST_MERGED_BYTES, self.worker.longest_read_bytes)",
        "MOST_MERGED_BYTES",
        "tests/hwtool/test_coalescing.py"),
    Mutant("an uptime that may have wrapped says nothing", "hwtool/restarts.py",
        "    if then.ms + passed_ms + loose_ms >= then.wrap_ms:\n",
        "    if False:\n",
        RESTARTS + "test_words_when_compared_then_as_the_table"),
    Mutant("a burst does not go on over a restart", "hwtool/carry_out.py",
        "        if await _restarted(prepared):\n            return",
        "        if False:\n            return",
        BURSTS + "test_burst_when_the_device_restarts_between_two_chunks_then_no_more_is_taken"),
    Mutant("what is on record as taken is not settled as not taken", "hwtool/operators.py",
        "        if kept and params.verdict in NOTHING_TAKEN:\n",
        "        if False:\n",
        BURSTS + "test_settle_when_a_chunk_is_on_record_then_not_as_if_nothing_were_taken"),
    Mutant("another chip's register tells nothing of a restart", "hwtool/generation.py",
        "        await check_identity(device)  # another chip",
        "        # another chip",
        RESTARTS + "test_rule_when_another_chip_was_put_there_then_its_register_settles_nothing"),
    Mutant("a connection that was hung up is opened before anything is looked at", "hwtool/worker.py",
        "            self._absent = None if await self._alive(self._hears) else",
        "            self._absent = None if True else",
        "tests/hwtool/test_hung_up.py"),
    Mutant("a level that a restart would leave proves nothing", "hwtool/reconciliation.py",
        '    if restart == "silent" and left == rule.level_reset:\n',
        "    if False:\n",
        "tests/hwtool/test_outcome.py"),
    Mutant("what must happen once does not go where it may be sent again", "hwtool/admission.py",
        "    check_repeating(request)\n",
        "",
        "tests/hwtool/test_repeating_bus.py"),
    Mutant("a line with somebody else's settings is not written to", "registers/hwtool_registers/buses/modbus.py",
        "            if termios.tcgetattr(node) != self._line:\n",
        "            if False:\n",
        MODBUS + "test_line_when_another_program_changed_its_settings_then_nothing_is_sent_and_it_is_opened_anew"),
    Mutant("a probe is on record before it is sent", "hwtool/probing.py",
        "        await daemon.ask(lambda conn: operations.note(conn, begun))\n",
        "",
        "tests/hwtool/test_probing.py"),
    Mutant("what the board knows is not probed", "hwtool/probing.py",
        "stable_path == path and params.address in device.spec.addresses:\n",
        "stable_path == path and params.address == device.spec.address:\n",
        "tests/hwtool/test_probing.py"),
    Mutant("what may be probed is asked again once the bus is free", "hwtool/probing.py",
        "        _check(daemon, worker, params)  # it may have waited",
        "        # it may have waited",
        "tests/hwtool/test_probing.py"),
    Mutant("a refusal by a bus that may repeat proves nothing", "hwtool/worker.py",
        "        if not self.may_repeat or",
        "        if True or",
        "tests/hwtool/test_repeating_bus.py"),
    Mutant("a model is no real part", "contracts/hwtool_contracts/model.py",
        "        return self.verified is not None and not self.verified.startswith(A_MODEL)\n",
        "        return self.verified is not None\n",
        "tests/hwtool/test_modes.py::test_unverified_when_the_board_demands_a_real_part_then_effects_are_refused"),
    Mutant("a level that does not fit what is on record does not tell", "hwtool/reconciliation.py",
        "    if taken == kept == 0:\n",
        "    if taken == 0:\n",
        "tests/hwtool/test_outcome.py"),
    Mutant("a line that hears itself must hear the request", "registers/hwtool_registers/buses/modbus.py",
        "        if heard != request:\n",
        "        if False:\n",
        MODBUS + "test_line_when_its_adapter_hears_itself_then_the_echo_must_be_the_request"),
    Mutant("a device merges what function 22 takes, and nothing else", "contracts/hwtool_contracts/judge_write.py",
        "    if not offered or not unlimited or register.width_bits != 16:\n",
        "    if not offered:\n",
        MERGING + "test_update_when_function_22_does_not_fit_then_read_and_written_back"),
    Mutant("what a device merges, it is told to keep", "registers/hwtool_registers/plan.py",
        "    masks = to_bytes(register, kept) + to_bytes(register, value & ~kept)\n",
        "    masks = to_bytes(register, 0) + to_bytes(register, value)\n",
        MERGING + "test_request_when_hardware_moves_a_neighbour_in_between_then_it_stays_moved"),
    Mutant("an object is the one that was asked for", "registers/hwtool_registers/buses/modbus_pdu.py",
        "    if (pdu[:3], pdu[6:OBJECT_AT]) != wanted:\n",
        "    if False:\n",
        MODBUS + "test_answer_when_a_frame_came_then_confirmed_only_if_it_fits"),
    Mutant("an object is read by itself", "hwtool/devices.py",
        " or register.space.whole:\n",
        ":\n",
        "tests/hwtool/test_objects.py::test_object_when_read_then_its_text_and_a_transfer_for_each"),
    Mutant("a clean read goes through its channel", "hwtool/devices.py",
        "        kept = await self.reach()\n",
        "        kept = None\n",
        MUX + "test_read_when_two_have_one_address_then_each_on_its_channel"),
    Mutant("without its channel nobody is read", "hwtool/devices.py",
        "        if kept is not None:\n            raise self.read_failed(kept",
        "        if False:\n            raise self.read_failed(kept",
        MUX + "test_read_when_the_channel_cannot_be_switched_on_then_nobody_else_is_read"),
    Mutant("a dispatch goes through its channel", "hwtool/devices.py",
        "        if self.way is None:\n            return plan\n",
        "        if self is not None:\n            return plan\n",
        MUX + "test_write_when_planned_then_the_plan_shows_the_channel_and_it_is_what_is_sent"),
    Mutant("each chunk goes through the channel", "hwtool/devices.py",
        "for part in plan.parts for step in (self.way, *part))",
        "for part in [plan.steps] for step in (self.way, *part))",
        MUX + "test_burst_when_in_chunks_then_each_has_the_channel_before_it"),
    Mutant("rules look through the channel", "hwtool/recovery.py",
        "            kept = await device.reach()\n",
        "            kept = None\n",
        MUX + "test_unknown_when_the_rules_look_then_through_the_channel"),
    Mutant("without its channel nothing is set back at somebody else's", "hwtool/dispatch.py",
        "                if step is not device.way:",
        "                if True:",
        MUX + "test_bank_when_the_channel_cannot_be_switched_on_then_no_selector_is_set_back_at_somebody_elses"),
    Mutant("nobody writes what switches channels", "hwtool/admission.py",
        "        if facts.register in {r.name for r in touch.device.reached(touch.register)}:\n",
        "        if False:\n            name = ''\n",
        MUX + "test_switch_when_devices_sit_behind_it_then_nobody_writes_it"),
    Mutant("a hold of a multiplexer holds what is behind it", "hwtool/devices.py",
        "        return None if self.mux is None else self.mux.held()\n",
        "        return None\n",
        MUX + "test_hold_when_the_multiplexer_is_held_then_those_behind_it_are"),
    Mutant("what may be on at once has different addresses", "hwtool/config.py",
        "            if set(other.addresses) & set(device.addresses):\n",
        "            if False:\n",
        MUX + "test_board_when_a_device_cannot_sit_there_then_a_fault"),
    Mutant("a multiplexer is identified before an effect behind it", "hwtool/prepare.py",
        "    if device.mux is not None:  # it is written before each access\n",
        "    if False:\n",
        MUX + "test_multiplexer_when_it_is_another_chip_then_it_is_not_written"),
    Mutant("a multiplexer is identified before a read behind it", "hwtool/reading.py",
        "    if device.mux is not None:  # it is written for this\n",
        "    if False:\n",
        MUX + "test_multiplexer_when_it_is_another_chip_then_it_is_not_written"),
    Mutant("a channel opens a bus that is back", "hwtool/devices.py",
        "        await self.worker.present()\n",
        "",
        MUX + "test_read_when_the_bus_is_back_then_it_is_opened_though_a_channel_comes_first"),
    Mutant("a safe state asks for its channel once more", "hwtool/dispatch.py",
        "        if _lost_its_way(device, part, came):\n",
        "        if False:\n",
        MUX + "test_safe_state_when_its_channel_is_not_switched_on_at_first_then_once_more"),
    Mutant("what a multiplexer's switch holds settles nothing", "hwtool/recovery.py",
        "        if device.switches and ",
        "        if False and ",
        MUX + "test_unknown_of_the_switch_when_devices_sit_behind_it_now_then_what_it_holds_tells_nothing"),
    Mutant("a multiplexer's contract is verified with the device's", "hwtool/admission.py",
        "    for device in (*devices, *muxes) if",
        "    for device in devices if",
        MUX + "test_effect_when_the_multiplexers_contract_was_checked_on_no_part_then_refused_as_the_board_demands"),
    Mutant("limits go by the scale that the device keeps", "hwtool/permission.py",
        "                continue  # the device keeps what is there\n",
        "                pass\n",
        MERGING + "test_limit_when_the_scale_stands_in_bits_that_the_device_keeps_then_by_what_is_there"),
    Mutant("a device merges only what it may read", "contracts/hwtool_contracts/judge_write.py",
        "    return isinstance(judged, ReadJudgement) and judged.clean\n\n\ndef _touching_nothing_else",
        "    return judged is not None\n\n\ndef _touching_nothing_else",
        MERGING + "test_update_when_reading_the_register_does_something_then_the_device_is_not_asked_to_merge"),
    Mutant("what nothing shows on a bus that acknowledges nothing is in doubt", "hwtool/carry_out.py",
        """    if how == "sent" and verdict.verdict == "applied" and not confirmed and _shows_nothing(prepared):\n""",
        "    if False:\n",
        "tests/hwtool/test_unacknowledged.py"),
    Mutant("a block of another length is no value", "registers/hwtool_registers/buses/i2c.py",
        "        if len(data) > size or (len(data) < size and not transfer.shorter):\n",
        "        if False:\n",
        "tests/registers/test_i2c.py::test_block_of_smbus_when_it_has_another_length_then_no_value"),
    Mutant("only a text may be shorter than its block", "registers/hwtool_registers/plan.py",
        "    shorter = register.space is Space.BLOCK and register.quantity.encoding is Encoding.TEXT\n",
        "    shorter = register.space is Space.BLOCK\n",
        "tests/hwtool/test_blocks.py::test_block_when_read_then_its_text_or_its_bytes_from_the_first_on"),
    Mutant("a block that the adapter cannot carry is not sent", "registers/hwtool_registers/buses/i2c.py",
        """        self._need(bus, I2cFunc.SMBUS_READ_BLOCK_DATA, "block read")\n""",
        "        pass\n",
        "tests/registers/test_i2c.py::test_block_of_smbus_when_the_adapter_has_none_then_not_sent"),
    Mutant("selected and read at once only where function 23 reads", "registers/hwtool_registers/plan.py",
        "    if not writes or not isinstance(read, RegisterRead) or read.function != READ_FUNCTIONS[Space.HOLDING]:\n",
        "    if not writes or not isinstance(read, RegisterRead):\n",
        "tests/hwtool/test_selected_at_once.py::test_inputs_in_a_bank_when_read_then_selected_before"),
    Mutant("one request writes words in a row", "registers/hwtool_registers/plan.py",
        "    if apart or any(",
        "    if any(",
        "tests/hwtool/test_selected_at_once.py::test_selectors_when_they_are_several_then_at_once_if_in_a_row"),
    Mutant("what a lost request selected is not known", "hwtool/devices.py",
        "            else:\n                self.known.pop(selector, None)\n",
        "",
        "tests/hwtool/test_selected_at_once.py::test_bank_when_the_request_was_answered_then_what_it_selected_is_known"),
    Mutant("a simulated device writes nothing where it cannot read", "sim/hwtool_sim/spaces.py",
        "    trial.read(transfer.space, transfer.offset, transfer.size_bytes)\n",
        "",
        "tests/hwtool/test_selected_at_once.py::test_simulated_chip_when_the_read_cannot_be_then_nothing_is_written"),
    Mutant("a frame is sent once (RTU)", "registers/hwtool_registers/buses/modbus.py",
        "            self._send(node, request)\n",
        "            self._send(node, request)\n            self._send(node, request)\n",
        MET + "[modbus-rtu-silent-write]"),
    Mutant("a request is sent once (TCP)", "registers/hwtool_registers/buses/modbus_tcp.py",
        "            line.sendall(request)\n",
        "            line.sendall(request + request)\n",
        MET + "[modbus-tcp-silent-write]"),
    Mutant("what came before a request is no part of its reply", "registers/hwtool_registers/buses/modbus.py",
        "            termios.tcflush(node, termios.TCIFLUSH)\n",
        "",
        NEXT + "[modbus-rtu-twice-read]"),
    Mutant("draining leaves nothing on a serial line", "registers/hwtool_registers/buses/modbus.py",
        "                silent = any(not self._came(",
        "                silent = True or any(not self._came(",
        NEXT + "[modbus-rtu-late-read]"),
    Mutant("draining leaves nothing in a connection", "registers/hwtool_registers/buses/modbus_tcp.py",
        "        self.alive()\n        self.open()\n",
        "        self.open()\n",
        NEXT + "[modbus-tcp-late-read]"),
    Mutant("a frame with a wrong CRC is no reply", "registers/hwtool_registers/buses/modbus.py",
        "    if crc16(frame):  # over the whole of a right frame it comes to zero\n",
        "    if False:\n",
        MET + "[modbus-rtu-corrupted-read]"),
    Mutant("the reply of another unit is no reply (RTU)", "registers/hwtool_registers/buses/modbus.py",
        "    if frame[0] != transfer.address:\n",
        "    if False:\n",
        MET + "[modbus-rtu-foreign-read]"),
    Mutant("the reply of another unit is no reply (TCP)", "registers/hwtool_registers/buses/modbus_tcp.py",
        "                if unit != transfer.address:\n",
        "                if False:\n",
        MET + "[modbus-tcp-foreign-read]"),
    Mutant("the reply of another function is no reply", "registers/hwtool_registers/buses/modbus_pdu.py",
        "    if pdu[0] & 0x7F != function:\n",
        "    if False:\n",
        MET + "[modbus-rtu-unasked-read]"),
    Mutant("a reply of another length is no reply", "registers/hwtool_registers/buses/modbus_pdu.py",
        "            if pdu[1] != len(data) or len(data) != transfer.size_bytes:\n",
        "            if False:\n",
        MET + "[modbus-tcp-misfit-read]"),
    Mutant("another protocol is out of step", "registers/hwtool_registers/buses/modbus_tcp.py",
        "        if protocol != 0 or not 3 <=",
        "        if not 3 <=",
        MET + "[modbus-tcp-corrupted-read]"),
    Mutant("a port that vanished is closed", "registers/hwtool_registers/buses/modbus.py",
        "            self.close()\n            return Ambiguous(Sent.REPLY, f\"reading failed",
        "            return Ambiguous(Sent.REPLY, f\"reading failed",
        GONE + "[modbus-rtu-vanished during-write]"),
    Mutant("a connection that was closed is closed here too", "registers/hwtool_registers/buses/modbus_tcp.py",
        "        if line is not None:\n            line.close()\n",
        "        self.given_up = line\n",
        GONE + "[modbus-tcp-vanished during-write]"),
    Mutant("an adapter that vanished is closed", "registers/hwtool_registers/buses/i2c.py",
        "            self.close()  # or the one that comes back would never be opened\n",
        "",
        GONE + "[i2c-vanished during-write]"),
    Mutant("a block that came short is no value", "registers/hwtool_registers/buses/i2c.py",
        "                if len(data) != size:\n",
        "                if False:\n",
        MET + "[smbus-fragment-read]"),
    Mutant("an errno proves nothing of an adapter that is not listed", "registers/hwtool_registers/buses/i2c_proof.py",
        "    return next((a for a in ADAPTERS if a.name in name), UNLISTED)\n",
        "    return next((a for a in ADAPTERS if a.name in name), ADAPTERS[0])\n",
        MET + "[smbus-absent-read]"),
    Mutant("a request of the simulated bus reaches its chips once", "sim/hwtool_sim/bus.py",
        "        taken = self.take(transfer)\n        hangs",
        "        self.take(transfer)\n        taken = self.take(transfer)\n        hangs",
        MET + "[sim-silent-write]"),
    Mutant("a simulator's process that went away is hung up on", "sim/hwtool_sim/remote.py",
        "            self._hang_up()\n            return Ambiguous(Sent.REPLY, f\"the simulator went away",
        "            return Ambiguous(Sent.REPLY, f\"the simulator went away",
        GONE + "[sim process-vanished before-write]"),
    Mutant("no rule looks through a multiplexer that is held", "hwtool/recovery.py",
        "    if device.mux is not None and (held := device.mux.held()) is not None:\n",
        "    if False:\n",
        "tests/hwtool/test_mux.py::test_rules_when_a_person_holds_the_multiplexer_then_nothing_is_sent_for_them"),
    Mutant("a part that nothing acknowledged is in doubt", "hwtool/carry_out.py",
        """            if sent.done and prepared.resolved.kind != "read" and _shows_nothing(prepared):\n""",
        "            if False:\n",
        "tests/hwtool/test_unacknowledged.py"),
    Mutant("an entry that nothing acknowledged is in doubt", "hwtool/carry_out.py",
        """    if begun and effects == "unknown" and _shows_nothing(prepared):\n""",
        "    if False:\n",
        "tests/hwtool/test_unacknowledged.py"),
    Mutant("selected and read at once only where the contract says so", "registers/hwtool_registers/plan.py",
        "if bank.at_once else [*select, *accesses]",
        "if True else [*select, *accesses]",
        "tests/hwtool/test_selected_at_once.py::test_banked_read_when_the_contract_does_not_say_so_then_selected_before"),
    Mutant(
        "a FIFO that is called harmless is said",
        "contracts/hwtool_contracts/lint_reads.py",
        "read.effects == {ReadEffect.NONE} and told:",
        "read.effects == {ReadEffect.NONE} and not told:",
        MISTAKE + "[a FIFO is declared none]",
    ),
    Mutant(
        "what is burnt for good is a person's to allow",
        "contracts/hwtool_contracts/lint_writes.py",
        '    if hit is not None:\n        text = f"it says',
        '    if hit is None:\n        text = f"it says',
        MISTAKE + "[a serial number that is burnt once, and nobody is asked]",
    ),
    Mutant(
        "a verification looks at what is written",
        "contracts/hwtool_contracts/lint_writes.py",
        "and not verify.mask & written:",
        "and False:",
        MISTAKE + "[a verification whose mask has none of the bits that are written]",
    ),
    Mutant(
        "the latch comes first",
        "contracts/hwtool_contracts/lint_tables.py",
        "if name in at and at[name] < at.get(latch.name, len(at))]",
        "if name in at and at[name] < at.get(latch.name, 0)]",
        MISTAKE + "[two halves of one moment, without the one that freezes]",
    ),
    Mutant(
        "a memory is looked at after its write cycle",
        "contracts/hwtool_contracts/lint_tables.py",
        "window_ms < memory.write_cycle_ms:",
        "window_ms > memory.write_cycle_ms:",
        MISTAKE + "[a memory is looked at before its write cycle is over]",
    ),
    Mutant(
        "a register does not stand half in another",
        "contracts/hwtool_contracts/lint_places.py",
        "own.stop < theirs.stop and _both",
        "own.stop > theirs.stop and _both",
        MISTAKE + "[a register is half in another]",
    ),
    Mutant(
        "a rule of policy that is never asked is said",
        "hwtool/policy_lint.py",
        "    return pairs <= before\n",
        "    return False\n",
        MISTAKE + "[a rule that forbids, behind one that lets]",
    ),
    Mutant(
        "a sole master beside another is said",
        "hwtool/board_lint.py",
        "    if shared and bus.sole_master:\n",
        "    if False:\n",
        MISTAKE + "[a sole master beside another one]",
    ),
    Mutant(
        "a recording has no secret that was sent",
        "sim/hwtool_sim/recording.py",
        "redacted(as_object(transfer), known)",
        "as_object(transfer)",
        LEFT_OUT + "test_secret_when_planted_in_every_transfer_then_in_no_line_of_the_file[bytes]",
    ),
    Mutant(
        "a recording has no secret that was brought",
        "sim/hwtool_sim/recording.py",
        "if isinstance(answer, Confirmed) and answer.data and known.brought:",
        "if False:",
        LEFT_OUT + "test_secret_when_planted_in_every_transfer_then_in_no_line_of_the_file[units]",
    ),
    Mutant(
        "a recording has no words of the bus that may quote a secret",
        "sim/hwtool_sim/recording.py",
        'if "fault" in shown and self._reached.has_secrets:',
        "if False:",
        LEFT_OUT + "test_words_of_the_bus_when_they_quote_an_earlier_secret_then_they_are_left_out",
    ),
    Mutant(
        "what a device with secrets has at an unknown place is secret",
        "sim/hwtool_sim/reached.py",
        "        return bool(secret)\n",
        "        return False\n",
        REACHED + "[where nothing is declared]",
    ),
    Mutant(
        "a recorded bus is called once",
        "sim/hwtool_sim/recording.py",
        "            answer = self._bus.perform(transfer)\n",
        "            self._bus.perform(transfer)\n            answer = self._bus.perform(transfer)\n",
        "tests/sim/test_recording.py::test_calls_when_recorded_then_passed_on_once_with_what_they_give_or_raise",
    ),
    Mutant(
        "a recording takes no file's place",
        "sim/hwtool_sim/recording.py",
        "os.O_CREAT | os.O_EXCL |",
        "os.O_CREAT |",
        "tests/sim/test_recording.py::test_file_when_made_then_for_its_user_alone_and_never_in_place_of_another",
    ),
    Mutant(
        "a recording is its user's alone",
        "sim/hwtool_sim/recording.py",
        "os.O_CLOEXEC, 0o600)",
        "os.O_CLOEXEC, 0o644)",
        "tests/sim/test_recording.py::test_file_when_made_then_for_its_user_alone_and_never_in_place_of_another",
    ),
    Mutant(
        "trouble with a recording hides no answer of the bus",
        "sim/hwtool_sim/recording.py",
        "except Exception as error:  # noqa: BLE001  # the bus has acted",
        "except ZeroDivisionError as error:  # the bus has acted",
        "tests/sim/test_recording.py::test_disk_when_it_is_full_then_the_bus_goes_on_once_and_the_file_is_marked_as_cut_short",
    ),
    Mutant(
        "a replay repeats the answer of a clean read alone",
        "sim/hwtool_sim/replay.py",
        "last is not None and last.clean and fits(",
        "last is not None and fits(",
        "tests/sim/test_replay.py::test_replay_when_it_is_no_run_of_a_clean_read_then_strict[writes, more]",
    ),
    Mutant(
        "a replay leaves out repeats of a clean read alone",
        "sim/hwtool_sim/replay.py",
        "one.clean and other.clean and one.transfer",
        "one.transfer",
        "tests/sim/test_replay.py::test_replay_when_it_is_no_run_of_a_clean_read_then_strict[writes, fewer]",
    ),
    Mutant(
        "a replay that has diverged answers nothing more",
        "sim/hwtool_sim/replay.py",
        "        if self.divergence is None:\n            asked",
        "        if True:\n            asked",
        "tests/sim/test_replay.py::test_divergence_when_it_comes_then_the_first_is_kept_and_told_once_without_what_was_asked",
    ),
    Mutant(
        "a replay tells what nobody asked for",
        "sim/hwtool_sim/replay.py",
        "if self.divergence is None and self._after_run() < len(self._exchanges):",
        "if False:",
        "tests/sim/test_replay.py::test_replay_when_something_differs_then_told_with_its_line_and_nothing_more_is_answered",
    ),
    Mutant(
        "bytes that were left out have their length in a replay",
        "sim/hwtool_sim/redaction.py",
        " and len(text) - len(shown) == unit * length",
        "",
        "tests/sim/test_replay.py::test_redacted_when_replayed_then_its_length_counts_and_zeros_come",
    ),
    Mutant(
        "a recording without its end is not replayed",
        "sim/hwtool_sim/recorded.py",
        'raise ValueError("it has no end behind this: the recording was cut short")',
        "return recorded",
        "tests/sim/test_replay.py::test_recording_when_damaged_then_one_error_with_the_line[the end gone]",
    ),
    Mutant(
        "the checks record and replay nothing",
        "hwtool/checks/simulated.py",
        "            record=None,\n            replay=None,\n",
        "",
        "tests/hwtool/test_recordings.py::"
        "test_board_when_recorded_or_replayed_then_paths_stand_beside_it_and_checks_ignore_both",
    ),
    Mutant(
        "the pytest plugin brings nothing of hwtool with it",
        "hwtool/pytest_plugin.py",
        "import pytest\n\nif TYPE_CHECKING:",
        "import pytest\n\nimport hwtool.client\n\nif TYPE_CHECKING:",
        PLUGIN + "test_plugin_when_loaded_then_nothing_of_hwtool_comes_with_it_but_itself",
    ),
    Mutant(
        "what failed under pytest is told with its timeline",
        "hwtool/pytest_plugin.py",
        "report.when == \"call\" and report.failed:",
        "report.when == \"never\" and report.failed:",
        PLUGIN + "test_example_when_it_expects_two_executions_then_it_fails_with_the_timeline",
    ),
    Mutant(
        "a scenario that goes wrong is a test that failed",
        "hwtool/pytest_plugin.py",
        "            if finding.outcome is Outcome.FAILED:",
        "            if finding.outcome is None:",
        PLUGIN + "test_example_when_it_expects_two_executions_then_it_fails_with_the_timeline",
    ),
    Mutant(
        "chips and daemon end with the tests that started them",
        "hwtool/checks/hosted.py",
        "    threading.Thread(target=_end_with_starter, daemon=True).start()\n",
        "",
        PLUGIN + "test_processes_when_the_tests_are_killed_then_they_end_too",
    ),
    Mutant(
        "a process that did not start is said, with what it said",
        "hwtool/checks/apart.py",
        "        if not self._heard.wait(LIMIT_S) or ready not in self.said:",
        "        if not self._heard.wait(LIMIT_S):",
        PLUGIN + "test_process_when_it_does_not_start_then_what_it_said",
    ),
    Mutant(
        "a counter of what is not there is no zero",
        "hwtool/checks/apart_chips.py",
        "        if whole not in there:",
        "        if whole in there and not there:",
        PLUGIN + "test_chips_when_their_hands_are_used_then_each_does_what_it_says",
    ),
    Mutant(
        "a daemon that had heard of it was not killed during it",
        "hwtool/checks/apart_daemon.py",
        "        if heard:",
        "        if heard and not heard:",
        PLUGIN + "test_daemon_when_it_answers_before_it_is_killed_then_the_test_is_told",
    ),
    Mutant(
        "names are escaped in the page",
        "hwtool/checks/page.py",
        "    return html.escape(",
        "    return str(",
        REPORT,
    ),
    Mutant(
        "what cannot be seen in a name is spelt out in the page",
        "hwtool/checks/page.py",
        "c if c.isprintable() or c in",
        "c if True or c in",
        REPORT,
    ),
    Mutant(
        "the page lets a browser run and fetch nothing",
        "hwtool/checks/page.py",
        "POLICY: Final = \"default-src 'none'; ",
        "POLICY: Final = \"",
        REPORT,
    ),
]  # fmt: skip


# what other packages add to pytest is imported a hundred times over and used by none of these tests
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
FEW_PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_timeout")


def survives(mutant: Mutant, copy: Path) -> str | None:
    """Why a mutant is not caught, None if its test turns red."""
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    if original.count(mutant.old) != 1:
        return f"its text stands {original.count(mutant.old)} times in {mutant.file}"
    written(path, original.replace(mutant.old, mutant.new))
    try:
        code, said = tested(copy, mutant.test)
    finally:
        written(path, original)
    return None if code == 1 else f"{mutant.test} ended with {code}: {said[-300:]}"


def tested(copy: Path, test: str) -> tuple[int, str]:
    """Run a test of a copy in a fork: what other people's packages cost to import is paid once, not for each."""
    with tempfile.TemporaryFile() as told:
        process = os.fork()
        if not process:
            code = 3
            try:
                for stream in (1, 2):
                    os.dup2(told.fileno(), stream)
                code = int(_run_in(copy, test))
            except BaseException:  # noqa: BLE001  # told with the rest: the process ends here whatever it was
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(process, 0)
        told.seek(0)
        return os.waitstatus_to_exitcode(status), told.read().decode(errors="replace")


def _run_in(copy: Path, test: str) -> int:
    """As `pytest TEST` in the copy."""
    _enter(copy)
    mine = f"--basetemp={copy / 'tmp'}"  # the common one is tidied up by all at once
    return pytest.main(["-q", "-x", *FEW_PLUGINS, "--timeout=60", mine, test])


def _enter(copy: Path) -> None:
    """Import from the copy from here on: nothing of the checkout itself may be imported."""
    os.chdir(copy)
    roots = [str(copy / d) for d in ("", *SOURCES[1:5])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(roots), **BARE}
    ours = {str(TOP / d) for d in ("", *SOURCES[1:5])} | {str(TOP), ""}
    sys.path[:] = [*roots, *(p for p in sys.path if p.rstrip("/") not in ours)]
    for name in [n for n in sys.modules if n == "tests" or n.startswith("tests.")]:
        del sys.modules[name]


def _import_lower_floors(copy: Path) -> None:
    """Keep the packages below `hwtool` in this process, for mutants of `hwtool` alone: they import nothing of it."""
    _enter(copy)
    importlib.import_module("hwtool.server")
    for name in [n for n in sys.modules if n == "hwtool" or n.startswith("hwtool.")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def written(path: Path, text: str) -> None:
    """Write a source with a time of its own: compiled code is found again by whole seconds and size."""
    path.write_text(text, encoding="utf-8")
    written_s = next(SECONDS)
    os.utime(path, (written_s, written_s))


def table() -> list[str]:
    """The rows of docs/guards.md."""
    return [f"| {m.guard} | `{m.file}` | `{m.test}` |" for m in MUTANTS]


def copied(scratch: Path) -> Path:
    """A copy of the tree that may be spoilt, with what is compiled of it already."""
    for name in SOURCES:
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, scratch / name)
        else:
            shutil.copy(source, scratch / name)
    return scratch


def share(mutants: list[Mutant]) -> int:
    """Try some mutants, one after the other, on a copy of their own; answers how many survive."""
    with tempfile.TemporaryDirectory(prefix="hwtool-mutants-") as directory:
        copy = copied(Path(directory))
        code, said = tested(copy, mutants[0].test)  # a test that fails without any change would catch every mutant
        escaped = int(code != 0)
        if escaped:
            print(f"CONTROL  {mutants[0].test} ends with {code} on the tree as it is: {said[-300:]}", flush=True)
        low = False
        for mutant in sorted(mutants, key=lambda m: m.file.startswith("hwtool/")):
            if mutant.file.startswith("hwtool/") and not low:
                _import_lower_floors(copy)
                low = True
            why = survives(mutant, copy)
            escaped += why is not None
            told = "caught  " if why is None else "SURVIVES"
            print(f"{told} {mutant.guard}{'' if why is None else ': ' + why}", flush=True)
    return escaped


def everything() -> list[Mutant]:
    """The guards of this file, and those of the public fault reports with the scenario or test of each."""
    cases = importlib.import_module("tests.cases.table")  # it has guards from here
    return [*MUTANTS, *cases.mutants()]


def main(words: list[str]) -> int:
    """Try every mutant, some at a time: each share in a process of its own, which has one thread and may fork."""
    if words:
        for name in SHARED:
            importlib.import_module(name)
        return share(everything()[int(words[0]) :: SHARES])
    shares = [subprocess.Popen([sys.executable, "-m", "tests.mutants", str(n)], cwd=TOP) for n in range(SHARES)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        escaped = sum(one.wait() for one in shares)
    finally:
        for one in shares:
            one.terminate()
    guards = len(everything())
    print(f"{guards - escaped} of {guards} guards turn a test red")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
