"""The text by which Kineto is asked for a window."""

from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.errors import UsageError
from profd.daemon.windows.request import DEFAULT_STEPS, Schedule, WindowRequest, parse_schedule


def settings(request: WindowRequest) -> dict[str, str]:
    lines = request.configuration(Path("/tmp/w/trace.json")).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_steps_begin_at_the_next_one() -> None:
    assert settings(WindowRequest(steps=3)) == {
        "ACTIVITIES_LOG_FILE": "/tmp/w/trace.json",
        "PROFILE_START_ITERATION": "0",
        "PROFILE_START_ITERATION_ROUNDUP": "1",
        "ACTIVITIES_ITERATIONS": "3",
        "ACTIVITIES_WARMUP_ITERATIONS": "1",
        "PROFILE_REPORT_INPUT_SHAPES": "true",
        "PROFILE_PROFILE_MEMORY": "false",
        "PROFILE_WITH_STACK": "false",
        "ACTIVITY_TYPES": "cpu_op,user_annotation,gpu_user_annotation,gpu_memcpy,gpu_memset,kernel,"
        "external_correlation,cuda_runtime,cpu_instant_event,python_function,overhead,cuda_driver",
    }


def test_seconds_replace_steps_and_what_torch_2_0_does_not_know_comes_last() -> None:
    assert WindowRequest().configuration(Path("/tmp/w/trace.json")).endswith(",cuda_driver\n")
    asked = settings(WindowRequest(seconds=0.25))
    assert (asked["ACTIVITIES_DURATION_MSECS"], asked["ACTIVITIES_WARMUP_PERIOD_SECS"]) == (
        "250",
        "1",
    )
    assert "ACTIVITIES_ITERATIONS" not in asked


def test_each_switch_is_passed_on() -> None:
    asked = settings(WindowRequest(shapes=False, memory=True, stacks=True))
    names = "REPORT_INPUT_SHAPES", "PROFILE_MEMORY", "WITH_STACK"
    assert [asked[f"PROFILE_{name}"] for name in names] == ["false", "true", "true"]


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
