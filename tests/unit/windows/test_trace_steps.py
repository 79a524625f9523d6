"""Where steps end in a trace, and for how long devices worked."""

from __future__ import annotations

from support.kinetotraces import TraceScript

from profd.daemon.store.records import DeviceTime
from profd.daemon.windows.reduction import add_up
from profd.daemon.windows.trace import find_steps

ADAM, SGD = "Optimizer.step#Adam.step", "Optimizer.step#SGD.step"


def steps_of(script: TraceScript, begun_ns: int | None = None) -> list[tuple[int, ...]]:
    return [(step.start_ns, step.end_ns) for step in find_steps(script.spans(), begun_ns)]


def test_marks_of_the_profiler_are_steps() -> None:
    script = TraceScript().op("ProfilerStep#4", 10, 5, cat="user_annotation").op("ProfilerStep#3", 0, 10)
    script.op(ADAM, 8, 1).op(ADAM, 12, 1)
    assert steps_of(script) == [(0, 10_000), (10_000, 15_000)]


def test_step_lasts_from_update_to_update() -> None:
    script = TraceScript().op(ADAM, 8, 1).op(ADAM, 20, 2).op(ADAM, 30, 3)
    assert steps_of(script) == [(9_000, 22_000), (22_000, 33_000)]
    assert steps_of(script, begun_ns=1_000)[0] == (1_000, 9_000)


def test_of_two_optimizers_the_busier_one_counts() -> None:
    script = TraceScript().op(SGD, 8, 1).op(ADAM, 10, 2).op(SGD, 20, 1).op(SGD, 30, 1)
    assert steps_of(script) == [(9_000, 21_000), (21_000, 31_000)]


def test_what_is_not_marked_has_no_steps() -> None:
    assert steps_of(TraceScript().op("aten::add", 0, 1), begun_ns=0) == []


def device_time(script: TraceScript, start_us: int = 0, end_us: int = 100) -> DeviceTime | None:
    return add_up(script.spans().device, start_us * 1000, end_us * 1000)


def test_busy_is_counted_once_and_overlap_where_two_ran() -> None:
    script = TraceScript().op("a", 10, 20, cat="kernel", tid=7).op("b", 20, 20, cat="gpu_memcpy", tid=8)
    assert device_time(script) == DeviceTime(busy_ns=30_000, idle_ns=70_000, overlap_ns=10_000)


def test_three_at_once_overlap_no_more_than_two() -> None:
    script = TraceScript()
    for stream in (7, 8, 9):
        script.op("a", 10, 20, cat="kernel", tid=stream)
    assert device_time(script) == DeviceTime(20_000, 80_000, 20_000)


def test_ranges_and_waits_are_no_work() -> None:
    script = TraceScript().op("a", 10, 20, cat="kernel").op("ProfilerStep#1", 0, 90, cat="gpu_user_annotation")
    script.op("Stream Wait", 0, 90, cat="cuda_sync")
    assert device_time(script) == DeviceTime(20_000, 80_000, 0)


def test_work_is_cut_to_the_window() -> None:
    script = TraceScript().op("a", 0, 20, cat="kernel").op("b", 90, 20, cat="kernel").op("c", 200, 5, cat="kernel")
    assert device_time(script, 10, 100) == DeviceTime(20_000, 70_000, 0)


def test_two_devices_are_added_up() -> None:
    script = TraceScript().op("a", 10, 20, cat="kernel").op("b", 10, 20, cat="kernel")
    script.events[-1]["pid"] = 2
    assert device_time(script) == DeviceTime(40_000, 160_000, 0)


def test_window_without_work_of_a_device_has_no_time_of_one() -> None:
    assert device_time(TraceScript().op("aten::add", 0, 1)) is None
