"""`profd dump`: the stacks of a whole process tree at this moment, equal ones together."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

import click
import msgspec

from profd.cli.options import json_option
from profd.cli.stop import read_info
from profd.daemon import paths, processes
from profd.daemon.collect.stacks.dump import DumpedFrame, DumpedThread, DumpFailed, take_dump
from profd.daemon.errors import NoSuchProcess
from profd.daemon.supervise.diagnosis import check_attachable
from profd.daemon.supervise.rights import Rights
from profd.daemon.supervise.secrets import mask_command


class DumpedProcess(msgspec.Struct, frozen=True):
    """A process with its threads; ``error`` says why there are none."""

    pid: int
    command: tuple[str, ...]
    threads: tuple[DumpedThread, ...] = ()
    error: str = ""


@click.command()
@click.argument("target", metavar="PID|RUN")
@json_option
def command(target: str, as_json: bool) -> None:
    """Print the Python stacks of PID, or of the target of a live RUN, and of all processes below it.

    Threads that stand in the same stack are printed together. Nothing is stopped while it is looked at.
    """
    pid = int(target) if target.isdecimal() else _pid_of_run(target)
    check_attachable(pid)
    dumped = [
        _dump(member) for member in (pid, *Rights().descendants(pid)) if processes.python_version(member) is not None
    ]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(dumped), indent=2))
    else:
        click.echo("\n\n".join([_processes_text(dumped), *_stacks_text(dumped)]))


def _pid_of_run(word: str) -> int:
    """Return the PID of a run's target; raises NoSuchProcess where it has ended."""
    info = read_info(paths.find_run(word))
    if not processes.is_running(info.pid, info.start_ticks):
        raise NoSuchProcess(f"the target of {info.id} has ended", f"where its time went: profd summary {info.id}")
    return info.pid


def _dump(pid: int) -> DumpedProcess:
    """Look at one process; one that cannot be read says why."""
    words = mask_command(processes.command_line(pid))
    try:
        return DumpedProcess(pid=pid, command=words, threads=take_dump(pid))
    except DumpFailed as error:
        return DumpedProcess(pid=pid, command=words, error=str(error))


def _processes_text(dumped: list[DumpedProcess]) -> str:
    """Return the list of processes."""
    lines = []
    for process in dumped:
        note = f" ({process.error})" if process.error else ""
        lines.append(f"{click.style(f'pid {process.pid}', bold=True)}  {' '.join(process.command)}{note}")
    return "\n".join(lines)


def _stacks_text(dumped: list[DumpedProcess]) -> list[str]:
    """Return a paragraph for each distinct stack: those of main threads first, then by how many stand in them."""
    standing: defaultdict[tuple[DumpedFrame, ...], list[str]] = defaultdict(list)
    for process in dumped:
        for thread in process.threads:
            standing[thread.frames].append(f"pid {process.pid} {thread.thread_name or 'thread'}{_mark(thread)}")
    paragraphs = sorted(standing.items(), key=lambda item: (not _has_main(item[1]), -len(item[1])))
    return [_paragraph(owners, frames) for frames, owners in paragraphs]


def _has_main(owners: list[str]) -> bool:
    """Say whether a main thread is among the owners of a stack."""
    return any(" MainThread" in owner for owner in owners)


def _paragraph(owners: list[str], frames: tuple[DumpedFrame, ...]) -> str:
    """Return a stack below those who stand in it, the innermost frame on top."""
    return "\n".join([click.style(", ".join(owners), bold=True), *(f"    {_frame_text(frame)}" for frame in frames)])


def _mark(thread: DumpedThread) -> str:
    """Return what the thread is at: holding the GIL, or on the CPU without it."""
    return " (GIL)" if thread.owns_gil else " (active)" if thread.active else ""


def _frame_text(frame: DumpedFrame) -> str:
    """Return a frame as py-spy writes it, with its file's last two parts."""
    return f"{frame.name} ({'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.line})"
