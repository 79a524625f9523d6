"""When windows are taken by themselves, as it is written on the command line."""

from __future__ import annotations

import pytest

from profd.daemon.errors import UsageError
from profd.daemon.windows.request import DEFAULT_STEPS, Schedule, WindowRequest, parse_schedule


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every=10m,steps=7", Schedule(600.0, WindowRequest(steps=7))),
        ("every=30s,seconds=0.5", Schedule(30.0, WindowRequest(seconds=0.5))),
        ("steps=2,every=1.5h", Schedule(5400.0, WindowRequest(steps=2))),
        ("every=10s", Schedule(10.0, WindowRequest(steps=DEFAULT_STEPS))),
        ("finding", Schedule(None, WindowRequest(), on_finding=True)),
        ("steps=7,finding", Schedule(None, WindowRequest(steps=7), on_finding=True)),
        ("every=1m,finding,seconds=2", Schedule(60.0, WindowRequest(seconds=2.0), on_finding=True)),
    ],
)
def test_schedule_is_read(text: str, schedule: Schedule) -> None:
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("python", "python is no schedule of windows: .*put -- before a command"),
        ("", "no schedule"),
        ("steps=5", "no schedule"),
        ("finding,finding", "no schedule"),
        ("finding=input-bound", "no schedule"),
        ("finding,steps=0", "no window has that length"),
        ("every=10m,every=5m", "no schedule"),
        ("every=10m,stpes=5", "no schedule"),
        ("every=10", "no time of 10 s or more"),
        ("every=9s", "no time of 10 s or more"),
        ("every=-1m", "no time"),
        ("every=1m,steps=0", "no window has that length"),
        ("every=1m,steps=five", "no window has that length"),
        ("every=1m,seconds=601", "no window has that length"),
        ("every=1m,steps=5,seconds=1", "not both"),
    ],
)
def test_what_is_no_schedule_is_refused_with_an_example(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_schedule(text)
