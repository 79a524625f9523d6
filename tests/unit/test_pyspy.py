"""Recordings of a made-up py-spy: what becomes of its words, its file, its process and its descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from traces import Told, stack, write_trace

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, AnchoredClock
from profd.daemon.collect.stacks import pyspy
from profd.daemon.collect.stacks.pyspy import Recording, RecordingFailed, find_py_spy, last_timestamp_us
from profd.daemon.errors import MissingTool

TRACE = write_trace(Told([(100, stack("a"))], 250_000))
SPEAK = """
import os, signal, sys
def say(text): os.write(2, (text + "\\n").encode())
def give(data): open("/proc/self/fd/3", "wb").write(data)
inherited = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
def until_interrupted(): signal.sigwait({signal.SIGINT})
def samples(): say("py-spy> Sampling process 100 times a second for 1 seconds. Press Control-C to exit.")
def totals(count=25, errors=2): say(f"py-spy> Wrote chrome trace. Samples: {count} Errors: {errors}")
"""
GOOD = f"samples(); until_interrupted(); give({TRACE!r}); totals()"


class PySpies:
    """Writes programs that stand for py-spy, and starts recordings with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def write(self, program: str) -> str:
        return self._write(f"#!{sys.executable} -SE\n{SPEAK}\n{program}\n")

    def write_shell(self, program: str) -> str:
        return self._write(f"#!/bin/sh\n{program}\n")

    def _write(self, text: str) -> str:
        self._made += 1
        path = self._folder / f"py-spy-{self._made}"
        path.write_text(text)
        path.chmod(0o700)
        return str(path)

    def record(self, program: str, length_s: float = 1.0) -> Recording:
        return Recording(self.write(program), 4242, 100, length_s, AnchoredClock())


@pytest.fixture
def spies(tmp_path: Path) -> Iterator[PySpies]:
    before = descriptors()
    yield PySpies(tmp_path)
    assert descriptors() == before, "descriptors were left open"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "_KILL_AFTER_S", 0.05)


def descriptors() -> set[str]:
    """Return what the open descriptors lead to, without those of the event loop."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115  of a pipe or a memory file
            if target.startswith(("pipe:", "/memfd:")):
                found.add(target)
    return found


async def test_a_recording_gives_what_py_spy_wrote_and_said(spies: PySpies) -> None:
    recording = spies.record(GOOD)
    assert await recording.sampling
    recording.stop()
    raw = await recording.collect()
    assert (raw.data, raw.samples, raw.errors) == (TRACE, 25, 2)
    assert raw.cpu_ns == recording.cpu_ns > MILLISECOND_NS


async def test_py_spy_is_asked_not_to_stop_the_target_and_to_end_by_itself(spies: PySpies) -> None:
    program = "samples(); give(' '.join(sys.argv[1:]).encode()); totals()"
    words = (await spies.record(program, length_s=1.2).collect()).data.decode().split()
    assert words[:4] == ["record", "--nonblocking", "--idle", "--threads"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert (options["--rate"], options["--duration"], options["--pid"]) == ("100", "7", "4242")


async def test_py_spy_takes_no_backtraces_of_itself_and_has_our_environment(
    spies: PySpies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    monkeypatch.setenv("PROFD_TOLD", "here")
    program = 'give((os.environ["RUST_LIB_BACKTRACE"] + os.environ["PROFD_TOLD"]).encode()); samples(); totals()'
    raw = await spies.record(program).collect()
    assert raw.data == b"0here"


async def test_py_spy_is_out_of_reach_of_the_terminal_and_hears_its_signals(spies: PySpies) -> None:
    program = (
        "ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler and not inherited\n"
        "samples(); give(repr((os.getpgrp() == os.getpid(), ours, os.read(0, 1))).encode()); totals()"
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        raw = await spies.record(program).collect()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert raw.data.decode() == "(True, True, b'')"


async def test_time_zero_lies_between_the_start_and_the_first_word(spies: PySpies) -> None:
    clock = AnchoredClock()
    before_ns = clock.now_ns()
    recording = spies.record(GOOD)
    await recording.sampling
    sampling_ns = clock.now_ns()
    recording.stop()
    raw = await recording.collect()
    assert before_ns <= raw.zero_ns - raw.clock_error_ns + MILLISECOND_NS
    assert raw.zero_ns + raw.clock_error_ns <= sampling_ns + MILLISECOND_NS
    assert raw.clock_error_ns <= (sampling_ns - before_ns) // 2 + MILLISECOND_NS


async def test_the_last_event_lies_before_the_end(spies: PySpies) -> None:
    clock = AnchoredClock()
    brief = write_trace(Told([(100, stack("a"))], 5_000))
    before_ns = clock.now_ns()
    raw = await spies.record(f"give({brief!r}); samples(); totals()").collect()
    assert raw.zero_ns + raw.clock_error_ns <= max(clock.now_ns() - 5 * MILLISECOND_NS, before_ns + MILLISECOND_NS)


async def test_a_bracket_is_never_inside_out(spies: PySpies) -> None:
    late = write_trace(Told([(100, stack("a"))], 3600 * 1_000_000))
    raw = await spies.record(f"samples(); give({late!r}); totals()").collect()
    assert raw.clock_error_ns == 0
    assert abs(raw.zero_ns - AnchoredClock().now_ns()) < 60 * SECOND_NS


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Error: Failed to find python version from target process", "Failed to find python version"),
        (
            "Error: Failed to get process\\nReason: no\\n\\nBacktrace:\\n   0: py_spy::run\\n   1: No such file",
            "Failed to get process — No such file",
        ),
        ("Permission Denied: Try running again", "Permission Denied: Try running again"),
        ("", "py-spy ended without a word"),
    ],
)
async def test_the_reason_of_a_failure_is_one_line(spies: PySpies, said: str, reason: str) -> None:
    recording = spies.record(f"say('{said}'); sys.exit(1)")
    assert not await recording.sampling
    with pytest.raises(RecordingFailed) as failure:
        await recording.collect()
    assert str(failure.value).startswith(reason)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "program",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "samples(); os.kill(os.getpid(), signal.SIGSEGV)",
        "samples(); give(b'half a tra')",
        "samples(); totals()",
        "os.write(2, bytes(range(256)) * 1000)",
    ],
)
async def test_what_did_not_end_in_order_gives_no_recording(spies: PySpies, program: str) -> None:
    with pytest.raises(RecordingFailed):
        await spies.record(program).collect()


async def test_garbage_in_the_file_is_handed_on(spies: PySpies) -> None:
    raw = await spies.record("samples(); give(b'\\x00garbage' * 1000); totals()").collect()
    assert raw.data.startswith(b"\x00garbage")


@pytest.mark.usefixtures("impatient")
async def test_one_that_does_not_answer_is_killed(spies: PySpies) -> None:
    recording = spies.record("signal.signal(signal.SIGINT, signal.SIG_IGN); samples()\nwhile True: signal.pause()")
    await recording.sampling
    recording.stop()
    with pytest.raises(RecordingFailed, match="killed"):
        await recording.collect()
    assert recording.ended.done()


@pytest.mark.usefixtures("impatient")
async def test_one_that_falls_silent_is_killed_too(spies: PySpies) -> None:
    recording = spies.record("samples(); os.close(1); os.close(2)\nwhile True: signal.pause()")
    with pytest.raises(RecordingFailed, match="killed"):
        await recording.collect()


async def test_an_abandoned_recording_is_killed_and_reaped(spies: PySpies) -> None:
    recording = spies.record(GOOD)
    await recording.sampling
    recording.abandon()
    recording.abandon()
    await recording.ended
    with pytest.raises(RecordingFailed):
        await recording.collect()
    assert not Path(f"/proc/{recording._pid}").exists()


async def test_abandoning_what_was_collected_changes_nothing(spies: PySpies) -> None:
    recording = spies.record(GOOD)
    await recording.sampling
    recording.stop()
    await recording.collect()
    recording.abandon()
    recording.stop()


async def test_a_collection_that_is_broken_off_leaves_nothing_open(spies: PySpies) -> None:
    recording = spies.record(GOOD)
    await recording.sampling
    collecting = asyncio.ensure_future(recording.collect())
    await asyncio.sleep(0)
    collecting.cancel()
    await asyncio.wait({collecting})
    recording.abandon()
    await recording.ended


async def test_a_py_spy_that_is_not_there_leaves_nothing_open(spies: PySpies) -> None:
    for executable in ("/nowhere/py-spy", "/dev/null"):
        with pytest.raises(RecordingFailed, match="cannot be started"):
            Recording(executable, 4242, 100, 1.0, AnchoredClock())


@pytest.mark.parametrize("broken", ["memfd_create", "pipe", "posix_spawn"])
async def test_running_out_of_descriptors_is_a_failure_like_others(
    spies: PySpies, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def run_out(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, broken, run_out)
    with pytest.raises(RecordingFailed, match="Too many open files"):
        spies.record(GOOD)


async def test_where_children_are_reaped_by_the_kernel_a_recording_still_ends(spies: PySpies) -> None:
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        raw = await spies.record(f"samples(); give({TRACE!r}); totals()").collect()
    finally:
        signal.signal(signal.SIGCHLD, previous)
    assert (raw.samples, raw.cpu_ns) == (25, 0)


async def test_a_hundred_recordings_of_every_fate_leak_nothing(spies: PySpies) -> None:
    good = "trap '' INT; echo Sampling process >&2; echo x >/proc/self/fd/3; echo Samples: 1 Errors: 0 >&2"
    programs = [spies.write_shell(program) for program in (good, "exit 1", "echo Sampling process >&2; read x")]
    ended = 0
    for number in range(100):
        with contextlib.suppress(RecordingFailed):
            recording = Recording([*programs, "/nowhere/py-spy"][number % 4], 4242, 100, 1.0, AnchoredClock())
            await recording.sampling
            if number % 3 == 0:
                recording.abandon()
            recording.stop()
            await recording.collect()
            ended += 1
    assert ended > 10


def test_last_timestamp_is_found_without_decoding() -> None:
    assert last_timestamp_us(TRACE) == 250_000
    assert last_timestamp_us(b"[]") == 0
    assert last_timestamp_us(b"") == 0
    assert last_timestamp_us(TRACE[:-1]) == 0


def test_a_hostile_name_is_no_timestamp() -> None:
    hostile = write_trace(Told([(100, stack('","ts":7}]'))], 250_000))
    assert last_timestamp_us(hostile) == 250_000


def test_py_spy_is_found_beside_python_or_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(find_py_spy()).name == "py-spy"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingTool):
        find_py_spy()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "py-spy").touch(mode=0o700)
    assert find_py_spy() == str(tmp_path / "bin" / "py-spy")
