"""The server: two Unix sockets, JSON-RPC lines, one task a request, roles by the kernel's word.

A connection lives on its own: junk, an over-long line or a vanished client end it and nothing else. What one connection
asks of one device is answered in order, except that a safe state passes what came before it; requests to different
devices, and those that touch none, may overtake each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import grp
import logging
import os
import pwd
import secrets
import signal
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from hwtool.admission import Arrival
from hwtool.buses import give_back
from hwtool.clock import Clock
from hwtool.config import Board, MetricsSpec
from hwtool.engine import Engine
from hwtool.policy import AGENT_GROUP, OPERATOR_GROUP, Caller, Role, role_of
from hwtool.service_manager import (
    SOCKETS_HINT,
    ServeError,
    activated,
    notify,
    notify_ready,
    signs_of_life,
    watchdog_s,
)
from hwtool.session import MAX_LINE_BYTES, SYSTEM_DIRECTORY, socket_path
from hwtool_contracts.messages import METHODS, Result
from hwtool_store import operations

MAX_PATH_BYTES: Final = 107  # of 108 in sockaddr_un, one is the terminating zero
SO_PEERGROUPS: Final = 59  # Linux, include/uapi/asm-generic/socket.h
BACKLOG: Final = 512
MAX_UNDER_WAY: Final = 256
MAX_UNSENT_BYTES: Final = 8 << 20
FATAL_EXIT: Final = 70  # EX_SOFTWARE: the store has failed
FATAL_GRACE_S: Final = 0.2
HTTP_REPLY: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is the JSON-RPC socket of hwtool, one object a line; try: hwtool devices\n"
)
IN_ORDER: Final = frozenset({
    "reg.read", "reg.read_effectful", "reg.write", "reg.update", "reg.plan", "sequence.run", "device.dump",
    "lease.acquire", "lease.release", "events.subscribe",
})  # fmt: skip  # of one connection about one device; all others are answered at once
SAFE_STATE: Final = "device.safe_state"  # waits for none of its connection, and those behind it wait for it
log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def peer_of(connection: socket.socket) -> tuple[int, frozenset[str]]:
    """Uid and group names of the other end, by the kernel's word."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, gid = struct.unpack("3i", credentials)
    gids = {gid}
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * 256)
        gids |= set(struct.unpack(f"{len(packed) // 4}I", packed[: len(packed) // 4 * 4]))
    except OSError:
        pass  # an old kernel: the primary group must do
    return uid, frozenset(name for g in gids if (name := _group_name(g)) is not None)


def _group_name(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None


class Connection(asyncio.Protocol):
    """One client: bytes in, lines out."""

    def __init__(self, server: Server, role: Role) -> None:
        self._server = server
        self._socket_role = role
        self._buffer = bytearray()
        self._tails: dict[str, asyncio.Future[Any]] = {}
        self._safe: dict[str, Arrival] = {}
        self._under_way = 0
        self._closing = False
        self._gone = False
        self._transport: asyncio.Transport | None = None
        self._caller: Caller | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Decide the role, once."""
        # uvloop's transports have the methods of asyncio.Transport without being one
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(MAX_UNSENT_BYTES)
        raw = stream.get_extra_info("socket")
        uid, groups = peer_of(raw)
        role = role_of(self._socket_role, uid, groups, os.getuid(), self._server.system_install)
        if role is None:
            self._refuse_envelope(None, -32600, f"uid {uid} may not use the {self._socket_role} socket")
            transport.close()
            return
        now_ns = self._server.engine.daemon.clock.wall_ns()
        self._caller = Caller(uid, role, secrets.token_hex(3) + "-", now_ns, groups)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; what it asked for goes on."""
        self._gone = True
        self._server.connections.discard(self)
        self._server.engine.events.drop(self)

    def pause_writing(self) -> None:
        """The client does not read what it asked for: it is let go rather than stored for."""
        if self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        """The client has said all; what was received is answered, then the connection is closed."""
        self._closing = True
        return self._under_way > 0

    def data_received(self, data: bytes) -> None:
        """Cut lines and start one task for each."""
        if self._closing or self._caller is None:
            return
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if len(line) >= MAX_LINE_BYTES or line.startswith((b"GET ", b"POST ", b"HEAD ")):
                self._end(line)
                return
            if line.strip():
                self._line(line)
        if len(self._buffer) >= MAX_LINE_BYTES:
            self._end(bytes(self._buffer[:16]))

    def _end(self, line: bytes) -> None:
        """A line that ends the connection: too long, or not this protocol at all."""
        if line.startswith((b"GET ", b"POST ", b"HEAD ")):
            self._send(HTTP_REPLY)
        else:
            self._refuse_envelope(None, -32600, f"a line has at most {MAX_LINE_BYTES} bytes")
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _line(self, line: bytes) -> None:
        try:
            envelope = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse_envelope(None, -32700, f"not JSON: {error}")
            return
        number, method, params, fault = _envelope(envelope)
        if fault is not None:
            self._refuse_envelope(number, fault[0], fault[1])
            return
        self._under_way += 1
        if self._under_way >= MAX_UNDER_WAY and self._transport is not None:
            self._transport.pause_reading()
        place = _device_of(params) if method in IN_ORDER or method == SAFE_STATE else None
        tail = self._tails.get(place) if place is not None else None
        arrived = None
        if place is not None and self._caller is not None and (tail is not None or method == SAFE_STATE):
            arrived = self._server.engine.expect(self._caller, method, params, self._safe.get(place))
        before = None if method == SAFE_STATE else tail
        task = asyncio.get_running_loop().create_task(self._answer(number, method, params, before, arrived))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)
        if place is None:
            return
        last: asyncio.Future[Any] = task
        if method == SAFE_STATE and arrived is not None:
            self._safe[place] = arrived
            task.add_done_callback(lambda _: self._safe.pop(place) if self._safe.get(place) is arrived else None)
            if tail is not None:
                last = asyncio.ensure_future(asyncio.wait({task, tail}))
        self._tails[place] = last
        last.add_done_callback(lambda t: self._tails.pop(place) if self._tails.get(place) is t else None)

    async def _answer(
        self,
        number: int | str | None,
        method: str,
        params: dict[str, Any],
        before: asyncio.Future[Any] | None,
        arrived: Arrival | None,
    ) -> None:
        if before is not None:
            clock = self._server.engine.daemon.clock
            since_s = clock.monotonic_s()
            await asyncio.wait({before})
            params = _shortened(params, round(1000 * (clock.monotonic_s() - since_s)))
        caller = self._caller
        if caller is None:
            return
        result = await self._server.engine.call(caller, method, params, (self, self._notify), arrived)
        if self._gone:
            self._server.engine.events.drop(self)  # what it has subscribed to since it left
            self._server.undelivered(caller, method, result)
        else:
            self._send(_encode({"jsonrpc": "2.0", "id": number, "result": result}) + b"\n")
        self._under_way -= 1
        if self._transport is not None and not self._gone:
            if self._under_way == MAX_UNDER_WAY - 1:
                self._transport.resume_reading()
            if self._closing and self._under_way == 0:
                self._transport.close()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _notify(self, event: dict[str, Any]) -> None:
        """An event of a subscription; one who does not read it is let go, as any other."""
        self._send(_encode({"jsonrpc": "2.0", "method": "event", "params": event}) + b"\n")

    def _refuse_envelope(self, number: int | str | None, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._send(_encode({"jsonrpc": "2.0", "id": number, "error": error}) + b"\n")

    def close(self) -> None:
        """Hang up when the daemon stops."""
        if self._transport is not None:
            self._transport.close()


def _envelope(
    envelope: Any,
) -> tuple[int | str | None, str, dict[str, Any], tuple[int, str] | None]:
    """Number, method and parameters of a request, or what is wrong with its envelope."""
    nothing: tuple[str, dict[str, Any]] = ("", {})
    if isinstance(envelope, list):
        return None, *nothing, (-32600, "no batches: one object a line")
    if not isinstance(envelope, dict):
        return None, *nothing, (-32600, "a request is an object")
    number = envelope.get("id")
    if not isinstance(number, int | str) or isinstance(number, bool):
        return None, *nothing, (-32600, "a request has an id, a number or a string (no notifications)")
    unknown = sorted(set(envelope) - {"jsonrpc", "id", "method", "params"})
    if envelope.get("jsonrpc") != "2.0" or unknown:
        wrong = f"unknown member {unknown[0]!r}" if unknown else 'jsonrpc must be "2.0"'
        return number, *nothing, (-32600, wrong)
    method, params = envelope.get("method"), envelope.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        return number, *nothing, (-32600, "method is a string and params an object")
    if method not in METHODS:
        return number, *nothing, (-32601, f"no method is called {method!r}; see rpc.discover")
    return number, method, params, None


def _shortened(params: dict[str, Any], waited_ms: int) -> dict[str, Any]:
    """The parameters with the time that the request has waited already taken off its deadline."""
    deadline_ms = params.get("deadline_ms")
    if not isinstance(deadline_ms, int) or isinstance(deadline_ms, bool) or deadline_ms < 0:
        return params
    return {**params, "deadline_ms": max(0, deadline_ms - waited_ms)}


def _device_of(params: dict[str, Any]) -> str | None:
    """The device a request names, for the order of its answers."""
    inner = params.get("params")
    if isinstance(inner, dict):
        return _device_of(inner)
    name = params.get("register") or params.get("device")
    several = params.get("registers")
    if name is None and several and isinstance(several, list | dict):
        name = next(iter(several))
    return name.partition(".")[0] if isinstance(name, str) else None


class Server:
    """Both sockets of one engine."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.directory = directory
        self.system_install = str(directory) == SYSTEM_DIRECTORY
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._bound: list[Path] = []

    async def listen(self) -> None:
        """Bind both sockets; the store's lock is held already, so a socket nobody answers on is stale.

        Raises:
            ServeError: the directory or a socket cannot be had.
        """
        try:
            self.directory.mkdir(mode=0o755 if self.system_install else 0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ServeError(f"the socket directory {self.directory} cannot be made: {error.strerror}") from error
        passed = activated(self.system_install)
        roles: tuple[Role, ...] = ("agent", "operator")
        for role in roles:
            if passed:
                if role not in passed:
                    raise ServeError(f"the service manager passed no socket for {role}s: {SOCKETS_HINT}")
                make_passed: Callable[[], Connection] = _maker(self, role)
                server = await asyncio.get_running_loop().create_unix_server(make_passed, sock=passed[role])
                self._servers.append(server)
                continue
            path = Path(socket_path(str(self.directory), role))
            bound = _bind(path, OPERATOR_GROUP if role == "operator" else AGENT_GROUP)
            self._bound.append(path)
            make: Callable[[], Connection] = _maker(self, role)
            self._servers.append(await asyncio.get_running_loop().create_unix_server(make, sock=bound, backlog=BACKLOG))

    def undelivered(self, caller: Caller, method: str, result: Result) -> None:
        """A reply that found nobody waits under its key; say so in the journal."""
        self.engine.metrics.undelivered.inc()
        if result.id is not None:
            daemon = self.engine.daemon
            body = daemon.body("undelivered", caller, None, method=method, key=result.key)
            op_id = result.id
            daemon.record(lambda conn: operations.note(conn, body, op_id))

    async def close(self) -> None:
        """Listen no more, answer what was asked, hang up."""
        for server in self._servers:
            server.close()
        self.engine.daemon.stopping = True
        while self.tasks:  # what came in meanwhile is answered too: as unavailable
            _, late = await asyncio.wait(set(self.tasks), timeout=30)
            if late:
                break
        for connection in list(self.connections):
            connection.close()
        for path in self._bound:  # and no other: another daemon's sockets may stand there
            path.unlink(missing_ok=True)


def _maker(server: Server, role: Role) -> Callable[[], Connection]:
    return lambda: Connection(server, role)


def _bind(path: Path, group: str) -> socket.socket:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ServeError(f"the socket path {path} has {len(os.fsencode(path))} bytes; the limit is {MAX_PATH_BYTES}")
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise ServeError(f"the socket {path} cannot be bound: {error.strerror}") from error
    finally:
        os.umask(before)
    # no such group here, or not ours to give: the role is decided by credentials anyway
    with contextlib.suppress(KeyError, PermissionError):
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    path.chmod(0o660)
    bound.listen(BACKLOG)
    bound.setblocking(False)
    return bound


def _remove_stale(path: Path) -> None:
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                path.unlink(missing_ok=True)
                return
            raise ServeError(f"{path} is in the way: {error.strerror}") from error
    raise ServeError(f"another daemon listens on {path}")


async def serve(
    board: Board,
    store_directory: Path,
    directory: Path,
    *,
    allow_unsafe: bool,
    read_only: bool = False,
    rehearsing: bool = False,
    reread: Callable[[], Board] | None = None,
) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Raises:
        StoreRefused: the store cannot be used.
        StoreFatal: the store failed while it was being started.
        ServeError: a socket cannot be had.
        OSError: a bus is in use or cannot be opened.
    """
    engine = await Engine.start(
        board,
        store_directory,
        Clock(),
        allow_unsafe=allow_unsafe,
        read_only=read_only,
        rehearsing=rehearsing,
        reread=reread,
    )
    loop = asyncio.get_running_loop()

    def fatal(error: BaseException) -> None:
        print(f"hwtool: the store failed: {error}; nothing more is sent, the daemon ends", file=sys.stderr, flush=True)
        # answer what can be answered, then end without closing the database: what it holds now may not be believed
        loop.call_soon_threadsafe(loop.call_later, FATAL_GRACE_S, os._exit, FATAL_EXIT)

    engine.daemon.store.on_fatal(fatal)
    server = Server(engine, directory)
    stop = asyncio.Event()
    background: list[asyncio.Task[None]] = []
    try:
        if board.metrics is not None:
            background.append(_export(engine, board.metrics))
        for told in give_back(board, store_directory):  # the store's lock says that no other daemon has them
            log.warning("%s", told)
        await server.listen()
        engine.render_journal(store_directory / "journal")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: engine.daemon.keep(_reload(engine)))
        notify_ready(f"{len(board.devices)} device(s) on {len(board.buses)} bus(es) of board {board.name}")
        if (period_s := watchdog_s()) is not None:
            background.append(loop.create_task(signs_of_life(period_s, engine.responds)))
        await stop.wait()
    finally:
        notify("STOPPING=1")
        for task in background:
            task.cancel()
        await server.close()
        await engine.close()
        if engine.wedged:
            os._exit(0)  # a thread hangs in its bus and cannot be ended; everything else is closed


async def _reload(engine: Engine) -> None:
    """SIGHUP: as `daemon.reload`; what became of it is logged."""
    operator = Caller(os.getuid(), "operator", "sighup-", engine.daemon.clock.wall_ns())
    result = await engine.call(operator, "daemon.reload", {})
    log.log(logging.INFO if result.ok else logging.ERROR, "reload: %s", result.summary)


def _export(engine: Engine, spec: MetricsSpec) -> asyncio.Task[None]:
    """Put the metrics where the board wants them.

    Raises:
        ServeError: the port cannot be had.
    """
    if spec.port is not None:
        from prometheus_client import start_http_server

        try:
            start_http_server(spec.port, addr="127.0.0.1", registry=engine.metrics.registry)
        except OSError as error:
            raise ServeError(f"metrics: port {spec.port} cannot be had: {error.strerror}") from error

    async def written() -> None:
        while spec.textfile is not None:
            try:
                engine.metrics.write(spec.textfile)
            except OSError as error:
                log.error("metrics cannot be written to %s: %s", spec.textfile, error.strerror)
            await asyncio.sleep(spec.interval_s)

    return asyncio.get_running_loop().create_task(written())


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Run `serve` on the fastest loop there is."""
    factory: Any = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass  # not on Linux: the built-in loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serving)


def default_store(directory: Path) -> Path:
    """Where the store is unless told: the system's place for the system install, else the user's state directory.

    Raises:
        ServeError: this user has no home.
    """
    if str(directory) == SYSTEM_DIRECTORY:
        return Path("/var/lib/hwtool")
    state = os.environ.get("XDG_STATE_HOME")
    if state:
        return Path(state) / "hwtool"
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        raise ServeError(f"uid {os.getuid()} has no home on this host: --store DIR") from error
    return home / ".local" / "state" / "hwtool"
