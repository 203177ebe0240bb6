"""The synchronous client: every method of hwtool.calls over one connection, which is made again when it broke.

It never repeats an effect and never mints a key by itself: what follows a lost connection is in hwtool.recovering.
Light: standard library and the error catalogue only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from hwtool import calls
from hwtool.attempts import check_key
from hwtool.calls import Call
from hwtool.connection import Connection
from hwtool.failures import CallFailed, RunFailed
from hwtool.losses import Closed, ConnectionLost, NoDaemon, NoReply
from hwtool.recovering import Ask, Pause, Step, conversation, new_key
from hwtool.replies import Event, Object
from hwtool.runs_open import OpenRuns
from hwtool.session import Role

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method that makes a call and waits for its end."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.perform(make(*args, **kwargs))

    return update_wrapper(method, make)


class Client:
    """The daemon, from a program that may wait.

    Not safe for several threads at once: give each its own.

    Args:
        directory: where the sockets are; None: found as the command line finds it.
        role: which of the two sockets.
        timeout_s: how long to wait for any one reply; None: for ever. Giving up cancels nothing.

    Raises:
        NoDaemon: nobody listens.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, role: Role = "agent", timeout_s: float | None = None
    ) -> None:
        self._where = (directory, role, timeout_s)
        self._connection: Connection | None = Connection(*self._where)
        self._closed = False
        self._prefix: str | None = None
        self._runs = OpenRuns()

    def close(self) -> None:
        """Hang up for good; what was begun goes on under its key."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        """The connection, a new one if the old one is of no use.

        Raises:
            NoDaemon: nobody listens.
            Closed: by its own program.
        """
        if self._closed:
            raise Closed("the client is closed; make another one")
        if self._connection is None or self._connection.ended():
            self._drop()
            self._prefix = None
            self._connection = Connection(*self._where)
        return self._connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def perform(self, call: Call[T]) -> T:
        """Carry out a call.

        Raises:
            CallFailed: the daemon says so; the subclass says which error.
            NoDaemon, ConnectionLost, NeverSent, NoReply: as hwtool.losses tells.
        """
        talk = conversation(call, self._runs.inner)
        try:
            step = next(talk)
            while True:
                try:
                    answer = self._done(step)
                except Exception as error:  # noqa: BLE001  # whatever it is: what follows from it is decided there
                    step = talk.throw(error)
                else:
                    step = talk.send(answer)
        except StopIteration as end:
            made: T = end.value
            return made

    def _done(self, step: Step) -> dict[str, Any] | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if isinstance(step, Ask):
            if self._connection is None:
                raise ConnectionLost("there is no connection")
            return self._asked(self._connection, step.method, step.params)
        self._connected()
        return None

    def _asked(self, connection: Connection, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return connection.ask(method, params)
        except NoReply:
            raise
        except ConnectionLost:
            self._drop()  # half a request may stand in it, or half a reply
            raise

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request as it is, and its result whatever it is, as plain JSON: for what has no method here.

        Raises:
            ConnectionLost: the daemon went away after the request was sent; nothing is asked about it.
        """
        effect = check_key(Call(method, params or {}, lambda result: result))
        try:
            connection = self._connected()
        except (NoDaemon, Closed):
            effect.never_was()
            raise
        told = self._asked(connection, method, params or {})
        effect.ended(told.get("effects"))
        return told

    def new_key(self) -> str:
        """A fresh key that begins with this connection's prefix, so that it is nobody else's."""
        if self._prefix is None:
            self._prefix = str(self.describe()["key_prefix"])
        return new_key(self._prefix)

    describe = _blocking(calls.describe)
    discover = _blocking(calls.discover)
    devices = _blocking(calls.devices)
    find = _blocking(calls.find)
    contract = _blocking(calls.contract)
    read = _blocking(calls.read)
    dump = _blocking(calls.dump)
    plan = _blocking(calls.plan)
    op_get = _blocking(calls.op_get)
    op_wait = _blocking(calls.op_wait)
    journal = _blocking(calls.journal)
    metrics = _blocking(calls.metrics)
    read_effectful = _blocking(calls.read_effectful)
    write = _blocking(calls.write)
    write_group = _blocking(calls.write_group)
    update = _blocking(calls.update)
    sequence = _blocking(calls.sequence)
    named_sequence = _blocking(calls.named_sequence)
    safe_state = _blocking(calls.safe_state)
    run_start = _blocking(calls.run_start)
    run_finish = _blocking(calls.run_finish)
    run_acknowledge = _blocking(calls.run_acknowledge)
    lease_acquire = _blocking(calls.lease_acquire)
    lease_release = _blocking(calls.lease_release)
    approvals = _blocking(calls.approvals)
    approval_show = _blocking(calls.approval_show)
    approve = _blocking(calls.approve)
    deny = _blocking(calls.deny)
    settle = _blocking(calls.settle)
    hold = _blocking(calls.hold)
    release = _blocking(calls.release)
    probe = _blocking(calls.probe)
    policy = _blocking(calls.policy)
    store_backup = _blocking(calls.store_backup)
    store_prune = _blocking(calls.store_prune)
    reload = _blocking(calls.reload)
    freeze = _blocking(calls.freeze)
    thaw = _blocking(calls.thaw)

    @contextmanager
    def run(self, name: str) -> Iterator[Object]:
        """A run: calls inside belong to it, and it has to end as `succeeded`.

        Left by an error, it is finished only if the error came from the daemon, which then knows why it failed; any
        other leaves it unfinished, since the daemon would call it succeeded.

        Raises:
            RunFailed: nothing was raised inside, and yet something was left unhandled or is unknown.
        """
        begun = self.run_start(name)
        try:
            with self._runs.open(begun["id"]):
                yield begun
        except CallFailed as error:
            with noting(error, f"run {begun['id']} ({name}) could not be finished"):
                error.add_note(run_note(self.run_finish(begun["id"])))
            raise
        except BaseException as error:
            error.add_note(f"run {begun['id']} ({name}) is left unfinished")
            raise
        check_run(self.run_finish(begun["id"]))

    @contextmanager
    def lease(self, device: str, *, ttl_ms: int) -> Iterator[None]:
        """A device for this caller alone, for so long at most; given back at the end."""
        self.lease_acquire(device, ttl_ms=ttl_ms)
        try:
            yield
        except BaseException as error:
            with noting(error, f"the lease of {device} could not be given back; it ends by itself"):
                self.lease_release(device)
            raise
        self.lease_release(device)

    @contextmanager
    def subscribe(
        self,
        *registers: str,
        interval_ms: int | None = None,
        when: Mapping[str, Any] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> Iterator[Iterator[Event]]:
        """Events as they come, on a connection of their own: values that change, operations, holds, runs.

        Args:
            registers: clean ones of one device, looked at every `interval_ms`.
            when: {register, above, below, changed}: told when it comes true.
            kinds: of what the journal records: op, hold, run; without registers all of them.

        Raises:
            CallFailed: the subscription was refused. The iterator raises ConnectionLost when the daemon goes away.
        """
        with Client(*self._where) as mine:
            mine.perform(calls.subscribe(*registers, interval_ms=interval_ms, when=when, kinds=kinds))
            yield mine._events()

    def _events(self) -> Iterator[Event]:
        if self._connection is not None:
            yield from map(Event, self._connection.events())


@contextmanager
def noting(error: BaseException, what: str) -> Iterator[None]:
    """What fails inside becomes a note of the error that is on its way already, and does not take its place."""
    try:
        yield
    except Exception as late:  # noqa: BLE001  # whatever it is: the first error is the one to be told
        error.add_note(f"{what}: {late}")


def run_note(run: Object) -> str:
    """How a run ended, for people."""
    why = f": {run['failed_by']}" if run.get("failed_by") else ""
    return f"run {run['id']} ({run['name']}) {run['status']}{why}"


def check_run(run: Object) -> None:
    """A run has to have succeeded.

    Raises:
        RunFailed: it has not.
    """
    if run["status"] != "succeeded":
        raise RunFailed(run, run_note(run))
