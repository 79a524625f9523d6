"""`profd ls` lists runs and processes; `profd dump` shows the present stacks of a process tree."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path, PurePath

import click
import msgspec

from profd.cli.console import print_json, short_command
from profd.cli.liverun import find_live, live_runs_of
from profd.cli.options import json_option
from profd.daemon import paths, processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ExitCode, NoSuchProcess, RunUnreadable
from profd.daemon.render.plaintext import aligned, titled, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.tree.attachable import Attachable, find_attachable
from profd.daemon.tree.tree import dump_tree, merge
from profd.daemon.units import duration


class ListedRun(msgspec.Struct, frozen=True):
    """A run in the list; one that cannot be read has only its file and ``error``.

    ``started`` is ISO 8601.
    """

    run: str
    file: str
    state: str
    name: str = ""
    pid: int | None = None
    command: tuple[str, ...] = ()
    started: str = ""
    duration_s: float | None = None
    samples: int | None = None
    error: str = ""


class Listing(msgspec.Struct, frozen=True):
    """The output of ``profd ls --json``."""

    runs: list[ListedRun]
    processes: list[Attachable]


@click.command()
@json_option
def command(as_json: bool) -> None:
    """List your runs and your running Python processes that can be attached to.

    The newest run comes first.
    """
    listing = Listing(
        runs=[list_run(path) for path in paths.list_runs()], processes=find_attachable()
    )
    if as_json:
        print_json(listing)
        return
    runs = "No runs yet. Make one: profd run -- python train.py, or profd demo"
    if listing.runs:
        heads = ("run", "state", "started", "length", "samples", "command")
        runs = titled(
            "Runs", aligned(heads, map(_run_cells, listing.runs), right=("length", "samples"))
        )
    click.echo(f"{runs}\n\n{attachable_table(listing.processes)}")


def attachable_table(found: Sequence[Attachable]) -> str:
    """Return the table of processes that can be attached to.

    If a process is recorded, its run is shown, too.
    """
    if not found:
        return "No Python process of yours is running."
    rows, recorded = [], live_runs_of(one.pid for one in found)
    for one in found:
        uses = "?" if one.uses_torch is None else "torch" if one.uses_torch else ""
        as_run = recorded[one.pid].stem if one.pid in recorded else ""
        words = f"notebook {one.notebook}" if one.notebook else short_command(one.command)
        rows.append((str(one.pid), one.python or "?", uses, duration(one.age_s), as_run, words))
    heads = ("pid", "python", "uses", "age", "recorded as", "command")
    table = aligned(heads, rows, right=("pid", "age"))
    return titled("Processes that can be attached to: profd attach PID", table)


def list_run(path: Path) -> ListedRun:
    try:
        with RunReader(path) as reader:
            info = reader.info
            samples = sum(recording.samples - recording.torn for recording in reader.recordings())
    except RunUnreadable as error:
        return ListedRun(run=path.stem, file=str(path), state="unreadable", error=error.what)
    started = (
        datetime.fromtimestamp(info.started_ns / SECOND_NS)
        .astimezone()
        .isoformat(timespec="seconds")
    )
    which, length_s = (
        (info.id, str(path), info.state, info.name),
        (info.end_ns - info.started_ns) / SECOND_NS,
    )
    return ListedRun(*which, info.pid, info.command, started, length_s, samples)


def _run_cells(run: ListedRun) -> tuple[str, ...]:
    if run.error:
        return run.run, run.state, "", "", "", run.error
    started, length = (
        run.started[:16].replace("T", " "),
        "" if run.duration_s is None else duration(run.duration_s),
    )
    return run.run, run.state, started, length, f"{run.samples:,}", short_command(run.command)


@click.command()
@click.argument("target", metavar="PID|RUN")
@json_option
def dump(target: str, as_json: bool) -> int:
    """Print the Python stacks of a process and of all processes below it.

    The process is PID, or the target of a live RUN.

    Threads that stand in the same stack are printed together. Nothing is stopped while it is looked
    at. For a RUN that hangs, the hang comes first.
    """
    hangs = []
    if target.isdecimal():
        pid = int(target)
    else:
        with RunReader(find_live(target)) as reader:
            info = reader.info
            hangs = [visible(f"▲ {hang.text}") for hang in reader.hangs() if hang.ended_ns is None]
        if not processes.is_running(info.pid, info.start_ticks):
            raise NoSuchProcess(
                f"the target of {info.id} has ended",
                f"where its time went: profd summary {info.id}",
            )
        pid = info.pid
    dumped = dump_tree(pid)
    has_stack = any(thread.frames for process in dumped for thread in process.threads)
    code = ExitCode.OK if has_stack else ExitCode.NO_SAMPLES
    if as_json:
        print_json(dumped)
        return code
    lines = []
    for process in dumped:
        words = " ".join(process.command) + (f" ({process.error})" if process.error else "")
        lines.append(f"{click.style(f'pid {process.pid}', bold=True)}  {visible(words)}")
    stacks = []
    for stack in merge(dumped):
        owners = click.style(visible(", ".join(stack.owners)), bold=True)
        # A frame as py-spy writes it, with its file's last two parts; the innermost is on top.
        files = ["/".join(PurePath(frame.filename).parts[-2:]) for frame in stack.frames]
        frames = [
            f"{one.name} ({file}:{one.line})" for one, file in zip(stack.frames, files, strict=True)
        ]
        stacks.append("\n".join([owners, *(f"    {visible(frame)}" for frame in frames)]))
    click.echo("\n\n".join([*hangs, "\n".join(lines), *stacks]))
    return code
