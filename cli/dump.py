"""`profd dump`: the stacks of a whole process tree at this moment, equal ones together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import click

from profd.cli.console import print_json
from profd.cli.options import json_option
from profd.cli.stop import read_info
from profd.daemon import paths, processes
from profd.daemon.errors import NoSuchProcess
from profd.daemon.render.plaintext import visible
from profd.daemon.stacks.dump import DumpedFrame
from profd.daemon.store.reader import RunReader
from profd.daemon.tree.treedump import DumpedProcess, MergedStack, dump_tree, merge


@click.command()
@click.argument("target", metavar="PID|RUN")
@json_option
def command(target: str, as_json: bool) -> None:
    """Print the Python stacks of PID, or of the target of a live RUN, and of all processes below it.

    Threads that stand in the same stack are printed together. Nothing is stopped while it is looked at.
    Of a RUN that hangs, what was found out about that comes first.
    """
    dumped = dump_tree(int(target) if target.isdecimal() else _pid_of_run(target))
    if as_json:
        print_json(dumped)
    else:
        hangs = [] if target.isdecimal() else _hangs_of_run(target)
        click.echo("\n\n".join([*hangs, _processes_text(dumped), *map(_paragraph, merge(dumped))]))


def _pid_of_run(word: str) -> int:
    """Return the PID of a run's target; raises NoSuchProcess where it has ended."""
    info = read_info(paths.find_run(word))
    if not processes.is_running(info.pid, info.start_ticks):
        raise NoSuchProcess(f"the target of {info.id} has ended", f"where its time went: profd summary {info.id}")
    return info.pid


def _hangs_of_run(word: str) -> list[str]:
    """Return a paragraph on the hang that a run is in, if it is in one."""
    with RunReader(paths.find_run(word)) as reader:
        return [visible(f"▲ {hang.text}") for hang in reader.hangs() if hang.ended_ns is None]


def _processes_text(dumped: Sequence[DumpedProcess]) -> str:
    """Return the list of processes."""
    lines = []
    for process in dumped:
        words = " ".join(process.command) + (f" ({process.error})" if process.error else "")
        lines.append(f"{click.style(f'pid {process.pid}', bold=True)}  {visible(words)}")
    return "\n".join(lines)


def _paragraph(stack: MergedStack) -> str:
    """Return a stack below those who stand in it, the innermost frame on top."""
    owners = click.style(visible(", ".join(stack.owners)), bold=True)
    return "\n".join([owners, *(f"    {_frame_text(frame)}" for frame in stack.frames)])


def _frame_text(frame: DumpedFrame) -> str:
    """Return a frame as py-spy writes it, with its file's last two parts."""
    return visible(f"{frame.name} ({'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.line})")
