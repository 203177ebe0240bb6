"""A bus whose other side hangs up between two requests: who is there is looked at before an effect goes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hwtool_sim.bus import SimBus
from tests.hwtool.conftest import KEY, KEY2, Lab, Play, reg, toy_board

WHO = reg("WHO", 7, "reset = 0x42", "ro")
IDENTITY = "[identity]\nregister = 'WHO'\nequals = 0x42\n"


def test_effect_when_the_other_side_has_hung_up_then_identified_anew_before_it_is_sent(
    play: Play, tmp_path: Path, buses_are: Callable[[type[SimBus]], None]
) -> None:
    hung_up = [False]

    class HangsUp(SimBus):
        def alive(self) -> bool:
            return not hung_up[0]

        def open(self) -> None:
            hung_up[0] = False

    buses_are(HangsUp)

    async def life(lab: Lab) -> None:
        assert (await lab.ask("reg.write", register="toy.R", value=1, key=KEY)).ok
        returns, looks = lab.device().worker.returns, lab.reads("WHO")
        assert (await lab.ask("reg.write", register="toy.R", value=2, key="key-same")).ok
        assert (lab.device().worker.returns, lab.reads("WHO")) == (returns, looks)
        hung_up[0] = True
        assert (await lab.ask("reg.write", register="toy.R", value=3, key=KEY2)).ok
        assert (lab.device().worker.returns, lab.reads("WHO")) == (returns + 1, looks + 1)

    play(life, toy_board(tmp_path, reg("R", 0), WHO, IDENTITY))
