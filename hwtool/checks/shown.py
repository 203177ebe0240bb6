"""A report for those who read it: lines for a person, JUnit XML for CI; the page is in hwtool.checks.page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree  # only written here, never parsed

from hwtool.checks.findings import GUARANTEES, Finding, Outcome, Report
from hwtool.checks.page import CAVEAT

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
