"""The first two lines: what is profiled and how well, and the one sentence that says where the time goes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from profd.daemon.analyze.phases import STARTUP, phase_named
from profd.daemon.findings.finding import CRITICAL, INFO, Finding
from profd.daemon.naming import script, signal_name
from profd.daemon.render.plaintext import visible, width
from profd.daemon.render.sections import HEALTHY_SHARE, MUCH_STARTUP, worked_share
from profd.daemon.store.rows import RunInfo
from profd.daemon.units import elapsed, percent, plural, rate
from profd.tui.cells import Run, wrap_runs
from profd.tui.snapshot import Snapshot, Steps, Verdict
from profd.tui.strips import sparkline
from profd.tui.widgets.drawn import Lines
from profd.tui.widgets.hot import without_samples

GAP = "   "
HEADROOM = 1.5  # an even course is no solid bar


class Part(msgspec.Struct, frozen=True):
    """A part of the line; where room is short, those with the highest ``rank`` go first."""

    rank: int
    runs: tuple[Run, ...]

    @property
    def width(self) -> int:
        """The cells that it takes with the gap behind it."""
        return sum(width(run.text) for run in self.runs) + len(GAP)


class Header(Lines):
    """The header line."""

    snapshot: Snapshot | None = None
    is_paused: bool = False

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot."""
        self.snapshot = snapshot
        self.redraw()

    def set_paused(self, *, is_paused: bool) -> None:
        """Say whether the view is held."""
        self.is_paused = is_paused
        self.refresh()

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return the line, with what there is room for."""
        if self.snapshot is None:
            return [self.run(" profd ", "bright"), self.run("opening the run…", "dim")]
        left, right = self._identity(self.snapshot), self._vitals(self.snapshot)
        for rank in range(9, 0, -1):
            if _blanks(left, right, width) >= 0:
                break
            left = [part for part in left if part.rank < rank]
            right = [part for part in right if part.rank < rank]
        gap = self.run(" " * max(_blanks(left, right, width), 0) + (GAP if right else ""))
        return [self.run(" "), *self._joined(left), gap, *self._joined(right)]

    def _identity(self, snapshot: Snapshot) -> list[Part]:
        info, workers = snapshot.info, snapshot.vitals.workers
        beside = f" + {plural(workers, 'worker')}" if workers else ""
        mark, words, ink = self._state(info)
        return [
            Part(0, (self.run("profd ", "bright"), self.run(mark, ink))),
            Part(1, (self.run(visible(script(info.command)), "bright"),)),
            *([Part(2, (self.run(words, ink),))] if words else []),
            Part(6, (self.run(f"pid {info.pid}{beside}", "dim"),)),
            Part(3, (self.run(elapsed(info.end_ns - info.started_ns)),)),
            *self._steps(snapshot),
        ]

    def _steps(self, snapshot: Snapshot) -> list[Part]:
        steps = snapshot.vitals.steps
        if steps is None:
            return []
        course = sparkline(steps.recent_per_s, HEADROOM * max(steps.recent_per_s))
        return [
            Part(4, (self.run(f"{counted(steps)}  "), self._rate(steps))),
            *self._mean(steps),
            Part(9, (self.run(course, "dim"),)),
        ]

    def _rate(self, steps: Steps) -> Run:
        return (
            self.run("pauses", "warn") if steps.pauses and steps.made is None else self.run(rate(steps.per_s), "bright")
        )

    def _mean(self, steps: Steps) -> list[Part]:
        """Return the mean rate where it says something beside that of now."""
        if steps.made is not None or steps.mean_per_s is None or rate(steps.mean_per_s) == rate(steps.per_s):
            return []
        return [Part(6, (self.run(f"mean {rate(steps.mean_per_s)}", "dim"),))]

    def _state(self, info: RunInfo) -> tuple[str, str, str]:
        """Return the mark of the run's state, the words for it, and their ink."""
        if self.is_paused:
            return "❚❚", "paused", "warn"
        if info.state == "live":
            return "●", "", "good"
        if info.state == "interrupted":
            return "▲", "cut off: profd itself was ended", "bad"
        is_good = info.exit_signal is None and not info.exit_code and info.why_ended != "failed"
        return "■", ending(info), "dim" if is_good else "bad"

    def _vitals(self, snapshot: Snapshot) -> list[Part]:
        vitals = snapshot.vitals
        if snapshot.read_share < 1:
            return [Part(2, (self.run(f"reading the run, {percent(snapshot.read_share)}", "accent"),))]
        parts = []
        if vitals.coverage is not None:
            ink = "dim" if vitals.coverage >= 0.99 else "warn"
            parts.append(Part(5, (self.run(f"{percent(vitals.coverage, 1)} covered", ink),)))
        if vitals.torn_share is not None:
            parts.append(Part(8, (self.run(f"{percent(vitals.torn_share, 1)} torn", "dim"),)))
        if vitals.cost_cores is not None:
            word = "costs" if snapshot.info.state == "live" else "cost"
            cost = self.run(percent(vitals.cost_cores, 1), self._cost_ink(snapshot.info, vitals.cost_cores))
            parts.append(Part(4, (self.run(f"{word} ", "dim"), cost, *self._view_cost(snapshot))))
        return parts

    def _view_cost(self, snapshot: Snapshot) -> list[Run]:
        """Return what the dashboard takes beside it, while somebody can still compare the two."""
        if snapshot.view_cores is None or snapshot.info.state != "live":
            return []
        return [self.run(f" + view {percent(snapshot.view_cores, 1)}", "dim")]

    def _cost_ink(self, info: RunInfo, cores: float) -> str:
        budget = info.options.get("budget_percent")
        return "warn" if isinstance(budget, int | float) and 100 * cores > budget else "plain"

    def _joined(self, parts: Sequence[Part]) -> list[Run]:
        runs = [[*part.runs, self.run(GAP)] for part in parts]
        return list(itertools.chain.from_iterable(runs))[:-1]


def counted(steps: Steps) -> str:
    """Return the step that a run is at, or how many steps it made."""
    if steps.made is None:
        return f"step {'~' if steps.is_about else ''}{steps.step:,}"
    return f"{'~' if steps.is_about else ''}{plural(steps.made, 'step')}"


def ending(info: RunInfo) -> str:
    """Return how a run ended, in a few words."""
    if info.exit_signal is not None:
        return f"ended by {signal_name(info.exit_signal)}"
    if info.exit_code is not None:
        return f"ended with {info.exit_code}"
    if info.why_ended == "failed":
        return "recording failed"
    return {"target-exited": "ended", "elapsed": "stopped after its time", "stopped": "stopped"}.get(
        info.why_ended or "", "ended"
    )


def _blanks(left: Sequence[Part], right: Sequence[Part], width: int) -> int:
    """Return the cells left over between the two halves, with a margin of one on both sides; negative: none are."""
    parts = [*left, *right]
    return width - 2 - sum(part.width for part in parts) + len(GAP)


# In rooms of fewer lines than that the sentence has one of them, else two where it needs them.
_TWO_LINES_FROM = 20
_INDENT = 3


class VerdictLine(Lines):
    """The sentence, on two lines where one is too short; once it took two it keeps them, so that nothing jumps."""

    snapshot: Snapshot | None = None
    _lines = 1
    _width = 0

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot."""
        self.snapshot = snapshot
        self._make_room()
        self.redraw()

    def on_resize(self) -> None:
        """Take the lines that are needed in other room."""
        self._make_room()

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return a line of the sentence; the last has all that is left, and is cut."""
        lines = wrap_runs(self._sentence(), width, indent=_INDENT)
        last = self.size.height - 1
        if y < last:
            return lines[y] if y < len(lines) else []
        return [run for line in lines[y:] for run in self._joined(line, is_first=line is lines[y])]

    def _joined(self, line: Sequence[Run], *, is_first: bool) -> Sequence[Run]:
        """Return a line as it goes on behind another one."""
        return line if is_first else [self.run(" "), Run(line[0].text.lstrip(" "), line[0].style), *line[1:]]

    def _make_room(self) -> None:
        """Take two lines where they are needed and there."""
        width, is_roomy = self.size.width, self.app.size.height >= _TWO_LINES_FROM
        needed = len(wrap_runs(self._sentence(), width, indent=_INDENT)) if width else 1
        wanted = 2 if is_roomy and (needed > 1 or (self._lines > 1 and width == self._width)) else 1
        self._width = width
        if wanted != self._lines:
            self._lines = wanted
            self.styles.height = wanted

    def _sentence(self) -> Sequence[Run]:
        if self.snapshot is None:
            return []
        strongest = next((one for one in self.snapshot.findings if one.severity != INFO), None)
        if strongest is not None:
            return self._finding(strongest)
        work = work_share(self.snapshot)
        # Nobody is called healthy before it was looked for what is wrong.
        if work is not None and work >= HEALTHY_SHARE and self.snapshot.is_diagnosed:
            return self._healthy(work, startup_share(self.snapshot))
        verdict = self.snapshot.verdict
        if verdict is None:
            return [self.run(" "), self._without_samples(self.snapshot)]
        look = self.phase_look(verdict.phase)
        runs = [
            Run(f" {look.letter} ", look.cell),
            self.run(" "),
            self.run(percent(verdict.share), "bright"),
            self.run(f" {sentence(verdict)}"),
        ]
        if verdict.where:
            runs += [self.run(", at ", "plain"), self.run(visible(verdict.where), "accent")]
        if verdict.source:
            runs += [self.run(f"   {visible(verdict.source)}", "dim")]
        return runs

    def _finding(self, finding: Finding) -> Sequence[Run]:
        """Return the sentence of a finding."""
        ink = "bad" if finding.severity == CRITICAL else "warn"
        return [
            self.run(f" ▲ {visible(finding.label).upper()}  ", ink),
            self.run(visible(finding.sentence), "bright"),
            self.run("   5 why", "dim"),
        ]

    def _healthy(self, work: float, startup: float) -> Sequence[Run]:
        """Return that nothing is wrong; of a range that startup takes much of only what is in it."""
        is_work = "is forward, backward and optimizer"
        if startup < MUCH_STARTUP:
            share = self.run(percent(work), "bright")
            return [self.run(" ✓ healthy: ", "good"), share, self.run(f" of the training's time {is_work}")]
        look = self.phase_look(STARTUP)
        return [
            Run(f" {look.letter} ", look.cell),
            self.run(" "),
            self.run(percent(startup), "bright"),
            self.run(f" of this time is startup and import; of the rest {percent(work)} {is_work}"),
        ]

    def _without_samples(self, snapshot: Snapshot) -> Run:
        """Return why there is nothing to say."""
        said = without_samples(snapshot, "a main thread")
        return self.run(said, "bad" if said.startswith("No samples: ") else "dim")


def work_share(snapshot: Snapshot) -> float | None:
    """Return the share of forward, loss, backward and optimizer in the main threads' time, startup aside."""
    shares = [{one.phase: one.share for one in lane.shares} for lane in snapshot.timeline.lanes if lane.shares]
    known = [worked_share(lane) for lane in shares]
    return sum(known) / len(known) if known else None


def startup_share(snapshot: Snapshot) -> float:
    """Return the share of startup and import in the main threads' time."""
    shares = [{one.phase: one.share for one in lane.shares} for lane in snapshot.timeline.lanes if lane.shares]
    return sum(lane.get(STARTUP, 0.0) for lane in shares) / (len(shares) or 1)


def sentence(verdict: Verdict) -> str:
    """Return what goes on for a share of the time, to be said after that share."""
    whose = f"the main thread of each of {verdict.threads} processes" if verdict.threads > 1 else "the main thread"
    return f"of the time {whose} {phase_named(verdict.phase).doing}"
