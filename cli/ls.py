"""`profd ls`: the runs, and the processes that can be attached to."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from profd.cli.console import line_cells, print_json, say, short_command
from profd.cli.liverun import live_runs_of
from profd.cli.options import json_option
from profd.daemon import paths
from profd.daemon.api.opening import ListedRun, list_runs
from profd.daemon.render.plaintext import Paragraph, aligned, joined, titled
from profd.daemon.tree.attachable import Attachable, find_attachable
from profd.daemon.units import duration


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
    listing = Listing(runs=list_runs(), processes=find_attachable())
    if as_json:
        print_json(listing)
        return
    for run in listing.runs:
        if run.error:
            say(f"{run.run} cannot be read: {run.error}")
    cells = line_cells(sys.stdout)
    runs = run_table(listing.runs, cells)
    click.echo(f"{runs}\n\n{attachable_table(listing.processes, cells)}")


def run_table(runs: Sequence[ListedRun], cells: int) -> str:
    """Return the table of runs, no wider than ``cells``; ids, which say when, are never cut."""
    if not runs:
        return "No runs yet. Make one: profd run -- python train.py, or profd demo"
    heads = ("run", "state", "length", "samples", "command")
    right, whole = ("length", "samples"), ("run", "state")
    table = aligned(heads, map(_run_cells, runs), right=right, whole=whole, cells=cells)
    where = f"Each is a file in {paths.runs_folder()}: delete it, and the run is gone."
    return f"{titled('Runs: profd view RUN', table)}\n{joined([Paragraph(where)], cells)}"


def attachable_table(found: Sequence[Attachable], cells: int) -> str:
    """Return the table of processes that can be attached to, no wider than ``cells``.

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
    table = aligned(heads, rows, right=("pid", "age"), cells=cells)
    return titled("Processes that can be attached to: profd attach PID", table)


def _run_cells(run: ListedRun) -> tuple[str, ...]:
    length = "" if run.duration_s is None else duration(run.duration_s)
    samples = "" if run.samples is None else f"{run.samples:,}"
    return run.run, run.state, length, samples, short_command(run.command)
