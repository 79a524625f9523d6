"""The second line: the one sentence that says where the time goes, with one number and one line of the user's code."""

from __future__ import annotations

from collections.abc import Sequence

from profd.daemon.analyze.findings.finding import CRITICAL, INFO, Finding
from profd.daemon.analyze.phases import STARTUP, phase_named
from profd.daemon.render.findinglines import HEALTHY_SHARE, MUCH_STARTUP, worked_share
from profd.daemon.render.visible import visible
from profd.daemon.units import percent
from profd.tui.drawing.cells import Run
from profd.tui.drawing.wrapping import wrap_runs
from profd.tui.snapshot import Snapshot, Verdict
from profd.tui.widgets.absence import without_samples
from profd.tui.widgets.drawn import Lines

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
