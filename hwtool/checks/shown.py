"""A report for those who read it: lines for a person, JUnit XML for CI, and one page that opens from a file."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree  # only written here, never parsed

from hwtool.checks.findings import GUARANTEES, Finding, Outcome, Report

WORDS: Final = {Outcome.HELD: "held", Outcome.FAILED: "FAILED", Outcome.NOT_APPLICABLE: "not applicable"}
CAVEAT: Final = "What hwtool does with these contracts was checked; not whether they are true of your chips."
UNPRINTABLE: Final = {n: "\N{REPLACEMENT CHARACTER}" for n in range(32) if n not in (9, 10, 13)}


def lines(report: Report) -> Iterator[str]:
    """For a person: what failed with its timeline, the guarantees with their counts, and why some do not apply."""
    for finding in report.findings:
        if finding.outcome is Outcome.FAILED:
            kept = "" if finding.guarantee == "loads_well" else f" does not keep “{GUARANTEES[finding.guarantee]}”"
            yield f"FAIL {finding.place}, {finding.effect}{kept}: {finding.told}"
            yield from (f"     {line}" for line in finding.timeline)
    counted = Counter((f.guarantee, f.outcome) for f in report.findings)
    for name, says in GUARANTEES.items():
        held, failed, away = (counted[name, outcome] for outcome in Outcome)
        if held or failed or away:
            mark = "FAIL" if failed else "ok  " if held else "-   "
            yield f"{mark} {held} held, {failed} failed, {away} not applicable: {says}"
    reasons = Counter(f.told for f in report.findings if f.outcome is Outcome.NOT_APPLICABLE)
    yield from (f"     {number} not applicable: {told}" for told, number in reasons.most_common(10))
    if len(reasons) > 10:
        yield f"     … and {len(reasons) - 10} more reasons: --json has all of them"
    held, failed, away = (report.count(outcome) for outcome in Outcome)
    end = f"{held} held, {failed} failed, {away} not applicable, on simulated chips of board {report.board}"
    yield CAVEAT
    yield f"{'PASS' if report.passed else 'FAIL'}: {end}"


def junit(report: Report) -> str:
    """For CI: a suite for each device, a case for each guarantee at each place; what does not apply is skipped."""
    counts = {"tests": len(report.findings), "failures": report.count(Outcome.FAILED)}
    counts |= {"skipped": report.count(Outcome.NOT_APPLICABLE)}
    top = ElementTree.Element("testsuites", {"name": "hwtool check", **{k: str(v) for k, v in counts.items()}})
    by_device: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_device.setdefault(finding.place.partition(".")[0], []).append(finding)
    for device, findings in by_device.items():
        outcomes = Counter(f.outcome for f in findings)
        told = {"tests": len(findings), "failures": outcomes[Outcome.FAILED], "errors": 0}
        told |= {"skipped": outcomes[Outcome.NOT_APPLICABLE]}
        suite = ElementTree.SubElement(top, "testsuite", {"name": device, **{k: str(v) for k, v in told.items()}})
        for finding in findings:
            name = _printable(f"{finding.effect}: {GUARANTEES[finding.guarantee]}")
            case = ElementTree.SubElement(suite, "testcase", {"classname": _printable(finding.place), "name": name})
            if finding.outcome is Outcome.NOT_APPLICABLE:
                ElementTree.SubElement(case, "skipped", {"message": _printable(finding.told)})
            elif finding.outcome is Outcome.FAILED:
                failure = ElementTree.SubElement(case, "failure", {"message": _printable(finding.told)})
                failure.text = _printable("\n".join(finding.timeline))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(top, encoding="unicode") + "\n"


def _printable(text: str) -> str:
    """What XML 1.0 can hold."""
    return text.translate(UNPRINTABLE)


STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; color: #1c1e21;
  background: #fff } h1 { font-size: 1.4rem } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
td { overflow-wrap: anywhere } .held { color: #1a6b2e } .failed { color: #b00020; font-weight: 600 }
.not_applicable { color: #666 } pre { white-space: pre-wrap; background: #f5f5f5; padding: .5rem; margin: .3rem 0 }
label { margin-right: 1.2rem } #hide-held:checked ~ table tr.held, #hide-away:checked ~ table tr.not_applicable
{ display: none }
@media (prefers-color-scheme: dark) { body { color: #e4e6ea; background: #18191c } td, th { border-color: #3a3b3f }
.held { color: #69c985 } .failed { color: #ff7b8a } .not_applicable { color: #999 } pre { background: #26272b } }
"""


def page(report: Report) -> str:
    """One page, without a reference to anything outside it."""
    held, failed, away = (report.count(outcome) for outcome in Outcome)
    name = html.escape(report.board)
    verdict = "passed" if report.passed else "failed"
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>hwtool check: {name}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>\n'
        f'<h1>hwtool check of board {name}: <span class="{"held" if report.passed else "failed"}">{verdict}'
        "</span></h1>\n"
        f"<p>{held} held, {failed} failed, {away} not applicable, on simulated chips made from the board's contracts."
        f" What does not apply is no pass; each says why. {CAVEAT}</p>\n"
    )
    counted = Counter((f.guarantee, f.outcome) for f in report.findings)
    rows = "".join(
        f"<tr><td>{html.escape(says)}</td>{''.join(f'<td>{counted[key, outcome]}</td>' for outcome in Outcome)}</tr>\n"
        for key, says in GUARANTEES.items()
    )
    table = f"<table><tr><th>guarantee</th><th>held</th><th>failed</th><th>not applicable</th></tr>\n{rows}</table>\n"
    places = "".join(_row(f) for f in report.findings) or '<tr><td colspan="5">nothing was checked</td></tr>\n'
    return (
        f"{head}{table}<h2>Each register</h2>\n"
        '<input type="checkbox" id="hide-held"><label for="hide-held">leave out what held</label>'
        '<input type="checkbox" id="hide-away"><label for="hide-away">leave out what does not apply</label>\n'
        "<table><tr><th>place</th><th>access</th><th>guarantee</th><th>outcome</th><th>counted, or why</th></tr>\n"
        f"{places}</table>\n</body></html>\n"
    )


def _row(finding: Finding) -> str:
    timeline = ""
    if finding.timeline:
        told = html.escape("\n".join(finding.timeline))
        timeline = f"<details open><summary>timeline</summary><pre>{told}</pre></details>"
    cells = (finding.place, finding.effect, GUARANTEES[finding.guarantee], WORDS[finding.outcome], finding.told)
    shown = "".join(
        f'<td class="{finding.outcome.value}">{html.escape(c)}</td>' if i == 3 else f"<td>{html.escape(c)}</td>"
        for i, c in enumerate(cells[:4])
    )
    return f'<tr class="{finding.outcome.value}">{shown}<td>{html.escape(cells[4])}{timeline}</td></tr>\n'
