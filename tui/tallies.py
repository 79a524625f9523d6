"""Counts that grow with the samples: functions, phases and the user's lines, each added to and never counted anew.

A run of a day has too many stacks to go through twice a second; what is new since the last look is always few.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from profd.daemon.analyze.functions import FunctionRow
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow
from profd.tui.snapshot import PhaseShare, Verdict

FunctionKey = tuple[str, str]


class Places:
    """The phase of every stack with the user's line that it owes it to, found once a stack."""

    def __init__(self, phases: PhaseIndex) -> None:
        self._phases = phases
        self._places: dict[int, tuple[str, int]] = {}

    def of_stack(self, stack: int) -> tuple[str, int]:
        """Return the name of the phase and the id of the line's frame, 0 where no line of the user's is in it."""
        if stack not in self._places:
            frame = self._phases.user_line(stack)
            self._places[stack] = self._phases.of_stack(stack), frame.id if frame else 0
        return self._places[stack]


class UserLines:
    """The innermost frame of the user's own code in every stack, looked for once a stack.

    What lies outside of a forked child's start is its parent's, copied with the rest: not what the child is doing.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._frames: dict[int, int] = {0: 0}

    def of_stack(self, stack: int) -> int:
        """Return the id of the frame, 0 where the stack is all library."""
        asked: list[int] = []
        while stack not in self._frames:
            asked.append(stack)
            row = self._reader.stacks[stack]
            frame = self._reader.frames[row.frame]
            if not frame.is_library or _starts_child(frame):
                self._frames[stack] = 0 if frame.is_library else frame.id
                break
            stack = row.parent
        found = self._frames[stack]
        self._frames.update(dict.fromkeys(asked, found))
        return found


def _starts_child(frame: FrameRow) -> bool:
    return frame.module_path == "multiprocessing/process.py" and frame.function.endswith("_bootstrap")


class PhaseTally:
    """Samples by phase, and by the user's line within each phase."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.samples: Counter[str] = Counter()
        self.lines: Counter[tuple[str, int]] = Counter()

    def add(self, stack: int, samples: int) -> None:
        """Count samples of a stack."""
        place = self._places.of_stack(stack)
        self.samples[place[0]] += samples
        self.lines[place] += samples

    def update(self, other: PhaseTally) -> None:
        """Count the samples of another thread too."""
        self.samples.update(other.samples)
        self.lines.update(other.lines)

    def shares(self) -> tuple[PhaseShare, ...]:
        """Return the shares of the phases, the largest first."""
        whole = self.samples.total()
        return tuple(PhaseShare(phase, samples / whole) for phase, samples in self.samples.most_common() if samples)

    def verdict(self, reader: RunReader, threads: int) -> Verdict | None:
        """Return the largest phase with the line that most of it was called from; None without samples."""
        shares = self.shares()
        if not shares:
            return None
        phase = shares[0].phase
        lines = {frame: samples for (name, frame), samples in self.lines.items() if name == phase and frame}
        frame = reader.frames[max(lines, key=lambda frame: lines[frame])] if lines else None
        return Verdict(
            phase=phase,
            share=shares[0].share,
            where=f"{frame.module_path}:{frame.line}" if frame else "",
            source=(frame.source or "") if frame else "",
            threads=threads,
        )


class FunctionTally:
    """Self and total samples by function: what ``hot_functions`` counts, but added to."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._own: Counter[FunctionKey] = Counter()
        self._total: Counter[FunctionKey] = Counter()
        self._at_frame: defaultdict[FunctionKey, Counter[int]] = defaultdict(Counter)
        self._stacks: dict[int, tuple[FunctionKey, tuple[tuple[FunctionKey, int], ...]]] = {}
        self.samples = 0

    def add(self, stack: int, samples: int) -> None:
        """Count samples of a stack."""
        leaf, functions = self._functions(stack)
        self.samples += samples
        self._own[leaf] += samples
        for key, frame in functions:
            self._total[key] += samples
            self._at_frame[key][frame] += samples

    def rows(self) -> list[FunctionRow]:
        """Return the functions, those with the most samples of their own first."""
        whole = max(self.samples, 1)
        rows = [self._row(key, total, whole) for key, total in self._total.items()]
        rows.sort(key=lambda row: (-row.self_samples, -row.total_samples, row.module_path, row.function))
        return rows

    def _row(self, key: FunctionKey, total: int, whole: int) -> FunctionRow:
        at_frame = self._at_frame[key]
        hottest = self._reader.frames[max(at_frame, key=lambda frame: at_frame[frame])]
        return FunctionRow(
            function=key[0],
            file=key[1],
            module_path=hottest.module_path,
            is_library=hottest.is_library,
            line=hottest.line,
            source=hottest.source,
            self_samples=self._own[key],
            total_samples=total,
            self_share=self._own[key] / whole,
            total_share=total / whole,
        )

    def _functions(self, stack: int) -> tuple[FunctionKey, tuple[tuple[FunctionKey, int], ...]]:
        """Return the function at the leaf, and each function of the stack once with its innermost frame."""
        known = self._stacks.get(stack)
        if known is None:
            frames = self._reader.frames_of(stack)
            innermost = {(frame.function, frame.file): frame.id for frame in frames}
            leaf = frames[-1]
            known = self._stacks[stack] = ((leaf.function, leaf.file), tuple(innermost.items()))
        return known
