"""`profd window`: take a torch.profiler window of a live run, or show the last one."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import click
import msgspec

from profd.cli.console import line_cells, print_json, say
from profd.cli.liverun import find_live, pid_of, run_of
from profd.cli.options import json_option, off_option, run_argument
from profd.daemon import paths
from profd.daemon.analyze.operators import by_name, issuing_lines
from profd.daemon.analyze.torchtraces import of_last_request
from profd.daemon.analyze.windows import about_window
from profd.daemon.api.opening import find_run
from profd.daemon.errors import SessionFailed, UsageError
from profd.daemon.events import EventKind
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.render.operators import (
    about_lines,
    describe,
    operator_table,
    sort_rows,
)
from profd.daemon.render.plaintext import Paragraph, joined
from profd.daemon.session.control import ControlClient
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import WindowRow
from profd.daemon.timerange import TimeRange
from profd.daemon.units import plural, step_time
from profd.daemon.windows.injection import STEPS_TIMEOUT_S
from profd.daemon.windows.ondemand import TRACE_TIMEOUT_S
from profd.daemon.windows.reduction import TIMEOUT_S
from profd.daemon.windows.request import DEFAULT_STEPS, MAX_SECONDS, MAX_STEPS, WindowRequest

_LOOK_INTERVAL_S = 0.1
_WINDOW_TIMEOUT_S = STEPS_TIMEOUT_S + TRACE_TIMEOUT_S + TIMEOUT_S
"""The session's own time limits for a process, its trace, and reading the trace."""
SORTABLE = {
    "name": "name",
    "calls": "calls",
    **{name: f"{name}_ns" for name in ("self_cpu", "cpu_total", "self_cuda", "cuda_total")},
    **{f"{name}_mem": f"{name}_bytes" for name in ("self_cpu", "cpu", "self_cuda", "cuda")},
}


@click.command()
@run_argument(metavar="[PID|RUN]")
@click.option(
    "--steps",
    type=click.IntRange(1, MAX_STEPS),
    default=DEFAULT_STEPS,
    metavar="N",
    help="Take N steps of the optimizer.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, MAX_SECONDS, min_open=True),
    metavar="S",
    help="Take S seconds instead; much larger than steps.",
)
@click.option("--memory", is_flag=True, help="Record what each operator allocates.")
@click.option(
    "--stacks", is_flag=True, help="Record the calls of Python; makes a window large and slow."
)
@off_option("shapes", "Do not record the shapes of inputs.")
@click.option(
    "--inject",
    is_flag=True,
    help="Where the process was not armed, start the profiler inside of it: with "
    "gdb, from Python 3.14 on without.",
)
@click.option("--show", is_flag=True, help="Show the last window that was taken, and take none.")
@click.option(
    "--by-shape",
    is_flag=True,
    help="Tell operators apart by the shapes of their inputs, in the table.",
)
@click.option(
    "--sort",
    type=click.Choice(list(SORTABLE)),
    metavar="COLUMN",
    help=f"Sort by {', '.join(SORTABLE)}. [default: self_cuda, without a GPU self_cpu]",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=40,
    metavar="N",
    help="Print N rows of the table.",
)
@json_option
def command(
    run: str,
    show: bool,
    by_shape: bool,
    sort: str | None,
    limit: int,
    as_json: bool,
    **asked: object,
) -> None:
    """Take a torch.profiler window of the live run RUN, and print the operators in it.

    The run must have been launched with `profd run --torch-window`, unless --inject is given. Of
    several ranks each is asked; the table is of each, the JSON of the first. RUN may also be the
    PID of a process: it is recorded for as long as the window takes, where no run does so already.
    """
    request = msgspec.convert(asked, WindowRequest)
    with contextlib.ExitStack() as stack:
        if (pid := pid_of(run)) is not None and not show:
            path = stack.enter_context(run_of(pid, inject=request.inject))
            request = msgspec.structs.replace(request, pid=pid)
        else:
            path = find_run(run, say) if show else find_live(run)
        reader = stack.enter_context(RunReader(path))
        windows = last_windows(reader) if show else take(reader, request)
        field = SORTABLE[sort] if sort else None
        if as_json:
            print_json(describe(reader, windows[0], field), indent=-1)
            return
        for window in windows:
            process, steps = reader.processes[window.process], len(reader.window_steps(window.id))
            name = (
                f"pid {process.pid}"
                if process.rank is None
                else f"rank {process.rank}, pid {process.pid}"
            )
            length = step_time(window.time.length_s)
            room = line_cells(sys.stdout)
            title = f"{name}: {length}, {plural(steps, 'whole step')}, by {window.source}"
            about = (title, *about_lines(about_window(reader, window)))
            click.echo(joined(map(Paragraph, about), room))
            rows = reader.operators(window.id)
            sorted_rows = sort_rows(rows if by_shape else by_name(rows), field)
            # a file or a pager has room for all columns
            width = {"room": room} if sys.stdout.isatty() else {}
            click.echo(operator_table(sorted_rows, limit, issuing_lines(reader, window), **width))


def last_windows(reader: RunReader) -> list[WindowRow]:
    """Return the windows of the last request that produced any; raises UsageError if none did."""
    taken = reader.taken_windows()
    if not taken:
        raise UsageError(
            "no window was taken of this run",
            f"take one: profd window {paths.word_for(reader.path)}",
        )
    return of_last_request(reader, taken)


def take(reader: RunReader, request: WindowRequest) -> list[WindowRow]:
    """Take windows of a live run and return them; raises SessionFailed if there are none."""
    if not reader.info.is_live:
        raise SessionFailed(f"{reader.info.id} is not live", "show the windows it took with --show")
    with contextlib.closing(
        ControlClient(Path(reader.info.control_socket), reader.info.recorder.pid)
    ) as client:
        client.watch()  # while somebody watches, samples arrive in the file sooner
        begun = client.window(request)
        length = f"{request.seconds:g} s" if request.seconds else f"{request.steps} steps"
        say(
            f"taking {length} of "
            f"{begun.processes}{', the profiler is started inside of it' if begun.injected else ''}"
        )
        patience_s = _WINDOW_TIMEOUT_S + (request.seconds or 0.0)
        answers = _wait_for(reader, begun.asked_ns, len(begun.pids), patience_s)
        taken = [window for window in answers if not window.error]
        if not taken:
            raise SessionFailed("no window was taken", "see the lines above")
        # The samples of the windows' time arrive with their recordings, at the ends of these.
        deadline = time.monotonic() + RECORDING.whole_s + 1.0
        while (
            not all(_is_sampled(reader, window) for window in taken) and time.monotonic() < deadline
        ):
            time.sleep(_LOOK_INTERVAL_S)
        reader.refresh()
    return of_last_request(reader, taken)


def _wait_for(reader: RunReader, asked_ns: int, count: int, patience_s: float) -> list[WindowRow]:
    """Return the windows that were requested at a time, once all are there.

    Prints their events meanwhile.
    """
    deadline = time.monotonic() + patience_s
    last_event = 0
    while True:
        windows = [window for window in reader.windows(asked_ns) if window.asked_ns == asked_ns]
        for event in reader.events(EventKind.WINDOW, after_id=last_event):
            last_event = event.id
            if event.at_ns >= asked_ns:
                say(event.text)
        reader.refresh()
        if len(windows) >= count:
            return windows
        if not reader.info.is_live:
            raise SessionFailed(
                "the run ended before its window was written", "nothing was lost but the window"
            )
        if time.monotonic() > deadline:
            raise SessionFailed(
                f"no window has come within {patience_s:.0f} s", "see the events of the run"
            )
        time.sleep(_LOOK_INTERVAL_S)


def _is_sampled(reader: RunReader, window: WindowRow) -> bool:
    recordings = reader.recordings(TimeRange(window.start_ns - RECORDING.longest_ns))
    return any(row.process == window.process and row.end_ns >= window.end_ns for row in recordings)
