"""A report as one page that opens from a file: the verdict first, then what failed, then each device.

It refers to nothing outside itself, runs nothing, and says so to the browser (Content-Security-Policy). Names come
from contracts, boards and devices: they are escaped, and what would not be seen, or would turn the text around, is
spelt out.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from typing import Final

from hwtool.checks.findings import GUARANTEES, Finding, Outcome, Report

WORDS: Final = {Outcome.HELD: "held", Outcome.FAILED: "FAILED", Outcome.NOT_APPLICABLE: "not applicable"}
CAVEAT: Final = "What hwtool does with these contracts was checked; not whether they are true of your chips."
UNFOLDED: Final = 20  # failures whose timeline is open from the beginning
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --line: #d9dbdf; --soft: #f4f5f7; --quiet: #5c6066;
  --held: #1a6b2e; --failed: #b00020; --link: #0b57d0 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --paper: #18191c; --line: #3a3b3f; --soft: #26272b;
  --quiet: #a2a6ad; --held: #69c985; --failed: #ff7b8a; --link: #8ab4f8 } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 84rem; padding: 0 1rem;
  color: var(--ink); background: var(--paper) }
h1, h2, h3, p, summary, td, th, li { overflow-wrap: anywhere }
h1 { font-size: 1.4rem; margin: 0 0 .5rem } h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; padding-top: .3rem }
a { color: var(--link) } p { max-width: 60rem } .quiet, small { color: var(--quiet) } bdi { unicode-bidi: isolate }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
.count { width: 5rem; text-align: right } .place { width: 17% } .access { width: 11% } .outcome { width: 7.5rem }
td.outcome { white-space: nowrap } .guarantee { width: 27% }
b.held, .held > .outcome { color: var(--held) } b.failed, .failed > .outcome { color: var(--failed); font-weight: 600 }
.not_applicable > td { color: var(--quiet) }
ul { padding-left: 1.2rem; columns: 26rem; margin: .3rem 0 }
details { border-left: 3px solid var(--failed); padding: .2rem .8rem; margin: .6rem 0 }
summary { cursor: pointer } pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft);
  padding: .5rem; margin: .3rem 0; font-size: 13px }
input { margin: 0 .4rem 0 0 } label { margin-right: 1.5rem; cursor: pointer }
#hide-held:checked ~ section tr.held, #hide-away:checked ~ section tr.not_applicable,
#hide-held:checked ~ #hide-away:checked ~ section:not(:has(tr.failed)) { display: none }
@media (max-width: 50rem) { .count { width: 3rem } section th { display: none }
  section td[class] { display: block; width: auto; border: 0; padding: 0 } td.place { font-weight: 600 }
  section tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line) } }
"""
HEAD: Final = (
    '<tr><th class="place">place</th><th class="access">access</th><th class="guarantee">guarantee</th>'
    '<th class="outcome">outcome</th><th>counted, or why</th></tr>\n'
)


def page(report: Report) -> str:
    """One page, for whoever opens it."""
    return "".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    name, counts = _text(report.board), [report.count(outcome) for outcome in Outcome]
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="referrer" content="no-referrer">'
    yield f'<meta name="viewport" content="width=device-width"><title>hwtool check: {name}</title>'
    yield f"<style>{STYLE}</style></head><body>\n"
    verdict = '<b class="held">passed</b>' if report.passed else '<b class="failed">failed</b>'
    yield f"<h1>hwtool check of board <bdi>{name}</bdi>: {verdict}</h1>\n"
    yield f"<p><b>{_counted(*counts)}</b>, on simulated chips made from the board's contracts. What does not apply is"
    yield f' no pass; each says why. <span class="quiet">{CAVEAT}</span></p>\n'
    if not report.findings:
        yield "<p>Nothing was checked, and that is no pass.</p>\n</body></html>\n"
        return
    links = (("failures", "what failed"), ("guarantees", "each guarantee"), ("devices", "each device"))
    shown = links if report.count(Outcome.FAILED) else links[1:]
    yield "<p>" + " · ".join(f'<a href="#{anchor}">{words}</a>' for anchor, words in shown) + "</p>\n"
    yield from _failures([f for f in report.findings if f.outcome is Outcome.FAILED])
    yield from _guarantees(report)
    yield from _devices(report)
    yield "</body></html>\n"


def _failures(failed: list[Finding]) -> Iterator[str]:
    if failed:
        yield f'<h2 id="failures">What failed ({len(failed)})</h2>\n'
    for number, finding in enumerate(failed):
        opened = " open" if number < UNFOLDED else ""
        place, effect, told = (f"<bdi>{_text(t)}</bdi>" for t in (finding.place, finding.effect, finding.told))
        yield f"<details{opened}><summary><b>{place}</b>, {effect}: {told}</summary>"
        yield f"<p>Not kept: {_text(GUARANTEES[finding.guarantee])}.</p>"
        if finding.timeline:
            yield "<pre>" + _text("\n".join(finding.timeline)) + "</pre>"
        yield "</details>\n"


def _guarantees(report: Report) -> Iterator[str]:
    counted = Counter((f.guarantee, f.outcome) for f in report.findings)
    heads = "".join(f'<th class="count">{head}</th>' for head in ("held", "failed", "n/a"))
    yield f'<h2 id="guarantees">Each guarantee</h2>\n<table><tr><th>guarantee</th>{heads}</tr>\n'
    for key, says in GUARANTEES.items():
        numbers = [counted[key, outcome] for outcome in Outcome]
        if any(numbers):
            cells = "".join(f'<td class="count">{number or "·"}</td>' for number in numbers)
            yield f"<tr><td>{html.escape(says)}</td>{cells}</tr>\n"
    yield "</table>\n"


def _devices(report: Report) -> Iterator[str]:
    devices: dict[str, list[Finding]] = {}
    for finding in report.findings:
        devices.setdefault(finding.place.partition(".")[0], []).append(finding)
    yield '<h2 id="devices">Each device</h2>\n<ul>\n'
    for number, (name, findings) in enumerate(devices.items()):
        outcomes = Counter(f.outcome for f in findings)
        told = _counted(*(outcomes[outcome] for outcome in Outcome))
        yield f'<li><a href="#d{number}"><bdi>{_text(name)}</bdi></a> <small>{told}</small></li>\n'
    yield '</ul>\n<input type="checkbox" id="hide-held"><label for="hide-held">leave out what held</label>\n'
    yield '<input type="checkbox" id="hide-away"><label for="hide-away">leave out what does not apply</label>\n'
    for number, (name, findings) in enumerate(devices.items()):
        yield f'<section id="d{number}"><h3><bdi>{_text(name)}</bdi></h3>\n<table>{HEAD}'
        yield from map(_row, findings)
        yield "</table></section>\n"


def _row(finding: Finding) -> str:
    cells = {
        "place": finding.place,
        "access": finding.effect,
        "guarantee": GUARANTEES[finding.guarantee],
        "outcome": WORDS[finding.outcome],
        "why": finding.told,
    }
    shown = "".join(f'<td class="{name}">{_text(text)}</td>' for name, text in cells.items())
    return f'<tr class="{finding.outcome.value}">{shown}</tr>\n'


def _counted(held: int, failed: int, away: int) -> str:
    return f"{held} held, {failed} failed, {away} not applicable"


def _text(text: str) -> str:
    """Any text inside a page; what cannot be seen (controls, marks that turn text around) is spelt out."""
    return html.escape("".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text))
