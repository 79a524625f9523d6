"""The spans of a trace in a database of their own: work of host and device, and changes of memory.

A trace may have millions of them. SQLite keeps on disk what does not fit into its cache, and puts
it in order there, so that a large trace takes no more memory than a small one.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from itertools import count, pairwise
from typing import Any

from profd.daemon.clock import MILLISECOND_NS, MINUTE_NS
from profd.daemon.frameworks.kineto import time_ns
from profd.daemon.store.database import listed
from profd.daemon.store.records import WindowStep
from profd.daemon.windows.trace import Event, TraceReader, whole_number

PYTHON_FUNCTION = "python_function"
GPU_ANNOTATION = "gpu_user_annotation"
ANNOTATIONS = frozenset({"user_annotation", GPU_ANNOTATION})
# Events of torch itself: each has an id, to which work of the device is linked.
FRONTEND = frozenset({"cpu_op", "user_annotation", PYTHON_FUNCTION})
# Calls of the driver, and the profiler's own work: linked to the operator that they were made for,
# or to none.
LINKED_HOST = frozenset(
    {
        "cuda_runtime",
        "cuda_driver",
        "overhead",
        "external_correlation",
        "xpu_runtime",
        "glow_runtime",
        "mtia_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
    }
)
HOST = FRONTEND | LINKED_HOST
# Others, such as cuda_sync, are no work of a device: they say what waited for it.
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "collective_comm", GPU_ANNOTATION})
_WIDENED_NS = 1
"""By how many ns Kineto has a range on a device begin before its first kernel, and end later."""
MEMORY = "[memory]"
_LEFT_OUT = frozenset({
    "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
    "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
})  # fmt: skip
"""Names that torch keeps out of its own tables."""
_HOST_MEMORY = (0, 2, 5)  # c10::DeviceType: CPU, MKLDNN, IDEEP
_DEVICE_MEMORY = (1, 6, 12, 20)  # CUDA, HIP, XPU, PrivateUse1
MARKED_STEP = "ProfilerStep#"
_OPTIMIZER = "Optimizer.step#"

# Names, threads and shapes are numbers here, see ``Spans.text``. ``id`` is that of an operator or
# range, for a call of the driver that of the operator which it was made for. ``gpu`` is NULL, and
# ``tid`` 0, if a trace has no number there.
_SCHEMA = """
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -8192; -- KiB
    CREATE TABLE host (name, category, of_torch, thread, start, end, id, correlation, tid, shapes);
    CREATE TABLE device (name, category, stream, gpu, start, end, linked, correlation, misdated);
    CREATE TABLE memory (at, host_bytes, device_bytes);
    BEGIN;
"""
_INSERT_CALL = "INSERT INTO host VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_WORK = "INSERT INTO device VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_CHANGE = "INSERT INTO memory VALUES (?, ?, ?)"
_TABLES = f"""
    CREATE TABLE operator (id INTEGER PRIMARY KEY, thread);
    INSERT OR REPLACE INTO operator SELECT id, thread FROM host WHERE id AND of_torch;
    CREATE TABLE launch (correlation INTEGER PRIMARY KEY, name, start, end, tid);
    INSERT INTO launch SELECT correlation, name, start, max(end), tid FROM host
        WHERE correlation AND NOT of_torch GROUP BY correlation;
    CREATE INDEX device_by_launch ON device (correlation);
    CREATE TABLE called AS -- a queue may be long
        SELECT min(start) AS first, max(end) AS last,
            max(max(end) - min(start), {MINUTE_NS}) AS far FROM launch;
    UPDATE device SET misdated = 1 WHERE start > (SELECT last + far FROM called) OR end < coalesce(
        (SELECT launch.start - {MILLISECOND_NS} FROM launch
         WHERE launch.correlation = device.correlation),
        (SELECT first - far FROM called));
    CREATE TABLE launched (id INTEGER PRIMARY KEY, ns);
    INSERT INTO launched SELECT linked, sum(end - start) FROM device
        WHERE NOT misdated GROUP BY linked;
"""


class Spans:
    """A database of spans.

    Times count from ``base_ns``; ``cupti`` is the version of CUPTI's interface, 0 if unknown. There
    are ``host``, ``device`` and ``memory``; the ``operator`` of each id, and how much time of work
    it ``launched``; and the ``launch`` of each correlation. Work with the times of another clock is
    ``misdated``: it ends before its launch begins, or lies far from all that the host did.
    """

    def __init__(self, events: TraceReader) -> None:
        """Read a trace; raises TraceUnreadable."""
        self._numbers: defaultdict[object, int] = defaultdict(count().__next__)
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_SCHEMA)
        for some in events:
            insert = self._database.executemany
            insert(_INSERT_CHANGE, (_change(one) for one in some if one.name == MEMORY))
            spans = [one for one in some if one.ph == "X" and one.name not in _LEFT_OUT | {MEMORY}]
            insert(_INSERT_CALL, (self._call(one) for one in spans if one.cat in HOST))
            insert(_INSERT_WORK, (self._work(one) for one in spans if one.cat in DEVICE))
        self.base_ns, self.cupti = events.rest.base_ns, whole_number(events.rest.cupti)
        self._texts = list(self._numbers)
        self._database.executescript(_TABLES)

    def select(self, sql: str) -> sqlite3.Cursor:
        return self._database.execute(sql)

    def text(self, number: int) -> Any:  # noqa: ANN401  one who asks knows of what
        """Return the name, thread (PID and thread id) or JSON that a number stands for."""
        return self._texts[number]

    def named(self, pattern: str) -> str:
        """Return the numbers of the names that a pattern matches, as SQL lists them after IN."""
        is_named = re.compile(pattern).match
        names = enumerate(self._texts)
        return listed(number for number, one in names if isinstance(one, str) and is_named(one))

    def _call(self, event: Event) -> tuple[object, ...]:
        start_ns, of_torch = time_ns(event.ts), event.cat in FRONTEND
        return (
            self._numbers[event.name],
            event.cat,
            of_torch,
            self._numbers[event.pid, event.tid] if of_torch else None,
            start_ns,
            start_ns + time_ns(event.dur),
            whole_number(event.args.external_id),
            whole_number(event.args.correlation),
            abs(event.tid) & 0xFFFFFFFF if isinstance(event.tid, int) else 0,
            self._numbers[bytes(event.args.input_dims)],
        )

    def _work(self, event: Event) -> tuple[object, ...]:
        start_ns, linked = time_ns(event.ts), whole_number(event.args.external_id)
        end_ns = start_ns + time_ns(event.dur)
        if event.cat == GPU_ANNOTATION:
            # It spans work that has the same link, and would count twice.
            start_ns, end_ns, linked = start_ns + _WIDENED_NS, end_ns - _WIDENED_NS, 0
        return (
            self._numbers[event.name],
            event.cat,
            self._numbers[event.pid, event.tid],
            event.pid if isinstance(event.pid, int) else None,
            start_ns,
            end_ns,
            linked,
            whole_number(event.args.correlation),
            False,
        )


def _change(event: Event) -> tuple[int, int, int]:
    size, kind = whole_number(event.args.bytes), whole_number(event.args.device_type)
    on_device = size if kind in _DEVICE_MEMORY else 0
    return time_ns(event.ts), size if kind in _HOST_MEMORY else 0, on_device


def find_steps(spans: Spans, begun_ns: int | None) -> tuple[WindowStep, ...]:
    """Return the whole steps in order of time, the first from ``begun_ns`` if that is given."""
    base_ns = spans.base_ns
    marked = f"SELECT start, end FROM host WHERE name IN ({spans.named(MARKED_STEP)}) ORDER BY 1, 2"
    if steps := list(spans.select(marked)):
        return tuple(WindowStep(base_ns + start, base_ns + end) for start, end in steps)
    # Of several optimizers, the one that updates most often.
    updates = f"name IN ({spans.named(_OPTIMIZER)})"
    busiest = (
        f"SELECT name FROM host WHERE {updates} GROUP BY name ORDER BY count(*) DESC, min(rowid)"
    )
    ends = [
        base_ns + end
        for (end,) in spans.select(f"SELECT end FROM host WHERE name = ({busiest}) ORDER BY end")
    ]
    ends = ends if begun_ns is None else [begun_ns, *ends]
    return tuple(WindowStep(start, end) for start, end in pairwise(ends))
