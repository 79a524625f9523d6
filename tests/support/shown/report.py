"""The numbers of the report, read from the page in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from support.browser import OpenReport, ReportPage
from support.shown.dashboard import operators
from support.shown.numbers import (
    IDLE,
    IDLE_TEXT,
    NONE,
    Number,
    Numbers,
    clock,
    exact,
    function,
    read,
)

_FACTS = {name: name for name in ("samples", "coverage", "processes")} | {
    "torn": "torn share",
    "profd's cost": "cost",
}
# The page adds up times of tenths of a millisecond, and readings to five digits.
_SLACK = 1e-3
_RECOUNTED = (
    "self share of a function",
    "total share of a function",
    "share of a phase",
    "CPU of a process",
)


def of_report(path: Path, open_report: OpenReport) -> Numbers:
    """Yield the numbers of the page as it opens, and of each of its tables."""
    page = open_report(path)
    for take in (_header, _findings, _functions, _processes, _memory, _events, _operators, _ranks):
        yield from map(_slackened, take(page))


def _slackened(number: Number) -> Number:
    if number.kind not in _RECOUNTED:
        return number
    return number._replace(low=number.low * (1 - _SLACK), high=number.high * (1 + _SLACK))


def _header(page: ReportPage) -> Numbers:
    subtitle = page.shown(
        "[...document.querySelectorAll('.subtitle span')].map((one) => one.textContent)"
    )
    yield read("duration", "run", subtitle[2])
    if found := re.search(r"ended with (\d+)", " ".join(subtitle)):
        yield read("exit code", "run", found[1])
    for name, value in page.cells(".run-facts div"):
        if name in _FACTS:
            yield read(_FACTS[name], "run", value)
    for shown in page.shown(
        "[...document.querySelectorAll('#legend > *')].map((one) => one.innerText)"
    ):
        _, name, value, *_ = shown.split("\n")
        yield read("share of a phase", name, value)


def _findings(page: ReportPage) -> Numbers:
    cards = page.shown(
        "[...document.querySelectorAll('.cards .card')].map((card) => [card.querySelector('h2 "
        "b').textContent, [...card.querySelectorAll('dl.facts dt')].map((dt) => [dt.textContent, "
        "dt.nextElementSibling.textContent])])"
    )
    yield exact("findings", "run", len(cards))
    for label, facts in cards:
        for name, value in facts:
            if name == "steps get":
                yield read("gain of a finding", label, value.removeprefix("at most "))
            elif "%" in value.split(" ")[1:2]:
                yield read("measure of a finding", f"{label}: {name}", value)


def _functions(page: ReportPage) -> Numbers:
    rows = page.shown(
        "[...document.querySelectorAll('#view-functions tbody tr')].map((row) => "
        "[...row.cells].map((cell) =>"
        " [cell.textContent, cell.title || cell.firstElementChild?.title || '']))"
    )
    for (own, samples), (total, _), (name, _), (_, place), _ in rows:
        of = function(name, place)
        yield read("self share of a function", of, own)
        yield read("total share of a function", of, total)
        yield read("self samples of a function", of, samples)
        if re.search(r":\d+$", place):
            yield exact("line of a function", of, int(place.rpartition(":")[2]))


def _processes(page: ReportPage) -> Numbers:
    for _, pid, cpu, last, _, samples, _, _, end, _ in _rows(page, "processes"):
        yield read("samples of a process", pid, samples)
        for kind, shown in (("CPU of a process", cpu), ("memory of a process", last)):
            if shown not in NONE:
                yield read(kind, pid, shown)
        if found := re.search(r"code (\d+)", end):
            yield read("exit code of a process", pid, found[1])


def _memory(page: ReportPage) -> Numbers:
    for row in _rows(page, "memory"):
        if found := re.search(r"^grows by (\S+ \S+?)(?: ±.*?)?(?:: .* is full in (.+))?$", row[-1]):
            pid = row[0].rpartition(" · ")[2]
            yield read("growth of memory", pid, found[1])
            if found[2]:
                yield read("time until memory is full", pid, found[2])


def _events(page: ReportPage) -> Numbers:
    events = _rows(page, "events")
    yield exact("events", "run", len(events))
    yield from (clock("time of an event", at, row[0]) for at, row in enumerate(events))


def _operators(page: ReportPage) -> Numbers:
    rows = _rows(page, "operators")
    for gpu, *shown in re.findall(IDLE_TEXT, page.page.inner_text("#view-operators")):
        yield from (read(kind, gpu, share) for kind, share in zip(IDLE, shown, strict=True))
    yield from operators([row[0] for row in page.cells("#view-operators thead th")], rows)


def _ranks(page: ReportPage) -> Numbers:
    for row in page.cells("section.ranks tbody tr"):
        for kind, cell in (("own work of a rank", row[3]), ("waiting of a rank", row[4])):
            if found := re.search(r"\((<?\d+ %)\)", cell):
                yield read(kind, row[1], found[1])


def _rows(page: ReportPage, view: str) -> list[list[str]]:
    page.page.click(f"#tab-{view}")
    page.shown("true")
    return page.rows(view)
