"""The dashboard's requests to the session and its own actions, each to be called in a thread.

Each returns a message that says what came of it, or raises ProfdError. Each reads the run with a
reader of its own, so that the feed's thread is not held up.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual.message import Message

from profd.daemon import processes
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import NoSuchProcess, ProfdError, SessionFailed
from profd.daemon.session.control import ControlClient, window_request
from profd.daemon.session.session import end_session
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo
from profd.daemon.units import plural
from profd.tui.terminal import Terminal

if TYPE_CHECKING:
    from profd.daemon.tree.tree import DumpedProcess, MergedStack


@dataclass
class ActionDone(Message):
    """The action was done; ``text`` says what came of it."""

    text: str
    title: str = ""


@dataclass
class ActionFailed(Message):
    """The action was not done."""

    error: ProfdError
    title: str


class WindowRefused(Message):
    """There is no window; starting the profiler inside the process would give one."""


@dataclass
class StacksDumped(Message):
    """The stacks of the process tree at one moment."""

    dumped: Sequence[DumpedProcess]
    stacks: Sequence[MergedStack]


def take_window(info: RunInfo, *, inject: bool = False) -> Message:
    """Ask for a torch.profiler window of the usual length.

    Its operators will be in the run file.
    """
    request = window_request(inject=inject)
    try:
        with _session(info) as client:
            begun = client.window(request)
    except SessionFailed as error:
        if inject or "--inject" not in str(error):
            raise
        return WindowRefused()
    return ActionDone(
        f"taking {plural(request.steps, 'step')} of {begun.processes}; 5 shows the operators",
        "Window",
    )


def mark(info: RunInfo, note: str) -> ActionDone:
    with _session(info) as client:
        client.mark(note)
    return ActionDone("the moment is marked")


def stop(info: RunInfo) -> ActionDone:
    _check_live(info)
    with contextlib.suppress(ProcessLookupError):
        end_session(info.recorder).close()
    return ActionDone("the recording ends; the script runs on")


def signal_script(terminal: Terminal, number: signal.Signals, info: RunInfo) -> ActionDone:
    """Signal a launched script, and what it started in its terminal."""
    _check_live(info)
    if not terminal.signal(number):
        raise SessionFailed("the script cannot be reached", "its launcher is gone, or busy")
    return ActionDone(f"the script has been sent {number.name}")


def _check_live(info: RunInfo) -> None:
    if not info.is_live:
        raise SessionFailed(
            "the run is not recorded any more", "this can be asked of a live run alone"
        )


def _session(info: RunInfo) -> contextlib.closing[ControlClient]:
    _check_live(info)
    return contextlib.closing(ControlClient(Path(info.control_socket), info.recorder.pid))


def write_report_of(run_file: Path) -> ActionDone:
    # The report's templates take a tenth of a second to import; a dashboard that writes no report
    # need not pay for it.
    from profd.daemon.render.report import write_report

    path = Path.cwd() / f"{run_file.stem}.html"
    with RunReader(run_file) as reader:
        write_report(reader, path)
    return ActionDone(str(path), "Report written")


def export(run_file: Path, form: str, selection: Selection) -> ActionDone:
    # Each format is a module of its own, imported only when it is needed.
    from profd.daemon.exports.formats import FORMATS, write_tables
    from profd.daemon.paths import write_whole

    to = FORMATS[form]
    path = Path.cwd() / f"{run_file.stem}{to.ending}"
    if to.of_all_threads:
        selection = msgspec.structs.replace(selection, main_threads=False)
    with RunReader(run_file) as reader, reader.one_moment():
        if to.is_folder:
            write_tables(to.made(reader, selection), path)
        else:
            write_whole(path, to.made(reader, selection))
    return ActionDone(str(path), "Exported")


def dump(info: RunInfo) -> StacksDumped:
    # The dashboard opens without the modules that look at processes.
    from profd.daemon.tree.tree import dump_tree, merge

    if not processes.is_running(*info.target):
        raise NoSuchProcess(
            f"the target of {info.id} has ended", "where its time went is in 1 to 3"
        )
    dumped = dump_tree(info.target.pid, native=True)
    return StacksDumped(dumped, merge(dumped))
