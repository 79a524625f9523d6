"""The series in a report's page: CPU, memory and steps of processes, load and memory of GPUs.

Each has about as many points as a screen has columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

from profd.daemon.analyze.coverage import Lives
from profd.daemon.analyze.memory import Growth
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import take_course
from profd.daemon.analyze.steps import counts_of
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.naming import exit_words, signal_name
from profd.daemon.render.htmlpage import distances
from profd.daemon.render.plaintext import process_title, visible
from profd.daemon.render.sections import growth_words
from profd.daemon.store.merge import hosts_of, nodes_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT
from profd.daemon.store.stepfunction import (
    MEMORY_OF_PROCESS,
    UTILIZATION,
    IntervalSet,
    Step,
)

POINT_LIMIT = 1_200
"""Points kept of one series: about as many as a wide screen has columns."""
_DIGITS = {"cpu_cores": 5, "rss_bytes": -4, "pss_bytes": -4, UTILIZATION: 3, STEP_COUNT: 4}
_DIGITS |= {"gpu_memory_used_bytes": -5, MEMORY_OF_PROCESS: -5}
"""Decimal places that are worth their bytes."""
_MOST = 1e15

Series = dict[str, Any]
"""A series of numbers, each with the time over which it holds.

What lies between these times is unknown.

``steps_ms`` are the distances of their ends in ms (of the first: to the run's start). A value holds
since the end of the one before, but for ``gaps_ms`` after it; ``gap_steps`` are the places of the
values before which a gap lies, each as its distance to the one before. A number is ``values[i]``
divided by ten to the power of ``digits``.
"""


def process_entries(
    reader: RunReader, index: dict[int, int], lives: Lives, memory: Iterable[Growth]
) -> list[dict[str, Any]]:
    """Return the processes with their series.

    ``index`` has the place of each, ``memory`` the growth of their memory. The steps are empty if
    no loop counter was read.
    """
    started_ns = reader.info.started_ns
    # Only the first processes have series: a job that starts thousands would fill the page.
    charted = set(list(index)[:64])
    hosts = hosts_of(reader) if nodes_of(reader) else {}
    growths: defaultdict[int, list[dict[str, object]]] = defaultdict(list)
    for one in memory:
        # PSS is part of RSS, and read seldom.
        if one.series != "pss_bytes" and one.process in charted:
            growths[one.process].append(
                {
                    "title": "RSS" if one.device is None else f"on {_gpu_title(one.device)}",
                    "bytes": _series(reader, one.series, one.process, one.device),
                    "growth": growth_words(one),
                }
            )

    def charted_series(name: str, process: int) -> Series:
        return _series(reader, name, process) if process in charted else _columns(reader, [], 0)

    return [
        {
            "title": process_title(row, hosts.get(row.id)),
            "role": row.role,
            "rank": row.rank,
            "pid": row.pid,
            "ending": exit_words(row.exit_code, signal_name(row.exit_signal)),
            "parent": index.get(row.parent or 0),
            "command": visible(" ".join(row.command)),
            "seen_ms": (row.seen_ns - started_ns) // MILLISECOND_NS,
            "ended_ms": None
            if row.ended_ns is None
            else (row.ended_ns - started_ns) // MILLISECOND_NS,
            "cover": _cover(lives.covers[row.id], started_ns),
            "cpu_cores": charted_series("cpu_cores", row.id),
            "rss_bytes": charted_series("rss_bytes", row.id),
            "steps_per_s": _steps_per_s(reader, row.id),
            "memory": growths[row.id],
        }
        for row in reader.processes.values()
    ]


def gpu_entries(reader: RunReader) -> list[dict[str, Any]]:
    devices = sorted({row.device for row in reader.list_series(UTILIZATION) if row.device})
    return [
        {
            "title": _gpu_title(device),
            "utilization": _series(reader, UTILIZATION, None, device),
            "memory_bytes": _series(reader, "gpu_memory_used_bytes", None, device),
        }
        for device in devices
    ]


def _gpu_title(device: str) -> str:
    return f"GPU {visible(device).removeprefix('gpu')}"


def _cover(cover: IntervalSet, started_ns: int) -> dict[str, list[int]]:
    """Return how much of a process recordings cover by a few times, linear in between.

    The numbers are distances.
    """
    edges = cover.edges()
    together = -(-len(edges) // POINT_LIMIT)
    if together > 1:
        edges = [*edges[:-1:together], edges[-1]]
    times_ms = [(at_ns - started_ns) // MILLISECOND_NS for at_ns, _ in edges]
    covered_ms = [covered_ns // MILLISECOND_NS for _, covered_ns in edges]
    return {"steps_ms": distances(times_ms), "covered_ms": distances(covered_ms)}


def _series(reader: RunReader, name: str, process: int | None, device: str | None = None) -> Series:
    found = reader.find_series(name, process, device)
    # In a run of so many minutes the mean of each minute is enough.
    steps = list(take_course(reader, found.id, least_minutes=300).steps()) if found else []
    return _columns(reader, steps, _DIGITS[name] if found else 0)


def _steps_per_s(reader: RunReader, process: int) -> Series:
    """Return the rate of steps between readings of the loop counter; None if it starts again."""
    steps = []
    pairs = chain.from_iterable(
        pairwise(piece) for piece in counts_of(reader, process, Selection()).pieces
    )
    for before, after in pairs:
        if after.at_ns > before.at_ns and after.value >= before.value:
            steps.append(Step(before.at_ns, after.at_ns, after.per_s_since(before)))
    return _columns(reader, steps, _DIGITS[STEP_COUNT])


def _mean(steps: Sequence[Step]) -> Step:
    """Return the mean of neighbors, as a step of as much time as they have, up to their end."""
    lengths_ns = [one.end_ns - one.start_ns for one in steps]
    known_ns, last = sum(lengths_ns), steps[-1]
    area = sum(one.value * length_ns for one, length_ns in zip(steps, lengths_ns, strict=True))
    return Step(last.end_ns - known_ns, last.end_ns, area / known_ns if known_ns else last.value)


def _columns(reader: RunReader, steps: list[Step], digits: int) -> Series:
    """Return at most ``POINT_LIMIT`` steps, each the mean of as many neighbors and their time."""
    together = -(-len(steps) // POINT_LIMIT)
    if together > 1:
        steps = [_mean(steps[at : at + together]) for at in range(0, len(steps), together)]
    started_ns = reader.info.started_ns
    begins_ms = [(step.start_ns - started_ns) // MILLISECOND_NS for step in steps]
    ends_ms = [(step.end_ns - started_ns) // MILLISECOND_NS for step in steps]
    gaps_ms = [
        begin_ms - end_ms for begin_ms, end_ms in zip(begins_ms, [0, *ends_ms], strict=False)
    ]
    places = [place for place, gap_ms in enumerate(gaps_ms) if gap_ms]
    scale = 10.0**digits
    return {
        "steps_ms": distances(ends_ms),
        # No reading can be beyond the bounds; only a damaged file has such values.
        "values": [
            round(value) if -_MOST < value < _MOST else 0
            for value in (step.value * scale for step in steps)
        ],
        "digits": digits,
        "gap_steps": distances(places),
        "gaps_ms": [gaps_ms[place] for place in places],
    }
