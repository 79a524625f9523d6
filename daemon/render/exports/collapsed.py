"""Collapsed stacks: a line for each stack with its samples, as flame graph tools read and ``py-spy -f raw`` writes.

The numbers are samples as they were taken, so that totals are those of the run; shares of time stand in the summary.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.totals import selected_totals
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ThreadRow


def collapsed_lines(
    reader: RunReader, selection: Selection, *, processes: bool = False, threads: bool = False
) -> Iterator[str]:
    """Yield ``frame;frame;frame N`` from root to leaf for every stack of a selection, in alphabetical order.

    ``processes`` and ``threads`` put a frame for each process and thread in front, as py-spy's options --subprocesses
    and --threads do. The numbers add up to the samples of the selection. No line ends in a newline.
    """
    counted: Counter[str] = Counter()
    roots: dict[int, list[str]] = {}
    labels: dict[int, str] = {}
    for total in selected_totals(reader, selection):
        if total.thread not in roots:
            roots[total.thread] = _roots(reader, reader.threads[total.thread], processes=processes, threads=threads)
        frames = reader.frames_of(total.stack)
        for frame in frames:
            if frame.id not in labels:
                labels[frame.id] = _safe(frame.label)
        counted[";".join([*roots[total.thread], *(labels[frame.id] for frame in frames)])] += total.samples
    for stack_text, samples in sorted(counted.items()):
        yield f"{stack_text} {samples}"


def _roots(reader: RunReader, thread: ThreadRow, *, processes: bool, threads: bool) -> list[str]:
    found = []
    if processes:
        process = reader.processes[thread.process]
        found.append(_safe(f'process {process.pid}:"{shlex.join(process.command)}"'))
    if threads:
        found.append(_safe(f"thread ({thread.os_tid}): {thread.name}"))
    return found


def _safe(label: str) -> str:
    """Return a label that ends neither the frame nor the line, and does nothing to a terminal."""
    return visible(label).replace(";", ":")
