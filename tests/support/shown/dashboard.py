"""The numbers of the dashboard, read from its screen."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from profd.daemon.analyze.phases import PHASES
from profd.daemon.store.reader import RunReader
from support.dashboard import OpenDashboard, open_dashboard
from support.shown.numbers import IDLE, NONE, Number, Numbers, clock, exact, function, read

_SIZE = (400, 60)
_BARS = re.compile("[█▏▎▍▌▋▊▉]")
_CIRCLED = {ord("①") + at: str(at + 1) for at in range(9)}
_TIMES = "\N{MULTIPLICATION SIGN}"
_IN_HEADER = (
    ("exit code", r"ended with (\d+)"),
    ("pid of the target", r"pid (\d+)"),
    ("workers", r"\+ (\d+) workers?"),
    ("duration", r"(?:(\d+) d )?(\d\d:\d\d:\d\d)  "),
    ("steps", r"~?([\d,]+) steps?  "),
    ("step rate", r"steps?  (\S+/s)"),
    ("coverage", r"(\S+ %) covered"),
    ("torn share", r"(\S+ %) torn"),
    ("cost", r"cost (\S+ %)"),
)
_IN_STRIPS = (
    ("GPU utilization", r"^ GPU  .*  (\d+ %) +mean"),
    ("GPU power", r"^ GPU  .*  (\d+ W)$"),
    ("GPU memory in use", r"^ GPU mem .*  (\S+ [kMGT]?B) +peak of "),
    ("GPU memory", r"^ GPU mem .* peak of (\S+ [kMGT]?B)"),
    ("samples", r" · ([\d,]+) samples?$"),
    ("findings", r" 6 Findings (\d+)"),
)
_OF_PHASE = r"  \S ([a-z0-9 ]+?)(?: +[\d.]+ (?:µs|ms|s))? +(<?\d+ %)"
_OPERATORS = {
    "Self CPU": "self CPU time of an operator", "CPU total": "CPU time of an operator",
    "Self CUDA": "self CUDA time of an operator", "CUDA total": "CUDA time of an operator",
    "Self CPU %": "self CPU share of an operator", "Self CUDA %": "self CUDA share of an operator",
    "# of Calls": "calls of an operator",
}  # fmt: skip


def of_dashboard(path: Path) -> Numbers:
    """Yield the numbers of the dashboard, tab by tab."""
    seen: list[Number] = []

    async def look() -> None:
        async with open_dashboard(path, size=_SIZE) as opened:
            await opened.press("2")  # the samples of the lines are those of the loop
            seen.extend(_top(_lines(opened), path))
            for key, take in _TABS.items():
                await opened.press(key, *("l" if take is _events else ""))  # all events
                seen.extend(take(_lines(opened)))

    # Playwright has the event loop of the main thread.
    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    assert seen
    yield from seen


def _lines(opened: OpenDashboard) -> list[str]:
    strips = opened.top()._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def _top(lines: Sequence[str], path: Path) -> Numbers:
    with RunReader(path) as reader:
        gpus = {row.device for row in reader.list_series() if row.device is not None}
    for kind, pattern in _IN_HEADER:
        if found := re.search(pattern, lines[0]):
            yield (
                read(kind, "run", found[1])
                if kind != "duration"
                else clock(kind, "run", found[2], int(found[1] or 0))
            )
    is_alone = sum(re.match(" (main|rank) ", line) is not None for line in lines) == 1
    names = {phase.short: phase.name for phase in PHASES}
    for line in lines:
        for found in re.finditer(_OF_PHASE, line) if is_alone else ():
            yield read("share of a phase", names.get(found[1], found[1]), found[2])
        for kind, pattern in _IN_STRIPS:
            if match := re.search(pattern, line.translate(_CIRCLED)):
                of = (
                    "run"
                    if not kind.startswith("GPU")
                    else gpus.copy().pop()
                    if len(gpus) == 1
                    else "all"
                )
                yield read(kind, of, match[1])


def _functions(lines: Sequence[str]) -> Numbers:
    at = next(at for at, line in enumerate(lines) if "self ▾" in line)
    for line in lines[at + 1 :]:
        words = [word for word in _cells(line) if not _BARS.search(word)]
        if "%" not in words[0] or len(words) < 4:
            continue
        own, total, *rest = words
        utilization = rest.pop(0) if "GPU" in lines[at] else "-"
        of = function(rest[0], rest[1])
        yield read("self share of a function", of, own)
        yield read("total share of a function", of, total)
        if re.search(r":\d+$", rest[1]):
            yield exact("line of a function", of, int(rest[1].rpartition(":")[2]))
        if utilization not in NONE:
            yield read("GPU utilization of a function", of, utilization)


def _processes(lines: Sequence[str]) -> Numbers:
    for line in lines:
        if found := re.search(r"^ .*  +(\d+) +(<?\S+ %)? {2,}(\d\S* [kMGT]?B)", line):
            if found[2]:
                yield read("CPU of a process", found[1], found[2])
            yield read("memory of a process", found[1], found[3])


def _operators(lines: Sequence[str]) -> Numbers:
    for gpu, *shown in re.findall(r"GPU (\d+) idle (<?\d+ %), host (<?\d+ %)", "\n".join(lines)):
        yield from (read(kind, gpu, share) for kind, share in zip(IDLE, shown, strict=True))
    at = next((at for at, line in enumerate(lines) if "Self CPU %" in line), len(lines) - 1)
    yield from operators(_cells(lines[at]), map(_cells, lines[at + 1 :]))


def operators(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Numbers:
    """Yield the numbers of a table in torch's columns."""
    kinds = [_OPERATORS.get(re.sub(" [▾↓↑]", "", title)) for title in titles]
    for row in rows:
        if len(row) == len(kinds):
            yield from (
                read(kind, row[0], shown)
                for kind, shown in zip(kinds, row, strict=True)
                if kind and shown not in NONE
            )


def _findings(lines: Sequence[str]) -> Numbers:
    first = None
    for line in lines:
        if found := re.search(rf"^ [▲·]  (.+?)  .*?(\d\S*{_TIMES})(?: |$)", line):
            yield read("gain of a finding", found[1], found[2])
        first = first or (found and found[1])
        if first and (found := re.search(r"^.{60,} {2}(<?\S+ %)  (\D+?)  \S+ %(?: to |$)", line)):
            yield read("measure of a finding", f"{first}: {found[2]}", found[1])


def _events(lines: Sequence[str]) -> Numbers:
    found = [
        match
        for line in lines
        if (match := re.search(r"^ \d\d:\d\d:\d\d  (\d\d:\d\d:\d\d) +\w+", line))
    ]
    yield exact("events", "run", len(found))
    yield from (clock("time of an event", at, match[1]) for at, match in enumerate(reversed(found)))


def _cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


_TABS = {"2": _functions, "4": _processes, "5": _operators, "6": _findings, "7": _events}
