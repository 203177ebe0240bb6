"""Fuzzing the sockets: raw bytes, broken envelopes, odd members, half-open and vanishing clients, many at once.

`python -m tests.fuzz_socket --connections 10000 --seed 3` is the long one, a short one is in the gate. What must hold:
the daemon lives, answers each whole request that was asked for, keeps no file descriptor and no memory of those that
are gone, and executes nothing without a record.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hwtool_contracts.messages import METHODS
from tests.running import RunningDaemon

ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    "",
    "x" * 5000,
    "gpio.OLATA",
    "toy",
    "\u202e\x00",
    [],
    {},
    [[]],
    {"a": {"b": [1, None]}},
)
RAW: Final = (
    b"\n\n\n",
    b"{\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff\xfe\x00\n",
    b'{"jsonrpc":"2.0","id":1}\n',
    b'[{"jsonrpc":"2.0","id":1,"method":"describe"}]\n',
    b'{"jsonrpc":"2.0","id":null,"method":"describe"}\n',
    b"[" * 100_000 + b"\n",
    b'"' + b"a" * 70_000,
)


@dataclass
class Found:
    """What came of it."""

    counted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def request(chance: random.Random, number: int) -> bytes:
    """A whole request with something odd in it; its id is `number`."""
    method = chance.choice(sorted(METHODS))
    names = list(METHODS[method].params.__struct_fields__)
    params: dict[str, Any] = {}
    for name in chance.sample(names, chance.randint(0, len(names))):
        params[name] = chance.choice(ODD)
    if "key" in names and chance.random() < 0.7:
        params["key"] = f"fuzz-{number:08}"
    if "register" in names and chance.random() < 0.5:
        params["register"] = chance.choice(("gpio.OLATA", "uart.RHR", "gpio", "gpio.NOPE", "."))
    if chance.random() < 0.1:
        params[chance.choice(("colour", "", "params"))] = chance.choice(ODD)
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def one(path: Path, chance: random.Random, number: int, found: Found) -> None:
    """One connection that does something odd."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(20)
    try:
        line.connect(str(path))
        how = chance.randrange(6)
        if how == 0:
            line.sendall(chance.choice(RAW))
            found.counted["raw"] += 1
        elif how == 1:
            line.sendall(chance.randbytes(chance.randint(1, 3000)))
            found.counted["noise"] += 1
        elif how == 2:
            text = request(chance, number)
            line.sendall(text[: chance.randint(1, len(text) - 1)])
            found.counted["half a request"] += 1
        elif how == 3:
            line.sendall(b"".join(request(chance, number + i) for i in range(chance.randint(1, 30))))
            found.counted["gone before the answer"] += 1
        else:
            _whole(line, chance, number, found)
    except (BrokenPipeError, ConnectionResetError):
        found.counted["hung up on"] += 1  # what it sent was no request
    except TimeoutError:
        found.wrong.append(f"connection {number}: no answer within 20 s")
    finally:
        line.close()


def _whole(line: socket.socket, chance: random.Random, number: int, found: Found) -> None:
    """Whole requests, each of which must be answered, also after the client has said all."""
    count = chance.randint(1, 10)
    line.sendall(b"".join(request(chance, number * 100 + i) for i in range(count)))
    if chance.random() < 0.5:
        line.shutdown(socket.SHUT_WR)
    answered: set[int] = set()
    data = b""
    while len(answered) < count:
        got = line.recv(1 << 16)
        if not got:
            break
        data += got
        *lines, data = data.split(b"\n")
        for text in lines:
            told = json.loads(text)
            if told.get("method") == "event":
                continue
            answered.add(told["id"])
            error = (told.get("result") or {}).get("error") or {}
            found.counted[error.get("code") or ("refused envelope" if "error" in told else "answered")] += 1
            if error.get("code") == "internal":
                found.wrong.append(f"{told['id']}: {error['message']}")
    if len(answered) < count:
        found.wrong.append(f"connection {number}: {count - len(answered)} of {count} requests were not answered")


def grown(process: int) -> tuple[int, int]:
    """Open file descriptors and resident kilobytes of a process."""
    files = len(list(Path(f"/proc/{process}/fd").iterdir()))
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return files, int(resident.split()[1])


def fuzz(connections: int, seed: int) -> tuple[Found, dict[str, tuple[int, int]]]:
    """Run it; answers what came of it, and what the daemon had open before and after."""
    chance, found = random.Random(seed), Found()
    with RunningDaemon() as daemon:
        assert daemon.process is not None
        path = daemon.sockets / "agent.sock"
        for number in range(min(200, connections // 4)):  # what is loaded once is loaded by then
            one(path, chance, number + 1, found)
        before = grown(daemon.process.pid)
        for number in range(connections):
            one(path, chance, 100_000 + number, found)
        deadline_s = time.monotonic() + 20
        while (after := grown(daemon.process.pid))[0] > before[0] and time.monotonic() < deadline_s:
            time.sleep(0.1)
        with daemon.client() as client:
            assert client.ask("describe")["ok"]
        daemon.must_agree()  # nothing was executed without a record
        daemon.start()
    if after[0] > before[0]:
        found.wrong.append(f"{after[0] - before[0]} file descriptor(s) were left behind")
    return found, {"before": before, "after": after}


def main() -> None:
    """The long one."""
    parser = argparse.ArgumentParser(prog="tests.fuzz_socket")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found, memory = fuzz(arguments.connections, arguments.seed)
    print(f"{arguments.connections} connections, {len(found.wrong)} wrong; (descriptors, kB): {memory}")
    for what, count in found.counted.most_common():
        print(f"  {what}: {count}")
    for wrong in found.wrong[:20]:
        print(f"  WRONG {wrong}")
    raise SystemExit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
