"""After an accepted rollback every device of the board starts held, also one that the older store does not know."""

from __future__ import annotations

from pathlib import Path

from hwtool_store.rollback import HOLD_ALL
from tests.hwtool.conftest import KEY, Lab, Play, code_of, error_of, reg, toy_board

TWO = "[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n"
WHY = "an older store was accepted by uid:0: the disk was replaced"


def test_start_when_an_older_store_was_accepted_then_unknown_devices_are_held_too_and_only_once(
    play: Play, tmp_path: Path
) -> None:
    async def before(lab: Lab) -> None:
        await lab.daemon.ask(lambda conn: conn.execute("INSERT INTO meta(k, v) VALUES(?,?)", (HOLD_ALL, WHY)))

    async def after(lab: Lab) -> None:
        for name in ("toy", "two"):
            held = await lab.ask("reg.write", register=f"{name}.R", value=1, key=KEY)
            assert (code_of(held), WHY in error_of(held)["message"]) == ("held", True), name
            assert (await lab.ask("reg.read", registers=[f"{name}.R"])).ok
            assert (await lab.operator("device.release", device=name, reason="looked")).ok
        assert (await lab.ask("reg.write", register="two.R", value=1, key=KEY)).verdict == "applied"

    async def later(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.R", value=1, key="key-later-1")).verdict == "applied"

    play(before, toy_board(tmp_path, reg("R", 0)))
    for life in (after, later):
        play(life, toy_board(tmp_path, reg("R", 0), device=TWO))
