"""What is said where there are no samples to show: of which time, and why, as far as anybody knows."""

from __future__ import annotations

from profd.daemon.render.visible import visible
from profd.daemon.units import time_range
from profd.tui.snapshot import Snapshot


def without_samples(snapshot: Snapshot, of_whom: str) -> str:
    """Return why there is nothing to say of threads, which ``of_whom`` names."""
    errors = [event for event in snapshot.events if event.kind == "error"]
    if snapshot.view.chosen is not None or snapshot.view.span_ns is not None:
        times = "–".join(time_range(snapshot.from_ns, snapshot.to_ns))  # noqa: RUF001
        return f"No samples of {of_whom} between {times}: {_why_none(snapshot)}."
    if snapshot.read_share < 1:
        return "Reading the run…"
    if errors:
        return f"No samples: {visible(errors[-1].text)}"
    if snapshot.info.state == "live":
        return f"Waiting for the first samples of {of_whom}…"
    return f"No samples of {of_whom} were taken."


def _why_none(snapshot: Snapshot) -> str:
    """Return why a part of a run has none: nobody lived then, or nobody was read."""
    living = [row for row in snapshot.process_rows if row.role == "main"]
    if not any(row.seen_ns < snapshot.to_ns and (row.ended_ns or snapshot.to_ns) > snapshot.from_ns for row in living):
        return "no training process was there"
    if snapshot.info.state == "live" and snapshot.to_ns >= snapshot.info.end_ns:
        return "the newest are still being recorded"
    return "nothing was recorded then"
