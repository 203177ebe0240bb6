"""The asyncio client: the same calls as hwtool.client, many at once over one connection.

Calls of several tasks share the connection; the daemon answers each device in order and the devices side by side. A
task that is cancelled stops waiting, nothing more: what it asked for goes on under its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from hwtool import calls
from hwtool.attempts import check_key
from hwtool.calls import Call
from hwtool.client import check_run, noting, run_note
from hwtool.failures import CallFailed
from hwtool.losses import Closed, ConnectionLost, NoDaemon, NoReply, unreached
from hwtool.recovering import Ask, Pause, Step, conversation, new_key
from hwtool.replies import Event, Object
from hwtool.runs_open import OpenRuns
from hwtool.session import ProtocolError, Role, Session, socket_directory, socket_path

P = ParamSpec("P")
T = TypeVar("T")
CHUNK = 1 << 16


class _Line:
    """One connection: a task takes what comes, and wakes who waits for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._session = Session()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.ended: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._listening = self._loop.create_task(self._listen())

    @classmethod
    async def open(cls, directory: str | os.PathLike[str] | None, role: Role) -> _Line:
        """A new connection.

        Raises:
            NoDaemon: nobody listens.
        """
        path = socket_path(socket_directory(None if directory is None else os.fspath(directory)), role)
        try:
            return cls(*await asyncio.open_unix_connection(str(path)))
        except OSError as error:
            raise unreached(path, error) from error

    def usable(self) -> bool:
        """Whether it can be asked: the daemon has not hung up, and it is of the event loop that is running."""
        return self.ended is None and self._loop is asyncio.get_running_loop()

    async def ask(self, method: str, params: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
        """One request and its result, whatever it is.

        Raises:
            ConnectionLost: the daemon went away. NoReply: none came in time. ProtocolError: the envelope was refused.
        """
        number, line = self._session.request(method, dict(params))
        if self.ended is not None:
            raise ConnectionLost(*self.ended.args)
        coming: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = coming
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(line)
                await self._writer.drain()
                return await coming
        except TimeoutError:
            raise NoReply(f"{method}: no reply within {timeout_s:g} s; it goes on all the same") from None
        except OSError as error:
            raise ConnectionLost(f"{method}: {error}") from error
        finally:
            del self._waiting[number]
            if not coming.done():
                self._session.forget(number)
            elif not coming.cancelled():
                coming.exception()  # nobody else asks for it

    async def _listen(self) -> None:
        why = ConnectionLost("the connection was closed")
        try:
            while data := await self._reader.read(CHUNK):
                try:
                    self._session.feed(data)
                finally:
                    self._deliver()  # the whole replies of it, whatever the rest is
            why = ConnectionLost("the daemon hung up")
        except (OSError, ProtocolError) as error:  # of a line that is no reply: whose request it was cannot be told
            why = ConnectionLost(str(error))
        finally:
            self.ended = why
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionLost(*why.args))  # each its own: notes are added to it
            self.events.put_nowait(None)

    def _deliver(self) -> None:
        for number in list(self._session.replies):
            waiting = self._waiting.get(number)
            if waiting is None or waiting.done():
                self._session.replies.pop(number)
                continue
            try:
                result = self._session.result(number)
            except ProtocolError as error:
                waiting.set_exception(error)
            else:
                waiting.set_result(result or {})
        for event in self._session.events:
            self.events.put_nowait(event)
        self._session.events.clear()

    async def close(self) -> None:
        """Hang up."""
        if self._loop is not asyncio.get_running_loop():
            with contextlib.suppress(OSError):  # its own loop is gone, and nobody waits there any more
                self._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            return
        if self.ended is None:
            self._writer.close()
        else:
            self._writer.transport.abort()  # half a request must not go out when its outcome has been asked for
        self._listening.cancel()
        await asyncio.wait({self._listening})


async def _events_of(line: _Line) -> AsyncIterator[Event]:
    while line.ended is None or not line.events.empty():
        told = await line.events.get()
        if told is None:
            break
        yield Event(told)
    raise ConnectionLost(*(line.ended.args if line.ended is not None else ("the daemon hung up",)))


def _awaited(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]:
    """The method that makes a call and awaits its end."""

    async def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.perform(make(*args, **kwargs))

    return update_wrapper(method, make)


class Client:
    """The daemon, from asyncio: `async with hwtool.aio.Client() as hw`.

    Args:
        directory: where the sockets are; None: found as the command line finds it.
        role: which of the two sockets.
        timeout_s: how long to wait for any one reply; None: for ever. Giving up cancels nothing.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, role: Role = "agent", timeout_s: float | None = None
    ) -> None:
        self._directory, self._role, self._timeout_s = directory, role, timeout_s
        self._line: _Line | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting = asyncio.Lock()  # of that loop
        self._closed = False
        self._prefix: str | None = None
        self._runs = OpenRuns()

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up for good; what was begun goes on under its key."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        if self._line is not None:
            line, self._line = self._line, None
            await line.close()

    async def _connect(self) -> _Line:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._connecting = loop, asyncio.Lock()
        async with self._connecting:
            if not self._closed and (self._line is None or not self._line.usable()):
                await self._drop()
                self._prefix = None
                self._line = await _Line.open(self._directory, self._role)
            if self._closed or self._line is None:
                await self._drop()  # it was closed while this connected
                raise Closed("the client is closed; make another one")
            return self._line

    async def perform(self, call: Call[T]) -> T:
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
                    answer = await self._done(step)
                except Exception as error:  # noqa: BLE001  # whatever it is: what follows from it is decided there
                    step = talk.throw(error)
                else:
                    step = talk.send(answer)
        except StopIteration as end:
            made: T = end.value
            return made

    async def _done(self, step: Step) -> dict[str, Any] | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if not isinstance(step, Ask):
            await self._connect()
            return None
        if self._line is None:
            raise ConnectionLost("there is no connection")
        return await self._line.ask(step.method, step.params, self._timeout_s)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request as it is, and its result whatever it is, as plain JSON: for what has no method here.

        Raises:
            ConnectionLost: the daemon went away after the request was sent; nothing is asked about it.
        """
        effect = check_key(Call(method, params or {}, lambda result: result))
        try:
            line = await self._connect()
        except (NoDaemon, Closed):
            effect.never_was()
            raise
        told = await line.ask(method, params or {}, self._timeout_s)
        effect.ended(told.get("effects"))
        return told

    async def new_key(self) -> str:
        """A fresh key that begins with this connection's prefix, so that it is nobody else's."""
        if self._prefix is None:
            self._prefix = str((await self.describe())["key_prefix"])
        return new_key(self._prefix)

    describe = _awaited(calls.describe)
    discover = _awaited(calls.discover)
    devices = _awaited(calls.devices)
    find = _awaited(calls.find)
    contract = _awaited(calls.contract)
    read = _awaited(calls.read)
    dump = _awaited(calls.dump)
    plan = _awaited(calls.plan)
    op_get = _awaited(calls.op_get)
    op_wait = _awaited(calls.op_wait)
    journal = _awaited(calls.journal)
    metrics = _awaited(calls.metrics)
    read_effectful = _awaited(calls.read_effectful)
    write = _awaited(calls.write)
    write_group = _awaited(calls.write_group)
    update = _awaited(calls.update)
    sequence = _awaited(calls.sequence)
    named_sequence = _awaited(calls.named_sequence)
    safe_state = _awaited(calls.safe_state)
    run_start = _awaited(calls.run_start)
    run_finish = _awaited(calls.run_finish)
    run_acknowledge = _awaited(calls.run_acknowledge)
    lease_acquire = _awaited(calls.lease_acquire)
    lease_release = _awaited(calls.lease_release)
    approvals = _awaited(calls.approvals)
    approval_show = _awaited(calls.approval_show)
    approve = _awaited(calls.approve)
    deny = _awaited(calls.deny)
    settle = _awaited(calls.settle)
    hold = _awaited(calls.hold)
    release = _awaited(calls.release)
    probe = _awaited(calls.probe)
    policy = _awaited(calls.policy)
    store_backup = _awaited(calls.store_backup)
    store_prune = _awaited(calls.store_prune)
    reload = _awaited(calls.reload)
    freeze = _awaited(calls.freeze)
    thaw = _awaited(calls.thaw)

    @asynccontextmanager
    async def run(self, name: str) -> AsyncIterator[Object]:
        """A run, as hwtool.client.Client.run; tasks that are begun inside belong to it.

        Raises:
            RunFailed: nothing was raised inside, and yet something was left unhandled or is unknown.
        """
        begun = await self.run_start(name)
        try:
            with self._runs.open(begun["id"]):
                yield begun
        except CallFailed as error:
            with noting(error, f"run {begun['id']} ({name}) could not be finished"):
                error.add_note(run_note(await self.run_finish(begun["id"])))
            raise
        except BaseException as error:
            error.add_note(f"run {begun['id']} ({name}) is left unfinished")
            raise
        check_run(await self.run_finish(begun["id"]))

    @asynccontextmanager
    async def lease(self, device: str, *, ttl_ms: int) -> AsyncIterator[None]:
        """A device for this caller alone, for so long at most; given back at the end."""
        await self.lease_acquire(device, ttl_ms=ttl_ms)
        try:
            yield
        except BaseException as error:
            with noting(error, f"the lease of {device} could not be given back; it ends by itself"):
                await self.lease_release(device)
            raise
        await self.lease_release(device)

    @asynccontextmanager
    async def subscribe(
        self,
        *registers: str,
        interval_ms: int | None = None,
        when: Mapping[str, Any] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Events as they come, as hwtool.client.Client.subscribe."""
        async with Client(self._directory, self._role, self._timeout_s) as mine:
            await mine.perform(calls.subscribe(*registers, interval_ms=interval_ms, when=when, kinds=kinds))
            if mine._line is None:
                raise ConnectionLost("the daemon hung up")
            yield _events_of(mine._line)
