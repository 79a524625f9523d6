"""Replays stored recordings through the real path, from what py-spy wrote to a run file, without py-spy and torch."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from profd.daemon.collect.stacks import assembly
from profd.daemon.collect.stacks.chrometrace import TraceDamaged
from profd.daemon.collect.stacks.pyspy import read_output
from profd.daemon.collect.stacks.source import SourceTree
from profd.daemon.collect.stacks.statements import Statement, Statements
from profd.daemon.collect.stacks.tearing import Evidence
from profd.daemon.collect.steps.counter import LoopCounters, read_answer
from profd.daemon.collect.steps.declared import Declared
from profd.daemon.collect.steps.reader import StepReader
from profd.daemon.store.records import Frame, FrameDescription, Identity, Record, RecordingTaken
from profd.daemon.store.writer import RunWriter
from profd.daemon.supervise.naming import script_folder
from profd.daemon.userfiles import UserFiles
from support.clocks import StoppedClock
from support.folders import TESTS
from support.recordinglines import (
    Diary,
    Loops,
    Put,
    PySpyDump,
    PySpyRecord,
    Sources,
    Started,
    StepsBegan,
    StepsEnded,
    StoredLine,
    read_lines,
)

RECORDINGS = TESTS / "recordings"

Found = TypeVar("Found", bound=StoredLine)


def recording_names() -> list[str]:
    """Return the names of the stored recordings."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in (RECORDINGS / "data").glob("*.jsonl.gz"))


def recording_file(name: str) -> Path:
    """Return the file of a stored recording."""
    return RECORDINGS / "data" / f"{name}.jsonl.gz"


def replay(name: str, run_file: Path) -> Diary:
    """Make the run file of a stored recording, and return the diary of its program."""
    lines = read_lines(recording_file(name))
    started, sources = _the(Started, lines).started, _the(Sources, lines)
    with tempfile.TemporaryDirectory() as folder:
        root = _lay_out(sources, Path(folder))
        described = RecordedTree(sources, root, script_folder(started.command, started.cwd))
        writer = RunWriter(run_file, started, described.describe)

        def put(record: Record) -> None:
            assert writer.put(record), writer.failure

        session = _Session(sources, root, put)
        for line in lines:
            session.take(line)
        writer.close()
    assert writer.failure is None, writer.failure
    return _the(Diary, lines)


def _the(kind: type[Found], lines: list[StoredLine]) -> Found:
    """Return the line of a kind that a recording has once."""
    (found,) = (line for line in lines if isinstance(line, kind))
    return found


def _lay_out(sources: Sources, root: Path) -> Path:
    """Write this project's own source files below ``root`` as they were."""
    for file, text in sources.own.items():
        path = root / file.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class RecordedTree:
    """The source files that a recorded target saw; of libraries what is known of them."""

    def __init__(self, sources: Sources, root: Path, own: Path | None) -> None:
        """Own files lie below ``root``; ``own`` is the folder of the script."""
        self._sources = sources
        self._tree = SourceTree(UserFiles(root=root), own)

    def describe(self, frame: Frame) -> FrameDescription:
        """Return what is kept of a frame beside its identity."""
        known = self._sources.files.get(frame.file)
        if known is None:
            return self._tree.describe(frame)
        line = known.lines.get(str(frame.line))
        return FrameDescription(known.about.module_path, known.about.is_library, line.text if line else None)


class RecordedSource:
    """What the check of stacks asks of source files."""

    def __init__(self, sources: Sources, root: Path) -> None:
        self._files = sources.files
        self._own = Statements(UserFiles(root=root))
        self.allow_more = self._own.allow_more

    def line(self, file: str, line: int, /) -> str | None:
        """Return the text of a line."""
        if file not in self._files:
            return self._own.line(file, line)
        known = self._files[file].lines.get(str(line))
        return known.text if known else None

    def at(self, file: str, line: int, /) -> Statement | None:
        """Return the statement at a line."""
        if file not in self._files:
            return self._own.at(file, line)
        known = self._files[file].lines.get(str(line))
        return known.statement if known else None


class RecordedLoops(Declared):
    """The counters of loops that source files declare."""

    def __init__(self, loops: Mapping[tuple[str, str, int], Loops], root: Path) -> None:
        super().__init__(UserFiles(root=root))
        self._loops = loops

    def counters_at(self, file: str, function: str, line: int) -> LoopCounters:
        """Return the variables that the loops around a line count by."""
        known = self._loops.get((file, function, line))
        return known.counters if known else super().counters_at(file, function, line)

    def steps_by(self, file: str, function: str, line: int, counter: str) -> bool:
        """Say whether a loop around a line counts by a variable and is on the stack for as long as it lasts."""
        known = self._loops.get((file, function, line))
        if known is None:
            return super().steps_by(file, function, line, counter)
        return known.stays and counter in known.counters.declared


class _Session:
    """Does with each line what a session does when it happens; ``put`` takes the records."""

    def __init__(self, sources: Sources, root: Path, put: Callable[[Record], object]) -> None:
        self._put = put
        self._source = RecordedSource(sources, root)
        self._loops = {(one.file, one.function, one.line): one for one in sources.loops}
        self._root = root
        self._evidence: dict[int, Evidence] = {}
        self._readers: dict[Identity, tuple[StepReader, Declared]] = {}
        self._clock = StoppedClock(0)

    @functools.singledispatchmethod
    def take(self, line: object) -> None:
        """Take in what happened; what is no event of the session has no effect."""

    @take.register
    def _(self, line: Put) -> None:
        self._put(line.record)

    @take.register
    def _(self, line: PySpyRecord) -> None:
        evidence = self._evidence.setdefault(line.chain, Evidence(self._source))
        raw = read_output(line.output)
        try:
            taken = assembly.assemble(raw, line.identity, line.rate_hz, line.span, line.threads, evidence)
        except TraceDamaged:  # the session said so, in a record of its own
            return
        self._learn(taken)
        self._put(taken)

    @take.register
    def _(self, line: StepsBegan) -> None:
        declared = RecordedLoops(self._loops, self._root)
        self._readers[line.identity] = StepReader("", line.identity, self._clock, self._put, declared), declared

    @take.register
    def _(self, line: PySpyDump) -> None:
        reader, declared = self._readers[line.identity]
        declared.allow_more()
        self._clock.at_ns = line.spoke_ns
        reading = read_answer(line.answer, line.pid, declared.counters_at)
        if reading is not None:
            reader.take(reading)

    @take.register
    def _(self, line: StepsEnded) -> None:
        reader, _ = self._readers.pop(line.identity)
        reader.end()

    def _learn(self, taken: RecordingTaken) -> None:
        """Let the reader of steps learn from what the main thread did."""
        main = next((thread for thread in taken.threads if thread.is_main and thread.intervals), None)
        if main is not None and taken.identity in self._readers:
            reader, _ = self._readers[taken.identity]
            reader.take_samples(main.intervals, taken.stacks, taken.rate_hz)
