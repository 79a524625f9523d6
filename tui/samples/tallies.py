"""Times that grow with the samples: phases and the user's lines, added to and never counted anew.

A run of a day has too many stacks to go through twice a second; what is new since the last look is always few.
"""

from __future__ import annotations

from collections import defaultdict

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow
from profd.tui.snapshot import PhaseShare, Verdict


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
    """Time by phase, and by the user's line within each phase."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.time_ns: defaultdict[str, float] = defaultdict(float)
        self.lines_ns: defaultdict[tuple[str, int], float] = defaultdict(float)

    def add(self, stack: int, time_ns: float) -> None:
        """Count time in a stack."""
        place = self._places.of_stack(stack)
        self.time_ns[place[0]] += time_ns
        self.lines_ns[place] += time_ns

    def update(self, other: PhaseTally, weight: float) -> None:
        """Count the time of another thread too, weighted."""
        for phase, time_ns in other.time_ns.items():
            self.time_ns[phase] += time_ns * weight
        for place, time_ns in other.lines_ns.items():
            self.lines_ns[place] += time_ns * weight

    def shares(self) -> tuple[PhaseShare, ...]:
        """Return the shares of the phases, the largest first."""
        whole_ns = sum(self.time_ns.values())
        order = sorted(self.time_ns, key=lambda phase: -self.time_ns[phase])
        return tuple(PhaseShare(phase, self.time_ns[phase] / whole_ns) for phase in order if self.time_ns[phase])

    def verdict(self, reader: RunReader, threads: int) -> Verdict | None:
        """Return the largest phase with the line that most of it was called from; None without samples."""
        shares = self.shares()
        if not shares:
            return None
        phase = shares[0].phase
        lines = {frame: time_ns for (name, frame), time_ns in self.lines_ns.items() if name == phase and frame}
        frame = reader.frames[max(lines, key=lambda frame: lines[frame])] if lines else None
        return Verdict(
            phase=phase,
            share=shares[0].share,
            where=f"{frame.module_path}:{frame.line}" if frame else "",
            source=(frame.source or "") if frame else "",
            threads=threads,
        )
