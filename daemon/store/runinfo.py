"""The run as a whole, as its file tells it: what was run, where, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.rows import RunInfo

_LONGEST_NS = 10 * 366 * 86400 * SECOND_NS
_STARTED_FIELDS = ("id", "name", "mode", "cwd", "host", "user", "started_ns", "control_socket")
_ANALYSIS_FIELDS = ("analyzed_ns", "analysis_lost_ns", "findings_made_by")
_STARTED_AS_JSON: dict[str, Any] = {
    "target": tuple[int, int],
    "recorder": tuple[int, int],
    "command": tuple[str, ...],
    "versions": dict[str, str],
    "options": dict[str, int | float | bool | str | None],
}


def run_info(path: Path, meta: Mapping[str, Any]) -> RunInfo:
    """Return the run of a file whose table ``meta`` says this; raises RunUnreadable where it is damaged."""
    if not meta.keys() >= {*_STARTED_FIELDS, *_STARTED_AS_JSON, "state", "written_ns"}:
        raise database.unreadable(path, "its first records are missing")
    with database.reading(path):
        info = msgspec.convert(_values(meta), RunInfo)
    if not info.started_ns <= info.end_ns <= info.started_ns + _LONGEST_NS:
        raise database.unreadable(path, "it ends before it starts, or ten years later")
    return info


def _values(meta: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of a run; raises msgspec.DecodeError where one is no JSON of its type."""
    target, recorder, command, versions, options = (
        msgspec.json.decode(str(meta[name]), type=kind) for name, kind in _STARTED_AS_JSON.items()
    )
    return dict(
        **{name: meta[name] for name in _STARTED_FIELDS},
        pid=target[0],
        start_ticks=target[1],
        command=command,
        state=_state(meta["state"], recorder),
        end_ns=meta.get("ended_ns") or meta["written_ns"],
        why_ended=meta.get("why_ended"),
        exit_code=meta.get("exit_code"),
        exit_signal=meta.get("exit_signal"),
        recorder=recorder,
        versions=versions,
        options=options,
        **{name: meta.get(name) for name in _ANALYSIS_FIELDS},
    )


def _state(stored: str, recorder: tuple[int, int]) -> str:
    """Return the state of a run: one that is called live is none without its recorder."""
    return "interrupted" if stored == "live" and not processes.is_running(*recorder) else stored
