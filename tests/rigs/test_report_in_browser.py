"""The page of a check in a real browser: it is rendered, looked at, and neither runs nor asks for anything."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from hwtool.checks import page as page_module
from hwtool.checks.findings import Finding, Outcome, Report
from hwtool.checks.page import page
from tests.rigs import browser

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(browser.missing() is not None, reason=str(browser.missing())),
]
GUARANTEED = ("clean", "done", "once", "loss_told", "neighbours_kept")


def hostile(address: str) -> tuple[str, ...]:
    """Names that would do something if they were not escaped, and names that are hard to show."""
    return (
        f"<script>document.title='ran';fetch('{address}/fetched')</script>",
        f"\"><img src='{address}/img' onerror=\"document.title='ran'\">",
        f"</style><style>body{{background:url({address}/css)}}</style>",
        f"</table></section><iframe src='{address}/frame'></iframe><link rel=stylesheet href='{address}/link'>",
        "abc\u202edetcennoc ton\u202c\u2067\u200b\u200f",
        "N\x00U\x07L\x1b[31m",
        "R" + "EGISTER" * 71 + "_9",
        "ordinary, &amp; <b>bold</b> \ud800",
    )


def report_of(number: int, address: str) -> Report:
    """A report with every outcome in turn, on devices and registers with hostile names."""
    names = hostile(address)
    report = Report(f"bench {names[0]} {names[1]}" if number else "empty")
    for n in range(number):
        name, outcome = names[n % len(names)], list(Outcome)[(n + 1) % 3]
        lines = (f"agent reg.write {name}", f"bus: write {n:#06x} {name}") if outcome is Outcome.FAILED else ()
        place = f"device{n % 7} {names[n % 7]}.REG_{n} {name}"
        report.findings.append(
            Finding(place, f"write {name}", GUARANTEED[n % 5], outcome, f"{n} counted {name}", lines)
        )
    return report


def written(directory: Path, report: Report) -> Path:
    """As `--html` writes it."""
    file = directory / "report.html"
    file.write_text(page(report), encoding="utf-8", errors="replace")
    return file


def colours(picture: Path) -> int:
    """How many different bytes a picture has; a blank page has a few."""
    return len(set(rows_of(picture)))


def first_pixel(picture: Path) -> tuple[int, ...]:
    """Of the upper left corner; in the first row no filter does anything to it but with zeros."""
    return tuple(rows_of(picture)[1:4])


def rows_of(picture: Path) -> bytes:
    """The rows of a PNG, each with its filter before it."""
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    packed, at = b"", 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        packed += data[at + 8 : at + 8 + size] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    return zlib.decompress(packed)


@pytest.mark.parametrize(
    ("number", "width", "dark"), [(0, 1200, False), (1, 1200, True), (5000, 1200, False), (5000, 520, True)]
)
def test_report_when_opened_in_a_browser_then_every_row_and_nothing_runs_or_is_asked_for(
    tmp_path: Path, number: int, width: int, dark: bool
) -> None:
    with browser.listening() as (address, asked):
        report = report_of(number, address)
        file = written(tmp_path, report)
        picture = browser.shot(file, tmp_path / "report.png", width, 1500, dark=dark)
        shown = browser.dom(file)
        found = browser.measured(file, width)
    print(f"{number} rows, {width} wide: {picture}")
    assert asked == []
    assert colours(picture) > 20
    assert "<title>hwtool check: " in shown and "<title>ran" not in shown
    assert re.findall(r"<(?:script|img|iframe|link|object|embed|base|form)\b", shown) == []
    assert set(re.findall(r'(?:href|src)="([^"]?)', shown)) <= {"#"}
    assert len(re.findall(r'<tr class="(?:held|failed|not_applicable)">', shown)) == number
    assert len(re.findall(r"<details", shown)) == report.count(Outcome.FAILED)
    assert len(re.findall(r"<details open", shown)) == min(report.count(Outcome.FAILED), page_module.UNFOLDED)
    assert found["rows"] == number
    assert found["wide"] == found["window"] == width  # nothing sticks out
    assert not set("\u202e\u2067\u200b\u200f\x00\x1b") & set(found["text"])
    if number:
        assert found["cell"] > (400 if width == 520 else 150)  # a line of its own, where there is no room for columns
        assert found["hide-held"] == number - report.count(Outcome.HELD)
        assert found["hide-away"] == number - report.count(Outcome.NOT_APPLICABLE)
    else:
        assert "Nothing was checked, and that is no pass." in found["text"]


def test_report_when_the_reader_likes_it_dark_then_it_is(tmp_path: Path) -> None:
    file = written(tmp_path, Report("empty"))
    light, dark = (browser.shot(file, tmp_path / f"{d}.png", 600, 300, dark=d) for d in (False, True))
    assert (first_pixel(light), first_pixel(dark)) == ((255, 255, 255), (0x18, 0x19, 0x1C))


def test_report_when_it_is_seen_then_the_verdict_first_then_what_failed_then_the_devices(tmp_path: Path) -> None:
    report = report_of(40, "http://127.0.0.1:9")
    text = browser.measured(written(tmp_path, report), 1200)["text"]
    order = ["hwtool check of board bench", ": failed", "14 failed", "What failed (14)"]
    order += [
        "Not kept: ",
        "bus: write 0x0000",
        "Each guarantee",
        "Each device",
        "leave out what held",
        "counted, or why",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places and places == sorted(places), list(zip(order, places, strict=True))


@pytest.mark.parametrize("walls", ["none", "policy"])
def test_browser_when_nothing_is_escaped_then_it_would_have_been_seen_and_the_policy_is_a_second_wall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walls: str
) -> None:
    monkeypatch.setattr(page_module, "_text", lambda text: text)
    with browser.listening() as (address, asked):
        file = written(tmp_path, report_of(16, address))
        if walls == "none":
            file.write_text(browser.POLICY.sub("", file.read_text(encoding="utf-8")), encoding="utf-8")
        shown = browser.dom(file)
    assert "<img" in shown and "<script" in shown
    if walls == "policy":
        assert (asked, "<title>ran" in shown) == ([], False)
    else:
        assert {"/fetched", "/img", "/css"} <= set(asked)
        assert "<title>ran" in shown
