"""What profd relies on in the py-spy executable: held by the real one, and by the one that stands
in for it in tests.

Structure and order alone: no test says how many samples there are, or how long anything takes.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.plainuser import as_plain_user
from support.present import there
from support.pyspy.standin import StandIn
from support.pyspyprocesses import ENVIRONMENT, HEAD, LOGGING, REAL, Begun, Ended, PySpy, run_calm
from support.sessions import give_line
from support.waiting import until

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.stacks import pyspy
from profd.daemon.stacks.dump import take_dump
from profd.daemon.stacks.pyspy import find_py_spy
from profd.daemon.stacks.recording import Recording

TRACE = ("--format", "chrometrace", "--output", "/dev/null")
RECORD, DUMP = (*HEAD, *TRACE), ("dump", "--nonblocking", "--json")
SAMPLING = (
    r"py-spy> Sampling process 100 times a second( for 1 seconds)?\. Press Control-C to exit\."
)
TOTALS = re.compile(r"py-spy> Wrote (.+) to '(.+)'\. Samples: (\d+) Errors: (\d+)")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    with run_calm(tmp_path_factory.mktemp("calm")) as process:
        yield process


@pytest.fixture
def brief(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a calm program that a test may end."""
    with run_calm(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
def taken(
    calm: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[bytes, bytes]:
    """Return a trace and a dump of the calm program by the real py-spy: what the stand-in plays."""
    file = tmp_path_factory.mktemp("taken") / "trace.json"
    assert PySpy(REAL).begin(calm.pid, file, "--duration", "1").end().code == 0
    dump = PySpy(REAL).run(*DUMP, "--pid", str(calm.pid))
    return file.read_bytes(), dump.out.encode()


@pytest.fixture(scope="module", params=["real", "stand-in"])
def py_spy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PySpy:
    if request.param == "real":
        return PySpy(REAL)
    standin = StandIn(tmp_path_factory.mktemp("stand-in"))
    trace, dump = request.getfixturevalue("taken")
    standin.plays(trace, dump=dump)
    standin.insists_on_python()
    return PySpy(standin.path)


@pytest.fixture(scope="module")
def recorded(
    py_spy: PySpy, calm: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ended, Path]:
    """Record a second."""
    file = tmp_path_factory.mktemp("recorded") / "trace.json"
    return py_spy.run(
        *HEAD, *TRACE[:2], "--duration", "1", "--output", file, "--pid", str(calm.pid)
    ), file


def test_version_is_printed(py_spy: PySpy) -> None:
    done = py_spy.run("--version")
    assert done.code == 0
    assert re.fullmatch(r"py-spy \d+\.\d+\.\d+\n", done.out)


def test_recording_says_that_it_samples_and_then_its_totals(recorded: tuple[Ended, Path]) -> None:
    done, file = recorded
    assert (done.code, done.err) == (0, "")
    first, empty, totals, hint = done.out.splitlines()
    assert re.fullmatch(SAMPLING, first)
    assert empty == ""
    assert hint.startswith("py-spy> ")
    found = there(TOTALS.fullmatch(totals))
    assert found[1] == "chrome trace"
    assert found[2] == str(file)
    # Of the samples that the rate and the duration make, py-spy keeps all but the last one: of two
    # threads here.
    assert 0 < int(found[3]) <= 2 * (100 - 1)
    assert int(found[4]) == 0


def test_trace_has_the_events_that_are_decoded(
    recorded: tuple[Ended, Path], calm: subprocess.Popen[str]
) -> None:
    data = recorded[1].read_bytes()
    events = json.loads(data)
    assert data.count(pyspy.BETWEEN) == len(events) - 1
    for event in events:
        assert set(event) == {"args", "cat", "name", "ph", "pid", "tid", "ts"}
        assert set(event["args"]) == {"filename", "line"}
        assert (event["cat"], event["pid"]) == ("py-spy", calm.pid)
        assert event["ph"] in ("B", "E")
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert times[0] > 0
    roots = {event["name"] for event in events if not event["args"]["filename"]}
    assert f"thread ({calm.pid}): MainThread" in roots

    traces = {trace.name: trace for trace in pyspy.decode(data)}
    assert set(traces) == {"MainThread", "helper"}
    main = traces["MainThread"]
    assert main.os_tid == calm.pid
    assert [frame.function for frame in main.changes[0].frames] == ["<module>", "main", "stand"]
    assert main.changes[0].frames[-1].line == 5
    assert main.changes[0].frames[-1].file.endswith("/calm.py")
    assert main.changes[-1].frames == ()


@pytest.mark.parametrize("duration", [(), ("--duration", "60")])
def test_interrupt_ends_a_recording_and_the_file_is_written(
    py_spy: PySpy, calm: subprocess.Popen[str], tmp_path: Path, duration: tuple[str, ...]
) -> None:
    begun_s = time.monotonic()
    begun = py_spy.begin(calm.pid, tmp_path / "trace", *duration)
    assert re.fullmatch(SAMPLING.replace("1 seconds", "60 seconds"), begun.first_line)
    assert (" for " in begun.first_line) == bool(duration)
    assert not (tmp_path / "trace").exists()
    assert processes.status(calm.pid)["TracerPid"] == "0"
    done = begun.end(signal.SIGINT)
    assert (done.code, done.err) == (0, "")
    lines = [line for line in done.out.splitlines() if line]
    assert lines[0] == "py-spy> Stopped sampling because Control-C pressed"
    assert TOTALS.fullmatch(lines[1])
    events = json.loads((tmp_path / "trace").read_bytes())
    assert all(0 < event["ts"] < (time.monotonic() - begun_s) * 1e6 for event in events)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_recording_leaves_no_file(
    py_spy: PySpy, calm: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    begun = py_spy.begin(calm.pid, tmp_path / "trace")
    done = begun.end(number)
    assert done.code == -number
    assert "Wrote" not in done.out
    assert not (tmp_path / "trace").exists()


def test_end_of_the_process_ends_a_recording(
    py_spy: PySpy, brief: subprocess.Popen[str], tmp_path: Path
) -> None:
    begun = py_spy.begin(brief.pid, tmp_path / "trace")
    brief.kill()  # and nobody waits for it yet: a zombie has ended, too
    done = begun.end()
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line]
    assert lines[0] == "py-spy> Stopped sampling because process exited"
    assert TOTALS.fullmatch(lines[1])
    assert (tmp_path / "trace").exists()


def test_reads_that_fail_are_counted_and_where_that_is_asked_for_logged_with_their_time(
    py_spy: PySpy, brief: subprocess.Popen[str], tmp_path: Path
) -> None:
    before_ns = time.time_ns()
    silent = py_spy.begin(brief.pid, tmp_path / "silent", merged=True)
    logging = py_spy.begin(brief.pid, tmp_path / "logging", merged=True, environment=LOGGING)
    become_another_program(brief)
    said = read_to_failure(logging, brief.pid)
    for recording in (silent, logging):  # py-spy goes on: the process is there
        assert recording.process.poll() is None
    unasked, done = silent.end(signal.SIGINT), logging.end(signal.SIGINT)
    after_ns = time.time_ns()
    assert (unasked.code, done.code) == (0, 0)
    assert TOTALS.search(unasked.out)
    assert "WARN" not in unasked.out
    failed = pyspy.read_log((said + done.out).encode(), 0)
    assert all(before_ns <= one.at_ns <= after_ns for one in failed)
    found = there(TOTALS.search(done.out))
    assert int(found[4]) == len(failed) > 0
    assert "WARN" not in done.out[found.start() :]


def read_to_failure(recording: Begun, pid: int) -> str:
    """Return what a recording logs up to its first failed read: as the program goes, names of lines
    may fail before.
    """
    said = ""
    while f"WARN  py_spy] Failed to get stack trace from {pid}: " not in said:
        line = there(recording.process.stdout).readline()
        assert line, said
        said += line
    return said


def become_another_program(process: subprocess.Popen[str]) -> None:
    give_line(process)
    until(
        lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n",
        "its becoming another program",
    )


GONE = (
    "Error: Failed to get process executable name. Check that the process is running.\n\n"
    "Caused by:\n    0: No such file or directory (os error 2)\n"
)
NO_PYTHON = "Error: Failed to find python version from target process\n"


@pytest.mark.parametrize("words", [RECORD, DUMP])
def test_process_that_is_gone_is_refused(py_spy: PySpy, words: tuple[str, ...]) -> None:
    done = py_spy.run(*words, "--pid", "4194305")
    assert done.err.startswith(GONE)
    assert (done.code, done.out) == (1, "")


@pytest.mark.parametrize("words", [RECORD, DUMP])
def test_process_that_is_no_python_is_refused(py_spy: PySpy, words: tuple[str, ...]) -> None:
    with subprocess.Popen(["sleep", "3600"]) as process:
        until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "its start")
        done = py_spy.run(*words, "--pid", str(process.pid))
        process.kill()
    assert done == Ended(1, "", NO_PYTHON)


@pytest.mark.requires("root")  # which can act as another user
@pytest.mark.parametrize("words", [RECORD, DUMP])
def test_process_of_another_user_is_refused(
    py_spy: PySpy, calm: subprocess.Popen[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    command = [*as_plain_user(), str(py_spy.path), *words, "--pid", str(calm.pid)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Permission Denied: Try running again with elevated permissions")


def test_file_that_cannot_be_written_is_said_after_the_sampling(
    py_spy: PySpy, calm: subprocess.Popen[str]
) -> None:
    begun = py_spy.begin(calm.pid, Path("/nowhere/trace"))
    done = begun.end(signal.SIGINT)
    assert (done.code, done.err) == (1, "Error: No such file or directory (os error 2)\n")
    assert "Wrote" not in done.out


def test_dump_has_the_threads_with_their_frames(py_spy: PySpy, calm: subprocess.Popen[str]) -> None:
    done = py_spy.run(*DUMP, "--pid", str(calm.pid))
    assert (done.code, done.err) == (0, "")
    threads = json.loads(done.out)
    main = next(thread for thread in threads if thread["thread_name"] == "MainThread")
    assert len(threads) == 2
    for thread in threads:
        assert {
            "pid",
            "thread_id",
            "thread_name",
            "os_thread_id",
            "active",
            "owns_gil",
            "frames",
        } <= set(thread)
    assert (main["pid"], main["os_thread_id"]) == (calm.pid, calm.pid)
    assert [frame["name"] for frame in main["frames"]] == ["stand", "main", "<module>"]
    frame = main["frames"][0]
    assert {"name", "filename", "module", "short_filename", "line", "locals"} <= set(frame)
    assert (frame["line"], frame["short_filename"]) == (5, "calm.py")
    assert frame["locals"] is None  # no value of a variable is asked for


async def test_profd_records_and_reads_with_it(
    py_spy: PySpy, calm: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFD_PY_SPY", str(py_spy.path))
    clock = Clock()
    begun_ns = clock.now_ns()
    recording = Recording(
        find_py_spy(), calm.pid, 100, -4.0, clock
    )  # a second, with the five to spare
    assert await recording.sampling
    assert await recording.ended
    raw = await recording.collect()
    assert {trace.name for trace in pyspy.decode(raw.data)} == {"MainThread", "helper"}
    assert (raw.samples > 0, raw.errors, raw.failed) == (True, 0, ())
    assert begun_ns <= raw.zero_ns + raw.clock_error_ns <= clock.now_ns()


def test_profd_dumps_with_it(
    py_spy: PySpy, calm: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFD_PY_SPY", str(py_spy.path))
    main = next(thread for thread in take_dump(calm.pid) if thread.os_thread_id == calm.pid)
    assert [frame.name for frame in main.frames] == ["stand", "main", "<module>"]
