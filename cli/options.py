"""Options that several commands share, each defined once.

They are options of recording and of selecting samples, and the RUN argument. This module imports
nothing that a command's ``--help`` could do without.
"""

from __future__ import annotations

import functools
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from profd.cli.completion import complete_phase, complete_run
from profd.daemon import paths
from profd.daemon.errors import UsageError
from profd.daemon.recordingconfig import RECORDING, RecordingSettings
from profd.daemon.timerange import EVER, TimeRange

if TYPE_CHECKING:
    from profd.daemon.analyze.selection import Selection
    from profd.daemon.session.session import SessionOptions
    from profd.daemon.store.reader import RunReader
    from profd.daemon.store.rows import RunInfo

Command = TypeVar("Command", bound=Callable[..., Any])


def run_argument(name: str = "run", metavar: str = "[RUN]") -> Callable[[Command], Command]:
    """Return a decorator that gives a command RUN as ``name: str``, by default ``latest``."""
    return click.argument(name, metavar=metavar, default=paths.LATEST, shell_complete=complete_run)


job_option = click.option(
    "--job", metavar="NAME", help="Where RUN is a folder of several jobs: which of them."
)
"""``--job``, as ``job: str | None``."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
"""``--json``, as ``as_json: bool``."""


def off_option(name: str, text: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command ``--no-NAME``, which arrives as ``NAME: bool``."""
    return click.option(f"--no-{name}", name, flag_value=False, default=True, help=text)


steps_option = off_option("steps", "Do not read the loop counter: count steps by the stacks alone.")
"""``--no-steps``, as ``steps: bool``."""
headless_option = click.option("--headless", is_flag=True, help="Do not open the dashboard.")
"""``--headless``, as ``headless: bool``."""


def output_option(text: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command ``-o FILE`` with this help.

    It arrives as ``output: Path | None``.
    """
    return click.option(
        "-o", "--output", type=click.Path(path_type=Path, readable=False), metavar="FILE", help=text
    )


_DEFAULTS = RecordingSettings()
_RECORDING = (
    click.option(
        "--rate",
        "rate_hz",
        type=click.IntRange(1, RECORDING.highest_rate_hz),
        default=_DEFAULTS.rate_hz,
        show_default=True,
        metavar="HZ",
        help="Samples a second of each main process.",
    ),
    click.option(
        "--budget",
        "budget_percent",
        type=click.FloatRange(0, min_open=True),
        default=_DEFAULTS.budget_percent,
        show_default=True,
        metavar="PERCENT",
        help="The most that profd may cost, in percent of one core.",
    ),
    click.option(
        "--duration",
        "duration_s",
        type=click.FloatRange(0, min_open=True),
        metavar="S",
        help="End the recording after S seconds; the target runs on.",
    ),
    click.option(
        "--name",
        metavar="NAME",
        help="The name of the run, part of its id [default: of the script].",
    ),
    output_option("Write the run to FILE rather than to the folder of runs."),
    off_option("subprocesses", "Profile the process alone, none of its children."),
    click.option(
        "--hang-after",
        "hang_after_s",
        type=click.FloatRange(0),
        default=_DEFAULTS.hang_after_s,
        show_default=True,
        metavar="S",
        help="Say what everyone waits for after S seconds without progress; 0: never.",
    ),
    click.option(
        "--on-hang",
        metavar="CMD",
        help="A shell command to run then; PROFD_HANG tells it what hangs.",
    ),
    click.option(
        "--nccl-ras",
        type=click.Choice(["off", "hang"]),
        default=_DEFAULTS.nccl_ras,
        show_default=True,
        help="When to ask NCCL for its counts: never, or in a hang.",
    ),
    off_option("source", "Keep no lines of source code, only where they are."),
    click.option(
        "--all-gpus",
        is_flag=True,
        help="Read every GPU of the machine, not only those that the run uses.",
    ),
    click.option(
        "--metrics",
        "metrics_address",
        metavar="[HOST:]PORT",
        help="Serve metrics for Prometheus there; 0 is any free port, the loopback unless HOST "
        "is given.",
    ),
    click.option(
        "--otlp",
        "otlp_endpoint",
        metavar="URL",
        help="Send the same metrics to an OpenTelemetry receiver (OTLP over HTTP).",
    ),
    steps_option,
)

_SELECTION = (
    click.option(
        "--from",
        "from_time",
        metavar="TIME",
        help="Take samples from TIME on: seconds from the start of the run, or HH:MM:SS.",
    ),
    click.option("--to", "to_time", metavar="TIME", help="Take samples before TIME."),
    click.option("--rank", type=int, metavar="N", help="Take the samples of this rank."),
    click.option(
        "--process",
        "pid",
        type=int,
        metavar="PID",
        help="Take the samples of this process, all threads.",
    ),
    click.option("--thread", metavar="NAME", help="Take the samples of the threads of this name."),
    click.option(
        "--phase",
        metavar="NAME",
        shell_complete=complete_phase,
        help='Take the samples of this phase: forward, "data wait", …',
    ),
    click.option(
        "--gpu-idle",
        is_flag=False,
        flag_value=100 * RECORDING.idle_below,
        type=click.FloatRange(0, 100),
        metavar="[=PERCENT]",
        help="Take the time for which the GPU was utilized below PERCENT "
        f"[default: {100 * RECORDING.idle_below:g}].",
    ),
    click.option(
        "--when",
        multiple=True,
        type=click.Choice(["on-cpu"]),
        help="Take the time for which the thread ran more than it waited.",
    ),
)


class RecordingOptions(RecordingSettings, frozen=True, kw_only=True):
    """The options of ``recording_options``."""

    name: str | None = None
    output: Path | None = None
    metrics_address: str | None = None
    otlp_endpoint: str | None = None

    def session(
        self, command: tuple[str, ...], mode: str, pid: int = 0, start_ticks: int = 0
    ) -> SessionOptions:
        from profd.daemon import processes
        from profd.daemon.naming import script_name
        from profd.daemon.session.session import SessionOptions

        name = paths.clean_name(self.name or script_name(command))
        run_id = paths.new_run_id(name)
        settings = {field: getattr(self, field) for field in RecordingSettings.__struct_fields__}
        used = (
            resource.getrusage(resource.RUSAGE_SELF),
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
        return SessionOptions(
            **{**settings, "hang_after_s": self.hang_after_s or None},
            run_id=run_id,
            name=name,
            run_file=paths.new_run_file(run_id, self.output),
            mode=mode,
            pid=pid,
            start_ticks=start_ticks,
            command=command,
            folder=processes.link(os.getpid(), "cwd") if mode == "launched" else "",
            spent_s=sum(usage.ru_utime + usage.ru_stime for usage in used),
        )


class SelectionWords(NamedTuple):
    """The options of ``selection_options``, still to be matched against a run."""

    from_time: str | None
    to_time: str | None
    rank: int | None
    pid: int | None
    thread: str | None
    phase: str | None
    gpu_idle: float | None = None
    when: tuple[str, ...] = ()

    def build(self, reader: RunReader, *, main_threads: bool = True) -> Selection:
        """Return the selection of a run's samples.

        Raises UsageError if the run lacks something that the options name.
        """
        from profd.daemon.analyze import conditions
        from profd.daemon.analyze.phases import PHASES
        from profd.daemon.analyze.selection import Condition, Selection

        time = self._time_range(reader.info)
        _check_known(
            "rank", self.rank, {process.rank for process in reader.processes.values()} - {None}
        )
        _check_known("process", self.pid, {process.pid for process in reader.processes.values()})
        _check_known("thread", self.thread, {thread.name for thread in reader.threads.values()})
        names = [phase.name for phase in PHASES]
        if self.phase is not None and self.phase not in names:
            raise UsageError(f"there is no phase {self.phase}", f"it is one of: {', '.join(names)}")
        idle = () if self.gpu_idle is None else (Condition("gpu-idle", self.gpu_idle / 100),)
        when = (*idle, *map(Condition, self.when))
        conditions.check(reader, when, time)
        # A PID that was reused during the run has several rows.
        rows = frozenset(
            process.id for process in reader.processes.values() if process.pid == self.pid
        )
        of_main = main_threads and self.pid is None and self.thread is None
        return Selection(
            processes=None if self.pid is None else rows,
            rank=self.rank,
            thread=self.thread,
            phase=self.phase,
            main_threads=of_main,
            when=when,
        ).during(time)

    def _time_range(self, info: RunInfo) -> TimeRange:
        """Return the time from ``--from`` to ``--to``.

        Raises UsageError if they are no range, or lie outside of the run.
        """
        from profd.daemon.analyze.selection import parse_time

        time = TimeRange(
            EVER.from_ns if self.from_time is None else parse_time(self.from_time, info),
            EVER.to_ns if self.to_time is None else parse_time(self.to_time, info),
        )
        if None not in (self.from_time, self.to_time) and time.from_ns >= time.to_ns:
            raise UsageError(
                f"--from {self.from_time} is not before --to {self.to_time}", "exchange them"
            )
        if time.from_ns >= max(info.end_ns, info.started_ns + 1) or time.to_ns <= info.started_ns:
            from profd.daemon.units import duration, moment

            words = ("--from", self.from_time), ("--to", self.to_time)
            asked = " ".join(f"{name} {word}" for name, word in words if word is not None)
            length = duration(info.time.length_s)
            raise UsageError(
                f"{asked} is outside of the run, which lasted {length} from "
                f"{moment(info.started_ns)}",
                "give seconds from the start of the run, or HH:MM:SS of the time zone here",
            )
        return time


def _check_known(what: str, value: int | str | None, known: set[Any]) -> None:
    if value is not None and value not in known:
        listed = ", ".join(map(str, sorted(known)[:12])) or "none"
        raise UsageError(f"the run has no {what} {value}", f"it has: {listed}")


def _gathering(
    name: str,
    kind: type[RecordingOptions | SelectionWords],
    fields: tuple[str, ...],
    options: tuple[Callable[..., Any], ...],
) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gathered(**values: object) -> object:
            values[name] = kind(**{field: values.pop(field) for field in fields})  # type: ignore[arg-type]
            return command(**values)

        return functools.reduce(
            lambda decorated, option: option(decorated), reversed(options), gathered
        )  # type: ignore[return-value]

    return decorate


recording_options = _gathering(
    "recording", RecordingOptions, RecordingOptions.__struct_fields__, _RECORDING
)
"""Gives a command the options of a recording.

They arrive together as ``recording: RecordingOptions``.
"""
selection_options = _gathering("words", SelectionWords, SelectionWords._fields, _SELECTION)
"""Gives a command the options that select samples.

They arrive together as ``words: SelectionWords``.
"""
