"""`profd attach`: profile a process from outside.

The process runs on, whatever happens to profd.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import click

from profd.cli.completion import complete_process
from profd.cli.console import StopSignals, line_cells, say
from profd.cli.options import RecordingOptions, headless_option, recording_options
from profd.daemon import paths
from profd.daemon.errors import ExitCode, RunUnreadable, SessionFailed, UsageError
from profd.daemon.launch.terminal import is_interactive, takes_dashboard
from profd.daemon.metrics.exporter import Exporter
from profd.daemon.session.session import (
    CLOSING_S,
    RunningSession,
    SessionOptions,
    start_ahead,
    start_session,
)


@click.command()
@click.argument(
    "pid",
    type=click.IntRange(min=1),
    required=False,
    metavar="[PID]",
    shell_complete=complete_process,
)
@recording_options
@headless_option
def command(pid: int | None, recording: RecordingOptions, headless: bool) -> int:
    """Profile the running process PID and its children, those that come later included.

    Without PID it lists the processes that it can attach to, and asks for one. Opens the dashboard
    on a terminal: on the run that records the process already, if there is one and no option asks
    for another. Nothing is put into the process, and it runs on whatever becomes of profd.
    """
    from profd.cli.liverun import attached, live_run_of

    pid = pid or asked_for()
    has_dashboard = takes_dashboard() and not headless
    if (live := live_run_of(pid)) is not None:
        if has_dashboard and recording == RecordingOptions():
            _join(live)
            return ExitCode.OK
        say(
            f"pid {pid} is recorded already, as {live.stem}: this is a second recording, which "
            "costs as much again"
        )
    meanwhile = partial(import_module, "profd.tui.app") if has_dashboard else None
    # Started ahead, because the session's imports take longer than everything needed to find its
    # options.
    with start_ahead() as starting, StopSignals() as signals:
        # Signals are caught before the start: otherwise, a session that comes up after a Ctrl-C
        # would go on recording.
        options = attached(pid, recording)
        exporter = Exporter(
            recording.metrics_address, recording.otlp_endpoint, partial(click.echo, err=True)
        )
        if not has_dashboard:  # on a busy machine the rest takes seconds
            say(f"attaching to pid {pid}")
        session = start_session(options, starting=starting, meanwhile=meanwhile)
        if not has_dashboard:
            say(
                f"recording pid {pid} as {options.run_id}; Ctrl-C ends the recording, and leaves "
                "the process alone"
            )
        signals.call(session.end)
        exporter.follow(session.run_file)
        if not has_dashboard:
            session.wait_closed(None)
    if has_dashboard:
        if _is_kept(session, options):
            return ExitCode.OK
        session.end()
    closed = session.wait_closed(CLOSING_S)
    exporter.end()
    return _outcome(session, options, has_closed=closed)


def _is_kept(session: RunningSession, options: SessionOptions) -> bool:
    """Show the dashboard; say whether the user leaves it and keeps the session recording."""
    from profd.tui.app import run_dashboard
    from profd.tui.dialogs import Leaving

    try:
        leaving = run_dashboard(session.run_file)
    except RunUnreadable:
        _say_kept(options.run_file)
        raise
    is_kept = leaving is Leaving.KEEP and session.is_running()
    if is_kept:
        _say_kept(options.run_file)
    return is_kept


def _say_kept(run_file: Path) -> None:
    word = paths.word_for(run_file)
    say(f"still recording: `profd view {word}` comes back, `profd stop {word}` ends it")


def _outcome(session: RunningSession, options: SessionOptions, *, has_closed: bool) -> ExitCode:
    """Print the summary of a session's run, and return the exit code that it deserves.

    Raises SessionFailed if the session runs on or the run is cut off.
    """
    if session.is_running():
        what = f"the session of {options.run_id} has not ended within {CLOSING_S:.0f} s"
        raise SessionFailed(what, f"kill -9 {session.pid} ends it")
    # The run was moved to its final place at the end, unless the session had no time for it.
    run_file = options.run_file if options.run_file.exists() else session.run_file
    why_ended, code = _say_outcome(run_file)
    if why_ended == "failed" or not has_closed:
        what = f"the recording of {options.run_id} was cut off"
        raise SessionFailed(what, f"what came before it is kept: profd summary {run_file}")
    return code


def _say_outcome(run_file: Path) -> tuple[str | None, ExitCode]:
    """Print the summary of a run, and return why it ended and the matching exit code."""
    from profd.cli.run import sum_up
    from profd.cli.runs import code_of
    from profd.daemon.store.reader import RunReader

    click.echo(sum_up(run_file), err=True)
    with RunReader(run_file) as reader:
        return reader.info.why_ended, code_of(reader, says_why=False)


def _join(run_file: Path) -> None:
    """Show the dashboard of a run that another command or the supervisor records.

    Leaving it does not end the run.
    """
    from profd.daemon.store.reader import RunReader
    from profd.tui.app import run_dashboard
    from profd.tui.dialogs import Leaving

    leaving = run_dashboard(run_file, may_end=False)
    with RunReader(run_file) as reader:
        is_kept = leaving is Leaving.KEEP and reader.info.is_live
    if is_kept:
        _say_kept(run_file)
    else:
        _say_outcome(run_file)


def asked_for() -> int:
    """Return the process that the user chooses from a list.

    Raises UsageError if there is no process, or nobody to ask.
    """
    from profd.cli.ls import attachable_table
    from profd.daemon.tree.attachable import find_attachable

    found = find_attachable()
    if not found:
        raise UsageError(
            "no Python process of yours is running", "launch one with `profd run -- CMD`"
        )
    click.echo(attachable_table(found, line_cells(sys.stderr)), err=True)
    if not is_interactive():
        raise UsageError("which process is to be profiled", "name its PID: profd attach PID")
    pids = click.Choice([str(one.pid) for one in found])
    return int(
        click.prompt("PID", type=pids, default=str(found[0].pid), show_choices=False, err=True)
    )
