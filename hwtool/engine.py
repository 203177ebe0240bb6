"""The engine: start-up, the table of methods, and the end. Knows no sockets; the server and the checks drive it.

Start-up follows the design: store, then every intent of an older epoch becomes unknown, the buses are quiesced, boot
evidence is taken, rules run, and only then anything is listened to.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hwtool import catalogue, journal_files, leases, reading, snapshot
from hwtool.admission import Arrival, KeyedParams
from hwtool.approvals import Approvals
from hwtool.board_buses import BusSpec
from hwtool.buses import make_bus
from hwtool.clock import Clock
from hwtool.config import Board
from hwtool.devices import Device, PersonHold
from hwtool.events import Events, Sink
from hwtool.execution import Execution
from hwtool.generation import boot_evidence, refresh_boot
from hwtool.history import History
from hwtool.journal_files import JournalFiles
from hwtool.keyed import KeyedOperations
from hwtool.metrics import Metrics
from hwtool.operators import Operators, settled_by
from hwtool.outcome import NeedsPerson
from hwtool.policy import Caller
from hwtool.probing import probe
from hwtool.recovery import orphans, run_rules
from hwtool.reloading import reload
from hwtool.relocking import relock
from hwtool.restarts import KINDS
from hwtool.results import failed
from hwtool.runs import Runs
from hwtool.state import Daemon
from hwtool.worker import BusWorker
from hwtool_contracts.errors import Code, DomainError
from hwtool_contracts.messages import (
    METHODS,
    ApprovalParams,
    ApproveParams,
    AskedRequest,
    ContractParams,
    DenyParams,
    DescribeParams,
    DumpParams,
    FindParams,
    HoldParams,
    JournalParams,
    LeaseAcquireParams,
    LeaseReleaseParams,
    OpGetParams,
    OpWaitParams,
    PlanParams,
    PolicyShowParams,
    ProbeParams,
    ReadEffectfulParams,
    ReadParams,
    ReasonParams,
    Result,
    RunAcknowledgeParams,
    RunFinishParams,
    RunStartParams,
    SafeStateParams,
    SequenceParams,
    SettleParams,
    StoreBackupParams,
    StorePruneParams,
    SubscribeParams,
    UpdateParams,
    WriteParams,
)
from hwtool_registers.bus import Bus
from hwtool_store import operations
from hwtool_store.database import Connection, Start, Store, frozen, open_store, set_meta_once
from hwtool_store.faults import StoreFatal, StoreRefused, StoreRule
from hwtool_store.operations import OpRow
from hwtool_store.rollback import take_hold_all

log = logging.getLogger(__name__)
PLAN_KEY = "rehearsal-only"


class Engine:
    """One running daemon without its sockets; make it with `start`."""

    def __init__(self, daemon: Daemon, reread: Callable[[], Board] | None = None) -> None:
        self.daemon = daemon
        self._reread = reread
        self._keyed = KeyedOperations(daemon, Execution(daemon, self._unknown, self._try_at_the_head))
        self._approvals = Approvals(daemon)
        self._history = History(daemon, self._keyed, self._try)
        self._operators = Operators(daemon, self._history)
        self._runs = Runs(daemon)
        self.events = Events(daemon)
        self.files: JournalFiles | None = None
        self._rendering: asyncio.Task[None] | None = None
        self.metrics = Metrics(daemon, lambda: {} if self.files is None else dict(self.files.rows))
        self._rules: set[asyncio.Task[None]] = set()
        self._looked: set[int] = set()  # unknown operations whose rules have looked at the device by themselves
        for worker in daemon.workers.values():
            sitting = [d for d in daemon.devices.values() if d.worker is worker]
            worker.after_quarantine = partial(self._bus_is_back, worker)
            worker.after_return = partial(_unsure, sitting)

    @classmethod
    async def start(
        cls,
        board: Board,
        store_directory: Path,
        clock: Clock,
        *,
        allow_unsafe: bool = False,
        read_only: bool = False,
        rehearsing: bool = False,
        reread: Callable[[], Board] | None = None,
        buses: Callable[[BusSpec, Board, Path], Bus] | None = None,
    ) -> Engine:
        """Open the store, the buses and the devices, and settle what can be settled by rule.

        Args:
            buses: makes the bus of an entry of the board, where those of the host are not meant.

        Raises:
            StoreRefused: the store cannot be used.
            StoreFatal: the store failed while it was being started; the process must end without closing it.
            OSError: a bus is in use, or its node may not be opened; one that is absent keeps nothing from starting.
        """
        boot_id = clock.boot_id()
        start = Start(boot_id, os.getpid(), clock.wall_ns(), clock.boottime_ns(), catalogue.version())
        store = open_store(store_directory, start, allow_unsafe=allow_unsafe)
        store.start()
        workers: dict[str, BusWorker] = {}
        try:
            await _check_kind(store, board)
            for spec in board.buses.values():
                workers[spec.name] = BusWorker(spec, (buses or make_bus)(spec, board, store_directory), clock)
                try:
                    absent = await workers[spec.name].begin()
                except OSError as error:
                    raise cannot_be_had(spec, error) from error
                if absent is not None:  # the other buses must not wait for this one
                    log.warning("bus %s is absent: %s; its devices are unavailable until it comes", spec.name, absent)
            devices = _devices(board, workers)
            daemon = Daemon(board, store, clock, boot_id, workers, devices, read_only=read_only, rehearsing=rehearsing)
            engine = cls(daemon, reread)
            await engine._recover()
        except BaseException as error:
            for worker in workers.values():
                await worker.close()
            store.close()
            if isinstance(error, DomainError) and isinstance(error.__cause__, StoreFatal):
                raise error.__cause__ from error
            raise
        return engine

    def render_journal(self, directory: Path) -> None:
        """Render the audit chain into files from now on, as it grows."""
        self.files, self._rendering = journal_files.start(self.daemon, directory)

    async def close(self) -> None:
        """Take no more, wait for what is at work up to its windows, close buses and store."""
        self.daemon.stopping = True
        self.events.close()
        await self._keyed.drain()
        await self.daemon.kept_done()
        self.daemon.flush_refusals()
        if self._rules:
            # they look at devices: a transfer may end, nothing new is waited for
            limits_ms = [w.spec.transfer_limit_ms for w in self.daemon.workers.values()]
            _, late = await asyncio.wait(set(self._rules), timeout=max(limits_ms) / 1000)
            for task in late:
                task.cancel()
        for worker in self.daemon.workers.values():
            await worker.close()
        if self.files is not None and self._rendering is not None:
            self._rendering.cancel()
            await asyncio.wait({self._rendering})
            await self.files.finish()
        self.daemon.store.close()

    async def responds(self) -> None:
        """Return when the store's writer has come to a job that does nothing: it and this loop go on."""
        await asyncio.wrap_future(self.daemon.store.submit(lambda conn: None))

    @property
    def wedged(self) -> bool:
        """Whether a transfer has not returned: its thread cannot be ended, only left."""
        return any(w.wedged for w in self.daemon.workers.values())

    async def call(
        self,
        caller: Caller,
        method: str,
        params: dict[str, Any],
        told: tuple[object, Sink] | None = None,
        arrived: Arrival | None = None,
    ) -> Result:
        """Answer one method of the surface; every outcome of the domain is a result.

        Args:
            told: the connection, and how it is told of events; None where there is none.
            arrived: what `expect` answered, if the request has waited since.

        Raises:
            KeyError: there is no such method (a broken envelope, not an outcome).
        """
        since_s = self.daemon.clock.monotonic_s()
        try:
            result = await self._answered(caller, method, params, told, arrived)
        finally:
            self._keyed.answered(arrived)
        self.metrics.answered(method, result, self.daemon.clock.monotonic_s() - since_s)
        return result

    def expect(self, caller: Caller, method: str, params: dict[str, Any], safe: Arrival | None = None) -> Arrival:
        """A request has come, before it is its turn on its connection; to be given to its `call`.

        Args:
            safe: the safe state that came before it there, about the same device.
        """
        return self._keyed.expect(caller, method, params, safe)

    async def _answered(
        self,
        caller: Caller,
        method: str,
        params: dict[str, Any],
        told: tuple[object, Sink] | None,
        arrived: Arrival | None,
    ) -> Result:
        entry_of = METHODS[method]
        key = params.get("key")
        shown_key = key if isinstance(key, str) else None
        try:
            if entry_of.operator and caller.role != "operator":
                reason = f"{method} is for operators"
                raise DomainError(Code.DENIED, reason, reason=reason, required="the operator socket")
            decoded = _decoded(params, entry_of.params)
            if isinstance(decoded, SubscribeParams):
                return await self._subscribe(caller, decoded, told)
            return await self._call(caller, decoded, method, arrived)
        except DomainError as error:
            return self.daemon.dressed(failed(error, "none", key=shown_key))
        except StoreRule as error:
            # a rule of the database stopped it: somebody was quicker, or a check above it is missing; nothing was sent
            refused = DomainError(Code.REFUSED, f"{method}: {error}", rule="store_rule", register=None, field=None)
            return self.daemon.dressed(failed(refused, "none", key=shown_key))
        except Exception as error:  # noqa: BLE001  # a defect is an answer too; the daemon lives on
            defect = DomainError(Code.INTERNAL, f"{method}: {type(error).__name__}: {error}")
            # what a defect left behind is not known once a keyed method was under way
            keyed = "key" in entry_of.params.__struct_fields__ or method in ("op.settle", "bus.probe")
            return self.daemon.dressed(failed(defect, "unknown" if keyed else "none", key=shown_key))

    async def _call(self, caller: Caller, params: msgspec.Struct, method: str, arrived: Arrival | None) -> Result:
        daemon = self.daemon
        match params:
            case DescribeParams(topic):
                return catalogue.describe(daemon, caller, topic)
            case FindParams():
                return catalogue.find(daemon, params)
            case ContractParams(register):
                return catalogue.contract(daemon, register)
            case ReadParams(run=run):
                return await self._read(caller, params, run)
            case ReadEffectfulParams(run=run) | WriteParams(run=run) | UpdateParams(run=run) | SequenceParams(run=run):
                return await self._runs.noted(caller, run, await self._keyed.submit(caller, params, arrived))
            case SafeStateParams():
                return await self._keyed.submit(caller, params, arrived)
            case PlanParams():
                return await self._plan(caller, params)
            case OpGetParams(key=str(key), request=AskedRequest(method=asked, params=inner)):
                keyed = _keyed_params(asked, {**inner, "key": key}, "$.request.params")
                return await self._keyed.recorded(caller, keyed)
            case OpGetParams():
                return await self._history.op_get(caller, params)
            case OpWaitParams():
                return await self._history.op_wait(caller, params)
            case DumpParams():
                return await snapshot.dump(daemon, caller, params)
            case RunStartParams(name):
                return await self._runs.start(caller, name)
            case RunFinishParams(run):
                return await self._runs.finish(caller, run)
            case RunAcknowledgeParams(run, error_id, how):
                return await self._runs.acknowledge(caller, run, error_id, how)
            case LeaseAcquireParams(name, ttl_ms):
                return await leases.acquire(daemon, caller, name, ttl_ms)
            case LeaseReleaseParams(name):
                return await leases.release(daemon, caller, name)
            case JournalParams():
                return await self._history.journal(caller, params)
            case ApprovalParams(approval):
                return await self._approvals.shown(approval)
            case ApproveParams(approval, code):
                return await self._approvals.approve(caller, approval, code)
            case DenyParams(approval, reason):
                return await self._approvals.deny(caller, approval, reason)
            case SettleParams():
                return await self._operators.settle(caller, params)
            case HoldParams() if method == "device.hold":
                return await self._operators.hold(caller, params)
            case HoldParams():
                return await self._operators.release(caller, params)
            case ProbeParams():
                return await probe(daemon, caller, params)
            case PolicyShowParams():
                return catalogue.policy(daemon, caller, params)
            case ReasonParams():
                return await self._operators.freeze(caller, params, method == "daemon.freeze")
            case StoreBackupParams(to):
                return await self._operators.backup(caller, to)
            case StorePruneParams(keep):
                return await self._operators.prune(caller, keep)
            case _ if method == "daemon.reload":
                return await reload(daemon, caller, self._reread)
            case _ if method == "metrics":
                result = Result(status="done", ok=True, effects="none", summary="Prometheus text in `text`")
                result.text = self.metrics.text()
                return daemon.dressed(result)
            case _ if method == "device.list":
                return catalogue.devices(daemon)
            case _ if method == "approval.list":
                return await self._approvals.listed()
            case _ if method == "rpc.discover":
                return catalogue.discover(daemon)
            case _:
                raise DomainError(Code.INTERNAL, f"{method} is declared and not implemented")

    async def _subscribe(self, caller: Caller, params: SubscribeParams, told: tuple[object, Sink] | None) -> Result:
        if told is None:
            message = "events.subscribe: nobody is connected who could be told"
            raise DomainError(Code.REFUSED, message, rule="no_connection", register=None, field=None)
        return await self.events.subscribe(caller, params, *told)

    async def _read(self, caller: Caller, params: ReadParams, run: int | None) -> Result:
        """A clean read; one of a run leaves its failure there."""
        if run is None:
            return await reading.read(self.daemon, caller, params)
        await self._runs.check(caller, run, effectful=False)
        try:
            return await reading.read(self.daemon, caller, params)
        except DomainError as error:
            return await self._runs.noted(caller, run, self.daemon.dressed(failed(error, "none")))

    async def _plan(self, caller: Caller, params: PlanParams) -> Result:
        inner = {"key": PLAN_KEY, **params.params, "dry_run": True}
        result = await self._keyed.submit(caller, _keyed_params(params.method, inner, "$.params"))
        if result.key == PLAN_KEY:
            result.key = None
        return result

    def _unknown(self, device: Device) -> None:
        """An outcome has become unknown: its bus is quarantined, and rules run when it may be used again."""
        device.worker.quarantine()

    def _bus_is_back(self, worker: BusWorker) -> None:
        task = asyncio.get_running_loop().create_task(self._rules_of(worker, worker.returns))
        self._rules.add(task)
        task.add_done_callback(self._rules.discard)

    async def rules_done(self, device: Device) -> None:
        """Wait until the bus of a device may be used again and the rules that run then have run."""
        await device.worker.settled()
        while self._rules:
            await asyncio.wait(set(self._rules))

    async def _rules_of(self, worker: BusWorker, returned: int) -> None:
        """Try the rules once after a return of the bus; `returned` is the count of its returns then."""
        for device in self.daemon.devices.values():
            for op_id in sorted(device.unknown) if device.worker is worker else ():
                if worker.returns != returned or worker.state == "quarantined":
                    return  # what became unknown since has a quarantine of its own: the rules that follow it try all
                if op_id not in self._looked:  # a chip that answers nothing must not be asked for ever
                    await self._try(op_id)

    async def _try_at_the_head(self, op_id: int) -> NeedsPerson | None:
        return await self._try(op_id, at_the_head=True)

    async def _try(self, op_id: int, *, at_the_head: bool = False) -> NeedsPerson | None:
        try:
            person = await run_rules(self.daemon, op_id, settled_by(self.daemon, None, None), at_the_head=at_the_head)
            self._looked.add(op_id)
        except DomainError as error:
            person = NeedsPerson(error.message)  # the bus was away or shut: nobody has looked
        except StoreRule:
            return None  # a person has settled it, or a safe state has overtaken it, meanwhile
        if person is None:
            self._looked.discard(op_id)
            self.daemon.reasons.pop(op_id, None)
        else:
            self.daemon.reasons[op_id] = person.why
        return person

    async def _recall(self, device: Device, register: str) -> int | None:
        return await self.daemon.ask(
            partial(operations.last_written, locus=device.locus, generation=device.generation, register=register)
        )

    async def _remember(self, locus: str, home: dict[str, int]) -> None:
        await self.daemon.ask(partial(operations.note_home, locus=locus, home=dict(home)))

    async def _recover(self) -> None:
        """What an earlier life left behind: orphans become unknown, devices are held, rules run."""
        daemon = self.daemon

        def note(row: OpRow) -> dict[str, Any]:
            told = {"device": row.request["device"], "key": row.key, "of": row.principal, "cause": "crash"}
            return daemon.body("unknown", None, None, **told)

        unknown = await daemon.ask(orphans(daemon, note))
        daemon.frozen = await daemon.ask(frozen)
        await self._hold_after_rollback()
        for hold in await daemon.ask(operations.holds):
            held = daemon.device_at(hold.locus)
            if held is not None:
                held.hold = PersonHold(hold.by, hold.why, hold.since_ns)
        for device in daemon.devices.values():
            known = await daemon.ask(partial(operations.device, locus=device.locus))
            device.generation = known.generation
            told = {kind: known.boot_evidence.get(kind) for kind in KINDS}
            daemon.boots[device.name] = {kind: word for kind, word in told.items() if word is not None}
            device.home = dict(known.boot_evidence.get("home", {}))
            device.remember = partial(self._remember, device.locus)
            device.recall = partial(self._recall, device)
            device.testify = partial(boot_evidence, daemon, device)
        for row in unknown:
            stopped = daemon.device_at(row.locus)
            if stopped is not None:
                stopped.mark_unknown(row.op_id, row.intent_ns or row.created_ns)
                stopped.worker.quarantine()
        for worker in daemon.workers.values():
            # a line that does not fall silent must not keep the others waiting: it stays shut, its rules run later
            await worker.silence()
        for device in daemon.devices.values():
            await refresh_boot(daemon, device)
        for row in unknown:
            await self._try(row.op_id)
        await relock(daemon, unknown)

    async def _hold_after_rollback(self) -> None:
        """An older store was accepted: every device of the board is held, once, until a person has looked at it."""
        daemon = self.daemon
        now_ns = daemon.clock.wall_ns()
        bodies = {d.locus: daemon.body("hold", None, None, device=d.name) for d in daemon.devices.values()}

        def job(conn: Connection) -> None:
            why = take_hold_all(conn)
            for locus, body in bodies.items() if why is not None else ():
                operations.put_hold(conn, locus, "rollback", why or "", now_ns, {**body, "reason": why})

        await daemon.ask(job)


def cannot_be_had(spec: BusSpec, error: OSError) -> OSError:
    """Why a bus cannot be had that is there, with its name and, where nobody may open it, what grants that."""
    told = error.strerror or str(error)
    node = f" ({error.filename})" if error.filename else ""
    granted = "udev" in told or error.errno != errno.EACCES
    hint = "" if granted else "; its group is given by a rule of udev: hwtool udev prints it"
    return OSError(error.errno or errno.EIO, f"bus {spec.name}{node}: {told}{hint}")


async def _check_kind(store: Store, board: Board) -> None:
    """A store that was used with real buses refuses a simulated board, and the reverse: keys would be mixed up."""
    kind = "simulated" if board.simulated else "real"
    found = await asyncio.wrap_future(store.submit(lambda conn: set_meta_once(conn, "buses", kind)))
    if found != kind:
        raise StoreRefused(f"this store was used with {found} buses; board {board.name} has {kind} ones: use another")


def _keyed_params(method: str, params: dict[str, Any], root: str) -> KeyedParams:
    """The parameters of a keyed method that stand inside those of another.

    Raises:
        DomainError: invalid_args.
    """
    decoded = _decoded(params, METHODS[method].params, root)
    match decoded:
        case ReadEffectfulParams() | WriteParams() | UpdateParams() | SequenceParams() | SafeStateParams():
            return decoded
        case _:
            raise DomainError(Code.INTERNAL, f"{method} has no key")


def _unsure(devices: list[Device]) -> None:
    for device in devices:
        device.unsure()


def _devices(board: Board, workers: dict[str, BusWorker]) -> dict[str, Device]:
    devices = {
        spec.name: Device(spec, workers[spec.bus], spec.locus(board.buses[spec.bus])) for spec in board.devices.values()
    }
    for device in devices.values():
        if device.spec.mux is not None:
            device.mux = devices[device.spec.mux]
            device.mux.switches = True
    return devices


def _decoded(params: dict[str, Any], kind: type[msgspec.Struct], root: str = "$") -> msgspec.Struct:
    """Parameters as their type.

    Raises:
        DomainError: invalid_args with the path.
    """
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        place = path.rstrip("`").replace("$", root, 1) if path else root
        if place.endswith(".key"):
            message = "a key of 8 to 120 characters A-Z a-z 0-9 . _ : -"
        raise DomainError(
            Code.INVALID_ARGS,
            f"{place}: {message}",
            path=place,
            expected=message,
            got=_at(params, place.removeprefix(root)),
        ) from error


def _at(params: Any, path: str) -> Any:
    """What stands at a path of the parameters, shortened; None if it cannot be told."""
    found = params
    for part in path.replace("[", ".").replace("]", "").strip(".").split("."):
        if not part:
            continue
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found if isinstance(found, int | float | bool) else str(found)[:80]
