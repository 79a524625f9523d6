"""Replays stored recordings through the real path, from what py-spy wrote to a run file, without
py-spy and torch.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from recordings.catalog import HANG_AFTER_S

from profd.daemon.events import EventKind
from profd.daemon.hangs.look import Look
from profd.daemon.hangs.watch import HangWatch
from profd.daemon.naming import script_folder
from profd.daemon.session.leading import Leaders
from profd.daemon.stacks import assembly
from profd.daemon.stacks.evidence import StackEvidence
from profd.daemon.stacks.pyspy import TraceDamaged, read_output
from profd.daemon.stacks.source import SourceTree, Statement, Statements
from profd.daemon.store.records import (
    EventHappened,
    FindingsTaken,
    Frame,
    FrameDescription,
    HangEnded,
    HangFound,
    Identity,
    PointsTaken,
    ProcessSeen,
    Record,
)
from profd.daemon.store.writer import RunWriter
from profd.daemon.tree.tree import Member
from profd.daemon.userfiles import UserFiles
from support.clocks import StoppedClock
from support.folders import TESTS
from support.recordinglines import (
    Diary,
    Looked,
    Put,
    PySpyRecord,
    Sources,
    Started,
    StoredLine,
    read_lines,
)
from support.waiting import DEADLINE_S

RECORDINGS = TESTS / "recordings"

Found = TypeVar("Found", bound=StoredLine)


def recording_names() -> list[str]:
    return sorted(
        path.name.removesuffix(".jsonl.gz") for path in (RECORDINGS / "data").glob("*.jsonl.gz")
    )


def recording_file(name: str) -> Path:
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

        session = _Session(sources, root, _watched(lines, put))
        for line in lines:
            session.take(line)
        writer.close(DEADLINE_S)
    assert writer.failure is None, writer.failure
    return _the(Diary, lines)


def _watched(
    lines: Sequence[StoredLine], put: Callable[[Record], object]
) -> Callable[[Record], object]:
    """Return what takes the records of a run, and has today's code look for hangs in it.

    It sees what the recorded looks saw; without one there is nothing to be found.
    """
    looks = [line for line in lines if isinstance(line, Looked)]
    if not looks:
        return put
    members = {row.member.identity: row.member for look in looks for row in look.standing}
    clock = StoppedClock()

    def look(_: Sequence[Member], at_ns: int, *, mains_only: bool) -> Look:
        alike = [one for one in looks if one.mains_only == mains_only]
        return min(alike, key=lambda one: abs(one.at_ns - at_ns)).look(at_ns)

    watch = HangWatch(HANG_AFTER_S, clock, members.values, put, look=look)

    def take(record: Record) -> None:
        is_event = isinstance(record, EventHappened) and record.kind is EventKind.HANG
        if is_event or isinstance(record, HangFound | HangEnded):
            return  # what was said then
        put(record)
        watch.take(record)
        if isinstance(record, PointsTaken):
            clock.at_ns = record.at_ns
            asyncio.run(watch.check())

    return take


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
        return FrameDescription(
            known.about.module_path, known.about.is_library, line.text if line else None
        )


class RecordedSource(Statements):
    """What the check of stacks asks of source files."""

    def __init__(self, sources: Sources, root: Path) -> None:
        super().__init__(UserFiles(root=root))
        self._files = sources.files

    def line(self, file: str, line: int) -> str | None:
        if file not in self._files:
            return super().line(file, line)
        known = self._files[file].lines.get(str(line))
        return known.text if known else None

    def at(self, file: str, line: int) -> Statement | None:
        if file not in self._files:
            return super().at(file, line)
        known = self._files[file].lines.get(str(line))
        return known.statement if known else None


class _Session:
    """Does with each line what a session does when it happens; ``put`` takes the records."""

    def __init__(self, sources: Sources, root: Path, put: Callable[[Record], object]) -> None:
        self._put = put
        self._source = RecordedSource(sources, root)
        self._evidence: dict[int, StackEvidence] = {}
        # Their note is recorded, and how long threads had run by then is not known any more.
        self._leaders = Leaders(lambda _: None, lambda _pid, _os_tid: 0)
        self._roles: dict[Identity, str] = {}

    @functools.singledispatchmethod
    def take(self, line: object) -> None:
        """Take in what happened; what is no event of the session has no effect."""

    @take.register
    def _(self, line: Put) -> None:
        if isinstance(line.record, ProcessSeen):
            self._roles[line.record.identity] = line.record.role
        if not isinstance(
            line.record, FindingsTaken
        ):  # today's rules are judged, not those of then
            self._put(line.record)

    @take.register
    def _(self, line: PySpyRecord) -> None:
        evidence = self._evidence.setdefault(line.chain, StackEvidence(self._source))
        raw = read_output(line.output)
        try:
            taken = assembly.assemble(
                raw, line.identity, line.rate_hz, line.span, line.threads, evidence
            )
        except TraceDamaged:  # the session said so, in a record of its own
            return
        for record in taken:
            is_main = self._roles.get(record.identity) == "main"
            self._put(self._leaders.marked(record) if is_main else record)
