"""The text by which Kineto is asked for a window."""

from __future__ import annotations

from pathlib import Path

from profd.daemon.windows.request import WindowRequest


def settings(request: WindowRequest) -> dict[str, str]:
    lines = request.configuration(Path("/tmp/w/trace.json")).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_steps_begin_at_the_next_one() -> None:
    assert settings(WindowRequest(steps=3)) == {
        "ACTIVITIES_LOG_FILE": "/tmp/w/trace.json",
        "PROFILE_START_ITERATION": "0",
        "PROFILE_START_ITERATION_ROUNDUP": "1",
        "ACTIVITIES_ITERATIONS": "3",
        "ACTIVITIES_WARMUP_ITERATIONS": "0",
        "PROFILE_REPORT_INPUT_SHAPES": "true",
        "PROFILE_PROFILE_MEMORY": "false",
        "PROFILE_WITH_STACK": "false",
        "PROFILE_WITH_FLOPS": "true",
    }


def test_seconds_replace_steps() -> None:
    asked = settings(WindowRequest(seconds=0.25))
    assert (asked["ACTIVITIES_DURATION_MSECS"], asked["ACTIVITIES_WARMUP_PERIOD_SECS"]) == ("250", "0")
    assert "ACTIVITIES_ITERATIONS" not in asked


def test_each_switch_is_passed_on() -> None:
    asked = settings(WindowRequest(shapes=False, flops=False, memory=True, stacks=True))
    assert [asked[f"PROFILE_{name}"] for name in ("REPORT_INPUT_SHAPES", "PROFILE_MEMORY", "WITH_STACK")] == [
        "false",
        "true",
        "true",
    ]
    # Operations are told by shapes.
    assert settings(WindowRequest(shapes=False, flops=True))["PROFILE_REPORT_INPUT_SHAPES"] == "true"
