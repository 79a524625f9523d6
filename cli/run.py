"""`profd run`: launch a command and profile it.

The command keeps its own stdin, stdout, stderr, signals and exit code.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import click
import msgspec

from profd.cli.completion import complete_file
from profd.cli.console import line_cells, short_command
from profd.cli.options import RecordingOptions, headless_option, recording_options
from profd.daemon import paths, program
from profd.daemon.errors import OutputUnwritable
from profd.daemon.launch.launch import Plan, launch
from profd.daemon.launch.script import Script, become_script
from profd.daemon.launch.terminal import takes_dashboard
from profd.daemon.metrics.exporter import Exporter
from profd.daemon.session.session import SessionOptions, start_session
from profd.daemon.windows.request import parse_schedule

_ON_DEMAND = "on-demand"


@click.command(
    # Options after the command's first word belong to the command.
    context_settings={"allow_interspersed_args": False},
)
@click.argument(
    "words",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="CMD...",
    shell_complete=complete_file,
)
@recording_options
@headless_option
@click.option(
    "--torch-window",
    "windows",
    is_flag=False,
    flag_value=_ON_DEMAND,
    metavar="[=every=10m,finding,steps=5]",
    help="Let torch take windows of operators when `profd window` asks for one, or by themselves.",
)
@click.option("--quiet", is_flag=True, help="Do not sum up the run at its end.")
def command(
    words: tuple[str, ...],
    recording: RecordingOptions,
    headless: bool,
    windows: str | None,
    quiet: bool,
) -> int:
    """Run the command CMD and profile it and its children.

    Its stdin, stdout, stderr, signals and exit code are as they would be without profd. On a
    terminal the dashboard opens, and the command's output is shown in it.
    """
    with contextlib.ExitStack() as kept:
        variables: Mapping[str, str] = {}
        try:
            options = recording.session(words, "launched")
            if windows is not None:
                from profd.daemon.windows.ondemand import armed

                schedule = None if windows == _ON_DEMAND else parse_schedule(windows)
                arms = kept.enter_context(armed(os.environ))
                options = msgspec.structs.replace(
                    options, window_folder=arms.folder, window_schedule=schedule
                )
                variables = arms.environment
        except (OutputUnwritable, OSError) as error:
            if recording.output is not None:  # the user chose the place, and can choose another
                raise
            narrate(f"profd: nothing is recorded: {error}")
            become_script(words)
        farewell = None if quiet else partial(sum_up, options.run_file)
        exporter = Exporter(recording.metrics_address, recording.otlp_endpoint, narrate)
        return run_profiled(options, exporter, variables, headless=headless, farewell=farewell)


def run_profiled(
    options: SessionOptions,
    exporter: Exporter,
    variables: Mapping[str, str],
    *,
    headless: bool,
    farewell: Callable[[], str] | None,
) -> int:
    """Run ``options.command``, profiled, and return its exit code.

    Its PID in ``options`` is still unknown. ``farewell`` returns the last lines on stderr; without
    it only failures are printed. The dashboard opens on a terminal, unless ``headless``.
    ``variables`` are set in the command's environment. ``exporter`` serves or sends metrics.
    """
    started = []

    def start(script: Script, channel: socket.socket) -> tuple[Path, Callable[[float], bool]]:
        with contextlib.suppress(ProcessLookupError):
            started.append((script.identity.start_ticks, os.getsid(script.pid)))
        return start_recording(options, exporter, script, channel)

    dashboard = dashboard_command if takes_dashboard() and not headless else None
    code = launch(Plan(options.command, start, farewell, narrate, dashboard, variables))
    if started and farewell is not None:
        say_what_goes_on(*started[0])
    return code


def say_what_goes_on(start_ticks: int, session: int) -> None:
    """Name the Python processes that a script has left running, which nobody records now."""
    from profd.daemon.launch.leftovers import left_running

    for one in left_running(start_ticks, session)[:4]:
        words = short_command(one.command)
        narrate(
            f"profd: pid {one.pid} ({words}) goes on, and is not recorded: profd attach {one.pid}"
        )


def start_recording(
    options: SessionOptions, exporter: Exporter, script: Script, channel: socket.socket
) -> tuple[Path, Callable[[float], bool]]:
    """Start the session of a running script, as ``Plan.start_session`` does.

    The exporter of its metrics ends with it.
    """
    options = msgspec.structs.replace(options, **script.identity._asdict())
    # After this only the exporter's process listens, and without a session nobody does.
    with contextlib.closing(exporter):
        session = start_session(options, channel=channel)
        exporter.follow(session.run_file)

    def wait_closed(timeout_s: float) -> bool:
        is_closed = session.wait_closed(timeout_s)
        exporter.end()
        return is_closed

    return session.run_file, wait_closed


def sum_up(run_file: Path, report: Path | None = None) -> str:
    """Return the closing lines of a finished run, after writing a report if one is wanted."""
    from profd.daemon.findings.catalog import answered
    from profd.daemon.render.summary import summarize
    from profd.daemon.render.text import closing_lines
    from profd.daemon.store.reader import RunReader

    with RunReader(run_file) as reader:
        if report is not None:
            from profd.daemon.render.report import write_report

            write_report(reader, report)
        run = paths.word_for(run_file)
        nexts = {
            "dashboard": f"profd view {run}",
            "more": f"profd summary {run}",
            "report": f"{report or f'profd report --open {run}'}",
        }
        return closing_lines(answered(summarize, reader), nexts, line_cells(sys.stderr))


def narrate(line: str) -> None:
    """Write a line to stderr, if it is open."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(line, err=True)


def dashboard_command(run_file: Path, keys_fd: int) -> list[str]:
    return program.words("profd", "view", str(run_file), "--keys-fd", str(keys_fd))
