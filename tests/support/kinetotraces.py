"""Writes small Kineto traces with known answers, event by event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from profd.daemon.windows.operators import OperatorKey, Operators, Totals, sum_up
from profd.daemon.windows.spans import Spans
from profd.daemon.windows.trace import TraceReader

MEMORY_THREAD = 9
Script = TypeVar("Script", bound="TraceScript")


@dataclass
class TraceScript:
    """A trace of one process that starts at the epoch; times are microseconds."""

    events: list[dict[str, object]] = field(default_factory=list)

    def op(
        self,
        name: str,
        ts: float,
        dur: float,
        *,
        tid: int = 1,
        cat: str = "cpu_op",
        args: Mapping[str, object] = {},
    ) -> TraceScript:
        return self.add(cat, name, 1, tid, ts, dur, args)

    def add(
        self: Script,
        cat: str,
        name: str,
        pid: int,
        tid: int,
        ts: float,
        dur: float,
        args: Mapping[str, object],
    ) -> Script:
        """Add a span."""
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": ts,
                "dur": dur,
                "args": args,
            }
        )
        return self

    def memory(self, ts: float, size: int, device: int = 0) -> TraceScript:
        """Add a change of memory; ``device`` is a c10::DeviceType."""
        details = {"Bytes": size, "Device Type": device}
        self.events.append(
            {
                "ph": "i",
                "name": "[memory]",
                "pid": 1,
                "tid": MEMORY_THREAD,
                "ts": ts,
                "args": details,
            }
        )
        return self

    def text(self) -> bytes:
        return msgspec.json.encode({"baseTimeNanoseconds": 0, "traceEvents": self.events})

    def spans(self) -> Spans:
        return Spans(TraceReader([self.text()]))

    def totals(self) -> dict[str, Totals]:
        """Return what it sums up to, by ``name@device``."""
        return {
            f"{key.name}@{key.device}": totals
            for key, totals in by_name(sum_up(self.spans())).items()
        }


def by_name(operators: Operators) -> Operators:
    """Return the totals without regard to shapes, as ``key_averages()`` has them."""
    merged: defaultdict[OperatorKey, Totals] = defaultdict(Totals)
    for key, totals in operators.items():
        sums = merged[msgspec.structs.replace(key, input_shapes="")]
        for name in Totals.__struct_fields__:
            setattr(sums, name, getattr(sums, name) + getattr(totals, name))
    return dict(merged)
