-- The store of hwtool. Loads on SQLite 3.40; the rules of 3-operations.md that a database can keep are kept here.
CREATE TABLE meta(k TEXT PRIMARY KEY, v TEXT NOT NULL) STRICT, WITHOUT ROWID;          -- store_uuid, schema_hash, frozen
CREATE TABLE epoch(
  epoch INTEGER PRIMARY KEY, host_boot_id TEXT NOT NULL, pid INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL, boottime_ns INTEGER NOT NULL, version TEXT NOT NULL, clean_stop INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE caller(caller_id INTEGER PRIMARY KEY, principal TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE device(
  device_id INTEGER PRIMARY KEY, locus TEXT NOT NULL UNIQUE,                            -- stable bus path + address: what is held
  identity TEXT, gen INTEGER NOT NULL DEFAULT 1, boot_evidence TEXT NOT NULL DEFAULT '{}') STRICT;
CREATE TABLE hold(device_id INTEGER PRIMARY KEY REFERENCES device, by TEXT NOT NULL, why TEXT NOT NULL, since_ns INTEGER NOT NULL) STRICT; -- a person, or an accepted rollback
CREATE TABLE run(run_id INTEGER PRIMARY KEY AUTOINCREMENT, caller_id INTEGER NOT NULL REFERENCES caller, name TEXT NOT NULL,
  started_ns INTEGER NOT NULL, finished_ns INTEGER, failed_by TEXT) STRICT;              -- first cause, kept over restarts
CREATE TABLE run_error(error_id INTEGER PRIMARY KEY AUTOINCREMENT, run_id INTEGER NOT NULL REFERENCES run, op_id INTEGER, code TEXT NOT NULL,
  at_ns INTEGER NOT NULL, handled_how TEXT, handled_ns INTEGER) STRICT;                    -- every failed result inside a run, and how it was handled
CREATE TABLE op(
  op_id INTEGER PRIMARY KEY AUTOINCREMENT,
  caller_id INTEGER NOT NULL REFERENCES caller, key TEXT NOT NULL CHECK(length(key) BETWEEN 8 AND 128 AND instr(key,char(0))=0 AND key NOT GLOB '*[^A-Za-z0-9._:#-]*'),
  key_hash BLOB NOT NULL CHECK(length(key_hash)=16),
  digest BLOB NOT NULL CHECK(length(digest)=32), device_id INTEGER REFERENCES device,
  kind TEXT NOT NULL CHECK(kind IN('write','update','read','safe_state','raw','sequence')),
  request TEXT NOT NULL, contract_hash BLOB NOT NULL,                                         -- request: the resolved plan and rule inputs; recovery reads nothing else
  parent_op INTEGER, run_id INTEGER REFERENCES run, epoch INTEGER NOT NULL REFERENCES epoch, device_gen INTEGER NOT NULL,
  pre TEXT, state TEXT NOT NULL CHECK(state IN('PENDING','INTENT','UNKNOWN','DONE')),
  verdict TEXT CHECK(verdict IN('applied','satisfied','not_applied','partial','lost','superseded','abandoned','denied')),
  verdict_by TEXT CHECK(verdict_by IN('bus','rule','human')), response TEXT, evidence TEXT,
  created_ns INTEGER NOT NULL, intent_ns INTEGER, done_ns INTEGER,
  UNIQUE(caller_id,key),
  CHECK((kind='sequence')=(device_id IS NULL)),
  CHECK((state='DONE')=(verdict IS NOT NULL)), CHECK((state='DONE')=(verdict_by IS NOT NULL)),
  CHECK(state IN('PENDING','DONE') OR pre IS NOT NULL)) STRICT;
CREATE UNIQUE INDEX op_key2 ON op(caller_id,key_hash);                                   -- a key is fresh only if both indexes miss
CREATE UNIQUE INDEX op_one_open ON op(device_id,(kind='safe_state')) WHERE state IN('INTENT','UNKNOWN');
CREATE INDEX op_run ON op(run_id) WHERE run_id IS NOT NULL;
CREATE INDEX op_parent ON op(parent_op) WHERE parent_op IS NOT NULL;
CREATE INDEX op_live ON op(state) WHERE state<>'DONE';                                   -- a start looks for what is open among a million that are not
CREATE INDEX op_device ON op(device_id,op_id) WHERE state='DONE';                        -- the newest of a device first; of no use to op_stop_i, whose open ones are few
CREATE TABLE op_data(op_id INTEGER NOT NULL REFERENCES op DEFERRABLE INITIALLY DEFERRED, chunk INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(op_id,chunk)) STRICT, WITHOUT ROWID;
CREATE TABLE approval(
  approval_id INTEGER PRIMARY KEY, op_id INTEGER NOT NULL UNIQUE REFERENCES op DEFERRABLE INITIALLY DEFERRED, digest BLOB NOT NULL, contract_hash BLOB NOT NULL, device_gen INTEGER NOT NULL,
  approver TEXT NOT NULL, decision TEXT NOT NULL CHECK(decision IN('granted','denied')),
  host_boot_id TEXT NOT NULL, expires_boottime_ns INTEGER NOT NULL, used_epoch INTEGER) STRICT;
CREATE TABLE tomb(caller_id INTEGER NOT NULL, key_hash BLOB NOT NULL CHECK(length(key_hash)=16), digest BLOB NOT NULL CHECK(length(digest)=16), verdict TEXT NOT NULL, PRIMARY KEY(caller_id,key_hash)) STRICT, WITHOUT ROWID;
CREATE INDEX tomb_key2 ON tomb(caller_id,substr(key_hash,9));                               -- second witness of a pruned key
CREATE TABLE audit(seq INTEGER PRIMARY KEY, prev BLOB NOT NULL, hash BLOB NOT NULL CHECK(length(hash)=32), op_id INTEGER, epoch INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
-- state machine: every legal (from, to, verdict, by) and no other
CREATE TRIGGER op_trans BEFORE UPDATE OF state,verdict,verdict_by ON op WHEN NOT (
     (OLD.state='PENDING' AND NEW.state='INTENT')
  OR (OLD.state='PENDING' AND NEW.state='DONE' AND NEW.verdict='denied' AND NEW.verdict_by IN('human','rule'))
  OR (OLD.state='INTENT'  AND NEW.state='UNKNOWN')
  OR (OLD.state='INTENT'  AND NEW.state='DONE' AND NEW.verdict_by='bus' AND NEW.verdict IN('applied','satisfied','not_applied','partial'))
  OR (OLD.state='UNKNOWN' AND NEW.state='DONE' AND NEW.verdict_by IN('rule','human') AND NEW.verdict<>'denied'))
BEGIN SELECT RAISE(ABORT,'op: illegal transition'); END;
CREATE TRIGGER op_new BEFORE INSERT ON op WHEN NEW.state NOT IN('PENDING','INTENT') BEGIN SELECT RAISE(ABORT,'op: must be born PENDING or INTENT'); END;
CREATE TRIGGER op_approved BEFORE UPDATE OF state ON op WHEN OLD.state='PENDING' AND NEW.state='INTENT' AND NOT EXISTS(
  SELECT 1 FROM approval a WHERE a.op_id=NEW.op_id AND a.decision='granted' AND a.digest=NEW.digest AND a.contract_hash=NEW.contract_hash AND a.device_gen=NEW.device_gen AND a.used_epoch=NEW.epoch)
BEGIN SELECT RAISE(ABORT,'op: not approved'); END;
CREATE TRIGGER op_fence_u BEFORE UPDATE OF state ON op WHEN NEW.state='INTENT' AND NEW.epoch IS NOT (SELECT max(epoch) FROM epoch) BEGIN SELECT RAISE(ABORT,'op: stale epoch'); END;
CREATE TRIGGER op_immutable BEFORE UPDATE ON op
 WHEN NEW.op_id IS NOT OLD.op_id OR NEW.caller_id IS NOT OLD.caller_id OR NEW.key IS NOT OLD.key OR NEW.key_hash IS NOT OLD.key_hash OR NEW.digest IS NOT OLD.digest OR NEW.device_id IS NOT OLD.device_id
   OR NEW.kind IS NOT OLD.kind OR NEW.request IS NOT OLD.request OR NEW.contract_hash IS NOT OLD.contract_hash OR NEW.parent_op IS NOT OLD.parent_op OR NEW.run_id IS NOT OLD.run_id OR NEW.created_ns IS NOT OLD.created_ns
   OR (OLD.state<>'PENDING' AND (NEW.pre IS NOT OLD.pre OR NEW.epoch IS NOT OLD.epoch OR NEW.device_gen IS NOT OLD.device_gen OR NEW.intent_ns IS NOT OLD.intent_ns))
BEGIN SELECT RAISE(ABORT,'op: immutable'); END;
CREATE TRIGGER op_done_final BEFORE UPDATE ON op WHEN OLD.state='DONE' BEGIN SELECT RAISE(ABORT,'op: final'); END;
CREATE TRIGGER op_fence_i BEFORE INSERT ON op WHEN NEW.epoch IS NOT (SELECT max(epoch) FROM epoch) BEGIN SELECT RAISE(ABORT,'op: stale epoch'); END;
-- ordinary op: no open op of any kind. safe_state: no open safe_state.
CREATE TRIGGER op_stop_i BEFORE INSERT ON op WHEN NEW.state='INTENT' AND NEW.device_id IS NOT NULL AND EXISTS(SELECT 1 FROM op WHERE device_id=NEW.device_id AND state IN('INTENT','UNKNOWN') AND (NEW.kind<>'safe_state' OR kind='safe_state'))
BEGIN SELECT RAISE(ABORT,'op: device stopped'); END;
CREATE TRIGGER op_stop_u BEFORE UPDATE OF state ON op WHEN OLD.state='PENDING' AND NEW.state='INTENT' AND NEW.device_id IS NOT NULL AND EXISTS(SELECT 1 FROM op WHERE device_id=NEW.device_id AND state IN('INTENT','UNKNOWN') AND (NEW.kind<>'safe_state' OR kind='safe_state'))
BEGIN SELECT RAISE(ABORT,'op: device stopped'); END;
CREATE TRIGGER op_hold_i BEFORE INSERT ON op WHEN NEW.state='INTENT' AND NEW.kind NOT IN('safe_state','raw') AND EXISTS(SELECT 1 FROM hold WHERE device_id=NEW.device_id) BEGIN SELECT RAISE(ABORT,'op: device held'); END;
CREATE TRIGGER op_hold_u BEFORE UPDATE OF state ON op WHEN NEW.state='INTENT' AND NEW.kind NOT IN('safe_state','raw') AND EXISTS(SELECT 1 FROM hold WHERE device_id=NEW.device_id) BEGIN SELECT RAISE(ABORT,'op: device held'); END;
CREATE TRIGGER op_tomb_key BEFORE INSERT ON op WHEN EXISTS(SELECT 1 FROM tomb WHERE caller_id=NEW.caller_id AND key_hash=NEW.key_hash)
  OR EXISTS(SELECT 1 FROM tomb WHERE caller_id=NEW.caller_id AND substr(key_hash,9)=substr(NEW.key_hash,9)) BEGIN SELECT RAISE(ABORT,'op: key expired'); END;
CREATE TRIGGER op_dead_key BEFORE INSERT ON op WHEN EXISTS(SELECT 1 FROM op WHERE caller_id=NEW.caller_id AND key=NEW.key)
  OR EXISTS(SELECT 1 FROM op WHERE caller_id=NEW.caller_id AND key_hash=NEW.key_hash) OR EXISTS(SELECT 1 FROM op WHERE op_id=NEW.op_id) BEGIN SELECT RAISE(ABORT,'op: key exists'); END;
CREATE TRIGGER op_del BEFORE DELETE ON op WHEN OLD.state<>'DONE' OR NOT EXISTS(SELECT 1 FROM tomb WHERE caller_id=OLD.caller_id AND key_hash=OLD.key_hash AND digest=substr(OLD.digest,1,16) AND verdict=OLD.verdict)
BEGIN SELECT RAISE(ABORT,'op: delete needs DONE + tombstone'); END;
CREATE TRIGGER tomb_i BEFORE INSERT ON tomb WHEN EXISTS(SELECT 1 FROM tomb WHERE caller_id=NEW.caller_id AND key_hash=NEW.key_hash) BEGIN SELECT RAISE(ABORT,'tomb: append-only'); END;
CREATE TRIGGER tomb_u BEFORE UPDATE ON tomb BEGIN SELECT RAISE(ABORT,'tomb: append-only'); END;
CREATE TRIGGER tomb_d BEFORE DELETE ON tomb BEGIN SELECT RAISE(ABORT,'tomb: append-only'); END;
CREATE TRIGGER op_data_i BEFORE INSERT ON op_data WHEN NOT EXISTS(SELECT 1 FROM op WHERE op_id=NEW.op_id AND state IN('INTENT','UNKNOWN')) OR EXISTS(SELECT 1 FROM op_data WHERE op_id=NEW.op_id AND chunk=NEW.chunk) BEGIN SELECT RAISE(ABORT,'op_data: write once'); END;
CREATE TRIGGER op_data_u BEFORE UPDATE ON op_data BEGIN SELECT RAISE(ABORT,'op_data: write once'); END;
CREATE TRIGGER op_data_d BEFORE DELETE ON op_data WHEN EXISTS(SELECT 1 FROM op WHERE op_id=OLD.op_id) BEGIN SELECT RAISE(ABORT,'op_data: op still there'); END;
CREATE TRIGGER approval_u BEFORE UPDATE ON approval WHEN OLD.used_epoch IS NOT NULL OR NEW.used_epoch IS NULL OR OLD.decision<>'granted' OR NEW.approval_id IS NOT OLD.approval_id OR NEW.op_id IS NOT OLD.op_id OR NEW.digest IS NOT OLD.digest
  OR NEW.contract_hash IS NOT OLD.contract_hash OR NEW.device_gen IS NOT OLD.device_gen OR NEW.approver IS NOT OLD.approver OR NEW.decision IS NOT OLD.decision OR NEW.host_boot_id IS NOT OLD.host_boot_id OR NEW.expires_boottime_ns IS NOT OLD.expires_boottime_ns
BEGIN SELECT RAISE(ABORT,'approval: single use'); END;
CREATE TRIGGER approval_d BEFORE DELETE ON approval WHEN EXISTS(SELECT 1 FROM op WHERE op_id=OLD.op_id) BEGIN SELECT RAISE(ABORT,'approval: op still there'); END;
CREATE TRIGGER caller_d BEFORE DELETE ON caller BEGIN SELECT RAISE(ABORT,'caller: fixed'); END;  -- its pruned keys would look fresh
CREATE TRIGGER caller_u BEFORE UPDATE ON caller BEGIN SELECT RAISE(ABORT,'caller: fixed'); END;
CREATE TRIGGER epoch_u BEFORE UPDATE OF epoch,host_boot_id,pid,wall_ns,boottime_ns,version ON epoch BEGIN SELECT RAISE(ABORT,'epoch: fixed'); END;
CREATE TRIGGER epoch_d BEFORE DELETE ON epoch BEGIN SELECT RAISE(ABORT,'epoch: append-only'); END;
CREATE TRIGGER device_u BEFORE UPDATE ON device WHEN NEW.locus IS NOT OLD.locus OR NEW.gen<OLD.gen BEGIN SELECT RAISE(ABORT,'device: locus fixed, gen rises'); END;
CREATE TRIGGER hold_d BEFORE DELETE ON hold WHEN EXISTS(SELECT 1 FROM op WHERE device_id=OLD.device_id AND state='UNKNOWN') BEGIN SELECT RAISE(ABORT,'hold: settle the open op first'); END;
CREATE TRIGGER audit_u BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT,'audit: append-only'); END;
CREATE TRIGGER audit_d BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT,'audit: append-only'); END;
CREATE TRIGGER audit_i BEFORE INSERT ON audit
 WHEN NEW.seq IS NOT (SELECT coalesce(max(seq),0)+1 FROM audit) OR NEW.prev IS NOT coalesce((SELECT hash FROM audit ORDER BY seq DESC LIMIT 1),zeroblob(32))
BEGIN SELECT RAISE(ABORT,'audit: chain'); END;
