"""Moments of a run as people write them."""

from __future__ import annotations

from datetime import datetime

from profd.daemon.clock import SECOND_NS


def moment(at_ns: int) -> str:
    """Return a moment in the time zone of who reads it: ``2026-11-20 12:00:00 UTC``."""
    return datetime.fromtimestamp(at_ns / SECOND_NS).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
