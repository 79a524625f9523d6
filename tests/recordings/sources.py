"""What is known of the source files of a recorded program: its own as they are, of libraries what a session may ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from support.folders import ROOT
from support.recordinglines import File, Line, PySpyRecord, Sources, Started, StoredLine

from profd.daemon.naming import script_folder
from profd.daemon.stacks import pyspy
from profd.daemon.stacks.source import SourceTree, Statements
from profd.daemon.store.records import Frame


def sources_of(lines: Iterable[StoredLine]) -> Sources:
    """Return what is known of all source files that stand in the stacks of a recording."""
    lines = list(lines)
    frames = sorted({frame for line in lines for frame in _frames(line)})
    started = next(line.started for line in lines if isinstance(line, Started))
    tree = SourceTree(own=script_folder(started.command, started.cwd))
    own = {frame.file for frame in frames if _is_own(frame.file)}
    return Sources(
        own={file: Path(file).read_text() for file in sorted(own | _packages(own))},
        files=_files([frame for frame in frames if frame.file not in own], tree),
    )


def _frames(line: StoredLine) -> set[Frame]:
    if isinstance(line, PySpyRecord):
        traces = pyspy.decode(line.trace.encode())
        return {frame for trace in traces for change in trace.changes for frame in change.frames}
    return set()


def _is_own(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv") and path.is_file()


def _packages(files: Iterable[str]) -> set[str]:
    """Return the files that make packages of the folders of some files."""
    found = {
        parent / "__init__.py"
        for file in files
        for parent in Path(file).parents
        if parent.is_relative_to(ROOT)
    }
    return {str(path) for path in found if path.is_file()}


def _files(frames: Iterable[Frame], tree: SourceTree) -> dict[str, File]:
    statements, lines = Statements(), defaultdict[str, dict[str, Line]](dict)
    for frame in frames:
        statements.allow_more()
        known = Line(statements.line(frame.file, frame.line), statements.at(frame.file, frame.line))
        if known != Line(None, None):
            lines[frame.file][str(frame.line)] = known
    return {
        file: File(tree.describe(Frame("", file, 0)), lines[file])
        for file in {frame.file for frame in frames}
    }
