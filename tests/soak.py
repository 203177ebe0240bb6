"""A soak: many callers at one daemon, random faults, restarts and kills; at the end everybody must tell the same story.

`python -m tests.soak --seconds 1800 --seed 7` is the long one, a short one is in the gate. The chips are in a simulator
process of their own and count what they execute. What must hold at the end: the devices' counters, the journal with its
database, and what each caller was told agree; a key that was told an outcome is told the same one for ever.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hwtool.connection import Connection
from hwtool.losses import ConnectionLost, NoDaemon
from hwtool.session import ProtocolError
from hwtool_contracts.errors import parse
from hwtool_sim.process import SimConnection
from tests.hwtool.conftest import DEFAULTS, I2C, effect, reg
from tests.running import RunningDaemon, RunningSimulator

CONTRACT: Final = (
    I2C
    + DEFAULTS
    + reg("A", 0)
    + reg("B", 1)
    + reg("FIFO", 2, effect("pop"), "ro")
    + reg("FLAGS", 3, effect("clear"), "ro")
    + reg("BLIND", 4, access="wo")
    + reg("W1C", 5, "write = { effect = 'one_to_clear', provenance = 'generated' }")
)
BOARD: Final = """
name = "soak"
approval_mode = "self"
[buses.b]
kind = "sim"
socket = "{folder}/sim"
sole_master = true
response_ms = 100
reply_lifetime_ms = 60
transfer_limit_ms = 2000
[devices.one]
contract = "{folder}/toy.toml"
bus = "b"
address = 0x20
safe_state = [{{ register = "A", value = 0 }}]
[devices.two]
contract = "{folder}/toy.toml"
bus = "b"
address = 0x21
safe_state = [{{ register = "A", value = 0 }}]
"""
CALLERS: Final = 6
FAULTS: Final = ("request_lost", "reply_lost", "nack", "truncated", "corrupted", "reset", "foreign", "duplicated")
FINAL: Final = ("applied", "satisfied", "not_applied", "partial", "lost", "superseded", "abandoned", "denied")


@dataclass
class Told:
    """What the callers were told.

    Attributes:
        outcomes: verdict and effects of each key that was told an end.
        wrong: what must not be.
    """

    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, key: str, result: dict[str, Any]) -> None:
        """A result that somebody was given."""
        error = result.get("error")
        with self.lock:
            self.counted[error["code"] if error else result["status"]] += 1
            if error is not None and parse(error) is None:
                self.wrong.append(f"{key}: a malformed error {error}")
            if error is not None and error["code"] == "internal":
                self.wrong.append(f"{key}: {error['message']}")
            verdict = result.get("verdict")
            if verdict not in FINAL or result.get("durable") is False:
                return
            told = (verdict, result["effects"])
            before = self.outcomes.setdefault(key, told)
            if before != told:
                self.wrong.append(f"{key}: was told {before}, then {told}")


def requests(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """One request that somebody may make."""
    device = chance.choice(("one", "two"))
    match chance.randrange(8):
        case 0 | 1:
            return "reg.read", {"registers": [f"{device}.{chance.choice('AB')}"]}
        case 2 | 3:
            return "reg.write", {"register": f"{device}.{chance.choice(('A', 'B'))}", "value": chance.randrange(256)}
        case 4:
            return "reg.write", {"register": f"{device}.{chance.choice(('BLIND', 'W1C'))}", "value": 1}
        case 5:
            return "reg.read_effectful", {"register": f"{device}.{chance.choice(('FIFO', 'FLAGS'))}"}
        case 6:
            steps = [{"do": "write", "register": f"{device}.A", "value": chance.randrange(256)} for _ in range(2)]
            return "sequence.run", {"steps": steps}
        case _:
            return "device.safe_state", {"device": device}


def caller(number: int, daemon: RunningDaemon, until_s: float, seed: int, told: Told, pause_s: float) -> None:
    """Ask, remember what was told, and ask again under the same key now and then."""
    chance = random.Random(seed * 1000 + number)
    keys: list[tuple[str, str, dict[str, Any]]] = []
    count = 0
    while time.monotonic() < until_s:
        try:
            with daemon.client() as client:
                while time.monotonic() < until_s:
                    if keys and chance.random() < 0.3:
                        method, key, params = chance.choice(keys)
                    else:
                        method, params = requests(chance)
                        count += 1
                        key = f"soak-{number}-{count:06}"
                        if method != "reg.read":
                            keys.append((method, key, params))
                    if method == "reg.read":
                        told.hear(key, client.ask(method, params))
                    else:
                        told.hear(key, client.ask(method, params | {"key": key, "deadline_ms": 3000}))
                    time.sleep(chance.random() * pause_s)
        except (ConnectionLost, NoDaemon, ProtocolError, OSError):
            time.sleep(0.05)


def settler(daemon: RunningDaemon, until_s: float, seed: int, told: Told) -> None:
    """A person: settles what is unknown, so that the devices are not held for ever."""
    chance = random.Random(seed)
    while time.monotonic() < until_s:
        try:
            with daemon.client("operator") as client:
                while time.monotonic() < until_s:
                    _settle(client, chance, told)
                    time.sleep(0.2)
        except (ConnectionLost, NoDaemon, ProtocolError, OSError):
            time.sleep(0.05)


def _settle(client: Connection, chance: random.Random, told: Told) -> None:
    for entry in client.ask("journal.read", {"limit": 100}).get("entries") or []:
        if entry["what"] != "unknown" or entry["op"] is None:
            continue
        found = client.ask("op.get", {"id": entry["op"], "verify": True})
        if (found.get("op") or {}).get("state") == "UNKNOWN" and chance.random() < 0.5:
            settled = {"id": entry["op"], "verdict": "abandoned", "reason": "the soak's person gave up"}
            told.hear("settle", client.ask("op.settle", settled) | {"verdict": None})


def disturber(simulator: Path, until_s: float, seed: int, counted: Counter[str]) -> None:
    """Plans faults on the chips while they are at work."""
    chance = random.Random(seed)
    line = SimConnection(str(simulator))
    try:
        while time.monotonic() < until_s:
            kind = chance.choice(FAULTS)
            fault: dict[str, Any] = {"kind": kind, "address": chance.choice((0x20, 0x21))}
            if kind == "foreign":
                fault |= {"register": "B", "value": chance.randrange(256)}
            elif kind != "reset":
                fault |= {"access": chance.choice(("read", "write"))}
            line.ask({"control": "fault", "bus": "b", "fault": fault})
            counted[kind] += 1
            time.sleep(chance.random() * 0.4)
    finally:
        line.close()


def soak(seconds: float, seed: int, pause_s: float = 0.01) -> tuple[Told, Counter[str], int]:
    """Run one soak; answers what was told, the faults planned and the kills. An AssertionError where it ends badly.

    Args:
        pause_s: the longest that a caller thinks between two requests.
    """
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "toy.toml").write_text(CONTRACT)
        text = BOARD.format(folder=folder)
        (folder / "board.toml").write_text(text)
        told, faults, killed = Told(), Counter[str](), 0
        until_s = time.monotonic() + seconds
        chance = random.Random(seed)
        with (
            RunningSimulator(folder / "board.toml", "--socket", str(folder / "sim")),
            RunningDaemon(text) as daemon,
        ):
            threads = [
                threading.Thread(target=caller, args=(n, daemon, until_s, seed, told, pause_s)) for n in range(CALLERS)
            ]
            threads.append(threading.Thread(target=settler, args=(daemon, until_s, seed + 1, told)))
            threads.append(threading.Thread(target=disturber, args=(folder / "sim", until_s, seed + 2, faults)))
            for thread in threads:
                thread.start()
            while time.monotonic() < until_s - 5:
                time.sleep(min(5 + 5 * chance.random(), max(0.1, until_s - 5 - time.monotonic())))
                daemon.kill()
                killed += 1
                daemon.start()
            for thread in threads:
                thread.join()
            _replay(daemon, told)
            daemon.must_agree(folder / "sim")
            daemon.start()  # for its own end
        assert told.wrong == [], told.wrong[:10]
        return told, faults, killed


def _replay(daemon: RunningDaemon, told: Told) -> None:
    """Every key that was told an end is told the same one now."""
    with daemon.client() as client:
        for key in list(told.outcomes):
            told.hear(key, client.ask("op.get", {"key": key}))


def main() -> None:
    """The long soak."""
    parser = argparse.ArgumentParser(prog="tests.soak")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    told, faults, killed = soak(arguments.seconds, arguments.seed)
    print(f"{sum(told.counted.values())} answers, {len(told.outcomes)} keys with an end, 0 told otherwise later")
    print(f"{sum(faults.values())} faults planned, {killed} kills; counters, journal and callers agree")
    for code, count in told.counted.most_common():
        print(f"  {code}: {count}")


if __name__ == "__main__":
    main()
