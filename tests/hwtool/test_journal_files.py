"""The journal's files: renderings of the chain, made again after a crash, sealed, and checked without the store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwtool.journal_files import NO_SEQ, JournalFiles, _last_seq, faults_of
from tests.hwtool.conftest import KEY, KEY2, KEY3, FakeClock, Lab, Play, reg, toy_board, until

DAY_NS = 86_400 * 1_000_000_000
PARTS = (reg("A", 0), reg("SECRET", 1, "sensitive = true"), reg("PIN", 2, "confidential = true"))


def lines(directory: Path, device: str = "toy") -> list[dict[str, Any]]:
    """The lines of a device, of all days."""
    files = sorted((directory / device).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def write(lab: Lab, value: int, key: str, register: str = "A") -> None:
    assert (await lab.operator("reg.write", register=f"toy.{register}", value=value, key=key)).ok


def rendering(directory: Path) -> dict[Path, bytes]:
    """Everything that is rendered."""
    return {f: f.read_bytes() for f in directory.rglob("*.*") if f.suffix in (".jsonl", ".md")}


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.jsonl"))


async def rendered(lab: Lab, directory: Path) -> JournalFiles:
    """The journal's files as they are when everything is rendered."""
    made = JournalFiles(lab.daemon, directory)
    made._begin()
    await made.finish()
    return made


def test_files_when_something_happened_then_each_row_with_its_hash_and_a_line_to_read(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 5, KEY)
        await lab.operator("daemon.freeze", reason="look | here `now`")
        made = await rendered(lab, tmp_path / "j")
        told = lines(tmp_path / "j")
        assert [line["body"]["what"] for line in told] == ["intent", "outcome"]
        assert [line["body"]["what"] for line in lines(tmp_path / "j", "+daemon")] == ["freeze"]
        (readable,) = (tmp_path / "j" / "toy").glob("*.md")
        text = readable.read_text()
        assert text.startswith("# toy, 2023-11-14 (UTC)\n\n- ")
        assert text.count("\n- ") == 2
        (frozen,) = (tmp_path / "j" / "+daemon").glob("*.md")
        assert "look \\| here \\`now\\`" in frozen.read_text()
        assert made.rows == {"intent": 1, "outcome": 1, "freeze": 1}
        assert faults_of(files(tmp_path / "j")) == (3, [])

    play(life, toy_board(tmp_path, *PARTS))


def test_files_when_a_sequence_is_of_several_devices_then_in_the_files_of_each(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        steps = [{"do": "write", "register": f"{name}.A", "value": 1} for name in ("toy", "two")]
        assert (await lab.ask("sequence.run", steps=steps, key=KEY)).ok
        await rendered(lab, tmp_path / "j")
        kinds = [[line["body"].get("kind") for line in lines(tmp_path / "j", name)] for name in ("toy", "two")]
        assert [k.count("sequence") for k in kinds] == [2, 2]
        assert [len(k) for k in kinds] == [4, 4]
        assert faults_of(files(tmp_path / "j")) == (6, [])

    play(
        life, toy_board(tmp_path, *PARTS, device="[devices.two]\ncontract = './toy.toml'\nbus = 'b'\naddress = 0x21\n")
    )


def test_files_when_values_are_secret_then_not_in_them(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 0xC7, KEY, "SECRET")
        await write(lab, 0xC9, KEY2, "PIN")
        await rendered(lab, tmp_path / "j")
        everything = "".join(f.read_text() for f in (tmp_path / "j").rglob("*") if f.is_file())
        words = set(re.findall(r"\w+", everything))  # whole words: digits stand inside times and hashes by chance
        assert {"0xc7", "0xc9", "0xC7", "0xC9", "199", "201", "c7", "c9"} & words == set()
        assert "redacted" in words

    play(life, toy_board(tmp_path, *PARTS))


def test_files_when_a_crash_took_what_was_not_synced_then_made_again_the_same(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        await rendered(lab, tmp_path / "j")
        await write(lab, 2, KEY2)
        made = JournalFiles(lab.daemon, tmp_path / "j")
        made._begin()
        await made._page()  # rendered, and the position not kept: as a kill leaves it
        whole = rendering(tmp_path / "j")
        position = (tmp_path / "j" / ".position").read_bytes()
        (lines_file,) = files(tmp_path / "j")
        torn = lines_file.read_bytes()
        for kept in (torn[:-1], torn[:-40], torn + b'{"seq": 99', torn[: torn.rindex(b"\n", 0, -1) + 1]):
            lines_file.write_bytes(kept)
            await rendered(lab, tmp_path / "j")
            assert rendering(tmp_path / "j") == whole
            (tmp_path / "j" / ".position").write_bytes(position)

    play(life, toy_board(tmp_path, *PARTS))


def test_files_when_they_are_gone_then_made_again_from_the_chain(play: Play, tmp_path: Path) -> None:
    import shutil

    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        await rendered(lab, tmp_path / "j")
        before = lines(tmp_path / "j")
        shutil.rmtree(tmp_path / "j")
        await rendered(lab, tmp_path / "j")
        assert lines(tmp_path / "j") == before

    play(life, toy_board(tmp_path, *PARTS))


def test_files_when_a_day_is_over_then_sealed_and_a_clock_set_back_writes_to_the_newest(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        lab.clock.wall += DAY_NS
        await write(lab, 2, KEY2)
        made = await rendered(lab, tmp_path / "j")
        first, second = files(tmp_path / "j")
        assert (first.stem, second.stem) == ("2023-11-14", "2023-11-15")
        seal = json.loads(first.read_text().splitlines()[-1])["sealed"]
        assert (seal["rows"], seal["first"], seal["last"], first.stat().st_mode & 0o777) == (2, 1, 2, 0o440)
        lab.clock.wall -= DAY_NS
        await write(lab, 3, KEY3)
        await made.finish()
        assert [line["seq"] for line in map(json.loads, second.read_text().splitlines())] == [3, 4, 5, 6]
        assert faults_of(files(tmp_path / "j")) == (6, [])
        await rendered(lab, tmp_path / "j")  # and a start with sealed files changes nothing
        assert faults_of(files(tmp_path / "j")) == (6, [])

    play(life, toy_board(tmp_path, *PARTS))


def test_files_when_one_of_an_older_day_was_spoilt_then_a_start_leaves_it_for_verify_to_tell(
    play: Play, tmp_path: Path
) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        lab.clock.wall += DAY_NS
        await write(lab, 2, KEY2)
        await rendered(lab, tmp_path / "j")
        first, _ = files(tmp_path / "j")
        first.chmod(0o600)
        spoilt = first.read_bytes().replace(b'{"seq":1', b'#"seq":1', 1)
        first.write_bytes(spoilt)
        await rendered(lab, tmp_path / "j")
        assert first.read_bytes() == spoilt
        assert "not a line of the journal" in faults_of(files(tmp_path / "j"))[1][0]

    play(life, toy_board(tmp_path, *PARTS))


def test_files_when_the_last_line_is_long_then_found_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    for text, last in (
        (b"", NO_SEQ),
        (b'{"seq":7}\n', 7),
        (b'{"seq":7}\n{"seq":8,"x":"%s"}\n' % (b"y" * 50_000), 8),
        (b'{"seq":7}\n{"seq":8}', NO_SEQ),
        (b'{"seq":7}\n{"sealed":{"last":7}}\n', 7),
        (b'{"seq":7}\nnonsense\n', NO_SEQ),
    ):
        file.write_bytes(text)
        assert _last_seq(file) == last, text[:30]


def test_files_when_the_disk_does_not_take_them_then_nothing_else_stops_and_they_are_made_later(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(lab: Lab) -> None:
        full = [True]
        real = JournalFiles._write

        def write_row(made: JournalFiles, device: str, row: Any) -> None:
            if full[0]:
                raise OSError(28, "No space left on device")
            real(made, device, row)

        monkeypatch.setattr(JournalFiles, "_write", write_row)
        lab.engine.render_journal(tmp_path / "j")
        await write(lab, 1, KEY)
        await write(lab, 2, KEY2)
        full[0] = False
        await until(lambda: len(files(tmp_path / "j")) == 1 and len(lines(tmp_path / "j")) == 4)
        assert faults_of(files(tmp_path / "j")) == (4, [])

    play(life, toy_board(tmp_path, *PARTS))


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


SPOILT: dict[str, tuple[Callable[[str], str], str]] = {
    "a word": (lambda t: changed(t, '"intent"', '"indent"'), "is not what its hash was made of"),
    "a number": (lambda t: changed(t, '"seq":2', '"seq":3'), "is not what its hash was made of"),
    "a row gone": (lambda t: "".join(t.splitlines(keepends=True)[:1] + t.splitlines(keepends=True)[2:]), "missing"),
    "an order": (lambda t: "".join(reversed(t.splitlines(keepends=True))), "stands behind"),
    "a half line": (lambda t: t[:-20], "not a line of the journal"),
    "a member gone": (lambda t: changed(t, '"prev"', '"perv"'), "without its members"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_verify_when_a_file_was_spoilt_then_it_is_found(play: Play, tmp_path: Path, name: str) -> None:
    spoil, wanted = SPOILT[name]

    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        await write(lab, 2, KEY2)
        await rendered(lab, tmp_path / "j")
        (file,) = files(tmp_path / "j")
        file.write_text(spoil(file.read_text()))
        _, faults = faults_of([file])
        assert any(wanted in fault for fault in faults), faults

    play(life, toy_board(tmp_path, *PARTS))


def test_verify_when_a_sealed_file_was_cut_then_the_seal_tells(play: Play, tmp_path: Path) -> None:
    async def life(lab: Lab) -> None:
        await write(lab, 1, KEY)
        lab.clock.wall += DAY_NS
        await write(lab, 2, KEY2)
        await rendered(lab, tmp_path / "j")
        first = files(tmp_path / "j")[0]
        first.chmod(0o600)
        rows = first.read_text().splitlines(keepends=True)
        first.write_text(rows[0] + rows[2])
        assert any("the seal tells 2 row(s), 1 are there" in f for f in faults_of([first])[1])

    play(life, toy_board(tmp_path, *PARTS), clock=FakeClock())
