"""What /proc says of real processes: of this one, of short-lived ones, and of what is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from support.interpreters import Standing, standing
from support.present import there
from support.sessions import ready
from support.waiting import until

from profd.daemon import processes
from profd.daemon.processes import read, read_number, read_pairs
from profd.daemon.rights import Rights
from profd.daemon.stacks.dump import take_dump

NO_PID = 2**22 + 1
WAITING = "print('ready', flush=True); input()"
PYTHON = (sys.executable, "-S", "-E", "-c", WAITING)


@pytest.fixture
def child() -> Iterator[Standing]:
    with standing(WAITING, sys.executable, "a b", "caf\udce9") as process:
        yield process


def test_this_process_is_among_all_with_its_stat_owner_threads_and_counters() -> None:
    stat = there(processes.read_stat(os.getpid()))
    assert (stat.pid, stat.ppid, stat.pgrp) == (os.getpid(), os.getppid(), os.getpgrp())
    assert stat.state == "R"
    assert stat.image > 0
    assert stat.cpu_ticks > 0
    assert processes.owner_uid(os.getpid()) == os.geteuid()
    assert os.getpid() in processes.pids()
    assert processes.link(os.getpid(), "cwd") == str(Path.cwd())
    assert processes.status(os.getpid())["Pid"] == str(os.getpid())
    assert "libc" in processes.maps(os.getpid())
    assert 1 << 20 < stat.rss_bytes < 1 << 40


def test_the_threads_of_a_process_are_all_that_it_has() -> None:
    words = [sys.executable, "-c", "import threading; threading.Thread(target=input).start()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        tasks = Path(f"/proc/{child.pid}/task")
        until(lambda: len(list(tasks.iterdir())) == 2, "the second thread")
        assert processes.thread_ids(child.pid) == {
            int(one.name): int(one.name) for one in tasks.iterdir()
        }
        child.kill()


def test_stat_of_a_name_that_looks_like_the_fields_behind_it() -> None:
    before = Path("/proc/self/comm").read_text()
    Path("/proc/self/comm").write_text("a) Z 1 (b")
    try:
        stat = processes.read_stat(os.getpid())
    finally:
        Path("/proc/self/comm").write_text(before)
    assert (there(stat).comm, there(stat).ppid) == ("a) Z 1 (b", os.getppid())


@pytest.mark.parametrize(
    "text", [b"", b"12", b"12 (x", b"12 (x) R 1 2", b"no parenthesis", b"12 (x) " + b"R " * 60]
)
def test_a_malformed_stat_is_none(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "read", lambda _: text)
    assert processes.read_stat(12) is None


@pytest.mark.parametrize(("starts_at", "image"), [("0", 0), ("4096", 7777)])
def test_in_the_midst_of_an_exec_the_image_is_unknown(
    starts_at: str, image: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel moves the stack twice, and says only in the end where the code starts."""
    fields = ["S", *["1"] * 49]
    fields[23], fields[25] = starts_at, "7777"
    monkeypatch.setattr(processes, "read", lambda _: f"1 (true) {' '.join(fields)}".encode())
    assert there(processes.read_stat(1)).image == image


def test_a_zombie_does_not_run_and_keeps_its_status(child: Standing) -> None:
    stat = there(processes.read_stat(child.pid))
    assert processes.is_running(child.pid, stat.start_ticks)
    assert not processes.is_running(child.pid, stat.start_ticks + 1)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    dead = there(processes.read_stat(child.pid))
    assert (dead.state, dead.exit_status, dead.image) == ("Z", 9, 0)
    assert not processes.is_running(child.pid, stat.start_ticks)
    assert processes.command_line(child.pid) == ()
    assert processes.python_version(child.pid) is None


def test_children_of_any_thread() -> None:
    before = set(processes.children(os.getpid()))
    with ThreadPoolExecutor(1) as thread:  # it is there until the end, and the child is its own
        child = thread.submit(subprocess.Popen[bytes], PYTHON, stdin=subprocess.PIPE).result()
        try:
            assert set(processes.children(os.getpid())) - before == {child.pid}
            assert child.pid not in processes.children(os.getpid(), of_all_threads=False)
        finally:
            child.kill()
            child.communicate()


def test_a_child_has_its_threads_words_and_version(child: Standing) -> None:
    assert processes.command_line(child.pid) == (sys.executable, "-c", WAITING, "a b", "caf�")
    assert (
        processes.python_version(child.pid) == f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    assert there(processes.read_stat(child.pid, child.pid)).threads == 1
    assert processes.read_stat(child.pid, os.getpid()) is None


LEAVING = """
import ctypes, threading
def stay():
    print("ready", flush=True)
    input()
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_main_thread_has_ended_runs_on_and_is_seen_through_another_thread() -> None:
    with standing(LEAVING, sys.executable, "--epochs") as process:
        until(lambda: there(processes.read_stat(process.pid)).state == "Z", "the main thread ends")
        assert there(processes.read_stat(process.pid)).is_running
        (thread,) = processes.thread_ids(process.pid).values()
        assert process.pid != thread == processes.shown_as(process.pid)
        assert (
            processes.python_version(process.pid)
            == f"{sys.version_info.major}.{sys.version_info.minor}"
        )
        assert processes.command_line(process.pid)[-1] == "--epochs"
        assert "libc" in processes.maps(process.pid)
        assert there(Rights().credentials(process.pid)).state not in "ZX"
        assert Rights().read_memory(process.pid) == 0
        assert take_dump(process.pid)
    assert processes.shown_as(os.getpid()) == os.getpid()


def test_a_shell_is_no_python_and_only_allowed_variables_are_read() -> None:
    with ready(["sh", "-c", "echo ready; read x"]) as shell:
        assert processes.python_version(shell.pid) is None
    with ready(["env", "-i", "RANK=3", "TOKEN=secret", *PYTHON]) as process:
        assert processes.environment(process.pid, frozenset({"RANK", "WORLD_SIZE"})) == {
            "RANK": "3"
        }


def test_threads_of_a_process_in_a_container_have_two_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for os_tid, own_id in ((700, 1), (701, 9)):
        folder = tmp_path / "700" / "task" / str(os_tid)
        folder.mkdir(parents=True)
        (folder / "status").write_text(
            f"Name:\tpython\nNSpid:\t{os_tid}\t{own_id}\nNSpgid:\t{os_tid}\t{own_id}\n"
        )
    (tmp_path / "700" / "status").write_text("Name:\tpython\nNSpid:\t700\t1\nThreads:\t2\n")
    real_read, real_listdir = processes.read, os.listdir
    monkeypatch.setattr(
        processes, "read", lambda path: real_read(path.replace("/proc", str(tmp_path)))
    )
    monkeypatch.setattr(
        "os.listdir", lambda path: real_listdir(str(path).replace("/proc", str(tmp_path)))
    )
    assert processes.thread_ids(700) == {1: 700, 9: 701}


def test_a_file_is_read_up_to_a_bound_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 300_000)
    assert read(str(tmp_path / "long")) == b"x" * 300_000
    assert read(str(tmp_path / "long"), 100_000) == b"x" * 100_000
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe")) == b""


def test_each_read_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process chooses how long its command line, its variables and the names in its maps are."""
    endless = {"cmdline": b"word\0", "environ": b"A=1\0", "maps": b"x\n"}

    def of_a_giant(path: str, most_bytes: int = processes.MOST_BYTES) -> bytes:
        part = endless[path.rpartition("/")[2]]
        return part * (most_bytes // len(part) + 1)

    monkeypatch.setattr(processes, "read", of_a_giant)
    assert len("".join(processes.command_line(1))) < 1 << 17
    assert processes.environment(1, frozenset({"A"})) == {"A": "1"}
    assert processes.maps(1) == ""  # all of it or nothing: what is cut may lack what is asked for


def test_children_of_many_threads_are_asked_for_their_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    real_read = processes.read

    def noting(path: str) -> bytes | None:
        asked.append(path)
        return real_read(path)

    with ready(["sh", "-c", "echo ready; read x"]) as child:
        monkeypatch.setattr(processes, "read", noting)
        monkeypatch.setattr(processes, "_MANY_THREADS", 0)
        assert child.pid in processes.children(os.getpid())
        assert not any(path.endswith("/children") for path in asked)


def test_what_is_gone_says_nothing() -> None:
    of = (
        processes.read_stat,
        processes.owner_uid,
        processes.python_version,
    )
    assert [read_of(NO_PID) for read_of in of] == [None] * 3
    assert (processes.children(NO_PID), processes.command_line(NO_PID)) == ([], ())
    assert processes.environment(NO_PID, frozenset({"RANK"})) == processes.status(NO_PID) == {}
    assert processes.thread_ids(NO_PID) == {}
    assert processes.link(NO_PID, "exe") == processes.maps(NO_PID) == ""
    assert NO_PID not in processes.pids()


def test_a_link_that_is_no_text_is_shown_all_the_same(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    fd = os.open(path, os.O_CREAT | os.O_RDONLY)
    try:
        assert processes.link(os.getpid(), f"fd/{fd}") == str(tmp_path / "caf\ufffd")
    finally:
        os.close(fd)


class Scores:
    """The OOM scores of this process and of others, whatever rights and scores those have that run
    the tests.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def __setitem__(self, pid: int | str, score: int) -> None:
        (self._proc / str(pid)).mkdir(exist_ok=True)
        (self._proc / str(pid) / "oom_score_adj").write_text(f"{score}\n")

    def __getitem__(self, pid: int | str) -> int:
        return int((self._proc / str(pid) / "oom_score_adj").read_text())


@pytest.fixture
def scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scores:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    return Scores(tmp_path)


@pytest.mark.parametrize(("before", "after"), [(0, 500), (300, 800), (800, 1000), (1000, 1000)])
def test_a_volunteer_comes_before_those_beside_it(scores: Scores, before: int, after: int) -> None:
    scores["self"] = before
    processes.volunteer()
    assert scores["self"] == after


def test_a_spared_process_has_the_score_of_the_other_if_that_exists(scores: Scores) -> None:
    scores[7], scores[8] = 500, -3
    processes.spare(7, 8)
    assert (scores[7], scores[8]) == (-3, -3)
    processes.spare(7, 9)
    processes.spare(9, 7)
    assert scores[7] == -3


def test_the_kernel_takes_the_score_that_a_volunteer_gives_itself() -> None:
    code = (
        "from profd.daemon import processes; processes.volunteer(); "
        "print(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(int(Path("/proc/self/oom_score_adj").read_text()) + 500, 1000)


@pytest.mark.parametrize(("work", "is_one"), [("processes.share_heap()", True), ("pass", False)])
def test_threads_share_one_heap_where_that_is_set(work: str, is_one: bool) -> None:
    code = f"""
import ctypes, threading
from profd.daemon import processes
{work}
meeting = threading.Barrier(4)
def allocate():
    held = bytes(100_000)
    meeting.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.count("<heap nr=") == 1) == is_one


def test_free_memory_between_what_is_held_goes_back_to_the_kernel() -> None:
    code = """
import os
from profd.daemon import processes
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
parts = [bytes(50_000) for _ in range(400)]
del parts[:-1]
before = resident()
processes.trim_heap()
print(before - resident())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000_000


def test_a_list_that_the_kernel_hands_out_in_parts_is_read_whole() -> None:
    found = there(read("/proc/self/smaps"))
    # Memory may be mapped in between: the first and the last map stay.
    whole = Path("/proc/self/smaps").read_bytes()
    assert len(found) > 3 * 4096
    assert found.splitlines()[0] == whole.splitlines()[0]
    assert found.splitlines()[-1][:8] == whole.splitlines()[-1][:8] == b"VmFlags:"
    assert found.count(b"VmFlags:") == pytest.approx(whole.count(b"VmFlags:"), abs=3)


def test_what_is_not_there_is_none_and_names_stand_at_the_beginning_of_lines(
    tmp_path: Path,
) -> None:
    assert read(str(tmp_path / "none")) is None
    assert read(str(tmp_path)) is None, "a folder opens, and fails only when it is read"
    assert read_number(str(tmp_path / "none")) is None
    assert read_pairs(str(tmp_path / "none")) == {}
    (tmp_path / "status").write_text(
        "Name:\tRssFile: 9\nRssFile:\t  12 kB\nnr_throttled 3\nState:\tS (sleeping)\n"
    )
    assert read_pairs(str(tmp_path / "status")) == {b"RssFile": 12, b"nr_throttled": 3}


@pytest.mark.parametrize(
    ("text", "number"), [("12\n", 12), ("max\n", None), ("-1\n", None), ("", None)]
)
def test_a_limit_may_be_a_word(tmp_path: Path, text: str, number: int | None) -> None:
    (tmp_path / "limit").write_text(text)
    assert read_number(str(tmp_path / "limit")) == number


def test_ages_go_by_the_clock_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a system container /proc/uptime counts from the container's start."""
    started = there(processes.read_stat(os.getpid()))
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 100.0}.__getitem__)
    ages = [
        msgspec.structs.replace(started, start_ticks=s * processes.CLOCK_TICKS).age_s
        for s in (90, 101)
    ]
    assert ages == [10.0, 0.0]
