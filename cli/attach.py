"""`profd attach`: profile a process that runs already, from outside; it runs on whatever becomes of profd."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from profd.cli.console import StopSignals, say
from profd.cli.options import headless_option, recording_options
from profd.daemon import paths, processes
from profd.daemon.errors import NoSuchProcess, SessionFailed
from profd.daemon.launch.terminal import is_interactive
from profd.daemon.metrics.exporter import Exporter, open_exporter
from profd.daemon.naming import script_name
from profd.daemon.session.session import RunningSession, SessionOptions, start_session
from profd.daemon.tree.diagnosis import check_attachable

_CLOSING_S = 30.0


@click.command()
@click.argument("pid", type=click.IntRange(min=1), metavar="PID")
@recording_options
@headless_option
def command(
    pid: int,
    rate_hz: int,
    budget_percent: float,
    duration_s: float | None,
    name: str | None,
    output: Path | None,
    subprocesses: bool,
    steps: bool,
    source: bool,
    all_gpus: bool,
    hang_after_s: float,
    on_hang: str | None,
    metrics_address: str | None,
    otlp_endpoint: str | None,
    headless: bool,
) -> None:
    """Profile the running process PID and its children, those that come later included.

    Opens the dashboard on a terminal. Nothing is put into the process, and it runs on whatever becomes of profd.
    """
    check_attachable(pid)
    stat = processes.read_stat(pid)
    if stat is None:
        raise NoSuchProcess(f"pid {pid} ended while it was looked at", "`profd ls` lists what runs now")
    words = processes.command_line(pid)
    run_name = paths.clean_name(name or script_name(words))
    run_id = paths.new_run_id(run_name)
    options = SessionOptions(
        run_id=run_id,
        name=run_name,
        run_file=paths.new_run_file(run_id, output),
        mode="attached",
        pid=pid,
        start_ticks=stat.start_ticks,
        command=words,
        rate_hz=rate_hz,
        budget_percent=budget_percent,
        duration_s=duration_s,
        subprocesses=subprocesses,
        steps=steps,
        source=source,
        all_gpus=all_gpus,
        hang_after_s=hang_after_s or None,
        on_hang=on_hang,
    )
    exporter = open_exporter(metrics_address, otlp_endpoint, partial(click.echo, err=True))
    if headless or not is_interactive():
        _record(options, exporter)
    else:
        _show(options, exporter)


def _record(options: SessionOptions, exporter: Exporter | None) -> None:
    """Record until the target or the time ends, or a signal says stop."""
    # From before the start on: a session that came up after a Ctrl-C would be left recording.
    with StopSignals() as signals:
        session = start_session(options)
        say(f"recording pid {options.pid} as {options.run_id}; Ctrl-C ends the recording, and leaves the process alone")
        signals.call(session.end)
        if exporter is not None:
            exporter.follow(session)
        session.wait_closed(None)
    _close(options, session, exporter)


def _show(options: SessionOptions, exporter: Exporter | None) -> None:
    """Record with the dashboard open; leaving it ends the recording, or lets it go on."""
    from profd.tui.app import run_dashboard
    from profd.tui.screens.dialogs import Leaving

    with StopSignals() as signals:
        session = start_session(options)
        signals.call(session.end)
    if exporter is not None:
        exporter.follow(session)
    leaving = run_dashboard(session.run_file)
    if leaving is Leaving.KEEP and session.is_running():
        say(f"still recording: `profd view {options.run_id}` comes back, `profd stop {options.run_id}` ends it")
        return
    session.end()
    _close(options, session, exporter)


def _close(options: SessionOptions, session: RunningSession, exporter: Exporter | None) -> None:
    """Wait for the closed run file and sum it up on stderr; raises SessionFailed where it was not closed in order."""
    from profd.daemon.render.summary import summarize
    from profd.daemon.render.text import closing_lines
    from profd.daemon.store.reader import RunReader

    closed = session.wait_closed(_CLOSING_S)
    if exporter is not None:
        exporter.end()
    if session.is_running():
        raise SessionFailed(
            f"the session of {options.run_id} has not ended within {_CLOSING_S:.0f} s", f"kill -9 {session.pid} ends it"
        )
    # The run was moved to its own place at the end, unless the session had no time for it.
    run_file = options.run_file if options.run_file.exists() else session.run_file
    with RunReader(run_file) as reader:
        click.echo(closing_lines(summarize(reader), run=paths.word_for(run_file)), err=True)
        if not closed or reader.info.why_ended == "failed":
            raise SessionFailed(
                f"the recording of {options.run_id} was cut off",
                f"what came before it is kept: profd summary {run_file}",
            )
