"""`hwtool contract` as a stranger types it: exit codes, what is printed, the shapes of JSON, and files it writes."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hwtool.cli.contract import HIDDEN, contract
from hwtool_contracts.library import bundled_names, bundled_overlays, find_contract
from tests.svd_text import device, field, peripheral, register, tags

UART = peripheral(
    "UART0",
    register("CR", 4, tags(description="Control"), [field("EN"), field("MODE", "[31:1]")]),
    register("DR", 0, tags(readAction="modify", description="Data FIFO")),
    register("SR", 8, tags(access="read-only")),
    register("BAUD", 12),
)
TEXT = device(UART, peripheral("SPI0", register("CR", 0), base="0x40001000"))
SIGN = ["--seen", "page", "--source", "DS 1", "--by", "somebody"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a description, where the verb runs."""
    (tmp_path / "toy.svd").write_text(TEXT)
    (tmp_path / "bad.svd").write_text(TEXT.replace("<addressOffset>4", "<addressOffset>x"))
    monkeypatch.setenv("HWTOOL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, code: int = 0) -> Result:
    """The verb with these words; it ends with this code, and without a traceback."""
    done = CliRunner().invoke(contract, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return done


def data(*words: str, code: int = 0) -> dict[str, Any]:
    """What the verb prints with --json."""
    made: dict[str, Any] = json.loads(run(*words, "--json", code=code).stdout)
    return made


# names


def test_names_when_listed_then_bundled_contracts_and_overlays() -> None:
    assert data("names") == {"contracts": bundled_names(), "overlays": bundled_overlays()}
    lines = run("names").stdout.splitlines()
    assert len(lines) == len(bundled_names()) + len(bundled_overlays())
    assert any(line.startswith("tmp102  ") for line in lines)
    assert any(line.endswith("  an overlay") for line in lines)


# lint


def test_lint_when_a_file_loads_then_a_row_of_counts() -> None:
    row = data("lint", "toy.svd")["files"][0]
    assert row == {
        "file": "toy.svd",
        "registers": 5,
        "fields": 2,
        "stated": 1,
        "silent": 8,
        "suspicious": 2,
        "warnings": [],
    }
    lines = run("lint", "toy.svd").stdout.splitlines()
    assert lines[0].split() == ["file", "registers", "fields", "stated", "silent", "suspicious", "warnings"]
    assert lines[1].split() == ["toy.svd", "5", "2", "1", "8", "2", "0"]


def test_lint_when_a_file_does_not_load_then_its_faults_and_exit_two() -> None:
    done = run("lint", "toy.svd", "bad.svd", "tmp102", code=2)
    assert "does not load: 1 fault(s)" in done.stdout
    assert "UART0.CR: <addressOffset> is no number; found x" in done.stderr
    rows = data("lint", "toy.svd", "bad.svd", "tmp102", code=2)["files"]
    assert [r["file"] for r in rows] == ["toy.svd", "bad.svd", "tmp102"]
    assert list(rows[1]) == ["file", "faults"]


def test_lint_when_one_file_has_warnings_then_they_are_listed_up_to_a_limit(here: Path) -> None:
    many = [register(f"R{i}", 4 * i, tags(readAction="odd")) for i in range(HIDDEN + 5)]
    (here / "odd.svd").write_text(device(peripheral("P", *many)))
    done = run("lint", "odd.svd")
    assert done.stderr.count("not a readAction of the format") == HIDDEN
    assert "… and 5 more (--json lists all)" in done.stderr
    warnings = data("lint", "odd.svd")["files"][0]["warnings"]
    assert len(warnings) == HIDDEN + 5
    assert list(warnings[0]) == ["rule", "place", "text"]
    assert "not a readAction" not in run("lint", "odd.svd", "toy.svd").stderr


def test_lint_when_nothing_is_named_then_usage() -> None:
    run("lint", code=2)


# show


def test_show_when_as_json_then_the_promised_keys() -> None:
    shown = data("show", "toy.svd")
    assert (shown["part"], shown["vendor"], shown["title"], shown["source"]) == ("TOY", "nobody", "a toy", "toy.svd")
    assert shown["digest"].startswith("sha256:")
    assert shown["verified"] is False
    control = shown["registers"][0]
    assert (control["name"], control["offset"], control["access"]) == ("UART0.CR", "0x40000004", "rw")
    assert control["read"] == {"effects": ["unknown"], "provenance": "silent"}
    assert control["write"]["effect"] == "unknown"
    assert [f["name"] for f in control["fields"]] == ["EN", "MODE"]
    assert "write" not in next(r for r in shown["registers"] if r["name"] == "UART0.SR")


def test_show_when_as_text_then_a_line_for_each_register() -> None:
    lines = run("show", "toy.svd").stdout.splitlines()
    assert lines[0] == "TOY: a toy (toy.svd)"
    assert lines[1].split() == ["register", "offset", "access", "read", "write", "fields"]
    assert len(lines) == 2 + 5
    assert "modify (asserted)" in next(line for line in lines if line.startswith("UART0.DR"))


def test_show_when_a_register_is_write_only_then_nothing_is_said_of_a_read(here: Path) -> None:
    (here / "wo.svd").write_text(device(peripheral("P", register("W", 0, tags(access="write-only")))))
    assert run("show", "wo.svd").stdout.splitlines()[-1].split() == [
        "P.W",
        "0x40000000",
        "wo",
        "-",
        "unknown",
        "(silent)",
        "-",
    ]
    assert "read" not in data("show", "wo.svd")["registers"][0]


def test_show_when_one_register_then_drawn() -> None:
    done = run("show", "toy.svd", "UART0.CR")
    assert done.stdout.startswith("UART0.CR  0x40000004  32 bit  rw\n  Control\n")
    assert [r["name"] for r in data("show", "toy.svd", "UART0.CR")["registers"]] == ["UART0.CR"]


def test_show_when_a_pattern_then_all_that_match() -> None:
    assert [r["name"] for r in data("show", "toy.svd", "*.CR")["registers"]] == ["UART0.CR", "SPI0.CR"]
    assert run("show", "toy.svd", "*.CR").stdout.count("32 bit") == 2


@pytest.mark.parametrize("name", ["UART0.CRR", "uart0.cr", "UART0.C", "uart0.cR"])
def test_show_when_a_near_miss_then_the_name_is_suggested(name: str) -> None:
    done = run("show", "toy.svd", name, code=5)
    assert "did you mean" in done.stderr and "UART0.CR" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["ZZZZZZZZ", "GPIO*.X"])
def test_show_when_nothing_is_near_then_no_suggestion(name: str) -> None:
    assert f"TOY has no register {name}" in run("show", "toy.svd", name, code=5).stderr


def test_show_when_a_bundled_chip_then_found_by_name() -> None:
    assert data("show", "tmp102")["part"] == "tmp102"
    assert "did you mean" not in run("show", "tmp103", code=2).stderr
    assert "tmp102" in run("show", "tmp103", code=2).stderr


BROKEN = [
    (["show", "bad.svd"], "<addressOffset> is no number; found x"),
    (["show", "none.svd"], "cannot be read"),
    (["find", "bad.svd", "x"], "<addressOffset> is no number"),
    (["diff", "toy.svd", "bad.svd"], "<addressOffset> is no number"),
    (["import", "bad.svd"], "<addressOffset> is no number"),
    (["review", "bad.svd"], "<addressOffset> is no number"),
    (["show", "toy.svd", "--overlay", "none.toml"], "cannot be read"),
    (["show", "toy.svd", "--overlay", "nobody"], "no such bundled overlay"),
]


@pytest.mark.parametrize(("words", "fault"), BROKEN, ids=[" ".join(w) for w, _ in BROKEN])
def test_verb_when_a_file_does_not_load_then_faults_and_exit_two(words: list[str], fault: str) -> None:
    done = run(*words, code=2)
    assert fault in done.stderr
    assert "cannot be used; 1 fault(s)" in done.stderr
    assert done.stdout == ""


# find


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["fifo"], ["UART0.DR"]),
        (["modify"], ["UART0.DR"]),
        (["mode"], ["UART0.CR"]),
        (["CONTROL", "en"], ["UART0.CR"]),
        (["spi0"], ["SPI0.CR"]),
        (["unknown", "sr"], ["UART0.SR"]),
    ],
    ids=str,
)
def test_find_when_words_are_there_then_the_registers(words: list[str], found: list[str]) -> None:
    assert [r["name"] for r in data("find", "toy.svd", *words)["registers"]] == found
    assert found[0] in run("find", "toy.svd", *words).stdout


def test_find_when_nothing_has_the_words_then_exit_five() -> None:
    assert data("find", "toy.svd", "flux", code=5) == {"registers": []}
    run("find", "toy.svd", "fifo", "spi0", code=5)


# diff


def test_diff_when_the_same_then_nothing_differs() -> None:
    assert data("diff", "toy.svd", "toy.svd") == {"same": True, "differences": []}
    assert run("diff", "toy.svd", "toy.svd").stderr == "0 difference(s)\n"


def test_diff_when_promises_differ_then_told_and_texts_only_on_demand(here: Path) -> None:
    other = TEXT.replace("Data FIFO", "Other text").replace("<readAction>modify", "<readAction>clear")
    (here / "other.svd").write_text(other)
    done = run("diff", "toy.svd", "other.svd")
    assert done.stdout.splitlines() == [
        "~ UART0.DR  read: modify (asserted), source toy.svd -> clear (asserted), source other.svd"
    ]
    assert done.stderr == "1 difference(s), and 1 in texts alone (--texts)\n"
    lines = data("diff", "toy.svd", "other.svd", "--texts")["differences"]
    assert [(d["place"], d["what"]) for d in lines] == [("UART0.DR", "read"), ("UART0.DR", "description")]
    assert list(lines[0]) == ["place", "what", "before", "after"]
    assert data("diff", "toy.svd", "other.svd")["same"] is False


# import


def test_import_when_written_then_it_loads_to_the_same_promises(here: Path) -> None:
    done = run("import", "toy.svd", "-o", "toy.toml")
    assert done.stdout == ""
    assert done.stderr == "toy.toml: 5 registers\n"
    assert data("diff", "toy.svd", "toy.toml") == {"same": True, "differences": []}
    assert run("import", "toy.svd").stdout == (here / "toy.toml").read_text()


def test_import_when_something_was_odd_then_the_notices_are_told(here: Path) -> None:
    (here / "odd.svd").write_text(TEXT.replace("<readAction>modify", "<readAction>odd"))
    done = run("import", "odd.svd")
    assert "not a readAction of the format; found odd; made of it: read effect unknown" in done.stderr
    assert tomllib.loads(done.stdout)["part"] == "TOY"


def test_import_when_the_file_is_there_then_not_overwritten(here: Path) -> None:
    (here / "mine.toml").write_text("precious")
    done = run("import", "toy.svd", "-o", "mine.toml", code=2)
    assert "is there already; nothing was written" in done.stderr
    assert (here / "mine.toml").read_text() == "precious"
    assert "is there already" in run("import", "toy.svd", "-o", "toy.svd", code=2).stderr


def test_import_when_it_cannot_be_written_then_said() -> None:
    assert "cannot be written" in run("import", "toy.svd", "-o", "no/such/dir/x.toml", code=2).stderr


# review


def test_review_when_of_the_whole_map_then_findings_and_no_entry() -> None:
    told = data("review", "toy.svd")
    assert list(told) == ["findings", "before", "after", "entry"]
    assert told["entry"] is None
    assert told["before"] == told["after"] == "0 of 5 clean reads, 0 of 4 known writes, 0 of 1 field updates"
    first = told["findings"][0]
    assert first["register"] == "UART0.DR"
    assert first["silent"] == ["write"]
    assert first["weight"] == 80
    assert [list(s) for s in first["suspicions"]] == [["direction", "reason"]] * len(first["suspicions"])


def test_review_when_of_a_peripheral_then_the_entry_and_what_it_would_bring() -> None:
    told = data("review", "toy.svd", "--peripheral", "UART0")
    assert told["before"] == "0 of 4 clean reads, 0 of 3 known writes, 0 of 1 field updates"
    assert told["after"] == "2 of 4 clean reads, 2 of 3 known writes, 0 of 1 field updates"
    entry = tomllib.loads(told["entry"])["review"][0]
    assert entry["match"] == "UART0.*"
    assert entry["except"] == ["UART0.DR", "UART0.SR"]
    assert (entry["seen"], entry["source"], entry["reviewed_by"]) == ("", "", "")
    done = run("review", "toy.svd", "--peripheral", "UART0")
    assert "4 of 4 registers are silent, 2 suspicious" in done.stdout
    assert "usable now:   0 of 4" in done.stdout
    assert "with the entry: 2 of 4 clean reads" in done.stdout
    assert done.stdout.endswith(told["entry"])


def test_review_when_there_are_many_then_listed_up_to_the_limit() -> None:
    done = run("review", "toy.svd", "--limit", "1")
    assert done.stdout.splitlines()[0] == "UART0.DR: silent on write"
    assert "… and 4 more (--limit)" in done.stdout


def test_review_when_the_peripheral_is_unknown_then_near_misses_and_exit_five() -> None:
    done = run("review", "toy.svd", "--peripheral", "UART9", code=5)
    assert "TOY has no peripheral UART9; one of UART0" in done.stderr
    assert "one of SPI0, UART0" in run("review", "toy.svd", "--peripheral", "ZZZZZ", code=5).stderr


def test_review_when_written_then_an_overlay_that_loads_and_makes_the_registers_clean(here: Path) -> None:
    done = run("review", "toy.svd", "--peripheral", "UART0", "--write", "over.toml", *SIGN)
    assert "over.toml: entry added to a new overlay" in done.stderr
    made = data("show", "over.toml")["registers"]
    clean = {r["name"]: r["judged_read"]["clean"] for r in made}
    assert clean == {"UART0.CR": True, "UART0.DR": False, "UART0.SR": False, "UART0.BAUD": True, "SPI0.CR": False}
    assert next(r for r in made if r["name"] == "UART0.BAUD")["write"] == {"effect": "store", "provenance": "reviewed"}
    assert data("show", "toy.svd", "--overlay", "over.toml")["registers"] == made
    again = run("review", "over.toml", "--peripheral", "UART0")
    assert "with the entry" not in again.stdout
    done = run("review", "toy.svd", "--peripheral", "SPI0", "--write", "over.toml", *SIGN)
    assert done.stderr == "over.toml: entry added\n"
    assert find_contract("over.toml").registers["SPI0.CR"].read.effects == {"none"}
    assert len(tomllib.loads((here / "over.toml").read_text())["review"]) == 2


def test_review_when_the_base_changes_elsewhere_then_the_written_entry_still_holds(here: Path) -> None:
    run("review", "toy.svd", "--peripheral", "UART0", "--write", "over.toml", *SIGN)
    (here / "toy.svd").write_text(TEXT.replace("<name>SPI0", "<name>SPI1"))
    assert find_contract("over.toml").registers["UART0.BAUD"].read.effects == {"none"}
    assert "the base has changed" in str(data("lint", "over.toml"))
    (here / "toy.svd").write_text(TEXT.replace("Control", "Control, cleared on read"))
    assert find_contract("over.toml").registers["UART0.BAUD"].read.effects == {"unknown"}


UNSIGNED = [[], SIGN[:2], SIGN[2:], SIGN[:4], ["--seen", "page", "--source", "", "--by", "x"]]


@pytest.mark.parametrize("words", UNSIGNED, ids=str)
def test_review_when_written_unsigned_then_refused_and_nothing_written(here: Path, words: list[str]) -> None:
    done = run("review", "toy.svd", "--peripheral", "UART0", "--write", "over.toml", *words, code=2)
    assert "an entry is signed" in done.stderr
    assert not (here / "over.toml").exists()


def test_review_when_seen_from_memory_then_usage() -> None:
    done = run("review", "toy.svd", "--peripheral", "UART0", "--write", "o.toml", "--seen", "memory", code=2)
    assert "'page', 'driver'" in done.stderr


def test_review_when_there_is_no_entry_then_nothing_is_written(here: Path) -> None:
    done = run("review", "toy.svd", "--write", "over.toml", *SIGN, code=2)
    assert "there is no entry to write" in done.stderr
    assert not (here / "over.toml").exists()


def test_review_when_it_cannot_be_written_then_said() -> None:
    words = ["review", "toy.svd", "--peripheral", "UART0", "--write", "no/such/over.toml", *SIGN]
    assert "cannot be written" in run(*words, code=2).stderr


def test_review_when_of_a_bundled_chip_then_the_overlay_can_be_laid_over_it(here: Path) -> None:
    text = 'schema = 1\npart = "chip"\nvendor = "v"\ntitle = "t"\nsource = "s"\n[access]\n[access.i2c]\n'
    text += '[clusters.C]\noffset = 0\n[clusters.C.registers.CTRL]\noffset = 0\naccess = "rw"\n'
    (here / "chip.toml").write_text(text)
    run("review", "chip.toml", "--peripheral", "C", "--write", "over.toml", *SIGN)
    assert data("show", "chip.toml", "--overlay", "over.toml")["registers"][0]["judged_read"]["clean"] is True
    done = run("review", "tmp102")
    assert "0 suspicious" in done.stdout


def test_review_when_with_an_overlay_then_what_is_reviewed_is_not_listed_again() -> None:
    run("review", "toy.svd", "--peripheral", "UART0", "--write", "over.toml", *SIGN)
    told = data("review", "toy.svd", "--overlay", "over.toml")
    assert [f["register"] for f in told["findings"]] == ["UART0.DR", "UART0.SR", "SPI0.CR"]


@pytest.mark.parametrize("target", ["toy.svd", "notes.txt"])
def test_review_when_the_target_is_no_overlay_then_it_is_not_touched(here: Path, target: str) -> None:
    (here / "notes.txt").write_text("notes")
    before = (here / target).read_text()
    CliRunner().invoke(contract, ["review", "toy.svd", "--peripheral", "UART0", "--write", target, *SIGN])
    assert (here / target).read_text() == before


def test_review_when_the_target_is_an_overlay_of_another_base_then_refused(here: Path) -> None:
    (here / "other.svd").write_text(TEXT.replace("UART0", "UARTX"))
    run("review", "other.svd", "--peripheral", "UARTX", "--write", "over.toml", *SIGN)
    CliRunner().invoke(contract, ["review", "toy.svd", "--peripheral", "UART0", "--write", "over.toml", *SIGN])
    run("show", "over.toml")


def test_review_when_the_target_is_in_another_directory_then_it_loads_or_is_refused(here: Path) -> None:
    (here / "sub").mkdir()
    words = ["review", "toy.svd", "--peripheral", "UART0", "--write", "sub/over.toml", *SIGN]
    if CliRunner().invoke(contract, words).exit_code == 0:
        run("show", "sub/over.toml")


def test_review_when_the_file_is_an_overlay_then_the_new_overlay_is_not_out_of_date_at_once() -> None:
    run("review", "toy.svd", "--peripheral", "UART0", "--write", "over.toml", *SIGN)
    run("review", "over.toml", "--peripheral", "SPI0", "--write", "second.toml", *SIGN)
    assert data("lint", "second.toml")["files"][0]["warnings"] == []


def test_review_when_signed_over_its_own_overlay_then_the_entry_outlives_a_change_elsewhere(here: Path) -> None:
    first = 'base = "toy.svd"\nbase_sha256 = "0"\n[[review]]\nmatch = "UART0.*"\nexcept = ["UART0.DR", "UART0.SR"]\n'
    first += 'silent_read = "none"\nseen = "page"\nsource = "-"\nreviewed_by = "-"\non = 2026-11-30\n'
    from hashlib import sha256

    first = first.replace('"0"', f'"{sha256(TEXT.encode()).hexdigest()}"')
    (here / "over.toml").write_text(first)
    run("review", "toy.svd", "--overlay", "over.toml", "--peripheral", "UART0", "--write", "over.toml", *SIGN)
    (here / "toy.svd").write_text(TEXT.replace("<name>SPI0", "<name>SPI1"))
    assert find_contract("over.toml").registers["UART0.BAUD"].write.effect == "store"


# as a process


def process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hwtool", "contract", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_process_when_run_then_codes_and_streams_as_in_the_test() -> None:
    assert process("show", "toy.svd", "UART0.DR").returncode == 0
    done = process("show", "bad.svd")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert process("show", "toy.svd", "NONE").returncode == 5


def test_process_when_the_reader_has_seen_enough_then_no_complaint(here: Path) -> None:
    many = [register(f"REGISTER_WITH_A_LONG_NAME_{i}", 4 * i) for i in range(3000)]
    (here / "long.svd").write_text(device(peripheral("P", *many)))
    command = f"{sys.executable} -m hwtool contract show long.svd 2>err | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("TOY")
    assert "Traceback" not in (here / "err").read_text()


@pytest.mark.parametrize("verb", ["names", "lint", "show", "find", "diff", "import", "review"])
def test_verb_when_asked_for_help_then_it_has_some(verb: str) -> None:
    assert "Usage" in run(verb, "--help").stdout
