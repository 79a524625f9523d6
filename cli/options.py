"""Options that several commands share, each defined once.

They are options of recording and of selecting samples, and the RUN argument. This module imports
nothing that a command's ``--help`` could do without.
"""

from __future__ import annotations

import functools
import os
import resource
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profd.cli.completion import complete_phase, complete_run, complete_target
from profd.daemon import paths
from profd.daemon.api.selectors import Selectors
from profd.daemon.recordingconfig import RECORDING, RecordingSettings

if TYPE_CHECKING:
    from profd.daemon.session.session import SessionOptions

Command = TypeVar("Command", bound=Callable[..., Any])


def run_argument(name: str = "run", metavar: str = "[RUN]") -> Callable[[Command], Command]:
    """Return a decorator that gives a command RUN as ``name: str``, by default ``latest``."""
    complete = complete_target if "PID" in metavar else complete_run
    return click.argument(name, metavar=metavar, default=paths.LATEST, shell_complete=complete)


job_option = click.option(
    "--job", metavar="NAME", help="Where RUN is a folder of several jobs: which of them."
)
"""``--job``, as ``job: str | None``."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
"""``--json``, as ``as_json: bool``."""


def off_option(name: str, text: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command ``--no-NAME``, which arrives as ``NAME: bool``."""
    return click.option(
        f"--no-{name}", name, flag_value=False, default=True, show_default=False, help=text
    )


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


def _rate_hz(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value == "auto":
        return None
    return click.IntRange(1, RECORDING.highest_rate_hz)(value, parameter, context)


_DEFAULTS = RecordingSettings()
_RECORDING = (
    click.option(
        "--rate",
        "rate_hz",
        callback=_rate_hz,
        default="auto",
        metavar="HZ",
        help=f"Samples a second of each main process, 1 to {RECORDING.highest_rate_hz}; auto: "
        f"{RECORDING.full_rate_hz} while something is new, else {RECORDING.steady_rate_hz}.",
    ),
    click.option(
        "--budget",
        "budget_percent",
        type=click.FloatRange(0, min_open=True),
        default=_DEFAULTS.budget_percent,
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
        "from_",
        metavar="TIME",
        help="Take samples from TIME on: seconds from the start of the run, or HH:MM:SS.",
    ),
    click.option("--to", metavar="TIME", help="Take samples before TIME."),
    click.option("--rank", type=int, metavar="N", help="Take the samples of this rank."),
    click.option(
        "--process",
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


def _gathering(
    name: str,
    kind: Callable[..., RecordingOptions | Selectors],
    fields: Collection[str],
    options: tuple[Callable[..., Any], ...],
) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gathered(**values: object) -> object:
            values[name] = kind(**{field: values.pop(field) for field in fields})
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
selection_options = _gathering("words", Selectors, Selectors.__annotations__, _SELECTION)
"""Gives a command the options that select samples.

They arrive together as ``words: Selectors``.
"""
