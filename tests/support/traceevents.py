"""Judges a timeline by the Trace Event Format: what each kind of event must have, and how slices
nest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

_ROUNDING_US = 0.001
_UINT32 = 1 << 32
_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "X": {"name": str, "cat": str, "ts": (int, float), "dur": (int, float), "pid": int, "tid": int},
    "C": {"name": str, "ts": (int, float), "pid": int, "args": dict},
    "i": {"name": str, "ts": (int, float), "pid": int, "tid": int, "s": str},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "ts": (int, float), "pid": int, "tid": int},
    "f": {
        "name": str,
        "cat": str,
        "id": int,
        "ts": (int, float),
        "pid": int,
        "tid": int,
        "bp": str,
    },
}


def check(events: Iterable[Mapping[str, Any]]) -> None:
    """Fail where an event is none, slices of a track overlap without nesting, or an arrow has one
    end only.
    """
    events = list(events)
    for event in events:
        _check_event(event)
    slices: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for track in slices.values():
        _check_nesting(track)
    starts = sorted(event["id"] for event in events if event["ph"] == "s")
    assert starts == sorted({event["id"] for event in events if event["ph"] == "f"})


def _check_event(event: Mapping[str, Any]) -> None:
    for field, kind in _FIELDS[event["ph"]].items():
        assert isinstance(event[field], kind), event
        assert not isinstance(event[field], bool), event
    assert 0 <= event["pid"] < _UINT32, event
    assert 0 <= event.get("tid", 0) < _UINT32, event
    assert event.get("dur", 0) >= 0, event
    assert isinstance(event.get("args", {}), dict), event
    if event["ph"] == "C":
        assert all(isinstance(value, int | float) for value in event["args"].values()), event
    if event["ph"] == "i":
        assert event["s"] in "gpt", event


def _check_nesting(track: list[tuple[float, float]]) -> None:
    ends: list[float] = []
    for start, end in sorted(track, key=lambda span: (span[0], -span[1])):
        while ends and ends[-1] <= start + _ROUNDING_US:
            ends.pop()
        assert not ends or end <= ends[-1] + _ROUNDING_US, (start, end, ends[-1])
        ends.append(end)
