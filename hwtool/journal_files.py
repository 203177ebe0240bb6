"""The journal as files: one JSON-lines file for each device and UTC day, and a readable timeline of it.

Both are renderings of the audit chain, which alone is the truth: each line carries the row's sequence, its hash and
that of the row before, so that a file can be checked without the store. They are not synced row by row; what a crash
took is made again from the chain, from the last position that was. A file whose day is over is sealed: a last line says
what it holds, and nobody may write to it. A disk that does not take them stops nothing and loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from hwtool.clock import rfc3339
from hwtool.state import Daemon
from hwtool.timeline import timeline
from hwtool_contracts.errors import DomainError
from hwtool_store import audit
from hwtool_store.audit import ChainRow

POSITION: Final = ".position"  # no device can be called so, nor as the next: names are of a-z 0-9 _ -
OF_THE_DAEMON: Final = "+daemon"
MEMBERS: Final = frozenset({"seq", "op", "epoch", "at", "prev", "hash", "body"})
ROWS_A_POSITION: Final = 1000
TAIL_BYTES: Final = 1 << 14
NO_SEQ: Final = 1 << 63  # over all of them
RETRY_S: Final = 5.0
MARKDOWN: Final = str.maketrans({c: "\\" + c for c in "\\`*_[]<>#|"})
log = logging.getLogger(__name__)


@dataclass
class _Open:
    """A device's files of one day."""

    day: str
    lines: Path
    readable: Path


class JournalFiles:
    """Renders the chain into a directory, as it grows.

    Attributes:
        rows: rows rendered since the start, by what they tell.
    """

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self._daemon = daemon
        self._directory = directory
        self._open: dict[str, _Open] = {}
        self._seq = 0
        self._since_position = 0
        self._begun = False
        self.rows: Counter[str] = Counter()

    async def run(self) -> None:
        """Render what there is and what comes; never ends by itself, whatever the disk does."""
        while True:
            recorded = self._daemon.recorded
            try:
                if not self._begun:
                    await asyncio.to_thread(self._begin)  # reads every file: the daemon must not wait for it
                if not await self._page():
                    await recorded.wait()
            except OSError as error:
                log.error("the journal's files cannot be written, they will be made again: %s", error)
                self._begun = False
                await self._daemon.clock.sleep(RETRY_S)
            except DomainError:
                return  # the store has failed: the daemon ends

    async def finish(self) -> None:
        """Render what is left, and keep the position; what was never begun is made at the next start."""
        if not self._begun:
            return
        try:
            while await self._page():
                pass
            self._keep_position()
        except (OSError, DomainError) as error:
            log.error("the journal's files are behind, they are made again at the next start: %s", error)

    async def _page(self) -> int:
        rows = await self._daemon.ask(partial(audit.chain, after=self._seq, limit=audit.MAX_PAGE))
        for row in rows:
            for device in devices_of(row.body):
                self._write(device, row)
            self.rows[str(row.body["what"])] += 1
            self._seq = row.seq
        self._since_position += len(rows)
        if self._since_position >= ROWS_A_POSITION:
            self._keep_position()
        return len(rows)

    def _begin(self) -> None:
        """Go back to the last position that is durable; what stands behind it in the files is made again."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open.clear()
        try:
            store, seq = (self._directory / POSITION).read_text(encoding="ascii").split()
            known = store == str(self._daemon.store.store_id) and int(seq) <= self._daemon.store.seq
            self._seq = int(seq) if known else 0  # of another store, or of one that was set back since
        except (OSError, ValueError):
            self._seq = 0
        for place in sorted(self._directory.iterdir()):
            for file in sorted(place.glob("*.jsonl")) if place.is_dir() else ():
                self._cut(place.name, file)
        self._begun = True

    def _cut(self, device: str, file: Path) -> None:
        """Take from a file what is behind the position, or torn; what stands before the position is durable."""
        if _last_seq(file) <= self._seq:
            return
        kept, dropped = [], False
        for line in file.read_bytes().splitlines(keepends=True):
            told = _parsed(line)
            if told is None or ("sealed" not in told and told["seq"] > self._seq) or not line.endswith(b"\n"):
                dropped = True
            elif not dropped or "sealed" not in told:
                kept.append(line)
        readable = file.with_suffix(".md")
        rows = [r for r in kept if "sealed" not in (_parsed(r) or {})]
        if not rows:  # else what comes would be taken for later than its day
            file.unlink()
            readable.unlink(missing_ok=True)
        elif dropped:
            file.chmod(0o600)
            _replace(file, b"".join(rows))
            if readable.exists():
                readable.chmod(0o600)
            text = _heading(device, file.stem) + "".join(_readable(_parsed(r) or {}) for r in rows)
            _replace(readable, text.encode())

    def _write(self, device: str, row: ChainRow) -> None:
        day = rfc3339(int(row.body.get("at_ns", 0)))[:10]
        files = self._open.get(device)
        if files is None or day > files.day:
            if files is not None:
                self._seal(files)
                self._since_position += ROWS_A_POSITION  # a crash must not have to make the days before again
            files = self._files(device, day)
        told = line_of(row)
        with files.lines.open("ab") as lines:
            lines.write(json.dumps(told, separators=(",", ":"), ensure_ascii=True).encode() + b"\n")
        with files.readable.open("ab") as readable:
            readable.write(_readable(told).encode())

    def _files(self, device: str, day: str) -> _Open:
        """The files of a day; of a later one where that is sealed (the clock was set back)."""
        place = self._directory / device
        place.mkdir(mode=0o700, exist_ok=True)
        days = sorted(f.stem for f in place.glob("*.jsonl"))
        latest = days[-1] if days else day
        if latest > day:
            day = latest
        for older in days:
            if older < day:
                self._seal(_Open(older, place / f"{older}.jsonl", place / f"{older}.md"))
        made = _Open(day, place / f"{day}.jsonl", place / f"{day}.md")
        for file, text in ((made.lines, ""), (made.readable, _heading(device, day))):
            if not file.exists():
                with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as fresh:
                    fresh.write(text)
        self._open[device] = made
        return made

    def _seal(self, files: _Open) -> None:
        """The day is over: say what the file holds, and let nobody write to it."""
        parsed = (_parsed(line) for line in files.lines.read_bytes().splitlines())
        rows = [told for told in parsed if told is not None]  # a spoilt line is for `verify` to tell
        if not rows or "sealed" in rows[-1]:
            return
        seal = {"rows": len(rows), "first": rows[0]["seq"], "last": rows[-1]["seq"], "hash": rows[-1]["hash"]}
        with files.lines.open("ab") as lines:
            lines.write(json.dumps({"sealed": seal}, separators=(",", ":")).encode() + b"\n")
        for file in (files.lines, files.readable):
            _sync(file)
            file.chmod(0o440)

    def _keep_position(self) -> None:
        """Have everything rendered so far on disk, then the position."""
        for files in self._open.values():
            for file in (files.lines, files.readable):
                _sync(file)
            _sync(files.lines.parent)
        _sync(self._directory)
        _replace(self._directory / POSITION, f"{self._daemon.store.store_id} {self._seq}".encode())
        self._since_position = 0


def devices_of(body: dict[str, Any]) -> list[str]:
    """The devices whose files a row belongs to; those of the daemon itself have a place of their own."""
    if body.get("device"):
        return [str(body["device"])]
    return [str(d) for d in body.get("devices") or []] or [OF_THE_DAEMON]


def line_of(row: ChainRow) -> dict[str, Any]:
    """A row as its line tells it: everything that its hash is made of, and the hash."""
    return {
        "seq": row.seq,
        "op": row.op_id,
        "epoch": row.epoch,
        "at": rfc3339(int(row.body.get("at_ns", 0))),
        "prev": row.prev.hex(),
        "hash": row.hash.hex(),
        "body": row.body,
    }


def _heading(device: str, day: str) -> str:
    name = "the daemon" if device == OF_THE_DAEMON else device
    return f"# {name}, {day} (UTC)\n\n"


def _readable(told: dict[str, Any]) -> str:
    entry = {"seq": told["seq"], "op": told["op"], "at": told["at"], **told["body"]}
    return "- " + timeline(entry).strip().translate(MARKDOWN) + "\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    if "sealed" in told:
        return told if isinstance(told["sealed"], dict) and len(told) == 1 else None
    seq = told.get("seq")
    return told if isinstance(seq, int) and not isinstance(seq, bool) and 0 < seq < 1 << 63 else None


def _last_seq(file: Path) -> int:
    """The sequence that a file ends with, by its last line alone; more than any if that is torn or missing."""
    with file.open("rb") as lines:
        start = lines.seek(0, os.SEEK_END)
        tail = b""
        while start > 0 and b"\n" not in tail[:-1]:
            step = min(start, TAIL_BYTES)
            start = lines.seek(start - step)
            tail = lines.read(step) + tail
    told = _parsed(tail.splitlines()[-1]) if tail.endswith(b"\n") else None
    last = (told or {}).get("seq") if "sealed" not in (told or {}) else (told or {})["sealed"].get("last")
    return last if isinstance(last, int) else NO_SEQ


def _replace(file: Path, data: bytes) -> None:
    """A file with this content or the one before, whatever happens; durable."""
    beside = file.with_name(file.name + ".new")
    with os.fdopen(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as fresh:
        fresh.write(data)
        fresh.flush()
        os.fsync(fresh.fileno())
    beside.replace(file)
    _sync(file.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def faults_of(paths: list[Path], *, whole: bool = True) -> tuple[int, list[str]]:
    """How many rows some files hold, and everything about them that does not fit; needs neither daemon nor store.

    Each row's hash is made anew; rows that follow each other must name each other's hash; the sequences of all files
    together must have no gap, where they are all (`whole`); a sealed file must hold what its seal says and nothing
    after it. That the newest rows were cut off, only the store can tell.
    """
    faults: list[str] = []
    known: dict[int, tuple[str, str]] = {}
    for path in paths:
        rows = 0
        first = last = 0
        digest = ""
        sealed = False
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            told = _parsed(line)
            if told is None:
                faults.append(f"{path}:{number}: not a line of the journal")
                continue
            if sealed:
                faults.append(f"{path}:{number}: a line behind the seal")
            if "sealed" in told:
                sealed = True
                if told["sealed"] != {"rows": rows, "first": first, "last": last, "hash": digest}:
                    wrong = f"the seal tells {told['sealed'].get('rows')} row(s), {rows} are there"
                    faults.append(f"{path}:{number}: {wrong}, or others than it names")
            else:
                rows += 1
                faults += [f"{path}:{number}: {why}" for why in _faults_of_row(told, last, known)]
                if whole and path.parent.name not in devices_of(told["body"] if isinstance(told["body"], dict) else {}):
                    faults.append(f"{path}:{number}: row {told['seq']} is of another device")
                first, last, digest = first or told["seq"], told["seq"], told.get("hash", "")
    for seq in sorted(known):
        before = known.get(seq - 1)
        if before is not None and known[seq][0] != before[1]:
            faults.append(f"row {seq} does not follow row {seq - 1}")
    gaps = [(one + 1, other - one - 1) for one, other in pairwise(sorted(known)) if other - one > 1]
    if gaps and whole:
        faults.append(f"{sum(count for _, count in gaps)} row(s) are missing, the first is {gaps[0][0]}")
    return len(known), faults


def _faults_of_row(told: dict[str, Any], last: int, known: dict[int, tuple[str, str]]) -> list[str]:
    try:
        seq, prev, shown = int(told["seq"]), str(told["prev"]), str(told["hash"])
        made = audit.row_hash(bytes.fromhex(prev), seq, told["op"], int(told["epoch"]), audit.text_of(told["body"]))
        at = rfc3339(int(told["body"].get("at_ns", 0)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return ["a row without its members"]
    if told.keys() != MEMBERS or told["at"] != at:
        return [f"row {seq} says what its hash does not cover"]
    found = [] if made.hex() == shown else [f"row {seq} is not what its hash was made of"]
    found += [f"row {seq} stands behind row {last}"] if seq <= last else []
    if known.setdefault(seq, (prev, shown)) != (prev, shown):
        found.append(f"row {seq} is told twice, differently")
    return found


def start(daemon: Daemon, directory: Path) -> tuple[JournalFiles, asyncio.Task[None]]:
    """Begin to render the chain of a running daemon."""
    files = JournalFiles(daemon, directory)
    return files, asyncio.get_running_loop().create_task(files.run())
