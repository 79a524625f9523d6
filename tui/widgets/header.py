"""The first two lines: what is profiled and how well, and where the time goes.

The second line is one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from textual.reactive import reactive

from profd.daemon.analyze.phases import phase_named
from profd.daemon.findings.finding import CRITICAL, INFO, LEAST_SAMPLES, WARNING, Finding
from profd.daemon.naming import ending, script, signal_name
from profd.daemon.render.plaintext import visible
from profd.daemon.render.sections import (
    ALARM,
    COMPUTE_SHARE,
    GOOD,
    SETTLED_S,
    alarm,
    cost_words,
    mark,
    worked_share,
)
from profd.daemon.render.sections import verdict as verdict_of
from profd.daemon.store.rows import RunInfo
from profd.daemon.units import elapsed, percent, plural, rate
from profd.tui.cells import Run, StyledRun, cells_of, wrap_runs
from profd.tui.snapshot import Snapshot, Verdict
from profd.tui.widgets.hot import without_samples
from profd.tui.widgets.linewidget import LineWidget

_GAP = "   "


class Part(NamedTuple):
    """A part of the header; in a narrow one, those with the highest ``rank`` go first."""

    rank: int
    runs: tuple[Run, ...]


class Header(LineWidget):
    """The header line."""

    is_paused = reactive(False)

    def draw(self, y: int, width: int) -> Sequence[Run]:
        if self.snapshot is None:
            return [(" profd ", "bright"), ("opening the run…", "dim")]
        halves = self._identity(self.snapshot), self._vitals(self.snapshot)
        for most in range(8, -1, -1):
            left, right = (_joined(part for part in half if part.rank <= most) for half in halves)
            blanks = width - 2 - cells_of([*left, *right])
            if blanks >= (len(_GAP) if right else 0):
                break
        return [" ", *left, " " * blanks, *right]

    def _identity(self, snapshot: Snapshot) -> list[Part]:
        info, workers = snapshot.info, snapshot.workers
        beside = f" + {plural(workers, 'worker')}" if workers else ""
        mark, words, style = self._state(info)
        return [
            Part(0, (("profd ", "bright"), (mark, style))),
            Part(1, ((visible(script(info.command)), "bright"),)),
            *([Part(2, ((words, style),))] if words else []),
            Part(6, ((f"pid {info.target.pid}{beside}", "dim"),)),
            Part(3, (elapsed(info.time.length_ns),)),
            *self._steps(snapshot),
        ]

    def _state(self, info: RunInfo) -> tuple[str, str, str]:
        if self.is_paused:
            return "❚❚", "paused", "warn"
        if info.is_live:
            return "●", "", "good"
        if info.state == "interrupted":
            return "▲", ended(info), "bad"
        is_bad = info.exit_signal is not None or info.exit_code or info.why_ended == "failed"
        return "■", ended(info), "bad" if is_bad else "dim"

    def _steps(self, snapshot: Snapshot) -> list[Part]:
        steps = snapshot.steps
        if steps is None or steps.per_s is None:
            return []
        count = "steps"
        if steps.made is not None:
            count = f"{steps.exactness}{plural(steps.made, 'step')}"
        elif steps.step is not None:
            count = f"step {steps.exactness}{steps.step:,}"
        pace = ("pauses", "warn") if steps.pauses else (rate(steps.per_s), "bright")
        return [Part(4, (f"{count}  ", pace))]

    def _vitals(self, snapshot: Snapshot) -> list[Part]:
        if snapshot.read_share < 1:
            return [Part(2, ((f"reading the run, {percent(snapshot.read_share)}", "accent"),))]
        parts = []
        if snapshot.coverage is not None:
            is_settled = snapshot.info.time.length_s >= SETTLED_S
            style = "warn" if snapshot.coverage < 0.99 and is_settled else "dim"
            parts.append(Part(5, ((f"{percent(snapshot.coverage, 1)} covered", style),)))
        if snapshot.torn_share is not None:
            parts.append(Part(8, ((f"{percent(snapshot.torn_share, 1)} torn", "dim"),)))
        if snapshot.cost_cores is not None:
            parts.append(self._cost(snapshot, snapshot.cost_cores))
        return parts

    def _cost(self, snapshot: Snapshot, cores: float) -> Part:
        info, budget = snapshot.info, snapshot.info.options.get("budget_percent")
        words = cost_words(cores, info.time.length_s).removesuffix(" of a core")
        is_share = "%" in words
        is_much = is_share and isinstance(budget, int | float) and 100 * cores > budget
        runs = [("costs " if info.is_live else "cost ", "dim")]
        runs.append((words, "warn" if is_much else "plain"))
        # While somebody can still compare the two.
        if snapshot.view_cores is not None and info.is_live and is_share:
            runs.append((f" + view {percent(snapshot.view_cores, 1)}", "dim"))
        return Part(4, tuple(runs))


def ended(info: RunInfo) -> str:
    return ending(info.state, info.why_ended, info.exit_code, signal_name(info.exit_signal))


def _joined(parts: Iterable[Part]) -> list[Run]:
    return [run for part in parts for run in (*part.runs, _GAP)][:-1]


# On a screen of fewer lines the sentence has one of them, otherwise two if it needs them.
_TWO_LINES_FROM = 20
_INDENT = 3


class VerdictLine(LineWidget):
    """The sentence, on two lines if one is too short.

    Once it has taken two lines it keeps them, so that nothing jumps.
    """

    _lines = 1
    _width = 0

    def on_resize(self) -> None:
        width, is_roomy = self.size.width, self.app.size.height >= _TWO_LINES_FROM
        needed = len(self._wrapped(width, 2)) if width else 1
        wanted = 2 if is_roomy and (needed > 1 or (self._lines > 1 and width == self._width)) else 1
        self._width = width
        if wanted != self._lines:  # setting a height causes another layout
            self._lines = self.styles.height = wanted

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return a line of the sentence; the last one has the whole rest, and is cut."""
        lines = self._wrapped(width, self.size.height)
        return lines[y] if y < len(lines) else []

    def _wrapped(self, width: int, most: int) -> list[list[StyledRun]]:
        return wrap_runs(self._sentence(), width, most=most, indent=_INDENT)

    def _sentence(self) -> Sequence[Run]:
        if self.snapshot is None:
            return []
        if self.snapshot.hang:
            return [(f" {ALARM} HANG, see 7  ", "bad"), (visible(self.snapshot.hang), "bright")]
        if (warned := alarm(self.snapshot.findings)) is not None:
            return _said(warned)
        shares = self._mean_shares(self.snapshot)
        # Nothing is said before the run was searched for problems.
        verdict = self.snapshot.verdict
        if verdict and verdict.samples < LEAST_SAMPLES:
            few = (f" {plural(verdict.samples, 'sample')} only:", "dim")
            return [few, *self._of_verdict(self.snapshot)]
        if worked_share(shares) >= COMPUTE_SHARE and self.snapshot.is_diagnosed:
            said = verdict_of(self.snapshot.findings, shares, LEAST_SAMPLES)
            return [(f" {said}", "good" if said.startswith(GOOD) else "bright")]
        return self._of_verdict(self.snapshot)

    def _mean_shares(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return the shares of phases in the main threads that were seen."""
        seen = [row.shares for row in snapshot.timeline.phase_rows if row.shares]
        return {
            name: sum(one.get(name, 0.0) for one in seen) / len(seen) for name in {*chain(*seen)}
        }

    def _of_verdict(self, snapshot: Snapshot) -> Sequence[Run]:
        """Return what most of the time goes into, or why that is not known."""
        verdict = snapshot.verdict
        if verdict is None:
            reason = without_samples(snapshot, "a main thread")
            return [
                " ",
                (reason, "bad" if reason.startswith("No samples: ") else "dim"),
            ]
        look = self.phase_looks[verdict.phase]
        runs: list[Run] = [
            (f" {look.letter} ", look.cell),
            " ",
            (percent(verdict.share), "bright"),
            f" {sentence(verdict)}",
        ]
        if verdict.line:
            place = f"{verdict.line.module_path}:{verdict.line.line}"
            source = f"   {visible(verdict.line.source or '')}".rstrip(" ")
            runs += [", at ", (visible(place), "accent"), (source, "dim")]
        return runs


def _said(found: Finding) -> Sequence[Run]:
    style = {CRITICAL: "bad", WARNING: "warn", INFO: "accent"}[found.severity]
    return [
        (f" {mark(found)} {visible(found.label).upper()}  ", style),
        (visible(found.sentence), "bright"),
        ("   6 why", "dim"),
    ]


def sentence(verdict: Verdict) -> str:
    """Return what goes on for a share of the time, as words that follow the share."""
    whose = (
        f"the main thread of each of {verdict.processes} processes"
        if verdict.processes > 1
        else visible(verdict.led_by)
    )
    return f"of the time {whose} {phase_named(verdict.phase).doing}"
