"""All that reads a run file: each as its command does, down to the text or the file that comes of
it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
from support.dashboard import AnalysisInProcess
from textual.message import Message

from profd.daemon.analyze.selection import Selection
from profd.daemon.api.opening import list_run
from profd.daemon.compare.diff import take_compared, take_diff
from profd.daemon.errors import ProfdError, UsageError
from profd.daemon.exports.formats import FORMATS
from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.export import export_run
from profd.daemon.metrics.runs import Runs
from profd.daemon.render.diffreport import render_diff_report
from profd.daemon.render.difftext import diff_text
from profd.daemon.render.report import write_report
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.session.control import ControlClient
from profd.daemon.store.bound import bounded_memory
from profd.daemon.store.reader import RunReader
from profd.tui import feed
from profd.tui.feed import Feed, FeedFailed, SnapshotTaken

Reader = Callable[[Path], object]
ALL = Selection()

# The dashboard looks for findings in a process of its own, where the file has none: here they are
# one.
setattr(feed, "Analysis", AnalysisInProcess)  # noqa: B010  it is imported there, not exported


def readers(folder: Path, sound: Path) -> dict[str, Reader]:
    """Return all readers by what they are for.

    What they write goes into a folder, and ``sound`` is another run.
    """

    def diff(path: Path) -> None:
        with RunReader(sound) as base, RunReader(path) as new, base.one_moment(), new.one_moment():
            taken = take_diff(take_compared(base, ALL), take_compared(new, ALL))
            diff_text(taken, 100)
            render_diff_report((base, new), (ALL, ALL), taken)

    def report(path: Path) -> None:
        with RunReader(path) as reader:
            write_report(reader, folder / "report.html")

    def fleet(path: Path) -> None:
        try:
            with RunReader(path) as reader, reader.one_moment():
                export_run(reader, DataSet(str(folder / "fleet")))
        finally:
            shutil.rmtree(folder / "fleet", ignore_errors=True)

    return {
        "summary": summary,
        "ls": list_run,
        "report": report,
        "diff": diff,
        "fleet": fleet,
        "exporter": lambda path: Runs(lambda: (path,)).samples(),
        "dashboard": dashboard,
        "exports": exports,
    }


def exports(path: Path) -> None:
    """Make each format of a run, as ``profd export`` does."""
    with bounded_memory(path), RunReader(path) as reader, reader.one_moment():
        for form in FORMATS.values():
            with contextlib.suppress(UsageError):  # it has no trace of a window
                form.made(reader, ALL)


def summary(path: Path) -> None:
    """Read a run as ``profd summary`` does."""
    with RunReader(path) as reader:
        found = summarize(reader)
        summary_text(found)
        msgspec.json.encode(found)


def dashboard(path: Path) -> None:
    """Follow a run until its first picture, as the dashboard does."""
    failures: list[ProfdError] = []

    def take(message: Message) -> None:
        if isinstance(message, FeedFailed):
            failures.append(message.error)
        if isinstance(message, FeedFailed | SnapshotTaken):
            following.stop()

    following = Feed(path, take, ControlClient)
    following.run()
    if failures:
        raise failures[0]
