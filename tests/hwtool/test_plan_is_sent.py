"""What a plan shows is, byte for byte, what the same request then sends, and what a plan refuses is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwtool.config import Board, load_board
from hwtool_contracts.library import bundled
from hwtool_contracts.messages import Result
from tests.hwtool.conftest import Lab, Play, code_of

UNMEASURED = True

CHIPS = {"mcp23017": 0x20, "sc16is750": 0x48, "tmp102": 0x49, "ds3231": 0x68, "pca9546": 0x70, "bme280": 0x76}
CHIPS |= {"mpu6050": 0x69, "pcf8574": 0x21, "sht3x": 0x44, "ltc3880": 0x5B}
SAFE = {
    "mcp23017": "safe_state = [{ register = 'OLATA', value = 0 }, { register = 'OLATB', value = 0xFF }]",
}
REGISTERS = {name: list(bundled(name).registers.values()) for name in CHIPS}
PLACES = [(chip, register) for chip, registers in REGISTERS.items() for register in registers]
Asked = tuple[str, dict[str, Any]]


def menagerie(directory: Path) -> Board:
    """Chips of every kind that sit on one I2C bus, none of which needs a person."""
    text = "name = 'menagerie'\napproval_mode = 'self'\n[buses.b]\nkind = 'sim'\nsole_master = true\n"
    for chip, address in CHIPS.items():
        more = SAFE.get(chip, "")
        text += f"[devices.{chip}]\ncontract = '{chip}'\nbus = 'b'\naddress = {address}\n{more}\n"
    (directory / "board.toml").write_text(text)
    return load_board(directory / "board.toml")


@st.composite
def step(draw: st.DrawFn) -> Asked:
    """A write, an update or an effectful read of any register of any chip, with a value that may well be refused."""
    chip, register = draw(st.sampled_from(PLACES))
    name = f"{chip}.{register.name}"
    kinds = ["reg.write", "reg.read_effectful"] + (["reg.update"] * 2 if register.fields else [])
    match draw(st.sampled_from(kinds)):
        case "reg.update":
            fields = [f for f in register.fields.values() if f.access.writable] or list(register.fields.values())
            chosen = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=3, unique_by=lambda f: f.name))
            return "reg.update", {
                "register": name,
                "fields": {f.name: draw(st.integers(0, (1 << f.width_bits) - 1)) for f in chosen},
            }
        case "reg.read_effectful":
            return "reg.read_effectful", {"register": name}
        case _:
            return "reg.write", {"register": name, "value": draw(st.integers(0, register.mask))}


def as_step(asked: Asked) -> dict[str, Any]:
    """The same as a step of a sequence."""
    method, params = asked
    return {"do": method.removeprefix("reg."), **params}


REQUESTS = st.one_of(
    step(),
    step(),
    st.lists(step(), min_size=2, max_size=3).map(lambda s: ("sequence.run", {"steps": [as_step(one) for one in s]})),
    st.sampled_from([("device.safe_state", {"device": chip}) for chip in sorted(SAFE)]),
)


def shown(planned: Result) -> list[tuple[str, dict[str, Any]]]:
    """The transfers of a plan with their roles, as the bus's log has them."""
    told = []
    for transfer in planned.transfers or []:
        plain = {k: v for k, v in transfer.items() if k not in ("role", "register")}
        told.append((transfer["role"], plain))
    return told


def holds_in_a_row(log: list[Any], wanted: list[Any]) -> bool:
    """Whether some transfers stand in a log side by side."""
    return any(log[n : n + len(wanted)] == wanted for n in range(len(log) - len(wanted) + 1))


async def check(lab: Lab, asked: Asked, key: str) -> str:
    """Plan a request, make it, and compare; answers what became of it."""
    method, params = asked
    planned = await lab.ask("reg.plan", method=method, params=params)
    before = len(lab.sent("mcp23017"))
    if any(w.startswith("needs_approval") for w in planned.warnings):
        assert (await lab.ask(method, **params, key=key)).status == "pending_approval"
        return "pending"
    done = await lab.ask(method, **params, key=key)
    log = lab.sent("mcp23017")[before:]
    if not planned.ok:
        assert code_of(done) == code_of(planned), (asked, done.error, planned.error)
        return "refused"
    if code_of(done) in ("denied", "rate_limited"):
        return "refused"
    plan = shown(planned)
    accesses = [t for role, t in plan if role == "access" and t["do"] != "read"]
    if method != "sequence.run":
        assert holds_in_a_row(log, [t for _, t in plan]), (asked, plan, log)
    elif done.ok:
        moved = any(w.startswith("depends_on_earlier") for w in planned.warnings)  # then the plan says it may differ
        rest = iter(log)
        wanted = [t for role, t in plan if role != "select" or not moved]
        assert all(any(one == t for one in rest) for t in wanted), (asked, plan, log)
    for transfer in accesses if done.ok else []:
        assert log.count(transfer) == accesses.count(transfer), (asked, transfer, log)
    return "done" if done.ok else "stopped"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(REQUESTS, min_size=1, max_size=6))
def test_plan_when_the_request_is_made_then_exactly_these_transfers_and_each_effect_once(asked: list[Asked]) -> None:
    with tempfile.TemporaryDirectory(prefix="hw-") as name:
        directory = Path(name)

        async def life(lab: Lab) -> None:
            for number, one in enumerate(asked):
                await check(lab, one, f"key-plan-{number:04}")

        Play(directory)(life, menagerie(directory))
