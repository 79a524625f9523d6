"""`profd dump`: the present stacks of a process tree."""

from __future__ import annotations

from collections.abc import Sequence

import click

from profd.cli.console import print_json
from profd.cli.liverun import find_live
from profd.cli.options import json_option, run_argument
from profd.daemon import processes
from profd.daemon.errors import ExitCode, NoSuchProcess
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.tree.tree import DumpedProcess, dump_tree, merge


@click.command()
@run_argument("target", "[PID|RUN]")
@click.option("--native", is_flag=True, help="Also read native stacks of threads that wait.")
@json_option
def command(target: str, native: bool, as_json: bool) -> int:
    """Print the Python stacks of a process and of all processes below it.

    The process is PID, or the target of a live RUN.

    Threads that stand in the same stack are printed together. Nothing is stopped while it is looked
    at. For a RUN that hangs, the hang comes first.

    --native puts the native functions of C and C++ in which a thread waits above the Python frame
    that called them, and shows threads that run no Python. A … stands for what is not sure.
    """
    dumped, hangs = dump(target, native=native)
    has_stack = any(thread.frames for process in dumped for thread in process.threads)
    if as_json:
        print_json(dumped)
    else:
        click.echo(dump_text(dumped, hangs))
    return ExitCode.OK if has_stack else ExitCode.NO_SAMPLES


def dump(target: str, *, native: bool = False) -> tuple[list[DumpedProcess], list[str]]:
    """Return the stacks below a PID or the target of a live run, and what hangs in that run."""
    hangs = list[str]()
    if target.isdecimal():
        pid = int(target)
    else:
        with RunReader(find_live(target)) as reader:
            info = reader.info
            hangs = [visible(f"▲ {hang.text}") for hang in reader.hangs() if hang.ended_ns is None]
        if not processes.is_running(*info.target):
            raise NoSuchProcess(
                f"the target of {info.id} has ended",
                f"where its time went: profd summary {info.id}",
            )
        pid = info.target.pid
    return dump_tree(pid, native=native), hangs


def dump_text(dumped: Sequence[DumpedProcess], hangs: Sequence[str]) -> str:
    """Return what is printed of a dump, in the styles of a terminal."""
    lines = []
    for process in dumped:
        words = " ".join(process.command) + (f" ({process.error})" if process.error else "")
        lines.append(f"{click.style(f'pid {process.pid}', bold=True)}  {visible(words)}")
    stacks = []
    for stack in merge(dumped):
        owners = click.style(visible(", ".join(stack.owners)), bold=True)
        # A frame as py-spy writes it; the innermost is on top.
        frames = *stack.native, *(f"{frame.name} ({frame.place})" for frame in stack.frames)
        stacks.append("\n".join([owners, *(visible(f"    {frame}") for frame in frames)]))
    return "\n\n".join([*hangs, "\n".join(lines), *stacks])
