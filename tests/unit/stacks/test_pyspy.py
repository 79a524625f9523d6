"""Recordings of a py-spy that is stood in for: what becomes of its words, its file, its process and
its descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.pyspy.standin import Fault, StandIn
from support.traces import ThreadTrace, stack, write_trace

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.errors import MissingTool
from profd.daemon.scheduling import NICENESS
from profd.daemon.stacks import pyspy
from profd.daemon.stacks import recording as running
from profd.daemon.stacks.recording import Recording

TRACE = write_trace(ThreadTrace([(100, stack("a"))], 250_000))
SAID = b"py-spy> Wrote chrome trace to 'x'. Samples: 25 Errors: 2\n"


@pytest.fixture(autouse=True)
def nothing_left(py_spy: StandIn) -> Iterator[None]:
    """See that no descriptor is left open, and no process unwaited for.

    What other tests left behind does not count.
    """
    before = descriptors(), children()
    yield
    assert not descriptors() - before[0], "descriptors were left open"
    assert not children() - before[1], "processes were not waited for"


def begin(length_s: float = 1.0) -> Recording:
    return Recording(pyspy.find_py_spy(), os.getpid(), 100, length_s, Clock())


async def take() -> pyspy.RawRecording:
    """Record until it samples, and return what came of it."""
    recording = begin()
    await recording.sampling
    recording.stop()
    return await recording.collect()


def output(
    spawned_s: float, sampling_s: float, ended_s: float, trace: bytes = TRACE
) -> pyspy.PySpyOutput:
    """Return what a py-spy wrote that was spawned, sampled and ended at these times."""
    spawned_ns, sampling_ns, ended_ns = (
        int(at_s * SECOND_NS) for at_s in (spawned_s, sampling_s, ended_s)
    )
    return pyspy.PySpyOutput(
        trace, SAID, spawned_ns, sampling_ns, ended_ns, cpu_ns=0, wall_jump_ns=0
    )


def children() -> set[int]:
    """Return the child processes, with those that have ended and were not waited for."""
    return {child.pid for child in psutil.Process().children()}


def descriptors() -> set[str]:
    """Return what the open descriptors lead to, without those of the event loop."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115  of a pipe or a memory file
            if target.startswith(("pipe:", "/memfd:")):
                found.add(target)
    return found


async def test_py_spy_gives_way_to_the_target(py_spy: StandIn) -> None:
    before = children()
    recording = begin()
    assert await recording.sampling
    (child,) = children() - before
    assert os.getpriority(os.PRIO_PROCESS, child) == max(NICENESS, os.nice(0))
    recording.stop()
    await recording.collect()


async def test_a_recording_gives_what_py_spy_wrote_and_said_with_times_as_things_happened(
    py_spy: StandIn,
) -> None:
    clock = Clock()
    before_ns = clock.now_ns()
    recording = Recording(pyspy.find_py_spy(), os.getpid(), 100, 1.0, clock)
    assert await recording.sampling
    sampling_ns = clock.now_ns()
    recording.stop()
    raw = await recording.collect()
    assert before_ns <= raw.zero_ns - raw.clock_error_ns + 1
    assert raw.zero_ns + raw.clock_error_ns <= sampling_ns
    (thread,) = pyspy.decode(raw.data)
    assert [frame.function for frame in thread.changes[0].frames] == ["<module>", "train"]
    assert f"Samples: {raw.samples} Errors: {raw.errors}" in py_spy.wait("wrote").says
    assert raw.cpu_ns == recording.cpu_ns > MILLISECOND_NS


async def test_what_sleeps_between_samples_is_the_thread_that_py_spy_starts_first(
    py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = begin()
    await recording.sampling
    child = py_spy.wait("start").pid
    folder, switches = f"{processes.PROC}/{child}/task", {0: 350, 1: 222, 2: 3}
    real, read = os.listdir, processes.read
    names = [str(child + number) for number in switches]
    counts = {f"{folder}/{child + number}/status": count for number, count in switches.items()}
    monkeypatch.setattr(os, "listdir", lambda path: names if str(path) == folder else real(path))
    monkeypatch.setattr(
        processes,
        "read",
        lambda path, *most: (
            b"Name:\tpy-spy\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t9\n"
            % counts[path]
            if path in counts
            else read(path, *most)
        ),
    )
    recording.look()
    recording.stop()
    raw = await recording.collect()
    # The main thread, which wakes for each sample, also for those that were made up for at once,
    # says nothing.
    assert [pulse.sleeps for pulse in raw.pulses] == [0, 222, 222]


async def test_a_recording_has_a_sample_once_the_thread_that_waits_for_samples_has_woken(
    py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = begin()
    await recording.sampling
    # It is on its way to sleep, sleeps, is awake with a sample, and sleeps again.
    seen = iter([("R", 16), ("S", 17), ("S", 17), ("R", 17), ("S", 18)])

    def status(pid: int) -> dict[str, str]:
        state, sleeps = next(seen)
        return {"State": f"{state} (some)", "voluntary_ctxt_switches": str(sleeps)}

    with monkeypatch.context() as patched:
        patched.setattr(processes, "status", status)
        assert [recording.has_sample() for _ in range(5)] == [False, False, False, False, True]
    recording.stop()
    await recording.collect()


def test_a_read_costs_with_each_thread_and_more_where_there_are_many() -> None:
    # As measured of py-spy 0.4.3 on threads that wait: 13 ms of CPU for 100, .11 s for 500, .65 s
    # for 2,000.
    assert [round(pyspy.read_cost_s(threads), 3) for threads in (1, 100, 500, 2_000)] == [
        0.001,
        0.011,
        0.075,
        0.6,
    ]
    assert pyspy.shortest_cost_s(2_000) == pytest.approx(0.1 + 4 * pyspy.read_cost_s(2_000))


async def test_py_spy_is_asked_not_to_stop_the_target_and_to_end_by_itself(
    py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    monkeypatch.setenv("PROFD_TEST", "here")
    recording = begin(length_s=1.2)
    await recording.sampling
    recording.stop()
    await recording.collect()
    recording.abandon()  # which changes nothing any more
    recording.stop()
    started = py_spy.wait("start")
    assert started.arguments[:4] == ("record", "--nonblocking", "--idle", "--threads")
    options = dict(zip(started.arguments[4::2], started.arguments[5::2], strict=True))
    assert (options["--rate"], options["--duration"], options["--pid"]) == (
        "100",
        "7",
        str(os.getpid()),
    )
    assert options["--format"] == "chrometrace"
    # It takes no backtraces of itself, and has our environment.
    assert (started.environment["RUST_LIB_BACKTRACE"], started.environment["PROFD_TEST"]) == (
        "0",
        "here",
    )


async def test_py_spy_is_out_of_reach_of_the_terminal_and_hears_its_signals(
    py_spy: StandIn,
) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        recording = begin()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    await recording.sampling
    begun = py_spy.wait("sampling")
    assert os.getpgid(begun.pid) == begun.pid
    assert os.readlink(f"/proc/{begun.pid}/fd/0") == os.devnull  # noqa: PTH115
    assert os.readlink(f"/proc/{begun.pid}/fd/2").startswith("/memfd:")  # noqa: PTH115  no failed read wakes us
    assert py_spy.wait("start").blocked == ()
    recording.abandon()
    recording.abandon()
    await recording.ended
    with pytest.raises(pyspy.RecordingFailed):
        await recording.collect()
    assert not Path(f"/proc/{begun.pid}").exists()  # it was killed, and waited for


async def test_reads_that_fail_are_known_by_their_time(py_spy: StandIn) -> None:
    py_spy.fails_to_read(every=2)
    clock = Clock()
    before_ns = clock.now_ns()
    recording = begin(length_s=-4.0)  # a second, with the five to spare
    await recording.ended
    raw = await recording.collect()
    assert len(raw.failed) == raw.errors > 0
    assert all(before_ns <= one.at_ns <= clock.now_ns() for one in raw.failed)


def test_time_zero_lies_between_the_start_and_the_first_word_and_the_last_event_before_the_end() -> (
    None
):
    late = write_trace(ThreadTrace([(100, stack("a"))], 3600 * 1_000_000))
    for ended_s, trace, latest_ns in (
        (20.0, TRACE, 10_500_000_000),
        (10.4, TRACE, 10_150_000_000),  # the trace is of a quarter of a second
        (20.0, late, 10_000_000_000),
    ):
        raw = pyspy.read_output(output(10.0, 10.5, ended_s, trace))
        around = raw.zero_ns - raw.clock_error_ns, raw.zero_ns + raw.clock_error_ns
        assert around == (10 * SECOND_NS, latest_ns)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (
            "Error: Failed to find python version from target process",
            "Failed to find python version",
        ),
        (
            "Error: Failed\nReason: no\n\nBacktrace:\n   0: py_spy::run\n   1: No such file",
            "Failed — No such file",
        ),
        (
            "Error: Failed\nCaused by:\n    Permission denied\n\nBacktrace:\n   0: main",
            "Failed — Permission denied",
        ),
        ("Permission Denied: Try running again", "Permission Denied: Try running again"),
        ("", "py-spy ended without a word"),
        ("py-spy> Sampling process 3 times a second for 19 seconds.", "py-spy ended without a"),
    ],
)
async def test_the_reason_of_a_failure_is_one_line(py_spy: StandIn, says: str, reason: str) -> None:
    py_spy.fails(Fault("start", "exit", says))
    recording = begin()
    assert not await recording.sampling
    with pytest.raises(pyspy.RecordingFailed) as failure:
        await recording.collect()
    assert str(failure.value).startswith(reason)
    assert "\n" not in str(failure.value)


async def test_garbage_and_a_large_trace_are_handed_on_whole(py_spy: StandIn) -> None:
    py_spy.fails(Fault(trace="garbage"))
    assert (await take()).data.startswith(b"\x00garbage")
    py_spy.fails(Fault(trace="enormous", size=8 << 20))
    raw = await take()
    assert len(raw.data) > 8 << 20
    assert len(pyspy.decode(raw.data)) == 1


@pytest.mark.parametrize(
    "fault", [Fault("end", "hang"), Fault("sampling", "silence"), Fault(deaf=True)]
)
async def test_one_that_hangs_falls_silent_or_ignores_its_interrupt_is_killed(
    py_spy: StandIn, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(running, "_KILL_AFTER_S", 0.05)
    py_spy.fails(fault)
    recording = begin()
    await recording.sampling
    recording.stop()
    with pytest.raises(pyspy.RecordingFailed, match="killed"):
        await recording.collect()
    assert recording.ended.done()


async def test_a_collection_that_is_broken_off_leaves_nothing_open() -> None:
    recording = begin()
    await recording.sampling
    collecting = asyncio.ensure_future(recording.collect())
    await asyncio.sleep(0)
    collecting.cancel()
    await asyncio.wait({collecting})
    recording.abandon()
    await recording.ended


async def test_a_py_spy_that_is_not_there_leaves_nothing_open() -> None:
    for executable in ("/nowhere/py-spy", "/dev/null"):
        with pytest.raises(pyspy.RecordingFailed, match="cannot be started"):
            Recording(executable, os.getpid(), 100, 1.0, Clock())


@pytest.mark.parametrize("broken", ["memfd_create", "pipe", "posix_spawn"])
async def test_running_out_of_descriptors_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def run_out(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, broken, run_out)
    with pytest.raises(pyspy.RecordingFailed, match="Too many open files"):
        begin()


async def test_py_spy_is_reaped_once_its_threads_have_had_time_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, reap = asyncio.get_running_loop(), os.wait4
    recording = begin()
    asked_s: list[float] = []

    def wait4(pid: int, options: int) -> object:
        asked_s.append(loop.time())
        return reap(pid, options)

    monkeypatch.setattr(os, "wait4", wait4)
    await recording.sampling
    recording.stop()
    ended_s = loop.time()
    raw = await recording.collect()
    assert asked_s[0] >= ended_s + running._REAPED_AFTER_S
    assert raw.cpu_ns > 0


async def test_where_children_are_reaped_by_the_kernel_a_recording_still_ends() -> None:
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        raw = await take()
    finally:
        signal.signal(signal.SIGCHLD, previous)
    assert raw.samples > 0
    assert raw.cpu_ns == 0


async def test_recordings_of_every_fate_leak_nothing(py_spy: StandIn) -> None:
    fates = (
        *(
            Fault(),
            Fault("start", "exit"),
            Fault("start", "exit", "x" * 256_000),
            Fault("start", "signal"),
        ),
        *(
            Fault("sampling", "signal", signal=signal.SIGSEGV),
            Fault("end", "exit"),
            Fault(trace="none"),
        ),
    )
    ended = 0
    for fate, end in itertools.product(fates, ("stop", "abandon")):
        py_spy.fails(fate)
        with contextlib.suppress(pyspy.RecordingFailed):
            recording = begin()
            await recording.sampling
            if end == "abandon":
                recording.abandon()
            recording.stop()
            await recording.collect()
            ended += 1
    assert ended == 1  # what did not end in order gives no recording


def test_last_timestamp_is_found_without_decoding_and_a_hostile_name_is_none() -> None:
    assert [pyspy.last_timestamp_us(data) for data in (TRACE, b"[]", b"", TRACE[:-1])] == [
        250_000,
        0,
        0,
        0,
    ]
    hostile = write_trace(ThreadTrace([(100, stack('","ts":7}]'))], 250_000))
    assert pyspy.last_timestamp_us(hostile) == 250_000


def test_py_spy_is_found_where_it_may_be(
    py_spy: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pyspy.find_py_spy() == os.fspath(py_spy.path)
    monkeypatch.delenv("PROFD_PY_SPY")
    assert Path(pyspy.find_py_spy()).name == "py-spy"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingTool):
        pyspy.find_py_spy()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "py-spy").touch(mode=0o700)
    assert pyspy.find_py_spy() == str(tmp_path / "bin" / "py-spy")


@pytest.mark.parametrize("named", ["/nowhere/py-spy", "/dev", "/etc/passwd", "py-spy"])
def test_named_py_spy_that_is_no_executable_is_said(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("PROFD_PY_SPY", named)
    with pytest.raises(
        MissingTool, match=f"PROFD_PY_SPY is {named}, which is not the absolute path"
    ):
        pyspy.find_py_spy()
